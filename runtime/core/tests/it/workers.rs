//! Threads that work for a runtime: the blocking pool's, which are bounded, named and let go, and the kernel's.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use runtime::testing::io_workers;
use runtime::time::timeout;
use runtime::{Builder, Runtime, spawn_blocking};

use crate::support::{eventually, in_child, threads, watchdog};

const LIMIT: Duration = Duration::from_secs(30);

/// The names of this process's threads as the kernel has them.
fn names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(|task| name(task.ok()?)).map(|name| name.trim().to_owned()).collect()
}

fn pool_threads() -> usize {
    names().iter().filter(|name| *name == "rt-blocking").count()
}

/// The address space of this process, in bytes.
fn size() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn jobs_that_find_no_thread_are_cancelled_whoever_else_is_looking_for_one() {
    in_child("workers::jobs_that_find_no_thread_are_cancelled_whoever_else_is_looking_for_one", LIMIT, || {
        const THREADS: usize = 3;
        if size() > 1 << 40 {
            // AddressSanitizer has taken terabytes, and cannot live with a limit.
            return;
        }
        let start = Barrier::new(THREADS);
        let look = &|is_first: bool| {
            let rt = Runtime::new().unwrap();
            start.wait();
            if is_first {
                // Less than a stack, and enough for small allocations.
                let limit = libc::rlimit { rlim_cur: size() + (1 << 20), rlim_max: libc::RLIM_INFINITY };
                // SAFETY: reads one structure.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
            }
            start.wait();
            rt.block_on(async {
                for round in 0..200 {
                    start.wait();
                    let job = timeout(Duration::from_secs(5), spawn_blocking(move || round)).await;
                    match job.expect("neither run nor cancelled") {
                        Ok(result) => assert_eq!(result, round),
                        Err(error) => assert!(error.is_cancelled()),
                    }
                }
            });
        };
        std::thread::scope(|scope| {
            for n in 0..THREADS {
                scope.spawn(move || look(n == 0));
            }
        });
    });
}

#[test]
fn a_thousand_jobs_share_the_threads_that_were_asked_for() {
    in_child("workers::a_thousand_jobs_share_the_threads_that_were_asked_for", LIMIT, || {
        let rt = Builder::new().blocking_threads(4).build().unwrap();
        // One that asks for nothing changes nothing.
        let _other = Runtime::new().unwrap();
        assert_eq!(pool_threads(), 0, "started when there is work");
        rt.block_on(async {
            let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let seen = Arc::new(Mutex::new(HashSet::new()));
            let jobs: Vec<_> = (0..1000)
                .map(|n| {
                    let (now, most, seen) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&seen));
                    spawn_blocking(move || {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        seen.lock().unwrap().insert(std::thread::current().id());
                        assert_eq!(std::thread::current().name(), Some("rt-blocking"));
                        // Long enough that one thread cannot have them all.
                        std::thread::sleep(Duration::from_micros(200));
                        now.fetch_sub(1, Ordering::SeqCst);
                        n
                    })
                })
                .collect();
            for (n, job) in jobs.into_iter().enumerate() {
                assert_eq!(job.await.unwrap(), n);
            }
            assert_eq!(most.load(Ordering::SeqCst), 4);
            assert_eq!(seen.lock().unwrap().len(), 4);
            assert_eq!(pool_threads(), 4);
        });
    });
}

#[test]
fn the_largest_wish_counts() {
    in_child("workers::the_largest_wish_counts", LIMIT, || {
        let rt = Builder::new().blocking_threads(2).build().unwrap();
        let _second = Builder::new().blocking_threads(5).build().unwrap();
        let _third = Builder::new().blocking_threads(3).build().unwrap();
        rt.block_on(async {
            let barrier = Arc::new(std::sync::Barrier::new(5));
            let jobs: Vec<_> = (0..5)
                .map(|_| {
                    let barrier = Arc::clone(&barrier);
                    spawn_blocking(move || barrier.wait().is_leader())
                })
                .collect();
            let mut leaders = 0;
            for job in jobs {
                leaders += usize::from(job.await.unwrap());
            }
            assert_eq!((leaders, pool_threads()), (1, 5));
        });
    });
}

