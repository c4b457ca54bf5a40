//! The runtime that all this is about.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use runtime::task::JoinHandle;
use runtime::{Builder, Runtime};
use runtime_limit::Result;

use super::{Host, Timers};

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
