//! The end of a runtime (I6, rulings 8, 14 and 15).
//!
//! Tasks first, all on this thread: each living task is woken, which brings it into the queue, and what is in the queue
//! is dropped unrun. Then the ring: everything in flight is cancelled and reaped until the slots are empty or the limit
//! is reached. Only then does the door close. What destructors spawn or submit meanwhile is refused.

use std::time::{Duration, Instant};

use crate::context::{self, Context};
use crate::driver::{Panic, drop_quietly};
use crate::ring::Wait;
use crate::sys;
use crate::wake::{self, Arrival};

/// How long one wait for cancelled operations lasts before the cancelling is repeated.
const ROUND: Duration = Duration::from_millis(20);

pub(super) fn shutdown(cx: &Context, limit: Duration) -> usize {
    wake::unregister(cx.id());
    if !sys::same_process() {
        // The ring, the tasks' wakers and the door are the parent's: nothing of them is touched.
        return 0;
    }
    // The runtime that this one is dropped in, if any, is the current one again afterwards.
    let _entered = context::enter(cx);
    let deadline = Instant::now() + limit;
    cx.driver.close();
    drop_tasks(cx);
    drain(cx, deadline);
    let late = cx.door.close();
    for arrival in late {
        receive(cx, arrival);
    }
    drop_timers(cx);
    cx.driver.in_flight() as usize
}

fn drop_tasks(cx: &Context) {
    loop {
        take_arrivals(cx);
        if let Some(runnable) = cx.tasks.pop() {
            // Contained: a destructor that panics does not keep the others from running.
            drop(runnable);
            continue;
        }
        let wakers = cx.tasks.wakers();
        if wakers.is_empty() {
            return;
        }
        let before = cx.tasks.living();
        for waker in wakers {
            waker.wake();
        }
        if cx.tasks.ready() == 0 && cx.tasks.living() == before {
            // Cannot be: a living task that is woken becomes ready. Better to leak than to loop.
            return;
        }
    }
}

fn take_arrivals(cx: &Context) {
    if !cx.door.handshake().take() {
        return;
    }
    let mut arrivals = Vec::new();
    cx.door.take(&mut arrivals);
    for arrival in arrivals {
        receive(cx, arrival);
    }
}

fn receive(cx: &Context, arrival: Arrival<crate::run_queue::Runnable>) {
    match arrival {
        Arrival::Task(runnable) => drop(runnable),
        Arrival::Orphan(user_data) => cx.driver.orphan(crate::slot::SlotKey::from_user_data(user_data)),
        // All of them are dropped soon.
        Arrival::Timer(_) | Arrival::Wake(_) => {}
    }
}

fn drain(cx: &Context, deadline: Instant) {
    let mut panic = None;
    loop {
        note(&mut panic, cx.driver.act());
        cx.driver.orphan_the_rest();
        take_arrivals(cx);
        // Tasks that were woken by the above are dropped, not run.
        drop_tasks(cx);
        let now = Instant::now();
        if cx.driver.is_drained() || now >= deadline {
            break;
        }
        cx.driver.cancel_all();
        let until = cx.clock.ns((now + ROUND).min(deadline));
        let wait = match sys::monotonic_ns() {
            now_ns if now_ns < until => Wait::Until { deadline_ns: until, now_ns },
            _ => Wait::No,
        };
        if cx.driver.visit(wait).is_err() {
            // A ring that cannot be entered cannot be drained: what is in flight is leaked.
            break;
        }
    }
    if let Some(panic) = panic {
        // Out of a destructor nothing may panic.
        drop_quietly(panic);
    }
}

fn note(first: &mut Option<Panic>, panic: Option<Panic>) {
    match (first.is_some(), panic) {
        (false, panic) => *first = panic,
        (true, Some(panic)) => drop_quietly(panic),
        (true, None) => {}
    }
}

fn drop_timers(cx: &Context) {
    loop {
        let timer = cx.timers.borrow_mut().pop_due(u64::MAX);
        let Some(waker) = timer else { return };
        drop_quietly(waker);
    }
}
