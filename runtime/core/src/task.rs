//! Tasks as users see them: [`spawn`], [`JoinHandle`], [`JoinError`], [`yield_now`], [`spawn_blocking`].
//!
//! Owns what surrounds a future in its task cell: the catching of panics, in polls and in destructors, and the place in
//! the list of living tasks. Knows nothing of the ring.

mod join_set;
pub(crate) mod remote;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use async_task::FallibleTask;

use crate::context::{self, Context};
use crate::driver::{Panic, drop_quietly};
use crate::pool;
use crate::run_queue::{Meta, Runnable};
use crate::wake::{Arrival, Door};

pub use join_set::JoinSet;

/// Runs a future beside the current one, on the same thread.
///
/// The task starts by itself; **dropping the handle does not stop it**: it goes on detached, as in tokio. Use
/// [`JoinHandle::abort`] to stop it. The future need not be `Send`. A panic in it stays in the task and is reported by
/// the handle.
///
/// While the runtime shuts down nothing new is started: the future is dropped, and the handle reports
/// [`JoinError::is_cancelled`].
///
/// # Panics
///
/// Outside a runtime.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let handle = runtime_core::task::spawn(async { 1 + 1 });
/// assert_eq!(handle.await.unwrap(), 2);
/// # });
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    context::expect(|cx| spawn_in(cx, future))
}

fn spawn_in<F>(cx: &Context, future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let builder = async_task::Builder::new().metadata(Meta::new(Some(Arc::clone(&cx.door))));
    let make = |meta: &'static Meta| Spawned { future: Contained::new(future), meta };
    cx.tasks.born();
    // SAFETY: neither the future nor its output need be `Send`: runnables of this task are only run and dropped by the
    // run loop and the shutdown of the runtime it was spawned on, thus on this thread (ruling 14). The schedule
    // function captures nothing. The handle leaves the thread only when the output is `Send`. The future's reference to the metadata is as long-lived as the task cell that holds both.
    let (runnable, task) = unsafe { builder.spawn_unchecked(make, schedule) };
    let handle = JoinHandle::new(task);
    if cx.driver.is_closing() {
        drop(runnable);
        return handle;
    }
    cx.tasks.push(runnable);
    handle
}

/// Brings a woken task to its runtime.
fn schedule(runnable: Runnable) {
    let Some(door) = runnable.metadata().door() else { return };
    // SAFETY: not kept beyond this call.
    match unsafe { context::try_borrow() } {
        Some(cx) if Arc::ptr_eq(&cx.door, door) => cx.tasks.push(runnable),
        _ => send(Arc::clone(door), runnable),
    }
}

#[cold]
fn send(door: Arc<Door<Runnable>>, runnable: Runnable) {
    if let Err(Arrival::Task(runnable)) = door.send(Arrival::Task(runnable)) {
        // The runtime is gone and has dropped the future: nothing is left that this runnable could run, and dropping
        // it here is not for another thread to do (ruling 14).
        std::mem::forget(runnable);
    }
}

/// Runs or, when it was aborted, drops a task that is ready.
pub(crate) fn run(runnable: Runnable) {
    if runnable.metadata().is_aborted() {
        drop(runnable);
    } else {
        runnable.run();
    }
}

/// A user's future in its task cell.
struct Spawned<F> {
    future: Contained<F>,
    meta: &'static Meta,
}

impl<F: Future> Future for Spawned<F> {
    type Output = Contained<Result<F::Output, Panic>>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let meta = self.meta;
        // SAFETY: the field is pinned with its owner: it is never moved out of (`Contained` drops it in place).
        let future = unsafe { self.map_unchecked_mut(|this| &mut *this.future.0) };
        match catch_unwind(AssertUnwindSafe(|| future.poll(task))) {
            Ok(Poll::Pending) => {
                if meta.place().is_none() {
                    let waker = task.waker().clone();
                    if meta.set_place(context::expect(|cx| cx.tasks.enlist(waker))) {
                        task.waker().wake_by_ref();
                    }
                }
                Poll::Pending
            }
            Ok(Poll::Ready(output)) => Poll::Ready(Contained::new(Ok(output))),
            Err(panic) => Poll::Ready(Contained::new(Err(panic))),
        }
    }
}

impl<F> Drop for Spawned<F> {
    fn drop(&mut self) {
        let Some(door) = self.meta.door() else { return };
        let waker =
            context::with(|cx| if Arc::ptr_eq(&cx.door, door) { cx.tasks.died(self.meta.place()) } else { None });
        // The cell outlives this waker: whoever drops the future holds it.
        drop(waker);
    }
}

/// A value whose destructor may panic without taking anything else down (the task cell aborts on such panics).
struct Contained<T>(ManuallyDrop<T>);

impl<T> Contained<T> {
    fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never used or dropped again.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        let value = &mut self.0;
        // SAFETY: dropped once, here, in place.
        let result = catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(value) }));
        if let Err(panic) = result {
            drop_quietly(panic);
        }
    }
}

/// The handle of a task, from [`spawn`] or [`spawn_blocking`].
///
/// Awaiting it gives the task's output. It is `Send` when the output is, and may outlive the runtime: it then reports
/// [`JoinError::is_cancelled`] for a task that had not finished.
///
/// A waker of one's own that awaits a handle must not panic when it is cloned, woken or dropped: the task cell cannot
/// contain that and aborts the process.
///
/// # Cancel safety
///
/// Awaiting `&mut handle` and giving up loses nothing. Dropping the handle detaches the task.
pub struct JoinHandle<T> {
    /// There until it is dropped.
    task: Option<FallibleTask<Contained<Result<T, Panic>>, Meta>>,
    /// Lies in the task's cell, which `task` keeps alive.
    meta: &'static Meta,
}

