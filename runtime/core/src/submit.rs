//! The future of one operation, and the handle of a multishot one.
//!
//! Owns the promise that a future holds nothing the kernel can touch (I2): it has the operation before the first poll
//! and a key afterwards. Knows nothing of what operations do.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Weak;
use std::task::{self, Poll, Waker};

use crate::cell;
use crate::context::{self, Context};
use crate::op::{Cqe, Multi, Op};
use crate::ring::Wait;
use crate::slot::{Slot, SlotKey};
use crate::sys;
use crate::wake::{self, RingId};

/// Submits `op` when first polled and completes with its output.
///
/// # Cancel safety
///
/// Dropping the future asks the kernel to cancel the operation. Whatever it ends with goes to [`Op::orphan`]; by
/// default its output is dropped, which closes a descriptor that was made.
///
/// # Panics
///
/// When polled outside a runtime, or in another runtime than before.
pub fn submit<O: Op>(op: O) -> Submit<O> {
    Submit { state: State::Created(op) }
}

/// The future of one operation, from [`submit`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Submit<O: Op> {
    state: State<O>,
}

enum State<O: Op> {
    Created(O),
    Flying(Flight<O>),
    Done,
}

// Nothing in a future is pinned: the operation is moved into its slot, and nobody borrows from the future.
impl<O: Op> Unpin for Submit<O> {}

impl<O: Op> std::fmt::Debug for Submit<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            State::Created(_) => "created",
            State::Flying(_) => "in flight",
            State::Done => "done",
        };
        f.debug_struct("Submit").field("kind", &O::KIND).field("state", &state).finish()
    }
}

impl<O: Op> Future for Submit<O> {
    type Output = O::Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<O::Output> {
        let this = &mut *self;
        match &mut this.state {
            State::Flying(flight) => {
                let output = std::task::ready!(flight.poll(task));
                this.state = State::Done;
                Poll::Ready(output)
            }
            State::Created(_) => {
                let unsent = Unsent(&mut this.state);
                let waker = waker_of(task);
                let State::Created(op) = std::mem::replace(unsent.0, State::Done) else { unreachable!() };
                match Flight::start_by(waker, || op) {
                    Ok(flight) => {
                        *unsent.0 = State::Flying(flight);
                        Poll::Pending
                    }
                    Err(make) => Poll::Ready(make().complete(Cqe::CANCELED)),
                }
            }
            State::Done => panic!("an operation's future must not be polled after it completed"),
        }
    }
}

/// An operation that is about to be sent, while the waker is cloned: should that panic it is given up as an orphan, since it
/// may hold bytes that were taken from somewhere.
struct Unsent<'a, O: Op>(&'a mut State<O>);

impl<O: Op> Drop for Unsent<'_, O> {
    #[inline]
    fn drop(&mut self) {
        if matches!(self.0, State::Created(_))
            && let State::Created(op) = std::mem::replace(self.0, State::Done)
        {
            op.orphan(Cqe::CANCELED);
        }
    }
}

/// The waker for an operation of the task that is being polled. Cloning one may panic.
///
/// # Panics
///
/// Outside a runtime.
#[inline(always)]
pub fn waker_of(task: &task::Context<'_>) -> Waker {
    // SAFETY: not kept beyond this call.
    cell::home_waker(unsafe { context::borrow() }, task.waker())
}

/// An operation that was started: what is left of a [`Submit`] after its first poll, for futures that keep the
/// operation's parts themselves until then. Dropping it abandons the operation.
#[derive(Debug)]
pub struct Flight<O: Op> {
    /// `None` before it was started and once the output was taken.
    key: Option<OpKey>,
    /// Invariant: the operation comes out as the very type that went in.
    _op: PhantomData<fn(O) -> O>,
}

/// Names one operation of one ring of the process. Not `Send`: it belongs to the thread that submitted it.
#[derive(Debug, Clone, Copy)]
struct OpKey {
    ring: RingId,
    /// Saves the look-up; only valid while the ring is the current one.
    slot: *const Slot,
    key: SlotKey,
}

impl<O: Op> Flight<O> {
    /// Submits an operation for the task that is being polled; `make`, which makes it where it stays, should do no more
    /// than move its parts together. When the runtime is closing `make` is given back.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    #[inline(always)]
    pub fn start_with<F: FnOnce() -> O>(task: &task::Context<'_>, make: F) -> Result<Self, F> {
        Self::start_by(waker_of(task), make)
    }

    /// As [`start_with`](Self::start_with), with the task's [`waker_of`], which may have panicked before.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    #[inline(always)]
    pub fn start_by<F: FnOnce() -> O>(waker: Waker, make: F) -> Result<Self, F> {
        // SAFETY: not kept beyond this call.
        let cx = unsafe { context::borrow() };
        let slot = cx.driver.submit(make, waker)?;
        Ok(Self::of(cx, slot))
    }

