//! Tasks for another thread.
//!
//! Owns the one function that makes a task's cell away from the thread that runs it. Knows nothing of which threads there
//! are.

use std::future::Future;
use std::sync::Arc;

use super::{JoinHandle, spawn_in};
use crate::cell;
use crate::context;
use crate::run_queue::TaskRef;
use crate::wake::{Arrival, Door};

/// Has the runtime behind a door make a future and run it. Without a door, or when the runtime is gone, `make` is
/// dropped here and the handle reports that the task was cancelled.
pub(crate) fn spawn_at<F, Fut>(door: Option<&Arc<Door<TaskRef>>>, make: F) -> JoinHandle<Fut::Output>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    let future = async move { make().await };
    let is_here = |door: &Arc<Door<TaskRef>>| context::with(|cx| Arc::ptr_eq(&cx.door, door)).unwrap_or(false);
    if door.is_some_and(is_here) {
        return context::expect(|cx| spawn_in(cx, future));
    }
    // SAFETY: until its first poll the future holds `make` only, which is `Send`; what `make` makes need not be, since
    // from the moment that the task has arrived it is only polled and dropped by the thread of the door (ruling 14). One
    // that does not arrive is dropped here, unpolled. The output is `Send`, so the handle may be anywhere.
    let (task, handle) = unsafe { cell::new(future, door.cloned()) };
    // SAFETY: the handle's reference, to a task with this output.
    let handle = unsafe { JoinHandle::new(handle) };
    let unsent = match door {
        Some(door) => door.send(Arrival::Task(task)).err(),
        None => Some(Arrival::Task(task)),
    };
    if let Some(Arrival::Task(task)) = unsent {
        cell::refuse(task);
    }
    handle
}
