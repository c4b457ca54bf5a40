//! A descriptor with two directions, each used by one operation at a time: sockets, pipe ends.
//!
//! Owns who may use a direction now, who waits for it, and what a dropped operation left behind (its *residue*). Knows
//! nothing of which operations there are.
//!
//! A direction is taken as a [`Held`], which travels with the operation into its slot and comes back with it. When the
//! operation's future is dropped, the `Held` stays with the orphan, so that the next user waits until it is settled:
//! order holds, and nothing overtakes. What the orphan received is kept as residue and is what the next read returns;
//! an error that the orphan ended with is the next operation's error (ruling 5).
//!
//! ```text
//!   free ──acquire──▶ held (future, or operation in its slot) ──drop of Held──▶ free, next waiter is woken
//! ```
//!
//! A direction that reads may have a *home*: a thread whose ring receives ahead for it. While it has one, what was received
//! lies there, and only operations of that thread go on at once. Any other asks the home to give up what it has: the home
//! cancels, waits for the last completion, leaves the bytes as residue and frees the direction, which it holds meanwhile.
//!
//! ```text
//!            first pooled receive          asked from elsewhere, or about to stop        last completion
//!  no home ───────────────────────▶ homed ─────────────────────────────────────▶ leaving ─────────────▶ no home
//! ```
//!
//! The state is plain data behind a lock that is never contended on one thread (ruling 3): when a handle moves to
//! another thread while an orphan is still in flight on the old one, the new thread waits in the same list, and the old
//! thread's ring, which has cancelled the orphan, wakes it from there.

mod home;
mod residue;

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::task::{Context as Task, Poll, Waker};

use crate::buf::{self, IoBufMut};
use crate::fd::Origin;
use crate::lock::{Lock, LockGuard};
use crate::wait::{Left, Ticket, WaitList};
use crate::{cell, context};

pub(crate) use home::Home;
pub use home::Reader;
use residue::{END, Residue};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the descriptor.
    Read,
    /// To the descriptor.
    Write,
}

/// A descriptor and the state of its two directions.
#[derive(Debug)]
pub struct Duplex {
    fd: Option<OwnedFd>,
    /// By direction.
    sides: [Lock<Side>; 2],
    /// Closing may block for this socket, because it lingers.
    slow_close: AtomicBool,
    /// Nobody can read any more.
    abandoned: AtomicBool,
    /// This side of a TCP connection has connected it.
    connected: AtomicBool,
    /// The home of the reading direction; null without one. Read and changed under the lock of that side only.
    home: AtomicPtr<Home>,
    /// Of the noun's; nothing here.
    note: AtomicU64,
}

#[derive(Debug, Default)]
struct Side {
    held: bool,
    /// Somebody waits or was chosen, or there is residue: nothing is simple. Set by whoever brings that about, cleared
    /// by whoever looks and finds nothing.
    busy: bool,
    /// It has a home.
    homed: bool,
    /// It is held on behalf of its home, which is to give up what it has.
    asked: bool,
    /// Made when there is something for it; most streams never have that, and there may be many of them.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    waiters: WaitList,
    residue: Residue,
}

