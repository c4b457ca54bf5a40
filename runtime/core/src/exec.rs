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

mod group;
mod handle;
mod settle;
mod shutdown;
mod threads;
mod workers;

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Task, Poll, Waker};
use std::time::{Duration, Instant};

use crate::cell;
use crate::context::{self, Context};
use crate::cpus;
use crate::crew::{Crew, Limits, Way};
use crate::metrics::Metrics;
use crate::panics::keep_first;
use crate::pool;
use crate::ring::{Look, Setup, Wait};
use crate::run_queue::TaskRef;
use crate::spin::{self, Plan};
use crate::sys;
use crate::task;
use crate::time;
use crate::time_queue::TimerKey;
use crate::wake::handshake::Park;
use crate::wake::{self, Arrival, OrphanSink};
use settle::Settled;
use threads::{SLACK, Staffing};
use workers::OnDemand;

pub use handle::{Handle, NoRuntimeError, Stopped, spawn_on};
pub use threads::Threads;

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

/// Looks for work between two looks at the clock, which cost as much as several.
const SPINS_PER_CLOCK: u32 = 16;

/// Threads that are in `block_on`: where they outnumber the cores, nobody spins.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

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
    spin: Duration,
    long_poll: Option<Duration>,
    blocking_threads: Option<usize>,
    thread_keep_alive: Option<Duration>,
    staffing: Staffing,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// A ring of 256 entries.
    pub fn new() -> Self {
        let setup = Setup { entries: 256, io_workers: Some([0, 0]), ..Setup::default() };
        Self {
            setup,
            spin: spin::MAX,
            long_poll: None,
            blocking_threads: None,
            thread_keep_alive: None,
            staffing: Staffing::default(),
        }
    }

    /// Entries of the submission queue, 1 to 32768, rounded up to a power of two. The completion queue has four times
    /// as many, at most 65536. Under memory pressure the ring is built smaller rather than not at all.
    pub fn entries(mut self, entries: u32) -> Self {
        self.setup.entries = entries;
        self
    }

    /// How long the thread may look for work before it sleeps: 100 µs by default, which is the most there is; zero
    /// switches it off.
    ///
    /// A sleep and the wake that ends it cost tens of microseconds, so a thread that is usually answered sooner gains by
    /// waiting awake, in CPU time too. The runtime finds out by itself: it spins only while most of its last waits were
    /// short, after it has sent something (what comes unasked is gathered by a sleep), for at most this time, and stops for
    /// 100 ms when that did not pay off three times in a row, or when others were given its core. It never does while more
    /// threads run runtimes than there are cores, or under a CPU quota (cgroup `cpu.max`). An idle program does not spin.
    pub fn spin(mut self, limit: Duration) -> Self {
        self.spin = limit;
        self
    }

    /// Counts polls that take longer than `limit`, in [`Metrics::long_polls`]: a task that computes or blocks holds up
    /// every other one of its thread.
    ///
    /// Off unless set. What is measured are stretches of up to 32 polls (see there), for two looks at the clock or a few
    /// more a turn, about 25 ns each; so choose a limit well above what 32 ordinary polls take together, 5 ms for
    /// example.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = runtime_core::exec::Builder::new().long_poll(Duration::from_millis(5)).build().unwrap();
    /// runtime.block_on(async { std::thread::sleep(Duration::from_millis(20)) });
    /// assert_eq!(runtime.metrics().long_polls, 1);
    /// ```
    pub fn long_poll(mut self, limit: Duration) -> Self {
        self.long_poll = Some(limit);
        self
    }

    /// How many of the kernel's own threads may work for this thread's ring at once: *bounded* ones on what ends by itself
    /// (files and names), *unbounded* ones on what may wait for others (sockets and pipes, where the runtime sees to it
    /// that the kernel waits without a thread). 0 leaves the default.
    ///
    /// By default four bounded workers per CPU that this process may use; without being told, the kernel takes that number
    /// or the entries of the first ring of the thread, whichever is less, so that a small ring would leave few workers to
    /// all later ones. The number of unbounded ones is that of the processes the user may have (`RLIMIT_NPROC`).
    ///
    /// Above 2³¹ − 1 [`build`](Self::build) fails. The numbers are the thread's: of several runtimes on one thread, the one
    /// that was built last says.
    #[doc(alias = "IORING_REGISTER_IOWQ_MAX_WORKERS")]
    pub fn io_workers(mut self, bounded: u32, unbounded: u32) -> Self {
        self.setup.io_workers = Some([bounded, unbounded]);
        self
    }

    /// How many threads [`spawn_blocking`](crate::task::spawn_blocking) and name look-ups may have at once, 128 unless
    /// somebody asks; jobs beyond that wait in a queue without a bound. They are started when there is work.
    ///
    /// The threads are shared by all runtimes of the process. Of several that ask for a number the largest counts, and one
    /// that asks for none takes what there is.
    pub fn blocking_threads(mut self, threads: usize) -> Self {
        self.blocking_threads = Some(threads);
        self
    }

    /// How long a thread of [`blocking_threads`](Self::blocking_threads) stays without work, 10 s unless somebody asks.
    /// Shared in the same way: the longest time counts.
    pub fn thread_keep_alive(mut self, time: Duration) -> Self {
        self.thread_keep_alive = Some(time);
        self
    }

    /// Test hooks; see [`Setup`].
    #[doc(hidden)]
    pub fn setup_mut(&mut self) -> &mut Setup {
        &mut self.setup
    }

    /// Builds the runtime on this thread, where it stays. Other threads are started when [`spawn_on`] first asks for
    /// them.
    ///
    /// # Errors
    ///
    /// One line that says what is in the way and what helps: a seccomp filter, `kernel.io_uring_disabled`, the limit of
    /// locked memory or of file descriptors, a kernel before 6.1. The inner error is a
    /// [`StartError`](crate::ring::StartError).
    #[doc(alias = "io_uring_setup")]
    pub fn build(&self) -> io::Result<Runtime> {
        self.staffing.check()?;
        let staff = Box::new(OnDemand::new(self)?);
        self.build_in(|way| (Crew::lead(Arc::clone(way), staff), 0))
    }

    /// Builds the runtime for a place in a crew.
    fn build_in(&self, place: impl FnOnce(&Way) -> (Arc<Crew>, usize)) -> io::Result<Runtime> {
        if !sys::same_process() {
            // Another thread of the parent may hold any of the locks below for ever (ruling 12).
            return Err(io::Error::other(IN_CHILD_OF_FORK));
        }
        if !(1..=32768).contains(&self.setup.entries) {
            let text = format!("a ring has 1 to 32768 entries, not {}", self.setup.entries);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if self.setup.io_workers.is_some_and(|numbers| numbers.iter().any(|&number| i32::try_from(number).is_err())) {
            let text = "the kernel counts its workers in an i32: io_workers takes numbers up to 2147483647";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if self.blocking_threads == Some(0) {
            let text = "the blocking pool needs at least one thread: name look-ups run there";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let context = Context::new(&self.setup, self.spin)?;
        context.long_poll.set(self.long_poll);
        if !context.spin.is_off() {
            // Both read files the first time, which is not for the run loop to do.
            let _ = (cpus::of_process(), sys::has_cpu_quota());
        }
        pool::ask(self.blocking_threads, self.thread_keep_alive);
        wake::register(context.id(), Arc::clone(&context.door) as Arc<dyn OrphanSink>);
        let waker = Waker::from(Arc::clone(&context.door));
        threads::confine_workers(&context);
        let crew = context.crew.set(place(&context.door));
        debug_assert!(crew.is_ok(), "the context is new");
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
        let _running = Running::new();
        // Before the future, so that it comes after the end of that, however it ends.
        let _settled = Settled(cx);
        let mut future = pin!(future);
        let mut task = Task::from_waker(&self.waker);
        cx.door.wake_root();
        loop {
            if cx.door.take_root() {
                cx.begin_poll();
                let began = cx.begin_stretch();
                let polled = future.as_mut().poll(&mut task);
                cx.end_stretch(began);
                if let Poll::Ready(output) = polled {
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
    ///
    /// Threads that were started by [`spawn_on`] end at the same time and in the same way; what they leave behind is
    /// counted as well, and one that does not end within the limit goes on alone.
    pub fn shutdown_timeout(mut self, limit: Duration) -> usize {
        self.end(limit, limit)
    }

    fn end(&mut self, limit: Duration, jobs_limit: Duration) -> usize {
        if std::mem::replace(&mut self.ended, true) {
            return 0;
        }
        let deadline = time::after(limit.saturating_add(SLACK));
        let lead = self.context.crew.get().filter(|(crew, index)| *index == 0 && crew.group_id().is_none());
        // Not in a child of fork(2), which has none of the threads.
        let lead = lead.filter(|_| sys::same_process()).map(|(crew, _)| crew);
        if let Some(crew) = lead {
            crew.end(Limits { all: limit, jobs: jobs_limit });
        }
        let left = shutdown::shutdown(&self.context, limit, jobs_limit);
        left + lead.map_or(0, |crew| crew.wait_for_workers(deadline))
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

/// Counts a thread in `block_on`.
struct Running;

impl Running {
    fn new() -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
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

const IN_CHILD_OF_FORK: &str = "this is a child of fork(2), which cannot use its parent's ring: start a runtime in a new \
                                process, or fork before the first one is built";

#[track_caller]
fn assert_same_process() {
    assert!(sys::same_process(), "{IN_CHILD_OF_FORK}");
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
    let mut began = cx.begin_stretch();
    for n in 1..=ready {
        let Some(task) = cx.tasks.pop() else { break };
        cx.begin_poll();
        cell::run(cx, task);
        if n == look {
            cx.end_stretch(began);
            let now = Instant::now();
            began = began.map(|_| now);
            let took = now.saturating_duration_since(*started.get_or_insert(now));
            if took >= TURN_TIME {
                break;
            }
            // Rarely while polls are fast, since a look costs as much as one.
            look += if took * 8 < TURN_TIME { (n).min(CLOCK_POLLS_MAX) } else { CLOCK_POLLS };
        }
    }
    cx.end_stretch(began);
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

fn receive(cx: &Context, arrival: Arrival<TaskRef>) {
    match arrival {
        Arrival::Task(task) => cell::receive(cx, task),
        Arrival::Orphan(user_data) => cx.driver.orphan(crate::slot::SlotKey::from_user_data(user_data)),
        Arrival::Timer(bits) => {
            // Dropped or set anew elsewhere: whoever waited for it looks for itself.
            let waker = cx.timers.borrow_mut().remove(TimerKey::from_bits(bits));
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        Arrival::Errand(errand) => errand.run(),
        // Its destructor is foreign code, which the caller contains.
        Arrival::Stray(stray) => drop(stray),
    }
}

/// Nothing is ready: sleeps until something is.
#[inline(always)]
fn idle(cx: &Context) {
    let wait = wait_now(cx);
    if wait == Wait::No || cx.driver.has_acts() {
        if cx.driver.look() == Look::Enter {
            return visit(cx, Wait::No);
        }
        // Only a timer is due, or there is something to act on that needs no system call.
        return fetch(cx);
    }
    match plan(cx) {
        Plan::Sleep => sleep(cx, wait),
        Plan::Measure => {
            let began_ns = sys::monotonic_ns();
            sleep(cx, wait);
            cx.spin.slept(sys::monotonic_ns() - began_ns);
        }
        Plan::SpinUntil(until_ns) => {
            if !spin(cx, until_ns) {
                // Its visit to the kernel may have led to an earlier timer.
                match wait_now(cx) {
                    Wait::No => {}
                    wait => sleep(cx, wait),
                }
            }
        }
    }
}

/// How long a sleep that begins now may last.
#[inline(always)]
fn wait_now(cx: &Context) -> Wait {
    match cx.timers.earliest() {
        u64::MAX => Wait::One,
        deadline_ns => match sys::monotonic_ns() {
            // Never a wait with nothing left to wait for: it costs a hundred times a look.
            now_ns if now_ns >= deadline_ns => Wait::No,
            now_ns => Wait::Until { deadline_ns, now_ns },
        },
    }
}

/// What to do instead of falling asleep at once (ruling 20).
#[inline(always)]
fn plan(cx: &Context) -> Plan {
    if cx.spin.is_off() { Plan::Sleep } else { plan_by_the_record(cx) }
}

#[inline(never)]
fn plan_by_the_record(cx: &Context) -> Plan {
    let now_ns = sys::monotonic_ns();
    let plan = cx.spin.plan(now_ns);
    if matches!(plan, Plan::SpinUntil(_))
        && (!cx.driver.shows_completions()
            // What is queued counts when it is submitted, which is next.
            || !cx.spin.has_answered(cx.driver.answers()) && cx.driver.look() == Look::Nothing
            || RUNNING.load(Ordering::Relaxed) > cpus::of_process()
            || sys::has_cpu_quota()
            || cx.spin.wants_to_watch(now_ns) && !cx.spin.watch(now_ns, sys::preemptions()))
    {
        return Plan::Sleep;
    }
    plan
}

/// Looks for work until a time, or until the next timer, without a system call but for what is queued. Says whether
/// there is some.
#[inline(never)]
fn spin(cx: &Context, until_ns: u64) -> bool {
    if cx.driver.look() != Look::Nothing {
        visit(cx, Wait::No);
        if cx.tasks.ready() > 0 || cx.door.root_is_woken() {
            return true;
        }
    }
    cx.driver.counters.spins.add(1);
    let began_ns = sys::monotonic_ns();
    let deadline_ns = cx.timers.earliest();
    loop {
        for _ in 0..SPINS_PER_CLOCK {
            if cx.driver.look() != Look::Nothing || cx.door.handshake().is_notified() {
                cx.spin.found(sys::monotonic_ns() - began_ns, began_ns);
                cx.driver.counters.spins_won.add(1);
                if cx.driver.look() != Look::Nothing {
                    visit(cx, Wait::No);
                }
                return true;
            }
            std::hint::spin_loop();
        }
        let now_ns = sys::monotonic_ns();
        if now_ns >= deadline_ns {
            // A timer is due: a sleep would have brought that, too.
            cx.spin.failed(now_ns);
            return true;
        }
        if now_ns >= until_ns {
            cx.spin.failed(now_ns);
            return false;
        }
    }
}

/// Sleeps in the kernel, unless something was handed in meanwhile.
#[inline(always)]
fn sleep(cx: &Context, wait: Wait) {
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
    if let Err(error) = cx.driver.visit(wait, |waker| cell::wake_home(cx, waker)) {
        assert_same_process();
        // Nothing that a program can do brings such a ring back; going on would spin.
        panic!("io_uring_enter failed: {error}");
    }
    task::resume(cx.driver.act());
}

/// Acts on what lies in the completion queue already.
fn fetch(cx: &Context) {
    cx.driver.fetch(|waker| cell::wake_home(cx, waker));
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
