//! The task cell: who may name a task, for how long, and what happens when the names outlive it.
#![allow(clippy::async_yields_async, reason = "handles are carried out of `block_on` on purpose")]

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use runtime::exec::{Runtime, metrics};
use runtime::submit::submit;
use runtime::task::{AbortHandle, JoinHandle, spawn, yield_now};
use runtime_core as runtime;

use crate::kit::{self, OnDrop};
use crate::support::watchdog;

const LIMIT: Duration = Duration::from_secs(60);

/// A task that gives its waker away and waits until it was woken `wakes` times.
fn waker_of(wakes: usize) -> (JoinHandle<usize>, Rc<Cell<Option<Waker>>>) {
    let place = Rc::new(Cell::new(None));
    let given = Rc::clone(&place);
    let mut polls = 0;
    let handle = spawn(poll_fn(move |task| {
        given.set(Some(task.waker().clone()));
        polls += 1;
        if polls > wakes { Poll::Ready(polls) } else { Poll::Pending }
    }));
    (handle, place)
}

#[test]
fn a_waker_outlives_its_task_and_its_runtime() {
    let _watchdog = watchdog(LIMIT);
    let runtime = Runtime::new().unwrap();
    let (finished, aborted, left) = runtime.block_on(async {
        let (finished, finished_waker) = waker_of(0);
        finished.await.unwrap();
        let (aborted, aborted_waker) = waker_of(9);
        let (_left, left_waker) = waker_of(9);
        yield_now().await;
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        let wakers = [finished_waker, aborted_waker, left_waker].map(|place| place.take().unwrap());
        wakers.iter().for_each(Waker::wake_by_ref);
        yield_now().await;
        let [finished, aborted, left] = wakers;
        (finished, aborted, left)
    });
    drop(runtime);
    let wakers = [finished, aborted, left];
    wakers.iter().for_each(Waker::wake_by_ref);
    let there = thread::spawn(move || {
        let clones = wakers.clone();
        clones.into_iter().for_each(Waker::wake);
        wakers
    });
    drop(there.join().unwrap());
}

#[test]
fn a_task_that_is_woken_while_it_ends_is_polled_no_more() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let polls = Rc::new(Cell::new(0));
        for late in [false, true] {
            let count = Rc::clone(&polls);
            let mut destructor = Vec::new();
            let handle = spawn(poll_fn(move |task| {
                count.set(count.get() + 1);
                task.waker().wake_by_ref();
                if late {
                    // And once more from the destructor, when the task counts as idle.
                    let own = task.waker().clone();
                    destructor.push(OnDrop(move || own.wake_by_ref()));
                }
                Poll::Ready(())
            }));
            handle.await.unwrap();
        }
        for _ in 0..3 {
            yield_now().await;
        }
        assert_eq!(polls.get(), 2);
        assert_eq!(metrics().tasks, 0);
        assert_eq!(metrics().ready, 0);
    });
}

#[test]
fn a_destructor_may_wake_and_abort_its_own_task() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let stop: Rc<Cell<Option<AbortHandle>>> = Rc::default();
        let own = Rc::clone(&stop);
        let handle = spawn(async move {
            let _guard = OnDrop(move || {
                let stop = own.take().unwrap();
                stop.abort();
                assert!(!stop.is_finished(), "the future still exists");
            });
            pending::<()>().await;
        });
        stop.set(Some(handle.abort_handle()));
        yield_now().await;
        handle.abort();
        assert!(handle.await.unwrap_err().is_cancelled());
        yield_now().await;
        assert_eq!(metrics().tasks, 0);
    });
}

#[test]
fn an_abort_handle_works_from_anywhere_and_keeps_nothing_alive() {
    let _watchdog = watchdog(LIMIT);
    let dropped = Arc::new(AtomicUsize::new(0));
    let stop = Runtime::new().unwrap().block_on(async {
        let count = Arc::clone(&dropped);
        let handle = spawn(async move {
            let _guard = OnDrop(move || {
                count.fetch_add(1, Ordering::SeqCst);
            });
            pending::<Rc<()>>().await
        });
        yield_now().await;
        let stop = handle.abort_handle();
        let again = stop.clone();
        assert!(!stop.is_finished());
        thread::spawn(move || stop.abort()).join().unwrap();
        // The output is not `Send`, and the handle of the task need not leave for that.
        assert!(handle.await.unwrap_err().is_cancelled());
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        again.abort();
        again
    });
    assert!(stop.is_finished());
    stop.abort();
    thread::spawn(move || drop(stop)).join().unwrap();
}

