//! Standing receives: a stream's bytes as the kernel brings them, in pooled memory.
//!
//! Owns the state of a stream's receive on its home thread, and the futures that take from it. Knows nothing of sockets'
//! names or options.
//!
//! ```text
//!               recv                  above the bound: cancel
//!   unarmed ───────────▶ standing ────────────────────────────▶ ending
//!    ▲  ▲ │                 │ completion without MORE              │
//!    │  └─┼─────────────────┴──────────────────────────────────────┘
//!    │    │ the pool is empty and cannot grow
//!    │    ▼
//!    └── apart: one receive into private memory
//! ```
//!
//! # Rules
//!
//! 1. Bytes are taken in the order: residue of the stream, queue, kernel. So a receive is armed only when there is no
//!    residue, and everything that reads takes the direction first and then asks here.
//! 2. The kernel reads on while nobody takes. Above a bound of bytes the receive is cancelled, and armed again once the
//!    queue has drained to a quarter of it. The bound is soft: what one visit brings comes on top.
//! 3. An empty pool (`ENOBUFS`) has lost nothing. It grows; at its bound, whoever waits gets one receive into private
//!    memory, and the next attempt is made with the pool again once it has something.
//! 4. The end of the stream, or an error, comes after the bytes. The end stays; an error is told once.
//! 5. Whoever waits holds the direction. Nobody else pops, and nothing moves away, meanwhile.
//! 6. The queue belongs to the stream, not to a future: dropping a future leaves it, and a stream that moves to another
//!    thread takes it along as residue (see [`duplex`](crate::duplex)).

mod queue;
mod state;

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

use futures_core::Stream;

use crate::buf::{self, IoBufMut};
use crate::context::{self, Context};
use crate::duplex::{Direction, Duplex, Held, Reader};
use crate::pooled::Pooled;
use crate::wait::Ticket;
use state::Receiver;

/// Receives what there is, or waits for it; empty at the end of the stream.
#[inline]
pub fn recv(duplex: &Arc<Duplex>) -> Recv<'_> {
    Recv { duplex, ticket: None, waits: None }
}

/// Receives again and again.
pub fn recv_stream(duplex: &Arc<Duplex>) -> RecvStream<'_> {
    RecvStream { recv: recv(duplex) }
}

/// Waits for received bytes.
///
/// # Cancel safety
///
/// Bytes that arrived stay with the stream.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Recv<'a> {
    duplex: &'a Arc<Duplex>,
    /// The place in the queue for the direction.
    ticket: Option<Ticket>,
    /// What it waits for; it holds the direction then.
    waits: Option<Rc<Receiver>>,
}

