//! The driver: ring and slots together.
//!
//! Owns submission, cancellation, reaping and the act phase. Knows nothing of tasks, timers or the thread's context.
//!
//! A visit has two phases (I4). *Reap* takes every completion from the ring and stores it in its slot, running nobody
//! else's code. *Act* then wakes futures, hands items to multishot operations and finishes orphans, one at a time with
//! nothing borrowed; a panic in one of them does not keep the others from running (ruling 15).

mod pair;
mod pieces;

use std::cell::{Cell, RefCell};
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::task::{Poll, Waker};

use io_uring::{opcode, squeue, types};

use crate::metrics::Counters;
use crate::op::{Cqe, Kind, Multi, Op, Rung};
use crate::panics::{Panic, keep_first};
use crate::pooled::pool::{self, Pool};
use crate::ring::{Look, Pushed, Ring, Wait};
use crate::slot::{Advance, Shape, Slot, SlotKey, Slots, State};
use crate::sys;

/// `user_data` of entries whose completion says nothing. No slot has this index.
const IGNORED: u64 = u64::MAX;
/// `user_data` of the poll on the door's eventfd.
const DOOR: u64 = u64::MAX - 1;

#[derive(Debug)]
enum Act {
    /// The future of a settled operation is to be polled.
    Wake(Waker),
    /// An orphan is settled.
    Finish(SlotKey),
    /// A completion of a multishot operation, or the result of one whose notification is still to come.
    Item(SlotKey, Cqe),
}

pub(crate) struct Driver {
    ring: RefCell<Ring>,
    slots: Slots,
    /// What the act phase has to do, in order.
    acts: RefCell<Vec<Act>>,
    has_acts: Cell<bool>,
    acting: Cell<bool>,
    /// Operations whose cancel request has not been pushed yet: never lost to a full queue.
    cancels: RefCell<Vec<SlotKey>>,
    door_fd: i32,
    door_armed: Cell<bool>,
    /// Nothing new is accepted.
    closing: Cell<bool>,
    /// Completions that the last reap took, the door's and the cancels' included.
    last_reaped: Cell<u32>,
    /// Counts what this thread has answered beside the ring: writes done inline, wakes of other threads.
    answers: Cell<u64>,
    /// Visits that the kernel refused.
    refused: Cell<u64>,
    /// Some operation may be in flight whose future is gone.
    may_have_orphans: Cell<bool>,
    /// Those there were have been waited for in vain.
    orphan_overdue: Cell<bool>,
    /// Says whether this is a child of fork(2).
    process: &'static AtomicU32,
    /// Memory that the kernel picks from for receives; set up by the first one.
    pool: Pool,
    pub(crate) counters: Counters,
}

impl Driver {
    pub(crate) fn new(ring: Ring, door_fd: i32, pool: pool::Shape) -> Self {
        Self {
            ring: RefCell::new(ring),
            slots: Slots::new(),
            acts: RefCell::default(),
            has_acts: Cell::new(false),
            acting: Cell::new(false),
            cancels: RefCell::new(Vec::new()),
            door_fd,
            door_armed: Cell::new(false),
            closing: Cell::new(false),
            last_reaped: Cell::new(0),
            answers: Cell::new(0),
            refused: Cell::new(0),
            may_have_orphans: Cell::new(false),
            orphan_overdue: Cell::new(false),
            process: sys::process_word(),
            pool: Pool::new(pool),
            counters: Counters::new(),
        }
    }

    pub(crate) fn ring(&self) -> &RefCell<Ring> {
        &self.ring
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.slots.in_use()
    }

    pub(crate) fn last_reaped(&self) -> u32 {
        self.last_reaped.get()
    }

    /// How many visits the kernel refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Something went out beside the ring.
    #[inline]
    pub(crate) fn count_answer(&self) {
        self.answers.set(self.answers.get().wrapping_add(1));
    }

