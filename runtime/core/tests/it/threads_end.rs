//! A group that fails: as it starts, and while it runs.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use runtime::net::TcpListener;
use runtime::time::sleep;
use runtime::{Builder, Handle};

use crate::kit::{OnDrop, text_of};
use crate::support::{eventually, fds, in_child, scaled, threads, watchdog};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits for a client that never comes.
async fn accepts() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    loop {
        drop(listener.accept().await?);
    }
}

/// Bodies that ran although their group did not start.
static RAN: AtomicUsize = AtomicUsize::new(0);

async fn runs_never(_: Handle) -> io::Result<()> {
    RAN.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[test]
fn a_panic_in_any_body_stops_the_others_and_goes_on_in_the_caller() {
    let _watchdog = watchdog(LIMIT);
    for failing in [0, 3] {
        let dropped = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&dropped);
        let start = Instant::now();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            Builder::new().threads(4).run(move |cx: Handle| {
                let count = Arc::clone(&count);
                let guard = OnDrop(move || _ = count.fetch_add(1, Ordering::SeqCst));
                async move {
                    let _guard = guard;
                    if cx.index() == failing {
                        sleep(Duration::from_millis(100)).await;
                        panic!("body {failing} is done for");
                    }
                    accepts().await
                }
            })
        }));
        let text = text_of(&*panic.unwrap_err());
        assert_eq!(text, format!("body {failing} is done for"));
        assert_eq!(dropped.load(Ordering::SeqCst), 4, "every body was dropped");
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(600), "the others had their grace: {took:?}");
        // Half a second for the others and a moment for the threads, with room for a busy machine.
        assert!(took < scaled(Duration::from_secs(5)), "not waited for: {took:?}");
    }
}

