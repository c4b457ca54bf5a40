//! Tasks that are made for another thread: of a group, and of threads that start when they are first used.

use std::cell::Cell;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use runtime::task::{JoinHandle, yield_now};
use runtime::time::sleep;
use runtime::{Builder, Handle, Runtime, spawn, spawn_on};

use crate::alloc;
use crate::kit::{OnDrop, panic_text};
use crate::raw::fork;
use crate::support::{eventually, fds, in_child, scaled, threads, watchdog};

const LIMIT: Duration = Duration::from_secs(60);

/// Checks that what is made on a thread is dropped there.
struct Home(ThreadId, Arc<AtomicUsize>);

impl Home {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        Self(std::thread::current().id(), Arc::clone(count))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.0 == std::thread::current().id() {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn two() -> Runtime {
    Builder::new().threads(2).build().unwrap()
}

#[test]
fn a_future_that_is_not_send_runs_on_the_thread_that_was_asked_for() {
    let _watchdog = watchdog(LIMIT);
    two().block_on(async {
        let here = std::thread::current().id();
        let (there, sum, index) = spawn_on(1, || async {
            let local = Rc::new(Cell::new(1));
            let task = spawn({
                let local = Rc::clone(&local);
                async move {
                    sleep(Duration::from_millis(1)).await;
                    local.set(local.get() + 1);
                }
            });
            task.await.unwrap();
            (std::thread::current().id(), local.get(), Handle::current().index())
        })
        .await
        .unwrap();
        assert_ne!(here, there);
        assert_eq!((sum, index), (2, 1));
        // Its own thread is one of them.
        assert_eq!(spawn_on(0, || async { std::thread::current().id() }).await.unwrap(), here);
        assert_eq!(Handle::current().spawn(|| async { std::thread::current().id() }).await.unwrap(), here);
        // And the way back.
        let back = spawn_on(1, || async { spawn_on(0, || async { std::thread::current().id() }).await });
        assert_eq!(back.await.unwrap().unwrap(), here);
    });
}

#[test]
fn other_threads_start_when_they_are_first_used_and_end_with_the_runtime() {
    in_child("spawn_on::other_threads_start_when_they_are_first_used_and_end_with_the_runtime", LIMIT, || {
        let round = || {
            let runtime = Builder::new().threads(3).build().unwrap();
            let dropped = Arc::new(AtomicUsize::new(0));
            let before = threads();
            runtime.block_on(async {
                let handle = Handle::current();
                assert_eq!((handle.threads(), handle.index(), threads()), (3, 0, before));
                let count = Arc::clone(&dropped);
                drop(handle.spawn_on(2, move || {
                    let home = Home::new(&count);
                    async move {
                        let _home = home;
                        pending::<()>().await;
                    }
                }));
                // The task before it has been polled.
                handle.spawn_on(2, yield_now).await.unwrap();
                assert_eq!(threads(), before + 1);
                handle.start(1).unwrap();
                handle.start(1).unwrap();
                assert_eq!(threads(), before + 2);
            });
            assert_eq!(dropped.load(Ordering::SeqCst), 0);
            drop(runtime);
            assert_eq!(dropped.load(Ordering::SeqCst), 1, "dropped on its own thread");
            // The system lists a thread that was joined for a moment longer.
            eventually("threads at base", || threads() == before);
        };
        round();
        let (open, live) = (fds(), alloc::live());
        (0..20).for_each(|_| round());
        eventually("descriptors at base", || fds() <= open);
        let grown = alloc::live() - live;
        assert!(grown < 16 * 1024, "{grown} bytes more than before");
    });
}

#[test]
fn handles_work_on_threads_that_run_no_runtime() {
    let _watchdog = watchdog(LIMIT);
    assert_eq!(Handle::try_current().unwrap_err().to_string(), "this thread runs no runtime");
    assert!(panic_text(Handle::current).contains("this needs a running runtime"));
    let runtime = two();
    let handle = runtime.block_on(async { Handle::try_current().unwrap() });
    let foreign = std::thread::spawn({
        let handle = handle.clone();
        move || {
            let sums: Vec<_> = (0..100).map(|n| handle.spawn_on(1, move || async move { n })).collect();
            sums.into_iter().map(|sum| futures::executor::block_on(sum).unwrap()).sum::<u32>()
        }
    });
    assert_eq!(foreign.join().unwrap(), 4950);
    // For the thread of the runtime itself the task waits for the next `block_on`.
    let waits = handle.spawn(|| async { 7 });
    assert!(!waits.is_finished());
    assert_eq!(runtime.block_on(waits).unwrap(), 7);
    drop(runtime);
    assert!(futures::executor::block_on(handle.spawn(|| async {})).unwrap_err().is_cancelled());
    assert!(futures::executor::block_on(handle.spawn_on(1, || async {})).unwrap_err().is_cancelled());
    assert!(!handle.is_reachable(0) && !handle.is_reachable(1));
    assert_eq!(handle.start(1).unwrap_err().kind(), io::ErrorKind::NotConnected);
}

#[test]
fn an_index_out_of_range_says_how_many_threads_there_are() {
    let _watchdog = watchdog(LIMIT);
    two().block_on(async {
        let text = panic_text(|| spawn_on(2, || async {}));
        assert!(text.contains("there is no thread 2: this runtime has 2"), "{text}");
    });
    assert!(panic_text(|| spawn_on(0, || async {})).contains("this needs a running runtime"));
}

#[test]
fn a_thread_that_cannot_start_cancels_the_task_and_says_why_when_asked() {
    in_child("spawn_on::a_thread_that_cannot_start_cancels_the_task_and_says_why_when_asked", LIMIT, || {
        let runtime = two();
        let free: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        runtime.block_on(async {
            let dropped = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&dropped);
            let guard = OnDrop(move || _ = count.fetch_add(1, Ordering::SeqCst));
            let refused = spawn_on(1, move || async move { drop(guard) }).await;
            assert!(refused.unwrap_err().is_cancelled());
            assert_eq!(dropped.load(Ordering::SeqCst), 1);
            let error = Handle::current().start(1).unwrap_err();
            assert!(error.to_string().contains("no file descriptor left"), "{error}");
            // Once there is room, the next use tries again.
            drop(free);
            assert_eq!(spawn_on(1, || async { 1 }).await.unwrap(), 1);
        });
    });
}

#[test]
fn panics_and_aborts_stay_in_the_task() {
    let _watchdog = watchdog(LIMIT);
    two().block_on(async {
        let panicked = spawn_on(1, || async { panic!("over there") }).await.unwrap_err();
        assert_eq!(panicked.to_string(), "the task panicked: over there");
        let panicked = spawn_on(1, || -> std::future::Ready<()> { panic!("as it was made") }).await;
        assert!(panicked.unwrap_err().is_panic());
        let dropped = Arc::new(AtomicUsize::new(0));
        for started in [false, true] {
            let count = Arc::clone(&dropped);
            let handle = spawn_on(1, move || {
                let home = Home::new(&count);
                async move {
                    let _home = home;
                    pending::<()>().await;
                }
            });
            if started {
                spawn_on(1, yield_now).await.unwrap();
            }
            handle.abort();
            assert!(handle.await.unwrap_err().is_cancelled());
        }
        assert!((1..=2).contains(&dropped.load(Ordering::SeqCst)), "at home, if it was made at all");
        assert_eq!(spawn_on(1, || async { 1 }).await.unwrap(), 1);
        let living = spawn_on(1, || async { runtime::metrics().tasks }).await.unwrap();
        assert_eq!(living, 1, "the one that asks");
    });
}

#[test]
fn tasks_for_a_thread_that_is_ending_run_or_are_cancelled() {
    let _watchdog = watchdog(LIMIT);
    for round in 0..100 {
        let runtime = two();
        let handle = runtime.block_on(async { Handle::current() });
        handle.start(1).unwrap();
        let (gate, made) = (Arc::new(Barrier::new(3)), Arc::new(AtomicUsize::new(0)));
        let senders: Vec<_> = [0, 1]
            .map(|target| {
                let (handle, gate, made) = (handle.clone(), Arc::clone(&gate), Arc::clone(&made));
                std::thread::spawn(move || {
                    gate.wait();
                    let tasks: Vec<JoinHandle<()>> = (0..50)
                        .map(|_| {
                            let made = Arc::clone(&made);
                            let guard = OnDrop(move || _ = made.fetch_add(1, Ordering::SeqCst));
                            handle.spawn_on(target, move || async move {
                                let _guard = guard;
                                yield_now().await;
                            })
                        })
                        .collect();
                    for task in tasks {
                        match futures::executor::block_on(task) {
                            Ok(()) => {}
                            Err(error) => assert!(error.is_cancelled()),
                        }
                    }
                })
            })
            .into();
        gate.wait();
        if round % 2 == 0 {
            runtime.block_on(yield_now());
        }
        drop(runtime);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(made.load(Ordering::SeqCst), 100, "round {round}: each closure was run or dropped");
    }
}

#[test]
fn a_worker_is_not_taken_down_by_a_waker_that_panics() {
    let _watchdog = watchdog(LIMIT);
    two().block_on(async {
        struct Bad;
        impl std::task::Wake for Bad {
            fn wake(self: Arc<Self>) {
                panic!("a waker that panics");
            }
        }
        spawn_on(1, || async {
            let mut timer = sleep(Duration::from_millis(1));
            let waker = Arc::new(Bad).into();
            assert!(crate::kit::poll_with(&mut timer, &waker).is_pending());
            std::mem::forget(timer);
        })
        .await
        .unwrap();
        let later = spawn_on(1, || async { sleep(Duration::from_millis(20)).await });
        later.await.unwrap();
        assert_eq!(spawn_on(1, || async { 2 }).await.unwrap(), 2);
    });
}

#[test]
fn forgotten_handles_and_tokens_keep_nothing_from_ending() {
    let _watchdog = watchdog(LIMIT);
    let kept: Mutex<Vec<Handle>> = Mutex::default();
    let outputs = Builder::new().threads(2).run(async |cx: Handle| {
        std::mem::forget(cx.clone());
        std::mem::forget(cx.spawn_on(1, pending::<()>));
        let mut token = cx.stopped();
        assert!(crate::kit::poll_once(&mut token).await.is_pending());
        std::mem::forget(token);
        yield_now().await;
        io::Result::Ok(cx)
    });
    kept.lock().unwrap().extend(outputs.unwrap());
    let mut other = two();
    for handle in kept.lock().unwrap().iter() {
        handle.stop();
        assert!(handle.is_stopped() && !handle.is_reachable(1));
        let task = handle.spawn_on(0, || async {});
        assert!(other.block_on(task).unwrap_err().is_cancelled());
        other = two();
    }
}

#[test]
fn all_threads_send_to_all() {
    let _watchdog = watchdog(LIMIT);
    let sums = Builder::new().threads(3).run(async |cx: Handle| {
        let mut sum = 0;
        for round in 0..200usize {
            let target = (cx.index() + round) % 3;
            sum += cx
                .spawn_on(target, move || async move {
                    if round % 10 == 0 {
                        sleep(Duration::from_micros(50)).await;
                    }
                    round
                })
                .await?;
        }
        // Until everybody is done the threads stay.
        cx.spawn_on(0, || async {
            thread_local!(static DONE: Cell<u32> = const { Cell::new(0) });
            DONE.set(DONE.get() + 1);
            if DONE.get() == 3 {
                Handle::current().stop();
            }
        });
        cx.stopped().await;
        io::Result::Ok(sum)
    });
    assert_eq!(sums.unwrap(), [19900, 19900, 19900]);
}

#[test]
fn wakers_that_panic_by_the_hundred_cost_no_task_of_somebody_else() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the program's");
        }
    }
    in_child("spawn_on::wakers_that_panic_by_the_hundred_cost_no_task_of_somebody_else", LIMIT, || {
        std::panic::set_hook(Box::new(|_| {}));
        two().block_on(async {
            let innocent = spawn_on(1, || async {
                sleep(Duration::from_millis(300)).await;
                7
            });
            // All of them are made while the thread is busy, so they end in one turn.
            let busy = spawn_on(1, || async { std::thread::sleep(Duration::from_millis(100)) });
            let mut tasks: Vec<_> = (0..300).map(|_| spawn_on(1, || async {})).collect();
            let waker = Waker::from(Arc::new(Bad));
            for task in &mut tasks {
                assert!(Pin::new(task).poll(&mut Context::from_waker(&waker)).is_pending());
            }
            busy.await.unwrap();
            assert_eq!(innocent.await.unwrap(), 7);
            assert!(Handle::current().is_reachable(1));
        });
    });
}