    /// A number that changes whenever something goes out, through the ring or beside it.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.get().wrapping_add(self.counters.submissions.get())
    }

    /// Counts a wake that did not come through the ring as if it had: the next write may not go inline then.
    pub(crate) fn count_wakes(&self, n: u32) {
        self.last_reaped.set(self.last_reaped.get().saturating_add(n));
    }

    pub(crate) fn close(&self) {
        self.closing.set(true);
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Sets the pool up, unless that was done or tried before.
    pub(crate) fn set_up_pool(&self) {
        if self.pool.is_untried() {
            let ring = self.ring.borrow();
            self.pool.set_up(ring.features().bundles, |table, entries, flags| {
                // SAFETY: the pool keeps its table and what it lends until `close_pool`, or leaks them (I6).
                unsafe { ring.register_buffers(table, entries, pool::GROUP, flags) }
            });
        }
    }

    /// Lets go of the pool's memory, unless the kernel may still fill it. In a child of fork(2) it is the parent's.
    pub(crate) fn close_pool(&self) {
        if self.pool.is_registered()
            && sys::is_same_process(self.process)
            && self.is_drained()
            && self.ring.borrow().unregister_buffers(pool::GROUP)
        {
            self.pool.close();
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    // ---- submission ------------------------------------------------------------------------------------------------

    /// Starts an operation that `make` makes in place, or gives `make` back when the runtime is closing. The waker is a
    /// clone made before: cloning may panic, and must not once the entry is pushed (I3).
    #[inline(always)]
    pub(crate) fn submit<O: Op, F: FnOnce() -> O>(&self, make: F, waker: Waker) -> Result<&Slot, F> {
        if self.closing.get() {
            return Err(make);
        }
        self.assert_same_process();
        let (slot, entry, rung) = self.place(make);
        slot.put_waker(waker);
        self.start(slot, O::KIND, rung, entry);
        Ok(slot)
    }

    /// Puts an operation, made in place, into a slot and builds its entry.
    #[inline(always)]
    fn place<O: Op>(&self, make: impl FnOnce() -> O) -> (&Slot, squeue::Entry, Rung) {
        let (slot, at) = self.slots.insert_with(make);
        let unpushed = self.unpushed::<O>(slot);
        // SAFETY: the slot owns the operation and nobody else reaches it; `entry` may be foreign code that panics, in
        // which case `unpushed` frees the slot (I3).
        let op = unsafe { &mut *at };
        let entry = op.entry();
        let rung = op.rung();
        mem::forget(unpushed);
        (slot, entry, rung)
    }

    #[inline(always)]
    fn unpushed<'a, O: Op>(&'a self, slot: &'a Slot) -> Unpushed<'a> {
        Unpushed {
            slots: &self.slots,
            slot,
            take: |slots, slot| {
                // SAFETY: the entry was not pushed and the slot holds an `O`.
                drop(unsafe { slots.take::<O>(slot) });
            },
        }
    }

    /// Starts a multishot operation, or gives it back when the runtime is closing.
    pub(crate) fn submit_multi<M: Multi>(&self, op: M) -> Result<SlotKey, M> {
        if self.closing.get() {
            return Err(op);
        }
        self.assert_same_process();
        let (slot, at) = self.slots.insert_multi(op);
        let unpushed = Unpushed {
            slots: &self.slots,
            slot,
            take: |slots, slot| {
                // SAFETY: the entry was not pushed and the slot holds an `M`.
                drop(unsafe { slots.take::<M>(slot) });
            },
        };
        // SAFETY: as in `submit`.
        let entry = unsafe { &mut *at }.entry();
        mem::forget(unpushed);
        self.start(slot, M::KIND, Rung::Ring, entry);
        Ok(slot.key())
    }

    #[inline]
    #[track_caller]
    pub(crate) fn assert_same_process(&self) {
        let same = sys::is_same_process(self.process);
        assert!(same, "this is a child of fork(2): its parent's runtime cannot be used here");
    }

    #[inline(always)]
    fn start(&self, slot: &Slot, kind: Kind, rung: Rung, entry: squeue::Entry) {
        let entry = entry.user_data(slot.key().user_data());
        self.counters.op(kind, rung);
        // SAFETY: the operation lies in its slot until its final completion (I1, I2), which is what its `unsafe impl`
        // needs to vouch for the entry's pointers.
        if unsafe { self.ring.borrow_mut().push(entry) } == Pushed::Backlogged {
            self.counters.backlogged.add(1);
        }
    }

    // ---- the future's side -----------------------------------------------------------------------------------------

    /// The operation and its completion, or pending with the waker stored.
    ///
    /// # Safety
    ///
    /// `slot` came from [`submit`](Self::submit) of this driver with the same `O`, and its operation was not taken.
    #[inline(always)]
    pub(crate) unsafe fn poll<O: Op>(&self, slot: &Slot, waker: impl FnOnce() -> Waker) -> Poll<(O, Cqe)> {
        if slot.state() != State::Settled {
            slot.set_waker(waker());
            // Making a waker is foreign code, which may have visited the ring: nobody was there to be woken then.
            if slot.state() != State::Settled {
                return Poll::Pending;
            }
        }
        let cqe = slot.cqe();
        // SAFETY: settled, and of type `O` by the caller's promise.
        Poll::Ready((unsafe { self.slots.take::<O>(slot) }, cqe))
    }

    /// The future of an operation is gone: a settled one is finished, a flying one is cancelled and finished when its
    /// completion comes.
    pub(crate) fn orphan(&self, key: SlotKey) {
        let Some(slot) = self.slots.get(key) else { return };
        // Dropped last: that is foreign code, which may panic, and the operation has to be cancelled all the same.
        let waker = slot.disown();
        self.counters.orphans.add(1);
        match slot.state() {
            // SAFETY: settled.
            State::Settled => unsafe { self.slots.finish(slot) },
            State::Flying if sys::is_same_process(self.process) => {
                self.may_have_orphans.set(true);
                self.orphan_overdue.set(false);
                if slot.behaviour().is_cancellable() {
                    self.cancels.borrow_mut().push(key);
                }
            }
            // Nothing is left to cancel, and the slot keeps the memory until the other completion.
            State::Noticed if sys::is_same_process(self.process) => {}
            // SAFETY: an operation that is told its result; nothing of it is touched after foreign code was run.
            State::Told if sys::is_same_process(self.process) => unsafe { slot.hand_over(slot.cqe()) },
            State::Flying | State::Told | State::Noticed => {
                // In a child of fork(2) the operation is the parent's and the kernel works on the parent's memory: what
                // lies here is a copy that is in nobody's use.
                slot.settle_unsent();
                // SAFETY: settled by the line above.
                unsafe { self.slots.finish(slot) };
            }
            State::Free => {}
        }
        drop(waker);
    }

    /// Asks the kernel to end an operation early; it completes in any case.
    pub(crate) fn cancel(&self, key: SlotKey) {
        self.orphan_overdue.set(false);
        if self.slots.get(key).is_some_and(|slot| slot.state() == State::Flying) {
            self.cancels.borrow_mut().push(key);
        }
    }

    /// Whether the kernel is done with an operation, though its last item may wait for the act phase.
    pub(crate) fn is_settling(&self, key: SlotKey) -> bool {
        let is_last = |act: &Act| matches!(act, Act::Item(of, cqe) if *of == key && !cqe.more());
        self.acts.borrow().iter().any(is_last) || self.slots.get(key).is_none_or(|slot| slot.state() != State::Flying)
    }

    // ---- the turn's side -------------------------------------------------------------------------------------------

    /// What there is to do with the kernel even if nobody waits for it.
    #[inline(always)]
    pub(crate) fn look(&self) -> Look {
        if self.has_cancels() {
            return Look::Enter;
        }
        match self.ring.borrow_mut().look() {
            Look::Nothing if self.has_acts.get() => Look::Fetch,
            look => look,
        }
    }

    /// Whether [`look`](Self::look) can tell that completions came.
    pub(crate) fn shows_completions(&self) -> bool {
        self.ring.borrow().shows_completions()
    }

    /// Has the act phase wake.
    #[cold]
    pub(crate) fn wake_later(&self, waker: Waker) {
        self.acts.borrow_mut().push(Act::Wake(waker));
        self.has_acts.set(true);
    }

    /// Whether something waits for the act phase, so that a wait would be wrong. Completions that lie in the queue, or
    /// only wait to be put there, are no reason: the kernel looks for them before it sleeps.
    pub(crate) fn has_acts(&self) -> bool {
        self.has_acts.get()
    }

    /// Whether something still has to be sent for operations whose future is gone.
    pub(crate) fn has_cancels(&self) -> bool {
        !self.cancels.borrow().is_empty()
    }

    /// One visit to the kernel: everything queued goes in, then everything completed is stored in its slot. `wake_home`
    /// is given each waker of a settled operation, wakes it if that runs no foreign code, and gives it back if not.
    #[inline(always)]
    pub(crate) fn visit(&self, wait: Wait, wake_home: impl Fn(Waker) -> Option<Waker>) -> io::Result<()> {
        let mut ring = self.ring.borrow_mut();
        if self.has_cancels() {
            self.push_cancels(&mut ring);
        }
        if wait != Wait::No && !self.closing.get() && !self.door_armed.replace(true) {
            // Multishot, and never read: each write to the counter is one completion (ruling 11).
            let poll = opcode::PollAdd::new(types::Fd(self.door_fd), libc::POLLIN as u32).multi(true).build();
            // SAFETY: no pointers. In the backlog at worst, which `enter` empties before it waits.
            let _ = unsafe { ring.push(poll.user_data(DOOR)) };
        }
        let (submitted, calls) = ring.enter(wait).inspect_err(|_| self.refused.update(|n| n + 1))?;
        self.counters.submissions.add(submitted);
        self.counters.enters.add(calls);
        self.reap(&mut ring, wake_home);
        Ok(())
    }

    #[cold]
    fn push_cancels(&self, ring: &mut Ring) {
        let mut cancels = self.cancels.borrow_mut();
        for key in cancels.drain(..) {
            if self.slots.get(key).is_none_or(|slot| slot.state() != State::Flying) {
                continue;
            }
            let cancel = opcode::AsyncCancel::new(key.user_data()).build();
            // A cancel that finds its target says nothing; one that does not is ignored when it completes.
            let cancel = cancel.flags(squeue::Flags::SKIP_SUCCESS).user_data(IGNORED);
            // SAFETY: no pointers. Behind its target in the same queue or backlog, so it cannot overtake it.
            let _ = unsafe { ring.push(cancel) };
            self.counters.cancels.add(1);
        }
    }

    /// Takes what lies in the completion queue, without a system call; otherwise as [`visit`](Self::visit).
    pub(crate) fn fetch(&self, wake_home: impl Fn(Waker) -> Option<Waker>) {
        self.reap(&mut self.ring.borrow_mut(), wake_home);
    }

    /// The turn visited no kernel.
    pub(crate) fn nothing_reaped(&self) {
        self.last_reaped.set(0);
    }

    /// Takes everything from the completion queue; runs no foreign code.
    #[inline(always)]
    fn reap(&self, ring: &mut Ring, wake_home: impl Fn(Waker) -> Option<Waker>) {
        let mut acts = self.acts.borrow_mut();
        let mut reaped = 0;
        for cqe in ring.completions() {
            reaped += 1;
            match cqe.user_data() {
                IGNORED => {}
                DOOR => {
                    if !io_uring::cqueue::more(cqe.flags()) {
                        self.door_armed.set(false);
                    }
                }
                user_data => self.store(SlotKey::from_user_data(user_data), cqe, &mut acts, &wake_home),
            }
        }
        self.has_acts.set(!acts.is_empty());
        self.counters.completions.add(u64::from(reaped));
        self.last_reaped.set(reaped);
    }

    #[inline(always)]
    fn store(
        &self,
        key: SlotKey,
        cqe: io_uring::cqueue::Entry,
        acts: &mut Vec<Act>,
        wake_home: &impl Fn(Waker) -> Option<Waker>,
    ) {
        let Some(slot) = self.slots.get(key).filter(|slot| slot.state() != State::Settled) else {
            self.counters.stale_completions.add(1);
            return;
        };
        match slot.behaviour().shape {
            Shape::Single => slot.settle(cqe),
            Shape::Pooled => {
                let cqe = Cqe::new(cqe.result(), cqe.flags());
                if !(self.store_piece(slot, cqe, acts, wake_home) && cqe.more()) {
                    acts.push(Act::Item(key, cqe));
                }
                return;
            }
            // The slot settles when the last item is handed over: until then its operation must stay.
            Shape::Multi => return acts.push(Act::Item(key, Cqe::new(cqe.result(), cqe.flags()))),
            Shape::Notified if !self.advance(key, slot, Cqe::new(cqe.result(), cqe.flags()), acts) => return,
            Shape::Notified => {}
        }
        if slot.is_orphan() {
            acts.push(Act::Finish(key));
        } else if let Some(waker) = slot.take_waker().and_then(wake_home) {
            // Moved, not cloned: no foreign code runs here.
            acts.push(Act::Wake(waker));
        }
    }

    /// One of the two completions of an operation with a notification; whether it is settled now.
    #[inline(never)]
    fn advance(&self, key: SlotKey, slot: &Slot, cqe: Cqe, acts: &mut Vec<Act>) -> bool {
        if cqe.is_notice() {
            self.counters.zc_notices.add(1);
            self.counters.zc_copied.add(u64::from(cqe.says_copied()));
        }
        match slot.advance(cqe) {
            Advance::Told => {
                // With MORE, so that handing it over does not free the slot.
                acts.push(Act::Item(key, cqe));
                false
            }
            Advance::Noticed => false,
            Advance::Settled => true,
        }
    }

    /// Runs everything that the last visits found, and returns the first panic. A call from within does nothing: the
    /// outer one goes on with whatever was added.
    #[inline(always)]
    pub(crate) fn act(&self) -> Option<Panic> {
        if self.acting.replace(true) {
            return None;
        }
        let mut first = None;
        let mut list = Vec::new();
        while self.has_acts.replace(false) {
            let mut acts = self.acts.borrow_mut();
            if acts.len() == 1
                && let Some(act) = acts.pop()
            {
                // The usual case with few connections: no list to exchange.
                drop(acts);
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run(act))) {
                    keep_first(&mut first, panic);
                }
                continue;
            }
            // What comes meanwhile goes to a list of its own.
            mem::swap(&mut list, &mut *acts);
            drop(acts);
            self.run_all(list.drain(..), &mut first);
        }
        if list.capacity() > 0 {
            // Kept for its memory.
            self.acts.replace(list);
        }
        self.acting.set(false);
        first
    }

    /// Hands over what has come of one multishot operation, ahead of whatever else waits for the act phase. Within that
    /// phase it does nothing, since an item of the operation may be being handed over.
    pub(crate) fn act_on(&self, key: SlotKey) -> Option<Panic> {
        if self.acting.replace(true) {
            return None;
        }
        let is_its = |act: &mut Act| matches!(act, Act::Item(of, _) if *of == key);
        let mut items: Vec<Act> = self.acts.borrow_mut().extract_if(.., is_its).collect();
        let mut first = None;
        self.run_all(items.drain(..), &mut first);
        self.acting.set(false);
        first
    }

    #[inline(always)]
    fn run_all(&self, mut acts: std::vec::Drain<'_, Act>, first: &mut Option<Panic>) {
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| acts.by_ref().for_each(|act| self.run(act)))) {
            keep_first(first, panic);
        }
    }

    #[inline(always)]
    fn run(&self, act: Act) {
        match act {
            Act::Wake(waker) => waker.wake(),
            Act::Finish(key) => {
                if let Some(slot) = self.slots.get(key) {
                    // SAFETY: settled before it was put on the list, and freed by nobody since, as `get` tells.
                    unsafe { self.slots.finish(slot) };
                }
            }
            Act::Item(key, cqe) => self.item(key, cqe),
        }
    }

    #[inline(never)]
    fn item(&self, key: SlotKey, cqe: Cqe) {
        let Some(slot) = self.slots.get(key) else { return };
        // The slot is freed after the last item even if taking it panics.
        let last = Last { driver: self, key: (!cqe.more()).then_some(key) };
        // SAFETY: a multishot operation or one that is told its result (see `store`); acts are run one after the other,
        // never nested.
        unsafe { slot.hand_over(cqe) };
        drop(last);
    }

    // ---- shutdown --------------------------------------------------------------------------------------------------

    /// Asks the kernel to end everything in flight, one by one, but closes. Entries that never reached it complete as
    /// cancelled.
    pub(crate) fn cancel_each(&self) {
        self.cancel_unsent();
        let mut cancels = self.cancels.borrow_mut();
        cancels.clear();
        self.slots.for_each_in_use(|slot| {
            if slot.state() == State::Flying && slot.behaviour().is_cancellable() {
                cancels.push(slot.key());
            }
        });
    }

    /// Asks again for what did not end, unless that are closes.
    pub(crate) fn cancel_the_rest(&self) {
        self.cancel_unsent();
        let mut closes = false;
        self.slots.for_each_in_use(|slot| closes |= !slot.behaviour().is_cancellable());
        if closes {
            return;
        }
        let all = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
        // Silent, or its own completion would end the wait for the others at once.
        let all = all.flags(squeue::Flags::SKIP_SUCCESS).user_data(IGNORED);
        // SAFETY: no pointers.
        let _ = unsafe { self.ring.borrow_mut().push(all) };
        self.counters.cancels.add(1);
    }

    fn cancel_unsent(&self) {
        let mut ring = self.ring.borrow_mut();
        let mut acts = self.acts.borrow_mut();
        for user_data in ring.take_backlog() {
            if user_data == DOOR {
                self.door_armed.set(false);
            }
            let key = SlotKey::from_user_data(user_data);
            let Some(slot) = self.slots.get(key).filter(|slot| slot.state() == State::Flying) else { continue };
            if slot.behaviour().shape == Shape::Multi {
                acts.push(Act::Item(key, Cqe::CANCELED));
            } else {
                slot.settle_unsent();
                match slot.take_waker() {
                    Some(waker) => acts.push(Act::Wake(waker)),
                    None if slot.is_orphan() => acts.push(Act::Finish(key)),
                    None => {}
                }
            }
        }
        self.has_acts.set(!acts.is_empty());
    }

    /// Whether the kernel may still touch anything of ours.
    pub(crate) fn is_drained(&self) -> bool {
        self.slots.in_use() == 0
    }

    /// In a child of fork(2): ends every operation's copy here; see [`orphan`](Self::orphan).
    pub(crate) fn forsake(&self) {
        self.slots.for_each_in_use(|slot| {
            if slot.state() != State::Settled {
                slot.settle_unsent();
            }
        });
        self.orphan_the_rest();
    }

    /// Whether orphans were waited for in vain, and none has come since.
    pub(crate) fn is_orphan_overdue(&self) -> bool {
        self.orphan_overdue.get()
    }

    pub(crate) fn set_orphan_overdue(&self) {
        self.orphan_overdue.set(true);
    }

    /// Whether the kernel still has operations whose futures are gone.
    pub(crate) fn has_orphans_flying(&self) -> bool {
        if !self.may_have_orphans.get() {
            return false;
        }
        let mut has = false;
        self.slots.for_each_in_use(|slot| has |= slot.is_orphan() && slot.state() == State::Flying);
        self.may_have_orphans.set(has);
        has
    }

    /// Everything that settled and was never taken (its future was forgotten) ends as an orphan.
    pub(crate) fn orphan_the_rest(&self) {
        let mut keys = Vec::new();
        self.slots.for_each_in_use(|slot| keys.push(slot.key()));
        for key in keys {
            let Some(slot) = self.slots.get(key) else { continue };
            drop(slot.disown());
            if let Some(slot) = self.slots.get(key).filter(|slot| slot.state() == State::Settled) {
                // SAFETY: settled.
                unsafe { self.slots.finish(slot) };
            }
        }
    }
}

/// Frees the slot of an operation whose `entry` panicked.
struct Unpushed<'a> {
    slots: &'a Slots,
    slot: &'a Slot,
    take: fn(&Slots, &Slot),
}

impl Drop for Unpushed<'_> {
    fn drop(&mut self) {
        (self.take)(self.slots, self.slot);
    }
}

/// Frees the slot of a multishot operation after its last item.
struct Last<'a> {
    driver: &'a Driver,
    key: Option<SlotKey>,
}

impl Drop for Last<'_> {
    fn drop(&mut self) {
        let Some(slot) = self.key.and_then(|key| self.driver.slots.get(key)) else { return };
        slot.settle_unsent();
        // SAFETY: settled by the line above, after the final completion was handed over.
        unsafe { self.driver.slots.finish(slot) };
    }
}