impl Duplex {
    /// Takes a descriptor over.
    pub fn new(fd: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            fd: Some(fd),
            sides: Default::default(),
            slow_close: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            home: AtomicPtr::default(),
            note: AtomicU64::new(0),
        })
    }

    /// The descriptor again, or `self` back while operations still use it, or one has left residue.
    pub fn into_fd(self: Arc<Self>) -> Result<OwnedFd, Arc<Self>> {
        let mut this = Arc::try_unwrap(self)?;
        // Asked when nobody else has it: an orphan on another thread may have ended a moment ago.
        // The end of the stream is no loss: whoever has the descriptor is told again.
        if [Direction::Read, Direction::Write].into_iter().any(|direction| this.has_more_than_the_end(direction)) {
            return Err(Arc::new(this));
        }
        Ok(this.fd.take().expect("the descriptor is there until the end"))
    }

    /// Whether a dropped operation left something that the next one has to return.
    pub fn has_residue(&self, direction: Direction) -> bool {
        !self.side(direction).is_clean()
    }

    /// Whether a dropped operation left bytes or an error: more than that the end was met, which the kernel tells again.
    pub fn has_more_than_the_end(&self, direction: Direction) -> bool {
        self.side(direction).rare.as_ref().is_some_and(|rare| rare.residue.is_more_than_the_end())
    }

    /// Says whether closing the descriptor may block; if so it is closed by the blocking pool.
    pub fn set_slow_close(&self, slow: bool) {
        self.slow_close.store(slow, Ordering::Relaxed);
    }

    /// Ends the writing direction of a socket, or both: shutdown(2).
    pub fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        crate::sys::shutdown(self.as_fd(), how)
    }

    /// Says that this side of a TCP connection has connected it, which [`was_reset`](Self::was_reset) has to know.
    pub fn set_connected(&self) {
        self.connected.store(true, Ordering::Relaxed);
    }

    /// Whether this is a TCP connection that ended by a reset, or timed out, rather than by the ends of both sides.
    #[cold]
    pub fn was_reset(&self) -> bool {
        crate::sys::was_reset(self.as_fd().as_raw_fd(), self.connected.load(Ordering::Relaxed))
    }

    /// A word for whoever made the duplex, 0 at first: what is known of the descriptor beside its directions.
    pub fn note(&self) -> &AtomicU64 {
        &self.note
    }

    /// Waits until nobody else uses this direction.
    ///
    /// # Cancel safety
    ///
    /// A waiter that is dropped leaves the queue; if it had been chosen, the next one is.
    pub fn acquire(self: &Arc<Self>, direction: Direction) -> Acquire<'_> {
        Acquire { duplex: self, direction, ticket: None }
    }

    /// Takes the direction if nobody uses or awaits it.
    pub fn try_acquire(self: &Arc<Self>, direction: Direction) -> Option<Held> {
        let clean = self.side(direction).take_if_free()?;
        Some(self.held(direction, clean))
    }

    #[inline]
    fn held(self: &Arc<Self>, direction: Direction, clean: bool) -> Held {
        Held { duplex: Arc::clone(self), direction, clean }
    }

    /// Takes the direction when nobody uses or awaits it and there is no residue, which is the usual case.
    #[inline]
    pub fn try_hold(self: &Arc<Self>, direction: Direction) -> Option<Hold<'_>> {
        let mut side = self.side(direction);
        // One test instead of three.
        if side.held | side.busy | side.homed {
            return None;
        }
        side.held = true;
        Some(Hold { duplex: self, direction })
    }

    /// Polls for the direction; `ticket` is the caller's place in the queue, if it has one. Whoever gives up with a
    /// ticket must [`leave`](Self::leave).
    pub fn poll_acquire(
        self: &Arc<Self>,
        direction: Direction,
        ticket: &mut Option<Ticket>,
        task: &mut Task<'_>,
    ) -> Poll<Held> {
        self.poll_take(direction, ticket, task).map(|clean| self.held(direction, clean))
    }

    /// As [`poll_acquire`](Self::poll_acquire), for callers that [`release`](Self::release) the direction themselves. Says
    /// whether there is no residue.
    pub(crate) fn poll_take(
        self: &Arc<Self>,
        direction: Direction,
        ticket: &mut Option<Ticket>,
        task: &mut Task<'_>,
    ) -> Poll<bool> {
        // Every operation may come through here, so this is where a task that never suspends is made to (ruling 6).
        let (has_budget, here) = context::expect(|cx| {
            cx.driver.assert_same_process();
            (cx.has_budget(), cx.id())
        });
        // Cloned before the lock is taken and dropped after it is released: wakers are foreign code (I4).
        let waker = task.waker().clone();
        // Who stands in line was suspended for it.
        if !has_budget && ticket.is_none() {
            self.line_up(direction, ticket, waker);
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut side = self.side(direction);
        let asked = self.ask_home(&mut side, here, *ticket);
        let taken = match *ticket {
            None => side.take_if_free(),
            Some(ticket) => (!side.held && side.rare().waiters.take(ticket)).then(|| side.take()),
        };
        if let Some(clean) = taken {
            *ticket = None;
            return Poll::Ready(clean);
        }
        let unused = match *ticket {
            None => {
                side.busy = true;
                *ticket = Some(side.rare().waiters.join(waker));
                None
            }
            // Chosen or not: its home may hold the direction by now.
            Some(ticket) => side.rare().waiters.put_back(ticket, waker),
        };
        drop(side);
        drop(unused);
        if let Some(home) = asked {
            self.call_home(home);
        }
        Poll::Pending
    }

    /// All of the residue of the reading direction, which the caller holds: bytes, then the error.
    #[cold]
    pub(crate) fn take_residue(&self) -> Option<io::Result<Vec<u8>>> {
        let mut side = self.side(Direction::Read);
        let residue = &mut side.rare().residue;
        if residue.data.is_empty() {
            let errno = residue.errno.take()?;
            let errno = if errno == END { residue.end.take().unwrap_or(END) } else { errno };
            return Some(if errno == END { Ok(Vec::new()) } else { Err(io::Error::from_raw_os_error(errno)) });
        }
        let mut data = std::mem::take(&mut residue.data);
        let taken = std::mem::take(&mut residue.taken);
        drop(side);
        data.drain(..taken);
        Some(Ok(data))
    }

    /// The error to tell instead of the end of the stream, if a dropped write was told one; once. `peek` leaves it.
    #[cold]
    pub(crate) fn take_end(&self, peek: bool) -> Option<io::Error> {
        let mut side = self.side(Direction::Read);
        let end = side.rare.as_mut().and_then(|rare| if peek { rare.residue.end } else { rare.residue.end.take() });
        end.map(io::Error::from_raw_os_error)
    }

    /// Takes a place in the queue for a task that has to suspend first, so that nobody comes before it meanwhile.
    #[cold]
    fn line_up(&self, direction: Direction, ticket: &mut Option<Ticket>, waker: Waker) {
        let mut side = self.side(direction);
        let is_next = !side.held && side.nobody_waits();
        side.busy = true;
        *ticket = Some(side.rare().waiters.join(waker));
        // With the direction free nobody would choose it: it is its turn already.
        let chosen = if is_next { side.rare().waiters.notify_one() } else { None };
        drop(side);
        drop(chosen);
    }

    /// Gives up a place in the queue; if it had been chosen, the next one is.
    #[cold]
    pub fn leave(&self, direction: Direction, ticket: Ticket) {
        let mut side = self.side(direction);
        let (left, unused) = side.rare().waiters.leave(ticket);
        let next = if left == Left::PassOn && !side.held { side.rare().waiters.notify_one() } else { None };
        drop(side);
        drop(unused);
        if let Some(next) = next {
            cell::wake_safely(next);
        }
    }

    #[inline]
    pub(crate) fn release(&self, direction: Direction) {
        let mut side = self.side(direction);
        side.held = false;
        if side.busy {
            let next = side.rare().waiters.notify_one();
            drop(side);
            if let Some(next) = next {
                cell::wake_safely(next);
            }
        }
    }

    #[inline]
    fn side(&self, direction: Direction) -> LockGuard<'_, Side> {
        self.sides[direction as usize].lock()
    }
}

