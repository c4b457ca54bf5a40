//! One stream's receive on its home thread: [`Receiver`].
//!
//! Owns what was received and not taken, what is in flight for it, and who waits. See the rules in
//! [`receiver`](super).

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};

use super::queue::Queue;
use crate::cell;
use crate::context::{Context, Resident};
use crate::duplex::{Duplex, Home};
use crate::fd::Origin;
use crate::op::Cqe;
use crate::op::recv_multi::{RecvApart, RecvMulti, RecvSink};
use crate::pooled::Pooled;
use crate::slot::SlotKey;

/// Bytes of a receive into private memory.
const APART_BYTES: usize = 16 << 10;
/// Times in a row that the pool may be found empty although it has stock, as far as we know.
const EMPTY_BOUND: u8 = 2;

/// What is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    Nothing,
    Standing,
    /// Standing, and to be cancelled.
    Ending,
    /// A receive into private memory.
    Apart,
}

/// How the stream ended, behind what is in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Eof,
    /// An errno, of which there are fewer.
    Failed(u16),
}

impl End {
    fn failed(errno: i32) -> Self {
        Self::Failed(u16::try_from(errno).unwrap_or(libc::EIO as u16))
    }
}

#[repr(C)]
pub(crate) struct Receiver {
    /// First, because the duplex knows it by this address.
    home: Home,
    duplex: Arc<Duplex>,
    queue: Queue,
    waker: Cell<Option<Waker>>,
    /// Names what is in flight.
    key: Cell<SlotKey>,
    /// Bytes that may wait in the queue.
    bound: u32,
    end: Cell<End>,
    armed: Cell<Armed>,
    /// Times in a row that the pool was found empty.
    empty: Cell<u8>,
    /// The kernel knows no multishot receives for this socket.
    only_apart: Cell<bool>,
    /// It is to give up what it has.
    leaving: Cell<bool>,
    /// It has.
    gone: Cell<bool>,
}

impl Receiver {
    /// The receiver at the home of a direction.
    ///
    /// # Safety
    ///
    /// `at` comes from [`Duplex::home`] or [`Duplex::try_hold_home`] of the current ring, just now.
    #[inline]
    pub(super) unsafe fn at(at: *const Home) -> Rc<Self> {
        let at = at.cast::<Self>();
        // SAFETY: the pointer of an `Rc` of which the context keeps one until the direction has no home any more.
        unsafe { Rc::increment_strong_count(at) };
        // SAFETY: as above; the count was added by the line before.
        unsafe { Rc::from_raw(at) }
    }

    /// The receiver of a direction that the caller holds, made if there is none.
    pub(super) fn of(duplex: &Arc<Duplex>, cx: &Context) -> Rc<Self> {
        if let Some(home) = duplex.home(cx.id()) {
            // SAFETY: asked just now.
            return unsafe { Self::at(home) };
        }
        let this = Rc::new(Self {
            home: Home { ring: cx.id(), place: Cell::new(0) },
            duplex: Arc::clone(duplex),
            queue: Queue::default(),
            waker: Cell::new(None),
            key: Cell::new(SlotKey::from_user_data(0)),
            bound: cx.driver.pool().queue_bytes(),
            end: Cell::new(End::Open),
            armed: Cell::new(Armed::Nothing),
            empty: Cell::new(0),
            only_apart: Cell::new(false),
            leaving: Cell::new(false),
            gone: Cell::new(false),
        });
        this.home.place.set(cx.admit(Rc::clone(&this) as Rc<dyn Resident>));
        // SAFETY: the context keeps it until `finish`, which moves out first.
        unsafe { duplex.settle_in(Rc::as_ptr(&this).cast()) };
        this
    }