#[test]
fn idle_threads_go_after_the_time_that_was_asked_for() {
    in_child("workers::idle_threads_go_after_the_time_that_was_asked_for", LIMIT, || {
        let rt = Builder::new().thread_keep_alive(Duration::from_millis(20)).build().unwrap();
        let before = threads();
        rt.block_on(async {
            let barrier = Arc::new(std::sync::Barrier::new(3));
            let jobs: Vec<_> = (0..3)
                .map(|_| {
                    let barrier = Arc::clone(&barrier);
                    spawn_blocking(move || _ = barrier.wait())
                })
                .collect();
            for job in jobs {
                job.await.unwrap();
            }
        });
        eventually("all of them are gone", || threads() == before && pool_threads() == 0);
        // And come again.
        assert_eq!(rt.block_on(async { spawn_blocking(|| 5).await.unwrap() }), 5);
    });
}

#[test]
fn a_panic_costs_no_thread_and_is_its_handles() {
    in_child("workers::a_panic_costs_no_thread_and_is_its_handles", LIMIT, || {
        std::panic::set_hook(Box::new(|_| {}));
        let rt = Builder::new().blocking_threads(1).build().unwrap();
        rt.block_on(async {
            let thread = spawn_blocking(|| std::thread::current().id()).await.unwrap();
            for n in 0..20 {
                let error = spawn_blocking(move || panic!("job {n}")).await.map(|()| 0).unwrap_err();
                assert_eq!(crate::kit::text_of(&*error.into_panic()), format!("job {n}"));
            }
            assert_eq!(spawn_blocking(|| std::thread::current().id()).await.unwrap(), thread);
        });
    });
}

#[test]
fn a_runtime_that_ends_waits_for_running_jobs_and_drops_none_of_the_queue() {
    in_child("workers::a_runtime_that_ends_waits_for_running_jobs_and_drops_none_of_the_queue", LIMIT, || {
        let rt = Builder::new().blocking_threads(2).build().unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        rt.block_on(async {
            for _ in 0..50 {
                let ran = Arc::clone(&ran);
                drop(spawn_blocking(move || {
                    std::thread::sleep(Duration::from_millis(1));
                    ran.fetch_add(1, Ordering::SeqCst);
                }));
            }
        });
        rt.shutdown_timeout(Duration::from_secs(10));
        assert_eq!(ran.load(Ordering::SeqCst), 50);
    });
}

#[test]
fn no_blocking_thread_at_all_is_refused() {
    let error = Builder::new().blocking_threads(0).build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn the_kernels_workers_are_bounded_as_asked() {
    let _watchdog = watchdog(LIMIT);
    // The bounds are the thread's.
    std::thread::spawn(|| {
        // A ring of few entries would leave few workers to this thread.
        let small = Builder::new().entries(1).build().unwrap();
        let cpus = std::thread::available_parallelism().unwrap().get() as u32;
        let [bounded, unbounded] = io_workers(&small);
        assert_eq!(bounded, 4 * cpus);
        assert!(unbounded > 0);
        let asked = Builder::new().io_workers(3, 7).build().unwrap();
        assert_eq!(io_workers(&asked), [3, 7]);
        // Who only looks does not change them.
        runtime::probe().ring.unwrap();
        assert_eq!(io_workers(&asked), [3, 7]);
        for numbers in [(2, u32::MAX), (1 << 31, 1)] {
            let refused = Builder::new().io_workers(numbers.0, numbers.1).build().unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        }
        let half = Builder::new().io_workers(0, 9).build().unwrap();
        assert_eq!(io_workers(&half), [4 * cpus, 9]);
    })
    .join()
    .unwrap();
}

#[test]
fn what_a_waker_throws_costs_the_pool_no_thread() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("a payload that panics as it is dropped");
            }
        }
    }
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            std::panic::panic_any(Bomb);
        }
    }
    in_child("workers::what_a_waker_throws_costs_the_pool_no_thread", LIMIT, || {
        Builder::new().blocking_threads(1).build().unwrap().block_on(async {
            for n in 0..3 {
                let mut job = spawn_blocking(|| std::thread::sleep(Duration::from_millis(20)));
                let bad = Waker::from(Arc::new(Bad));
                assert!(Pin::new(&mut job).poll(&mut Context::from_waker(&bad)).is_pending());
                let next = timeout(Duration::from_secs(5), spawn_blocking(move || n)).await;
                assert_eq!(next.expect("a thread is left").unwrap(), n);
            }
        });
    });
}
