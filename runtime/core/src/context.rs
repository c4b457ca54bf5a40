//! The context: everything that one runtime's thread needs, and the only `thread_local` of the crate (I7).
//!
//! Owns one of each part and the pointer to the runtime that the thread is running; knows nothing of futures.

use std::cell::{Cell, OnceCell, RefCell};
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::{Duration, Instant};

use slab::Slab;

use crate::crew::Crew;
use crate::driver::Driver;
use crate::pool::Jobs;
use crate::ring::{Ring, Setup, StartError};
use crate::run_queue::{TaskRef, Tasks};
use crate::spin::Spin;
use crate::sys;
use crate::time_queue::Timers;
use crate::wake::{Arrival, Door, RingId};

thread_local! {
    /// The runtime that this thread runs; null outside. No destructor, so it can be read at any time (ruling 16).
    static CURRENT: Cell<*const Context> = const { Cell::new(ptr::null()) };
}

/// Operations that one poll of a task may complete without suspending (ruling 6).
const BUDGET_OPS: u32 = 128;
/// Bytes that one poll of a task may move without suspending.
const BUDGET_BYTES: u32 = 1 << 20;

pub(crate) struct Context {
    pub(crate) driver: Driver,
    pub(crate) tasks: Tasks,
    pub(crate) timers: Timers,
    pub(crate) door: Arc<Door<TaskRef>>,
    /// Its jobs on the blocking pool.
    pub(crate) jobs: Arc<Jobs>,
    /// Files of its that other threads close.
    pub(crate) closes: Arc<Jobs>,
    pub(crate) clock: Clock,
    /// What streams keep on this thread; see [`Resident`].
    residents: RefCell<Slab<Rc<dyn Resident>>>,
    pub(crate) spin: Spin,
    /// The threads that this one works with, and its index among them; set as the runtime is built.
    pub(crate) crew: OnceCell<(Arc<Crew>, usize)>,
    /// Filled and emptied within one visit; kept for its memory.
    pub(crate) arrivals: RefCell<Vec<Arrival<TaskRef>>>,
    /// How long a stretch of polls may take without being counted.
    pub(crate) long_poll: Cell<Option<Duration>>,
    budget_ops: Cell<u32>,
    budget_bytes: Cell<u32>,
    /// This runtime has written to a pipe: its ring may raise SIGPIPE whenever it is entered.
    writes_pipes: Cell<bool>,
    sigpipe_blocked: Cell<bool>,
    this: Weak<Self>,
}

/// Suspends a task that has spent its budget (ruling 6); part of whatever may complete without suspending.
///
/// For one wait once: whoever has been suspended goes on then, whatever the task has spent before it comes here again. What
/// is polled beside it, as under a time limit, may spend all of every poll.
#[derive(Debug, Default)]
pub struct Proceed {
    was_pending: bool,
}

