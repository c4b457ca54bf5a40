//! Two operations that are linked: the kernel begins the second when the first has succeeded.
//!
//! Each has a slot and a completion of its own; only their entries are reserved together. Knows nothing of which
//! operations they are.

use std::mem;
use std::task::Waker;

use super::Driver;
use crate::op::Op;
use crate::ring::Pushed;
use crate::slot::Slot;

impl Driver {
    /// Starts two operations of which the kernel begins the second when the first has succeeded, or gives them back
    /// when the runtime is closing. Otherwise as [`submit`](Self::submit).
    pub(crate) fn submit_pair<A: Op, B: Op>(
        &self,
        first: A,
        second: B,
        wakers: [Waker; 2],
    ) -> Result<[&Slot; 2], (A, B)> {
        if self.closing.get() {
            return Err((first, second));
        }
        self.assert_same_process();
        let (slot, entry, rung) = self.place(|| first);
        let unpushed = self.unpushed::<A>(slot);
        let (second_slot, second_entry, second_rung) = self.place(|| second);
        mem::forget(unpushed);
        let [waker, second_waker] = wakers;
        slot.put_waker(waker);
        second_slot.put_waker(second_waker);
        self.counters.op(A::KIND, rung);
        self.counters.op(B::KIND, second_rung);
        let entry = entry.user_data(slot.key().user_data());
        let second_entry = second_entry.user_data(second_slot.key().user_data());
        // SAFETY: as in `start`, of both.
        if unsafe { self.ring.borrow_mut().push_pair(entry, second_entry) } == Pushed::Backlogged {
            self.counters.backlogged.add(2);
        }
        Ok([slot, second_slot])
    }

    /// See [`Ring::cuts`].
    pub(crate) fn cuts(&self) -> u64 {
        self.ring.borrow().cuts()
    }
}
