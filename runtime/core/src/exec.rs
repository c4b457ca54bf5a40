//! The executor: [`Builder`], [`Runtime`] and the run loop.
//!
//! Owns the turn, the order in which things happen and the shutdown. Knows nothing of sockets or files.
//!
//! A turn:
//!
//! 1. polls as many tasks as were ready when it began (at most 256, and for about 500 µs);
//! 2. takes what other threads handed in;
//! 3. visits the kernel once, if there is anything to submit or to fetch, or sleeps there when nothing is ready;
//! 4. stores every completion in its slot, then wakes;
//! 5. fires the timers that are due.
//!
//! So tasks that are always ready cannot starve completions or timers, and a flood of completions cannot starve tasks.

mod shutdown;

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};
use std::time::{Duration, Instant};

use crate::context::{self, Context};
use crate::driver::keep_first;
use crate::metrics::Metrics;
use crate::ring::{Look, Setup, Wait};
use crate::run_queue::Runnable;
use crate::sys;
use crate::task;
use crate::time_queue::TimerKey;
use crate::wake::handshake::Park;
use crate::wake::{self, Arrival, OrphanSink};

/// Tasks that one turn polls at most.
const TURN_POLLS: usize = 256;
/// Time after which a turn stops polling.
const TURN_TIME: Duration = Duration::from_micros(500);
/// Polls between two looks at the clock, and the most there may be while polls have been fast.
const CLOCK_POLLS: usize = 8;
const CLOCK_POLLS_MAX: usize = 32;

/// How long a dropped runtime waits for what it cannot cancel.
const DROP_LIMIT: Duration = Duration::from_secs(3);
/// How long a dropped runtime waits for its jobs on the blocking pool.
const DROP_JOBS_LIMIT: Duration = Duration::from_secs(1);

/// Configures a [`Runtime`].
///
/// ```
/// let runtime = runtime_core::exec::Builder::new().entries(64).build().unwrap();
/// assert_eq!(runtime.block_on(async { 42 }), 42);
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    setup: Setup,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// A ring of 256 entries.
    pub fn new() -> Self {
        Self { setup: Setup { entries: 256, ..Setup::default() } }
    }

    /// Entries of the submission queue, 1 to 32768, rounded up to a power of two. The completion queue has four times
    /// as many, at most 65536. Under memory pressure the ring is built smaller rather than not at all.
    pub fn entries(mut self, entries: u32) -> Self {
        self.setup.entries = entries;
        self
    }

    /// Test hooks; see [`Setup`].
    #[doc(hidden)]
    pub fn setup_mut(&mut self) -> &mut Setup {
        &mut self.setup
    }

    /// Builds the runtime on this thread, where it stays.
    ///
    /// # Errors
    ///
    /// One line that says what is in the way and what helps: a seccomp filter, `kernel.io_uring_disabled`, the limit of
    /// locked memory or of file descriptors, a kernel before 6.1. The inner error is a
    /// [`StartError`](crate::ring::StartError).
    #[doc(alias = "io_uring_setup")]
    pub fn build(&self) -> io::Result<Runtime> {
        if !(1..=32768).contains(&self.setup.entries) {
            let text = format!("a ring has 1 to 32768 entries, not {}", self.setup.entries);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let context = Context::new(&self.setup)?;
        wake::register(context.id(), Arc::clone(&context.door) as Arc<dyn OrphanSink>);
        let waker = Waker::from(Arc::clone(&context.door));
        Ok(Runtime { context, waker, ended: false })
    }
}

/// One ring, one run queue and one timer queue, for the thread that built it.
///
/// Dropping it drops every task, cancels what is in flight and waits until the kernel has let go of it; see
/// [`shutdown_timeout`](Runtime::shutdown_timeout).
pub struct Runtime {
    context: Rc<Context>,
    waker: Waker,
    ended: bool,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("ring", &self.context.id()).finish_non_exhaustive()
    }
}

impl Runtime {
    /// A runtime with the defaults of [`Builder`].
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn new() -> io::Result<Self> {
        Builder::new().build()
    }

