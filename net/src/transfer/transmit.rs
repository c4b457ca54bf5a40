//! One write to a stream: an inline send when that is the better way, else a SEND of the batch.
//!
//! ```text
//!  waiting for the direction ──▶ inline ──▶ done
//!                                   │ would block, or part of it, or there is a batch
//!                                   ▼
//!                               in flight ──▶ done
//! ```

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

use runtime_core::buf::{self, BufResult, IoBuf};
use runtime_core::coop;
use runtime_core::duplex::{Acquire, Direction, Duplex, Held};
use runtime_core::op::poll_add::PollAdd;
use runtime_core::op::send::Send;
use runtime_core::op::{Cqe, Kind, Op, Rung};
use runtime_core::submit::Flight;
use runtime_core::sys;

use super::{MSG_WAITALL, POLLOUT};

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
    acquire: Acquire<'a>,
    extent: Extent,
    /// Here while no operation has it.
    buf: Option<B>,
    sent: usize,
    flight: Option<Flight<Send<B, Held>>>,
    poll: Option<Flight<PollAdd<Held>>>,
}

// Nothing in it is pinned: the buffer is moved into the operation's slot.
impl<B: IoBuf> Unpin for Transmit<'_, B> {}

impl<'a, B: IoBuf> Transmit<'a, B> {
    pub(crate) fn new(duplex: &'a Arc<Duplex>, buf: B, extent: Extent) -> Self {
        let acquire = duplex.acquire(Direction::Write);
        Self { acquire, extent, buf: Some(buf), sent: 0, flight: None, poll: None }
    }

    /// Begins with the direction in hand.
    fn begin(&mut self, mut held: Held, buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        if let Err(error) = held.check() {
            return Poll::Ready(BufResult(Err(error), buf));
        }
        if coop::prefers_inline() {
            // Cannot block. What it does not take, and what it says when it is not ready, is for the ring.
            match sys::send(held.as_fd(), buf::bytes(&buf)) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                result => {
                    coop::count(Kind::Send, Rung::Inline);
                    coop::spend(*result.as_ref().unwrap_or(&0));
                    if let Settled::Done(result) = self.settle(result, &buf) {
                        return Poll::Ready(BufResult(result, buf));
                    }
                }
            }
        }
        self.send(held, buf, task)
    }

    fn send(&mut self, held: Held, buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        let flags = if self.extent == Extent::Whole { MSG_WAITALL } else { 0 };
        match Flight::start(Send::new(held, buf, self.sent, flags), task) {
            Ok(flight) => {
                self.flight = Some(flight);
                Poll::Pending
            }
            Err(refused) => {
                let (result, buf, _held) = refused.complete(Cqe::CANCELED);
                Poll::Ready(BufResult(result, buf))
            }
        }
    }

    fn settle(&mut self, result: io::Result<usize>, buf: &B) -> Settled {
        match result {
            Ok(n) if self.extent == Extent::Some => Settled::Done(Ok(n)),
            Ok(0) => Settled::Done(Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => {
                self.sent += n;
                if self.sent >= buf.init_len() { Settled::Done(Ok(self.sent)) } else { Settled::Again }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => Settled::Again,
                io::ErrorKind::WouldBlock => Settled::NotReady,
                _ => Settled::Done(Err(error)),
            },
        }
    }

    /// A ring operation waits by itself; should one not, a poll does.
    #[cold]
    fn arm(&mut self, held: Held, buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        coop::count(Kind::PollAdd, Rung::Reissue);
        match Flight::start(PollAdd::new(held, POLLOUT), task) {
            Ok(poll) => {
                self.poll = Some(poll);
                self.buf = Some(buf);
                Poll::Pending
            }
            Err(_refused) => Poll::Ready(BufResult(Cqe::CANCELED.result().map(|n| n as usize), buf)),
        }
    }
}

enum Settled {
    Done(io::Result<usize>),
    Again,
    NotReady,
}

impl<B: IoBuf> Future for Transmit<'_, B> {
    type Output = BufResult<usize, B>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(flight) = &mut this.flight {
            let (result, buf, held) = ready!(flight.poll(task));
            this.flight = None;
            return match this.settle(result, &buf) {
                Settled::Done(result) => Poll::Ready(BufResult(result, buf)),
                Settled::Again => this.send(held, buf, task),
                Settled::NotReady => this.arm(held, buf, task),
            };
        }
        const POLLED_AGAIN: &str = "a write must not be polled after it completed";
        if let Some(poll) = &mut this.poll {
            // An error of the poll shows itself in the operation that is tried again.
            let (_events, held) = ready!(poll.poll(task));
            this.poll = None;
            let buf = this.buf.take().expect(POLLED_AGAIN);
            return this.send(held, buf, task);
        }
        if let Some(buf) = this.buf.take_if(|buf| buf.init_len() == 0) {
            return Poll::Ready(BufResult(Ok(0), buf));
        }
        let held = ready!(Pin::new(&mut this.acquire).poll(task));
        let buf = this.buf.take().expect(POLLED_AGAIN);
        this.begin(held, buf, task)
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

    #[inline]
    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.transmit).poll(task).map(|result| result.map(drop))
    }
}
