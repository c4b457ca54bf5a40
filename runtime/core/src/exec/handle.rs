//! [`Handle`]: a thread's place among those that run the program, and the way to the others. [`spawn_on`].
//!
//! Owns what users see of a crew. Knows nothing of how its threads are started and ended.

use std::fmt;
use std::future::Future;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::context;
use crate::crew::Crew;
use crate::task::JoinHandle;
use crate::task::remote::spawn_at;

pub use crate::crew::stop::Stopped;

/// A thread of a runtime: which one it is, how many there are, how to reach them and how to stop them.
///
/// The body of [`Builder::run`](super::Builder::run) gets the one of its thread; [`current`](Self::current) gives it
/// anywhere inside. It is `Send` and `Sync`, cheap to clone, and usable on threads that run no runtime.
///
/// A runtime that is alone on its thread (`#[runtime::main]` without `threads`, or
/// [`Builder::build`](super::Builder::build)) is thread 0 of as many as its builder says, of which the others are
/// started when they are first used, and end with it.
///
/// # Examples
///
/// ```
/// use runtime_core::exec::{Builder, Handle};
///
/// let runtime = Builder::new().threads(2).build().unwrap();
/// let handle = runtime.block_on(async { Handle::current() });
/// // From a thread that runs no runtime.
/// let sum = std::thread::spawn(move || handle.spawn_on(1, || async { (1..=10).sum::<u32>() }));
/// assert_eq!(runtime.block_on(sum.join().unwrap()).unwrap(), 55);
/// ```
#[derive(Clone)]
pub struct Handle {
    crew: Arc<Crew>,
    index: usize,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("index", &self.index).finish_non_exhaustive()
    }
}

/// There is no runtime here; from [`Handle::try_current`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRuntimeError(());

impl fmt::Display for NoRuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this thread runs no runtime")
    }
}

impl std::error::Error for NoRuntimeError {}

impl Handle {
    pub(crate) fn new(crew: Arc<Crew>, index: usize) -> Self {
        Self { crew, index }
    }

    /// The thread that runs this.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    #[track_caller]
    pub fn current() -> Self {
        context::expect(of).expect("a runtime has a place from the moment it is built")
    }

    /// The thread that runs this.
    ///
    /// # Errors
    ///
    /// Outside a runtime.
    pub fn try_current() -> Result<Self, NoRuntimeError> {
        context::with(of).flatten().ok_or(NoRuntimeError(()))
    }

    /// Which thread this is: 0 up to, not including, [`threads`](Self::threads).
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many threads there are, those that would be started on demand included.
    pub fn threads(&self) -> usize {
        self.crew.threads()
    }

    /// Makes a future on this handle's thread and runs it there; see [`spawn_on`].
    pub fn spawn<F, Fut>(&self, make: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.spawn_on(self.index, make)
    }

    /// Makes a future on one of the threads and runs it there; see [`spawn_on`].
    ///
    /// # Panics
    ///
    /// When there is no thread with this index; in a child of fork(2).
    #[track_caller]
    pub fn spawn_on<F, Fut>(&self, thread: usize, make: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.assert_exists(thread);
        spawn_at(self.crew.way(thread).ok().as_ref(), make)
    }

    /// Starts a thread that would else be started when it is first used, and waits until it runs.
    ///
    /// # Errors
    ///
    /// Why it cannot be started, as [`Builder::build`](super::Builder::build); `NotConnected` when its runtime has ended.
    ///
    /// # Panics
    ///
    /// When there is no thread with this index; in a child of fork(2).
    #[track_caller]
    pub fn start(&self, thread: usize) -> io::Result<()> {
        self.assert_exists(thread);
        self.crew.start(thread)
    }

    /// Whether this thread runs, or would run if it were used: false once its runtime has ended.
    ///
    /// # Panics
    ///
    /// When there is no thread with this index; in a child of fork(2).
    #[track_caller]
    pub fn is_reachable(&self, thread: usize) -> bool {
        self.assert_exists(thread);
        self.crew.is_reachable(thread)
    }

    /// Tells all threads to stop: whoever awaits [`stopped`](Self::stopped) is woken. Nothing else happens: a body that
    /// does not ask goes on.
    pub fn stop(&self) {
        self.crew.stop.stop();
    }

    /// Whether the threads were told to stop.
    pub fn is_stopped(&self) -> bool {
        self.crew.stop.is_stopped()
    }

    /// Completes once the threads were told to stop, by [`stop`](Self::stop) or because a body failed.
    pub fn stopped(&self) -> Stopped {
        self.crew.stop.stopped()
    }

    /// Names the group whose threads share listening sockets, if this thread is in one.
    #[doc(hidden)]
    pub fn group(&self) -> Option<NonZeroU64> {
        self.crew.group_id()
    }

    #[track_caller]
    fn assert_exists(&self, thread: usize) {
        super::assert_same_process();
        let threads = self.threads();
        assert!(
            thread < threads,
            "there is no thread {thread}: this runtime has {threads}, counted from 0; ask `Handle::threads`, or set \
             their number with `Builder::threads`"
        );
    }
}

fn of(cx: &context::Context) -> Option<Handle> {
    cx.crew.get().map(|(crew, index)| Handle::new(Arc::clone(crew), *index))
}

/// Makes a future on another thread of this runtime and runs it there.
///
/// The closure is sent, so it has to be `Send`; the future that it makes is not and need not be. The handle is `Send`; it
/// reports [`JoinError::is_cancelled`](crate::task::JoinError::is_cancelled) when the thread's runtime has ended before
/// the task had, and when the thread cannot be started ([`Handle::start`] says why).
///
/// With `#[runtime::main]` alone the other threads are started when they are first used, for which this call waits (a
/// fraction of a millisecond), and end with the runtime that started them.
///
/// # Panics
///
/// When there is no thread with this index (see [`Handle::threads`]); outside a runtime; in a child of fork(2).
///
/// # Examples
///
/// ```
/// # use runtime_core::exec::{Builder, spawn_on};
/// let runtime = Builder::new().threads(2).build().unwrap();
/// let name = runtime.block_on(async {
///     spawn_on(1, || async { std::thread::current().name().map(str::to_owned) }).await.unwrap()
/// });
/// assert_eq!(name.as_deref(), Some("runtime-1"));
/// ```
#[track_caller]
pub fn spawn_on<F, Fut>(thread: usize, make: F) -> JoinHandle<Fut::Output>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    Handle::current().spawn_on(thread, make)
}