impl Proceed {
    /// Ready when the task may go on; else it was woken.
    #[inline]
    pub fn poll(&mut self, task: &mut Task<'_>) -> Poll<()> {
        if std::mem::take(&mut self.was_pending) || with(Context::has_budget).unwrap_or(true) {
            return Poll::Ready(());
        }
        self.was_pending = true;
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

/// State of a stream that is tied to one thread's ring, while the stream itself may be anywhere (ruling 3).
pub(crate) trait Resident {
    /// The stream is wanted elsewhere, or gone: gives everything up as soon as the kernel has let go.
    fn leave(self: Rc<Self>);
    /// The same, if nobody here is waiting for it.
    fn leave_if_idle(self: Rc<Self>);
    /// It is giving everything up, and the kernel has not let go yet.
    fn is_leaving(&self) -> bool;
    /// The runtime has ended: gives everything up now.
    fn end(self: Rc<Self>);
}

impl Context {
    pub(crate) fn new(setup: &Setup, spin: Duration) -> Result<Rc<Self>, StartError> {
        // Asked for once, so that the answer is the parent's.
        sys::same_process();
        let ring = Ring::new(setup)?;
        let door = Arc::new(Door::new(is_home_or_answers).map_err(|error| StartError::wake(&error))?);
        let driver = Driver::new(ring, door.event_fd(), setup.pool);
        Ok(Rc::new_cyclic(|this| Self {
            driver,
            tasks: Tasks::default(),
            timers: Timers::new(),
            door,
            jobs: Arc::default(),
            closes: Arc::default(),
            clock: Clock::new(),
            residents: RefCell::default(),
            spin: Spin::new(spin),
            crew: OnceCell::new(),
            arrivals: RefCell::new(Vec::new()),
            long_poll: Cell::new(None),
            budget_ops: Cell::new(BUDGET_OPS),
            budget_bytes: Cell::new(BUDGET_BYTES),
            writes_pipes: Cell::new(false),
            sigpipe_blocked: Cell::new(false),
            this: this.clone(),
        }))
    }

    pub(crate) fn id(&self) -> RingId {
        self.door.id()
    }

    /// For handles that must not keep the runtime alive.
    pub(crate) fn weak(&self) -> Weak<Self> {
        self.this.clone()
    }

    pub(crate) fn admit(&self, resident: Rc<dyn Resident>) -> u32 {
        self.residents.borrow_mut().insert(resident) as u32
    }

    pub(crate) fn dismiss(&self, place: u32) -> Option<Rc<dyn Resident>> {
        self.residents.borrow_mut().try_remove(place as usize)
    }

    pub(crate) fn resident(&self, place: u32) -> Option<Rc<dyn Resident>> {
        self.residents.borrow().get(place as usize).cloned()
    }

    pub(crate) fn any_resident(&self) -> Option<Rc<dyn Resident>> {
        self.residents.borrow().iter().next().map(|(_, resident)| Rc::clone(resident))
    }

    /// The thread may not run this runtime again: streams take what they have here along.
    pub(crate) fn move_out(&self) {
        if self.residents.borrow().is_empty() {
            return;
        }
        let residents: Vec<_> = self.residents.borrow().iter().map(|(_, resident)| Rc::clone(resident)).collect();
        for resident in residents {
            resident.leave_if_idle();
        }
    }

    /// Whether some of them are giving up what they have and wait for the kernel.
    pub(crate) fn has_leaving(&self) -> bool {
        self.residents.borrow().iter().any(|(_, resident)| resident.is_leaving())
    }

    /// A task is about to be polled.
    ///
    /// # Panics
    ///
    /// In a child of fork(2), where whatever was ready in the parent must not run a second time.
    pub(crate) fn begin_poll(&self) {
        self.driver.assert_same_process();
        self.budget_ops.set(BUDGET_OPS);
        self.budget_bytes.set(BUDGET_BYTES);
        self.driver.counters.polls.add(1);
    }

    /// A stretch of polls begins; says when, if anybody wants to know.
    #[inline(always)]
    pub(crate) fn begin_stretch(&self) -> Option<Instant> {
        self.long_poll.get().map(|_| Instant::now())
    }

    /// A stretch of polls ends.
    #[inline(always)]
    pub(crate) fn end_stretch(&self, began: Option<Instant>) {
        if let Some(began) = began {
            self.count_stretch(began.elapsed());
        }
    }

    #[cold]
    fn count_stretch(&self, took: Duration) {
        if self.long_poll.get().is_some_and(|limit| took > limit) {
            self.driver.counters.long_polls.add(1);
        }
    }

    /// Whether the running task may complete another operation without suspending.
    pub(crate) fn has_budget(&self) -> bool {
        self.budget_ops.get() > 0 && self.budget_bytes.get() > 0
    }

    /// An operation of `bytes` was completed without suspending.
    pub(crate) fn spend(&self, bytes: usize) {
        self.budget_ops.set(self.budget_ops.get().saturating_sub(1));
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.budget_bytes.set(self.budget_bytes.get().saturating_sub(bytes));
    }

    /// Keeps SIGPIPE from this thread until `block_on` returns (ruling 25).
    pub(crate) fn block_sigpipe(&self) {
        if !self.writes_pipes.replace(true) {
            self.keep_sigpipe();
        }
    }

    /// Blocks the signal again where an earlier `block_on` has: its writes may still be in flight.
    pub(crate) fn keep_sigpipe(&self) {
        if self.writes_pipes.get() {
            self.sigpipe_blocked.set(sys::block_sigpipe());
        }
    }

    pub(crate) fn restore_sigpipe(&self) {
        if self.sigpipe_blocked.take() {
            sys::unblock_sigpipe();
        }
    }
}

/// Translates between `Instant`s and the nanoseconds of the ring's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    base: Instant,
    base_ns: u64,
}

impl Clock {
    fn new() -> Self {
        // In this order: the nanoseconds are read later, so a deadline is never translated to a time before it. Of a few
        // tries the one counts in which the thread was not interrupted in between.
        let read = || {
            let base = Instant::now();
            let base_ns = sys::monotonic_ns();
            (base.elapsed(), Self { base, base_ns })
        };
        (0..3).map(|_| read()).min_by_key(|(took, _)| *took).expect("three").1
    }

