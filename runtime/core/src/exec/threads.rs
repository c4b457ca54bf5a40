//! How many threads, what they are called and where they run.
//!
//! Owns the part of [`Builder`] that is about threads, and what a thread does before it builds its ring. Knows nothing of
//! what the threads are for (`group` and `workers` do).

use std::io;
use std::thread;
use std::time::Duration;

use super::{Builder, DROP_LIMIT};
use crate::context::Context;
use crate::cpus::Cpus;

/// How long bodies that do not await the stop token go on after another one has failed.
const GRACE: Duration = Duration::from_millis(500);

/// How long a thread may take to say that it has ended, beyond the limit of its runtime's end.
pub(super) const SLACK: Duration = Duration::from_millis(200);

/// How many threads run a program; see [`Builder::threads`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Threads {
    /// As many as this process may run at once: [`std::thread::available_parallelism`], which honours the thread's
    /// affinity and the CPU quota of its control group.
    #[default]
    Auto,
    /// This many, at least 1.
    Exactly(usize),
}

impl Threads {
    pub(super) fn count(self) -> usize {
        match self {
            Self::Exactly(count) => count,
            // Unknown where /proc is hidden, for example: one always works.
            Self::Auto => thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl From<usize> for Threads {
    fn from(count: usize) -> Self {
        Self::Exactly(count)
    }
}

/// What a builder says about threads.
#[derive(Debug, Clone)]
pub(super) struct Staffing {
    pub(super) threads: Threads,
    pin: bool,
    name: String,
    pub(super) grace: Duration,
    pub(super) limit: Duration,
}

impl Default for Staffing {
    fn default() -> Self {
        Self { threads: Threads::Auto, pin: false, name: "runtime".to_owned(), grace: GRACE, limit: DROP_LIMIT }
    }
}

/// Beyond any machine, and so many places can be kept.
const MAX_THREADS: usize = 65_536;

impl Staffing {
    pub(super) fn check(&self) -> io::Result<()> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.threads == Threads::Exactly(0) {
            return invalid("a runtime has at least one thread");
        }
        if matches!(self.threads, Threads::Exactly(count) if count > MAX_THREADS) {
            return invalid("a runtime has at most 65536 threads, and is best with one for each core");
        }
        if self.name.contains('\0') {
            return invalid("the name of a thread cannot have a NUL in it");
        }
        Ok(())
    }

    /// The CPUs that the threads to be started may use: those of the thread that this is called on. Only threads that are
    /// pinned depend on the answer.
    pub(super) fn cpus(&self) -> io::Result<Option<Cpus>> {
        match Cpus::allowed() {
            Ok(cpus) => Ok(Some(cpus)),
            Err(error) if self.pin => Err(because("the allowed CPUs cannot be asked for", &error)),
            Err(_) => Ok(None),
        }
    }

    /// Starts a thread, on its CPU if it is pinned. `body` learns whether that worked.
    pub(super) fn start<F>(&self, index: usize, cpus: Option<Cpus>, body: F) -> io::Result<thread::JoinHandle<()>>
    where
        F: FnOnce(io::Result<()>) + Send + 'static,
    {
        let builder = thread::Builder::new().name(format!("{}-{index}", self.name));
        let pin = self.pin;
        let thread = builder.spawn(move || {
            // Before the ring is built, so that its memory is near.
            let placed = match cpus {
                Some(cpus) if pin => cpus.for_thread(index).pin_thread(),
                // It has those of whoever happened to start it.
                Some(cpus) => cpus.confine_thread().or(Ok(())),
                None => Ok(()),
            };
            body(placed.map_err(|error| because("a thread cannot be pinned to its CPU", &error)));
        });
        thread.map_err(|error| because(&format!("thread {index} of the runtime cannot be started"), &error))
    }
}

fn because(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Has the kernel's worker threads of this ring run where its thread may run: by default they run wherever the process
/// may. A kernel that refuses leaves them there, which is slower and nothing else.
pub(super) fn confine_workers(cx: &Context) {
    if let Ok(cpus) = Cpus::allowed() {
        let _ = cx.driver.ring().borrow().confine_workers(&cpus);
    }
}

/// # Threads
///
/// Settings for [`run`](Self::run), and for the threads that [`spawn_on`](super::spawn_on) starts.
impl Builder {
    /// How many threads there are: a number from 1 to 65536, or [`Threads::Auto`], which is the default.
    ///
    /// [`run`](Self::run) starts them all. [`build`](Self::build) makes the calling thread the first; the others are
    /// started when they are first used.
    pub fn threads(mut self, threads: impl Into<Threads>) -> Self {
        self.staffing.threads = threads.into();
        self
    }

    /// Whether each thread, and the kernel's worker threads that serve it, stay on one CPU. Off by default: pinned threads
    /// cannot make way for other work on the machine.
    ///
    /// Only CPUs that the calling thread may run on are used, one after the other, and again from the first if there are
    /// more threads. The thread that calls [`run`](Self::run) or [`build`](Self::build) is never pinned.
    #[doc(alias = "sched_setaffinity")]
    #[doc(alias = "IORING_REGISTER_IOWQ_AFF")]
    pub fn pin(mut self, pin: bool) -> Self {
        self.staffing.pin = pin;
        self
    }

    /// What threads are called: this, a hyphen and their index; the system shows 15 bytes of it. The default is
    /// `runtime`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.staffing.name = name.into();
        self
    }

    /// How long after one body has failed the others may go on if they do not await [`Handle::stopped`]; 500 ms by
    /// default.
    ///
    /// [`Handle::stopped`]: super::Handle::stopped
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.staffing.grace = grace;
        self
    }

    /// How long the end of each thread's runtime may take in [`run`](Self::run), as in
    /// [`Runtime::shutdown_timeout`](super::Runtime::shutdown_timeout); three seconds by default.
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.staffing.limit = limit;
        self
    }
}
