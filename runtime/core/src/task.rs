//! Tasks as users see them: [`spawn`], [`JoinHandle`], [`AbortHandle`], [`JoinError`], [`yield_now`], [`spawn_blocking`].
//!
//! Owns the types of handles and errors; what a task is made of is in `cell.rs`. Knows nothing of the ring.

mod join_set;
pub(crate) mod remote;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

use crate::cell;
use crate::context::{self, Context};
use crate::panics::Panic;
use crate::pool;
use crate::run_queue::TaskRef;
use crate::run_queue::state::Outcome;

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
    // SAFETY: the task goes into this runtime's table, or nowhere: it is polled and dropped on this thread (ruling 14).
    // The handle is `Send` only if the output is.
    let (task, handle) = unsafe { cell::new(future, Some(Arc::clone(&cx.door))) };
    // SAFETY: the handle's reference, to a task with this output.
    let handle = unsafe { JoinHandle::new(handle) };
    if cx.driver.is_closing() {
        cell::refuse(task);
    } else {
        cx.tasks.adopt(task);
    }
    handle
}

/// The handle of a task, from [`spawn`] or [`spawn_blocking`].
///
/// Awaiting it gives the task's output. It is `Send` when the output is, and may outlive the runtime: it then reports
/// [`JoinError::is_cancelled`] for a task that had not finished.
///
/// # Cancel safety
///
/// Awaiting `&mut handle` and giving up loses nothing. Dropping the handle detaches the task.
pub struct JoinHandle<T> {
    handle: cell::Handle,
    _output: PhantomData<T>,
}

impl<T> JoinHandle<T> {
    /// # Safety
    ///
    /// The reference is the handle's, to a task whose future has the output `T`.
    unsafe fn new(task: TaskRef) -> Self {
        // SAFETY: the caller's promise.
        Self { handle: unsafe { cell::Handle::new(task) }, _output: PhantomData }
    }

    /// Asks the task to stop at its next suspension; its future is then dropped on its own thread. A task that has
    /// finished is not affected; a blocking job is only stopped if it has not begun.
    pub fn abort(&self) {
        abort(self.handle.task());
    }

    /// Whether the task has finished, or was stopped.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// A handle that can stop the task and no more: it is `Send` whatever the output is, and can be cloned.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle { task: self.handle.task().clone() }
    }
}

fn abort(task: &TaskRef) {
    let header = task.header();
    if header.state.abort() {
        cell::wake(task.ptr(), header);
    }
}

impl<T> Unpin for JoinHandle<T> {}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        // SAFETY: the task's future has the output `T`.
        let output = ready!(unsafe { self.handle.poll::<T>(task.waker()) });
        Poll::Ready(match output {
            Some(Ok(output)) => Ok(output),
            Some(Err(panic)) => Err(JoinError { panic: Some(std::sync::Mutex::new(panic)) }),
            None => Err(JoinError::cancelled()),
        })
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}

/// Stops a task from anywhere; from [`JoinHandle::abort_handle`].
///
/// Dropping it changes nothing. It keeps the memory of the task, not its future.
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let handle = runtime_core::task::spawn(std::future::pending::<()>());
/// let stop = handle.abort_handle();
/// std::thread::spawn(move || stop.abort()).join().unwrap();
/// assert!(handle.await.unwrap_err().is_cancelled());
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct AbortHandle {
    task: TaskRef,
}

impl AbortHandle {
    /// As [`JoinHandle::abort`].
    pub fn abort(&self) {
        abort(&self.task);
    }

    /// Whether the task has finished, or was stopped.
    pub fn is_finished(&self) -> bool {
        self.task.header().state.outcome() != Outcome::Lives
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
/// The pool belongs to the process: it starts threads when needed, at most
/// [`blocking_threads`](crate::exec::Builder::blocking_threads), and keeps an idle one for a while.
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
    let guard = context::with(|cx| {
        // Another thread of the parent may have held the lock as it forked.
        cx.driver.assert_same_process();
        cx.jobs.begin()
    });
    let future = async move {
        let _guard = guard;
        job()
    };
    // SAFETY: the future is `Send`, and so is the output.
    let (task, handle) = unsafe { cell::new(future, None) };
    // SAFETY: the handle's reference, to a task with this output.
    let handle = unsafe { JoinHandle::new(handle) };
    let job = Job(Some(task));
    // A job that is dropped cancels the task.
    pool::run(Box::new(move || job.run()));
    handle
}

/// A task that runs on the blocking pool, or is cancelled.
struct Job(Option<TaskRef>);

impl Job {
    fn run(mut self) {
        if let Some(task) = self.0.take() {
            cell::run_to_end(task);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            cell::refuse(task);
        }
    }
}

/// Goes on with a panic that was held back.
pub(crate) fn resume(panic: Option<Panic>) {
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}
