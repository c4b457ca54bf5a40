//! An open file, and what dropped operations still do to it: [`OpenFile`] and [`Change`].
//!
//! Owns the order of dropped changes, the error that one of them ended with, and the close of a file that is dropped.
//! Knows nothing of which operations there are, nor of a cursor.
//!
//! # Rules
//!
//! 1. Operations whose futures are awaited run side by side; nothing orders them.
//! 2. An operation that *starts* after the future of a change (a write, a sync, another length) was dropped waits until that
//!    change is over. So what was dropped never lands on what came later, and a sync covers it.
//! 3. The error of a dropped change is not lost: it sticks until a sync or a close has told it, once (ruling 5).
//!
//! ```text
//!                future polled to its end: `Watch::over`
//!  in flight ──────────────────────────────────────────────▶ over
//!      │ future dropped: dropped += 1                          ▲
//!      └──────▶ dropped, others wait ── Change is dropped: dropped −= 1, and at zero all who wait are woken
//! ```

use std::future::Future;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::task::{Context as Task, Poll};

use crate::cell;
use crate::context;
use crate::fd::Origin;
use crate::lock::Lock;
use crate::wait::{Left, Ticket, WaitList};

/// A descriptor of a file with the order of its operations.
#[derive(Debug)]
pub struct OpenFile {
    /// There until it is taken or dropped.
    fd: Option<OwnedFd>,
    order: Arc<Order>,
    closing: &'static Closing,
}

/// What is known of closes by those who open files. A close may have to ask a server, or a file system in a program,
/// perhaps one that waits for this very thread.
#[derive(Debug)]
pub struct Closing {
    /// Whether closing this file asks nobody, as far as can be said without asking anybody.
    pub is_at_once: fn(&OpenFile) -> bool,
    /// Called on a thread that may block, before it closes a file of which that could not be said.
    pub learn: fn(BorrowedFd<'_>),
}

#[derive(Debug, Default)]
struct Order {
    /// Changes in flight whose futures are gone. Written under the lock; below zero for the moment in which a change ends
    /// before the drop of its future has counted it.
    dropped: AtomicI32,
    state: Lock<State>,
    word: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    waiters: WaitList,
    errno: Option<i32>,
}

impl OpenFile {
    /// Takes a descriptor over.
    pub fn new(fd: OwnedFd, closing: &'static Closing) -> Arc<Self> {
        Arc::new(Self { fd: Some(fd), order: Arc::default(), closing })
    }

    /// Takes over another descriptor of the same file: dropped changes of either are waited for by both.
    pub fn beside(&self, fd: OwnedFd) -> Arc<Self> {
        Arc::new(Self { fd: Some(fd), order: Arc::clone(&self.order), closing: self.closing })
    }

    /// A word for whoever opened the file to keep what was learned about it; zero at first, and shared by its clones.
    #[inline]
    pub fn word(&self) -> &AtomicU32 {
        &self.order.word
    }

    fn fd(&self) -> &OwnedFd {
        self.fd.as_ref().expect("the descriptor is there until the end")
    }

    /// The descriptor again, or `self` back while operations use it.
    pub fn into_fd(self: Arc<Self>) -> Result<OwnedFd, Arc<Self>> {
        Arc::try_unwrap(self).map(|mut this| this.fd.take().expect("the descriptor is there until the end"))
    }

    /// Waits until the changes are over whose futures were dropped.
    ///
    /// # Cancel safety
    ///
    /// Holds nothing.
    pub fn settled(&self) -> Settled<'_> {
        Settled { order: &self.order, ticket: None }
    }

    /// Whether no change is in flight whose future was dropped: [`settled`](Self::settled) would be over at once.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.order.is_settled()
    }

    /// A part owner of the descriptor for an operation that changes the file, and what notices that its future is gone.
    /// The latter is to be dropped first, if it is.
    pub fn change(self: &Arc<Self>) -> (Change, Watch<'_>) {
        let change = Change { file: Arc::clone(self), errno: None, over: false };
        (change, Watch { order: &self.order, over: false })
    }

    /// The error with which a dropped change ended; told once.
    ///
    /// # Errors
    ///
    /// That error.
    pub fn take_error(&self) -> io::Result<()> {
        let errno = self.order.state.lock().errno.take();
        errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    /// Keeps an error for who asks next, after another one was told in its place.
    pub fn keep_error(&self, error: &io::Error) {
        self.order.state.lock().errno = Some(error.raw_os_error().unwrap_or(libc::EIO));
    }

    /// The file as one of std, for the time of a call that may block.
    pub fn with_std<R>(&self, call: impl FnOnce(&std::fs::File) -> R) -> R {
        // SAFETY: the descriptor is open, and the file made of it is not dropped.
        let file = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(self.fd().as_raw_fd()) });
        call(&file)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd().as_fd()
    }
}

/// Closes the descriptor: here if that asks nobody, else on a thread of the pool. Outside a runtime a thread may block.
impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.fd.is_none() || !context::is_entered() || (self.closing.is_at_once)(self) {
            return;
        }
        if let Some(fd) = self.fd.take() {
            let learn = self.closing.learn;
            let guard = context::with(|cx| cx.closes.begin());
            crate::pool::close(move || {
                learn(fd.as_fd());
                drop(fd);
                drop(guard);
            });
        }
    }
}

