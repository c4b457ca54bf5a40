//! The blocking pool: threads for what would block the loop and has no opcode.
//!
//! Owns the threads and their queue; knows nothing of runtimes. One pool per process, and a small one for closes; it
//! starts threads when there is work and none is idle, up to a bound, lets idle ones go after a while, and is never joined
//! (ruling 22): a process that ends does not wait for a job that hangs.
//!
//! The settings are the process's, like the threads: of several runtimes that ask, the largest wish counts, so that none
//! has less than it asked for, whichever was built first. Who asks for nothing does not count.

use std::collections::VecDeque;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::panics::drop_quietly;
use crate::{cpus, sys};

/// Something to run on a thread that may block.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Threads that may exist at once, unless somebody asked for another number.
const MAX_THREADS: usize = 128;
/// How long a thread without work stays, unless somebody asked for another time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

struct Pool {
    name: &'static str,
    default_threads: usize,
    /// The most that was asked for; 0 until somebody does.
    asked_threads: AtomicUsize,
    asked_keep_alive_ns: AtomicU64,
    queue: Mutex<Queue>,
    work: Condvar,
}

struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: Pool = Pool::new("rt-blocking", MAX_THREADS);
/// Closes of files that may ask somebody.
static CLOSERS: Pool = Pool::new("rt-closing", 8);
/// Closes that may block for as long as a socket lingers have threads of their own: peers that do not read must not be
/// able to keep look-ups, jobs and files waiting.
static LINGERERS: Pool = Pool::new("rt-lingering", 8);

impl Pool {
    /// The kernel keeps 15 bytes of a name.
    const fn new(name: &'static str, default_threads: usize) -> Self {
        let queue = Queue { jobs: VecDeque::new(), threads: 0, idle: 0 };
        Self {
            name,
            default_threads,
            asked_threads: AtomicUsize::new(0),
            asked_keep_alive_ns: AtomicU64::new(0),
            queue: Mutex::new(queue),
            work: Condvar::new(),
        }
    }

    fn max_threads(&self) -> usize {
        match self.asked_threads.load(Ordering::Relaxed) {
            0 => self.default_threads,
            asked => asked,
        }
    }

    fn keep_alive(&self) -> Duration {
        match self.asked_keep_alive_ns.load(Ordering::Relaxed) {
            0 => KEEP_ALIVE,
            asked => Duration::from_nanos(asked),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Jobs run outside of the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many jobs a runtime has given to the pool that have neither ended nor been dropped.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    running: Mutex<usize>,
    none: Condvar,
}

impl Jobs {
    /// Counts a job until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> JobGuard {
        *self.lock() += 1;
        JobGuard(Arc::clone(self))
    }

    /// Waits until there are none, at most until the deadline.
    pub(crate) fn wait(&self, deadline: Instant) {
        let mut running = self.lock();
        while *running > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            running = self.none.wait_timeout(running, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that has not ended.
#[derive(Debug)]
pub(crate) struct JobGuard(Arc<Jobs>);

impl Drop for JobGuard {
    fn drop(&mut self) {
        let mut running = self.0.lock();
        *running -= 1;
        if *running == 0 {
            self.0.none.notify_all();
        }
    }
}

/// Asks for so many threads, and for idle ones to stay so long.
pub(crate) fn ask(threads: Option<usize>, keep_alive: Option<Duration>) {
    if let Some(threads) = threads {
        POOL.asked_threads.fetch_max(threads, Ordering::Relaxed);
    }
    if let Some(keep_alive) = keep_alive {
        let ns = u64::try_from(keep_alive.as_nanos()).unwrap_or(u64::MAX).max(1);
        POOL.asked_keep_alive_ns.fetch_max(ns, Ordering::Relaxed);
    }
}

/// Queues a job that somebody waits for; drops it when there is no thread and none can be started.
pub(crate) fn run(job: Job) {
    drop(POOL.run(job));
}

/// Queues a close that may take long; without any thread it runs here.
pub(crate) fn close(job: impl FnOnce() + Send + 'static) {
    close_by(&CLOSERS, Box::new(job));
}

/// Queues the close of a socket that lingers. Here, for want of any thread, it does not wait.
pub(crate) fn linger(socket: OwnedFd) {
    let here = thread::current().id();
    close_by(
        &LINGERERS,
        Box::new(move || {
            if thread::current().id() == here {
                sys::stop_lingering(socket.as_fd());
            }
            drop(socket);
        }),
    );
}

fn close_by(pool: &'static Pool, job: Job) {
    for job in pool.run(job) {
        job();
    }
}

/// Whether the close of a socket that lingers would begin at once.
pub(crate) fn has_lingerer() -> bool {
    let queue = LINGERERS.lock();
    queue.idle > queue.jobs.len() || queue.threads < LINGERERS.max_threads()
}

impl Pool {
    /// When no further thread can be started the job runs once one of the others is free. Returns what nobody will run, for
    /// want of any: the job, and those of whoever has relied on a thread that could not be started.
    #[must_use]
    fn run(&'static self, job: Job) -> VecDeque<Job> {
        if !sys::same_process() {
            return VecDeque::from([job]);
        }
        let mut queue = self.lock();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads >= self.max_threads() {
            drop(queue);
            self.work.notify_one();
            return VecDeque::new();
        }
        // Counted before it exists, so that two callers do not start more than the bound.
        queue.threads += 1;
        drop(queue);
        let started = thread::Builder::new().name(self.name.to_owned()).spawn(|| {
            cpus::unpin_thread();
            self.work();
        });
        if started.is_ok() {
            return VecDeque::new();
        }
        let mut queue = self.lock();
        queue.threads -= 1;
        // One that is counted may not exist either: whoever was to start it sees to what is left.
        if queue.threads > 0 { VecDeque::new() } else { mem::take(&mut queue.jobs) }
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                // A job carries its own panic to whoever waits for it; what still gets here must not cost a thread.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                    drop_quietly(panic);
                }
                queue = self.lock();
                continue;
            }
            queue.idle += 1;
            let (woken, timeout) =
                self.work.wait_timeout(queue, self.keep_alive()).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if timeout.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}
