//! [`JoinSet`]: tasks that are awaited in the order in which they end.
//!
//! Owns the handles and the list of those that have ended; knows nothing of how tasks run. Each task carries a guard that
//! reports its end however it ends: completed, panicked, aborted or dropped with its runtime.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, Waker, ready};

use slab::Slab;

use super::{AbortHandle, JoinError, JoinHandle, spawn};
use crate::{cell, context};

/// A set of tasks of one output type, spawned on this thread.
///
/// Dropping the set aborts the tasks that are in it.
///
/// # Examples
///
/// ```
/// use runtime_core::task::JoinSet;
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut set = JoinSet::new();
/// for n in 0..3u32 {
///     set.spawn(async move { n * n });
/// }
/// let mut squares = Vec::new();
/// while let Some(square) = set.join_next().await {
///     squares.push(square.unwrap());
/// }
/// squares.sort();
/// assert_eq!(squares, [0, 1, 4]);
/// # });
/// ```
pub struct JoinSet<T> {
    handles: Slab<JoinHandle<T>>,
    ended: Rc<Ended>,
}

/// The tasks that have ended, in order, and who waits for them.
#[derive(Default)]
struct Ended {
    queue: RefCell<VecDeque<usize>>,
    waker: Cell<Option<Waker>>,
}

/// Reports the end of a task.
struct Guard {
    ended: Rc<Ended>,
    key: usize,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.ended.queue.borrow_mut().push_back(self.key);
        if let Some(waker) = self.ended.waker.take() {
            // The task, which is ending, has nothing to do with what the waker may throw.
            cell::wake_safely(waker);
        }
    }
}

impl<T: 'static> JoinSet<T> {
    /// An empty set.
    pub fn new() -> Self {
        Self { handles: Slab::new(), ended: Rc::default() }
    }

    /// Spawns a task into the set; see [`spawn`].
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    #[track_caller]
    pub fn spawn(&mut self, future: impl Future<Output = T> + 'static) -> AbortHandle {
        // Refused before there is a guard that could report a task which is not in the set.
        context::expect(|_| ());
        let entry = self.handles.vacant_entry();
        let guard = Guard { ended: Rc::clone(&self.ended), key: entry.key() };
        let handle = entry.insert(spawn(async move {
            let _guard = guard;
            future.await
        }));
        handle.abort_handle()
    }

    /// Number of tasks that have not been joined.
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Whether every task has been joined.
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Waits for the next task to end and takes its output; `None` when the set is empty.
    ///
    /// # Errors
    ///
    /// Why a task has no output: it panicked or was aborted.
    ///
    /// # Cancel safety
    ///
    /// No output is lost: a task that has ended stays in the set until it is returned.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|task| self.poll_join_next(task)).await
    }

    /// The output of a task that has ended already; `None` when there is none.
    ///
    /// # Errors
    ///
    /// As [`join_next`](Self::join_next).
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        // Whoever waits for the next one keeps its place.
        let key = self.ended.queue.borrow().front().copied().filter(|&key| self.handles[key].is_finished())?;
        match self.poll_ended(key, &mut Task::from_waker(Waker::noop())) {
            Poll::Ready(joined) => Some(joined),
            Poll::Pending => None,
        }
    }

    /// The outputs of all tasks, in the order in which they end.
    ///
    /// # Panics
    ///
    /// With the panic of a task, or when one was aborted; the others are aborted then.
    ///
    /// # Cancel safety
    ///
    /// The set goes with the future: its tasks are aborted, and outputs that had come are dropped.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut outputs = Vec::with_capacity(self.len());
        while let Some(joined) = self.join_next().await {
            match joined.map_err(JoinError::try_into_panic) {
                Ok(output) => outputs.push(output),
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                Err(Err(cancelled)) => panic!("a task of the set was aborted: {cancelled}"),
            }
        }
        outputs
    }

    /// Polls for the next task to end.
    pub fn poll_join_next(&mut self, task: &mut Task<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.handles.is_empty() {
            return Poll::Ready(None);
        }
        let first = self.ended.queue.borrow().front().copied();
        let Some(key) = first else {
            drop(self.ended.waker.replace(Some(task.waker().clone())));
            return Poll::Pending;
        };
        self.poll_ended(key, task).map(Some)
    }

    /// The future is gone; its output is there as soon as the task cell has closed.
    fn poll_ended(&mut self, key: usize, task: &mut Task<'_>) -> Poll<Result<T, JoinError>> {
        let result = ready!(Pin::new(&mut self.handles[key]).poll(task));
        self.ended.queue.borrow_mut().pop_front();
        drop(self.handles.remove(key));
        Poll::Ready(result)
    }

    /// Aborts every task; their errors are still to be joined.
    pub fn abort_all(&mut self) {
        for (_, handle) in &self.handles {
            handle.abort();
        }
    }

    /// Lets every task go on without the set.
    pub fn detach_all(&mut self) {
        self.handles.clear();
        // Guards of detached tasks report to a list that nobody reads.
        self.ended = Rc::default();
    }

    /// Aborts every task and waits until all have ended.
    ///
    /// # Cancel safety
    ///
    /// The tasks are aborted in any case.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }
}

impl<T: 'static> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        for (_, handle) in &self.handles {
            handle.abort();
        }
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.handles.len()).finish_non_exhaustive()
    }
}
