//! Descriptors of somebody else: [`Async`] waits until they are ready and leaves the transfer to a closure.
//!
//! Owns the climb from a closure's *would block* to its next call; knows nothing of what the descriptor is or how it is
//! read.
//!
//! The requests themselves, and who waits for them, are in `polls`.

mod polls;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context as Task, Poll};

use crate::coop;
use crate::duplex::Direction;
use crate::op::{Kind, Rung};
use crate::sys;

pub use polls::Ready;
use polls::{Polls, events};

/// A descriptor that somebody else made, in the runtime: an eventfd, a timerfd, inotify, a socket of std, a pipe of a
/// child process, whatever [poll(2)] accepts.
///
/// It waits until the descriptor is ready ([`readable`](Self::readable), [`writable`](Self::writable)), and
/// [`read_with`](Self::read_with) and [`write_with`](Self::write_with) run a closure that reads or writes: at once if
/// the descriptor is non-blocking, otherwise when it is ready, and again as often as it says
/// [`WouldBlock`](io::ErrorKind::WouldBlock).
///
/// # Blocking descriptors
///
/// The closure must not block: it would hold up every task of the thread. **`O_NONBLOCK` is never set here**: it
/// belongs to the open file description, which other processes may share (a terminal, an inherited pipe), and setting
/// it would break them. If the descriptor is yours alone, set it before ([`UnixStream::set_nonblocking`] for example).
///
/// When [`new`](Self::new) finds a descriptor without the flag, each call of the closure is preceded by a `poll(2)` that
/// does not wait, and made only when that says *ready*. A read of what is there then does not block. It still can when
/// somebody else takes the bytes in between, and a write does when it is larger than the room there is: of a pipe that
/// counts as writable `PIPE_BUF` (4096) bytes can be written, of a socket use `MSG_DONTWAIT`.
///
/// # Files
///
/// Regular files and directories are always ready, as `poll(2)` says; the closure then waits for the disk. Use
/// `runtime::fs` for them.
///
/// # Threads
///
/// It is `Send` when `T` is, and may be moved to another runtime when nobody waits. It is not `Sync`: share it among the
/// tasks of a thread with `Rc`, and duplicate the descriptor for other threads.
///
/// # Dropping
///
/// asks the kernel to end what is armed. Until the runtime's next turn the kernel still holds the open file, so a peer
/// sees the end of a stream no sooner than that.
///
/// [poll(2)]: https://man7.org/linux/man-pages/man2/poll.2.html
/// [`UnixStream::set_nonblocking`]: std::os::unix::net::UnixStream::set_nonblocking
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// use runtime_core::foreign::Async;
///
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let (a, b) = UnixStream::pair()?;
/// a.set_nonblocking(true)?;
/// b.set_nonblocking(true)?;
/// let (a, b) = (Async::new(a)?, Async::new(b)?);
/// a.write_with(|mut stream| stream.write(b"hello")).await?;
/// let mut buf = [0; 16];
/// let n = b.read_with(|mut stream| stream.read(&mut buf)).await?;
/// assert_eq!(&buf[..n], b"hello");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "IORING_OP_POLL_ADD")]
#[doc(alias = "AsyncFd")]
pub struct Async<T> {
    /// Before the descriptor, so that what is armed is cancelled before it is closed.
    polls: Polls,
    io: T,
    /// Without `O_NONBLOCK` when it was taken over.
    blocks: bool,
    /// Those who wait are on one thread.
    _not_sync: PhantomData<Cell<()>>,
}

impl<T: AsFd> Async<T> {
    /// Takes a descriptor over. Needs no runtime; waiting does. `as_fd` of `T` must give the same descriptor each time.
    ///
    /// # Errors
    ///
    /// That of `fcntl(F_GETFL)`, which a descriptor that is open has none of.
    pub fn new(io: T) -> io::Result<Self> {
        let blocks = !sys::is_nonblocking(io.as_fd())?;
        Ok(Self { polls: Polls::new(), io, blocks, _not_sync: PhantomData })
    }