// SAFETY: the file owns the descriptor, and is kept.
unsafe impl Origin for Arc<OpenFile> {
    fn raw_fd(&self) -> RawFd {
        self.fd().as_raw_fd()
    }
}

impl Order {
    fn add(&self, n: i32) {
        let state = self.state.lock();
        let dropped = self.dropped.load(Ordering::Relaxed) + n;
        self.dropped.store(dropped, Ordering::Release);
        drop(state);
        if dropped > 0 {
            return;
        }
        // One at a time, as wakers are foreign code (I4).
        loop {
            let next = self.state.lock().waiters.notify_one();
            match next {
                Some(next) => cell::wake_safely(next),
                None => return,
            }
        }
    }

    fn is_settled(&self) -> bool {
        self.dropped.load(Ordering::Acquire) <= 0
    }
}

/// What an operation that changes the file holds; see [`OpenFile::change`].
#[derive(Debug)]
pub struct Change {
    file: Arc<OpenFile>,
    errno: Option<i32>,
    over: bool,
}

impl Change {
    /// The file.
    pub fn file(&self) -> &OpenFile {
        &self.file
    }

    /// Remembers how a change on another thread ended, in case that its future is gone.
    pub fn ended<T>(&mut self, result: &io::Result<T>) {
        if let Err(error) = result {
            self.keep_error(error.raw_os_error().unwrap_or(libc::EIO));
        }
    }
}

// SAFETY: the file owns the descriptor, and is kept.
unsafe impl Origin for Change {
    fn raw_fd(&self) -> RawFd {
        self.file.fd().as_raw_fd()
    }

    fn keep_error(&mut self, errno: i32) {
        // The kernel says these of the operation, not of the file.
        if !matches!(errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::EBADF | libc::EINVAL) {
            self.errno = Some(errno);
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if let Some(errno) = self.errno {
            self.file.order.state.lock().errno = Some(errno);
        }
        self.file.order.add(-1);
    }
}

/// Notices that the future of a change is gone; see [`OpenFile::change`].
#[derive(Debug)]
pub struct Watch<'a> {
    order: &'a Order,
    over: bool,
}

impl Watch<'_> {
    /// The change came back.
    pub fn over(mut self, mut change: Change) {
        self.over = true;
        change.over = true;
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.order.add(1);
        }
    }
}

/// Waits for dropped changes; from [`OpenFile::settled`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Settled<'a> {
    order: &'a Order,
    ticket: Option<Ticket>,
}

impl Future for Settled<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<()> {
        if self.ticket.is_none() && self.order.is_settled() {
            return Poll::Ready(());
        }
        // Cloned before the lock is taken and dropped after it is released: wakers are foreign code (I4).
        let waker = task.waker().clone();
        let mut state = self.order.state.lock();
        let is_settled = self.order.is_settled();
        let unused = match self.ticket {
            Some(ticket) if is_settled => {
                self.ticket = None;
                let (_left, unused) = state.waiters.leave(ticket);
                unused
            }
            Some(ticket) => state.waiters.put_back(ticket, waker),
            None if is_settled => None,
            None => {
                self.ticket = Some(state.waiters.join(waker));
                None
            }
        };
        drop(state);
        drop(unused);
        if is_settled { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            // All are woken, so there is nothing to pass on.
            let (left, unused) = self.order.state.lock().waiters.leave(ticket);
            let (Left::Quietly | Left::PassOn) = left;
            drop(unused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Closing = Closing { is_at_once: |_| true, learn: |_| {} };

    fn poll(future: &mut Settled<'_>) -> bool {
        Pin::new(future).poll(&mut Task::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn who_starts_after_a_change_was_dropped_waits_for_its_end() {
        let file = OpenFile::new(crate::sys::eventfd().unwrap(), &AT_ONCE);
        let (change, watch) = file.change();
        assert!(poll(&mut file.settled()), "a change that is awaited holds up nobody");
        drop(watch);
        let mut waits = file.settled();
        let mut left = file.settled();
        assert!(!poll(&mut waits) && !poll(&mut waits) && !poll(&mut left));
        drop(left);
        drop(change);
        assert!(poll(&mut waits) && poll(&mut file.settled()));
        let (change, watch) = file.change();
        drop(change);
        drop(watch);
        assert!(poll(&mut file.settled()), "in whichever order they go");
    }

    #[test]
    fn the_error_of_a_dropped_change_is_told_once() {
        let file = OpenFile::new(crate::sys::eventfd().unwrap(), &AT_ONCE);
        let (mut change, watch) = file.change();
        change.keep_error(libc::EIO);
        watch.over(change);
        file.take_error().unwrap();
        let (mut change, watch) = file.change();
        change.keep_error(libc::EIO);
        drop(watch);
        drop(change);
        assert_eq!(file.take_error().unwrap_err().raw_os_error(), Some(libc::EIO));
        file.take_error().unwrap();
    }
}
