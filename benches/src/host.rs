//! A runtime as the benches see it: something that runs a future and spawns others. One file per runtime.

mod aligned;
mod bare;
mod compio;
mod glommio;
mod monoio;
mod ours;
mod tokio;

use std::future::Future;
use std::time::Duration;

use runtime_limit::Result;

pub use self::bare::Bare;
pub use self::compio::Compio;
pub use self::glommio::Glommio;
pub use self::monoio::Monoio;
pub use self::ours::Ours;
pub use self::tokio::Tokio;

/// One thread of a runtime.
pub trait Host: Sized {
    /// What `spawn` returns; awaiting it waits for the task.
    type Handle<T: 'static>: Future;

    /// Starts the runtime as its documentation does first.
    ///
    /// # Errors
    /// It does not start.
    fn new() -> Result<Self>;

    /// Runs a future to its end, and spawned tasks beside it.
    fn block_on<F: Future>(&mut self, future: F) -> F::Output;

    /// Spawns a task on the runtime that is running.
    ///
    /// The bound `Send` is tokio's; the others would do without.
    fn spawn<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;
}

/// A runtime that has timers.
pub trait Timers: Host {
    /// What `sleep` returns.
    type Sleep: Future<Output: Sized>;

    /// A timer of the runtime that is running.
    fn sleep(duration: Duration) -> Self::Sleep;
}

/// Whether a runtime's ring is set up as it comes, or with the flags that ours has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSetup {
    /// As it comes.
    Default,
    /// SINGLE_ISSUER and DEFER_TASKRUN.
    Defer,
}

impl std::str::FromStr for RingSetup {
    type Err = &'static str;

    fn from_str(name: &str) -> std::result::Result<Self, Self::Err> {
        match name {
            "default" => Ok(Self::Default),
            "defer" => Ok(Self::Defer),
            _ => Err("it is default or defer"),
        }
    }
}
