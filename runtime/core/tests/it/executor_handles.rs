//! What a `JoinHandle` promises: detaching, aborting, errors, awaiting from anywhere; and `spawn_blocking`.
#![allow(clippy::async_yields_async, reason = "handles and futures are carried out of `block_on` on purpose")]

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use runtime::task::{JoinError, JoinHandle, yield_now};
use runtime::time::{interval, sleep, timeout};
use runtime::{Runtime, spawn, spawn_blocking};

use crate::kit::{self, OnDrop, panic_text};
use crate::support::{in_child, threads, watchdog};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_dropped_handle_detaches_its_task() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let done = Rc::new(Cell::new(false));
        let mark = Rc::clone(&done);
        drop(spawn(async move {
            sleep(Duration::from_millis(2)).await;
            mark.set(true);
        }));
        kit::until(|| done.get()).await;
        assert_eq!(runtime::metrics().tasks, 0);
    });
}

#[test]
fn a_task_that_is_aborted_before_its_first_poll_never_runs() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let dropped = Rc::new(Cell::new(false));
        let mark = Rc::clone(&dropped);
        let guard = OnDrop(move || mark.set(true));
        let handle = spawn(async move {
            let _guard = guard;
            panic!("it ran");
        });
        handle.abort();
        handle.abort();
        let error = handle.await.unwrap_err();
        assert!(error.is_cancelled() && dropped.get());
    });
}

#[test]
fn an_aborted_task_stops_at_its_next_suspension() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let handle = spawn(async {
            loop {
                yield_now().await;
            }
        });
        yield_now().await;
        handle.abort();
        assert!(!handle.is_finished(), "it stops on its own turn");
        assert!(handle.await.unwrap_err().is_cancelled());
        let waits = spawn(pending::<()>());
        yield_now().await;
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        assert_eq!(runtime::metrics().tasks, 0);
    });
}

#[test]
fn a_task_may_abort_itself() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        // It stops at the suspension after the abort, and an output that it makes before counts.
        for suspends in [true, false] {
            let own: Rc<Cell<Option<JoinHandle<u32>>>> = Rc::default();
            let (slot, went_on) = (Rc::clone(&own), Rc::new(Cell::new(false)));
            let mark = Rc::clone(&went_on);
            own.set(Some(spawn(async move {
                let me = slot.take().unwrap();
                me.abort();
                assert!(!me.is_finished());
                slot.set(Some(me));
                if suspends {
                    yield_now().await;
                    mark.set(true);
                }
                5
            })));
            yield_now().await;
            yield_now().await;
            let result = own.take().unwrap().await;
            assert!(!went_on.get());
            assert_eq!(result.is_err_and(|error| error.is_cancelled()), suspends);
        }
    });
}

#[test]
fn a_task_may_be_aborted_from_another_thread() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    for round in 0..200 {
        rt.block_on(async {
            let home = thread::current().id();
            let guard = OnDrop(move || assert_eq!(thread::current().id(), home));
            let handle = spawn(async move {
                let _guard = guard;
                pending::<()>().await;
            });
            if round % 2 == 0 {
                yield_now().await;
            }
            let (tx, rx) = mpsc::channel();
            let other = thread::spawn(move || {
                handle.abort();
                tx.send(handle).unwrap();
            });
            // The thread sleeps here meanwhile, without anything else to do: the abort alone has to wake it.
            kit::until(|| other.is_finished()).await;
            assert!(rx.recv().unwrap().await.unwrap_err().is_cancelled());
        });
    }
}

#[test]
fn an_abort_from_another_thread_wakes_an_idle_runtime() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let handle = spawn(pending::<()>());
        let (tx, rx) = mpsc::channel::<JoinHandle<()>>();
        let other = thread::spawn(move || {
            let handle = rx.recv().unwrap();
            thread::sleep(Duration::from_millis(20));
            handle.abort();
            futures::executor::block_on(handle)
        });
        // No timer and no operation: nothing but the abort ends the sleep.
        let cancelled = Rc::new(Cell::new(false));
        let mark = Rc::clone(&cancelled);
        let guard = spawn(async move {
            let _guard = OnDrop(move || mark.set(true));
            pending::<()>().await;
        });
        yield_now().await;
        guard.abort();
        assert!(guard.await.is_err() && cancelled.get());
        tx.send(handle).unwrap();
        let result = spawn_blocking(move || other.join().unwrap()).await.unwrap();
        assert!(result.unwrap_err().is_cancelled());
    });
}

#[test]
fn aborting_what_has_finished_changes_nothing() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let handle = rt.block_on(async {
        let handle = spawn(async { 3 });
        assert!(!handle.is_finished());
        yield_now().await;
        assert!(handle.is_finished());
        // The place of the finished task in the list of the living belongs to somebody else now.
        let other = spawn(async {
            yield_now().await;
            4
        });
        handle.abort();
        assert_eq!(other.await.unwrap(), 4);
        assert_eq!(handle.await.unwrap(), 3);
        let late = spawn(pending::<()>());
        yield_now().await;
        late
    });
    drop(rt);
    handle.abort();
    assert!(handle.is_finished());
}

