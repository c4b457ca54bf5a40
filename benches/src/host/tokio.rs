//! tokio on one thread: `current_thread`, epoll.

use std::future::Future;

use runtime_limit::Result;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::Host;

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
