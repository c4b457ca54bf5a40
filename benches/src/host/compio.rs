//! compio on its ring.

use std::fs::File;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use compio::driver::ProactorBuilder;
use compio::fs::pipe;
use compio::runtime::fd::AsyncFd;
use compio::runtime::{JoinHandle, Runtime, RuntimeBuilder};
use runtime_limit::Result;
use runtime_limit::pipes;

use super::{Host, RingSetup, Timers};
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
