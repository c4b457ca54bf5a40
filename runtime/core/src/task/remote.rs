//! Tasks for another thread.
//!
//! Owns the one function that makes a task's cell away from the thread that runs it; everything about such a task that
//! depends on the cell is here. Knows nothing of which threads there are.

use std::future::Future;
use std::sync::Arc;

use super::{Contained, JoinHandle, Spawned, schedule, spawn_in};
use crate::context;
use crate::run_queue::{Meta, Runnable};
use crate::wake::{Arrival, Door};

/// Has the runtime behind a door make a future and run it. Without a door, or when the runtime is gone, `make` is
/// dropped here and the handle reports that the task was cancelled.
pub(crate) fn spawn_at<F, Fut>(door: Option<&Arc<Door<Runnable>>>, make: F) -> JoinHandle<Fut::Output>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    // Contained, because a closure that is never called is dropped in the task cell.
    let make = Contained::new(make);
    let future = async move { (make.into_inner())().await };
    let is_here = |door: &Arc<Door<Runnable>>| context::with(|cx| Arc::ptr_eq(&cx.door, door)).unwrap_or(false);
    if door.is_some_and(is_here) {
        return context::expect(|cx| spawn_in(cx, future));
    }
    let builder = async_task::Builder::new().metadata(Meta::new(door.cloned()));
    let cell = |meta: &'static Meta| Spawned { future: Contained::new(future), meta };
    // SAFETY: until its first poll the future holds `make` only, which is `Send`; what `make` makes need not be, since
    // from the moment that the runnable has arrived it is only run and dropped by the thread of the door (ruling 14).
    // One that does not arrive is dropped here, unpolled. The output is `Send`, so the handle may be anywhere. The
    // schedule function captures nothing; the reference to the metadata is as long-lived as the cell that holds both.
    let (runnable, task) = unsafe { builder.spawn_unchecked(cell, schedule) };
    let handle = JoinHandle::new(task);
    let unsent = match door {
        Some(door) => door.send(Arrival::Spawned(runnable)).err(),
        None => Some(Arrival::Spawned(runnable)),
    };
    // Cancels the task.
    drop(unsent);
    handle
}
