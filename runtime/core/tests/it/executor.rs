//! Tasks share the thread fairly, are freed, and never take it down.
#![allow(clippy::async_yields_async, reason = "handles and futures are carried out of `block_on` on purpose")]

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::io::Write as _;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use runtime::net::{TcpListener, TcpStream};
use runtime::pipe::pipe;
use runtime::task::yield_now;
use runtime::time::{sleep, sleep_until};
use runtime::{Runtime, spawn};

use crate::alloc;
use crate::kit::{self, OnDrop, panic_text};
use crate::support::{in_child, run_child, watchdog};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn wakers_may_be_cloned_woken_and_dropped_on_any_thread() {
    in_child("executor::wakers_may_be_cloned_woken_and_dropped_on_any_thread", LIMIT, || {
        wake_from_two_threads(500);
        let before = alloc::live();
        wake_from_two_threads(2_000);
        let grown = alloc::live() - before;
        assert!(grown < 64 * 1024, "{grown} bytes more than before");
    });
}

/// Each round a task publishes its waker to two threads, which use it while the task completes and its handle goes.
fn wake_from_two_threads(rounds: usize) {
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (tx, rx) = mpsc::channel::<Waker>();
            let thread = thread::spawn(move || {
                for waker in rx {
                    let clone = waker.clone();
                    clone.wake_by_ref();
                    drop(clone);
                    let again = waker.clone();
                    again.wake();
                    waker.wake();
                }
            });
            (tx, thread)
        })
        .collect();
    let finished = Rc::new(Cell::new(0));
    Runtime::new().unwrap().block_on(async {
        for round in 0..rounds {
            let mut senders: Vec<_> = threads.iter().map(|(tx, _)| tx.clone()).collect();
            let count = Rc::clone(&finished);
            let handle = spawn(async move {
                poll_fn(|task| {
                    if senders.is_empty() {
                        return Poll::Ready(());
                    }
                    senders.drain(..).for_each(|tx| tx.send(task.waker().clone()).unwrap());
                    Poll::Pending
                })
                .await;
                count.set(count.get() + 1);
                vec![round; 8]
            });
            match round % 3 {
                0 => drop(handle),
                1 => assert_eq!(handle.await.unwrap(), [round; 8]),
                _ => {
                    yield_now().await;
                    drop(handle);
                }
            }
            kit::until(|| finished.get() == round + 1).await;
        }
    });
    for (tx, thread) in threads {
        drop(tx);
        thread.join().unwrap();
    }
}

#[test]
fn a_yielding_task_goes_to_the_back_of_the_queue() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let flag = Rc::new(Cell::new(false));
        let seen = Rc::clone(&flag);
        let first = spawn(async move {
            let mut turns = 0;
            while !seen.get() {
                turns += 1;
                yield_now().await;
            }
            turns
        });
        spawn(async move { flag.set(true) });
        let turns = first.await.unwrap();
        assert!(turns <= 3, "the other task ran after {turns} turns only");
    });
}

#[test]
fn yielding_tasks_take_turns() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let counts: Rc<[Cell<u32>; 10]> = Rc::default();
        let tasks: Vec<_> = (0..10)
            .map(|me| {
                let counts = Rc::clone(&counts);
                spawn(async move {
                    for _ in 0..1_000 {
                        counts[me].set(counts[me].get() + 1);
                        let (min, max) = (counts.iter().min().unwrap().get(), counts.iter().max().unwrap().get());
                        assert!(max - min <= 1, "one task ran {max} times, another {min} times");
                        yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_yielding_block_on_future_lets_tasks_run() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let ran = Rc::new(Cell::new(false));
        let mark = Rc::clone(&ran);
        spawn(async move { mark.set(true) });
        yield_now().await;
        assert!(ran.get());
    });
}

#[test]
fn always_ready_tasks_do_not_starve_io() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let done = Rc::new(Cell::new(false));
        for _ in 0..3 {
            let done = Rc::clone(&done);
            spawn(async move {
                while !done.get() {
                    yield_now().await;
                }
            });
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let start = Instant::now();
        let client = kit::echo_client(listener.local_addr().unwrap(), 100);
        kit::echo_once(&listener).await;
        assert!(start.elapsed() < Duration::from_secs(5), "{:?} for a hundred round trips", start.elapsed());
        sleep(Duration::from_millis(1)).await;
        done.set(true);
        client.join().unwrap();
    });
}

