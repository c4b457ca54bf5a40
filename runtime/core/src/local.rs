//! Futures that stay at home in a value that may travel: [`local`].
//!
//! Owns the check of the thread, and what becomes of a future whose wrapper is dropped elsewhere: it goes home through
//! the door of its runtime, or is leaked and counted when that is gone (ruling 14: a future is never dropped on another
//! thread). Knows nothing of the run loop.

use std::fmt;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as Task, Poll};
use std::thread::{self, ThreadId};

use crate::context;
use crate::sys;
use crate::wake::{self, RingId, Stray};

/// Futures that could not be dropped at home.
static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Wraps a future that is not `Send` in one that is, for interfaces that ask for `Send` though nothing ever leaves the
/// thread: handlers of web frameworks, boxed futures of trait objects.
///
/// The wrapper may be moved anywhere. The future is only touched on the thread that called this function, its *home*.
/// Made in a runtime, it is best polled by tasks of that runtime; nothing but the thread is checked.
///
/// # Dropping
///
/// On its home thread the future is dropped like any other. **On another thread it is not dropped there**: it is sent to
/// the runtime in which it was made and dropped by that runtime's next turn. If there was none, or it has ended, the
/// future is leaked: [`leaked_locals`] counts how often that happened in this process.
///
/// # Panics
///
/// When polled on another thread.
///
/// # Cancel safety
///
/// That of the future.
///
/// # Examples
///
/// ```
/// use std::rc::Rc;
///
/// fn handler() -> impl Future<Output = usize> + Send {
///     runtime_core::local::local(async {
///         let shared = Rc::new(5); // not `Send`
///         runtime_core::task::yield_now().await;
///         *shared
///     })
/// }
///
/// let runtime = runtime_core::exec::Builder::new().build().unwrap();
/// assert_eq!(runtime.block_on(handler()), 5);
/// ```
pub fn local<F: Future + 'static>(future: F) -> Local<F> {
    Local {
        future: ManuallyDrop::new(Box::pin(future)),
        home: thread::current().id(),
        ring: context::with(|cx| cx.id()),
    }
}

/// How many futures of [`local`] this process has leaked, because they were dropped on another thread than their own
/// when their runtime was gone, or had never been.
pub fn leaked_locals() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// A future that is only touched at home; from [`local`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Local<F: Future + 'static> {
    /// In a box, since it was pinned by its first poll and may have to go home afterwards.
    future: ManuallyDrop<Pin<Box<F>>>,
    /// Thread ids are never used twice in a process.
    home: ThreadId,
    /// The runtime that ran at home.
    ring: Option<RingId>,
}

// SAFETY: the future is polled and dropped only after a look at the thread; elsewhere it is sent home in its box, or
// leaked (ruling 14). What the output is does not matter: it comes into being at home, in a poll.
unsafe impl<F: Future + 'static> Send for Local<F> {}

impl<F: Future + 'static> Local<F> {
    fn is_home(&self) -> bool {
        self.home == thread::current().id()
    }
}

impl<F: Future + 'static> Future for Local<F> {
    type Output = F::Output;

    #[track_caller]
    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<F::Output> {
        assert!(
            self.is_home(),
            "a future of `task::local` is polled on another thread than the one that made it: make it where it runs, \
             inside the task"
        );
        self.future.as_mut().poll(task)
    }
}

impl<F: Future + 'static> Drop for Local<F> {
    fn drop(&mut self) {
        let is_home = self.is_home();
        // SAFETY: taken once, here.
        let future = unsafe { ManuallyDrop::take(&mut self.future) };
        if is_home {
            return drop(future);
        }
        send_home(self.ring, Stray::new(future));
    }
}

#[cold]
fn send_home(ring: Option<RingId>, stray: Stray) {
    // In a child of fork(2) the thread that this was has a new life as the only one, and no runtime.
    let door = if sys::same_process() { ring.and_then(wake::find) } else { None };
    let homeless = match door {
        Some(door) => door.stray(stray).err(),
        None => Some(stray),
    };
    if let Some(stray) = homeless {
        stray.leak();
        LEAKED.fetch_add(1, Ordering::Relaxed);
    }
}

impl<F: Future + 'static> fmt::Debug for Local<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("home", &self.home).finish_non_exhaustive()
    }
}