    /// Runs a future, and everything that it spawns, until the future completes. Tasks that are not finished then go
    /// on in the next `block_on`.
    ///
    /// # Panics
    ///
    /// When the future panics; when this thread runs a runtime already; in a child of fork(2); when the kernel refuses
    /// the ring.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        assert!(
            !context::is_entered(),
            "`block_on` inside a running runtime would block it: use `.await` or `spawn` instead"
        );
        assert_same_process();
        let cx = &*self.context;
        let _entered = context::enter(cx);
        let _sigpipe = KeepSigpipe::new(cx);
        let mut future = pin!(future);
        let mut task = Task::from_waker(&self.waker);
        cx.door.wake_root();
        loop {
            if cx.door.take_root() {
                cx.begin_poll();
                if let Poll::Ready(output) = future.as_mut().poll(&mut task) {
                    settle(cx);
                    return output;
                }
            }
            turn(cx);
        }
    }

    /// What this runtime has counted.
    pub fn metrics(&self) -> Metrics {
        picture(&self.context)
    }

    /// Ends the runtime: drops every task on this thread, cancels everything in flight and waits at most `limit` for
    /// the kernel to let go of it. Returns how many operations it had to leave behind.
    ///
    /// What is left behind (a write to a disk or a network file system that does not answer) is leaked with its
    /// buffers, never freed. The kernel itself may keep the process from ending until such an operation is over.
    pub fn shutdown_timeout(mut self, limit: Duration) -> usize {
        self.end(limit, limit)
    }

    fn end(&mut self, limit: Duration, jobs_limit: Duration) -> usize {
        if std::mem::replace(&mut self.ended, true) {
            return 0;
        }
        shutdown::shutdown(&self.context, limit, jobs_limit)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.end(DROP_LIMIT, DROP_JOBS_LIMIT);
    }
}

/// Keeps SIGPIPE from this thread while a runtime that writes to pipes may enter its ring here (ruling 25).
struct KeepSigpipe<'a>(&'a Context);

impl<'a> KeepSigpipe<'a> {
    fn new(cx: &'a Context) -> Self {
        cx.keep_sigpipe();
        Self(cx)
    }
}

impl Drop for KeepSigpipe<'_> {
    fn drop(&mut self) {
        self.0.restore_sigpipe();
    }
}

#[track_caller]
fn assert_same_process() {
    assert!(
        sys::same_process(),
        "this is a child of fork(2), which cannot use its parent's ring: start a runtime in a new process, or fork \
         before the first one is built"
    );
}

#[inline(always)]
fn turn(cx: &Context) {
    cx.driver.counters.turns.add(1);
    run_tasks(cx);
    // One of them may have forked: the ring is not mapped in the child (ruling 12).
    cx.driver.assert_same_process();
    if cx.door.handshake().take() {
        take_arrivals(cx);
    }
    if cx.tasks.ready() > 0 || cx.door.root_is_woken() {
        match cx.driver.look() {
            Look::Enter => visit(cx, Wait::No),
            // What came beside a turn, or into the queue of a ring that defers nothing.
            Look::Fetch => fetch(cx),
            Look::Nothing => cx.driver.nothing_reaped(),
        }
    } else {
        idle(cx);
    }
    fire_timers(cx);
}

#[inline(always)]
fn run_tasks(cx: &Context) {
    let ready = cx.tasks.ready().min(TURN_POLLS);
    let mut started = None;
    let mut look = CLOCK_POLLS;
    for n in 1..=ready {
        let Some(runnable) = cx.tasks.pop() else { break };
        cx.begin_poll();
        task::run(runnable);
        if n == look {
            let now = Instant::now();
            let took = now.saturating_duration_since(*started.get_or_insert(now));
            if took >= TURN_TIME {
                break;
            }
            // Rarely while polls are fast, since a look costs as much as one.
            look += if took * 8 < TURN_TIME { (n).min(CLOCK_POLLS_MAX) } else { CLOCK_POLLS };
        }
    }
}

/// Takes what other threads handed in.
fn take_arrivals(cx: &Context) {
    let mut arrivals = cx.arrivals.take();
    cx.door.take(&mut arrivals);
    let count = arrivals.len();
    let mut first = None;
    for arrival in arrivals.drain(..) {
        // What an orphan or a waker throws must not cost the arrivals behind it (ruling 15).
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| receive(cx, arrival))) {
            keep_first(&mut first, panic);
        }
    }
    cx.arrivals.replace(arrivals);
    cx.driver.counters.foreign_wakes.add(count as u64);
    task::resume(first);
}

