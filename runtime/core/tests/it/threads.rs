//! One body on each of several threads: where it runs, what it is given, and what comes back.

use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use runtime::task::yield_now;
use runtime::time::sleep;
use runtime::{Builder, Handle, Runtime, Threads, spawn};

use crate::kit::panic_text;
use crate::support::{eventually, fds, in_child, threads, watchdog};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn each_thread_runs_the_body_once_with_a_ring_of_its_own() {
    let _watchdog = watchdog(LIMIT);
    let seen: Arc<Mutex<Vec<(usize, ThreadId)>>> = Arc::default();
    let record = Arc::clone(&seen);
    let outputs = Builder::new().threads(4).name("shard").run(move |cx: Handle| {
        let record = Arc::clone(&record);
        async move {
            assert_eq!(cx.threads(), 4);
            assert_eq!(Handle::current().index(), cx.index());
            let here = std::thread::current();
            assert_eq!(here.name(), Some(&*format!("shard-{}", cx.index())));
            record.lock().unwrap().push((cx.index(), here.id()));
            // Not `Send`, with timers and tasks of its own.
            let local = Rc::new(cx.index());
            let task = spawn({
                let local = Rc::clone(&local);
                async move {
                    sleep(Duration::from_millis(1)).await;
                    *local
                }
            });
            io::Result::Ok(task.await? * 10)
        }
    });
    assert_eq!(outputs.unwrap(), [0, 10, 20, 30]);
    let seen = seen.lock().unwrap();
    let indices: HashSet<_> = seen.iter().map(|(index, _)| *index).collect();
    let ids: HashSet<_> = seen.iter().map(|(_, id)| *id).collect();
    assert_eq!((seen.len(), indices.len(), ids.len()), (4, 4, 4));
    assert!(!ids.contains(&std::thread::current().id()), "the calling thread only waits");
}

#[test]
fn without_a_number_there_are_as_many_threads_as_may_run_at_once() {
    let _watchdog = watchdog(LIMIT);
    let expected = std::thread::available_parallelism().unwrap().get();
    let counts = Builder::new().run(async |cx: Handle| io::Result::Ok(cx.threads())).unwrap();
    assert_eq!(counts, vec![expected; expected]);
    let counts = Builder::new().threads(Threads::Auto).run(async |cx: Handle| io::Result::Ok(cx.threads())).unwrap();
    assert_eq!(counts.len(), expected);
}