impl AsFd for Duplex {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("the descriptor is there until the end").as_fd()
    }
}

impl Drop for Duplex {
    fn drop(&mut self) {
        if *self.slow_close.get_mut()
            && let Some(fd) = self.fd.take()
        {
            // close(2) of a socket that lingers waits for the peer, whatever O_NONBLOCK says. Peers that do not read hold up no
            // more closes than there are threads: others go on without the wait, after which the kernel does the same.
            if !crate::sys::same_process() || crate::pool::has_lingerer() {
                crate::pool::linger(fd);
            } else {
                crate::sys::stop_lingering(fd.as_fd());
            }
        }
    }
}

impl Side {
    /// Takes the direction unless somebody uses or awaits it; says whether there is no residue.
    #[inline]
    fn take_if_free(&mut self) -> Option<bool> {
        if self.held {
            return None;
        }
        if !self.busy {
            self.held = true;
            return Some(true);
        }
        self.look();
        self.nobody_waits().then(|| self.take())
    }

    fn take(&mut self) -> bool {
        self.held = true;
        self.is_clean()
    }

    #[cold]
    fn look(&mut self) {
        self.busy = !(self.nobody_waits() && self.is_clean());
    }

    fn nobody_waits(&self) -> bool {
        self.rare.as_ref().is_none_or(|rare| rare.waiters.is_empty())
    }

    fn is_clean(&self) -> bool {
        self.rare.as_ref().is_none_or(|rare| rare.residue.is_empty())
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

/// Waits for a direction; from [`Duplex::acquire`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire<'a> {
    duplex: &'a Arc<Duplex>,
    direction: Direction,
    ticket: Option<Ticket>,
}

impl Future for Acquire<'_> {
    type Output = Held;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Held> {
        let this = &mut *self;
        this.duplex.poll_acquire(this.direction, &mut this.ticket, task)
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.duplex.leave(self.direction, ticket);
        }
    }
}