#[test]
fn a_hog_delays_others_by_one_slice() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let done = Rc::new(Cell::new(false));
        let stop = Rc::clone(&done);
        spawn(async move {
            while !stop.get() {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(1) {
                    std::hint::spin_loop();
                }
                yield_now().await;
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = kit::echo_client(listener.local_addr().unwrap(), 200);
        kit::echo_once(&listener).await;
        let mut took = client.join().unwrap();
        took.sort_unstable();
        // The machine may be busy with other things: the bulk is held to the slice, the tail is only bounded.
        assert!(took[180] < Duration::from_millis(50), "p90 of a round trip is {:?}", took[180]);
        assert!(took[198] < Duration::from_millis(500), "p99 of a round trip is {:?}", took[198]);
        let mut late: Vec<_> = Vec::new();
        for _ in 0..20 {
            let start = Instant::now();
            sleep(Duration::from_millis(5)).await;
            late.push(start.elapsed() - Duration::from_millis(5));
        }
        late.sort_unstable();
        assert!(late[10] < Duration::from_millis(50), "a sleep is {:?} late", late[10]);
        done.set(true);
    });
}

/// A sibling that counts the turns it gets until it is told to stop.
fn count_turns(stop: &Rc<Cell<bool>>) -> Rc<Cell<u32>> {
    let turns = Rc::new(Cell::new(0));
    let (stop, count) = (Rc::clone(stop), Rc::clone(&turns));
    spawn(async move {
        while !stop.get() {
            count.set(count.get() + 1);
            yield_now().await;
        }
    });
    turns
}

#[test]
fn a_task_that_sleeps_until_times_past_is_suspended() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let stop = Rc::new(Cell::new(false));
        let turns = count_turns(&stop);
        let past = Instant::now();
        let task = spawn(async move {
            for _ in 0..10_000 {
                sleep_until(past).await;
            }
        });
        task.await.unwrap();
        let in_a_task = turns.get();
        assert!(in_a_task >= 10_000 / 129, "others had {in_a_task} turns in ten thousand sleeps of a task");
        // And the same in the future of `block_on` itself.
        for _ in 0..10_000 {
            sleep_until(past).await;
        }
        let in_root = turns.get() - in_a_task;
        assert!(in_root >= 10_000 / 129, "others had {in_root} turns in ten thousand sleeps of the main future");
        stop.set(true);
    });
}

#[test]
fn a_task_whose_sends_go_inline_is_suspended() {
    let _watchdog = watchdog(LIMIT);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let peer = thread::spawn(move || std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()).unwrap());
    Runtime::new().unwrap().block_on(async {
        let stream = TcpStream::connect(to).await.unwrap();
        let stop = Rc::new(Cell::new(false));
        let turns = count_turns(&stop);
        for _ in 0..5_000 {
            stream.write_all("x").await.0.unwrap();
        }
        assert!(turns.get() >= 5_000 / 129, "others had {} turns in five thousand sends", turns.get());
        stop.set(true);
    });
    assert_eq!(peer.join().unwrap(), 5_000);
}

#[test]
fn a_task_that_finds_connections_queued_is_suspended() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let first = std::net::TcpStream::connect(to).unwrap();
        // From here on the accept stands: all of the others come in one visit.
        listener.accept().await.unwrap();
        let clients: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(to).unwrap()).collect();
        yield_now().await;
        let stop = Rc::new(Cell::new(false));
        let turns = count_turns(&stop);
        for _ in 0..300 {
            listener.accept().await.unwrap();
        }
        assert!(turns.get() >= 2, "others had {} turns in three hundred accepts", turns.get());
        stop.set(true);
        drop((first, clients));
    });
}

#[test]
fn a_panic_stays_in_its_task() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let handle = spawn(async { panic!("the payload") });
        drop(spawn(async { panic!("of a detached task") }));
        let sibling = spawn(async {
            sleep(Duration::from_millis(2)).await;
            7
        });
        let error = handle.await.unwrap_err();
        assert_eq!(kit::text_of(&*error.into_panic()), "the payload");
        assert_eq!(sibling.await.unwrap(), 7);
    });
}