#[test]
fn what_a_thread_leaves_behind_is_counted_and_one_that_hangs_is_left_alone() {
    in_child("spawn_on::what_a_thread_leaves_behind_is_counted_and_one_that_hangs_is_left_alone", LIMIT, || {
        let before = threads();
        let runtime = Builder::new().threads(3).build().unwrap();
        runtime.block_on(async {
            spawn_on(1, || async {
                let (tx, rx) = runtime::pipe::pipe().unwrap();
                spawn(async move {
                    let _tx = tx;
                    rx.read(vec![0; 8]).await.0
                });
                yield_now().await;
                // From now on the ring cannot be entered, so the read cannot be cancelled.
                runtime::testing::inject_enter_faults(&[libc::EBADF; 64]);
            })
            .await
            .unwrap();
        });
        assert!(runtime.shutdown_timeout(Duration::from_secs(20)) >= 1);
        eventually("the thread has ended", || threads() == before);

        let runtime = two();
        let start = Instant::now();
        runtime.block_on(async {
            let (told, tell) = async_oneshot();
            drop(spawn_on(1, move || async move {
                told.send(()).unwrap();
                std::thread::sleep(Duration::from_secs(3600));
            }));
            tell.await.unwrap();
        });
        assert_eq!(runtime.shutdown_timeout(Duration::from_millis(50)), 0);
        assert!(start.elapsed() < Duration::from_secs(20));
    });
}

