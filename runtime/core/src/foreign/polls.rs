//! The requests that wait for a descriptor's directions, and who waits for them.
//!
//! Owns the wait list of each direction and what a completion means for it; knows nothing of closures.
//!
//! There is **one `POLL_ADD` in flight per descriptor and direction**, however many tasks wait: it belongs to the
//! direction and not to a future, and whoever waits stands in a wait list (ruling 10). Each waiter having a request of
//! its own would make the kernel wake all of them for each byte.
//!
//! ```text
//!             somebody begins to wait                   completion: the first waiter is chosen
//!   idle ───────────────────────────────▶ armed ───────────────────────────────────────────────▶ idle
//!                                           ▲                                                      │
//!                                           └──────────────── others still wait ◀──────────────────┘
//! ```
//!
//! The request is armed again in the very moment in which one waiter is chosen, but reaches the kernel only at the end
//! of the turn, after that waiter's task ran: by then it has taken what there was, and nobody is woken for nothing. If
//! it did not, being dropped or busy elsewhere, the request completes at once and the next waiter is chosen. So a wake
//! is never lost with the future that it was given to, and no waiter depends on another one being polled.

use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};

use io_uring::{opcode, squeue, types};

use crate::context;
use crate::duplex::Direction;
use crate::lock::{Lock, LockGuard};
use crate::op::{Cqe, Kind, Multi};
use crate::panics::{Panic, keep_first};
use crate::slot::SlotKey;
use crate::submit::abandon;
use crate::task;
use crate::wait::{Left, Ticket, WaitList};
use crate::wake::RingId;

/// Rounds of *ready* and *would block* after which only an edge counts as news: an error that stays pending (the error
/// queue of a socket) makes a descriptor look ready for ever.
const FRUITLESS_ROUNDS: u32 = 4;

pub(super) fn events(direction: Direction) -> i16 {
    match direction {
        Direction::Read => libc::POLLIN,
        Direction::Write => libc::POLLOUT,
    }
}

/// The two directions, each with its request; dropping them cancels those.
pub(super) struct Polls(Arc<Sides>);

#[derive(Default)]
struct Sides([Lock<Side>; 2]);

#[derive(Default)]
struct Side {
    waiters: WaitList,
    /// Who polls by hand, and what it has not been told yet.
    poller: Option<Waker>,
    news: Option<News>,
    armed: Option<Armed>,
    /// What the last request ended with; for those who were chosen.
    last: News,
    /// Requests armed so far: one that is not the last one has no say.
    epoch: u64,
    /// Closures that would have blocked after a request said *ready*, in a row.
    fruitless: u32,
}

/// The request in flight, by the name that its ring knows.
#[derive(Clone, Copy)]
struct Armed {
    ring: RingId,
    key: SlotKey,
}

/// What the end of a request means for those who wait.
#[derive(Debug, Default, Clone, Copy)]
enum News {
    #[default]
    Ready,
    Failed(i32),
    /// It ended for a reason that is not theirs: they wait on.
    Cancelled,
}

impl News {
    fn result(self) -> Option<io::Result<()>> {
        match self {
            Self::Ready => Some(Ok(())),
            Self::Failed(errno) => Some(Err(io::Error::from_raw_os_error(errno))),
            Self::Cancelled => None,
        }
    }
}