    #[inline(always)]
    fn of(cx: &Context, slot: &Slot) -> Self {
        let key = OpKey { ring: cx.id(), slot, key: slot.key() };
        Self { key: Some(key), _op: PhantomData }
    }

    /// No operation.
    pub const fn none() -> Self {
        Self { key: None, _op: PhantomData }
    }

    /// Whether an operation was started whose output was not taken yet.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.key.is_some()
    }

    /// The output, once the operation is completed; it holds [`none`](Self::none) from then on.
    ///
    /// # Panics
    ///
    /// When it holds none; in another runtime than the one that it was started in.
    #[inline(always)]
    pub fn poll(&mut self, task: &task::Context<'_>) -> Poll<O::Output> {
        let key = self.key.expect("an operation's future must not be polled after it completed");
        // SAFETY: not kept beyond this call.
        let cx = unsafe { context::borrow() };
        if cx.id() != key.ring {
            wrong_runtime();
        }
        // SAFETY: the ring is the current one, so its table of slots lives.
        let slot = unsafe { &*key.slot };
        assert!(
            slot.generation() == key.key.generation,
            "a future's operation stays in its slot until the future takes it"
        );
        // SAFETY: the slot came from `submit` of this ring with this `O`, and its generation says that the operation is
        // still in it.
        let settled = unsafe { cx.driver.poll::<O>(slot, || cell::home_waker(cx, task.waker())) };
        let (op, cqe) = std::task::ready!(settled);
        self.key = None;
        Poll::Ready(op.complete(cqe))
    }
}

impl<O: Op> Drop for Flight<O> {
    #[inline]
    fn drop(&mut self) {
        if let Some(key) = self.key {
            abandon(key.ring, key.key);
        }
    }
}

/// Submits two operations when first polled, linked (`IOSQE_IO_LINK`): the kernel starts `second` when `first` has
/// succeeded in full. If it has not (an error, a short read or write), `second` completes with `ECANCELED`.
///
/// Both are reserved together: however full the submission queue is, they reach the kernel in one submission.
///
/// # Cancel safety
///
/// Dropping the future gives both up, each as [`submit`] does: the second may still be carried out.
///
/// # Panics
///
/// When polled outside a runtime, or in another runtime than before.
///
/// # Examples
///
/// ```
/// use runtime_core::op::nop::Nop;
///
/// let rt = runtime_core::exec::Builder::new().build().unwrap();
/// let chained = rt.block_on(runtime_core::submit::chain(Nop, Nop));
/// assert!(chained.first.is_ok() && chained.second.is_ok() && chained.is_linked);
/// ```
pub fn chain<A: Op, B: Op>(first: A, second: B) -> Chain<A, B> {
    Chain { state: Pair::Created(first, second) }
}

/// The future of two linked operations, from [`chain`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Chain<A: Op, B: Op> {
    state: Pair<A, B>,
}

/// What two linked operations ended with.
#[derive(Debug)]
#[non_exhaustive]
pub struct Chained<A, B> {
    /// The output of the first.
    pub first: A,
    /// The output of the second.
    pub second: B,
    /// Whether the kernel took both in one submission. It does, unless it runs out of memory just between them: then
    /// the second may have been carried out before the first, or though that failed.
    pub is_linked: bool,
}

enum Pair<A: Op, B: Op> {
    Created(A, B),
    Flying { first: Flight<A>, second: Flight<B>, output: Option<A::Output>, cuts: u64 },
    Done,
}

// Nothing in a future is pinned: the operations are moved into their slots, and nobody borrows from the future.
impl<A: Op, B: Op> Unpin for Chain<A, B> {}

impl<A: Op, B: Op> std::fmt::Debug for Chain<A, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain").field("kinds", &(A::KIND, B::KIND)).finish_non_exhaustive()
    }
}

impl<A: Op, B: Op> Future for Chain<A, B> {
    type Output = Chained<A::Output, B::Output>;

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut this.state {
            Pair::Flying { first, second, output, cuts } => {
                if first.is_some() {
                    *output = Some(std::task::ready!(first.poll(task)));
                }
                let second = std::task::ready!(second.poll(task));
                let is_linked = context::expect(|cx| cx.driver.cuts() == *cuts);
                let first = output.take().expect("the first was awaited before the second");
                this.state = Pair::Done;
                Poll::Ready(Chained { first, second, is_linked })
            }
            Pair::Created(..) => {
                let Pair::Created(first, second) = std::mem::replace(&mut this.state, Pair::Done) else {
                    unreachable!()
                };
                // SAFETY: not kept beyond this call.
                let cx = unsafe { context::borrow() };
                let wakers = [cell::home_waker(cx, task.waker()), cell::home_waker(cx, task.waker())];
                match cx.driver.submit_pair(first, second, wakers) {
                    Ok([first, second]) => {
                        let (first, second) = (Flight::of(cx, first), Flight::of(cx, second));
                        this.state = Pair::Flying { first, second, output: None, cuts: cx.driver.cuts() };
                        Poll::Pending
                    }
                    Err((first, second)) => Poll::Ready(Chained {
                        first: first.complete(Cqe::CANCELED),
                        second: second.complete(Cqe::CANCELED),
                        is_linked: true,
                    }),
                }
            }
            Pair::Done => panic!("an operation's future must not be polled after it completed"),
        }
    }
}

