//! Timers are never early, go when they are dropped, and cost nothing while nobody waits.
#![allow(clippy::async_yields_async, reason = "handles and futures are carried out of `block_on` on purpose")]

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn, ready};
use std::io::{Read as _, Write as _};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{Either, join_all, select};
use runtime::pipe::pipe;
use runtime::task::yield_now;
use runtime::time::{Elapsed, MissedTickBehavior, interval, interval_at, sleep, sleep_until, timeout, timeout_at};
use runtime::{Runtime, spawn};

use crate::alloc;
use crate::kit::{self, poll_with};
use crate::support::{Rng, cpu, in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(60);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_time_limit_ends_also_what_spends_all_of_every_poll() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let past = Instant::now();
        let busy = async || {
            loop {
                sleep_until(past).await;
            }
        };
        for limit in [Duration::ZERO, ms(20)] {
            assert!(timeout(limit, busy()).await.is_err());
            let mut work = Box::pin(busy());
            let mut pause = Box::pin(sleep(limit));
            poll_fn(|task| {
                assert!(work.poll_unpin(task).is_pending());
                pause.poll_unpin(task)
            })
            .await;
        }
        // Limits that are over one after the other still let others run.
        let turns = Rc::new(Cell::new(0));
        let other = spawn({
            let turns = Rc::clone(&turns);
            async move {
                loop {
                    turns.set(turns.get() + 1);
                    yield_now().await;
                }
            }
        });
        for _ in 0..10_000 {
            assert!(timeout_at(past, pending::<()>()).await.is_err());
        }
        let mut pause = Box::pin(sleep_until(past));
        for _ in 0..10_000 {
            pause.as_mut().await;
            pause.as_mut().reset(past);
        }
        assert!(turns.get() > 50, "{} turns of another task", turns.get());
        drop(other);
    });
}

#[test]
fn sleeps_are_never_early_though_much_else_completes() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let sleeps: Vec<_> = (0..20)
            .map(|n| {
                let limit = Duration::from_micros(20_000 + n * 9_473);
                spawn(async move {
                    let start = Instant::now();
                    sleep(limit).await;
                    assert!(start.elapsed() >= limit, "{:?} instead of {limit:?}", start.elapsed());
                })
            })
            .collect();
        let (tx, rx) = pipe().unwrap();
        let mut trips = 0;
        let (mut out, mut back) = (vec![1], Vec::with_capacity(1));
        while trips < 10_000 || sleeps.iter().any(|task| !task.is_finished()) {
            // The read comes first, so that it is in the ring and completes there.
            let (read, wrote) = futures::join!(rx.read(back), tx.write_all(out));
            (out, back) = (wrote.1, read.1);
            trips += 1;
        }
        let completions = runtime::metrics().completions;
        assert!(completions >= 10_000, "only {completions} of {trips} round trips were in the ring");
        for task in sleeps {
            task.await.unwrap();
        }
    });
}

#[test]
fn no_deadline_of_any_length_is_early() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut rng = Rng(0x5eed);
        for _ in 0..400 {
            let limit = Duration::from_nanos(rng.below(1_500_000));
            let start = Instant::now();
            sleep(limit).await;
            assert!(start.elapsed() >= limit);
            let deadline = Instant::now() + limit;
            sleep_until(deadline).await;
            assert!(Instant::now() >= deadline);
            let start = Instant::now();
            assert_eq!(
                timeout(limit, pending::<()>()).await.map_err(|error| error.to_string()),
                Err("deadline has elapsed".into())
            );
            assert!(start.elapsed() >= limit);
        }
    });
}

#[test]
fn sleeps_in_a_row_do_not_take_twice_as_long() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let start = Instant::now();
        for _ in 0..100 {
            sleep(ms(5)).await;
        }
        let took = start.elapsed();
        assert!(took >= ms(500) && took < ms(1_500), "{took:?}");
    });
}

#[test]
fn an_interval_keeps_its_phase() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let start = Instant::now();
        let mut ticks = interval_at(start, ms(10));
        for n in 0..=100 {
            let due = ticks.tick().await;
            assert_eq!(due, start + ms(10) * n);
            assert!(Instant::now() >= due);
            thread::sleep(ms(3));
        }
        let took = start.elapsed();
        assert!(took >= ms(1_000) && took < ms(1_500), "{took:?}");
    });
}