#[test]
fn bodies_that_listen_come_to_their_end_before_the_grace_is_over() {
    let _watchdog = watchdog(LIMIT);
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let start = Instant::now();
    let failed = Builder::new().threads(3).stop_grace(Duration::from_secs(3600)).run(move |cx: Handle| {
        let count = Arc::clone(&count);
        async move {
            if cx.index() == 1 {
                return Err(io::Error::from_raw_os_error(libc::EDOM));
            }
            cx.stopped().await;
            // An orderly end takes a few turns.
            sleep(Duration::from_millis(5)).await;
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    });
    assert_eq!(failed.unwrap_err().raw_os_error(), Some(libc::EDOM));
    assert_eq!(ended.load(Ordering::SeqCst), 2);
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn the_first_of_several_failures_is_returned() {
    let _watchdog = watchdog(LIMIT);
    let failed = Builder::new().threads(3).run(async |cx: Handle| {
        if cx.index() != 2 {
            cx.stopped().await;
            assert_ne!(cx.index(), 0, "a later panic is not what is returned");
        }
        io::Result::<()>::Err(io::Error::other(format!("failure of {}", cx.index())))
    });
    assert_eq!(failed.unwrap_err().to_string(), "failure of 2");
}

#[test]
fn a_closure_that_panics_before_it_makes_a_future_counts_as_its_body() {
    let _watchdog = watchdog(LIMIT);
    let panic = catch_unwind(|| {
        Builder::new().threads(2).run(|cx: Handle| {
            assert_eq!(cx.index(), 0, "made no future");
            async move {
                cx.stopped().await;
                io::Result::Ok(())
            }
        })
    });
    assert!(text_of(&*panic.unwrap_err()).contains("made no future"));
}

#[test]
fn a_body_that_never_suspends_is_left_alone() {
    in_child("threads_end::a_body_that_never_suspends_is_left_alone", LIMIT, || {
        let (start, running) = (Instant::now(), threads());
        let builder = Builder::new().threads(2).stop_grace(Duration::ZERO).shutdown_timeout(Duration::from_millis(50));
        let failed = builder.run(async |cx: Handle| {
            if cx.index() == 1 {
                // Computes, for longer than anybody waits.
                std::thread::sleep(Duration::from_secs(3600));
            }
            io::Result::<()>::Err(io::Error::other("the other one"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "the other one");
        assert!(start.elapsed() < Duration::from_secs(20));
        eventually("the one that computes is left", || threads() == running + 1);
    });
}

#[test]
fn a_destructor_that_panics_while_bodies_are_dropped_costs_nobody_else() {
    let _watchdog = watchdog(LIMIT);
    let failed = Builder::new().threads(3).stop_grace(Duration::from_millis(10)).run(async |cx: Handle| {
        if cx.index() == 0 {
            return Err(io::Error::other("first"));
        }
        let _guard = OnDrop(|| panic!("in a destructor"));
        accepts().await
    });
    assert_eq!(failed.unwrap_err().to_string(), "first");
}

#[test]
fn a_thread_that_cannot_start_leaves_no_half_of_a_group() {
    in_child("threads_end::a_thread_that_cannot_start_leaves_no_half_of_a_group", LIMIT, || {
        let running = threads();
        // Set-up fails everywhere.
        let mut builder = Builder::new().threads(3);
        builder.setup_mut().fail_with = Some(libc::EPERM);
        let error = builder.run(runs_never).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("io_uring cannot be set up"), "{error}");
        assert!(error.get_ref().is_some_and(|cause| cause.is::<runtime::StartError>()));

        // It fails for the last ones: a ring takes two descriptors.
        Builder::new().threads(1).run(async |_: Handle| io::Result::Ok(())).unwrap();
        let open = fds();
        let limit = libc::rlimit { rlim_cur: open as u64 + 5, rlim_max: open as u64 + 5 };
        // SAFETY: reads one structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        for _ in 0..5 {
            let error = Builder::new().threads(6).run(runs_never).unwrap_err();
            assert!(error.to_string().contains("no file descriptor left"), "{error}");
            assert_eq!(RAN.load(Ordering::SeqCst), 0);
            eventually("threads at base", || threads() == running);
            eventually("descriptors at base", || fds() <= open);
        }
        // What is left suffices for fewer.
        Builder::new().threads(2).run(async |_: Handle| io::Result::Ok(())).unwrap();
    });
}

#[test]
fn a_thread_that_the_system_refuses_is_said_by_name() {
    in_child("threads_end::a_thread_that_the_system_refuses_is_said_by_name", LIMIT, || {
        let running = threads();
        // Room for a few stacks of two megabytes, and for what small allocations there are.
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let size = pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096;
        if size > 1 << 40 {
            // AddressSanitizer has taken terabytes, and cannot live with a limit.
            return;
        }
        let limit = libc::rlimit { rlim_cur: size + (7 << 20), rlim_max: size + (7 << 20) };
        // SAFETY: reads one structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
        let error = Builder::new().threads(50).entries(8).run(runs_never).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(error.to_string().contains("of the runtime cannot be started"), "{error}");
        assert_eq!(RAN.load(Ordering::SeqCst), 0);
        eventually("threads at base", || threads() == running);
    });
}

#[test]
fn what_a_thread_leaves_behind_keeps_nobody_from_returning() {
    in_child("threads_end::what_a_thread_leaves_behind_keeps_nobody_from_returning", LIMIT, || {
        let outputs = Builder::new().threads(2).run(async |cx: Handle| {
            if cx.index() == 1 {
                let (tx, rx) = runtime::pipe::pipe()?;
                runtime::spawn(async move {
                    let _tx = tx;
                    rx.read(vec![0; 8]).await.0
                });
                runtime::task::yield_now().await;
                // From now on the ring cannot be entered, so the read cannot be cancelled.
                runtime::testing::inject_enter_faults(&[libc::EBADF; 64]);
            }
            io::Result::Ok(cx.index())
        });
        assert_eq!(outputs.unwrap(), [0, 1]);
    });
}

#[test]
fn a_ring_that_breaks_under_a_body_stops_the_group() {
    in_child("threads_end::a_ring_that_breaks_under_a_body_stops_the_group", LIMIT, || {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            Builder::new().threads(2).run(async |cx: Handle| {
                if cx.index() == 1 {
                    runtime::testing::inject_enter_faults(&[libc::EBADF; 64]);
                }
                accepts().await
            })
        }));
        let text = text_of(&*panic.unwrap_err());
        assert!(text.contains("io_uring_enter failed"), "{text}");
    });
}

#[test]
fn thread_local_destructors_are_waited_for_no_longer_than_anything_else() {
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    thread_local! {
        static SLOW: Slow = const { Slow };
    }
    in_child("threads_end::thread_local_destructors_are_waited_for_no_longer_than_anything_else", LIMIT, || {
        let start = Instant::now();
        let runtime = Builder::new().threads(2).build().unwrap();
        runtime.block_on(async { runtime::spawn_on(1, || async { SLOW.with(|_| {}) }).await.unwrap() });
        assert_eq!(runtime.shutdown_timeout(Duration::from_millis(50)), 0);
        let group = Builder::new().threads(2).shutdown_timeout(Duration::from_millis(50));
        let outputs = group.run(async |handle: Handle| {
            SLOW.with(|_| {});
            io::Result::Ok(handle.index())
        });
        assert_eq!(outputs.unwrap(), [0, 1]);
        assert!(start.elapsed() < Duration::from_secs(20));
    });
}
