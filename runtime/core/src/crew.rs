//! The crew: the threads that run one program together, by index, and what they have in common.
//!
//! Owns who sits on which place, the stop token, and the threads that were started on demand. Knows nothing of how a
//! thread is started (`exec` hands that in) or of what runs on it.
//!
//! Each runtime is in one. A *group* (`Builder::run`) has all its places taken before any body runs. A *lead* is a
//! runtime alone on its thread, with index 0; its other places are taken when they are first asked for.
//!
//! ```text
//!   empty ──first use──▶ taken ──end of the lead──▶ gone: tasks are refused
//! ```

pub(crate) mod stop;

use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::run_queue::TaskRef;
use crate::sys;
use crate::wake::Door;
use stop::Stop;

/// The way to one thread of a crew.
pub(crate) type Way = Arc<Door<TaskRef>>;

/// Who has threads started on demand.
pub(crate) trait Staff: Send + Sync {
    /// How many threads there may be, the lead's included.
    fn threads(&self) -> usize;
    /// Starts the thread with this index and returns once it runs.
    fn start(&self, crew: &Arc<Crew>, index: usize) -> io::Result<(Way, Worker)>;
}

pub(crate) struct Crew {
    /// Names it; never used twice in a process.
    id: NonZeroU64,
    /// Told by the program: the bodies should come to their end.
    pub(crate) stop: Stop,
    /// Told by the runtime: it ends now.
    pub(crate) end: Stop,
    /// How long the end of one thread may take.
    limits: Mutex<Limits>,
    /// Made when first asked for: counting the CPUs means reading files.
    seats: OnceLock<Box<[Seat]>>,
    kind: Kind,
}

/// How long the end of a runtime may take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// All of it.
    pub(crate) all: Duration,
    /// The wait for its jobs on the blocking pool.
    pub(crate) jobs: Duration,
}

enum Kind {
    Group,
    Lead { way: Way, staff: Box<dyn Staff> },
}

/// A place in a crew.
#[derive(Default)]
struct Seat(Mutex<Option<Taken>>);

struct Taken {
    way: Way,
    /// `None` for threads that somebody else looks after.
    worker: Option<Worker>,
}

/// A thread that was started on demand.
#[derive(Debug)]
pub(crate) struct Worker {
    thread: Option<thread::JoinHandle<()>>,
    ended: mpsc::Receiver<Leftovers>,
}

/// Sent by a thread as the last thing it does before its thread-local destructors run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leftovers {
    /// How many operations it had to leave behind.
    pub(crate) operations: usize,
    thread: i32,
}

impl Leftovers {
    /// Those of the calling thread.
    pub(crate) fn here(operations: usize) -> Self {
        Self { operations, thread: sys::thread_id() }
    }

    /// Joins the thread, unless something keeps it: the exit of one that left operations behind waits for the kernel without
    /// limit (ruling 8), and thread-local destructors may do anything.
    pub(crate) fn join(self, thread: thread::JoinHandle<()>, deadline: Instant) {
        let mut pause = Duration::from_micros(20);
        while self.operations == 0 && sys::has_thread(self.thread) {
            if Instant::now() >= deadline {
                return;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        if self.operations == 0 {
            // Its panics are contained.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Seat {
    fn lock(&self) -> MutexGuard<'_, Option<Taken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the runtime of this thread has ended")
}

fn next_id() -> NonZeroU64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    NonZeroU64::new(next).expect("2^64 crews are more than a process can start")
}

impl Crew {
    fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            id: next_id(),
            stop: Stop::default(),
            end: Stop::default(),
            limits: Mutex::default(),
            seats: OnceLock::new(),
            kind,
        })
    }

    /// The threads of one `run`.
    pub(crate) fn group(threads: usize) -> Arc<Self> {
        let crew = Self::new(Kind::Group);
        crew.seats.get_or_init(|| (0..threads).map(|_| Seat::default()).collect());
        crew
    }