#[test]
fn whoever_awaits_a_handle_with_a_waker_that_panics_gets_the_panic() {
    let _watchdog = watchdog(LIMIT);
    let runtime = Runtime::new().unwrap();
    let mut handle = runtime.block_on(async { spawn(async { yield_now().await }) });
    let waker = kit::waker(|| panic!("this waker panics"));
    assert!(kit::poll_with(&mut handle, &waker).is_pending());
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(async { kit::until(|| false).await })));
    assert_eq!(kit::text_of(&*result.unwrap_err()), "this waker panics");
    // The task is over all the same, and so is everything else in order.
    runtime.block_on(async {
        handle.await.unwrap();
        assert_eq!(metrics().tasks, 0);
        assert_eq!(spawn(async { 1 }).await.unwrap(), 1);
    });
}

#[test]
fn futures_and_outputs_of_every_shape_come_through() {
    #[repr(align(256))]
    struct Wide([u8; 300]);

    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        spawn(async {}).await.unwrap();
        let wide = Wide([7; 300]);
        let at = spawn(async move {
            let here = std::ptr::from_ref(&wide).addr();
            yield_now().await;
            assert_eq!(here, std::ptr::from_ref(&wide).addr(), "it does not move");
            (here, wide)
        });
        let (here, wide) = at.await.unwrap();
        assert_eq!(here % 256, 0);
        assert!(wide.0.iter().all(|&byte| byte == 7));
        let large = spawn(async { [5u64; 10_000] }).await.unwrap();
        assert!(large.iter().all(|&number| number == 5));
        // An output larger than its future, and the other way round, and one that nobody takes.
        let large = spawn(async { vec![String::from("x"); 3] }).await.unwrap();
        assert_eq!(large.concat(), "xxx");
        let big = [1u8; 4096];
        assert_eq!(spawn(async move { big.iter().map(|&n| u32::from(n)).sum::<u32>() }).await.unwrap(), 4096);
        drop(spawn(async { Box::new(1) }));
        let unread = spawn(async { Box::new(2) });
        kit::until(|| unread.is_finished()).await;
        drop(unread);
    });
}

#[test]
fn a_forgotten_operation_wakes_nobody_it_could_hurt() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        // Its task is over when the operation completes, and another has its place.
        spawn(async {
            let mut operation = submit(runtime::op::nop::Nop);
            assert!(kit::poll_once(&mut operation).await.is_pending());
            std::mem::forget(operation);
        })
        .await
        .unwrap();
        let polls = Rc::new(Cell::new(0));
        let count = Rc::clone(&polls);
        let other = spawn(poll_fn(move |_| {
            count.set(count.get() + 1);
            Poll::<()>::Pending
        }));
        for _ in 0..4 {
            yield_now().await;
        }
        assert!((1..=2).contains(&polls.get()), "a spurious poll at most");
        other.abort();
        assert!(other.await.unwrap_err().is_cancelled());
    });
}

#[test]
fn wakes_from_many_threads_are_neither_lost_nor_doubled_without_end() {
    const WAKES: usize = 2_000;
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (tx, rx) = mpsc::channel::<(Waker, Arc<AtomicUsize>)>();
        let rx = Arc::new(std::sync::Mutex::new(rx));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let rx = Arc::clone(&rx);
                thread::spawn(move || {
                    loop {
                        let Ok((waker, count)) = rx.lock().unwrap().recv() else { return };
                        count.fetch_add(1, Ordering::Relaxed);
                        waker.wake_by_ref();
                        drop(waker);
                    }
                })
            })
            .collect();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let tx = tx.clone();
                let count = Arc::new(AtomicUsize::new(0));
                let mut sent = 0;
                spawn(poll_fn(move |task| {
                    // Asks for one wake at a time: a lost one ends in the watchdog.
                    let came = count.load(Ordering::Relaxed);
                    if came == WAKES {
                        return Poll::Ready(());
                    }
                    if came == sent {
                        sent += 1;
                        tx.send((task.waker().clone(), Arc::clone(&count))).unwrap();
                    }
                    Poll::Pending
                }))
            })
            .collect();
        drop(tx);
        for task in tasks {
            task.await.unwrap();
        }
        for thread in threads {
            kit::until(|| thread.is_finished()).await;
            thread.join().unwrap();
        }
    });
}
