//! The driver: ring and slots together.
//!
//! Owns submission, cancellation, reaping and the act phase. Knows nothing of tasks, timers or the thread's context.
//!
//! A visit has two phases (I4). *Reap* takes every completion from the ring and stores it in its slot, running nobody
//! else's code. *Act* then wakes futures, hands items to multishot operations and finishes orphans, one at a time with
//! nothing borrowed; a panic in one of them does not keep the others from running (ruling 15).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};

use io_uring::{opcode, squeue, types};

use crate::metrics::Counters;
use crate::op::{Cqe, Kind, Multi, Op, Rung};
use crate::ring::{Pushed, Ring, Wait};
use crate::slot::{Slot, SlotKey, Slots, State};
use crate::sys;

/// `user_data` of entries whose completion says nothing. No slot has this index.
const IGNORED: u64 = u64::MAX;
/// `user_data` of the poll on the door's eventfd.
const DOOR: u64 = u64::MAX - 1;

/// A payload of a panic that was held back.
pub(crate) type Panic = Box<dyn Any + Send>;

#[derive(Debug, Clone, Copy)]
enum Act {
    /// A one-shot operation is settled.
    Settled(SlotKey),
    /// A completion of a multishot operation.
    Item(SlotKey, Cqe),
}

pub(crate) struct Driver {
    ring: RefCell<Ring>,
    slots: Slots,
    acts: RefCell<VecDeque<Act>>,
    acting: Cell<bool>,
    /// Operations whose cancel request has not been pushed yet: never lost to a full queue.
    cancels: RefCell<Vec<SlotKey>>,
    door_fd: i32,
    door_armed: Cell<bool>,
    /// Nothing new is accepted.
    closing: Cell<bool>,
    /// Completions that the last reap took, the door's and the cancels' included.
    last_reaped: Cell<u32>,
    pub(crate) counters: Counters,
}