    /// A runtime alone on its thread.
    pub(crate) fn lead(way: Way, staff: Box<dyn Staff>) -> Arc<Self> {
        Self::new(Kind::Lead { way, staff })
    }

    /// The name of a group, whose threads share their listening sockets; `None` for a runtime alone on its thread.
    pub(crate) fn group_id(&self) -> Option<NonZeroU64> {
        matches!(self.kind, Kind::Group).then_some(self.id)
    }

    fn seats(&self) -> &[Seat] {
        self.seats.get_or_init(|| match &self.kind {
            Kind::Group => Box::default(),
            Kind::Lead { way, staff } => {
                let seats: Box<[Seat]> = (0..staff.threads().max(1)).map(|_| Seat::default()).collect();
                *seats[0].lock() = Some(Taken { way: Arc::clone(way), worker: None });
                seats
            }
        })
    }

    /// How many threads there are, or may be.
    pub(crate) fn threads(&self) -> usize {
        self.seats().len()
    }

    /// A thread of a group is there.
    pub(crate) fn take_seat(&self, index: usize, way: Way) {
        *self.seats()[index].lock() = Some(Taken { way, worker: None });
    }

    /// The way to a thread, which is started if it can be.
    pub(crate) fn way(self: &Arc<Self>, index: usize) -> io::Result<Way> {
        // The lock is kept while a thread starts, so that it starts once; whoever else wants it waits as well.
        let mut seat = self.seats()[index].lock();
        if let Some(taken) = &*seat {
            return Ok(Arc::clone(&taken.way));
        }
        match &self.kind {
            Kind::Lead { staff, .. } if !self.end.is_stopped() => {
                let (way, worker) = staff.start(self, index)?;
                *seat = Some(Taken { way: Arc::clone(&way), worker: Some(worker) });
                Ok(way)
            }
            _ => Err(ended()),
        }
    }

    /// Has a thread started that is not there yet.
    pub(crate) fn start(self: &Arc<Self>, index: usize) -> io::Result<()> {
        if self.way(index)?.is_closed() { Err(ended()) } else { Ok(()) }
    }

    /// Whether a thread runs, or would be started by [`way`](Self::way).
    pub(crate) fn is_reachable(&self, index: usize) -> bool {
        match &*self.seats()[index].lock() {
            Some(taken) => !taken.way.is_closed(),
            None => matches!(self.kind, Kind::Lead { .. }) && !self.end.is_stopped(),
        }
    }

    /// What [`end`](Self::end) said.
    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all threads to end, each within the limits.
    pub(crate) fn end(&self, limits: Limits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
        self.end.stop();
    }

    /// Waits for the threads that were started on demand, and returns how many operations they had to leave behind.
    pub(crate) fn wait_for_workers(&self, deadline: Instant) -> usize {
        let Some(seats) = self.seats.get() else { return 0 };
        let workers = seats.iter().filter_map(|seat| seat.lock().as_mut()?.worker.take());
        workers.map(|worker| worker.wait(deadline)).sum()
    }
}

impl Worker {
    pub(crate) fn new(thread: thread::JoinHandle<()>, ended: mpsc::Receiver<Leftovers>) -> Self {
        Self { thread: Some(thread), ended }
    }

    /// Waits for a thread that has come to its end.
    pub(crate) fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // Its panics are contained.
            let _ = thread.join();
        }
    }

    fn wait(mut self, deadline: Instant) -> usize {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.ended.recv_timeout(left) {
            Ok(leftovers) => {
                if let Some(thread) = self.thread.take() {
                    leftovers.join(thread, deadline);
                }
                leftovers.operations
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                self.join();
                0
            }
            Err(mpsc::RecvTimeoutError::Timeout) => 0,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !sys::same_process() {
            // A child of fork(2) has none of its parent's threads: there is nothing to detach.
            std::mem::forget(self.thread.take());
        }
    }
}