#[test]
fn a_panic_of_the_main_future_unwinds_and_never_aborts() {
    let name = "executor::a_panic_of_the_main_future_unwinds_and_never_aborts";
    if crate::support::am_child(name) {
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            let state = OnDrop(|| panic!("the state of a task panics too"));
            spawn(async move {
                let _state = state;
                pending::<()>().await;
            });
            yield_now().await;
            panic!("the main future panics");
        });
    }
    let child = run_child(name, LIMIT, &[]);
    assert_eq!(child.status.code(), Some(101), "{}", child.text);
    assert!(child.text.contains("the main future panics"), "{}", child.text);
}

#[test]
fn a_runtime_goes_on_after_its_main_future_panicked() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let (tx, rx) = pipe().unwrap();
    let read = spawn_in(&rt, async move { rx.read(Vec::with_capacity(8)).await.into_result().unwrap().1 });
    assert_eq!(panic_text(|| rt.block_on(async { panic!("once") })), "once");
    let data = rt.block_on(async {
        tx.write_all("after").await.0.unwrap();
        sleep(Duration::from_millis(1)).await;
        read.await.unwrap()
    });
    assert_eq!(data, b"after");
}

fn spawn_in<T: 'static>(rt: &Runtime, future: impl Future<Output = T> + 'static) -> runtime::task::JoinHandle<T> {
    rt.block_on(async { spawn(future) })
}

#[test]
fn an_output_that_panics_when_it_is_dropped_is_contained() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let dropped = Rc::new(Cell::new(0));
    let output = || {
        let dropped = Rc::clone(&dropped);
        async move {
            OnDrop(move || {
                dropped.set(dropped.get() + 1);
                panic!("this output panics in its destructor")
            })
        }
    };
    let late = rt.block_on(async {
        // Finished, then the handle goes.
        let handle = spawn(output());
        kit::until(|| handle.is_finished()).await;
        drop(handle);
        assert_eq!(dropped.get(), 1);
        // Nobody has a handle when it finishes.
        drop(spawn(output()));
        kit::until(|| dropped.get() == 2).await;
        assert_eq!(spawn(async { 1 }).await.unwrap(), 1);
        let late = spawn(output());
        yield_now().await;
        late
    });
    drop(rt);
    // Finished, and nobody asks until the runtime is gone.
    drop(late);
    assert_eq!(dropped.get(), 3);
}

#[test]
fn nothing_is_left_of_fifty_thousand_tasks() {
    in_child("executor::nothing_is_left_of_fifty_thousand_tasks", LIMIT, || {
        tasks_that_hold_their_own_wakers(1_000);
        let before = alloc::live();
        tasks_that_hold_their_own_wakers(50_000);
        let grown = alloc::live() - before;
        assert!(grown < 64 * 1024, "{grown} bytes more than before");
    });
}

