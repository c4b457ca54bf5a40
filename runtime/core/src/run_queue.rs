//! Tasks as the run loop sees them: what is ready, and what is alive.
//!
//! Owns the queue of runnable tasks and the list of living ones; knows nothing of futures, handles or the ring. The
//! task cell is `async-task`'s; its scheduling rules, in short (ruling 14): a task's future is only ever polled or
//! dropped by running or dropping its `Runnable`, so that must happen on the thread the task was spawned on.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;

use slab::Slab;

use crate::wake::Door;

const NOWHERE: u32 = u32::MAX;

/// What every task carries beside its future.
#[derive(Debug)]
pub(crate) struct Meta {
    /// The door of the runtime it runs in; `None` on the blocking pool. Here rather than captured by the schedule
    /// function, for which the cell would make and drop a waker around each wake.
    door: Option<Arc<Door<Runnable>>>,
    /// To be dropped instead of polled when it comes up next.
    aborted: AtomicBool,
    /// Its place in the list of suspended tasks.
    place: AtomicU32,
}

impl Meta {
    pub(crate) fn new(door: Option<Arc<Door<Runnable>>>) -> Self {
        Self { door, aborted: AtomicBool::new(false), place: AtomicU32::new(NOWHERE) }
    }

    #[inline]
    pub(crate) fn door(&self) -> Option<&Arc<Door<Runnable>>> {
        self.door.as_ref()
    }

    /// Says whether it was not aborted before.
    pub(crate) fn abort(&self) -> bool {
        !self.aborted.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn is_aborted(&self) -> bool {
        // Set before the wake that brings the task here; the queue it came through orders the two.
        self.aborted.load(Ordering::Acquire)
    }

    /// The task suspends for the first time; says whether it was aborted meanwhile by somebody who found no place yet.
    /// Both write before they look, in one order (`SeqCst`), so one of them sees the other.
    pub(crate) fn set_place(&self, place: u32) -> bool {
        self.place.store(place, Ordering::SeqCst);
        self.aborted.load(Ordering::SeqCst)
    }

    /// `None` before the task has suspended for the first time.
    pub(crate) fn place(&self) -> Option<u32> {
        Some(self.place.load(Ordering::SeqCst)).filter(|&place| place != NOWHERE)
    }
}

/// A task that is ready to run.
pub(crate) type Runnable = async_task::Runnable<Meta>;

/// The tasks of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    ready: RefCell<Ring>,
    /// A waker for each task that has suspended: waking is how a task is brought into `ready` to be dropped. A task that
    /// was never polled is in `ready` anyway, and one that never suspends pays nothing.
    suspended: RefCell<Slab<Waker>>,
    /// Tasks whose future exists.
    living: Cell<usize>,
}

impl Tasks {
    #[inline(always)]
    pub(crate) fn push(&self, task: Runnable) {
        self.ready.borrow_mut().push(task);
    }

    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<Runnable> {
        self.ready.borrow_mut().pop()
    }

    /// Number of tasks that are ready.
    pub(crate) fn ready(&self) -> usize {
        self.ready.borrow().len
    }

    /// Number of tasks that live.
    pub(crate) fn living(&self) -> usize {
        self.living.get()
    }

    /// A task was spawned.
    pub(crate) fn born(&self) {
        self.living.set(self.living.get() + 1);
    }

    /// A task suspends for the first time.
    pub(crate) fn enlist(&self, waker: Waker) -> u32 {
        self.suspended.borrow_mut().insert(waker) as u32
    }

    /// A task's future is dropped; the waker is handed out because dropping it may free the task.
    #[must_use]
    pub(crate) fn died(&self, place: Option<u32>) -> Option<Waker> {
        self.living.set(self.living.get() - 1);
        self.suspended.borrow_mut().try_remove(place? as usize)
    }

    /// The waker at a place. Places are reused, so this may wake another task, which does no harm.
    pub(crate) fn waker_at(&self, place: u32) -> Option<Waker> {
        self.suspended.borrow().get(place as usize).cloned()
    }

    /// The wakers of all tasks that have suspended and live.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        self.suspended.borrow().iter().map(|(_, waker)| waker.clone()).collect()
    }
}

/// A FIFO in a power of two of places: half the instructions of `VecDeque`, which every wake and every poll pays.
#[derive(Debug, Default)]
struct Ring {
    places: Box<[Option<Runnable>]>,
    head: usize,
    len: usize,
}

impl Ring {
    #[inline(always)]
    fn push(&mut self, task: Runnable) {
        if self.len == self.places.len() {
            self.grow();
        }
        let at = (self.head + self.len) & (self.places.len() - 1);
        if let Some(place) = self.places.get_mut(at) {
            let empty = place.replace(task);
            debug_assert!(empty.is_none(), "the place behind the last one is empty");
            std::mem::forget(empty);
            self.len += 1;
        }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<Runnable> {
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

    fn task(name: u32) -> Runnable {
        let meta = Meta::new(None);
        meta.set_place(name);
        let (runnable, task) = async_task::Builder::new().metadata(meta).spawn(|_| async {}, |_| {});
        task.detach();
        runnable
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
                assert_eq!(ring.pop().unwrap().metadata().place(), Some(popped));
                popped += 1;
            }
            assert_eq!(ring.len as u32, pushed - popped);
        }
        while let Some(task) = ring.pop() {
            assert_eq!(task.metadata().place(), Some(popped));
            popped += 1;
        }
        assert_eq!((popped, ring.len), (pushed, 0));
    }
}