/// Like [`Held`], for the time of a call: it does not keep the descriptor.
#[derive(Debug)]
pub struct Hold<'a> {
    duplex: &'a Arc<Duplex>,
    direction: Direction,
}

impl Hold<'_> {
    /// The descriptor.
    #[inline]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.duplex.as_fd()
    }

    /// Keeps the direction and the descriptor.
    #[inline]
    pub fn keep(self) -> Held {
        let held = self.duplex.held(self.direction, true);
        std::mem::forget(self);
        held
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        self.duplex.release(self.direction);
    }
}

/// The right to use one direction of a [`Duplex`] until it is dropped.
#[derive(Debug)]
pub struct Held {
    duplex: Arc<Duplex>,
    direction: Direction,
    /// There was no residue when the direction was taken.
    clean: bool,
}

impl Held {
    /// The descriptor.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.duplex.as_fd()
    }

    /// What the direction belongs to.
    pub fn duplex(&self) -> &Arc<Duplex> {
        &self.duplex
    }

    /// What dropped operations left for a write: an error, told once.
    ///
    /// # Errors
    ///
    /// That error.
    pub fn check(&mut self) -> io::Result<()> {
        if self.clean {
            return Ok(());
        }
        match self.duplex.side(self.direction).rare().residue.errno.take() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }

    /// The error to tell instead of the end of the stream, if a dropped write was told one; once. `peek` leaves it.
    #[cold]
    pub fn take_end(&self, peek: bool) -> Option<io::Error> {
        self.duplex.take_end(peek)
    }

    /// Whether no dropped operation had left anything when the direction was taken, nor has one of this holder since.
    #[inline]
    pub fn is_clean(&self) -> bool {
        self.clean
    }

    /// Looks again whether there is residue; what receives ahead may have left some.
    pub(crate) fn look(&mut self) {
        self.clean = self.duplex.side(self.direction).is_clean();
    }

    /// Serves a read from the residue, behind the first `at` bytes of the buffer; `None` when there is none. `peek`
    /// leaves the residue where it is.
    pub fn serve<B: IoBufMut>(&mut self, buf: &mut B, at: usize, peek: bool) -> Option<io::Result<usize>> {
        if self.clean {
            return None;
        }
        let mut side = self.duplex.side(self.direction);
        let residue = &mut side.rare().residue;
        if residue.rest().is_empty() {
            // Bytes came before the error, so they went first.
            let errno = if peek { residue.errno } else { residue.errno.take() };
            let errno = match errno {
                Some(END) if peek => residue.end.or(errno),
                Some(END) => residue.end.take().or(errno),
                errno => errno,
            };
            self.clean = residue.is_empty();
            return errno.map(|errno| if errno == END { Ok(0) } else { Err(io::Error::from_raw_os_error(errno)) });
        }
        // Taken out while the buffer's own methods, which are foreign code and may panic, run.
        let residue = std::mem::take(residue);
        drop(side);
        let mut taken_out = TakenOut { held: self, residue };
        let n = buf::fill_at(buf, at, taken_out.residue.rest());
        if !peek {
            taken_out.residue.advance(n);
        }
        Some(Ok(n))
    }
}

/// Residue that is put back, whatever happens.
struct TakenOut<'a> {
    held: &'a mut Held,
    residue: Residue,
}

impl Drop for TakenOut<'_> {
    fn drop(&mut self) {
        self.held.clean = self.residue.is_empty();
        let mut side = self.held.duplex.side(self.held.direction);
        // A write that ends meanwhile, on another thread, may have left one.
        let end = side.rare().residue.end.take().or(self.residue.end.take());
        side.rare().residue = Residue { end, ..std::mem::take(&mut self.residue) };
    }
}

// SAFETY: the duplex owns the descriptor, and is kept.
unsafe impl Origin for Arc<Duplex> {
    fn raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

// SAFETY: the duplex owns the descriptor, and is kept.
unsafe impl Origin for Held {
    fn raw_fd(&self) -> RawFd {
        self.duplex.as_fd().as_raw_fd()
    }

    fn keep_data(&mut self, data: &[u8]) {
        if !data.is_empty() {
            self.clean = false;
            let mut side = self.duplex.side(self.direction);
            side.busy = true;
            side.rare().residue.data.extend_from_slice(data);
        }
    }

