//! The blocking pool: threads for what would block the loop and has no opcode.
//!
//! Owns the threads and their queue; knows nothing of runtimes. One pool per process; it starts threads when there is
//! work and none is idle, up to a bound, lets idle ones go after a while, and is never joined (ruling 22): a process
//! that ends does not wait for a job that hangs.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::sys;

/// Something to run on a thread that may block.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Threads that may exist at once.
const MAX_THREADS: usize = 128;
/// How long a thread without work stays.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

struct Pool {
    queue: Mutex<Queue>,
    work: Condvar,
}

struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: Pool =
    Pool { queue: Mutex::new(Queue { jobs: VecDeque::new(), threads: 0, idle: 0 }), work: Condvar::new() };

impl Pool {
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

/// Queues a job. When no thread can be started it runs once one of the others is free; when there is none at all it
/// is given back, as in a child of fork(2), which has none of them.
pub(crate) fn run(job: Job) -> Result<(), Job> {
    if !sys::same_process() {
        return Err(job);
    }
    let mut queue = POOL.lock();
    queue.jobs.push_back(job);
    if queue.idle >= queue.jobs.len() || queue.threads >= MAX_THREADS {
        drop(queue);
        POOL.work.notify_one();
        return Ok(());
    }
    // Counted before it exists, so that two callers do not start more than the bound.
    queue.threads += 1;
    drop(queue);
    let started = thread::Builder::new().name("runtime-blocking".to_owned()).spawn(work);
    if started.is_ok() {
        return Ok(());
    }
    let mut queue = POOL.lock();
    queue.threads -= 1;
    if queue.threads > 0 {
        return Ok(());
    }
    // Whoever is last in the queue: ours, or that of somebody in the same trouble, who finds ours in turn.
    match queue.jobs.pop_back() {
        Some(job) => Err(job),
        None => Ok(()),
    }
}

/// Queues a job that nobody waits for; without any thread it runs here.
pub(crate) fn run_detached(job: impl FnOnce() + Send + 'static) {
    if let Err(job) = run(Box::new(job)) {
        job();
    }
}

fn work() {
    let mut queue = POOL.lock();
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            // A job carries its own panic to whoever waits for it; what still gets here must not cost a thread.
            let _ = catch_unwind(AssertUnwindSafe(job));
            queue = POOL.lock();
            continue;
        }
        queue.idle += 1;
        let (woken, timeout) = POOL.work.wait_timeout(queue, KEEP_ALIVE).unwrap_or_else(PoisonError::into_inner);
        queue = woken;
        queue.idle -= 1;
        if timeout.timed_out() && queue.jobs.is_empty() {
            queue.threads -= 1;
            return;
        }
    }
}
