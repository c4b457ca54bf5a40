//! Threads that are started on demand, for a runtime that is alone on its thread.
//!
//! Owns what such a thread does: it runs what is sent to it until the runtime that started it ends. Knows nothing of who
//! asks for it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use super::{Builder, Runtime};
use crate::cpus::Cpus;
use crate::crew::{Crew, Leftovers, Staff, Way, Worker};
use crate::panics::drop_quietly;
use crate::sys;

/// How the threads of a runtime are started.
pub(super) struct OnDemand {
    builder: Builder,
    /// Those of the thread that the runtime is on, whoever starts the others.
    cpus: Option<Cpus>,
}

impl OnDemand {
    pub(super) fn new(builder: &Builder) -> io::Result<Self> {
        Ok(Self { builder: builder.clone(), cpus: builder.staffing.cpus()? })
    }
}

impl Staff for OnDemand {
    fn threads(&self) -> usize {
        self.builder.staffing.threads.count()
    }

    fn start(&self, crew: &Arc<Crew>, index: usize) -> io::Result<(Way, Worker)> {
        let (started, start) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let (builder, member) = (self.builder.clone(), Arc::clone(crew));
        let thread = self.builder.staffing.start(index, self.cpus, move |pinned| {
            let leftovers = work(&builder, pinned, member, index, &started);
            // Nobody listens any more when the limit is over.
            let _ = end.send(Leftovers::here(leftovers));
        })?;
        let result = start.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended as it started")));
        let worker = Worker::new(thread, ended);
        match result {
            Ok(way) => Ok((way, worker)),
            Err(error) => {
                worker.join();
                Err(error)
            }
        }
    }
}

/// Visits to the kernel that it refused, in a row, after which a thread gives up.
const REFUSED_BOUND: u64 = 100;

/// Runs until the lead ends, and returns how many operations were left behind.
fn work(
    builder: &Builder,
    pinned: io::Result<()>,
    crew: Arc<Crew>,
    index: usize,
    started: &mpsc::Sender<io::Result<Way>>,
) -> usize {
    let place = |_: &Way| (Arc::clone(&crew), index);
    let mut runtime = match pinned.and_then(|()| builder.build_in(place)) {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(error));
            return 0;
        }
    };
    let _ = started.send(Ok(Arc::clone(&runtime.context().door)));
    // What a waker of the program's throws is not a reason to leave the tasks of others alone. A ring that cannot be
    // entered any more is.
    let counts = |runtime: &Runtime| (runtime.metrics().enters, runtime.context().driver.refused());
    let mut since = counts(&runtime);
    loop {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| runtime.block_on(crew.end.stopped()))) else { break };
        drop_quietly(panic);
        sys::end_child_of_fork();
        let now = counts(&runtime);
        if now.0 != since.0 {
            since = now;
        } else if now.1 - since.1 >= REFUSED_BOUND {
            break;
        }
    }
    let limits = crew.limits();
    runtime.end(limits.all, limits.jobs)
}
