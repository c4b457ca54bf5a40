//! glommio on its three rings.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use glommio::{LocalExecutor, LocalExecutorBuilder, Placement, Task};
use runtime_limit::Result;

use super::{Host, Timers};

/// An executor that is not pinned by itself: the driver pins all servers alike.
#[derive(Debug)]
pub struct Glommio(LocalExecutor);

impl Host for Glommio {
    type Handle<T: 'static> = Task<T>;

    fn new() -> Result<Self> {
        let executor = LocalExecutorBuilder::new(Placement::Unbound).make();
        Ok(Self(executor.map_err(|error| error.to_string())?))
    }

    fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        self.0.run(future)
    }

    fn spawn<F>(future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        glommio::spawn_local(future)
    }
}

impl Timers for Glommio {
    /// Its own type has no name.
    type Sleep = Pin<Box<dyn Future<Output = ()>>>;

    fn sleep(duration: Duration) -> Self::Sleep {
        Box::pin(glommio::timer::sleep(duration))
    }
}
