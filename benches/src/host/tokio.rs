//! tokio on one thread: `current_thread`, epoll.

use std::fs::File;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::time::Duration;

use runtime_limit::Result;
use runtime_limit::pipes;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::{Host, Timers};
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
