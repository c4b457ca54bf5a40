//! tokio on one thread: `current_thread`, epoll.

use std::future::Future;
use std::time::Duration;

use runtime_limit::Result;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::{Host, Timers};

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
