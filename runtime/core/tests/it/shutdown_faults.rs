//! The end of a runtime when the kernel or foreign code misbehaves meanwhile.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use runtime::Runtime;
use runtime::io::{IoBuf, IoBufMut};
use runtime::pipe::pipe;
use runtime::testing::{inject_enter_faults, tiny};

use crate::kit::waker;
use crate::raw::{exit_at_once, forbid, fork};
use crate::scene::{Guards, connected, pend_on_everything, poll_once, timed};
use crate::support::{eventually, fds, in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(40);
const AT_ONCE: Duration = Duration::from_secs(2);

#[test]
fn shortages_of_the_kernel_while_draining_leave_nothing_behind() {
    in_child("shutdown_faults::shortages_of_the_kernel_while_draining_leave_nothing_behind", LIMIT, || {
        for errnos in [[libc::EINTR; 8], [libc::EAGAIN; 8], [libc::EBUSY; 8], [libc::ENOMEM; 8]] {
            let (dir, guards) = (tempfile::tempdir().unwrap(), Guards::default());
            let rt = tiny(8, 16).build().unwrap();
            let _keep = rt.block_on(async {
                let keep = pend_on_everything(&guards, dir.path()).await;
                inject_enter_faults(&errnos);
                keep
            });
            let (left, took) = timed(|| rt.shutdown_timeout(Duration::from_secs(10)));
            assert_eq!((left, guards.living()), (0, 0));
            assert!(took < 2 * AT_ONCE, "{took:?}");
        }
    });
}

#[test]
fn a_ring_that_cannot_be_entered_any_more_ends_at_once_and_says_what_it_leaves() {
    in_child(
        "shutdown_faults::a_ring_that_cannot_be_entered_any_more_ends_at_once_and_says_what_it_leaves",
        LIMIT,
        || {
            let (dir, guards) = (tempfile::tempdir().unwrap(), Guards::default());
            let rt = Runtime::new().unwrap();
            let _keep = rt.block_on(async {
                let keep = pend_on_everything(&guards, dir.path()).await;
                inject_enter_faults(&[libc::EBADF; 64]);
                keep
            });
            let (left, took) = timed(|| rt.shutdown_timeout(Duration::from_secs(10)));
            assert!(left > 5, "{left}");
            assert_eq!(guards.living(), 0, "tasks are dropped all the same");
            assert!(took < AT_ONCE, "{took:?}");
            Runtime::new().unwrap().block_on(runtime::time::sleep(Duration::from_millis(1)));
        },
    );
}

#[test]
fn a_filter_installed_later_is_a_panic_that_names_the_call_and_the_drop_does_not_hang() {
    let name = "shutdown_faults::a_filter_installed_later_is_a_panic_that_names_the_call_and_the_drop_does_not_hang";
    in_child(name, LIMIT, || {
        let child = fork(|| {
            let rt = Runtime::new().unwrap();
            rt.block_on(async {
                let (tx, rx) = pipe().unwrap();
                drop(runtime::spawn(async move {
                    drop(rx.read(vec![0; 8]).await);
                    drop(tx);
                }));
                runtime::task::yield_now().await;
            });
            forbid(libc::SYS_io_uring_enter, libc::EPERM);
            let panic = catch_unwind(AssertUnwindSafe(|| {
                rt.block_on(runtime::time::sleep(Duration::from_millis(300)));
            }));
            let text = panic.unwrap_err().downcast_ref::<String>().cloned().unwrap_or_default();
            assert!(text.contains("io_uring_enter"), "{text}");
            let ((), took) = timed(|| drop(rt));
            assert!(took < AT_ONCE, "{took:?}");
            exit_at_once(0)
        });
        assert_eq!(child.wait(), 0);
    });
}

/// A buffer whose destructor panics.
struct Bomb(Vec<u8>);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a buffer's destructor panics");
    }
}

// SAFETY: heap memory of a vector that stays as it is.
unsafe impl IoBuf for Bomb {
    fn stable_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: as above; all of it is initialised.
unsafe impl IoBufMut for Bomb {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    fn capacity(&self) -> usize {
        self.0.len()
    }