fn tasks_that_hold_their_own_wakers(count: usize) {
    let token = Rc::new(());
    let wakers: Rc<RefCell<Vec<Waker>>> = Rc::default();
    let rt = Runtime::new().unwrap();
    rt.block_on(async {
        let mut aborted = Vec::new();
        for n in 0..count {
            let (token, wakers) = (Rc::clone(&token), Rc::clone(&wakers));
            let handle = spawn(async move {
                let mut polls = 0;
                poll_fn(|task| {
                    polls += 1;
                    wakers.borrow_mut().push(task.waker().clone());
                    if n % 3 == 0 && polls == 2 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                token
            });
            if n % 3 == 1 {
                aborted.push(handle);
            }
        }
        yield_now().await;
        wakers.take().into_iter().step_by(3).for_each(Waker::wake);
        yield_now().await;
        aborted.iter().step_by(2).for_each(runtime::task::JoinHandle::abort);
        yield_now().await;
        aborted.iter().for_each(runtime::task::JoinHandle::abort);
    });
    drop(rt);
    assert_eq!(Rc::strong_count(&token), 1, "futures or outputs are left");
}

#[test]
fn futures_and_outputs_are_dropped_at_home_only() {
    let _watchdog = watchdog(LIMIT);
    for end in ["completion", "abort", "the end of the runtime"] {
        dropped_at_home_though_the_last_waker_goes_elsewhere(end);
    }
}

fn dropped_at_home_though_the_last_waker_goes_elsewhere(end: &str) {
    let home = thread::current().id();
    let dropped = Rc::new(Cell::new(0));
    let guard = || {
        let dropped = Rc::clone(&dropped);
        OnDrop(move || {
            assert_eq!(thread::current().id(), home, "dropped on another thread");
            dropped.set(dropped.get() + 1);
        })
    };
    let (wakers_tx, wakers_rx) = mpsc::channel::<Waker>();
    let (go_tx, go_rx) = mpsc::channel::<()>();
    let elsewhere = thread::spawn(move || {
        let wakers: Vec<_> = wakers_rx.iter().take(2).collect();
        wakers[0].wake_by_ref();
        let _ = go_rx.recv();
        wakers.into_iter().for_each(Waker::wake);
    });
    let rt = Runtime::new().unwrap();
    let (state, output) = (guard(), guard());
    let polls = Rc::new(Cell::new(0));
    let completes = end == "completion";
    rt.block_on(async {
        let count = Rc::clone(&polls);
        let handle = spawn(async move {
            let _state = state;
            poll_fn(|task| {
                count.set(count.get() + 1);
                if count.get() == 1 {
                    wakers_tx.send(task.waker().clone()).unwrap();
                    wakers_tx.send(task.waker().clone()).unwrap();
                }
                if completes && count.get() == 2 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            output
        });
        kit::until(|| polls.get() == 2).await;
        if end == "abort" {
            handle.abort();
        }
        yield_now().await;
        assert_eq!(dropped.get(), if end == "abort" { 2 } else { u32::from(completes) });
        drop(handle);
    });
    let mut rt = Some(rt);
    if end == "the end of the runtime" {
        rt = None;
    }
    go_tx.send(()).unwrap();
    elsewhere.join().unwrap();
    assert_eq!(dropped.get(), 2, "after {end}");
    if let Some(rt) = rt {
        rt.block_on(async { assert_eq!(spawn(async { 1 }).await.unwrap(), 1) });
    }
}

#[test]
fn a_wake_that_races_with_the_end_of_the_runtime_loses_no_task() {
    let _watchdog = watchdog(LIMIT);
    let current = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = mpsc::channel::<(usize, Waker)>();
    let now = Arc::clone(&current);
    let hammer = thread::spawn(move || {
        for (round, waker) in rx {
            while now.load(Ordering::Relaxed) == round {
                waker.wake_by_ref();
            }
        }
    });
    for round in 1..=1_000 {
        current.store(round, Ordering::Relaxed);
        let token = Rc::new(());
        let rt = Runtime::new().unwrap();
        let handle = rt.block_on(async {
            let (token, mut tx) = (Rc::clone(&token), Some(tx.clone()));
            let handle = spawn(async move {
                let _token = token;
                poll_fn(|task| {
                    if let Some(tx) = tx.take() {
                        tx.send((round, task.waker().clone())).unwrap();
                    }
                    Poll::<()>::Pending
                })
                .await;
            });
            for _ in 0..round % 4 {
                yield_now().await;
            }
            handle
        });
        drop(rt);
        assert_eq!(Rc::strong_count(&token), 1, "the future is left after round {round}");
        assert!(handle.is_finished());
    }
    current.store(0, Ordering::Relaxed);
    drop(tx);
    hammer.join().unwrap();
}

#[test]
fn a_task_lives_across_calls_of_block_on() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let (tx, rx) = pipe().unwrap();
    let echo = rt.block_on(async {
        spawn(async move {
            let mut all = Vec::new();
            loop {
                let (n, data) = rx.read(Vec::with_capacity(4)).await.into_result().unwrap();
                if n == 0 {
                    return all;
                }
                all.extend(data);
            }
        })
    });
    for round in 0..3 {
        rt.block_on(async {
            tx.write_all(vec![round]).await.0.unwrap();
            sleep(Duration::from_millis(1)).await;
        });
    }
    drop(tx);
    assert_eq!(rt.block_on(echo).unwrap(), [0, 1, 2]);
}

#[test]
fn a_nested_block_on_is_refused_and_harms_nothing() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let other = Runtime::new().unwrap();
    rt.block_on(async {
        for runtime in [&rt, &other] {
            let text = panic_text(|| runtime.block_on(async {}));
            assert!(text.contains("`.await` or `spawn`"), "{text}");
        }
        let error = spawn(async { Runtime::new().unwrap().block_on(async {}) }).await.unwrap_err();
        assert!(error.is_panic());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = kit::echo_client(listener.local_addr().unwrap(), 3);
        kit::echo_once(&listener).await;
        client.join().unwrap();
        sleep(Duration::from_millis(1)).await;
    });
    other.block_on(async { sleep(Duration::from_millis(1)).await });
}

#[test]
fn used_outside_a_runtime_it_says_what_to_do() {
    let _watchdog = watchdog(LIMIT);
    let inside = "inside `Runtime::block_on`";
    let waker = Waker::noop();
    let (tx, rx) = pipe().unwrap();
    let texts = [
        panic_text(|| spawn(async {})),
        panic_text(|| kit::poll_with(&mut sleep(Duration::from_secs(1)), waker)),
        panic_text(|| kit::poll_with(&mut runtime::op::submit(kit::nop(|| {})), waker)),
        panic_text(|| kit::poll_with(&mut Box::pin(rx.read(vec![0; 8])), waker)),
        panic_text(|| kit::poll_with(&mut Box::pin(tx.write("x")), waker)),
        panic_text(runtime::metrics),
        // A pool thread is outside as well.
        kit::text_of(
            &*futures::executor::block_on(runtime::spawn_blocking(|| drop(spawn(async {})))).unwrap_err().into_panic(),
        ),
    ];
    for text in texts {
        assert!(text.contains(inside), "{text}");
    }
    // And everything works once it is inside.
    Runtime::new().unwrap().block_on(async {
        tx.write_all("in").await.0.unwrap();
        assert_eq!(rx.read(Vec::with_capacity(8)).await.1, b"in");
    });
}

thread_local! {
    static KEPT: RefCell<Option<(runtime::pipe::Receiver, runtime::time::Sleep, Runtime)>> = const { RefCell::new(None) };
}

#[test]
fn a_runtime_in_a_thread_local_ends_with_its_thread() {
    in_child("executor::a_runtime_in_a_thread_local_ends_with_its_thread", LIMIT, || {
        let round = || {
            let thread = thread::spawn(|| {
                let rt = Runtime::new().unwrap();
                let (tx, rx) = pipe().unwrap();
                let mut later = sleep(Duration::from_secs(3600));
                rt.block_on(async {
                    assert!(kit::poll_once(&mut later).await.is_pending());
                    let keep = OnDrop(|| {
                        spawn(async {});
                    });
                    spawn(async move {
                        let _keep = keep;
                        tx.write_all(vec![0; 1 << 20]).await
                    });
                    yield_now().await;
                });
                KEPT.set(Some((rx, later, rt)));
            });
            thread.join().unwrap();
        };
        round();
        let before = crate::support::fds();
        (0..5).for_each(|_| round());
        crate::support::eventually("descriptors are closed", || crate::support::fds() == before);
    });
}

#[test]
fn runtimes_and_operations_stay_on_their_thread() {
    /// Has a method `is_send` for every type, and a better one for those that are `Send`.
    struct Probe<T>(std::marker::PhantomData<T>);
    trait Fallback {
        fn is_send(&self) -> bool {
            false
        }
    }
    impl<T> Fallback for Probe<T> {}
    impl<T: Send> Probe<T> {
        #[allow(clippy::unused_self, reason = "has the form of the trait's")]
        fn is_send(&self) -> bool {
            true
        }
    }
    macro_rules! is_send {
        ($t:ty) => {
            Probe::<$t>(std::marker::PhantomData).is_send()
        };
    }
    type Done = fn();
    assert!(is_send!(runtime::Builder), "the probe works");
    assert!(!is_send!(Runtime));
    assert!(!is_send!(runtime::time::Sleep));
    assert!(!is_send!(runtime::time::Interval));
    assert!(!is_send!(runtime::time::Timeout<()>));
    assert!(!is_send!(runtime::op::Submit<kit::Nop<Done>>));
    assert!(!is_send!(runtime::op::Standing));
    assert!(!is_send!(runtime::net::Incoming<'static>));
    assert!(!is_send!(runtime::task::JoinHandle<Rc<()>>));
    assert!(is_send!(runtime::task::JoinHandle<u8>));
    assert!(is_send!(runtime::task::JoinError));
}

#[test]
fn a_runtime_starts_after_other_threads_ran_and_ended() {
    let _watchdog = watchdog(LIMIT);
    for _ in 0..3 {
        let builder = runtime::Builder::new();
        let thread = thread::spawn(move || {
            builder.build().unwrap().block_on(async {
                let (tx, rx) = pipe().unwrap();
                let mut other_end = kit::std_end(&tx);
                let peer = thread::spawn(move || other_end.write_all(b"x").unwrap());
                assert_eq!(rx.read(Vec::with_capacity(8)).await.0.unwrap(), 1);
                peer.join().unwrap();
            });
        });
        thread.join().unwrap();
    }
}
