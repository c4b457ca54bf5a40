//! What a `JoinSet` promises: outputs in the order of ends, errors told, nothing lost when it is dropped or waited for in
//! part.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use runtime::task::{JoinSet, yield_now};
use runtime::time::{sleep, timeout};
use runtime::{Runtime, spawn};

use crate::support::{in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(20);

/// Counts its drops.
struct OnDrop(Rc<Cell<u32>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn tasks_are_joined_in_the_order_in_which_they_end() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut set = JoinSet::new();
        assert!(set.join_next().await.is_none());
        for n in [3u64, 1, 2] {
            set.spawn(async move {
                sleep(Duration::from_millis(n * 40)).await;
                n
            });
        }
        assert_eq!(set.len(), 3);
        let mut order = Vec::new();
        while let Some(n) = set.join_next().await {
            order.push(n.unwrap());
        }
        assert_eq!(order, [1, 2, 3]);
        assert!(set.is_empty());
    });
}

#[test]
fn panics_and_aborts_are_told_and_the_set_goes_on() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut set = JoinSet::new();
        set.spawn(async { panic!("of the task") });
        assert!(set.join_next().await.unwrap().unwrap_err().is_panic());
        set.spawn(async { 5 });
        assert_eq!(set.join_next().await.unwrap().unwrap(), 5);
        // One that was never polled, and one that has suspended.
        set.spawn(pending::<i32>());
        yield_now().await;
        set.spawn(pending());
        set.abort_all();
        for _ in 0..2 {
            assert!(set.join_next().await.unwrap().unwrap_err().is_cancelled());
        }
        assert!(set.join_next().await.is_none());
    });
}

#[test]
fn giving_up_on_the_next_one_loses_nothing() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut set = JoinSet::new();
        for n in 0..50u64 {
            set.spawn(async move {
                sleep(Duration::from_micros(n * 300)).await;
                n
            });
        }
        let mut seen = Vec::new();
        loop {
            match timeout(Duration::from_micros(100), set.join_next()).await {
                Ok(Some(n)) => seen.push(n.unwrap()),
                Ok(None) => break,
                Err(_) => {}
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
    });
}

#[test]
fn a_dropped_set_aborts_its_tasks_and_a_detached_one_lets_them_run() {
    let _watchdog = watchdog(LIMIT);
    let dropped = Rc::new(Cell::new(0));
    Runtime::new().unwrap().block_on(async {
        let mut set = JoinSet::new();
        for _ in 0..3 {
            let guard = OnDrop(Rc::clone(&dropped));
            set.spawn(async move {
                let _guard = guard;
                pending::<()>().await;
            });
        }
        yield_now().await;
        drop(set);
        yield_now().await;
        yield_now().await;
        assert_eq!(dropped.get(), 3);

        let ran = Rc::new(Cell::new(false));
        let mut set = JoinSet::new();
        let flag = Rc::clone(&ran);
        set.spawn(async move {
            yield_now().await;
            flag.set(true);
        });
        set.detach_all();
        assert!(set.join_next().await.is_none());
        drop(set);
        while !ran.get() {
            yield_now().await;
        }

        let mut set = JoinSet::new();
        set.spawn(pending::<()>());
        set.shutdown().await;
        assert!(set.is_empty());
    });
}

#[test]
fn a_set_that_outlives_its_runtime_reports_cancelled_tasks() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let mut set = rt.block_on(async {
        let mut set = JoinSet::new();
        set.spawn(pending::<()>());
        yield_now().await;
        set
    });
    drop(rt);
    Runtime::new().unwrap().block_on(async {
        assert!(set.join_next().await.unwrap().unwrap_err().is_cancelled());
        drop(spawn(async {}));
    });
}

#[test]
fn a_refused_spawn_leaves_no_trace_in_the_set() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let mut set = rt.block_on(async {
        let mut set = JoinSet::new();
        set.spawn(async { 7 });
        set
    });
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| set.spawn(async { 8 })));
    assert!(refused.is_err());
    assert_eq!(set.len(), 1);
    rt.block_on(async {
        assert_eq!(set.join_next().await.unwrap().unwrap(), 7);
        assert!(set.join_next().await.is_none());
    });
}

#[test]
fn tasks_are_stopped_one_by_one_looked_for_and_taken_all_at_once() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut set = JoinSet::new();
        let stop = set.spawn(std::future::pending::<u32>());
        assert!(set.try_join_next().is_none());
        stop.abort();
        while !stop.is_finished() {
            yield_now().await;
        }
        assert!(set.try_join_next().unwrap().unwrap_err().is_cancelled());
        assert!(set.try_join_next().is_none() && set.is_empty());
        for n in 0..4u32 {
            set.spawn(async move {
                for _ in n..4 {
                    yield_now().await;
                }
                n
            });
        }
        let mut all = set.join_all().await;
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3]);
        let mut set = JoinSet::new();
        set.spawn(async { panic!("of a task") });
        let joined = std::panic::AssertUnwindSafe(set.join_all());
        let panic = futures::FutureExt::catch_unwind(joined).await.map(|_: Vec<()>| ()).unwrap_err();
        assert_eq!(crate::kit::text_of(&*panic), "of a task");
    });
}

#[test]
fn a_waker_that_panics_ends_neither_the_process_nor_the_task() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the program's");
        }
    }
    in_child("join_set::a_waker_that_panics_ends_neither_the_process_nor_the_task", LIMIT, || {
        let rt = Runtime::new().unwrap();
        for ends_well in [false, true] {
            let mut set = JoinSet::new();
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                rt.block_on(async {
                    set.spawn(async move {
                        assert!(ends_well, "the task's own");
                        7
                    });
                    let waker = Waker::from(Arc::new(Bad));
                    assert!(set.poll_join_next(&mut Context::from_waker(&waker)).is_pending());
                    for _ in 0..100 {
                        yield_now().await;
                    }
                    unreachable!("the waker's panic comes first");
                });
            }));
            let panic = *panicked.unwrap_err().downcast::<&str>().unwrap();
            assert_eq!(panic, "a waker of the program's", "told by block_on");
            match rt.block_on(set.join_next()).unwrap() {
                Ok(output) => assert!(ends_well && output == 7),
                Err(error) => assert!(!ends_well && error.is_panic()),
            }
        }
    });
}

#[test]
fn a_look_for_the_next_one_takes_nobodys_place() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let set = Rc::new(RefCell::new(JoinSet::new()));
        set.borrow_mut().spawn(async {
            sleep(Duration::from_millis(20)).await;
            7
        });
        let theirs = Rc::clone(&set);
        let waiter = spawn(async move { poll_fn(|task| theirs.borrow_mut().poll_join_next(task)).await });
        yield_now().await;
        assert!(set.borrow_mut().try_join_next().is_none());
        let joined = timeout(Duration::from_secs(5), waiter).await.expect("it is woken").unwrap();
        assert_eq!(joined.unwrap().unwrap(), 7);
        assert!(set.borrow_mut().try_join_next().is_none());
    });
}