    /// A time as nanoseconds of the monotonic clock; times out of reach are as far as can be said.
    pub(crate) fn ns(&self, at: Instant) -> u64 {
        const FAR: Duration = Duration::from_nanos(i64::MAX as u64 / 2);
        let after = at.saturating_duration_since(self.base).min(FAR);
        self.base_ns + after.as_nanos() as u64
    }
}

/// Runs `f` with the context of the runtime that this thread runs.
#[inline(always)]
pub(crate) fn with<R>(f: impl FnOnce(&Context) -> R) -> Option<R> {
    let current = CURRENT.get();
    if current.is_null() {
        return None;
    }
    // SAFETY: set by `Entered`, which borrows the context for as long as the pointer stands.
    Some(f(unsafe { &*current }))
}

/// Like [`with`], for what only makes sense inside.
#[track_caller]
#[inline(always)]
pub(crate) fn expect<R>(f: impl FnOnce(&Context) -> R) -> R {
    match with(f) {
        Some(result) => result,
        None => outside(),
    }
}

/// The context of the runtime that this thread runs, without the closure of [`expect`], which is not always inlined.
///
/// # Safety
///
/// The reference is not kept beyond the call that asks for it.
#[inline(always)]
#[track_caller]
pub(crate) unsafe fn borrow<'a>() -> &'a Context {
    // SAFETY: the caller's promise.
    match unsafe { try_borrow() } {
        Some(cx) => cx,
        None => outside(),
    }
}

/// Like [`borrow`], `None` outside.
///
/// # Safety
///
/// As there.
#[inline(always)]
pub(crate) unsafe fn try_borrow<'a>() -> Option<&'a Context> {
    // SAFETY: set by `Entered`, which lives in a frame below the caller's.
    unsafe { CURRENT.get().as_ref() }
}

#[cold]
#[track_caller]
fn outside() -> ! {
    panic!(
        "this needs a running runtime, and the thread runs none: use it inside `Runtime::block_on`, \
         `#[runtime::main]` or `#[runtime::test]`"
    )
}

/// Whether this thread runs the runtime of this ring.
pub(crate) fn is_current(id: RingId) -> bool {
    with(|cx| cx.id() == id).unwrap_or(false)
}

/// Like [`is_current`], for wakes: of a thread that runs another runtime, it is an answer.
fn is_home_or_answers(id: RingId) -> bool {
    with(|cx| {
        let is_home = cx.id() == id;
        if !is_home {
            cx.driver.count_answer();
        }
        is_home
    })
    .unwrap_or(false)
}

/// Whether this thread runs any runtime.
pub(crate) fn is_entered() -> bool {
    !CURRENT.get().is_null()
}

/// Makes a context the current one until it is dropped, then restores the former.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    former: *const Context,
    _context: std::marker::PhantomData<&'a Context>,
}

pub(crate) fn enter(context: &Context) -> Entered<'_> {
    Entered { former: CURRENT.replace(context), _context: std::marker::PhantomData }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.former);
    }
}
