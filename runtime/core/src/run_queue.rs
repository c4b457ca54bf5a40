//! Tasks as the run loop sees them: what is ready, and what is alive.
//!
//! Owns what every task cell begins with, the queue of tasks that are ready and the table of living ones. Knows nothing
//! of futures, handles or the ring.
//!
//! ```text
//!   Away ──adopt──▶ Ready
//!          wake               pop                     future is gone
//!   Idle ────────▶ Ready ────────────▶ Idle (polled) ────────────────▶ Done
//!                    │ future is gone (it was woken before)               ▲ pop
//!                    └───────────────────────────────▶ DoneInQueue ───────┘
//! ```

pub(crate) mod state;

/// The atomics of a task's state; model checks replace them.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering, fence};
}

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context as Task, Waker};

use slab::Slab;

use crate::wake::Door;
use state::{Dropped, State};

/// The index of a task that is in no table.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// What every task cell begins with. All but `state` and what it guards (rule 2 there) is for the home thread only.
pub(crate) struct Header {
    pub(crate) state: State,
    pub(crate) vtable: &'static Vtable,
    /// The door of the runtime it runs in; `None` on the blocking pool.
    pub(crate) door: Option<Arc<Door<TaskRef>>>,
    pub(crate) stage: Cell<Stage>,
    /// Its place in the table.
    pub(crate) index: Cell<u32>,
    /// The waker of whoever awaits the handle.
    pub(crate) awaiter: UnsafeCell<Option<Waker>>,
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Header").field("state", &self.state).finish_non_exhaustive()
    }
}

/// What can be done with a task without knowing its type.
pub(crate) struct Vtable {
    /// Polls the future, and ends the task when it completes or panics.
    pub(crate) poll: unsafe fn(TaskPtr, &mut Task<'_>) -> Ended,
    /// Drops the future.
    pub(crate) drop_future: unsafe fn(TaskPtr),
    /// Moves the output to an address.
    pub(crate) take_output: unsafe fn(TaskPtr, *mut ()),
    /// Drops the output.
    pub(crate) drop_output: unsafe fn(TaskPtr),
    /// Frees the cell, whose future and output are gone.
    pub(crate) free: unsafe fn(TaskPtr),
}

/// What a poll led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The future waits.
    No,
    /// The future is gone and the output in its place.
    Yes,
}

/// Where a task stands, as its home thread sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In no table yet: it was just made, or is under way to its home. Whoever brings it has the task's own reference, so
    /// a wake (of an abort) must not put it into the queue, which has none.
    Away,
    /// Waits to be woken, or is being polled.
    Idle,
    /// In the queue.
    Ready,
    /// In the queue, though its future is gone: the queue has the task's reference.
    DoneInQueue,
    /// The future is gone.
    Done,
}

/// The address of a task cell, without a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskPtr(pub(crate) NonNull<Header>);

impl TaskPtr {
    /// # Safety
    ///
    /// Somebody holds a reference to the cell for as long as the result is used.
    #[inline(always)]
    pub(crate) unsafe fn header<'a>(self) -> &'a Header {
        // SAFETY: the caller's promise; only shared references to headers are made.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    ///
    /// The caller holds a reference and does not use it again.
    #[inline(always)]
    pub(crate) unsafe fn drop_reference(self) {
        // SAFETY: the caller's reference.
        let header = unsafe { self.header() };
        if header.state.drop_reference() == Dropped::Last {
            let free = header.vtable.free;
            // SAFETY: the last reference (rule 4 of the state); future and output went before those of task and handle.
            unsafe { free(self) };
        }
    }
}

/// A counted reference to a task, which any thread may hold.
#[derive(Debug)]
pub(crate) struct TaskRef(TaskPtr);

// SAFETY: all that a reference is used for off the home thread is the state, which is atomic, and what its rules make
// exclusive; a task's future is polled and dropped at home (ruling 14).
unsafe impl Send for TaskRef {}
// SAFETY: as above.
unsafe impl Sync for TaskRef {}

impl TaskRef {
    /// # Safety
    ///
    /// The caller's reference becomes this one.
    pub(crate) unsafe fn from_ptr(task: TaskPtr) -> Self {
        Self(task)
    }

    pub(crate) fn into_ptr(self) -> TaskPtr {
        std::mem::ManuallyDrop::new(self).0
    }

    pub(crate) fn ptr(&self) -> TaskPtr {
        self.0
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: a reference is held.
        unsafe { self.0.header() }
    }
}

impl Clone for TaskRef {
    fn clone(&self) -> Self {
        self.header().state.add_reference();
        Self(self.0)
    }
}

impl Drop for TaskRef {
    fn drop(&mut self) {
        // SAFETY: the reference that this value stands for.
        unsafe { self.0.drop_reference() };
    }
}

/// The tasks of one runtime. It holds one reference to each, in the table while its future exists.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    ready: RefCell<Ring>,
    living: RefCell<Slab<TaskPtr>>,
}

