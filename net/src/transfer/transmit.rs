//! One write to a stream: an inline send when that is the better way, else a SEND of the batch.
//!
//! ```text
//!  waiting for the direction ──▶ inline ──▶ done
//!                                   │ would block, or part of it, or there is a batch
//!                                   ▼
//!                               in flight ──▶ done
//!                                 │   ▲
//!                      would block▼   │ there is room
//!                            poll for room
//! ```

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

use runtime_core::buf::{self, BufResult, IoBuf};
use runtime_core::coop::{self, Proceed};
use runtime_core::duplex::{Direction, Duplex, Held};
use runtime_core::ladder::Arm;
use runtime_core::op::poll_add::PollAdd;
use runtime_core::op::send::Send;
use runtime_core::op::{Cqe, Kind, Op, Rung};
use runtime_core::submit::Flight;
use runtime_core::sys;
use runtime_core::wait::Ticket;

use super::Settled;

/// How much a write is to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What fits.
    Some,
    /// All of it.
    Whole,
}

/// The future of a write.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Transmit<'a, B: IoBuf> {
    duplex: &'a Arc<Duplex>,
    /// The place in the queue for the direction.
    ticket: Option<Ticket>,
    extent: Extent,
    proceed: Proceed,
    /// Here while no operation has it.
    buf: Option<B>,
    sent: usize,
    flight: Flight<Send<B, Held>>,
    /// Only while there is no room.
    poll: Option<Box<Flight<PollAdd<Arm<Held>>>>>,
}

// Nothing in it is pinned: the buffer is moved into the operation's slot.
impl<B: IoBuf> Unpin for Transmit<'_, B> {}

impl<'a, B: IoBuf> Transmit<'a, B> {
    #[inline]
    pub(crate) fn new(duplex: &'a Arc<Duplex>, buf: B, extent: Extent) -> Self {
        Self {
            duplex,
            ticket: None,
            extent,
            proceed: Proceed::default(),
            buf: Some(buf),
            sent: 0,
            flight: Flight::none(),
            poll: None,
        }
    }

    /// The inline rung, with the direction in hand. What the socket does not take, and what it says when it is not
    /// ready, is for the ring.
    #[inline(always)]
    fn send_inline(&mut self, fd: BorrowedFd<'_>, buf: &B) -> Option<io::Result<usize>> {
        match sys::send(fd, buf::bytes(buf)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
            result => {
                coop::done_inline(Kind::Send, *result.as_ref().unwrap_or(&0));
                match self.settle(result, buf) {
                    Settled::Done(result) => Some(result),
                    Settled::Again | Settled::NotReady => None,
                }
            }
        }
    }

    /// With others in the way, or an error of a dropped write to tell first.
    #[cold]
    fn acquire(&mut self, task: &mut Task<'_>) -> Poll<BufResult<usize, B>> {
        let mut held = ready!(self.duplex.poll_acquire(Direction::Write, &mut self.ticket, task));
        let buf = self.buf.take().expect(POLLED_AGAIN);
        if let Err(error) = held.check() {
            return Poll::Ready(BufResult(Err(error), buf));
        }
        if coop::prefers_inline()
            && let Some(result) = self.send_inline(held.as_fd(), &buf)
        {
            return Poll::Ready(BufResult(result, buf));
        }
        self.send_again(held, buf, task)
    }

    #[cold]
    fn polled(&mut self, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        let Some(poll) = &mut self.poll else { unreachable!("asked before") };
        // An error of the poll shows itself in the operation that is tried again.
        let (events, room) = ready!(poll.poll(task));
        self.poll = None;
        let buf = self.buf.take().expect("kept beside the poll");
        match room.after(&events) {
            Ok(held) => self.send_again(held, buf, task),
            Err(next) => self.wait(next, buf, task),
        }
    }