    /// Waits until there is something to read, the end of the stream or an error included.
    ///
    /// A hint, as every readiness is: of several that wait one at a time is told, in the order in which they came, and
    /// each of them again as long as nobody reads. One request of the ring (`IORING_OP_POLL_ADD`) serves all of them.
    ///
    /// # Errors
    ///
    /// That of the poll: `EBADF` for a descriptor opened with `O_PATH`. `ECANCELED` when the runtime is closing.
    ///
    /// # Cancel safety
    ///
    /// Takes nothing from the descriptor. If it had been told, the next one that waits is.
    ///
    /// # Panics
    ///
    /// When polled outside a runtime.
    pub fn readable(&self) -> Ready<'_> {
        Ready::new(&self.polls, self.raw_fd(), Direction::Read)
    }

    /// Waits until there is room for writing, or an error; otherwise like [`readable`](Self::readable). A peer that only
    /// closed its own sending side makes no descriptor writable.
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    ///
    /// # Cancel safety
    ///
    /// As [`readable`](Self::readable).
    pub fn writable(&self) -> Ready<'_> {
        Ready::new(&self.polls, self.raw_fd(), Direction::Write)
    }

    /// Runs a closure that reads; see [`Async`] for what it may do and when it is called.
    ///
    /// # Errors
    ///
    /// Those of the closure, but [`WouldBlock`](io::ErrorKind::WouldBlock); those of [`readable`](Self::readable).
    ///
    /// # Cancel safety
    ///
    /// The closure has either not taken anything or its result is returned in the same poll: nothing is lost.
    pub async fn read_with<R>(&self, mut op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.attempts(Direction::Read).run(|| op(&self.io)).await
    }

    /// Like [`read_with`](Self::read_with), with a reference for writers that need `&mut`, as `ChildStdout` does. The
    /// closure must leave the descriptor in its place.
    ///
    /// # Errors
    ///
    /// As [`read_with`](Self::read_with).
    ///
    /// # Cancel safety
    ///
    /// As [`read_with`](Self::read_with).
    pub async fn read_with_mut<R>(&mut self, mut op: impl FnMut(&mut T) -> io::Result<R>) -> io::Result<R> {
        let attempts =
            Attempts { polls: &self.polls, fd: self.raw_fd(), direction: Direction::Read, blocks: self.blocks };
        let io = &mut self.io;
        attempts.run(|| op(io)).await
    }

    /// Runs a closure that writes; see [`Async`] for what it may do and when it is called.
    ///
    /// # Errors
    ///
    /// Those of the closure, but [`WouldBlock`](io::ErrorKind::WouldBlock); those of [`writable`](Self::writable).
    ///
    /// # Cancel safety
    ///
    /// The closure has either not written anything or its result is returned in the same poll.
    pub async fn write_with<R>(&self, mut op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.attempts(Direction::Write).run(|| op(&self.io)).await
    }

    /// Like [`write_with`](Self::write_with), with a reference for what needs `&mut`, as `ChildStdin` does. The closure
    /// must leave the descriptor in its place.
    ///
    /// # Errors
    ///
    /// As [`write_with`](Self::write_with).
    ///
    /// # Cancel safety
    ///
    /// As [`write_with`](Self::write_with).
    pub async fn write_with_mut<R>(&mut self, mut op: impl FnMut(&mut T) -> io::Result<R>) -> io::Result<R> {
        let attempts =
            Attempts { polls: &self.polls, fd: self.raw_fd(), direction: Direction::Write, blocks: self.blocks };
        let io = &mut self.io;
        attempts.run(|| op(io)).await
    }

    /// Polls for something to read, for futures and adapters written by hand.
    ///
    /// Ready once per event: try to read, and poll again when that would block. Only the last task that polled is woken
    /// (beside those in [`readable`](Self::readable), which are independent of it).
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_readable(&self, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        self.polls.poll_by_hand(self.raw_fd(), Direction::Read, task)
    }

    /// Polls for room for writing; otherwise like [`poll_readable`](Self::poll_readable).
    ///
    /// # Errors
    ///
    /// As [`readable`](Self::readable).
    pub fn poll_writable(&self, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        self.polls.poll_by_hand(self.raw_fd(), Direction::Write, task)
    }

    fn raw_fd(&self) -> RawFd {
        self.io.as_fd().as_raw_fd()
    }

    fn attempts(&self, direction: Direction) -> Attempts<'_> {
        Attempts { polls: &self.polls, fd: self.raw_fd(), direction, blocks: self.blocks }
    }
}

impl<T> Async<T> {
    /// What was taken over.
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// What was taken over. What is armed is cancelled, so that another descriptor may be put in its place, if it has
    /// or lacks `O_NONBLOCK` like the first.
    pub fn get_mut(&mut self) -> &mut T {
        self.polls.disarm();
        &mut self.io
    }

    /// Gives back what was taken over. Until the runtime's next turn the kernel may hold the open file as well.
    pub fn into_inner(self) -> T {
        drop(self.polls);
        self.io
    }
}

impl<T: AsFd> AsFd for Async<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl<T: fmt::Debug> fmt::Debug for Async<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Async").field("io", &self.io).finish_non_exhaustive()
    }
}

/// How a closure is carried out: inline, and again after each poll (the ladder without its last rung).
struct Attempts<'a> {
    polls: &'a Polls,
    fd: RawFd,
    direction: Direction,
    blocks: bool,
}

impl Attempts<'_> {
    async fn run<R>(self, mut op: impl FnMut() -> io::Result<R>) -> io::Result<R> {
        loop {
            coop::proceed().await;
            coop::assert_same_process();
            if !self.blocks || sys::is_ready(self.fd, events(self.direction))? {
                match op() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => {
                        self.polls.succeeded(self.direction);
                        coop::done_inline(Kind::Other, 0);
                        return result;
                    }
                }
            }
            coop::count(Kind::PollAdd, Rung::Reissue);
            Ready::new(self.polls, self.fd, self.direction).await?;
            self.polls.told(self.direction);
        }
    }
}