impl Driver {
    pub(crate) fn new(ring: Ring, door_fd: i32) -> Self {
        Self {
            ring: RefCell::new(ring),
            slots: Slots::new(),
            acts: RefCell::new(VecDeque::new()),
            acting: Cell::new(false),
            cancels: RefCell::new(Vec::new()),
            door_fd,
            door_armed: Cell::new(false),
            closing: Cell::new(false),
            last_reaped: Cell::new(0),
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

    /// Counts a wake that did not come through the ring as if it had: the next write may not go inline then.
    pub(crate) fn count_wakes(&self, n: u32) {
        self.last_reaped.set(self.last_reaped.get().saturating_add(n));
    }

    pub(crate) fn close(&self) {
        self.closing.set(true);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    // ---- submission ------------------------------------------------------------------------------------------------

    /// Starts an operation, or gives it back when the runtime is closing. The waker is a clone made before: cloning may
    /// panic, and must not once the entry is pushed (I3).
    #[inline]
    pub(crate) fn submit<O: Op>(&self, op: O, waker: Waker) -> Result<SlotKey, O> {
        if self.closing.get() {
            return Err(op);
        }
        assert_same_process();
        let (slot, at) = self.slots.insert(op);
        let unpushed = Unpushed {
            slots: &self.slots,
            slot,
            take: |slots, slot| {
                // SAFETY: the entry was not pushed and the slot holds an `O`.
                drop(unsafe { slots.take::<O>(slot) });
            },
        };
        // SAFETY: the slot owns the operation and nobody else reaches it; `entry` may be foreign code that panics, in
        // which case `unpushed` frees the slot (I3).
        let entry = unsafe { &mut *at }.entry();
        mem::forget(unpushed);
        slot.put_waker(waker);
        self.start(slot, O::KIND, entry);
        Ok(slot.key())
    }

    /// Starts a multishot operation, or gives it back when the runtime is closing.
    pub(crate) fn submit_multi<M: Multi>(&self, op: M) -> Result<SlotKey, M> {
        if self.closing.get() {
            return Err(op);
        }
        assert_same_process();
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
        self.start(slot, M::KIND, entry);
        Ok(slot.key())
    }

    fn start(&self, slot: &Slot, kind: Kind, entry: squeue::Entry) {
        let entry = entry.user_data(slot.key().user_data());
        self.counters.op(kind, Rung::Ring);
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
    /// `key` came from [`submit`](Self::submit) of this driver with the same `O`.
    pub(crate) unsafe fn poll<O: Op>(&self, key: SlotKey, waker: &Waker) -> Poll<(O, Cqe)> {
        let slot = self.slots.get(key).expect("a future's operation stays in its slot until the future takes it");
        match slot.state() {
            State::Settled => {
                let cqe = slot.cqe();
                // SAFETY: settled, and of type `O` by the caller's promise.
                Poll::Ready((unsafe { self.slots.take::<O>(slot) }, cqe))
            }
            State::Flying | State::Free => {
                slot.set_waker(waker);
                Poll::Pending
            }
        }
    }

    /// The future of an operation is gone: a settled one is finished, a flying one is cancelled and finished when its
    /// completion comes.
    pub(crate) fn orphan(&self, key: SlotKey) {
        if !sys::same_process() {
            // In a child of fork(2) the operation is the parent's.
            return;
        }
        let Some(slot) = self.slots.get(key) else { return };
        drop(slot.disown());
        // Dropping the waker was foreign code: look again.
        let Some(slot) = self.slots.get(key) else { return };
        self.counters.orphans.add(1);
        match slot.state() {
            // SAFETY: settled.
            State::Settled => unsafe { self.slots.finish(slot) },
            State::Flying => self.cancels.borrow_mut().push(key),
            State::Free => {}
        }
    }

    /// Asks the kernel to end an operation early; it completes in any case.
    pub(crate) fn cancel(&self, key: SlotKey) {
        if self.slots.get(key).is_some_and(|slot| slot.state() == State::Flying) {
            self.cancels.borrow_mut().push(key);
        }
    }

    /// Whether the kernel is done with an operation, though its last item may wait for the act phase.
    pub(crate) fn is_settling(&self, key: SlotKey) -> bool {
        let is_last = |act: &Act| matches!(act, Act::Item(of, cqe) if *of == key && !cqe.more());
        self.slots.get(key).is_none_or(|slot| slot.state() != State::Flying) || self.acts.borrow().iter().any(is_last)
    }

    // ---- the turn's side -------------------------------------------------------------------------------------------

    /// Whether the kernel should be visited even if nobody waits for it.
    pub(crate) fn has_work(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        ring.has_submissions() || ring.needs_enter() || !self.cancels.borrow().is_empty()
    }

    /// Whether a wait for completions would be wrong because some are there already.
    pub(crate) fn must_not_wait(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        ring.has_completions()
            || !self.acts.borrow().is_empty()
            || (ring.features().defer_taskrun && ring.needs_enter())
    }

    /// Whether something still has to be sent for operations whose future is gone.
    pub(crate) fn has_cancels(&self) -> bool {
        !self.cancels.borrow().is_empty()
    }

    /// One visit to the kernel: everything queued goes in, then everything completed is stored in its slot.
    pub(crate) fn visit(&self, wait: Wait) -> io::Result<()> {
        let mut ring = self.ring.borrow_mut();
        self.push_cancels(&mut ring);
        if wait != Wait::No && !self.closing.get() && !self.door_armed.replace(true) {
            // Multishot, and never read: each write to the counter is one completion (ruling 11).
            let poll = opcode::PollAdd::new(types::Fd(self.door_fd), libc::POLLIN as u32).multi(true).build();
            // SAFETY: no pointers. In the backlog at worst, which `enter` empties before it waits.
            let _ = unsafe { ring.push(poll.user_data(DOOR)) };
        }
        let (submitted, calls) = ring.enter(wait)?;
        drop(ring);
        self.counters.submissions.add(submitted);
        self.counters.enters.add(calls);
        self.reap();
        Ok(())
    }

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

    /// Takes what lies in the completion queue, without a system call.
    pub(crate) fn fetch(&self) {
        self.reap();
    }

    /// The turn visited no kernel.
    pub(crate) fn nothing_reaped(&self) {
        self.last_reaped.set(0);
    }

    /// Takes everything from the completion queue; runs no foreign code.
    fn reap(&self) {
        let mut ring = self.ring.borrow_mut();
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
                user_data => self.store(SlotKey::from_user_data(user_data), cqe, &mut acts),
            }
        }
        self.counters.completions.add(u64::from(reaped));
        self.last_reaped.set(reaped);
    }

    fn store(&self, key: SlotKey, cqe: io_uring::cqueue::Entry, acts: &mut VecDeque<Act>) {
        let Some(slot) = self.slots.get(key).filter(|slot| slot.state() == State::Flying) else {
            self.counters.stale_completions.add(1);
            return;
        };
        if slot.behaviour().multi {
            let cqe = Cqe::new(cqe.result(), cqe.flags());
            acts.push_back(Act::Item(key, cqe));
            // The slot settles when the last item is handed over: until then its operation must stay.
        } else {
            slot.settle(cqe);
            acts.push_back(Act::Settled(key));
        }
    }

    /// Runs everything that the last visits found, and returns the first panic. A call from within does nothing: the
    /// outer one goes on with whatever was added.
    pub(crate) fn act(&self) -> Option<Panic> {
        if self.acting.replace(true) {
            return None;
        }
        let mut first = None;
        loop {
            let run = AssertUnwindSafe(|| {
                while let Some(act) = self.next_act() {
                    self.run(act);
                }
            });
            match catch_unwind(run) {
                Ok(()) => break,
                Err(panic) if first.is_none() => first = Some(panic),
                Err(panic) => drop_quietly(panic),
            }
        }
        self.acting.set(false);
        first
    }

    fn next_act(&self) -> Option<Act> {
        self.acts.borrow_mut().pop_front()
    }

    fn run(&self, act: Act) {
        match act {
            Act::Settled(key) => {
                let Some(slot) = self.slots.get(key) else { return };
                if slot.is_orphan() {
                    // SAFETY: `store` settled it, and only `take` or `finish` free it afterwards, which `get` tells.
                    unsafe { self.slots.finish(slot) };
                } else if let Some(waker) = slot.take_waker() {
                    waker.wake();
                }
            }
            Act::Item(key, cqe) => self.item(key, cqe),
        }
    }

    fn item(&self, key: SlotKey, cqe: Cqe) {
        let Some(slot) = self.slots.get(key) else { return };
        // The slot is freed after the last item even if taking it panics.
        let last = Last { driver: self, key: (!cqe.more()).then_some(key) };
        // SAFETY: a multishot operation (see `store`); acts are run one after the other, never nested.
        unsafe { slot.hand_over(cqe) };
        drop(last);
    }

    // ---- shutdown --------------------------------------------------------------------------------------------------

    /// Asks the kernel to end everything in flight. Entries that never reached it complete as cancelled.
    pub(crate) fn cancel_all(&self) {
        let mut ring = self.ring.borrow_mut();
        let mut acts = self.acts.borrow_mut();
        for user_data in ring.take_backlog() {
            if user_data == DOOR {
                self.door_armed.set(false);
            }
            let key = SlotKey::from_user_data(user_data);
            let Some(slot) = self.slots.get(key).filter(|slot| slot.state() == State::Flying) else { continue };
            if slot.behaviour().multi {
                acts.push_back(Act::Item(key, Cqe::CANCELED));
            } else {
                slot.settle_unsent();
                acts.push_back(Act::Settled(key));
            }
        }
        let all = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build().user_data(IGNORED);
        // SAFETY: no pointers.
        let _ = unsafe { ring.push(all) };
        self.counters.cancels.add(1);
    }

    /// Whether the kernel may still touch anything of ours.
    pub(crate) fn is_drained(&self) -> bool {
        self.slots.in_use() == 0
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

#[track_caller]
fn assert_same_process() {
    assert!(sys::same_process(), "this is a child of fork(2): its parent's runtime cannot be used here");
}

/// Drops a panic payload whose own drop may panic.
pub(crate) fn drop_quietly<T>(value: T) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // A payload that panics when it is dropped is not dropped twice.
        mem::forget(again);
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
