//! One read of a stream: residue first, then a RECV into the caller's buffer.
//!
//! ```text
//!  waiting for the direction ──▶ in flight ──▶ done
//!                                 ▲     │ would block (no kernel that we support says so)
//!                                 └─────┘ by way of a poll
//! ```

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

use runtime_core::buf::{self, BufResult, IoBufMut};
use runtime_core::coop;
use runtime_core::duplex::{Acquire, Direction, Duplex, Held};
use runtime_core::fd::Origin;
use runtime_core::op::poll_add::PollAdd;
use runtime_core::op::recv::Recv;
use runtime_core::op::{Cqe, Kind, Op, Rung};
use runtime_core::submit::Flight;

use super::{MSG_PEEK, MSG_WAITALL, POLLIN};

/// How much a read is to bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What there is.
    Some,
    /// What there is, leaving it there.
    Peek,
    /// The buffer's whole capacity.
    Whole,
}

impl Extent {
    fn flags(self) -> i32 {
        match self {
            Self::Some => 0,
            Self::Peek => MSG_PEEK,
            // The kernel gathers it, so that a dropped future gives everything back as one residue.
            Self::Whole => MSG_WAITALL,
        }
    }
}

/// The future of a read.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Receive<'a, B: IoBufMut> {
    acquire: Acquire<'a>,
    extent: Extent,
    /// Here while no operation has it.
    buf: Option<B>,
    /// Bytes that are in the buffer already.
    at: usize,
    flight: Option<Flight<Recv<B, Held>>>,
    poll: Option<Flight<PollAdd<Held>>>,
}

// Nothing in it is pinned: the buffer is moved into the operation's slot.
impl<B: IoBufMut> Unpin for Receive<'_, B> {}

impl<'a, B: IoBufMut> Receive<'a, B> {
    pub(crate) fn new(duplex: &'a Arc<Duplex>, buf: B, extent: Extent) -> Self {
        let acquire = duplex.acquire(Direction::Read);
        Self { acquire, extent, buf: Some(buf), at: 0, flight: None, poll: None }
    }

    /// Goes on with the direction in hand.
    fn advance(&mut self, mut held: Held, mut buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        loop {
            if self.at == buf.capacity() {
                return Poll::Ready(BufResult(Ok(self.at), buf));
            }
            let Some(result) = held.serve(&mut buf, self.at, self.extent == Extent::Peek) else { break };
            coop::spend(*result.as_ref().unwrap_or(&0));
            match self.settle(result) {
                Settled::Done(result) => return Poll::Ready(BufResult(result, buf)),
                Settled::Again | Settled::NotReady => {}
            }
        }
        match Flight::start(Recv::new(held, buf, self.at, self.extent.flags()), task) {
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

    fn settle(&mut self, result: io::Result<usize>) -> Settled {
        match result {
            Ok(n) if self.extent != Extent::Whole => Settled::Done(Ok(n)),
            Ok(0) => Settled::Done(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => {
                self.at += n;
                Settled::Again
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => Settled::Again,
                io::ErrorKind::WouldBlock => Settled::NotReady,
                _ => Settled::Done(Err(error)),
            },
        }
    }

    /// A ring operation waits by itself; should one not, a poll does. What is here already must survive a drop of it.
    #[cold]
    fn arm(&mut self, mut held: Held, mut buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        held.keep_data(&buf::bytes(&buf)[..self.at]);
        self.at = buf::fill(&mut buf, &[]);
        coop::count(Kind::PollAdd, Rung::Reissue);
        match Flight::start(PollAdd::new(held, POLLIN), task) {
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

impl<B: IoBufMut> Future for Receive<'_, B> {
    type Output = BufResult<usize, B>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(flight) = &mut this.flight {
            let (result, buf, held) = ready!(flight.poll(task));
            this.flight = None;
            return match this.settle(result) {
                Settled::Done(result) => Poll::Ready(BufResult(result, buf)),
                Settled::Again => this.advance(held, buf, task),
                Settled::NotReady => this.arm(held, buf, task),
            };
        }
        let held = match &mut this.poll {
            None => {
                if let Some(buf) = this.buf.take_if(|buf| buf.capacity() == 0) {
                    return Poll::Ready(BufResult(Ok(0), buf));
                }
                ready!(Pin::new(&mut this.acquire).poll(task))
            }
            Some(poll) => {
                // An error of the poll shows itself in the operation that is tried again.
                let (_events, held) = ready!(poll.poll(task));
                this.poll = None;
                held
            }
        };
        let mut buf = this.buf.take().expect("a read must not be polled after it completed");
        if this.extent == Extent::Whole {
            // The length counts from the start, whatever the buffer held before.
            buf::fill(&mut buf, &[]);
        }
        this.advance(held, buf, task)
    }
}

impl<B: IoBufMut> fmt::Debug for Receive<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("in_flight", &self.flight.is_some()).finish_non_exhaustive()
    }
}