impl<T> JoinHandle<T> {
    fn new(task: async_task::Task<Contained<Result<T, Panic>>, Meta>) -> Self {
        let meta = std::ptr::from_ref(task.metadata());
        // SAFETY: the metadata does not move and lives as long as the cell, which the handle keeps until it is dropped;
        // the reference is not handed out.
        let meta = unsafe { &*meta };
        Self { task: Some(task.fallible()), meta }
    }

    fn task(&self) -> &FallibleTask<Contained<Result<T, Panic>>, Meta> {
        self.task.as_ref().expect("taken only on drop")
    }

    /// Asks the task to stop at its next suspension; its future is then dropped on its own thread. A task that has
    /// finished is not affected; a blocking job is only stopped if it has not begun.
    pub fn abort(&self) {
        if self.is_finished() {
            return;
        }
        let meta = self.meta;
        if !meta.abort() {
            return;
        }
        let Some(door) = meta.door() else { return };
        // One that was never polled is in the queue already; one in its first poll looks for itself when it suspends.
        let Some(place) = meta.place() else { return };
        match context::with(|cx| Arc::ptr_eq(&cx.door, door).then(|| cx.tasks.waker_at(place))).flatten() {
            Some(Some(waker)) => waker.wake(),
            Some(None) => {}
            // A runtime that is gone has dropped the task.
            None => drop(door.send(Arrival::Wake(place))),
        }
    }

    /// Whether the task has finished, or was stopped.
    pub fn is_finished(&self) -> bool {
        self.task().is_finished()
    }
}

impl<T> Unpin for JoinHandle<T> {}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let cell = self.task.as_mut().expect("taken only on drop");
        let Poll::Ready(outcome) = Pin::new(cell).poll(task) else { return Poll::Pending };
        Poll::Ready(match outcome.map(Contained::into_inner) {
            Some(Ok(output)) => Ok(output),
            Some(Err(panic)) => Err(JoinError { panic: Some(std::sync::Mutex::new(panic)) }),
            None => Err(JoinError::cancelled()),
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}

/// Why a task has no output: it panicked, or it was stopped before it finished.
pub struct JoinError {
    /// In a lock only so that the error is `Sync`, as errors have to be.
    panic: Option<std::sync::Mutex<Panic>>,
}

impl JoinError {
    pub(crate) fn cancelled() -> Self {
        Self { panic: None }
    }

    /// Whether the task was aborted, or its runtime ended.
    pub fn is_cancelled(&self) -> bool {
        self.panic.is_none()
    }

    /// Whether the task panicked.
    pub fn is_panic(&self) -> bool {
        self.panic.is_some()
    }

    /// The payload of the panic.
    ///
    /// # Panics
    ///
    /// When the task was cancelled instead; see [`is_panic`](Self::is_panic).
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn Any + Send + 'static> {
        self.try_into_panic().expect("the task was cancelled and did not panic: ask `is_panic` first")
    }

    /// The payload of the panic, or the error itself when the task was cancelled.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send + 'static>, Self> {
        match self.panic {
            Some(panic) => Ok(panic.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)),
            None => Err(self),
        }
    }

    fn message(&self) -> Option<String> {
        let panic = self.panic.as_ref()?.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let text = panic.downcast_ref::<&'static str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned())
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_panic(), self.message()) {
            (false, _) => f.write_str("JoinError::Cancelled"),
            (true, Some(message)) => write!(f, "JoinError::Panic({message:?})"),
            (true, None) => f.write_str("JoinError::Panic(...)"),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_panic(), self.message()) {
            (false, _) => f.write_str("the task was cancelled"),
            (true, Some(message)) => write!(f, "the task panicked: {message}"),
            (true, None) => f.write_str("the task panicked"),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        io::Error::other(error)
    }
}

/// Lets every other task that is ready run once, and the ring be visited, before it completes.
///
/// # Cancel safety
///
/// Holds nothing.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// runtime_core::task::yield_now().await;
/// # });
/// ```
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.yielded, true) {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Runs a closure that may block on a thread of the blocking pool.
///
/// The pool belongs to the process: it starts threads when needed, at most 128, and keeps an idle one for ten seconds.
/// A panic is reported by the handle.
///
/// A runtime that ends waits for the jobs that were started in it: at most a second when it is dropped, at most the
/// limit of [`shutdown_timeout`](crate::exec::Runtime::shutdown_timeout). A job that takes longer is abandoned: it owns
/// what it touches and goes on, and the pool, which is never joined, does not keep the process from ending.
///
/// # Errors
///
/// The handle reports [`JoinError::is_cancelled`] when no thread could be started.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let sum = runtime_core::task::spawn_blocking(|| (1..=10).sum::<u32>()).await.unwrap();
/// assert_eq!(sum, 55);
/// # });
/// ```
pub fn spawn_blocking<F, T>(job: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // Contained, because a job that is never run is dropped in the task cell.
    let job = Contained::new(job);
    let guard = context::with(|cx| cx.jobs.begin());
    let make = |_: &Meta| async move {
        let result = Contained::new(catch_unwind(AssertUnwindSafe(|| job.into_inner()())));
        drop(guard);
        result
    };
    let schedule = |runnable: Runnable| {
        // A job that is given back is dropped, which cancels the task.
        let _ = pool::run(Box::new(move || run(runnable)));
    };
    let (runnable, task) = async_task::Builder::new().metadata(Meta::new(None)).spawn(make, schedule);
    runnable.schedule();
    JoinHandle::new(task)
}

/// Goes on with a panic that was held back.
pub(crate) fn resume(panic: Option<Panic>) {
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}
