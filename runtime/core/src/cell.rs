//! The task cell: one allocation that holds a future, then its output, with the state that handles and wakers share.
//!
//! Owns how a task is made, polled, woken and ended. Knows nothing of handles' types, of the ring or of the run loop. The
//! rules of what threads share are in [`state`](crate::run_queue::state); what is for the home thread only rests on
//! ruling 14: a future is polled and dropped where it was spawned, and only there.
//!
//! There are three ways to name a task:
//!
//! | name | counted | who has it |
//! |---|---|---|
//! | [`TaskRef`] and the wakers of users | yes | handles, channels, other threads |
//! | [`TaskPtr`] | no | the queue and the table, which hold one reference to each living task together |
//! | a *home waker* | no | slots and timers of the task's own runtime: a place in the table, looked up when it is woken |
//!
//! Most wakes come from the task's own ring, so most cost no atomic operation.

use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::{Context as Task, Poll, RawWaker, RawWakerVTable, Waker};

use crate::context::{self, Context};
use crate::panics::{Panic, drop_quietly};
use crate::run_queue::state::{Outcome, State};
use crate::run_queue::{Ended, Header, NOWHERE, Stage, TaskPtr, TaskRef, Vtable};
use crate::wake::{Arrival, Door};

/// What a task leaves behind when it was not cancelled.
pub(crate) type Output<T> = Result<T, Panic>;

#[repr(C)]
struct TaskCell<F: Future> {
    /// First, so that the address of the cell is the header's.
    header: Header,
    body: UnsafeCell<Body<F>>,
}

/// The future until the task is done, then the output, until somebody takes it. Both begin where it begins.
#[repr(C)]
union Body<F: Future> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<Output<F::Output>>,
}

/// Makes a cell: the first reference is the task's, the second the handle's.
///
/// # Safety
///
/// Both are given to those they are for: the future is polled and dropped on one thread only, the home of the door,
/// unless it is `Send`; and the handle leaves that thread only if the output is `Send`.
pub(crate) unsafe fn new<F: Future + 'static>(future: F, door: Option<Arc<Door<TaskRef>>>) -> (TaskRef, TaskRef) {
    let header = Header {
        state: State::new(),
        vtable: const {
            &Vtable {
                poll: poll::<F>,
                drop_future: drop_future::<F>,
                take_output: take_output::<F>,
                drop_output: drop_output::<F>,
                free: free::<F>,
            }
        },
        door,
        stage: Cell::new(Stage::Away),
        index: Cell::new(NOWHERE),
        awaiter: UnsafeCell::new(None),
    };
    let body = UnsafeCell::new(Body { future: ManuallyDrop::new(future) });
    let cell = Box::into_raw(Box::new(TaskCell { header, body }));
    let Some(at) = NonNull::new(cell.cast::<Header>()) else { unreachable!("a box is not null") };
    // SAFETY: the state begins with two references; this is the one.
    let task = unsafe { TaskRef::from_ptr(TaskPtr(at)) };
    // SAFETY: and this the other.
    let handle = unsafe { TaskRef::from_ptr(TaskPtr(at)) };
    (task, handle)
}

// ---- what depends on the type of the future -------------------------------------------------------------------------

/// Where the body of a cell is that was made for an `F`.
///
/// # Safety
///
/// The cell was, and a reference is held while the result is used.
#[inline(always)]
unsafe fn body<F: Future>(task: TaskPtr) -> *mut Body<F> {
    let cell = task.0.cast::<TaskCell<F>>().as_ptr();
    // SAFETY: inside of the cell.
    let body = unsafe { &raw const (*cell).body };
    UnsafeCell::raw_get(body)
}

/// # Safety
///
/// On the home thread, with a future of type `F` in the body, and not from within a poll of it.
unsafe fn poll<F: Future>(task: TaskPtr, cx: &mut Task<'_>) -> Ended {
    // SAFETY: the caller's promise.
    let body = unsafe { body::<F>(task) };
    // SAFETY: the future is in the body, and nobody else has it.
    let future = unsafe { &mut *body.cast::<F>() };
    // SAFETY: it is never moved: it is dropped where it is.
    let future = unsafe { Pin::new_unchecked(future) };
    let output = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(Poll::Pending) => return Ended::No,
        Ok(Poll::Ready(output)) => Ok(output),
        Err(panic) => Err(panic),
    };
    // SAFETY: the future is in the body and is not used again.
    unsafe { drop_future::<F>(task) };
    // SAFETY: the body is empty, and has room for either.
    unsafe { body.cast::<Output<F::Output>>().write(output) };
    Ended::Yes
}