#[test]
fn the_first_timer_and_the_first_wake_of_a_process_are_not_slow() {
    in_child("timer::the_first_timer_and_the_first_wake_of_a_process_are_not_slow", LIMIT, || {
        let (done, wait) = mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let idle: Vec<_> = (0..4)
            .map(|_| {
                let wait = std::sync::Arc::clone(&wait);
                thread::spawn(move || assert!(wait.lock().unwrap().recv().is_err()))
            })
            .collect();
        let rt = Runtime::new().unwrap();
        let start = Instant::now();
        rt.block_on(sleep(ms(10)));
        let took = start.elapsed();
        assert!(took >= ms(10) && took < ms(100), "the first sleep took {took:?}");
        let (tx, rx) = futures::channel::oneshot::channel();
        let peer = thread::spawn(move || {
            thread::sleep(ms(20));
            tx.send(Instant::now()).unwrap();
        });
        let sent = rt.block_on(rx).unwrap();
        assert!(sent.elapsed() < ms(100), "the first wake took {:?}", sent.elapsed());
        peer.join().unwrap();
        drop(done);
        idle.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_ticking_runtime_sleeps_between_its_ticks() {
    in_child("timer::a_ticking_runtime_sleeps_between_its_ticks", LIMIT, || {
        Runtime::new().unwrap().block_on(async {
            let mut ticks = interval(ms(10));
            ticks.tick().await;
            let (before, used) = (runtime::metrics(), cpu());
            for _ in 0..100 {
                ticks.tick().await;
            }
            let (after, used) = (runtime::metrics(), cpu() - used);
            assert!(used < ms(80), "{used:?} of CPU time in a hundred ticks");
            assert!(after.enters - before.enters < 250, "{} enters", after.enters - before.enters);
            assert!(after.turns - before.turns < 400, "{} turns", after.turns - before.turns);
        });
    });
}

#[test]
fn a_timer_that_is_dropped_leaves_nothing() {
    in_child("timer::a_timer_that_is_dropped_leaves_nothing", LIMIT, || {
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            let hour = Duration::from_secs(3600);
            let before = alloc::live();
            for _ in 0..200_000 {
                timeout(hour, ready(1)).await.unwrap();
            }
            for _ in 0..50_000 {
                assert!(sleep(hour).now_or_never().is_none());
                assert!(poll_with(&mut sleep(hour), Waker::noop()).is_pending());
            }
            assert_eq!(runtime::metrics().timers, 0);
            let grown = alloc::live() - before;
            assert!(grown < 1 << 20, "{grown} bytes more than before");
        });
    });
}

#[test]
fn a_deadline_counts_from_the_call() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let made = Instant::now();
        let (slept, limited) = (sleep(ms(100)), timeout(ms(100), pending::<()>()));
        let mut ticks = interval(ms(100));
        let made = made..=Instant::now();
        ticks.tick().await;
        thread::sleep(ms(120));
        let start = Instant::now();
        slept.await;
        assert!(limited.await.is_err());
        let due = ticks.tick().await;
        assert!(start.elapsed() < ms(80), "{:?} after it was due", start.elapsed());
        assert!(made.contains(&(due - ms(100))), "the tick counts from the making of the interval");
    });
}

