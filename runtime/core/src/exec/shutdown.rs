//! The end of a runtime (I6, rulings 8, 14 and 15).
//!
//! Tasks first, all on this thread: the table names every one whose future exists, wherever its wakers are. Then the ring: everything in flight is cancelled and reaped until the slots are empty or the limit
//! is reached. Only then does the door close. What destructors spawn or submit meanwhile is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::KeepSigpipe;
use crate::cell;
use crate::context::{self, Context};
use crate::panics::drop_quietly;
use crate::ring::Wait;
use crate::run_queue::TaskRef;
use crate::sys;
use crate::time;
use crate::wake::{self, Arrival};

/// How long one wait for cancelled operations lasts before the cancelling is repeated.
const ROUND: Duration = Duration::from_millis(20);

/// Visits without any time left in which the kernel may take no request to cancel.
const VISITS_BOUND: u32 = 100;

/// `limit` is for everything, `jobs_limit` for the jobs on the blocking pool.
pub(super) fn shutdown(cx: &Context, limit: Duration, jobs_limit: Duration) -> usize {
    wake::unregister(cx.id());
    if !sys::same_process() {
        forsake(cx);
        return 0;
    }
    // The runtime that this one is dropped in, if any, is the current one again afterwards.
    let _entered = context::enter(cx);
    let _sigpipe = KeepSigpipe::new(cx);
    let (deadline, jobs_deadline) = (time::after(limit), time::after(jobs_limit));
    cx.driver.close();
    drop_tasks(cx);
    drain(cx, deadline);
    end_residents(cx);
    cx.driver.close_pool();
    cx.jobs.wait(deadline.min(jobs_deadline));
    cx.closes.wait(deadline.min(jobs_deadline));
    let late = cx.door.close();
    for arrival in late {
        contained(|| receive(cx, arrival));
    }
    drop_timers(cx);
    // Once more, for what destructors of the late ones have begun.
    end_residents(cx);
    if let Some(panic) = cx.driver.act() {
        drop_quietly(panic);
    }
    cx.driver.in_flight() as usize
}

/// In a child of fork(2) ring and door are the parent's and are not touched. Tasks and operations are copies that
/// nobody works on: dropping them closes the descriptors that they hold.
fn forsake(cx: &Context) {
    let _entered = context::enter(cx);
    cx.driver.close();
    drop_tasks(cx);
    while !contained(|| cx.driver.forsake()) {}
    end_residents(cx);
    drop_timers(cx);
    cx.door.forsake();
}

fn drop_tasks(cx: &Context) {
    loop {
        take_arrivals(cx);
        for place in cx.tasks.places() {
            // Contained: a waker that panics does not keep the others from being dropped.
            contained(|| {
                if let Some(task) = cx.tasks.at(place) {
                    cell::cancel(cx, task);
                }
            });
        }
        // What was ready is over now: only the queue's references are left.
        while let Some(task) = cx.tasks.pop() {
            contained(|| cell::run(cx, task));
        }
        if cx.tasks.living() == 0 {
            return;
        }
    }
}

/// What streams that live on had received here goes with them.
fn end_residents(cx: &Context) {
    while let Some(resident) = cx.any_resident() {
        contained(|| resident.end());
    }
}

fn take_arrivals(cx: &Context) {
    // In a child of fork(2) another thread of the parent may hold the door's lock for ever.
    if !sys::same_process() || !cx.door.handshake().take() {
        return;
    }
    let mut arrivals = Vec::new();
    cx.door.take(&mut arrivals);
    for arrival in arrivals {
        contained(|| receive(cx, arrival));
    }
}

fn receive(cx: &Context, arrival: Arrival<TaskRef>) {
    match arrival {
        Arrival::Task(task) => cell::receive(cx, task),
        Arrival::Orphan(user_data) => cx.driver.orphan(crate::slot::SlotKey::from_user_data(user_data)),
        Arrival::Errand(errand) => errand.run(),
        Arrival::Stray(stray) => drop(stray),
        // All of them are dropped soon.
        Arrival::Timer(_) => {}
    }
}

fn drain(cx: &Context, deadline: Instant) {
    let mut asked = false;
    let mut visits = 0;
    loop {
        if let Some(panic) = cx.driver.act() {
            drop_quietly(panic);
        }
        // Each panic ends one operation; the rest is looked at again.
        while !contained(|| cx.driver.orphan_the_rest()) {}
        take_arrivals(cx);
        // Tasks that were woken by the above are dropped, not run.
        drop_tasks(cx);
        if cx.driver.is_drained() {
            return;
        }
        // One enter brings out a few tens of completions: while they come nothing is asked again, and without any time
        // left what can be cancelled at once still is.
        let comes = asked && cx.driver.last_reaped() > 0;
        let now = Instant::now();
        if (asked || visits >= VISITS_BOUND) && !comes && now >= deadline {
            return;
        }
        if visits == 0 {
            cx.driver.cancel_each();
            asked = !cx.driver.has_cancels();
        } else if asked && !comes {
            cx.driver.cancel_the_rest();
        }
        let until = cx.clock.ns((now + ROUND).min(deadline));
        let wait = match sys::monotonic_ns() {
            now_ns if now_ns < until => Wait::Until { deadline_ns: until, now_ns },
            _ => Wait::No,
        };
        let before = cx.driver.counters.submissions.get();
        if cx.driver.visit(wait, |waker| cell::wake_home(cx, waker)).is_err() {
            // A ring that cannot be entered cannot be drained: what is in flight is leaked.
            return;
        }
        // The kernel may be too short of memory, or too busy, to take anything just now.
        asked |= cx.driver.counters.submissions.get() > before;
        visits += 1;
    }
}

/// Runs foreign code whose panic must not leave a destructor; says whether there was none.
fn contained(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => true,
        Err(panic) => {
            drop_quietly(panic);
            false
        }
    }
}

fn drop_timers(cx: &Context) {
    loop {
        let timer = cx.timers.borrow_mut().pop_due(u64::MAX);
        let Some(waker) = timer else { return };
        drop_quietly(waker);
    }
}