    unsafe fn set_len(&mut self, _len: usize) {}
}

#[test]
fn buffers_whose_destructors_panic_neither_abort_nor_hold_up_the_others() {
    in_child("shutdown_faults::buffers_whose_destructors_panic_neither_abort_nor_hold_up_the_others", LIMIT, || {
        let round = || {
            let rt = Runtime::new().unwrap();
            let guards = Guards::default();
            rt.block_on(async {
                for n in 0..12 {
                    let (tx, rx) = pipe().unwrap();
                    let guard = guards.guard();
                    drop(runtime::spawn(async move {
                        let _all = (guard, tx);
                        if n % 2 == 0 {
                            drop(rx.read(Bomb(vec![0; 8])).await);
                        } else {
                            drop(rx.read(vec![0; 8]).await);
                        }
                    }));
                    // Forgotten ones are found by the drain only.
                    let (stream, peer) = connected().await;
                    let stream = Rc::new(stream);
                    let mut read = Box::pin({
                        let stream = Rc::clone(&stream);
                        async move { drop(stream.read(Bomb(vec![0; 8])).await) }
                    });
                    assert!(poll_once(read.as_mut()).is_pending());
                    std::mem::forget(read);
                    drop(peer);
                }
                runtime::task::yield_now().await;
            });
            let (outcome, took) =
                timed(|| catch_unwind(AssertUnwindSafe(|| rt.shutdown_timeout(Duration::from_secs(10)))));
            assert_eq!(outcome.expect("a destructor's panic left the end of the runtime"), 0);
            assert_eq!(guards.living(), 0);
            assert!(took < AT_ONCE, "{took:?}");
        };
        std::panic::set_hook(Box::new(|_| ()));
        round();
        let open = fds();
        for _ in 0..5 {
            round();
        }
        let _ = std::panic::take_hook();
        // Each round forgets twelve futures, which own their streams: those descriptors are the test's own leak.
        eventually("descriptors at base", || fds() <= open + 5 * 12);
    });
}

#[test]
fn a_waker_may_drop_another_runtime_while_this_one_acts() {
    let _dog = watchdog(LIMIT);
    let outer = Runtime::new().unwrap();
    let guards = Guards::default();
    let dir = tempfile::tempdir().unwrap();
    let inner = Runtime::new().unwrap();
    let keep = inner.block_on(pend_on_everything(&guards, dir.path()));
    let inner = Rc::new(RefCell::new(Some(inner)));
    outer.block_on(async {
        let (tx, rx) = pipe().unwrap();
        let mut read = Box::pin(rx.read(vec![0; 8]));
        let dropping = {
            let inner = Rc::clone(&inner);
            waker(move || drop(inner.take()))
        };
        let first = read.as_mut().poll(&mut std::task::Context::from_waker(&dropping));
        assert!(first.is_pending());
        // Another operation completes in the same visit, behind it.
        let (other_tx, other_rx) = pipe().unwrap();
        let other = runtime::spawn(async move { other_rx.read(vec![0; 8]).await.0.unwrap() });
        runtime::task::yield_now().await;
        let (a, b) = futures::join!(tx.write_all("ab"), other_tx.write_all("abc"));
        a.0.unwrap();
        b.0.unwrap();
        assert_eq!(other.await.unwrap(), 3);
        assert!(inner.borrow().is_none(), "the waker ran");
        assert_eq!(guards.living(), 0);
        assert_eq!(read.await.0.unwrap(), 2);
    });
    drop(keep);
}

#[test]
fn a_runtime_dropped_while_its_thread_unwinds_ends_as_usual() {
    let _dog = watchdog(LIMIT);
    let guards = Guards::default();
    let dir = tempfile::tempdir().unwrap();
    let mut keep = None;
    let (caught, took) = timed(|| {
        catch_unwind(AssertUnwindSafe(|| {
            let rt = Runtime::new().unwrap();
            keep = Some(rt.block_on(pend_on_everything(&guards, dir.path())));
            panic!("while a runtime is there");
        }))
    });
    assert!(caught.is_err());
    assert_eq!(guards.living(), 0);
    assert!(took < 2 * AT_ONCE, "{took:?}");
}