    fn keep_short_write(&mut self) {
        // The kernel goes on by itself until it fails, returns the count then, and tells the error to nobody.
        if self.duplex.was_reset() {
            self.keep_error(libc::ECONNRESET);
        }
    }

    fn give_back(&mut self, data: &[u8]) {
        if !data.is_empty() {
            self.clean = false;
            let mut side = self.duplex.side(self.direction);
            side.busy = true;
            let residue = &mut side.rare().residue;
            let taken = std::mem::take(&mut residue.taken);
            residue.data.splice(..taken, data.iter().copied());
        }
    }

    fn keep_end(&mut self) {
        self.clean = false;
        let mut side = self.duplex.side(self.direction);
        side.busy = true;
        side.rare().residue.errno.get_or_insert(END);
    }

    fn keep_error(&mut self, errno: i32) {
        // The kernel says these of the operation, not of the descriptor.
        if !matches!(errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EFAULT)
        {
            self.clean = false;
            let mut side = self.duplex.side(self.direction);
            side.busy = true;
            side.rare().residue.errno = Some(errno);
            drop(side);
            if self.direction == Direction::Write && matches!(errno, libc::ECONNRESET | libc::ETIMEDOUT) {
                self.duplex.side(Direction::Read).rare().residue.end = Some(errno);
            }
        }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        self.duplex.release(self.direction);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duplex() -> Arc<Duplex> {
        Duplex::new(crate::sys::eventfd().unwrap())
    }

    #[test]
    fn residue_comes_first_in_pieces_and_then_the_error() {
        let duplex = duplex();
        let mut held = duplex.try_acquire(Direction::Read).unwrap();
        held.keep_data(b"abcde");
        held.keep_error(libc::ECONNRESET);
        let mut peeked = Vec::with_capacity(3);
        assert_eq!(held.serve(&mut peeked, 0, true).unwrap().unwrap(), 3);
        let mut first = [0u8; 3];
        assert_eq!(held.serve(&mut first, 0, false).unwrap().unwrap(), 3);
        assert_eq!((&peeked[..], &first[..]), (&b"abc"[..], &b"abc"[..]));
        let mut second = b"x".to_vec();
        second.reserve_exact(4);
        assert_eq!(held.serve(&mut second, 1, false).unwrap().unwrap(), 2);
        assert_eq!(second, b"xde");
        let error = held.serve(&mut second, 0, false).unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        assert!(held.serve(&mut second, 0, false).is_none(), "told once");
    }

    #[test]
    fn what_is_given_back_comes_before_what_is_left() {
        let duplex = duplex();
        let mut held = duplex.try_acquire(Direction::Read).unwrap();
        held.keep_data(b"abcde");
        held.keep_end();
        assert_eq!(held.serve(&mut [0u8; 3], 0, false).unwrap().unwrap(), 3);
        held.give_back(b"bc");
        let mut all = Vec::with_capacity(9);
        assert_eq!(held.serve(&mut all, 0, false).unwrap().unwrap(), 4);
        assert_eq!(all, b"bcde");
        held.give_back(b"e");
        assert_eq!(held.serve(&mut all, 0, false).unwrap().unwrap(), 1);
        assert_eq!(held.serve(&mut all, 0, false).unwrap().unwrap(), 0, "the end, behind everything");
    }

    #[test]
    fn a_cancelled_orphan_leaves_no_error() {
        let duplex = duplex();
        let mut held = duplex.try_acquire(Direction::Write).unwrap();
        held.keep_error(libc::ECANCELED);
        assert!(!duplex.has_residue(Direction::Write));
        assert!(duplex.try_acquire(Direction::Write).is_none(), "held");
        assert!(duplex.try_acquire(Direction::Read).is_some(), "directions are independent");
        drop(held);
        assert!(duplex.try_acquire(Direction::Write).is_some());
    }

    #[test]
    fn a_reset_that_a_dropped_write_was_told_of_is_kept_for_the_reader() {
        let duplex = duplex();
        let mut write = duplex.try_acquire(Direction::Write).unwrap();
        write.keep_error(libc::ECONNRESET);
        assert_eq!(write.check().unwrap_err().raw_os_error(), Some(libc::ECONNRESET));
        drop(write);
        assert!(duplex.has_more_than_the_end(Direction::Read));
        let duplex = duplex.into_fd().unwrap_err();
        assert_eq!(duplex.take_end(false).unwrap().raw_os_error(), Some(libc::ECONNRESET));
        assert!(duplex.into_fd().is_ok(), "told once");
    }
}