impl Polls {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    fn side(&self, direction: Direction) -> LockGuard<'_, Side> {
        self.0.side(direction)
    }

    /// A closure had something to do.
    pub(super) fn succeeded(&self, direction: Direction) {
        self.side(direction).fruitless = 0;
    }

    /// A closure is about to be tried because a request said so.
    pub(super) fn told(&self, direction: Direction) {
        let mut side = self.side(direction);
        side.fruitless = side.fruitless.saturating_add(1);
    }

    pub(super) fn poll_by_hand(&self, fd: RawFd, direction: Direction, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        // Cloned before the lock is taken and dropped after it is released: wakers are foreign code (I4).
        let waker = task.waker().clone();
        let mut side = self.side(direction);
        if let Some(result) = side.news.take().and_then(News::result) {
            drop(side);
            return Poll::Ready(result);
        }
        let old = side.poller.replace(waker);
        drop(side);
        drop(old);
        match arm(&self.0, fd, direction) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Cancels what is armed. Nobody waits: those who do borrow this.
    pub(super) fn disarm(&self) {
        for direction in [Direction::Read, Direction::Write] {
            let mut side = self.side(direction);
            side.epoch += 1;
            side.news = None;
            let (armed, poller) = (side.armed.take(), side.poller.take());
            drop(side);
            if let Some(armed) = armed {
                abandon(armed.ring, armed.key);
            }
            drop(poller);
        }
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl Sides {
    fn side(&self, direction: Direction) -> LockGuard<'_, Side> {
        self.0[direction as usize].lock()
    }
}

/// Sees to it that a request is in flight in the runtime that runs here.
///
/// One of another runtime is cancelled: that runtime may never visit its ring again. (Those who wait are on one thread,
/// so two runtimes that do this to each other are not running at the same time.)
fn arm(sides: &Arc<Sides>, fd: RawFd, direction: Direction) -> io::Result<()> {
    context::expect(|cx| {
        cx.driver.assert_same_process();
        let mut side = sides.side(direction);
        let elsewhere = match side.armed {
            Some(armed) if armed.ring == cx.id() => return Ok(()),
            elsewhere => elsewhere,
        };
        side.armed = None;
        side.epoch += 1;
        let (epoch, edge) = (side.epoch, side.fruitless >= FRUITLESS_ROUNDS);
        drop(side);
        if let Some(elsewhere) = elsewhere {
            abandon(elsewhere.ring, elsewhere.key);
        }
        let mut request = Request::new(sides, fd, direction, epoch);
        request.edge = edge.then_some(Edge::Any);
        submit(cx, sides, request)
    })
}

fn submit(cx: &context::Context, sides: &Arc<Sides>, request: Request) -> io::Result<()> {
    let direction = request.direction;
    match cx.driver.submit_multi(request) {
        Ok(key) => {
            sides.side(direction).armed = Some(Armed { ring: cx.id(), key });
            Ok(())
        }
        Err(_) => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
    }
}

/// A poll of one direction, in its slot. It holds no descriptor: who waits keeps that open, and a poll takes nothing
/// from a file that it should not have looked at.
struct Request {
    sides: Arc<Sides>,
    fd: RawFd,
    direction: Direction,
    epoch: u64,
    /// Multishot if set: each change is a completion, what stays as it is is not.
    edge: Option<Edge>,
    /// A completion has come.
    seen: bool,
    /// Those who wait were told.
    done: bool,
}

/// What a multishot request waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// That the descriptor becomes ready.
    Wanted,
    /// Any change at all: it looks ready and is not.
    Any,
}

impl Request {
    fn new(sides: &Arc<Sides>, fd: RawFd, direction: Direction, epoch: u64) -> Self {
        Self { sides: Arc::clone(sides), fd, direction, epoch, edge: None, seen: false, done: false }
    }

    /// Whether these events are what somebody waits for. The kernel always reports that the peer closed its sending side
    /// (`POLLRDHUP`), which makes nothing writable.
    fn is_news(&self, events: u32, is_first: bool) -> bool {
        const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        let (wanted, always) = match self.direction {
            Direction::Read => (libc::POLLIN | libc::POLLRDHUP, ALWAYS),
            Direction::Write => (libc::POLLOUT, ALWAYS),
        };
        let has = |mask: i16| events & u32::from(mask as u16) != 0;
        match self.edge {
            None | Some(Edge::Wanted) => has(wanted | always),
            Some(Edge::Any) => has(wanted | libc::POLLHUP | libc::POLLNVAL) || !is_first,
        }
    }

    fn news(&self, cqe: Cqe, is_first: bool) -> Option<News> {
        match cqe.result() {
            Ok(events) => self.is_news(events, is_first).then_some(News::Ready),
            Err(error) => Some(match error.raw_os_error() {
                None | Some(libc::ECANCELED) => News::Cancelled,
                Some(errno) => News::Failed(errno),
            }),
        }
    }