#[cold]
fn wrong_runtime() -> ! {
    panic!(
        "this future started an operation in one runtime and is polled in another: finish it in the `block_on` of the \
         runtime it was first polled in"
    )
}

/// Gives an operation up, wherever its ring is: it is cancelled, and ends as an orphan.
#[cold]
pub(crate) fn abandon(ring: RingId, key: SlotKey) {
    let at_home = context::with(|cx| {
        let at_home = cx.id() == ring;
        if at_home {
            cx.driver.orphan(key);
        }
        at_home
    });
    if at_home != Some(true) {
        // The runtime exists but does not run here now, or it is gone and has drained everything.
        if let Some(door) = wake::find(ring) {
            door.orphan(key.user_data());
        }
    }
}

/// A multishot operation that stands until it is dropped or the kernel ends it.
///
/// The operation itself says when it ended (its last item comes without [`Cqe::more`]).
pub struct Standing {
    key: SlotKey,
    home: Weak<Context>,
}

impl std::fmt::Debug for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Standing").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Submits a multishot operation now; gives it back when the runtime is closing.
///
/// # Panics
///
/// Outside a runtime.
pub fn stand<M: Multi>(op: M) -> Result<Standing, M> {
    context::expect(|cx| {
        let key = cx.driver.submit_multi(op)?;
        Ok(Standing { key, home: cx.weak() })
    })
}

impl Standing {
    /// Whether the calling thread runs the runtime in which the operation stands.
    pub fn is_here(&self) -> bool {
        self.home.upgrade().is_some_and(|home| context::is_current(home.id()))
    }

    /// Whether the runtime in which it stood is gone: it delivers nothing any more.
    pub fn is_gone(&self) -> bool {
        self.home.strong_count() == 0
    }

    /// Asks the kernel to end the operation; what it still delivers until then is handed over as usual.
    pub fn cancel(&self) {
        if let Some(home) = self.home.upgrade() {
            home.driver.cancel(self.key);
        }
    }

    /// Ends the operation at once: the cancel request goes in, the completions come out, and what they carried is handed
    /// over before this returns, so that both the kernel and the operation let go of the descriptor. Called while the
    /// turn hands over completions, the handing over waits for those before it.
    ///
    /// Bounded: an operation that does not end within a few rounds ends later, as after [`cancel`](Self::cancel).
    pub fn cancel_now(&self) {
        let Some(home) = self.home.upgrade() else { return };
        home.cancel_now(self.key);
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade().filter(|home| !home.driver.is_settling(self.key)) {
            home.driver.cancel(self.key);
        }
    }
}

/// Enters without a completion after which an operation that is to end at once is left to end later.
const QUIET_ROUNDS: u32 = 4;

impl Context {
    pub(crate) fn cancel_now(&self, key: SlotKey) {
        if !sys::same_process() {
            // In a child of fork(2) the ring is not mapped and the operation is the parent's; its copy here is dropped.
            return self.driver.orphan(key);
        }
        let inside = context::is_current(self.id());
        if !inside {
            self.keep_sigpipe();
        }
        // One enter brings out a few tens of completions, in their order: on while they come, and a few rounds beyond.
        let mut quiet = 0;
        while quiet < QUIET_ROUNDS && !self.driver.is_settling(key) && !self.driver.is_closing() {
            if quiet == 0 {
                self.driver.cancel(key);
            }
            // A failing enter shows itself to the run loop in its next turn.
            if self.driver.visit(Wait::No, |waker| cell::wake_home(self, waker)).is_err() {
                break;
            }
            quiet = if self.driver.last_reaped() > 0 { 1 } else { quiet + 1 };
        }
        let panic = if inside {
            self.driver.act_on(key)
        } else {
            // Outside of its `block_on` no turn would act on the rest that came.
            let _entered = context::enter(self);
            self.driver.act()
        };
        if !inside {
            self.restore_sigpipe();
        }
        if let Some(panic) = panic {
            crate::panics::drop_quietly(panic);
        }
    }
}
