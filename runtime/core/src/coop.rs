//! The cooperative budget (ruling 6), and what else a resource may ask of the turn it runs in.
//!
//! An operation that completes without suspending spends from the budget of its task's poll; a task that has spent it
//! is suspended at its next operation, so that no task keeps the thread by always finding its data ready.

use std::future::poll_fn;
use std::task::Waker;

use crate::buf::IoBuf;
use crate::cell;
use crate::context;
use crate::op::send_zc::ZeroCopy;
use crate::op::{Kind, Rung};

pub use crate::context::Proceed;

/// Suspends the task once if its budget is spent.
///
/// # Cancel safety
///
/// Holds nothing.
pub async fn proceed() {
    let mut proceed = Proceed::default();
    poll_fn(|task| proceed.poll(task)).await;
}

/// An operation that has nothing to do: it counts as one that was completed without suspending.
///
/// # Cancel safety
///
/// Holds nothing.
pub async fn nothing_to_do() {
    proceed().await;
    spend(0);
}

/// Wakes, from a place that must not panic, such as a destructor: a waker of a task runs no foreign code, and any other is
/// woken by the act phase.
pub fn wake(waker: Waker) {
    cell::wake_safely(waker);
}

/// Says that an operation of `bytes` was completed without suspending.
pub fn spend(bytes: usize) {
    context::with(|cx| cx.spend(bytes));
}

/// Whether the task that runs has budget left.
pub fn has_budget() -> bool {
    context::with(|cx| cx.has_budget()).unwrap_or(true)
}

/// Whether the runtime of this thread is ending: it cancels what is in flight.
pub fn is_closing() -> bool {
    context::with(|cx| cx.driver.is_closing()).unwrap_or(false)
}

/// Whether an inline system call is the better way to write now: when the turn brought at most one completion, and the
/// task has budget left.
///
/// In a batch each inline write wakes its peer at once and takes the batch apart; the writes of one enter wake their
/// peers once.
#[inline]
pub fn prefers_inline() -> bool {
    // In a child of fork(2) an inline write would reach the parent's peer.
    context::with(|cx| {
        cx.driver.assert_same_process();
        cx.driver.last_reaped() <= 1 && cx.has_budget()
    })
    .unwrap_or(false)
}

/// Counts an operation of `bytes` that was completed inline, and spends it.
#[inline]
pub fn done_inline(kind: Kind, bytes: usize) {
    context::with(|cx| {
        cx.driver.counters.op(kind, Rung::Inline);
        cx.driver.count_answer();
        cx.spend(bytes);
    });
}

/// Counts an operation that did not go through the ring.
pub fn count(kind: Kind, rung: Rung) {
    context::with(|cx| cx.driver.counters.op(kind, rung));
}

/// What this runtime's kernel offers of zero-copy sends.
pub fn zero_copy() -> ZeroCopy {
    context::with(|cx| cx.driver.ring().borrow().features().zero_copy).unwrap_or_default()
}

/// Whether the kernel has this opcode, as far as its number is below 64.
///
/// # Panics
///
/// Outside a runtime: that there is none must not look like an old kernel.
pub fn has_opcode(code: u8) -> bool {
    let opcodes = context::expect(|cx| cx.driver.ring().borrow().features().opcodes);
    code < 64 && opcodes & 1 << code != 0
}

/// The index of the region that the buffer lies in, if it is registered with the ring of this thread's runtime.
#[inline]
pub fn registered<B: IoBuf>(buf: &B) -> Option<u16> {
    let registered = buf.registered()?;
    context::with(|cx| cx.id().number() == registered.ring)?.then_some(registered.index)
}

/// Counts a connection that was gone before `accept` could hand it out.
pub fn count_accept_skipped() {
    context::with(|cx| cx.driver.counters.accept_skipped.add(1));
}

/// Keeps SIGPIPE from this thread until `block_on` returns; for writes to pipes.
pub fn block_sigpipe() {
    context::expect(|cx| cx.block_sigpipe());
}

/// Panics in a child of fork(2): what is done inline there would reach the parent's peer.
pub fn assert_same_process() {
    context::expect(|cx| cx.driver.assert_same_process());
}