    /// Tells who waits, and arms again for the rest.
    fn tell(&mut self, news: News) {
        self.done = true;
        let mut side = self.sides.side(self.direction);
        // One that was replaced or given up has no say, but others may have waited for it.
        let is_current = side.epoch == self.epoch;
        let news = if is_current { news } else { News::Cancelled };
        let armed = if is_current { side.armed.take() } else { None };
        side.last = news;
        let poller = side.poller.take();
        if poller.is_some() {
            side.news = Some(news);
        }
        let first = side.waiters.notify_one();
        let mut rest = side.waiters.waiting();
        drop(side);
        if self.edge.is_some()
            && let Some(armed) = armed
        {
            context::with(|cx| cx.driver.cancel(armed.key));
        }
        if is_current
            && rest > 0
            && !matches!(news, News::Cancelled)
            && arm(&self.sides, self.fd, self.direction).is_ok()
        {
            rest = 0;
        }
        let mut panic = None;
        wake(&mut panic, poller);
        wake(&mut panic, first);
        // With nothing in flight for them all look for themselves.
        for _ in 0..rest {
            let next = self.sides.side(self.direction).waiters.notify_one();
            wake(&mut panic, next);
        }
        task::resume(panic);
    }

    /// Goes on as a multishot request after a one-shot one saw nothing that counts, or after one that the kernel ended.
    fn go_on(&mut self) {
        self.done = true;
        let mut side = self.sides.side(self.direction);
        if side.epoch != self.epoch {
            return;
        }
        side.armed = None;
        drop(side);
        let mut next = Request::new(&self.sides, self.fd, self.direction, self.epoch);
        next.edge = self.edge.or(Some(Edge::Wanted));
        let armed = context::with(|cx| submit(cx, &self.sides, next));
        if !matches!(armed, Some(Ok(()))) {
            self.tell(News::Cancelled);
        }
    }
}

// SAFETY: no pointers; one completion, or as many as the kernel likes, the last one without MORE.
unsafe impl Multi for Request {
    const KIND: Kind = Kind::PollAdd;

    fn entry(&mut self) -> squeue::Entry {
        let events = events(self.direction) as u16 as u32;
        opcode::PollAdd::new(types::Fd(self.fd), events).multi(self.edge.is_some()).build()
    }

    fn item(&mut self, cqe: Cqe) {
        let is_first = !std::mem::replace(&mut self.seen, true);
        if self.done {
            return;
        }
        match self.news(cqe, is_first) {
            Some(news) => self.tell(news),
            None if cqe.more() => {}
            None => self.go_on(),
        }
    }
}

/// One waker's panic must not cost the others their wake (ruling 15).
fn wake(first: &mut Option<Panic>, waker: Option<Waker>) {
    if let Some(waker) = waker
        && let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake()))
    {
        keep_first(first, panic);
    }
}

/// Waits until a descriptor is ready; from [`Async::readable`](super::Async::readable) and
/// [`Async::writable`](super::Async::writable).
///
/// # Cancel safety
///
/// Takes nothing from the descriptor. If it had been told, the next one that waits is.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Ready<'a> {
    polls: &'a Polls,
    fd: RawFd,
    direction: Direction,
    ticket: Option<Ticket>,
    /// Those who wait are on one thread.
    _not_send: PhantomData<*const ()>,
}

impl<'a> Ready<'a> {
    pub(super) fn new(polls: &'a Polls, fd: RawFd, direction: Direction) -> Self {
        Self { polls, fd, direction, ticket: None, _not_send: PhantomData }
    }

    /// The result, once this waiter was chosen.
    fn come(&mut self) -> Option<io::Result<()>> {
        let ticket = self.ticket?;
        let mut side = self.polls.side(self.direction);
        if !side.waiters.take(ticket) {
            return None;
        }
        self.ticket = None;
        side.last.result()
    }

    fn leave(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let (left, waker) = self.polls.side(self.direction).waiters.leave(ticket);
        match left {
            // The request that was armed when this one was chosen completes at once if nobody took what there was.
            Left::PassOn | Left::Quietly => drop(waker),
        }
    }
}

impl Future for Ready<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(result) = this.come() {
            return Poll::Ready(result);
        }
        // Cloned before the lock is taken and dropped after it is released: wakers are foreign code (I4).
        let waker = task.waker().clone();
        let mut side = this.polls.side(this.direction);
        let unused = match this.ticket {
            Some(ticket) => side.waiters.update(ticket, waker),
            None => {
                this.ticket = Some(side.waiters.join(waker));
                None
            }
        };
        drop(side);
        drop(unused);
        if let Err(error) = arm(&this.polls.0, this.fd, this.direction) {
            this.leave();
            return Poll::Ready(Err(error));
        }
        Poll::Pending
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Ready<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("fd", &self.fd).field("direction", &self.direction).finish_non_exhaustive()
    }
}