/// # Safety
///
/// On the home thread, with a future of type `F` in the body, which is not used again.
unsafe fn drop_future<F: Future>(task: TaskPtr) {
    // SAFETY: the caller's promise.
    let body = unsafe { body::<F>(task) };
    // SAFETY: the future is in the body, and is dropped in place, once.
    contained(|| unsafe { body.cast::<F>().drop_in_place() });
}

/// # Safety
///
/// With an output of type `F::Output` in the body, which is the caller's (rule 3) and not used again; `to` is the place
/// of an [`Output`] of that type.
unsafe fn take_output<F: Future>(task: TaskPtr, to: *mut ()) {
    // SAFETY: the caller's promise.
    let body = unsafe { body::<F>(task) };
    // SAFETY: the output is in the body and is moved out once.
    unsafe { ptr::copy_nonoverlapping(body.cast::<Output<F::Output>>(), to.cast(), 1) };
}

/// # Safety
///
/// As [`take_output`].
unsafe fn drop_output<F: Future>(task: TaskPtr) {
    // SAFETY: the caller's promise.
    let body = unsafe { body::<F>(task) };
    // SAFETY: the output is in the body, and is dropped in place, once.
    contained(|| unsafe { body.cast::<Output<F::Output>>().drop_in_place() });
}

/// # Safety
///
/// Without a reference left; future and output are gone.
unsafe fn free<F: Future>(task: TaskPtr) {
    // SAFETY: the box that `new` made, which nobody has a reference to.
    drop(unsafe { Box::from_raw(task.0.cast::<TaskCell<F>>().as_ptr()) });
}

/// Runs a destructor that may panic without taking anything else down.
fn contained(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        drop_quietly(panic);
    }
}

// ---- the task's side ------------------------------------------------------------------------------------------------

/// Deals with a task that came out of the queue of `cx`: polls it, or ends it if it was aborted.
#[inline(always)]
pub(crate) fn run(cx: &Context, task: TaskPtr) {
    // SAFETY: the table or the queue holds a reference, at least until the task is buried.
    let header = unsafe { task.header() };
    if header.stage.get() != Stage::Ready {
        return release(task, header);
    }
    header.stage.set(Stage::Idle);
    if header.state.is_aborted() {
        return end(cx, task, header, Ended::No);
    }
    // SAFETY: borrows the reference that is held for as long as the waker is.
    let waker = ManuallyDrop::new(unsafe { Waker::new(task.0.as_ptr().cast(), &COUNTED) });
    // SAFETY: on the home thread; the future exists, since the task is not buried, and no poll of it is on the stack,
    // since polls are not nested.
    let ended = unsafe { (header.vtable.poll)(task, &mut Task::from_waker(&waker)) };
    if ended == Ended::Yes {
        end(cx, task, header, ended);
    }
}

/// A task comes out of the queue whose future had gone before.
#[cold]
fn release(task: TaskPtr, header: &Header) {
    header.stage.set(Stage::Done);
    // SAFETY: the queue's reference.
    drop(unsafe { TaskRef::from_ptr(task) });
}

/// Ends a task of `cx`: without an output, if its future still exists.
#[inline(never)]
fn end(cx: &Context, task: TaskPtr, header: &Header, ended: Ended) {
    if ended == Ended::No {
        // SAFETY: on the home thread, not from within a poll: `run` is never nested, and shutdown runs outside of it.
        unsafe { (header.vtable.drop_future)(task) };
    }
    let own = cx.tasks.bury(header);
    let awaiter = finish(task, header, ended);
    drop(own);
    // Last, because that is foreign code, which may panic.
    if let Some(awaiter) = awaiter {
        awaiter.wake();
    }
}

/// Tells the handle that the future is gone, and hands out the waker of whoever awaits it.
#[must_use]
fn finish(task: TaskPtr, header: &Header, ended: Ended) -> Option<Waker> {
    let found = header.state.finish(ended == Ended::No);
    if !found.handle && ended == Ended::Yes {
        // SAFETY: without a handle the output is the task's (rule 3).
        unsafe { (header.vtable.drop_output)(task) };
    }
    // SAFETY: rule 2: given by the handle, and `DONE` is set.
    if found.waits { unsafe { (*header.awaiter.get()).take() } } else { None }
}

/// Ends a living task without an output.
pub(crate) fn cancel(cx: &Context, task: TaskPtr) {
    // SAFETY: the table holds a reference.
    let header = unsafe { task.header() };
    end(cx, task, header, Ended::No);
}