    /// A future that waits here can only go on here.
    #[inline]
    #[track_caller]
    pub(super) fn assert_here(&self, cx: &Context) {
        if self.home.ring != cx.id() && !self.gone.get() {
            elsewhere();
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    #[inline]
    pub(super) fn is_standing(&self) -> bool {
        self.armed.get() == Armed::Standing
    }

    #[inline]
    pub(super) fn pop(self: &Rc<Self>, cx: &Context) -> Option<Pooled> {
        if self.armed.get() != Armed::Standing {
            // Before anything is taken.
            self.assert_here(cx);
        }
        let mut data = self.queue.pop()?;
        if self.armed.get() != Armed::Standing {
            self.rearm_if_low(cx);
        }
        cx.driver.pool().relieve(&mut data);
        Some(data)
    }

    #[inline]
    pub(super) fn set_waker(&self, cx: &Context, waker: &Waker) {
        // Cloned and dropped with nothing in hand: both are foreign code (I4). What wakes it is this ring.
        let waker = cell::home_waker(cx, waker);
        drop(self.waker.replace(Some(waker)));
    }

    /// Has the task woken when there is something.
    #[inline]
    pub(super) fn wait(&self, cx: &Context, task: &Task<'_>) {
        self.set_waker(cx, task.waker());
        // Foreign code may have visited the ring.
        if self.queue.bytes() > 0 || self.end.get() != End::Open {
            task.waker().wake_by_ref();
        }
    }

    pub(super) fn take_waker(&self) -> Option<Waker> {
        self.waker.take()
    }

    /// Unless it leaves: nobody waits here then but with a runtime that has ended, and that wake must come last.
    #[inline]
    fn wake_reader(&self) {
        if !self.leaving.get() {
            self.wake();
        }
    }

    #[inline]
    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ready with `Ok` when there are bytes, or at the end of the stream.
    pub(super) fn poll_data(self: &Rc<Self>, cx: &Context, task: &Task<'_>) -> Poll<io::Result<()>> {
        if self.queue.bytes() > 0 {
            return Poll::Ready(Ok(()));
        }
        if let Some(result) = self.take_end(false) {
            return Poll::Ready(result);
        }
        if let Err(error) = self.arm(cx) {
            return Poll::Ready(Err(error));
        }
        self.wait(cx, task);
        Poll::Pending
    }

    /// Ready when there are bytes, an end or an error.
    pub(super) fn poll_filled(self: &Rc<Self>, cx: &Context, task: &Task<'_>) -> Poll<()> {
        if self.queue.bytes() > 0 || self.end.get() != End::Open {
            return Poll::Ready(());
        }
        if let Err(error) = self.arm(cx) {
            self.end.set(End::failed(error.raw_os_error().unwrap_or(libc::ECANCELED)));
            return Poll::Ready(());
        }
        self.wait(cx, task);
        Poll::Pending
    }

    /// The end of the stream or its error, once the queue is empty. A peek leaves the error.
    pub(super) fn take_end(&self, peek: bool) -> Option<io::Result<()>> {
        match self.end.get() {
            _ if self.queue.bytes() > 0 => None,
            End::Open => None,
            // Unless a dropped write was told how the connection ended.
            End::Eof => Some(self.duplex.take_end(peek).map_or(Ok(()), Err)),
            End::Failed(errno) => {
                if !peek {
                    // What the kernel says next is the end of the stream, as after any read.
                    self.end.set(End::Open);
                }
                Some(Err(io::Error::from_raw_os_error(errno.into())))
            }
        }
    }

    /// The first piece, or, for a look, a copy of what lies behind the first `skip` bytes.
    pub(super) fn front(&self, skip: usize, peek: bool) -> Option<Front<'_>> {
        if peek {
            let data = Pooled::from(self.queue.peek(skip)?);
            return Some(Front { queue: None, data });
        }
        Some(Front { queue: Some(&self.queue), data: self.queue.pop()? })
    }

    // ---- arming ------------------------------------------------------------------------------------------------------

    #[cold]
    pub(super) fn rearm_if_low(self: &Rc<Self>, cx: &Context) {
        if self.armed.get() == Armed::Nothing && self.queue.bytes() <= self.bound as usize / 4 {
            // A runtime that is closing refuses; whoever waits for more hears so then.
            let _ = self.arm(cx);
        }
    }

    /// Somebody looks at what there is, and may wait for more to look at.
    #[cold]
    pub(super) fn rearm_for_more(self: &Rc<Self>, cx: &Context) {
        if self.queue.bytes() <= self.bound as usize {
            let _ = self.arm_for(cx, true);
        }
    }

    /// Has a receive in flight, unless the stream has ended.
    fn arm(self: &Rc<Self>, cx: &Context) -> io::Result<()> {
        self.arm_for(cx, self.queue.bytes() == 0)
    }

    /// The same; `wanted` says whether somebody waits for what it brings.
    fn arm_for(self: &Rc<Self>, cx: &Context, wanted: bool) -> io::Result<()> {
        if self.armed.get() != Armed::Nothing || self.end.get() != End::Open || self.leaving.get() {
            return Ok(());
        }
        cx.driver.set_up_pool();
        let pool = cx.driver.pool();
        let may_stand = !self.only_apart.get() && self.empty.get() < EMPTY_BOUND;
        let (armed, key) = if may_stand && (pool.has_stock() || pool.replenish()) {
            let sink = Rc::clone(self);
            let key = if pool.has_bundles() {
                cx.driver.submit_multi(RecvMulti::<_, true>::new(sink)).ok()
            } else {
                cx.driver.submit_multi(RecvMulti::<_, false>::new(sink)).ok()
            };
            (Armed::Standing, key)
        } else if wanted {
            cx.driver.counters.pool_apart.add(1);
            self.empty.set(0);
            let memory = Vec::with_capacity(APART_BYTES);
            (Armed::Apart, cx.driver.submit_multi(RecvApart::new(Rc::clone(self), memory)).ok())
        } else {
            // There is no hurry: the pool may have something by then.
            return Ok(());
        };
        let Some(key) = key else { return Err(io::Error::from_raw_os_error(libc::ECANCELED)) };
        self.key.set(key);
        self.armed.set(armed);
        Ok(())
    }

    fn cancel(&self, cx: &Context) {
        match self.armed.get() {
            Armed::Standing => self.armed.set(Armed::Ending),
            Armed::Apart => {}
            Armed::Nothing | Armed::Ending => return,
        }
        cx.driver.cancel(self.key.get());
    }

    // ---- what the kernel brings ----------------------------------------------------------------------------------------

    /// Takes bytes, and hands out who waits for them.
    #[inline]
    fn take_in(&self, data: Pooled, enough: &mut bool) -> Option<Waker> {
        if self.leaving.get() {
            self.take_along(data);
            return None;
        }
        self.empty.set(0);
        let before = self.queue.bytes();
        self.queue.push(data);
        if before > 0 {
            // Nobody waits while there are bytes.
            self.look_at_bound(enough);
            return None;
        }
        self.waker.take()
    }

    /// What comes while it leaves goes with the stream, if there still is one. Nobody waits here.
    #[cold]
    fn take_along(&self, data: Pooled) {
        if !self.gone.get() && !self.duplex.is_abandoned() {
            self.queue.push(data);
        }
    }

    #[cold]
    fn look_at_bound(&self, enough: &mut bool) {
        if self.queue.bytes() > self.bound as usize && self.armed.get() == Armed::Standing {
            self.armed.set(Armed::Ending);
            *enough = true;
        }
    }

    fn take_last(self: &Rc<Self>, cqe: Cqe) {
        // SAFETY: not kept beyond this call; completions are acted on inside a runtime.
        let cx = unsafe { crate::context::borrow() };
        if cqe.more() {
            // Bytes without a buffer of ours, which no kernel should say: they are lost, and so is the stream.
            self.end.set(End::failed(libc::EIO));
            self.wake_reader();
            return self.cancel(cx);
        }
        self.armed.set(Armed::Nothing);
        // With bytes it is not the end: they have come, and the kernel had no room for more completions. Whoever has taken
        // them since waits for a receive that stood no more.
        if cqe.parts().0 <= 0 {
            self.take_end_in(cx, cqe);
        } else {
            self.wake_reader();
        }
        if self.leaving.get() {
            self.finish(cx);
        }
    }

    #[cold]
    fn take_end_in(&self, cx: &Context, cqe: Cqe) {
        let (result, _) = cqe.parts();
        match -result {
            0 => self.end.set(End::Eof),
            // Nothing is lost: the bytes wait in the kernel.
            libc::ENOBUFS => {
                cx.driver.counters.pool_empty.add(1);
                self.empty.set(self.empty.get().saturating_add(1));
            }
            libc::ENOMEM => self.empty.set(EMPTY_BOUND),
            errno if is_taken_back(errno) => {}
            libc::EINVAL | libc::EOPNOTSUPP if !self.only_apart.get() => self.only_apart.set(true),
            errno => self.end.set(End::failed(errno)),
        }
        self.wake_reader();
    }

    fn take_in_apart(self: &Rc<Self>, cqe: Cqe, memory: Vec<u8>) {
        // SAFETY: not kept beyond this call; completions are acted on inside a runtime.
        let cx = unsafe { crate::context::borrow() };
        self.armed.set(Armed::Nothing);
        if memory.is_empty() {
            // What would only turn a standing receive into one of these is the truth here.
            match cqe.parts().0 {
                0 => self.end.set(End::Eof),
                result if is_taken_back(-result) => {}
                result => self.end.set(End::failed(-result)),
            }
            self.wake_reader();
        } else {
            if let Some(waker) = self.take_in(Pooled::from(memory), &mut false) {
                waker.wake();
            }
        }
        if self.leaving.get() {
            self.finish(cx);
        }
    }

    // ---- leaving -------------------------------------------------------------------------------------------------------

    pub(super) fn begin_leaving(self: &Rc<Self>, cx: &Context) {
        if self.leaving.replace(true) {
            return;
        }
        if self.duplex.is_abandoned() {
            self.queue.clear();
        }
        match self.armed.get() {
            Armed::Nothing => self.finish(cx),
            _ => self.cancel(cx),
        }
    }

    /// Leaves to the stream what there is.
    fn finish(self: &Rc<Self>, cx: &Context) {
        if self.gone.replace(true) {
            return;
        }
        let kept = cx.dismiss(self.home.place.get());
        let data = if self.duplex.is_abandoned() { Vec::new() } else { self.queue.drain() };
        let errno = match self.end.get() {
            // What a closing runtime refused is no error of the stream.
            End::Failed(errno) if !is_taken_back(errno.into()) => Some(errno.into()),
            End::Failed(_) => None,
            // The kernel says the end again.
            End::Open | End::Eof => None,
        };
        self.duplex.move_out(&data, errno);
        self.queue.clear();
        self.wake();
        drop(kept);
    }
}

impl Resident for Receiver {
    fn leave(self: Rc<Self>) {
        // SAFETY: not kept beyond this call; its runtime is the current one.
        let cx = unsafe { crate::context::borrow() };
        self.begin_leaving(cx);
    }

