//! Futures that are not `Send` in a wrapper that is: touched at home only, wherever the wrapper goes.

use std::future::pending;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use runtime::task::{leaked_locals, local, yield_now};
use runtime::{Runtime, spawn};

use crate::kit::{poll_once, text_of, until};
use crate::support::{in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(20);

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Counts its drops, and panics when one is not on its own thread. Not `Send` by its `Rc`.
struct Homebody {
    home: ThreadId,
    drops: Arc<AtomicUsize>,
    _here: Rc<()>,
}

impl Homebody {
    fn new(drops: &Arc<AtomicUsize>) -> Self {
        Self { home: std::thread::current().id(), drops: Arc::clone(drops), _here: Rc::new(()) }
    }
}

impl Drop for Homebody {
    fn drop(&mut self) {
        if self.home != std::thread::current().id() {
            eprintln!("dropped on a thread that is not its own");
            std::process::abort();
        }
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn idle(drops: &Arc<AtomicUsize>) -> Boxed<()> {
    let body = Homebody::new(drops);
    Box::pin(local(async move {
        let _body = body;
        pending().await
    }))
}

#[test]
fn at_home_it_is_a_future_like_any_other() {
    let _watchdog = watchdog(LIMIT);
    let drops = Arc::default();
    Runtime::new().unwrap().block_on(async {
        let body = Homebody::new(&drops);
        let future: Boxed<u32> = Box::pin(local(async move {
            yield_now().await;
            drop(body);
            7
        }));
        assert_eq!(spawn(future).await.unwrap(), 7);
        let mut waiting = idle(&drops);
        assert!(poll_once(&mut waiting).await.is_pending());
        drop(waiting);
        drop(idle(&drops));
        assert_eq!(drops.load(Ordering::Relaxed), 3);
    });
    // Also outside of a runtime.
    drop(idle(&drops));
    assert_eq!(drops.load(Ordering::Relaxed), 4);
}

#[test]
fn polled_elsewhere_it_panics_with_a_sentence() {
    in_child("local::polled_elsewhere_it_panics_with_a_sentence", LIMIT, || {
        let drops = Arc::default();
        Runtime::new().unwrap().block_on(async {
            let mut waiting = idle(&drops);
            assert!(poll_once(&mut waiting).await.is_pending());
            let away = std::thread::spawn(move || {
                let _ = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            });
            let text = text_of(&*away.join().unwrap_err());
            assert!(text.contains("polled on another thread"), "{text}");
            // The wrapper was dropped there, the future comes home.
            until(|| drops.load(Ordering::Relaxed) == 1).await;
        });
        assert_eq!(leaked_locals(), 0);
    });
}

#[test]
fn dropped_elsewhere_it_is_dropped_at_home() {
    in_child("local::dropped_elsewhere_it_is_dropped_at_home", LIMIT, || {
        let drops = Arc::default();
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            for round in 0..100 {
                let mut waiting = idle(&drops);
                assert!(poll_once(&mut waiting).await.is_pending());
                let away = std::thread::spawn(move || drop(waiting));
                // It also ends a sleep.
                until(|| drops.load(Ordering::Relaxed) == round + 1).await;
                away.join().unwrap();
            }
        });
        // Between two `block_on` it waits at the door, for the next one or for the end.
        for at_end in [false, true] {
            let strays: Vec<_> = rt.block_on(async { (0..10).map(|_| idle(&drops)).collect() });
            std::thread::spawn(move || drop(strays)).join().unwrap();
            assert_eq!(drops.load(Ordering::Relaxed), 100 + if at_end { 10 } else { 0 });
            if !at_end {
                rt.block_on(async { until(|| drops.load(Ordering::Relaxed) == 110).await });
            }
        }
        drop(rt);
        assert_eq!((drops.load(Ordering::Relaxed), leaked_locals()), (120, 0));
    });
}

#[test]
fn without_a_home_it_is_leaked_and_counted() {
    in_child("local::without_a_home_it_is_leaked_and_counted", LIMIT, || {
        let drops = Arc::default();
        let outside = idle(&drops);
        let [late] = Runtime::new().unwrap().block_on(async { [idle(&drops)] });
        std::thread::spawn(move || drop((outside, late))).join().unwrap();
        assert_eq!((drops.load(Ordering::Relaxed), leaked_locals()), (0, 2));
    });
}

#[test]
fn a_destructor_that_panics_at_home_harms_nobody() {
    let _watchdog = watchdog(LIMIT);
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let drops = Arc::default();
    let rt = Runtime::new().unwrap();
    let [first] = rt.block_on(async {
        let panics = Panics;
        let first: Boxed<()> = Box::pin(local(async move {
            let _panics = panics;
            pending().await
        }));
        [first]
    });
    let [second] = rt.block_on(async { [idle(&drops)] });
    std::thread::spawn(move || {
        drop(first);
        drop(second);
    })
    .join()
    .unwrap();
    // Told where the runtime runs, after what came behind it.
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rt.block_on(async { runtime::time::sleep(Duration::from_millis(5)).await });
    }));
    assert!(told.is_err());
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    rt.block_on(async { yield_now().await });
}
