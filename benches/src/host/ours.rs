//! The runtime that all this is about.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io;
use std::time::Duration;

use runtime::fs::{self, AlignedBuf};
use runtime::io::{FixedBuf, FixedBufs};
use runtime::pipe::{self, Receiver, Sender};
use runtime::task::JoinHandle;
use runtime::{Builder, Runtime};
use runtime_limit::Result;
use runtime_limit::files::Access;
use runtime_limit::pipes::CAPACITY;

use super::{Host, Timers};
use crate::files::{Files, Way, whole};
use crate::splice::Splices;

/// A runtime as `Builder` makes it.
pub struct Ours(Runtime);

impl fmt::Debug for Ours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ours").finish_non_exhaustive()
    }
}

impl Ours {
    /// One that goes to sleep at once when it has nothing to do.
    pub fn without_spin() -> Result<Self> {
        Ok(Self(Builder::new().spin(Duration::ZERO).build()?))
    }
}

impl Host for Ours {
    type Handle<T: 'static> = JoinHandle<T>;

    fn new() -> Result<Self> {
        Ok(Self(Builder::new().build()?))
    }

    fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        runtime::spawn(future)
    }
}

impl Timers for Ours {
    type Sleep = runtime::time::Sleep;

    fn sleep(duration: Duration) -> Self::Sleep {
        runtime::time::sleep(duration)
    }
}

impl Splices for Ours {
    type Middle = (Receiver, Sender);

    fn line() -> Result<(File, Self::Middle, File)> {
        let builder = pipe::Builder::new().capacity(CAPACITY);
        let ((tx, from), (to, rx)) = (builder.build()?, builder.build()?);
        // The outer ends have descriptions of their own, whose mode is nobody else's.
        Ok((tx.into_blocking_fd()?.into(), (from, to), rx.into_blocking_fd()?.into()))
    }

    #[inline]
    async fn splice((from, to): &mut Self::Middle, len: usize) -> io::Result<usize> {
        pipe::splice(from, to, len).await
    }

    async fn tee((from, to): &mut Self::Middle, len: usize) -> io::Result<usize> {
        pipe::tee(from, to, len).await
    }

    async fn drain((from, _): &mut Self::Middle, message: Vec<u8>) -> io::Result<Vec<u8>> {
        from.read_exact(message).await.into_result().map(|((), message)| message)
    }
}

/// Memory of the runtime's own kinds.
#[derive(Debug)]
pub enum Buf {
    /// Aligned, and otherwise as any other.
    Aligned(AlignedBuf),
    /// Registered with the ring.
    Fixed(FixedBuf),
}

impl Files for Ours {
    type File = fs::File;
    type Buf = Buf;

    fn spawn_local<F: Future<Output: 'static> + 'static>(future: F) -> impl Future<Output = F::Output> {
        let task = runtime::spawn(future);
        async { task.await.expect("a reader does not panic") }
    }

    async fn open(path: &str, access: Access) -> io::Result<fs::File> {
        match access {
            Access::Read => fs::File::open(path).await,
            Access::Direct => fs::OpenOptions::new().read(true).direct(true).open(path).await,
            Access::Write => fs::OpenOptions::new().write(true).create(true).open(path).await,
        }
    }

    fn buffers(count: usize, len: usize, way: Way) -> io::Result<Vec<Buf>> {
        if way == Way::Fixed {
            let set = FixedBufs::new(count, len)?;
            return Ok((0..count).filter_map(|_| set.try_lease()).map(Buf::Fixed).collect());
        }
        let aligned = |_| {
            let mut buf = AlignedBuf::new(len, 4096)?;
            buf.resize(len);
            Ok(Buf::Aligned(buf))
        };
        (0..count).map(aligned).collect()
    }

    #[inline]
    async fn read(file: &fs::File, buf: Buf, offset: u64, way: Way) -> io::Result<Buf> {
        match buf {
            Buf::Aligned(buf) if way == Way::Vectored => {
                let (n, mut bufs) = file.read_vectored_at(vec![buf], offset).await.into_result()?;
                let buf = bufs.pop().ok_or(io::ErrorKind::Other)?;
                whole(n, buf.len())?;
                Ok(Buf::Aligned(buf))
            }
            Buf::Aligned(buf) => {
                let (n, buf) = file.read_at(buf, offset).await.into_result()?;
                whole(n, buf.len())?;
                Ok(Buf::Aligned(buf))
            }
            Buf::Fixed(buf) => {
                let (n, buf) = file.read_at(buf, offset).await.into_result()?;
                whole(n, buf.len())?;
                Ok(Buf::Fixed(buf))
            }
        }
    }

    async fn write(file: &fs::File, buf: Buf, offset: u64) -> io::Result<Buf> {
        match buf {
            Buf::Aligned(buf) => Ok(Buf::Aligned(file.write_all_at(buf, offset).await.into_result()?.1)),
            Buf::Fixed(buf) => Ok(Buf::Fixed(file.write_all_at(buf, offset).await.into_result()?.1)),
        }
    }

    async fn sync(file: &fs::File) -> io::Result<()> {
        file.sync_data().await
    }

    async fn len(file: &fs::File) -> io::Result<u64> {
        Ok(file.metadata().await?.len())
    }

    async fn stat(path: &str) -> io::Result<u64> {
        Ok(fs::metadata(path).await?.len())
    }

    async fn close(file: fs::File) -> io::Result<()> {
        file.close().await
    }
}