    fn leave_if_idle(self: Rc<Self>) {
        if !self.leaving.get() && self.duplex.begin_move() {
            self.leave();
        }
    }

    fn is_leaving(&self) -> bool {
        self.leaving.get() && !self.gone.get()
    }

    fn end(self: Rc<Self>) {
        // SAFETY: as above.
        let cx = unsafe { crate::context::borrow() };
        self.leaving.set(true);
        self.finish(cx);
    }
}

// SAFETY: the duplex owns the descriptor, and is kept.
unsafe impl Origin for Rc<Receiver> {
    fn raw_fd(&self) -> RawFd {
        self.duplex.as_fd().as_raw_fd()
    }
}

impl RecvSink for Rc<Receiver> {
    #[inline]
    fn received(&self, data: Pooled, enough: &mut bool) -> Option<Waker> {
        self.take_in(data, enough)
    }

    fn ended(&mut self, cqe: Cqe) {
        self.take_last(cqe);
    }

    fn received_apart(&mut self, cqe: Cqe, memory: Vec<u8>) {
        self.take_in_apart(cqe, memory);
    }
}

/// The first piece of a queue, in hand: what is left of it goes back.
pub(super) struct Front<'a> {
    queue: Option<&'a Queue>,
    data: Pooled,
}

impl Front<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.data
    }

    pub(super) fn advance(&mut self, n: usize) {
        self.data.advance(n);
    }
}

impl Drop for Front<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue {
            queue.put_back(std::mem::replace(&mut self.data, Pooled::empty()));
        }
    }
}

/// Ends a standing receive at once, if this ring has one for the stream and nobody waits for it.
pub(super) fn settle_now(duplex: &Arc<Duplex>, cx: &Context) {
    let Some(home) = duplex.home(cx.id()) else { return };
    if !duplex.begin_move() {
        return;
    }
    // SAFETY: asked just now, and the direction is held since.
    let receiver = unsafe { Receiver::at(home) };
    let key = receiver.key.get();
    receiver.begin_leaving(cx);
    if !receiver.is_gone() {
        cx.cancel_now(key);
    }
}

/// By us or with the ring; or a worker was interrupted.
fn is_taken_back(errno: i32) -> bool {
    matches!(errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN | 512..=516)
}

#[cold]
#[track_caller]
pub(super) fn elsewhere() -> ! {
    panic!(
        "this future waits for a stream in one runtime and is polled in another: finish it in the `block_on` of the \
         runtime it was first polled in"
    )
}
