//! The end of a `block_on`, after which there may be no next turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{fetch, visit};
use crate::context::Context;
use crate::panics::drop_quietly;
use crate::ring::Wait;
use crate::sys;
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
/// elsewhere now, and files that were dropped are closed: there may be no next turn.
fn settle(cx: &Context) {
    if cx.driver.has_acts() {
        fetch(cx);
    }
    cx.move_out();
    if cx.driver.has_cancels() || cx.driver.has_orphans_flying() {
        send_off(cx);
    }
    // Whoever waits for one of these streams on another thread may be woken by the act phase.
    if cx.driver.has_acts() {
        fetch(cx);
    }
    cx.closes.wait(time::after(CLOSES_LIMIT));
}

/// On while completions come, of which one enter brings out a few tens; bounded by what was in flight. What a worker of the
/// kernel has comes a moment later; what does not come within the limit is not waited for again, as with a disk that does not
/// answer.
fn send_off(cx: &Context) {
    for _ in 0..=cx.driver.in_flight() {
        visit(cx, Wait::No);
        if cx.driver.last_reaped() == 0 {
            break;
        }
    }
    let deadline_ns = sys::monotonic_ns() + ORPHANS_LIMIT.as_nanos() as u64;
    while cx.driver.has_orphans_flying() && !cx.driver.is_orphan_overdue() {
        match sys::monotonic_ns() {
            now_ns if now_ns >= deadline_ns => cx.driver.set_orphan_overdue(),
            now_ns => visit(cx, Wait::Until { deadline_ns, now_ns }),
        }
    }
}
