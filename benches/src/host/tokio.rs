//! tokio on one thread: `current_thread`, epoll.

use std::fs::File;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use runtime_limit::Result;
use runtime_limit::files::Access;
use runtime_limit::pipes;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, LocalSet, spawn_blocking};

use super::aligned::vector;
use super::{Host, Timers};
use crate::files::{Files, Way};
use crate::splice::Splices;

/// A `current_thread` runtime with I/O and time.
#[derive(Debug)]
pub struct Tokio(Runtime);

impl Host for Tokio {
    type Handle<T: 'static> = JoinHandle<T>;

    fn new() -> Result<Self> {
        Ok(Self(Builder::new_current_thread().enable_all().build()?))
    }

    fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        tokio::spawn(future)
    }
}

impl Timers for Tokio {
    type Sleep = tokio::time::Sleep;

    fn sleep(duration: Duration) -> Self::Sleep {
        tokio::time::sleep(duration)
    }
}

/// It has no splice of its own: `try_io` is its way to a system call.
impl Splices for Tokio {
    type Middle = (Receiver, Sender);

    fn line() -> Result<(File, Self::Middle, File)> {
        let ((from, tx), (rx, to)) = (pipes::pipe()?, pipes::pipe()?);
        Ok((tx, (Receiver::from_file(from)?, Sender::from_file(to)?), rx))
    }

    async fn splice((from, to): &mut Self::Middle, len: usize) -> io::Result<usize> {
        loop {
            from.readable().await?;
            match from.try_io(|| pipes::splice(from, to, len, false)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    async fn tee((from, to): &mut Self::Middle, len: usize) -> io::Result<usize> {
        loop {
            from.readable().await?;
            match from.try_io(|| pipes::tee(from, to, len, false)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    async fn drain((from, _): &mut Self::Middle, mut message: Vec<u8>) -> io::Result<Vec<u8>> {
        from.read_exact(&mut message).await?;
        Ok(message)
    }
}

/// Reads and writes at offsets are std's on its blocking pool, which is what its own file does too, with a copy more.
impl Files for Tokio {
    type File = Arc<File>;
    type Buf = (Vec<u8>, usize);

    fn run_local<F: Future>(&mut self, future: F) -> F::Output {
        LocalSet::new().block_on(&self.0, future)
    }

    fn spawn_local<F: Future<Output: 'static> + 'static>(future: F) -> impl Future<Output = F::Output> {
        let task = tokio::task::spawn_local(future);
        async { task.await.expect("a reader does not panic") }
    }

    async fn open(path: &str, access: Access) -> io::Result<Arc<File>> {
        let mut options = tokio::fs::OpenOptions::new();
        match access {
            Access::Read | Access::Direct => options.read(true).custom_flags(access.flags()),
            Access::Write => options.write(true).create(true).truncate(false),
        };
        Ok(Arc::new(options.open(path).await?.into_std().await))
    }

    fn buffers(count: usize, len: usize, way: Way) -> io::Result<Vec<Self::Buf>> {
        match way {
            Way::Plain => Ok((0..count).map(|_| vector(len)).collect()),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }

    async fn read(file: &Arc<File>, (mut buf, start): Self::Buf, offset: u64, _: Way) -> io::Result<Self::Buf> {
        let file = Arc::clone(file);
        spawn_blocking(move || {
            let len = buf.len() - 4096;
            file.read_exact_at(&mut buf[start..start + len], offset)?;
            Ok((buf, start))
        })
        .await?
    }

    async fn write(file: &Arc<File>, (buf, start): Self::Buf, offset: u64) -> io::Result<Self::Buf> {
        let file = Arc::clone(file);
        spawn_blocking(move || {
            let len = buf.len() - 4096;
            file.write_all_at(&buf[start..start + len], offset)?;
            Ok((buf, start))
        })
        .await?
    }

    async fn sync(file: &Arc<File>) -> io::Result<()> {
        let file = Arc::clone(file);
        spawn_blocking(move || file.sync_data()).await?
    }

    async fn len(file: &Arc<File>) -> io::Result<u64> {
        let file = Arc::clone(file);
        spawn_blocking(move || Ok(file.metadata()?.len())).await?
    }

    async fn stat(path: &str) -> io::Result<u64> {
        Ok(tokio::fs::metadata(path).await?.len())
    }

    async fn close(file: Arc<File>) -> io::Result<()> {
        drop(file);
        Ok(())
    }
}