impl Recv<'_> {
    /// Like a poll of the future, but it may go on after it was ready.
    #[inline]
    fn poll_recv(&mut self, task: &mut Task<'_>) -> Poll<io::Result<Pooled>> {
        // SAFETY: not kept beyond this call.
        let cx = unsafe { context::borrow() };
        if let Some(receiver) = &self.waits {
            // What it has it gives anywhere; where it must wait or arm, it looks whether it is at home.
            let Some(data) = receiver.pop(cx) else { return self.wait(cx, task) };
            self.let_go();
            return Poll::Ready(Ok(data));
        }
        cx.driver.assert_same_process();
        if self.ticket.is_none()
            && cx.has_budget()
            && let Some(at) = self.duplex.try_hold_home(cx.id())
        {
            // SAFETY: this ring is its home, and the direction is held, so what is there stays.
            let receiver = self.waits.insert(unsafe { Receiver::at(at) });
            if let Some(data) = receiver.pop(cx) {
                cx.spend(data.len());
                self.let_go();
                return Poll::Ready(Ok(data));
            }
            if receiver.is_standing() {
                receiver.wait(cx, task);
                return Poll::Pending;
            }
            return self.wait(cx, task);
        }
        self.acquire(task)
    }

    /// With others in the way, residue to take first, or for the first time.
    #[cold]
    fn acquire(&mut self, task: &mut Task<'_>) -> Poll<io::Result<Pooled>> {
        let clean = ready!(self.duplex.poll_take(Direction::Read, &mut self.ticket, task));
        let release = Release(self.duplex);
        // SAFETY: not kept beyond this call.
        let cx = unsafe { context::borrow() };
        if !clean && let Some(residue) = self.duplex.take_residue() {
            cx.spend(residue.as_ref().map_or(0, Vec::len));
            return Poll::Ready(residue.map(Pooled::from));
        }
        self.waits = Some(Receiver::of(self.duplex, cx));
        std::mem::forget(release);
        self.wait(cx, task)
    }

    #[cold]
    fn wait(&mut self, cx: &Context, task: &mut Task<'_>) -> Poll<io::Result<Pooled>> {
        let Some(receiver) = &mut self.waits else { unreachable!("set by whoever calls this") };
        if receiver.is_gone() {
            // Its runtime ended, and left to the stream what there was.
            if let Some(residue) = self.duplex.take_residue() {
                self.let_go();
                return Poll::Ready(residue.map(Pooled::from));
            }
            *receiver = Receiver::of(self.duplex, cx);
        }
        receiver.assert_here(cx);
        let result = match receiver.poll_data(cx, task) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) => Ok(receiver.pop(cx).unwrap_or(Pooled::empty())),
        };
        cx.spend(result.as_ref().map_or(0, |data| data.len()));
        self.let_go();
        Poll::Ready(result)
    }

    #[inline]
    fn let_go(&mut self) {
        if let Some(receiver) = self.waits.take() {
            self.duplex.release(Direction::Read);
            drop(receiver);
        }
    }
}

impl Future for Recv<'_> {
    type Output = io::Result<Pooled>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        self.poll_recv(task)
    }
}

impl Drop for Recv<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.waits.is_some() || self.ticket.is_some() {
            self.give_up();
        }
    }
}

impl Recv<'_> {
    #[cold]
    fn give_up(&mut self) {
        if let Some(receiver) = &self.waits {
            let waker = receiver.take_waker();
            self.let_go();
            drop(waker);
        }
        if let Some(ticket) = self.ticket.take() {
            self.duplex.leave(Direction::Read, ticket);
        }
    }
}

impl fmt::Debug for Recv<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recv").field("waits", &self.waits.is_some()).finish_non_exhaustive()
    }
}

/// Frees a direction that was taken without a guard.
struct Release<'a>(&'a Arc<Duplex>);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release(Direction::Read);
    }
}

/// The bytes of a connection as a stream, which ends where the connection does.
///
/// # Cancel safety
///
/// Nothing is lost when a `next` or the whole stream is dropped: bytes stay with the connection. Polled as a [`Stream`] it
/// keeps its place in line from one poll to the next; the inherent [`next`](Self::next) leaves the line when it is dropped.
#[derive(Debug)]
#[must_use = "streams do nothing unless they are polled"]
pub struct RecvStream<'a> {
    recv: Recv<'a>,
}

impl RecvStream<'_> {
    /// The next bytes, never empty; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// Those of the socket, such as `ConnectionReset`.
    ///
    /// # Cancel safety
    ///
    /// Bytes that arrived stay with the connection.
    pub async fn next(&mut self) -> Option<io::Result<Pooled>> {
        let this = InLine(&mut self.recv);
        ended(poll_fn(|task| this.0.poll_recv(task)).await)
    }
}

/// Leaves the line, and the direction, when it is dropped.
struct InLine<'a, 'b>(&'b mut Recv<'a>);

impl Drop for InLine<'_, '_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

fn ended(result: io::Result<Pooled>) -> Option<io::Result<Pooled>> {
    match result {
        Ok(data) if data.is_empty() => None,
        result => Some(result),
    }
}

impl Stream for RecvStream<'_> {
    type Item = io::Result<Pooled>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Self::Item>> {
        self.recv.poll_recv(task).map(ended)
    }
}

// ---- reads of other kinds, with the direction in hand ---------------------------------------------------------------------

