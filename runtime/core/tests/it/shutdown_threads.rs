//! The end of a runtime as other threads, and the end of its own thread, see it: thread-locals in any order, handles
//! that are awaited elsewhere.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::thread::LocalKey;
use std::time::{Duration, Instant};

use runtime::Runtime;
use runtime::net::TcpListener;
use runtime::pipe::pipe;

use crate::raw::Page;
use crate::scene::{Guards, connected, poll_once};
use crate::support::{Rng, eventually, fds, in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(40);

type Anything = RefCell<Option<Box<dyn Any>>>;

macro_rules! slots {
    ($($name:ident)*) => {
        thread_local! { $(static $name: Anything = const { RefCell::new(None) };)* }

        /// Thread-locals that are destroyed in an order that depends on when each is first used.
        fn slots() -> [&'static LocalKey<Anything>; [$(stringify!($name)),*].len()] {
            [$(&$name),*]
        }
    };
}

slots!(S0 S1 S2 S3 S4 S5 S6 S7 S8 S9);

/// A destructor that tries to use the runtime, whichever is left of it.
struct TriesAll;

impl Drop for TriesAll {
    fn drop(&mut self) {
        // All of these say with a panic that no runtime runs here; none may abort.
        let attempts: [fn(); 4] = [
            || drop(runtime::spawn(async {})),
            || drop(runtime::metrics()),
            || assert!(poll_once(Box::pin(runtime::time::sleep(Duration::from_secs(1))).as_mut()).is_pending()),
            || drop(poll_once(Box::pin(runtime::fs::File::open("/dev/null")).as_mut())),
        ];
        for attempt in attempts {
            assert!(std::panic::catch_unwind(attempt).is_err());
        }
        drop(runtime::spawn_blocking(|| ()));
        Runtime::new().unwrap().block_on(runtime::time::sleep(Duration::from_millis(1)));
    }
}

/// One of everything that a program may keep, half used, and the runtime last.
fn everything(page: &Page) -> Vec<Box<dyn Any>> {
    let rt = Runtime::new().unwrap();
    let mut things: Vec<Box<dyn Any>> = rt.block_on(async {
        let (stream, peer) = connected().await;
        let (busy, busy_peer) = connected().await;
        let handle = runtime::spawn(async move { drop(busy.read(vec![0; 8]).await) });
        let guards = Guards::default();
        let guard = guards.guard();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert!(poll_once(Box::pin(listener.accept()).as_mut()).is_pending());
        let mut sleep = Box::pin(runtime::time::sleep(Duration::from_secs(3600)));
        assert!(poll_once(sleep.as_mut()).is_pending());
        let (tx, rx) = pipe().unwrap();
        let buf = page.buf();
        let mut read: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            let _guard = guard;
            drop(rx.read(buf).await);
        });
        assert!(poll_once(read.as_mut()).is_pending());
        let (lingering, lingering_peer) = connected().await;
        lingering.set_linger(Some(Duration::from_millis(100))).unwrap();
        runtime::task::yield_now().await;
        let things: Vec<Box<dyn Any>> = vec![
            Box::new(stream),
            Box::new(handle),
            Box::new(listener),
            Box::new(sleep),
            Box::new(read),
            Box::new(lingering),
            Box::new((peer, busy_peer, lingering_peer, tx)),
            Box::new(TriesAll),
        ];
        things
    });
    things.push(Box::new(rt));
    things
}

#[test]
fn thread_locals_may_hold_anything_and_end_in_any_order() {
    in_child("shutdown_threads::thread_locals_may_hold_anything_and_end_in_any_order", LIMIT, || {
        // The panics are expected, and many.
        std::panic::set_hook(Box::new(|_| ()));
        let mut rng = Rng(21);
        let mut open = 0;
        for round in 0..100 {
            let mut order: Vec<usize> = (0..slots().len()).collect();
            for at in (1..order.len()).rev() {
                order.swap(at, rng.below(at as u64 + 1) as usize);
            }
            let before = rng.below(2) == 0;
            let page = Page::new();
            let seen = page.clone();
            std::thread::spawn(move || {
                if before {
                    for &slot in &order {
                        slots()[slot].with(|slot| assert!(slot.borrow().is_none()));
                    }
                    // First used in one order, filled in another.
                    order.rotate_left(3);
                }
                for (thing, slot) in everything(&page).into_iter().zip(order) {
                    slots()[slot].set(Some(thing));
                }
            })
            .join()
            .unwrap();
            assert!(seen.is_untouched_since_drop(), "round {round}: the buffer of the half-polled read");
            if round == 5 {
                std::thread::sleep(Duration::from_millis(300));
                open = fds();
            }
        }
        eventually("descriptors at base", || fds() <= open);
    });
}

#[test]
fn a_handle_awaited_on_another_thread_is_told_when_the_runtime_ends() {
    let _dog = watchdog(LIMIT);
    let mut rng = Rng(22);
    for round in 0..200 {
        let (send, receive) = std::sync::mpsc::channel();
        let awaiting = std::thread::spawn(move || {
            let handle: runtime::task::JoinHandle<u32> = receive.recv().unwrap();
            let outcome = if round % 2 == 0 {
                futures::executor::block_on(handle)
            } else {
                Runtime::new().unwrap().block_on(handle)
            };
            (outcome, Instant::now())
        });
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            let handle = runtime::spawn(async {
                runtime::time::sleep(Duration::from_secs(3600)).await;
                7
            });
            send.send(handle).unwrap();
            runtime::time::sleep(Duration::from_micros(rng.below(1000))).await;
        });
        drop(rt);
        let ended = Instant::now();
        let (outcome, told) = awaiting.join().unwrap();
        assert!(outcome.unwrap_err().is_cancelled());
        assert!(told.saturating_duration_since(ended) < Duration::from_secs(1), "round {round}");
    }
}

#[test]
fn a_task_that_finished_before_the_end_keeps_its_output_for_other_threads() {
    let _dog = watchdog(LIMIT);
    for _ in 0..50 {
        let rt = Runtime::new().unwrap();
        let (finished, panicked, unfinished) = rt.block_on(async {
            let finished = runtime::spawn(async { "output".to_owned() });
            let panicked = runtime::spawn(async { panic!("a task panics") });
            runtime::task::yield_now().await;
            runtime::task::yield_now().await;
            (finished, panicked, runtime::spawn(std::future::pending::<()>()))
        });
        drop(rt);
        std::thread::spawn(move || {
            assert_eq!(futures::executor::block_on(finished).unwrap(), "output");
            let panicked: Result<(), _> = futures::executor::block_on(panicked);
            assert!(panicked.unwrap_err().is_panic());
            assert!(unfinished.is_finished());
            unfinished.abort();
            assert!(futures::executor::block_on(unfinished).unwrap_err().is_cancelled());
        })
        .join()
        .unwrap();
    }
}

#[test]
fn a_blocking_job_finishes_for_those_who_await_it_after_the_end() {
    let _dog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    // Does not need a running runtime.
    let handle = runtime::spawn_blocking(move || wait.recv().is_ok());
    rt.block_on(runtime::task::yield_now());
    drop(rt);
    go.send(()).unwrap();
    assert!(futures::executor::block_on(handle).unwrap());
}