#[test]
fn no_timer_is_lost_between_drops_and_wakes() {
    let _watchdog = watchdog(LIMIT);
    let threads: Vec<_> = (1..=2)
        .map(|seed| {
            thread::spawn(move || {
                Runtime::new().unwrap().block_on(async {
                    let tasks: Vec<_> = (0..20)
                        .map(|n| {
                            spawn(async move {
                                let mut rng = Rng(seed * 1_000 + n + 1);
                                for _ in 0..500 {
                                    let mut micros = || Duration::from_micros(rng.below(3_000));
                                    let (a, b) = (micros(), micros());
                                    let start = Instant::now();
                                    match select(sleep(a), sleep(b)).await {
                                        Either::Left(..) => assert!(start.elapsed() >= a),
                                        Either::Right(..) => assert!(start.elapsed() >= b),
                                    }
                                }
                            })
                        })
                        .collect();
                    for task in tasks {
                        task.await.unwrap();
                    }
                    assert_eq!(runtime::metrics().timers, 0);
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn timers_fire_in_the_order_of_their_deadlines() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut rng = Rng(77);
        // All have to be armed before the first is due: on a busy machine that may take more than one try.
        for wait in [50, 200, 800, 3_200] {
            let base = Instant::now() + ms(wait);
            let fired: Rc<RefCell<Vec<u64>>> = Rc::default();
            let tasks: Vec<_> = (0..5_000)
                .map(|_| {
                    let (after, fired) = (rng.below(20_000_000), Rc::clone(&fired));
                    spawn(async move {
                        sleep_until(base + Duration::from_nanos(after)).await;
                        fired.borrow_mut().push(after);
                    })
                })
                .collect();
            while runtime::metrics().timers < 5_000 && Instant::now() < base {
                yield_now().await;
            }
            let in_time = Instant::now() < base;
            join_all(tasks).await;
            if in_time {
                assert!(fired.borrow().is_sorted());
                return;
            }
        }
        println!("SKIP: the machine is too busy to arm five thousand timers in three seconds");
    });
}

#[test]
fn missed_ticks_come_as_they_were_asked_for() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        for behavior in [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip] {
            // A first tick that is late, on a busy machine, would count as missed: then it is tried again.
            let (start, mut ticks) = loop {
                let start = Instant::now();
                let mut ticks = interval_at(start, ms(20));
                ticks.set_missed_tick_behavior(behavior);
                assert_eq!(ticks.missed_tick_behavior(), behavior);
                assert_eq!(ticks.tick().await, start);
                if start.elapsed() < ms(4) {
                    break (start, ticks);
                }
            };
            thread::sleep(ms(110));
            // The one that was due first comes at once in any case.
            assert_eq!(ticks.tick().await, start + ms(20));
            let taken = Instant::now();
            let next = ticks.tick().await;
            match behavior {
                MissedTickBehavior::Burst => assert_eq!(next, start + ms(40)),
                MissedTickBehavior::Delay => {
                    assert!(next >= start + ms(130) && next <= taken + ms(20), "{:?}", next - start);
                }
                MissedTickBehavior::Skip => {
                    let late = (next - start).as_nanos() as u64;
                    assert!(next >= start + ms(120) && next <= taken + ms(20), "{:?}", next - start);
                    assert_eq!(late % ms(20).as_nanos() as u64, 0, "the phase is kept");
                }
            }
        }
    });
}

#[test]
fn a_burst_of_missed_ticks_lets_others_run() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut ticks = interval_at(Instant::now() - Duration::from_secs(1), Duration::from_micros(10));
        let turns = Rc::new(Cell::new(0));
        let count = Rc::clone(&turns);
        spawn(async move {
            loop {
                count.set(count.get() + 1);
                yield_now().await;
            }
        });
        for _ in 0..10_000 {
            ticks.tick().await;
        }
        assert!(turns.get() >= 10_000 / 129, "others had {} turns", turns.get());
    });
}

#[test]
fn a_tick_that_was_not_taken_is_not_used_up() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let start = Instant::now();
        let mut ticks = interval_at(start + ms(300), ms(300));
        assert!(timeout(ms(1), ticks.tick()).await.is_err());
        assert!(ticks.tick().now_or_never().is_none());
        assert_eq!(ticks.tick().await, start + ms(300));
        let before = Instant::now();
        ticks.reset();
        let next = ticks.tick().await;
        assert!(next >= before + ms(300) && Instant::now() >= next);
        assert_eq!(ticks.period(), ms(300));
    });
}

#[test]
fn far_away_deadlines_do_not_overflow() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut far = [
            Duration::MAX,
            Duration::from_secs(i64::MAX as u64),
            Duration::from_secs(i64::MAX as u64 / 2),
            Duration::from_secs(u64::from(u32::MAX)),
            Duration::from_secs(1 << 40),
            Duration::from_nanos(u64::MAX),
        ]
        .map(sleep);
        for timer in &mut far {
            assert!(kit::poll_once(timer).await.is_pending());
        }
        // Alone with them the thread sleeps, and other things still end that sleep.
        let (tx, rx) = pipe().unwrap();
        let mut other = kit::std_end(&tx);
        let peer = thread::spawn(move || {
            thread::sleep(ms(20));
            other.write_all(b"x").unwrap();
        });
        assert_eq!(timeout(Duration::MAX, rx.read(Vec::with_capacity(8))).await.unwrap().1, b"x");
        sleep(ms(1)).await;
        for timer in &mut far {
            assert!(!timer.is_elapsed() && kit::poll_once(timer).await.is_pending());
        }
        let mut ticks = interval(Duration::MAX);
        ticks.tick().await;
        assert!(timeout(ms(1), ticks.tick()).await.is_err());
        peer.join().unwrap();
    });
}

#[test]
fn times_past_are_reached_at_once() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let long_ago = Instant::now() - Duration::from_secs(1);
        sleep_until(long_ago).await;
        sleep(Duration::ZERO).await;
        // What is ready wins even when no time is left.
        assert_eq!(timeout_at(long_ago, ready(3)).await, Ok(3));
        assert_eq!(timeout(Duration::ZERO, ready(3)).await, Ok(3));
        assert!(timeout_at(long_ago, pending::<()>()).await.is_err());
        let (tx, rx) = pipe().unwrap();
        assert!(timeout(Duration::ZERO, rx.read(vec![0; 8])).await.is_err());
        tx.write_all("later").await.0.unwrap();
        assert_eq!(rx.read(Vec::with_capacity(8)).await.1, b"later");
    });
}

