//! One read of a stream: residue first, then what a standing receive has brought, or a RECV into the caller's buffer.
//!
//! ```text
//!  waiting for the direction ──▶ in flight ──▶ done
//!                       │         ▲     │ would block (no kernel that we support says so)
//!                       │         └─────┘ by way of a poll
//!                       └──▶ waiting for the standing receive, if there is one ──▶ done
//! ```

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker, ready};

use runtime_core::buf::{self, BufResult, IoBufMut};
use runtime_core::coop::{self, Proceed};
use runtime_core::duplex::{Direction, Duplex, Held};
use runtime_core::fd::Origin;
use runtime_core::ladder::Arm;
use runtime_core::op::poll_add::PollAdd;
use runtime_core::op::recv::Recv;
use runtime_core::op::{Cqe, Kind, Op, Rung};
use runtime_core::receiver::{self, Served};
use runtime_core::submit::{Flight, waker_of};
use runtime_core::wait::Ticket;

use super::{MSG_DONTWAIT, MSG_PEEK, Settled};

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
            // Not MSG_WAITALL for the whole: when a reset ends what the kernel has gathered so far, the count hides the
            // error, and the next receive says end of stream. The operation carries the bytes before it instead.
            Self::Some | Self::Whole => 0,
            // Nor does it wait in the kernel: an urgent byte that is only looked at ends its poll again and again, until a
            // worker waits there. The peer could have one started for each connection.
            Self::Peek => MSG_PEEK | MSG_DONTWAIT,
        }
    }
}

/// The future of a read.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Receive<'a, B: IoBufMut> {
    duplex: &'a Arc<Duplex>,
    /// The place in the queue for the direction.
    ticket: Option<Ticket>,
    extent: Extent,
    proceed: Proceed,
    /// Here while no operation has it.
    buf: Option<B>,
    /// Bytes that are in the buffer already.
    at: usize,
    flight: Flight<Recv<B, Held>>,
    /// Only where it does not wait for an operation of its own.
    rare: Option<Box<Rare>>,
}

/// What else a read may wait for.
enum Rare {
    /// A poll, where the kernel did not wait by itself.
    Poll(Flight<PollAdd<Arm<Held>>>),
    /// The standing receive of the stream.
    Standing(Held),
}

/// A direction, and a buffer with bytes of it, while foreign code runs: given back should that panic.
struct InHand<B: IoBufMut> {
    /// There until they are taken out.
    parts: Option<(Held, B)>,
    at: usize,
}

impl<B: IoBufMut> InHand<B> {
    fn new(held: Held, buf: B, at: usize) -> Self {
        Self { parts: Some((held, buf)), at }
    }

    fn held(&mut self) -> &mut Held {
        &mut self.parts.as_mut().expect("not taken out yet").0
    }

    fn into_parts(mut self) -> (Held, B) {
        self.parts.take().expect("taken out once")
    }
}

impl<B: IoBufMut> Drop for InHand<B> {
    fn drop(&mut self) {
        if let Some((mut held, buf)) = self.parts.take() {
            held.give_back(&buf::bytes(&buf)[..self.at]);
        }
    }
}

// Nothing in it is pinned: the buffer is moved into the operation's slot.
impl<B: IoBufMut> Unpin for Receive<'_, B> {}

impl<'a, B: IoBufMut> Receive<'a, B> {
    #[inline]
    pub(crate) fn new(duplex: &'a Arc<Duplex>, buf: B, extent: Extent) -> Self {
        Self {
            duplex,
            ticket: None,
            extent,
            proceed: Proceed::default(),
            buf: Some(buf),
            at: 0,
            flight: Flight::none(),
            rare: None,
        }
    }

