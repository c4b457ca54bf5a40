//! Tasks as the run loop sees them: what is ready, and what is alive.
//!
//! Owns the queue of runnable tasks and the list of living ones; knows nothing of futures, handles or the ring. The
//! task cell is `async-task`'s; its scheduling rules, in short (ruling 14): a task's future is only ever polled or
//! dropped by running or dropping its `Runnable`, so that must happen on the thread the task was spawned on.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;

use slab::Slab;

use crate::wake::RingId;

/// What every task carries beside its future.
#[derive(Debug)]
pub(crate) struct Meta {
    /// The ring of the runtime it runs in; `None` on the blocking pool.
    home: Option<RingId>,
    /// To be dropped instead of polled when it comes up next.
    aborted: AtomicBool,
    /// Its place in the list of living tasks.
    place: AtomicU32,
}

impl Meta {
    pub(crate) fn new(home: Option<RingId>) -> Self {
        Self { home, aborted: AtomicBool::new(false), place: AtomicU32::new(u32::MAX) }
    }

    pub(crate) fn home(&self) -> Option<RingId> {
        self.home
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }

    pub(crate) fn is_aborted(&self) -> bool {
        // Set before the wake that brings the task here; the queue it came through orders the two.
        self.aborted.load(Ordering::Acquire)
    }

    pub(crate) fn set_place(&self, place: u32) {
        self.place.store(place, Ordering::Relaxed);
    }

    pub(crate) fn place(&self) -> u32 {
        self.place.load(Ordering::Relaxed)
    }
}

/// A task that is ready to run.
pub(crate) type Runnable = async_task::Runnable<Meta>;

/// The tasks of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    ready: RefCell<VecDeque<Runnable>>,
    /// A waker for each living task: waking is how a task is brought into `ready` to be dropped.
    living: RefCell<Slab<Waker>>,
}

impl Tasks {
    pub(crate) fn push(&self, task: Runnable) {
        self.ready.borrow_mut().push_back(task);
    }

    pub(crate) fn pop(&self) -> Option<Runnable> {
        self.ready.borrow_mut().pop_front()
    }

    /// Number of tasks that are ready.
    pub(crate) fn ready(&self) -> usize {
        self.ready.borrow().len()
    }

    /// Number of tasks that live.
    pub(crate) fn living(&self) -> usize {
        self.living.borrow().len()
    }

    pub(crate) fn enlist(&self, waker: Waker) -> u32 {
        self.living.borrow_mut().insert(waker) as u32
    }

    /// Strikes a task off; the waker is handed out because dropping it may free the task.
    #[must_use]
    pub(crate) fn strike(&self, place: u32) -> Option<Waker> {
        self.living.borrow_mut().try_remove(place as usize)
    }

    /// The waker at a place. Places are reused, so this may wake another task, which does no harm.
    pub(crate) fn waker_at(&self, place: u32) -> Option<Waker> {
        self.living.borrow().get(place as usize).cloned()
    }

    /// The wakers of all living tasks.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        self.living.borrow().iter().map(|(_, waker)| waker.clone()).collect()
    }
}