#[test]
fn a_body_that_ends_early_does_not_stop_the_others() {
    let _watchdog = watchdog(LIMIT);
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    Builder::new()
        .threads(3)
        .run(move |cx: Handle| {
            let count = Arc::clone(&count);
            async move {
                if cx.index() == 0 {
                    return io::Result::Ok(());
                }
                // Long after thread 0 is gone.
                while cx.is_reachable(0) {
                    sleep(Duration::from_millis(1)).await;
                }
                assert!(!cx.is_stopped());
                let gone = cx.spawn_on(0, || async {}).await;
                assert!(gone.unwrap_err().is_cancelled());
                count.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        })
        .unwrap();
    assert_eq!(served.load(Ordering::SeqCst), 2);
}

#[test]
fn tasks_of_a_body_that_has_ended_are_dropped_on_their_thread() {
    let _watchdog = watchdog(LIMIT);
    struct Guard(ThreadId, Arc<AtomicUsize>);
    impl Drop for Guard {
        fn drop(&mut self) {
            assert_eq!(self.0, std::thread::current().id());
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dropped);
    Builder::new()
        .threads(2)
        .run(move |_: Handle| {
            let guard = Guard(std::thread::current().id(), Arc::clone(&count));
            async move {
                spawn(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                });
                yield_now().await;
                io::Result::Ok(())
            }
        })
        .unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
}

#[test]
fn stopping_is_heard_by_tasks_and_by_other_executors() {
    let _watchdog = watchdog(LIMIT);
    let outside = Arc::new(Mutex::new(None));
    let place = Arc::clone(&outside);
    Builder::new()
        .threads(2)
        .run(move |cx: Handle| {
            if cx.index() == 0 {
                let stopped = cx.stopped();
                let waits = std::thread::spawn(move || futures::executor::block_on(stopped));
                *place.lock().unwrap() = Some(waits);
            }
            async move {
                let tasks: Vec<_> = (0..10).map(|_| spawn(cx.stopped())).collect();
                if cx.index() == 1 {
                    yield_now().await;
                    cx.stop();
                }
                for task in tasks {
                    task.await?;
                }
                assert!(cx.is_stopped());
                io::Result::Ok(())
            }
        })
        .unwrap();
    outside.lock().unwrap().take().unwrap().join().unwrap();
}

#[test]
fn a_group_cannot_be_started_or_nested_where_it_would_block() {
    let _watchdog = watchdog(LIMIT);
    let text = panic_text(|| {
        Runtime::new().unwrap().block_on(async {
            let _ = Builder::new().threads(1).run(async |_: Handle| io::Result::Ok(()));
        });
    });
    assert!(text.contains("`run` inside a running runtime would block it"), "{text}");
    // A body may build and drop a runtime, but not run it; the outer one works on.
    Builder::new()
        .threads(2)
        .run(async |_: Handle| {
            let inner = Runtime::new()?;
            let text = panic_text(|| inner.block_on(async {}));
            assert!(text.contains("`block_on` inside a running runtime"), "{text}");
            assert_eq!(Handle::current().threads(), 2);
            drop(inner);
            sleep(Duration::from_millis(1)).await;
            assert_eq!(Handle::current().threads(), 2);
            // On a thread of its own it may.
            let nested = runtime::spawn_blocking(|| {
                Builder::new().threads(2).run(async |cx: Handle| io::Result::Ok(cx.index()))
            });
            assert_eq!(nested.await??, [0, 1]);
            io::Result::Ok(())
        })
        .unwrap();
}

#[test]
fn nonsense_is_refused_before_anything_starts() {
    let never = |_: Handle| -> std::future::Ready<io::Result<()>> { panic!("no body runs") };
    for builder in [
        Builder::new().threads(0),
        Builder::new().threads(usize::MAX),
        Builder::new().name("a\0b"),
        Builder::new().entries(0),
    ] {
        assert_eq!(builder.run(never).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{builder:?}");
        assert_eq!(builder.build().unwrap_err().kind(), io::ErrorKind::InvalidInput, "{builder:?}");
    }
}

#[test]
fn any_error_that_can_be_made_of_an_io_error_may_be_returned() {
    type Boxed = Box<dyn std::error::Error + Send + Sync>;
    let failed = Builder::new().threads(2).run(async |_: Handle| {
        let number: u32 = "seven".parse()?;
        Result::<u32, Boxed>::Ok(number)
    });
    assert!(failed.unwrap_err().to_string().contains("invalid digit"));
}

#[test]
fn a_hundred_groups_come_and_go_without_a_trace() {
    in_child("threads::a_hundred_groups_come_and_go_without_a_trace", LIMIT, || {
        let round = |round: usize| {
            let answered = Arc::new(AtomicUsize::new(0));
            let outputs = Builder::new().threads(4).entries(8).run(move |cx: Handle| {
                let answered = Arc::clone(&answered);
                async move {
                    match round % 4 {
                        0 => {}
                        1 => yield_now().await,
                        2 => {
                            // Everybody waits for somebody else.
                            let next = (cx.index() + 1) % 4;
                            assert_eq!(cx.spawn_on(next, move || async move { next }).await.ok(), Some(next));
                            if answered.fetch_add(1, Ordering::SeqCst) == 3 {
                                cx.stop();
                            }
                            cx.stopped().await;
                        }
                        _ => {
                            let listener = runtime::net::TcpListener::bind("127.0.0.1:0").await?;
                            spawn(async move { listener.accept().await.map(drop) });
                            drop(cx.spawn_on((cx.index() + 1) % 4, std::future::pending::<()>));
                            yield_now().await;
                        }
                    }
                    io::Result::Ok(cx.index())
                }
            });
            assert_eq!(outputs.unwrap(), [0, 1, 2, 3]);
        };
        let running = threads();
        (0..8).for_each(round);
        let (open, live) = (fds(), crate::alloc::live());
        (0..100).for_each(round);
        eventually("threads at base", || threads() == running);
        eventually("descriptors at base", || fds() <= open);
        let grown = crate::alloc::live() - live;
        assert!(grown < 64 * 1024, "{grown} bytes more than before");
    });
}