#[test]
fn a_timeout_becomes_an_io_error() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let elapsed: Elapsed = timeout(Duration::ZERO, pending::<()>()).await.unwrap_err();
        assert_eq!(std::io::Error::from(elapsed).kind(), std::io::ErrorKind::TimedOut);
    });
}

#[test]
fn a_sleep_can_be_set_anew() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut timer = std::pin::pin!(sleep(Duration::from_secs(3600)));
        assert!(poll_fn(|task| Poll::Ready(timer.as_mut().poll(task))).await.is_pending());
        // Earlier, later, and after it has completed.
        for wait in [80, 120, 80] {
            let deadline = Instant::now() + ms(wait);
            timer.as_mut().reset(deadline);
            assert_eq!((timer.deadline(), timer.is_elapsed()), (deadline, false));
            timer.as_mut().await;
            assert!(Instant::now() >= deadline && timer.is_elapsed());
        }
        assert_eq!(runtime::metrics().timers, 0);
    });
}

#[test]
fn a_sleep_that_another_task_sets_anew_still_wakes_its_own() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let timer = Rc::new(RefCell::new(Box::pin(sleep(Duration::from_secs(3600)))));
        let waits = Rc::clone(&timer);
        let task = spawn(poll_fn(move |task| waits.borrow_mut().as_mut().poll(task)));
        yield_now().await;
        let deadline = Instant::now() + ms(5);
        timer.borrow_mut().as_mut().reset(deadline);
        timeout(Duration::from_secs(5), task).await.expect("the task was not woken").unwrap();
        assert!(Instant::now() >= deadline);
    });
}

#[test]
fn a_timer_wakes_who_polled_it_last() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut timer = sleep(ms(5));
        let (first, second) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for count in [&first, &second] {
            let count = Rc::clone(count);
            let waker = kit::waker(move || count.set(count.get() + 1));
            assert!(poll_with(&mut timer, &waker).is_pending());
        }
        kit::until(|| second.get() > 0).await;
        assert_eq!((first.get(), second.get()), (0, 1));
        assert_eq!(runtime::metrics().timers, 0);
    });
}

#[test]
fn timers_that_are_dropped_outside_the_runtime_leave_it() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let hour = Duration::from_secs(3600);
    let armed = rt.block_on(async {
        let mut armed: Vec<_> = (0..1_000).map(|_| sleep(hour)).collect();
        for timer in &mut armed {
            assert!(kit::poll_once(timer).await.is_pending());
        }
        armed
    });
    assert_eq!(rt.metrics().timers, 1_000);
    drop(armed);
    // New ones take the places of the old ones, and are not hit by what arrives late.
    rt.block_on(async {
        let mut others: Vec<_> = (0..1_000).map(|_| sleep(ms(700))).collect();
        for timer in &mut others {
            assert!(kit::poll_once(timer).await.is_pending());
        }
        yield_now().await;
        assert_eq!(runtime::metrics().timers, 1_000);
        join_all(others).await;
        assert_eq!(runtime::metrics().timers, 0);
    });
    let mut last = sleep(hour);
    rt.block_on(async { assert!(kit::poll_once(&mut last).await.is_pending()) });
    drop(rt);
    drop(last);
}

#[test]
fn a_timer_that_fired_unseen_is_seen_later() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let task = rt.block_on(async {
        let task = spawn(async {
            sleep(ms(5)).await;
            1
        });
        yield_now().await;
        task
    });
    // Due while the runtime does not run.
    thread::sleep(ms(10));
    let start = Instant::now();
    assert_eq!(rt.block_on(task).unwrap(), 1);
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn timers_and_a_flood_of_completions_do_not_hold_each_other_up() {
    let _watchdog = watchdog(LIMIT);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let peer = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut buf = [0; 4096];
        // Echoes until the other side closes.
        while let Ok(n) = stream.read(&mut buf)
            && n > 0
        {
            stream.write_all(&buf[..n]).unwrap();
        }
    });
    Runtime::new().unwrap().block_on(async {
        let stream = runtime::net::TcpStream::connect(to).await.unwrap();
        let flood = spawn(async move {
            let mut buf = vec![1; 512];
            loop {
                buf = stream.write_all(buf).await.1;
                buf = stream.read(buf).await.1;
            }
        });
        let start = Instant::now();
        for _ in 0..50 {
            sleep(ms(2)).await;
        }
        assert!(start.elapsed() >= ms(100) && start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        flood.abort();
    });
    peer.join().unwrap();
}