#[test]
fn a_join_error_says_what_happened() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let n = 7;
        let text = spawn(async { panic!("plain") }).await.unwrap_err();
        let formatted = spawn(async move { panic!("number {n}") }).await.unwrap_err();
        let other = spawn(async { std::panic::panic_any(9_u64) }).await.unwrap_err();
        let aborted = spawn(pending::<()>());
        aborted.abort();
        let cancelled = aborted.await.unwrap_err();

        assert!(text.is_panic() && !text.is_cancelled());
        assert!(cancelled.is_cancelled() && !cancelled.is_panic());
        assert_eq!(text.to_string(), "the task panicked: plain");
        assert_eq!(formatted.to_string(), "the task panicked: number 7");
        assert_eq!(other.to_string(), "the task panicked");
        assert_eq!(cancelled.to_string(), "the task was cancelled");
        assert_eq!(format!("{text:?}"), "JoinError::Panic(\"plain\")");
        assert_eq!(format!("{other:?}"), "JoinError::Panic(...)");
        assert_eq!(format!("{cancelled:?}"), "JoinError::Cancelled");

        assert_eq!(*other.into_panic().downcast::<u64>().unwrap(), 9);
        let cancelled = cancelled.try_into_panic().unwrap_err();
        assert!(panic_text(|| cancelled.into_panic()).contains("ask `is_panic` first"));
        let error = std::io::Error::from(formatted);
        assert!(error.to_string().contains("number 7"));
        assert!(error.get_ref().unwrap().downcast_ref::<JoinError>().unwrap().is_panic());
    });
}

#[test]
fn a_payload_that_panics_when_it_is_dropped_is_contained() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("a payload that panics in its destructor");
        }
    }
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        drop(spawn(async { std::panic::panic_any(Payload) }));
        let handle = spawn(async { std::panic::panic_any(Payload) });
        yield_now().await;
        drop(handle);
        drop(spawn_blocking(|| std::panic::panic_any(Payload)));
        assert_eq!(spawn_blocking(|| 1).await.unwrap() + spawn(async { 1 }).await.unwrap(), 2);
    });
}

#[test]
fn a_handle_outlives_its_runtime() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let (finished, pending, unpolled) = rt.block_on(async {
        let finished = spawn(async { vec![1, 2] });
        let pending = spawn(pending::<()>());
        yield_now().await;
        (finished, pending, spawn(async { 3 }))
    });
    drop(rt);
    assert!(finished.is_finished() && pending.is_finished() && unpolled.is_finished());
    assert_eq!(futures::executor::block_on(finished).unwrap(), [1, 2]);
    Runtime::new().unwrap().block_on(async {
        assert!(pending.await.unwrap_err().is_cancelled());
        assert!(unpolled.await.unwrap_err().is_cancelled());
    });
}

#[test]
fn a_handle_may_be_awaited_on_another_thread() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let (early, waiters) = rt.block_on(async {
        let slow = spawn(async {
            sleep(Duration::from_millis(20)).await;
            "slow".to_owned()
        });
        let panics = spawn(async {
            sleep(Duration::from_millis(20)).await;
            panic!("carried over");
        });
        let never = spawn(pending::<()>());
        let early = spawn(async { 1 });
        let waiters = (
            thread::spawn(|| futures::executor::block_on(slow).unwrap()),
            // The other side is a runtime of its own this time.
            thread::spawn(|| Runtime::new().unwrap().block_on(panics).map(|()| 0).unwrap_err()),
            thread::spawn(|| futures::executor::block_on(never).unwrap_err()),
        );
        kit::until(|| waiters.0.is_finished() && waiters.1.is_finished()).await;
        (early, waiters)
    });
    drop(rt);
    assert_eq!(thread::spawn(|| futures::executor::block_on(early).unwrap()).join().unwrap(), 1);
    assert_eq!(waiters.0.join().unwrap(), "slow");
    assert_eq!(kit::text_of(&*waiters.1.join().unwrap().into_panic()), "carried over");
    assert!(waiters.2.join().unwrap().is_cancelled());
}

#[test]
fn giving_up_on_a_handle_loses_nothing() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut handle = spawn(async {
            sleep(Duration::from_millis(30)).await;
            8
        });
        assert!(timeout(Duration::from_millis(1), &mut handle).await.is_err());
        // And then another task waits for it.
        assert_eq!(spawn(handle).await.unwrap().unwrap(), 8);
    });
}

#[test]
fn a_handle_wakes_who_polled_it_last() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (first, second) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let wakes = |count: &Rc<Cell<u32>>| {
            let count = Rc::clone(count);
            kit::waker(move || count.set(count.get() + 1))
        };
        let mut handle = spawn(yield_now());
        assert!(kit::poll_with(&mut handle, &wakes(&first)).is_pending());
        assert!(kit::poll_with(&mut handle, &wakes(&second)).is_pending());
        kit::until(|| handle.is_finished()).await;
        assert_eq!((first.get(), second.get()), (0, 1));
        assert!(handle.await.is_ok());
    });
}

