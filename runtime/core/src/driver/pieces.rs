//! What a completion brought from the pool, on its way to its operation while completions are stored.
//!
//! Owns the order of the pieces; knows nothing of who takes them.

use std::task::Waker;

use super::{Act, Driver};
use crate::op::Cqe;
use crate::pooled::Pooled;
use crate::pooled::pool::Rest;
use crate::slot::Slot;

impl Driver {
    /// Hands over the pieces of the pool that a completion brought; says whether there were any.
    #[inline(always)]
    pub(super) fn store_piece(
        &self,
        slot: &Slot,
        cqe: Cqe,
        acts: &mut Vec<Act>,
        wake_home: &impl Fn(Waker) -> Option<Waker>,
    ) -> bool {
        let (result, flags) = cqe.parts();
        let Some((data, rest)) = self.pool.cut(result, flags) else { return false };
        let mut enough = false;
        Self::hand_early(slot, data, &mut enough, acts, wake_home);
        if let Some(rest) = rest {
            self.store_rest(slot, rest, &mut enough, acts, wake_home);
        }
        if enough {
            self.cancels.borrow_mut().push(slot.key());
        }
        true
    }

    #[cold]
    fn store_rest(
        &self,
        slot: &Slot,
        mut rest: Rest,
        enough: &mut bool,
        acts: &mut Vec<Act>,
        wake_home: &impl Fn(Waker) -> Option<Waker>,
    ) {
        while let Some(data) = self.pool.cut_next(&mut rest) {
            Self::hand_early(slot, data, enough, acts, wake_home);
        }
    }

    #[inline(always)]
    fn hand_early(
        slot: &Slot,
        data: Pooled,
        enough: &mut bool,
        acts: &mut Vec<Act>,
        wake_home: &impl Fn(Waker) -> Option<Waker>,
    ) {
        // SAFETY: a pooled operation, whose last completion has not come before this one.
        let waker = unsafe { slot.hand_early(data, enough) };
        if let Some(waker) = waker.and_then(wake_home) {
            acts.push(Act::Wake(waker));
        }
    }
}
