//! The runtime that all this is about.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io;
use std::time::Duration;

use runtime::pipe::{self, Receiver, Sender};
use runtime::task::JoinHandle;
use runtime::{Builder, Runtime};
use runtime_limit::Result;
use runtime_limit::pipes::CAPACITY;

use super::{Host, Timers};
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
