//! monoio on its ring.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use io_uring_of_monoio::IoUring;
use monoio::task::JoinHandle;
use monoio::time::TimeDriver;
use monoio::{IoUringDriver, Runtime, RuntimeBuilder};
use runtime_limit::Result;

use super::{Host, RingSetup, Timers};

/// A runtime with timers, 1024 entries.
pub struct Monoio(Runtime<TimeDriver<IoUringDriver>>);

impl Monoio {
    /// Starts it on a ring with or without our flags.
    ///
    /// # Errors
    /// It does not start.
    pub fn with(setup: RingSetup) -> Result<Self> {
        let mut ring = IoUring::builder();
        if setup == RingSetup::Defer {
            ring.setup_single_issuer().setup_defer_taskrun();
        }
        let builder = RuntimeBuilder::<IoUringDriver>::new().uring_builder(ring).with_entries(1024);
        Ok(Self(builder.enable_timer().build()?))
    }
}

impl fmt::Debug for Monoio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monoio").finish_non_exhaustive()
    }
}

impl Host for Monoio {
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
        monoio::spawn(future)
    }
}

impl Timers for Monoio {
    type Sleep = monoio::time::Sleep;

    fn sleep(duration: Duration) -> Self::Sleep {
        monoio::time::sleep(duration)
    }
}
