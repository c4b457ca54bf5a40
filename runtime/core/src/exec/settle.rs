//! The end of a `block_on`, after which there may be no next turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{fetch, visit};
use crate::context::Context;
use crate::panics::{Panic, drop_quietly, keep_first};
use crate::ring::Wait;
use crate::sys;
use crate::task;
use crate::time;

/// How long `block_on` waits at its end for files that were dropped and that other threads close.
const CLOSES_LIMIT: Duration = Duration::from_secs(1);
/// How long `block_on` waits at its end for operations that were cancelled.
const ORPHANS_LIMIT: Duration = Duration::from_secs(1);

/// Does [`settle`] at the end of a `block_on`, whether it returns or panics; not in a child of fork(2), where the ring is
/// not mapped (ruling 12).
pub(super) struct Settled<'a>(pub(super) &'a Context);

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        if !sys::same_process() {
            return;
        }
        if !std::thread::panicking() {
            return settle(self.0);
        }
        // The first panic is the one that goes on.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| settle(self.0))) {
            drop_quietly(panic);
        }
    }
}

/// What was cancelled meanwhile is sent off and settled, what was received ahead is given to its streams, which may go
/// elsewhere now, and files that were dropped are closed: there may be no next turn. What a waker throws costs none of this,
/// and goes on afterwards.
fn settle(cx: &Context) {
    let mut first = None;
    act(cx, &mut first);
    cx.move_out();
    if cx.driver.has_cancels() || is_leaving(cx) {
        send_off(cx, &mut first);
    }
    // Whoever waits for one of these streams on another thread may be woken by the act phase.
    act(cx, &mut first);
    cx.closes.wait(time::after(CLOSES_LIMIT));
    task::resume(first);
}

fn contained(first: &mut Option<Panic>, f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        keep_first(first, panic);
    }
}

fn act(cx: &Context, first: &mut Option<Panic>) {
    if cx.driver.has_acts() {
        contained(first, || fetch(cx));
    }
}

/// Whether the kernel still has what nobody here waits for: operations whose futures are gone, receives of streams that are
/// wanted elsewhere.
fn is_leaving(cx: &Context) -> bool {
    cx.driver.has_orphans_flying() || cx.has_leaving()
}

/// On while completions come, of which one enter brings out a few tens; bounded by what was in flight. What a worker of the
/// kernel has comes a moment later; what does not come within the limit is not waited for again, as with a disk that does not
/// answer.
fn send_off(cx: &Context, first: &mut Option<Panic>) {
    let refused = cx.driver.refused();
    for _ in 0..=cx.driver.in_flight() {
        contained(first, || visit(cx, Wait::No));
        if cx.driver.last_reaped() == 0 || cx.driver.refused() > refused {
            break;
        }
    }
    let deadline_ns = sys::monotonic_ns() + ORPHANS_LIMIT.as_nanos() as u64;
    while is_leaving(cx) && !cx.driver.is_orphan_overdue() && cx.driver.refused() == refused {
        match sys::monotonic_ns() {
            now_ns if now_ns >= deadline_ns => cx.driver.set_orphan_overdue(),
            now_ns => contained(first, || visit(cx, Wait::Until { deadline_ns, now_ns })),
        }
    }
}
