//! What other threads may see of a task: one word of flags and references.
//!
//! Owns the word and its transitions. Knows nothing of futures, wakers or queues; the atomics come from the parent
//! module, so that a model checker can replace them.
//!
//! The rules, cited by number from the task cell:
//!
//! 1. The task's side (future, queue, table) belongs to its home thread; only what stands here is shared.
//! 2. The place for the handle's waker is the handle's while `WAITS` is unset and `DONE` is unset. Setting `WAITS` gives it
//!    to the task; clearing `WAITS` before `DONE` is set takes it back. Whoever sets `DONE` takes what `WAITS` gave.
//! 3. The output is the task's until `DONE`. From then on it is the handle's if `HANDLE` was set at that moment, and gone
//!    otherwise.
//! 4. The cell is freed by whoever drops the last reference. The task holds one until its future is gone, the handle one,
//!    each waker one, and each arrival that is under way one.
//! 5. `ARRIVES` is set from a foreign wake until home takes it in, so that there is one arrival at a time. Both are
//!    read-modify-write operations: what a waker's thread wrote before is seen by the poll that follows.

use super::atomic::{AtomicUsize, Ordering, fence};

/// The future is gone.
const DONE: usize = 1 << 0;
/// There is no output; only with `DONE`.
const CANCELLED: usize = 1 << 1;
/// A handle exists that may take the output.
const HANDLE: usize = 1 << 2;
/// The handle's waker lies in its place and is the task's to take.
const WAITS: usize = 1 << 3;
/// To be cancelled instead of polled when it comes up next.
const ABORTED: usize = 1 << 4;
/// A foreign wake is under way to the home thread.
const ARRIVES: usize = 1 << 5;
/// One reference.
const REF: usize = 1 << 6;

#[derive(Debug)]
pub(crate) struct State(AtomicUsize);

/// What the end of a task finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finished {
    /// The handle's waker is to be taken and woken.
    pub(crate) waits: bool,
    /// There is a handle, which owns the output now.
    pub(crate) handle: bool,
}

/// What a handle finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Outcome {
    /// The task goes on.
    Lives,
    /// There is an output, which is the handle's.
    Output,
    /// There will be none.
    Cancelled,
}

/// Whether a reference was the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Dropped {
    Last,
    Another,
}

impl Outcome {
    fn of(word: usize) -> Self {
        match (word & DONE, word & CANCELLED) {
            (0, _) => Self::Lives,
            (_, 0) => Self::Output,
            _ => Self::Cancelled,
        }
    }
}

impl State {
    /// A task with a handle: one reference for each.
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(HANDLE + 2 * REF))
    }

    // ---- home ------------------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Acquire) & ABORTED != 0
    }

    /// The future is gone, and the output, if there is one, in its place.
    #[inline]
    pub(crate) fn finish(&self, cancelled: bool) -> Finished {
        let former = self.0.fetch_or(if cancelled { DONE | CANCELLED } else { DONE }, Ordering::AcqRel);
        Finished { waits: former & WAITS != 0, handle: former & HANDLE != 0 }
    }

    /// An arrival is taken in: the next foreign wake is one of its own again.
    pub(crate) fn arrived(&self) {
        self.0.fetch_and(!ARRIVES, Ordering::AcqRel);
    }

    // ---- the handle ------------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::of(self.0.load(Ordering::Acquire))
    }

    /// Before the place of the waker is looked at: takes it back if it was given away.
    pub(crate) fn take_place_back(&self) -> Outcome {
        if self.0.load(Ordering::Acquire) & (WAITS | DONE) == 0 {
            return Outcome::Lives;
        }
        Outcome::of(self.0.fetch_and(!WAITS, Ordering::AcqRel))
    }

    /// The waker lies in its place. When the task has ended meanwhile, the place is the handle's still.
    pub(crate) fn wait(&self) -> Outcome {
        Outcome::of(self.0.fetch_or(WAITS, Ordering::AcqRel))
    }

    /// The handle goes. While the task lives the place of the waker is the handle's once more, and the output will be
    /// the task's; afterwards the output is the handle's to drop.
    pub(crate) fn leave(&self) -> Outcome {
        Outcome::of(self.0.fetch_and(!(HANDLE | WAITS), Ordering::AcqRel))
    }

    // ---- anybody who has a reference -------------------------------------------------------------------------------

    /// Says whether a wake has something to do: the task lives and was not aborted before.
    pub(crate) fn abort(&self) -> bool {
        self.0.fetch_or(ABORTED, Ordering::AcqRel) & (ABORTED | DONE) == 0
    }

    /// Says whether the caller has to hand the task in; the reference that goes with it is counted already.
    pub(crate) fn begin_arrival(&self) -> bool {
        let begins = self.0.fetch_or(ARRIVES, Ordering::AcqRel) & (ARRIVES | DONE) == 0;
        if begins {
            self.add_reference();
        }
        begins
    }

    #[inline]
    pub(crate) fn add_reference(&self) {
        // As for any counter of references: who has one may make another, and nothing is published by that.
        let former = self.0.fetch_add(REF, Ordering::Relaxed);
        if former > usize::MAX / 2 {
            // Only wakers that are forgotten in a loop get here; one more lap and the cell would be freed in use.
            std::process::abort();
        }
    }

    #[inline]
    pub(crate) fn drop_reference(&self) -> Dropped {
        // Nobody can make another one when ours is the only one, so there is nothing to write.
        if self.0.load(Ordering::Acquire) < 2 * REF {
            return Dropped::Last;
        }
        if self.0.fetch_sub(REF, Ordering::Release) >= 2 * REF {
            return Dropped::Another;
        }
        fence(Ordering::Acquire);
        Dropped::Last
    }
}