/// What a standing receive has for a read.
#[derive(Debug)]
pub enum Served {
    /// There is none: ask the kernel.
    Nobody,
    /// Nothing yet: wait with [`poll_filled`].
    Nothing,
    /// So many bytes behind the first `at` ones, 0 at the end of the stream; or the error that follows the bytes.
    Done(io::Result<usize>),
}

/// The home of the direction that is held. One elsewhere would be asked for it before it is held: it is held by a future
/// that waits there then, and is polled here.
#[track_caller]
fn home_here(held: &Held, cx: &Context) -> Option<*const crate::duplex::Home> {
    let home = held.duplex().home(cx.id());
    if home.is_none() && held.duplex().is_homed() {
        state::elsewhere();
    }
    home
}

/// Serves a read from what a standing receive has brought, behind the first `at` bytes of the buffer. `peek` leaves it
/// there. Residue goes first: see [`Held::serve`].
pub fn serve<B: IoBufMut>(held: &Held, buf: &mut B, at: usize, peek: bool) -> Served {
    // SAFETY: not kept beyond this call.
    let cx = unsafe { context::borrow() };
    let Some(home) = home_here(held, cx) else { return Served::Nobody };
    // SAFETY: this ring is its home, and the direction is held, so what is there stays.
    let receiver = unsafe { Receiver::at(home) };
    let mut taken = 0;
    while at + taken < buf.capacity() {
        // In hand while the buffer's own methods run, which are foreign code; put back whatever happens.
        let Some(mut front) = receiver.front(taken, peek) else { break };
        let n = buf::fill_at(buf, at + taken, front.bytes());
        front.advance(n);
        taken += n;
    }
    if peek {
        receiver.rearm_for_more(cx);
    } else {
        receiver.rearm_if_low(cx);
    }
    match taken {
        0 => match receiver.take_end(peek) {
            Some(result) => Served::Done(result.map(|()| 0)),
            None => Served::Nothing,
        },
        n => Served::Done(Ok(n)),
    }
}

/// Ready when there is something to [`serve`].
pub fn poll_filled(held: &mut Held, task: &mut Task<'_>) -> Poll<()> {
    // SAFETY: not kept beyond this call.
    let cx = unsafe { context::borrow() };
    let Some(home) = home_here(held, cx) else {
        // Its runtime ended, and left to the stream what there was.
        held.look();
        return Poll::Ready(());
    };
    // SAFETY: as in `serve`.
    let receiver = unsafe { Receiver::at(home) };
    receiver.poll_filled(cx, task)
}

/// Whoever waited with [`poll_filled`] does not any more.
pub fn stop_waiting(held: &Held) {
    let waker = context::with(|cx| {
        let home = held.duplex().home(cx.id())?;
        // SAFETY: as in `serve`.
        unsafe { Receiver::at(home) }.take_waker()
    });
    drop(waker);
}

/// Waits until there is something to [`serve`].
///
/// # Cancel safety
///
/// Takes nothing.
pub async fn filled(held: &mut Held) {
    poll_fn(|task| poll_filled(held, task)).await;
}

/// Ends what receives ahead, for whoever is to read past it: what it had brought is residue when this returns.
///
/// # Cancel safety
///
/// Nothing is lost; it ends all the same.
pub async fn settle(held: &mut Held) {
    poll_fn(|task| {
        // SAFETY: not kept beyond this call.
        let cx = unsafe { context::borrow() };
        let Some(home) = home_here(held, cx) else { return Poll::Ready(()) };
        // SAFETY: as in `serve`.
        let receiver = unsafe { Receiver::at(home) };
        receiver.set_waker(cx, task.waker());
        receiver.begin_leaving(cx);
        if receiver.is_gone() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    held.look();
}

/// The reading end of a stream becomes a plain descriptor again; given back while operations still use it, or when
/// something was received that only the stream can return.
///
/// # Errors
///
/// The stream, then.
pub fn into_fd(reader: Reader) -> Result<OwnedFd, Arc<Duplex>> {
    let duplex = reader.into_inner();
    let here = context::with(|cx| {
        state::settle_now(&duplex, cx);
        cx.id()
    });
    duplex.send_home(here);
    duplex.into_fd()
}