fn receive(cx: &Context, arrival: Arrival<Runnable>) {
    match arrival {
        Arrival::Task(runnable) => cx.tasks.push(runnable),
        Arrival::Orphan(user_data) => cx.driver.orphan(crate::slot::SlotKey::from_user_data(user_data)),
        Arrival::Timer(bits) => {
            let waker = cx.timers.borrow_mut().remove(TimerKey::from_bits(bits));
            drop(waker);
        }
        Arrival::Errand(errand) => errand.run(),
        Arrival::Wake(place) => {
            if let Some(waker) = cx.tasks.waker_at(place) {
                waker.wake();
            }
        }
    }
}

/// Nothing is ready: sleeps until something is.
#[inline(always)]
fn idle(cx: &Context) {
    let wait = match cx.timers.earliest() {
        u64::MAX => Wait::One,
        deadline_ns => match sys::monotonic_ns() {
            // Never a wait with nothing left to wait for: it costs a hundred times a look.
            now_ns if now_ns >= deadline_ns => Wait::No,
            now_ns => Wait::Until { deadline_ns, now_ns },
        },
    };
    if wait == Wait::No || cx.driver.has_acts() {
        if cx.driver.look() == Look::Enter {
            return visit(cx, Wait::No);
        }
        // Only a timer is due, or there is something to act on that needs no system call.
        return fetch(cx);
    }
    match cx.door.handshake().park() {
        Park::Stay => {
            if cx.driver.look() == Look::Enter {
                visit(cx, Wait::No);
            }
        }
        Park::Sleep => {
            cx.driver.counters.parks.add(1);
            let unpark = Unpark(cx);
            visit(cx, wait);
            drop(unpark);
        }
    }
}

/// The owner is awake again, whatever happened to the visit.
struct Unpark<'a>(&'a Context);

impl Drop for Unpark<'_> {
    fn drop(&mut self) {
        self.0.door.handshake().unpark();
    }
}

/// Visits the kernel and acts on what it brought.
#[inline(never)]
fn visit(cx: &Context, wait: Wait) {
    if let Err(error) = cx.driver.visit(wait) {
        assert_same_process();
        // Nothing that a program can do brings such a ring back; going on would spin.
        panic!("io_uring_enter failed: {error}");
    }
    task::resume(cx.driver.act());
}

/// What was cancelled meanwhile is sent off and settled, and what was received ahead is given to its streams, which may go
/// elsewhere now: there may be no next turn. On while completions come, of which
/// one enter brings out a few tens; bounded by what was in flight.
fn settle(cx: &Context) {
    if cx.driver.has_acts() {
        fetch(cx);
    }
    cx.move_out();
    if !cx.driver.has_cancels() {
        return;
    }
    for _ in 0..=cx.driver.in_flight() {
        visit(cx, Wait::No);
        if cx.driver.last_reaped() == 0 {
            return;
        }
    }
}

/// Acts on what lies in the completion queue already.
fn fetch(cx: &Context) {
    cx.driver.fetch();
    task::resume(cx.driver.act());
}

fn fire_timers(cx: &Context) {
    if cx.timers.earliest() != u64::MAX {
        fire_due_timers(cx);
    }
}

#[inline(never)]
fn fire_due_timers(cx: &Context) {
    let now = sys::monotonic_ns();
    let mut fired = 0;
    let mut first = None;
    loop {
        let due = cx.timers.borrow_mut().pop_due(now);
        let Some(waker) = due else { break };
        fired += 1;
        // A waker that panics must not cost the timers behind it (ruling 15).
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            keep_first(&mut first, panic);
        }
    }
    cx.driver.count_wakes(fired);
    task::resume(first);
}

fn picture(cx: &Context) -> Metrics {
    let mut metrics = cx.driver.counters.picture();
    let pool = cx.driver.pool().picture();
    (metrics.pool_bytes, metrics.pool_pinned, metrics.pool_pieces) = (pool.bytes, pool.pinned, pool.pieces);
    metrics.pool_copied = cx.driver.pool().copied.get();
    metrics.in_flight = u64::from(cx.driver.in_flight());
    metrics.tasks = cx.tasks.living() as u64;
    metrics.ready = cx.tasks.ready() as u64;
    metrics.timers = cx.timers.borrow().len() as u64;
    metrics
}

/// What the runtime of this thread has counted.
///
/// # Panics
///
/// Outside a runtime.
#[track_caller]
pub fn metrics() -> Metrics {
    context::expect(picture)
}