#[test]
fn jobs_of_other_threads_are_waited_for_no_longer_than_ones_own() {
    in_child("spawn_on::jobs_of_other_threads_are_waited_for_no_longer_than_ones_own", LIMIT, || {
        let runtime = two();
        runtime.block_on(async {
            spawn_on(1, || async {
                drop(runtime::spawn_blocking(|| std::thread::sleep(Duration::from_secs(3600))));
            })
            .await
            .unwrap();
        });
        let start = Instant::now();
        drop(runtime);
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(1), "it is waited for: {took:?}");
        assert!(took < scaled(Duration::from_millis(2500)), "a second, as in the documentation: {took:?}");
    });
}

fn async_oneshot() -> (futures::channel::oneshot::Sender<()>, futures::channel::oneshot::Receiver<()>) {
    futures::channel::oneshot::channel()
}

#[test]
fn a_child_of_fork_reaches_no_thread_and_drops_in_peace() {
    in_child("spawn_on::a_child_of_fork_reaches_no_thread_and_drops_in_peace", LIMIT, || {
        let mut runtime = Some(Builder::new().threads(3).build().unwrap());
        let handle = runtime.as_ref().unwrap().block_on(async {
            assert_eq!(spawn_on(1, || async { 1 }).await.unwrap(), 1);
            Handle::current()
        });
        let child = fork(|| {
            let mut failures = 0;
            for thread in 0..3 {
                let text = panic_text(|| handle.spawn_on(thread, || async {}));
                failures += i32::from(!text.contains("child of fork(2)"));
            }
            let text = panic_text(|| Builder::new().threads(2).run(async |_: Handle| io::Result::Ok(())));
            failures += i32::from(!text.contains("child of fork(2)"));
            drop(runtime.take());
            failures
        });
        assert_eq!(child.wait(), 0);
        // The parent has noticed nothing.
        let runtime = runtime.unwrap();
        assert_eq!(runtime.block_on(handle.spawn_on(1, || async { 2 })).unwrap(), 2);
        assert_eq!(runtime.block_on(handle.spawn_on(2, || async { 3 })).unwrap(), 3);
    });
}

#[test]
fn aborts_from_everywhere_race_with_the_first_poll() {
    let _watchdog = watchdog(LIMIT);
    let runtime = Builder::new().threads(3).build().unwrap();
    runtime.block_on(async {
        let dropped = Arc::new(AtomicUsize::new(0));
        for round in 0..300usize {
            let count = Arc::clone(&dropped);
            let handle = spawn_on(1 + round % 2, move || {
                let guard = OnDrop(move || _ = count.fetch_add(1, Ordering::SeqCst));
                async move {
                    let _guard = guard;
                    for _ in 0..round % 5 {
                        yield_now().await;
                    }
                }
            });
            match round % 3 {
                0 => handle.abort(),
                1 => drop(std::thread::spawn(move || handle.abort())),
                _ => {
                    let aborted = spawn_on(2 - round % 2, move || async move {
                        handle.abort();
                        handle.await.err().is_none_or(|error| error.is_cancelled())
                    });
                    assert!(aborted.await.unwrap());
                }
            }
        }
        crate::kit::until(|| dropped.load(Ordering::SeqCst) == 300 || Arc::strong_count(&dropped) == 1).await;
    });
    drop(runtime);
}