/// Ends a task that is in nobody's table and was never polled.
pub(crate) fn refuse(task: TaskRef) {
    let header = task.header();
    // SAFETY: on the thread that made it, or with a future that is `Send` until it is polled.
    unsafe { (header.vtable.drop_future)(task.ptr()) };
    header.stage.set(Stage::Done);
    let awaiter = finish(task.ptr(), header, Ended::No);
    drop(task);
    if let Some(awaiter) = awaiter {
        awaiter.wake();
    }
}

/// Runs a task of no runtime to its end, in one poll: a job of the blocking pool. It is cancelled if it was aborted.
pub(crate) fn run_to_end(task: TaskRef) {
    let header = task.header();
    if header.state.is_aborted() {
        return refuse(task);
    }
    // SAFETY: the future is `Send`, and whoever has the task's own reference has the future.
    let ended = unsafe { (header.vtable.poll)(task.ptr(), &mut Task::from_waker(Waker::noop())) };
    if ended == Ended::No {
        return refuse(task);
    }
    let awaiter = finish(task.ptr(), header, ended);
    drop(task);
    if let Some(awaiter) = awaiter {
        awaiter.wake();
    }
}

/// Takes in what another thread handed in: a task of this runtime that was woken, or that was made elsewhere.
pub(crate) fn receive(cx: &Context, task: TaskRef) {
    let header = task.header();
    header.state.arrived();
    match header.stage.get() {
        // This is the task's own reference.
        Stage::Away if cx.driver.is_closing() => refuse(task),
        Stage::Away => cx.tasks.adopt(task),
        _ => cx.tasks.wake(task.ptr(), header),
    }
}

// ---- wakers ---------------------------------------------------------------------------------------------------------

/// Wakes a task from wherever this is called.
#[inline(always)]
pub(crate) fn wake(task: TaskPtr, header: &Header) {
    // SAFETY: not kept beyond this call.
    match unsafe { context::try_borrow() } {
        Some(cx) if is_home(cx, header) => cx.tasks.wake(task, header),
        _ => wake_from_afar(task, header),
    }
}

#[inline(always)]
fn is_home(cx: &Context, header: &Header) -> bool {
    header.door.as_ref().is_some_and(|door| Arc::ptr_eq(door, &cx.door))
}

#[cold]
fn wake_from_afar(task: TaskPtr, header: &Header) {
    let Some(door) = &header.door else { return };
    context::with(|cx| cx.driver.count_answer());
    if header.state.begin_arrival() {
        let door = Arc::clone(door);
        // SAFETY: counted by `begin_arrival`.
        let arrival = Arrival::Task(unsafe { TaskRef::from_ptr(task) });
        // A runtime that is gone has ended its tasks: only the reference comes back.
        drop(door.send(arrival));
    }
}

/// The wakers of tasks that users see: each is a reference.
static COUNTED: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: the waker's own reference.
        let task = ManuallyDrop::new(unsafe { counted(data) });
        std::mem::forget(TaskRef::clone(&task));
        RawWaker::new(data, &COUNTED)
    },
    |data| {
        // SAFETY: the waker's own reference, which is used up.
        let task = unsafe { counted(data) };
        wake(task.ptr(), task.header());
    },
    |data| {
        // SAFETY: the waker's own reference, which it keeps.
        let task = ManuallyDrop::new(unsafe { counted(data) });
        wake(task.ptr(), task.header());
    },
    |data| {
        // SAFETY: the waker's own reference, which is used up.
        drop(unsafe { counted(data) });
    },
);

/// # Safety
///
/// `data` is that of a waker with the table `COUNTED`.
#[inline(always)]
unsafe fn counted(data: *const ()) -> TaskRef {
    // SAFETY: from a non-null pointer, see `run` and the clones of it.
    let at = unsafe { NonNull::new_unchecked(data.cast_mut().cast::<Header>()) };
    // SAFETY: the waker's reference.
    unsafe { TaskRef::from_ptr(TaskPtr(at)) }
}

/// Home wakers: a place in the table of the runtime that is the current one when they are woken. They point at nothing,
/// so they are sound anywhere; they are only given to slots and timers, which are acted on at home.
static AT_HOME: RawWakerVTable =
    RawWakerVTable::new(|data| RawWaker::new(data, &AT_HOME), wake_at_home, wake_at_home, |_| {});

fn wake_at_home(data: *const ()) {
    // SAFETY: not kept beyond this call.
    if let Some(cx) = unsafe { context::try_borrow() } {
        cx.tasks.wake_at(data.addr() as u32);
    }
}

/// Wakes a home waker of `cx` now, which runs no foreign code; gives any other back.
#[inline(always)]
pub(crate) fn wake_home(cx: &Context, waker: Waker) -> Option<Waker> {
    if !ptr::eq(waker.vtable(), &AT_HOME) {
        return Some(waker);
    }
    cx.tasks.wake_at(waker.data().addr() as u32);
    // It has nothing to drop.
    std::mem::forget(waker);
    None
}