    #[inline(always)]
    fn send(&mut self, held: Held, buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        let sent = self.sent;
        match Flight::start_with(task, || Send::new(held, buf, sent)) {
            Ok(flight) => {
                self.flight = flight;
                Poll::Pending
            }
            Err(make) => {
                let (result, buf, _held) = make().complete(Cqe::CANCELED);
                Poll::Ready(BufResult(result, buf))
            }
        }
    }

    #[cold]
    fn send_again(&mut self, held: Held, buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        self.send(held, buf, task)
    }

    #[inline(always)]
    fn settle(&mut self, result: io::Result<usize>, buf: &B) -> Settled {
        match result {
            Ok(n) if self.extent == Extent::Some => Settled::Done(Ok(n)),
            Ok(0) => Settled::Done(Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => {
                self.sent += n;
                if self.sent >= buf.init_len() { Settled::Done(Ok(self.sent)) } else { Settled::Again }
            }
            Err(error) => Settled::failed(error),
        }
    }

    /// The buffer is empty.
    #[cold]
    fn nothing_to_do(&mut self, task: &mut Task<'_>) -> Poll<BufResult<usize, B>> {
        ready!(self.proceed.poll(task));
        coop::spend(0);
        Poll::Ready(BufResult(Ok(0), self.buf.take().expect(POLLED_AGAIN)))
    }

    /// There is no room: waits for it.
    #[cold]
    fn arm(&mut self, held: Held, buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        coop::count(Kind::PollAdd, Rung::Reissue);
        self.wait(Arm::room(held), buf, task)
    }

    fn wait(&mut self, room: PollAdd<Arm<Held>>, buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        match Flight::start_with(task, || room) {
            Ok(poll) => {
                self.poll = Some(Box::new(poll));
                self.buf = Some(buf);
                Poll::Pending
            }
            Err(_refused) => Poll::Ready(BufResult(Cqe::CANCELED.result().map(|n| n as usize), buf)),
        }
    }
}

impl<B: IoBuf> Future for Transmit<'_, B> {
    type Output = BufResult<usize, B>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.flight.is_some() {
            let (result, buf, held) = ready!(this.flight.poll(task));
            return match this.settle(result, &buf) {
                Settled::Done(result) => Poll::Ready(BufResult(result, buf)),
                Settled::Again => this.send_again(held, buf, task),
                Settled::NotReady => this.arm(held, buf, task),
            };
        }
        if this.poll.is_some() {
            return this.polled(task);
        }
        if this.buf.as_ref().is_some_and(|buf| buf.init_len() == 0) {
            return this.nothing_to_do(task);
        }
        if this.ticket.is_none()
            && let Some(hold) = this.duplex.try_hold(Direction::Write)
        {
            let buf = this.buf.take().expect(POLLED_AGAIN);
            if coop::prefers_inline()
                && let Some(result) = this.send_inline(hold.as_fd(), &buf)
            {
                return Poll::Ready(BufResult(result, buf));
            }
            return this.send(hold.keep(), buf, task);
        }
        this.acquire(task)
    }
}

const POLLED_AGAIN: &str = "a write must not be polled after it completed";

impl<B: IoBuf> Drop for Transmit<'_, B> {
    #[inline]
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.duplex.leave(Direction::Write, ticket);
        }
    }
}

impl<B: IoBuf> fmt::Debug for Transmit<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transmit").field("in_flight", &self.flight.is_some()).finish_non_exhaustive()
    }
}

/// The future of a write of everything. The direction is held until the end, so that the frames of two writers never
/// mix.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct WriteAll<'a, B: IoBuf> {
    transmit: Transmit<'a, B>,
}

impl<'a, B: IoBuf> WriteAll<'a, B> {
    pub(crate) fn new(duplex: &'a Arc<Duplex>, buf: B) -> Self {
        Self { transmit: Transmit::new(duplex, buf, Extent::Whole) }
    }
}

impl<B: IoBuf> Future for WriteAll<'_, B> {
    type Output = BufResult<(), B>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.transmit).poll(task).map(|result| result.map(drop))
    }
}
