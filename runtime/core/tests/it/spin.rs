//! The spin before the park: it changes when a thread sleeps, never what happens, and an idle program does not do it.

use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use runtime::time::sleep;
use runtime::{Builder, metrics};

use crate::support::{in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(60);
const ROUNDS: usize = 5_000;

/// Exchanges with a thread that answers as soon as it can.
async fn exchange() {
    let (tx, rx) = mpsc::channel::<(Waker, mpsc::SyncSender<usize>)>();
    let other = thread::spawn(move || {
        for (n, (waker, answer)) in rx.iter().enumerate() {
            answer.send(n).unwrap();
            waker.wake();
        }
    });
    for n in 0..ROUNDS {
        let (answer, answered) = mpsc::sync_channel(1);
        let mut asked = false;
        let got = std::future::poll_fn(|task| {
            if !std::mem::replace(&mut asked, true) {
                tx.send((task.waker().clone(), answer.clone())).unwrap();
            }
            answered.try_recv().map_or(Poll::Pending, Poll::Ready)
        });
        assert_eq!(got.await, n);
    }
    drop(tx);
    other.join().unwrap();
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn wakes_from_elsewhere_arrive_with_and_without_it() {
    let _watchdog = watchdog(LIMIT);
    for limit in [Duration::ZERO, Duration::from_micros(100), Duration::MAX] {
        Builder::new().spin(limit).build().unwrap().block_on(async {
            exchange().await;
            let metrics = metrics();
            assert!(limit > Duration::ZERO || metrics.spins == 0, "it is switched off");
            assert!(metrics.spins_won <= metrics.spins);
        });
    }
}

#[test]
fn an_idle_runtime_sleeps_after_load() {
    in_child("spin::an_idle_runtime_sleeps_after_load", LIMIT, || {
        Builder::new().build().unwrap().block_on(async {
            exchange().await;
            let (before, cpu) = (metrics(), cpu_time());
            sleep(Duration::from_secs(1)).await;
            let (after, cpu) = (metrics(), cpu_time() - cpu);
            assert!(after.spins - before.spins <= 1, "what the record of the load leads to");
            assert!(after.enters - before.enters <= 2, "{}", after.enters - before.enters);
            assert!(cpu < Duration::from_millis(1), "{cpu:?} of a second");
        });
    });
}