#[test]
fn a_blocking_job_returns_its_value_or_its_panic() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        assert_eq!(spawn_blocking(|| "value".to_owned()).await.unwrap(), "value");
        let error = spawn_blocking(|| panic!("of the job")).await.map(|()| 0).unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: of the job");
        // The threads survived it.
        let jobs: Vec<_> = (0..1_000).map(|n| spawn_blocking(move || n)).collect();
        for (n, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.await.unwrap(), n);
        }
    });
}

#[test]
fn sleeping_jobs_do_not_stop_a_ticker() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (tx, rx) = mpsc::channel::<()>();
        let rx = Arc::new(std::sync::Mutex::new(rx));
        let running = Arc::new(AtomicUsize::new(0));
        let jobs: Vec<_> = (0..4)
            .map(|_| {
                let (rx, running) = (Arc::clone(&rx), Arc::clone(&running));
                spawn_blocking(move || {
                    running.fetch_add(1, Ordering::SeqCst);
                    rx.lock().unwrap().recv().unwrap_err();
                })
            })
            .collect();
        kit::until(|| running.load(Ordering::SeqCst) == 4).await;
        let mut ticker = interval(Duration::from_millis(2));
        let start = Instant::now();
        for _ in 0..50 {
            ticker.tick().await;
        }
        assert!(start.elapsed() >= Duration::from_millis(98));
        assert!(jobs.iter().all(|job| !job.is_finished()), "they were to block during all of it");
        drop(tx);
        for job in jobs {
            job.await.unwrap();
        }
    });
}

#[test]
fn a_runtime_waits_for_its_blocking_jobs_to_the_limit_and_then_abandons_them() {
    let _watchdog = watchdog(LIMIT);
    let (tx, rx) = mpsc::channel::<()>();
    let rt = Runtime::new().unwrap();
    let job = rt.block_on(async {
        let job = spawn_blocking(move || rx.recv().is_err());
        let waits = spawn(async move { job.await.unwrap() });
        yield_now().await;
        waits
    });
    let limit = Duration::from_millis(50);
    let start = std::time::Instant::now();
    assert_eq!(rt.shutdown_timeout(limit), 0);
    assert!(start.elapsed() >= limit);
    assert!(futures::executor::block_on(job).unwrap_err().is_cancelled(), "the task was, the job is not");
    drop(tx);
}

#[test]
fn a_dropped_runtime_lets_a_short_blocking_job_finish() {
    let _watchdog = watchdog(LIMIT);
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let rt = Runtime::new().unwrap();
    let job = Arc::clone(&done);
    rt.block_on(async move {
        drop(spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(30));
            job.store(true, std::sync::atomic::Ordering::SeqCst);
        }));
    });
    drop(rt);
    assert!(done.load(std::sync::atomic::Ordering::SeqCst));
}

#[test]
fn a_job_that_waits_for_a_thread_can_be_aborted_and_threads_are_bounded() {
    let name = "executor_handles::a_job_that_waits_for_a_thread_can_be_aborted_and_threads_are_bounded";
    in_child(name, LIMIT, || {
        let rt = Runtime::new().unwrap();
        let before = threads();
        rt.block_on(async {
            let gate = Arc::new(std::sync::Barrier::new(129));
            let jobs: Vec<_> = (0..128)
                .map(|_| {
                    let gate = Arc::clone(&gate);
                    spawn_blocking(move || _ = gate.wait())
                })
                .collect();
            let never = spawn_blocking(|| panic!("it began"));
            let later = spawn_blocking(|| 5);
            never.abort();
            assert!(threads() - before <= 128);
            gate.wait();
            assert!(never.await.map(|()| 0).unwrap_err().is_cancelled());
            assert_eq!(later.await.unwrap(), 5);
            for job in jobs {
                job.await.unwrap();
            }
        });
    });
}

#[test]
fn the_captures_of_a_finished_task_are_dropped_before_its_handle_is_ready() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let token = Rc::new(());
        let inside = Rc::clone(&token);
        let task = spawn(async move {
            yield_now().await;
            drop(Rc::clone(&inside));
        });
        task.await.unwrap();
        assert_eq!(Rc::strong_count(&token), 1);
    });
}

#[test]
fn a_task_that_completes_while_its_handle_is_polled_elsewhere_is_never_lost() {
    let _watchdog = watchdog(LIMIT);
    let (tx, rx) = mpsc::channel::<JoinHandle<usize>>();
    let other = thread::spawn(move || rx.iter().map(|handle| futures::executor::block_on(handle).unwrap()).sum());
    Runtime::new().unwrap().block_on(async {
        for n in 0..5_000 {
            tx.send(spawn(async move {
                let mut polled = n % 3;
                poll_fn(|task| {
                    if polled == 0 {
                        return Poll::Ready(());
                    }
                    polled -= 1;
                    task.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
                n
            }))
            .unwrap();
            if n % 16 == 0 {
                yield_now().await;
            }
        }
        drop(tx);
        kit::until(|| other.is_finished()).await;
    });
    let sum: usize = other.join().unwrap();
    assert_eq!(sum, (0..5_000).sum());
}