    #[inline(always)]
    fn start(&mut self, held: Held, buf: B, waker: Waker) -> Poll<BufResult<usize, B>> {
        let (at, flags) = (self.at, self.extent.flags());
        match Flight::start_by(waker, || Recv::new(held, buf, at, flags)) {
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

    /// The buffer is empty.
    #[cold]
    fn nothing_to_do(&mut self, task: &mut Task<'_>) -> Poll<BufResult<usize, B>> {
        ready!(self.proceed.poll(task));
        coop::spend(0);
        Poll::Ready(BufResult(Ok(0), self.buf.take().expect(POLLED_AGAIN)))
    }

    /// With others in the way, residue to serve first, or a buffer to fill.
    #[cold]
    fn acquire(&mut self, task: &mut Task<'_>) -> Poll<BufResult<usize, B>> {
        let held = ready!(self.duplex.poll_acquire(Direction::Read, &mut self.ticket, task));
        let mut buf = self.buf.take().expect(POLLED_AGAIN);
        if self.extent == Extent::Whole {
            // The length counts from the start, whatever the buffer held before.
            buf::fill(&mut buf, &[]);
        }
        self.advance(held, buf, task)
    }

    fn advance(&mut self, mut held: Held, mut buf: B, task: &mut Task<'_>) -> Poll<BufResult<usize, B>> {
        loop {
            if self.at == buf.capacity() {
                return Poll::Ready(BufResult(Ok(self.at), buf));
            }
            let peek = self.extent == Extent::Peek;
            let served = match held.serve(&mut buf, self.at, peek) {
                Some(result) => Served::Done(result),
                None => receiver::serve(&held, &mut buf, self.at, peek),
            };
            let result = match served {
                Served::Done(result) => result,
                Served::Nobody => break,
                Served::Nothing => return self.wait(held, buf, task),
            };
            coop::spend(*result.as_ref().unwrap_or(&0));
            match self.settle(result) {
                Settled::Done(result) => return Poll::Ready(BufResult(result, buf)),
                Settled::Again | Settled::NotReady => {}
            }
        }
        self.start_again(held, buf, task)
    }

    #[cold]
    fn start_again(&mut self, held: Held, buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        let in_hand = InHand::new(held, buf, self.at);
        let waker = waker_of(task);
        let (held, buf) = in_hand.into_parts();
        self.start(held, buf, waker)
    }

    /// An operation ended with an error, or with a part of what is wanted.
    #[cold]
    fn go_on(
        &mut self,
        result: io::Result<usize>,
        mut held: Held,
        buf: B,
        task: &mut Task<'_>,
    ) -> Poll<BufResult<usize, B>> {
        let peek = self.extent == Extent::Peek;
        let result = match result {
            // The end of the stream, or an error that the kernel has told a dropped write and tells nobody again.
            Ok(0) => held.take_end(peek).map_or(Ok(0), Err),
            // Which the kernel tells a look, and then nobody.
            Err(error) if peek => {
                held.keep_error(error.raw_os_error().unwrap_or(0));
                Err(error)
            }
            result => result,
        };
        match self.settle(result) {
            Settled::Done(result) => Poll::Ready(BufResult(result, buf)),
            Settled::Again => self.advance(held, buf, task),
            Settled::NotReady => self.arm(held, buf, task),
        }
    }

    /// The standing receive has nothing yet.
    fn wait(&mut self, held: Held, buf: B, task: &mut Task<'_>) -> Poll<BufResult<usize, B>> {
        let mut in_hand = InHand::new(held, buf, self.at);
        let ready = receiver::poll_filled(in_hand.held(), task).is_ready();
        let (held, buf) = in_hand.into_parts();
        self.rare = Some(Box::new(Rare::Standing(held)));
        self.buf = Some(buf);
        if ready {
            task.waker().wake_by_ref();
        }
        Poll::Pending
    }

    #[cold]
    fn polled(&mut self, task: &mut Task<'_>) -> Poll<BufResult<usize, B>> {
        let held = match self.rare.as_deref_mut() {
            // An error of the poll shows itself in the operation that is tried again.
            Some(Rare::Poll(poll)) => {
                let (events, arm) = ready!(poll.poll(task));
                self.rare = None;
                match arm.after(&events) {
                    Ok(held) => held,
                    Err(next) => return self.wait_for(next, task),
                }
            }
            Some(Rare::Standing(held)) => {
                ready!(receiver::poll_filled(held, task));
                let Some(rare) = self.rare.take() else { unreachable!("looked at above") };
                let Rare::Standing(held) = *rare else { unreachable!("looked at above") };
                held
            }
            None => unreachable!("asked before"),
        };
        self.rare = None;
        let buf = self.buf.take().expect("kept beside it");
        self.advance(held, buf, task)
    }

    /// What a read that is given up has gathered from the standing receive comes before the rest of that.
    #[cold]
    fn give_back(&mut self) {
        if let Some(Rare::Standing(held)) = self.rare.as_deref_mut() {
            receiver::stop_waiting(held);
            if let Some(buf) = self.buf.as_ref().filter(|_| self.at > 0) {
                held.give_back(&buf::bytes(buf)[..self.at]);
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
            Err(error) => Settled::failed(error),
        }
    }

    /// A ring operation waits by itself; should one not, a poll does. What is here already must survive a drop of it.
    #[cold]
    fn arm(&mut self, mut held: Held, mut buf: B, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        held.keep_data(&buf::bytes(&buf)[..self.at]);
        self.at = buf::fill(&mut buf, &[]);
        coop::count(Kind::PollAdd, Rung::Reissue);
        self.buf = Some(buf);
        self.wait_for(Arm::data(held), task)
    }

    fn wait_for(&mut self, poll: PollAdd<Arm<Held>>, task: &Task<'_>) -> Poll<BufResult<usize, B>> {
        match Flight::start_with(task, || poll) {
            Ok(poll) => {
                self.rare = Some(Box::new(Rare::Poll(poll)));
                Poll::Pending
            }
            Err(_refused) => {
                let buf = self.buf.take().expect("kept beside it");
                Poll::Ready(BufResult(Cqe::CANCELED.result().map(|n| n as usize), buf))
            }
        }
    }
}

impl<B: IoBufMut> Future for Receive<'_, B> {
    type Output = BufResult<usize, B>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.flight.is_some() {
            let (result, buf, held) = ready!(this.flight.poll(task));
            return match result {
                Ok(n) if n > 0 && this.extent != Extent::Whole => Poll::Ready(BufResult(Ok(n), buf)),
                result => this.go_on(result, held, buf, task),
            };
        }
        if this.rare.is_some() {
            return this.polled(task);
        }
        if this.buf.as_ref().is_some_and(|buf| buf.capacity() == 0) {
            return this.nothing_to_do(task);
        }
        if this.ticket.is_none()
            && this.extent != Extent::Whole
            && let Some(hold) = this.duplex.try_hold(Direction::Read)
        {
            let buf = this.buf.take().expect(POLLED_AGAIN);
            return this.start(hold.keep(), buf, waker_of(task));
        }
        this.acquire(task)
    }
}

const POLLED_AGAIN: &str = "a read must not be polled after it completed";

impl<B: IoBufMut> Drop for Receive<'_, B> {
    #[inline]
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.duplex.leave(Direction::Read, ticket);
        }
        if self.rare.is_some() {
            self.give_back();
        }
    }
}

impl<B: IoBufMut> fmt::Debug for Receive<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("in_flight", &self.flight.is_some()).finish_non_exhaustive()
    }
}