/// Wakes, from where nothing may panic, such as a destructor: what might run foreign code is left to the act phase.
pub(crate) fn wake_safely(waker: Waker) {
    let is_ours = ptr::eq(waker.vtable(), &AT_HOME) || ptr::eq(waker.vtable(), &COUNTED);
    let mut waker = Some(waker);
    if !is_ours {
        context::with(|cx| waker.take().map(|waker| cx.driver.wake_later(waker)));
    }
    // Outside a runtime there is no act phase. Another panic on top of one would end the process.
    match waker {
        Some(waker) if !is_ours && std::thread::panicking() => {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                drop_quietly(panic);
            }
        }
        Some(waker) => waker.wake(),
        None => {}
    }
}

/// The waker for something that is only woken at home, while `cx` is the current context: without a reference when it is
/// that of a task of `cx`, else a clone.
#[inline(always)]
pub(crate) fn home_waker(cx: &Context, waker: &Waker) -> Waker {
    if ptr::eq(waker.vtable(), &COUNTED) {
        let at = waker.data().cast::<Header>();
        // SAFETY: the waker's reference.
        let header = unsafe { &*at };
        if is_home(cx, header) {
            let place = ptr::without_provenance(header.index.get() as usize);
            // SAFETY: the table's functions use the pointer as a number.
            return unsafe { Waker::new(place, &AT_HOME) };
        }
    }
    waker.clone()
}

// ---- the handle's side ----------------------------------------------------------------------------------------------

/// The handle's side of a task.
#[derive(Debug)]
pub(crate) struct Handle {
    task: TaskRef,
    /// The output was taken, or there is none.
    over: bool,
}

impl Handle {
    /// # Safety
    ///
    /// The reference is the one that [`new`] made for the handle.
    pub(crate) unsafe fn new(task: TaskRef) -> Self {
        Self { task, over: false }
    }

    pub(crate) fn task(&self) -> &TaskRef {
        &self.task
    }

    /// Whether the future is gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.task.header().state.outcome() != Outcome::Lives
    }

    /// The output, `None` if the task was cancelled.
    ///
    /// # Safety
    ///
    /// The task's future has the output type `T`.
    ///
    /// # Panics
    ///
    /// When the output was taken before.
    pub(crate) unsafe fn poll<T>(&mut self, waker: &Waker) -> Poll<Option<Output<T>>> {
        assert!(!self.over, "a task's handle must not be polled after it gave the output");
        match self.poll_outcome(waker) {
            Outcome::Lives => Poll::Pending,
            Outcome::Cancelled => {
                self.over = true;
                Poll::Ready(None)
            }
            Outcome::Output => {
                self.over = true;
                let mut output = std::mem::MaybeUninit::<Output<T>>::uninit();
                let take = self.task.header().vtable.take_output;
                // SAFETY: done with a handle, so the output is ours (rule 3), and `over` keeps this from being repeated.
                unsafe { take(self.task.ptr(), output.as_mut_ptr().cast()) };
                // SAFETY: written by the line above.
                Poll::Ready(Some(unsafe { output.assume_init() }))
            }
        }
    }

    fn poll_outcome(&mut self, waker: &Waker) -> Outcome {
        let header = self.task.header();
        let outcome = header.state.take_place_back();
        if outcome != Outcome::Lives {
            return outcome;
        }
        // SAFETY: rule 2: taken back, and the task had not ended. Nothing below is borrowed while foreign code runs.
        let former = unsafe { (*header.awaiter.get()).take() };
        let waker = match former {
            Some(former) if former.will_wake(waker) => former,
            _ => waker.clone(),
        };
        // SAFETY: as above: it is given away only by the next line.
        let empty = unsafe { (*header.awaiter.get()).replace(waker) };
        debug_assert!(empty.is_none(), "only the handle puts wakers there");
        let outcome = header.state.wait();
        if outcome != Outcome::Lives {
            // SAFETY: the task ended before it was given the place, so it is ours for good.
            drop(unsafe { (*header.awaiter.get()).take() });
        }
        outcome
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let header = self.task.header();
        if self.over {
            return;
        }
        match header.state.leave() {
            // SAFETY: rule 2: taken back, and the task had not ended.
            Outcome::Lives => drop(unsafe { (*header.awaiter.get()).take() }),
            // SAFETY: rule 3: it was ours, and nobody has taken it.
            Outcome::Output => unsafe { (header.vtable.drop_output)(self.task.ptr()) },
            Outcome::Cancelled => {}
        }
    }
}