impl Tasks {
    /// Takes a new task in, with its reference.
    pub(crate) fn adopt(&self, task: TaskRef) {
        let ptr = task.into_ptr();
        let index = self.living.borrow_mut().insert(ptr) as u32;
        // SAFETY: the reference that the table holds from now on.
        let header = unsafe { ptr.header() };
        header.index.set(index);
        header.stage.set(Stage::Idle);
        self.wake(ptr, header);
    }

    /// Brings a task into the queue, unless it is there or over.
    #[inline(always)]
    pub(crate) fn wake(&self, task: TaskPtr, header: &Header) {
        if header.stage.get() == Stage::Idle {
            header.stage.set(Stage::Ready);
            self.ready.borrow_mut().push(task);
        }
    }

    /// Wakes the task at a place. Places are reused, so this may wake another task, which does no harm.
    #[inline(always)]
    pub(crate) fn wake_at(&self, index: u32) {
        if let Some(task) = self.at(index) {
            // SAFETY: the table holds a reference.
            let header = unsafe { task.header() };
            self.wake(task, header);
        }
    }

    /// The next task that is ready. Its `stage` says whether it is to be polled.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<TaskPtr> {
        self.ready.borrow_mut().pop()
    }

    /// A task's future is gone: its reference is the caller's now, unless the queue has it.
    #[must_use]
    pub(crate) fn bury(&self, header: &Header) -> Option<TaskRef> {
        let task = self.living.borrow_mut().try_remove(header.index.replace(NOWHERE) as usize);
        if header.stage.get() == Stage::Ready {
            header.stage.set(Stage::DoneInQueue);
            return None;
        }
        header.stage.set(Stage::Done);
        task.map(TaskRef)
    }

    /// Number of tasks that are ready.
    pub(crate) fn ready(&self) -> usize {
        self.ready.borrow().len
    }

    /// Number of tasks whose future exists.
    pub(crate) fn living(&self) -> usize {
        self.living.borrow().len()
    }

    /// The places of all living tasks.
    pub(crate) fn places(&self) -> Vec<u32> {
        self.living.borrow().iter().map(|(index, _)| index as u32).collect()
    }

    /// The living task at a place.
    pub(crate) fn at(&self, index: u32) -> Option<TaskPtr> {
        self.living.borrow().get(index as usize).copied()
    }
}

/// A FIFO in a power of two of places: half the instructions of `VecDeque`, which every wake and every poll pays.
#[derive(Debug, Default)]
struct Ring {
    places: Box<[Option<TaskPtr>]>,
    head: usize,
    len: usize,
}

impl Ring {
    #[inline(always)]
    fn push(&mut self, task: TaskPtr) {
        if self.len == self.places.len() {
            self.grow();
        }
        let at = (self.head + self.len) & (self.places.len() - 1);
        if let Some(place) = self.places.get_mut(at) {
            debug_assert!(place.is_none(), "the place behind the last one is empty");
            *place = Some(task);
            self.len += 1;
        }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<TaskPtr> {
        // An empty queue has nothing at its head, so that there is nothing else to ask.
        let task = self.places.get_mut(self.head)?.take()?;
        self.head = (self.head + 1) & (self.places.len() - 1);
        self.len -= 1;
        Some(task)
    }

    #[cold]
    fn grow(&mut self) {
        let mut places = std::mem::take(&mut self.places).into_vec();
        // What had wrapped around comes behind the rest.
        places.rotate_left(self.head);
        self.head = 0;
        let double = (places.len() * 2).max(64);
        places.resize_with(double, || None);
        self.places = places.into_boxed_slice();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address that is only compared.
    fn task(name: usize) -> TaskPtr {
        TaskPtr(NonNull::without_provenance(std::num::NonZeroUsize::new(name + 1).unwrap()))
    }

    #[test]
    fn tasks_come_out_as_they_went_in_across_growth_and_wrapping() {
        let mut ring = Ring::default();
        assert!(ring.pop().is_none());
        let (mut pushed, mut popped) = (0, 0);
        for round in 0..200 {
            for _ in 0..round {
                ring.push(task(pushed));
                pushed += 1;
            }
            for _ in 0..round * 2 / 3 {
                assert_eq!(ring.pop(), Some(task(popped)));
                popped += 1;
            }
            assert_eq!(ring.len, pushed - popped);
        }
        while let Some(next) = ring.pop() {
            assert_eq!(next, task(popped));
            popped += 1;
        }
        assert_eq!((popped, ring.len), (pushed, 0));
    }
}
