//! Values that belong to a task: each task sees its own, at every poll and in destructors, and nobody else does.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use runtime::task::yield_now;
use runtime::{Runtime, spawn, task_local};

use crate::kit::{OnDrop, panic_text, poll_once};
use crate::support::watchdog;

const LIMIT: Duration = Duration::from_secs(20);

task_local! {
    /// A number.
    static NUMBER: u32;
    static NAME: RefCell<String>
}

#[test]
fn each_task_sees_its_own_value_at_every_poll() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let tasks = (0..50u32).map(|n| {
            spawn(NUMBER.scope(n, async move {
                for _ in 0..20 {
                    assert_eq!(NUMBER.get(), n);
                    yield_now().await;
                    NUMBER.with(|number| assert_eq!(*number, n));
                }
                n
            }))
        });
        let sum: u32 = join_all(tasks.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(sum, 49 * 25);
        assert!(NUMBER.try_with(|_| ()).is_err() && NUMBER.try_get().is_err());
    });
}

#[test]
fn scopes_nest_and_spawned_tasks_do_not_inherit() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(NUMBER.scope(1, async {
        let inner = NUMBER.scope(2, async {
            yield_now().await;
            assert_eq!(NUMBER.get(), 2);
            let outer = NAME.scope(RefCell::new(String::new()), async {
                NAME.with(|name| name.borrow_mut().push_str("ada"));
                yield_now().await;
                (NUMBER.get(), NAME.with(|name| name.borrow().clone()))
            });
            assert_eq!(outer.await, (2, "ada".to_owned()));
        });
        inner.await;
        assert_eq!(NUMBER.get(), 1);
        assert_eq!(NUMBER.sync_scope(3, || NUMBER.get()), 3);
        assert_eq!(NUMBER.get(), 1);
        assert!(spawn(async { NUMBER.try_get().is_err() }).await.unwrap());
    }));
}

#[test]
fn a_panic_puts_everything_back() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(NUMBER.scope(1, async {
        let failing = spawn(NUMBER.scope(2, async { panic!("on purpose") }));
        assert!(failing.await.unwrap_err().is_panic());
        let inside = AssertUnwindSafe(NUMBER.scope(3, async { panic!("on purpose") })).catch_unwind();
        assert!(inside.await.is_err());
        assert!(catch_unwind(|| NUMBER.sync_scope(4, || panic!("on purpose"))).is_err());
        assert_eq!(NUMBER.get(), 1);
    }));
}

#[test]
fn destructors_of_the_future_see_the_value() {
    let _watchdog = watchdog(LIMIT);
    let seen = Rc::new(Cell::new(0));
    let guard = || {
        let seen = Rc::clone(&seen);
        OnDrop(move || seen.set(seen.get() + NUMBER.get()))
    };
    let never = |guard: OnDrop<_>| async move {
        let _guard: OnDrop<_> = guard;
        std::future::pending::<()>().await;
    };
    Runtime::new().unwrap().block_on(async {
        // Never polled, dropped between polls, aborted, and completed.
        drop(NUMBER.scope(1, never(guard())));
        let mut polled = Box::pin(NUMBER.scope(10, never(guard())));
        assert!(poll_once(&mut polled).await.is_pending());
        drop(polled);
        let task = spawn(NUMBER.scope(100, never(guard())));
        yield_now().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        let guard = guard();
        NUMBER.scope(1000, async move { drop(guard) }).await;
        assert_eq!(seen.get(), 1111);
    });
}

#[test]
fn misuse_is_told_with_a_sentence() {
    assert!(panic_text(|| NUMBER.with(|_| ())).contains("KEY.scope(value, future)"));
    let nested = panic_text(|| NUMBER.sync_scope(1, || NUMBER.with(|_| NUMBER.sync_scope(2, || ()))));
    assert!(nested.contains("inside of `with`"), "{nested}");
    assert!(NUMBER.try_with(|_| ()).is_err(), "put back");
    assert_eq!(NUMBER.try_with(|_| ()).unwrap_err().to_string(), "the task-local value is not set here");
}

#[test]
fn the_value_can_be_taken_out() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut scope = pin!(NUMBER.scope(5, async {
            let first = NUMBER.try_get().ok();
            yield_now().await;
            (first, NUMBER.try_get().ok())
        }));
        let first = poll_fn(|task| std::task::Poll::Ready(scope.as_mut().poll(task))).await;
        assert!(first.is_pending());
        assert_eq!(scope.as_mut().take_value(), Some(5));
        assert_eq!(scope.await, (Some(5), None));
    });
}
