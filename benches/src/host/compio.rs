//! compio on its ring.

use std::fs::File;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use compio::BufResult;
use compio::buf::{IntoInner, IoBuf};
use compio::driver::ProactorBuilder;
use compio::fs::pipe;
use compio::io::{AsyncReadAt, AsyncWriteAt};
use compio::runtime::fd::AsyncFd;
use compio::runtime::{JoinHandle, Runtime, RuntimeBuilder};
use runtime_limit::Result;
use runtime_limit::files::Access;
use runtime_limit::pipes;

use super::aligned::vector;
use super::{Host, RingSetup, Timers};
use crate::files::{Files, Way, whole};
use crate::splice::Splices;

/// A runtime of 1024 entries.
#[derive(Debug)]
pub struct Compio(Runtime);

impl Compio {
    /// Starts it on a ring with or without our flags.
    ///
    /// # Errors
    /// It does not start.
    pub fn with(setup: RingSetup) -> Result<Self> {
        let mut ring = ProactorBuilder::new();
        ring.capacity(1024);
        if setup == RingSetup::Defer {
            ring.single_issuer(true).defer_taskrun(true);
        }
        Ok(Self(RuntimeBuilder::new().with_proactor(ring).build()?))
    }
}

impl Host for Compio {
    type Handle<T: 'static> = JoinHandle<T>;

    fn new() -> Result<Self> {
        Self::with(RingSetup::Default)
    }

    fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        compio::runtime::spawn(future)
    }
}

impl Timers for Compio {
    /// Its own type has no name.
    type Sleep = Pin<Box<dyn Future<Output = ()>>>;

    fn sleep(duration: Duration) -> Self::Sleep {
        Box::pin(compio::time::sleep(duration))
    }
}

impl Splices for Compio {
    type Middle = (AsyncFd<File>, AsyncFd<File>);

    fn line() -> Result<(File, Self::Middle, File)> {
        let ((from, tx), (rx, to)) = (pipes::pipe()?, pipes::pipe()?);
        Ok((tx, (AsyncFd::new(from)?, AsyncFd::new(to)?), rx))
    }

    async fn splice((from, to): &mut Self::Middle, len: usize) -> io::Result<usize> {
        pipe::splice(from, to, len).await
    }

    async fn drain(_: &mut Self::Middle, _: Vec<u8>) -> io::Result<Vec<u8>> {
        // Only a tee leaves something.
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Files for Compio {
    type File = compio::fs::File;
    type Buf = (Vec<u8>, usize);

    fn spawn_local<F: Future<Output: 'static> + 'static>(future: F) -> impl Future<Output = F::Output> {
        let task = compio::runtime::spawn(future);
        async { task.await.unwrap_or_else(|_| panic!("a reader does not panic")) }
    }

    async fn open(path: &str, access: Access) -> io::Result<Self::File> {
        let mut options = compio::fs::OpenOptions::new();
        match access {
            Access::Read | Access::Direct => options.read(true).custom_flags(access.flags()),
            Access::Write => options.write(true).create(true),
        };
        options.open(path).await
    }

    fn buffers(count: usize, len: usize, way: Way) -> io::Result<Vec<Self::Buf>> {
        match way {
            Way::Plain => Ok((0..count).map(|_| vector(len)).collect()),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    async fn read(file: &Self::File, (buf, start): Self::Buf, offset: u64, _: Way) -> io::Result<Self::Buf> {
        let len = buf.len() - 4096;
        let BufResult(read, part) = file.read_at(buf.slice(start..start + len), offset).await;
        whole(read?, len)?;
        Ok((part.into_inner(), start))
    }

    async fn write(file: &Self::File, (buf, start): Self::Buf, offset: u64) -> io::Result<Self::Buf> {
        let len = buf.len() - 4096;
        let BufResult(written, part) = (&mut &*file).write_at(buf.slice(start..start + len), offset).await;
        whole(written?, len)?;
        Ok((part.into_inner(), start))
    }

    async fn sync(file: &Self::File) -> io::Result<()> {
        file.sync_data().await
    }

    async fn len(file: &Self::File) -> io::Result<u64> {
        Ok(file.metadata().await?.len())
    }

    async fn stat(path: &str) -> io::Result<u64> {
        Ok(compio::fs::metadata(path).await?.len())
    }

    async fn close(file: Self::File) -> io::Result<()> {
        file.close().await
    }
}
