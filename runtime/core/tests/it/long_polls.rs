//! The counter of polls that take too long: it sees them wherever they are, and nothing else.

use std::time::Duration;

use futures::future::join_all;
use runtime::task::yield_now;
use runtime::{Builder, metrics, spawn};

use crate::support::watchdog;

const LIMIT: Duration = Duration::from_secs(20);
const ALLOWED: Duration = Duration::from_millis(40);
const TOO_LONG: Duration = Duration::from_millis(60);
const NEVER: Duration = Duration::from_secs(3600);

/// Holds up the thread, as a task that computes does.
fn block() {
    std::thread::sleep(TOO_LONG);
}

#[test]
fn a_long_poll_is_counted_in_any_place_of_a_turn() {
    let _watchdog = watchdog(LIMIT);
    let rt = Builder::new().long_poll(ALLOWED).build().unwrap();
    for (before, behind) in [(0, 0), (3, 0), (7, 7), (8, 40), (100, 3)] {
        let counted = rt.block_on(async move {
            let counted = metrics().long_polls;
            let others = || (0..before.max(behind)).map(|_| spawn(yield_now()));
            let first: Vec<_> = others().take(before).collect();
            let long = spawn(async { block() });
            let rest: Vec<_> = others().take(behind).collect();
            long.await.unwrap();
            join_all(first.into_iter().chain(rest)).await;
            metrics().long_polls - counted
        });
        assert!(counted >= 1, "one long poll behind {before} and before {behind} others");
    }
    // The future of `block_on` itself, with and without a suspension behind it.
    let before = rt.metrics().long_polls;
    rt.block_on(async { block() });
    rt.block_on(async {
        block();
        yield_now().await;
    });
    assert!(rt.metrics().long_polls >= before + 2);
}

#[test]
fn without_a_limit_and_below_it_nothing_is_counted() {
    let _watchdog = watchdog(LIMIT);
    for builder in [Builder::new(), Builder::new().long_poll(NEVER)] {
        let rt = builder.build().unwrap();
        rt.block_on(async { spawn(async { block() }).await.unwrap() });
        assert_eq!(rt.metrics().long_polls, 0);
    }
}

#[test]
fn sleeping_is_not_polling() {
    let _watchdog = watchdog(LIMIT);
    const ALLOWED: Duration = Duration::from_millis(300);
    let rt = Builder::new().long_poll(ALLOWED).build().unwrap();
    rt.block_on(async {
        let sleeping = (0..20).map(|_| spawn(runtime::time::sleep(ALLOWED * 2)));
        join_all(sleeping.collect::<Vec<_>>()).await;
    });
    assert_eq!(rt.metrics().long_polls, 0);
}
