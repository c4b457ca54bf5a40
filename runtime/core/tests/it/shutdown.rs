//! The end of a runtime: bounded, complete and quiet, whatever is in flight and whatever destructors do (I6, ruling 8).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use runtime::Runtime;
use runtime::net::{TcpListener, TcpStream};
use runtime::op::{Cqe, Kind, Op, opcode, squeue, submit, types};
use runtime::pipe::pipe;
use runtime::testing::{in_flight, tiny};

use crate::alloc;
use crate::raw::{Page, PageBuf, StuckPage};
use crate::scene::{Guards, connected, pend_on_everything, poll_once, timed};
use crate::support::{eventually, fds, in_child, threads, watchdog};

const LIMIT: Duration = Duration::from_secs(40);
const AT_ONCE: Duration = Duration::from_secs(2);

#[test]
fn a_runtime_dropped_in_mid_flight_ends_at_once_and_leaves_nothing() {
    in_child("shutdown::a_runtime_dropped_in_mid_flight_ends_at_once_and_leaves_nothing", LIMIT, || {
        let round = |rt: Runtime| {
            let dir = tempfile::tempdir().unwrap();
            let guards = Guards::default();
            let keep = rt.block_on(pend_on_everything(&guards, dir.path()));
            assert!(guards.living() >= 15, "{}", guards.living());
            let ((), took) = timed(|| drop(rt));
            assert!(took < AT_ONCE, "{took:?}");
            assert_eq!(guards.living(), 0, "tasks that were not dropped");
            drop(keep);
        };
        round(Runtime::new().unwrap());
        let (open, running) = (fds(), threads());
        for n in 0..10 {
            round(if n % 2 == 0 { Runtime::new().unwrap() } else { tiny(8, 16).build().unwrap() });
        }
        eventually("descriptors at base", || fds() == open);
        eventually("threads at base", || threads() <= running);
    });
}

#[test]
fn nothing_that_can_be_cancelled_is_left_behind() {
    in_child("shutdown::nothing_that_can_be_cancelled_is_left_behind", LIMIT, || {
        for limit in [Duration::from_millis(500), Duration::MAX] {
            let (dir, guards) = (tempfile::tempdir().unwrap(), Guards::default());
            let rt = Runtime::new().unwrap();
            let _keep = rt.block_on(pend_on_everything(&guards, dir.path()));
            let (left, took) = timed(|| rt.shutdown_timeout(limit));
            assert_eq!((left, guards.living()), (0, 0));
            assert!(took < AT_ONCE, "{took:?}");
        }
    });
}

#[test]
fn no_time_at_all_still_drops_every_task() {
    let _dog = watchdog(LIMIT);
    let (guards, dir) = (Guards::default(), tempfile::tempdir().unwrap());
    let rt = Runtime::new().unwrap();
    let keep = rt.block_on(pend_on_everything(&guards, dir.path()));
    let (left, took) = timed(|| rt.shutdown_timeout(Duration::ZERO));
    assert!(took < AT_ONCE, "{took:?}");
    assert!(left <= 24, "{left}");
    assert_eq!(guards.living(), 0);
    drop(keep);
}

#[test]
fn a_small_ring_drains_a_thousand_operations() {
    in_child("shutdown::a_small_ring_drains_a_thousand_operations", LIMIT, || {
        let round = || {
            let rt = tiny(8, 16).build().unwrap();
            let guards = Guards::default();
            rt.block_on(async {
                for _ in 0..500 {
                    let (tx, rx) = pipe().unwrap();
                    let guard = guards.guard();
                    drop(runtime::spawn(async move {
                        let _all = (guard, tx);
                        let read = runtime::time::timeout(Duration::from_secs(3600), rx.read(vec![0; 8]));
                        futures::join!(read, rx.read(vec![0; 8])).1.0.unwrap();
                    }));
                }
                runtime::task::yield_now().await;
            });
            let (left, took) = timed(|| rt.shutdown_timeout(Duration::from_secs(10)));
            assert_eq!((left, guards.living()), (0, 0));
            assert!(took < 2 * AT_ONCE, "{took:?}");
        };
        round();
        let open = fds();
        round();
        eventually("descriptors at base", || fds() == open);
    });
}

#[test]
fn after_a_panic_out_of_block_on_the_thread_can_have_a_new_runtime() {
    in_child("shutdown::after_a_panic_out_of_block_on_the_thread_can_have_a_new_runtime", LIMIT, || {
        let round = |drop_before_the_next: bool| {
            let rt = Runtime::new().unwrap();
            let guards = Guards::default();
            let caught = catch_unwind(AssertUnwindSafe(|| {
                rt.block_on(async {
                    let mut reads = Vec::new();
                    let mut writers = Vec::new();
                    for _ in 0..20 {
                        let (tx, rx) = pipe().unwrap();
                        writers.push(tx);
                        let guard = guards.guard();
                        let mut read = Box::pin(async move {
                            let _guard = guard;
                            rx.read(vec![0; 8]).await.0.unwrap()
                        });
                        assert!(poll_once(read.as_mut()).is_pending());
                        reads.push(read);
                        let guard = guards.guard();
                        drop(runtime::spawn(async move {
                            let _guard = guard;
                            runtime::time::sleep(Duration::from_secs(3600)).await;
                        }));
                    }
                    runtime::task::yield_now().await;
                    std::panic::panic_any(4711);
                })
            }));
            assert_eq!(caught.unwrap_err().downcast_ref::<i32>(), Some(&4711));
            assert_eq!(guards.living(), 20, "the future's own are gone, the tasks go on");
            if drop_before_the_next {
                drop(rt);
                assert_eq!(guards.living(), 0);
                works(&Runtime::new().unwrap());
            } else {
                works(&Runtime::new().unwrap());
                works(&rt);
                drop(rt);
                assert_eq!(guards.living(), 0);
            }
        };
        round(true);
        let open = fds();
        for n in 0..20 {
            round(n % 2 == 0);
        }
        eventually("descriptors at base", || fds() == open);
    });
}

fn works(rt: &Runtime) {
    rt.block_on(async {
        let (tx, rx) = pipe().unwrap();
        let writer = runtime::spawn(async move { tx.write_all("works").await.0.unwrap() });
        assert_eq!(rx.read(vec![0; 8]).await.0.unwrap(), 5);
        writer.await.unwrap();
        runtime::time::sleep(Duration::from_millis(1)).await;
    });
}

#[test]
fn destructors_that_use_the_runtime_while_it_ends_are_refused_and_all_run() {
    in_child("shutdown::destructors_that_use_the_runtime_while_it_ends_are_refused_and_all_run", LIMIT, || {
        /// What the destructor of a task does with the runtime that is ending.
        struct Busybody {
            ran: Rc<RefCell<Vec<&'static str>>>,
            doing: &'static str,
            depth: u32,
        }
        impl Drop for Busybody {
            fn drop(&mut self) {
                self.ran.borrow_mut().push(self.doing);
                match self.doing {
                    "spawns" if self.depth > 0 => {
                        let next = Self { ran: Rc::clone(&self.ran), doing: "spawns", depth: self.depth - 1 };
                        let handle = runtime::spawn(async move {
                            let _next = next;
                            panic!("a task ran in a runtime that ends");
                        });
                        let error = futures::executor::block_on(handle).unwrap_err();
                        assert!(error.is_cancelled());
                    }
                    "submits" => {
                        let (tx, rx) = pipe().unwrap();
                        let mut read = Box::pin(rx.read(vec![0; 8]));
                        // Refused at once rather than started.
                        if let std::task::Poll::Ready(result) = poll_once(read.as_mut()) {
                            assert_eq!(result.0.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
                        } else {
                            panic!("an operation was started");
                        }
                        drop(tx);
                    }
                    "sleeps" => {
                        let mut sleep = Box::pin(runtime::time::sleep(Duration::from_secs(3600)));
                        assert!(poll_once(sleep.as_mut()).is_pending());
                        // Its timer stays in the queue of the runtime, which has to drop it.
                        std::mem::forget(sleep);
                    }
                    "builds" => {
                        let rt = Runtime::new().unwrap();
                        let blocked = catch_unwind(AssertUnwindSafe(|| rt.block_on(async {})));
                        assert!(blocked.is_err(), "block_on inside of a runtime");
                    }
                    "offloads" => drop(runtime::spawn_blocking(|| ())),
                    _ => {}
                }
            }
        }
        let ran = Rc::new(RefCell::new(Vec::new()));
        let rt = Runtime::new().unwrap();
        let kinds = ["spawns", "submits", "sleeps", "builds", "offloads"];
        rt.block_on(async {
            for round in 0..20 {
                let doing = kinds[round % kinds.len()];
                let busybody = Busybody { ran: Rc::clone(&ran), doing, depth: 3 };
                drop(runtime::spawn(async move {
                    let _busybody = busybody;
                    std::future::pending::<()>().await;
                }));
            }
            // The destructor of an operation is foreign code, too.
            let (tx, rx) = pipe().unwrap();
            let busybody = Busybody { ran: Rc::clone(&ran), doing: "spawns", depth: 3 };
            struct Buf(Vec<u8>, #[expect(dead_code, reason = "for its destructor")] Busybody);
            // SAFETY: heap memory of a vector that stays as it is.
            unsafe impl runtime::io::IoBuf for Buf {
                fn stable_ptr(&self) -> *const u8 {
                    self.0.as_ptr()
                }
                fn init_len(&self) -> usize {
                    self.0.len()
                }
            }
            // SAFETY: as above; all of it is initialised.
            unsafe impl runtime::io::IoBufMut for Buf {
                fn stable_mut_ptr(&mut self) -> *mut u8 {
                    self.0.as_mut_ptr()
                }
                fn capacity(&self) -> usize {
                    self.0.len()
                }
                unsafe fn set_len(&mut self, _len: usize) {}
            }
            drop(runtime::spawn(async move {
                drop(rx.read(Buf(vec![0; 8], busybody)).await);
                drop(tx);
            }));
            runtime::time::sleep(Duration::from_millis(5)).await;
        });
        assert!(ran.borrow().is_empty());
        // A panic with its backtrace takes a while on a busy machine: what counts is that the limit was not needed.
        let (left, took) = timed(|| rt.shutdown_timeout(Duration::from_secs(30)));
        assert_eq!(left, 0);
        assert!(took < Duration::from_secs(20), "{took:?}");
        for kind in kinds {
            let count = ran.borrow().iter().filter(|done| **done == kind).count();
            assert_eq!(count, if kind == "spawns" { 5 * 4 } else { 4 }, "{kind}");
        }
    });
}

#[test]
fn tasks_that_wake_each_other_when_they_are_dropped_end() {
    let _dog = watchdog(LIMIT);
    struct WakeAll(Rc<RefCell<Vec<std::task::Waker>>>, Rc<Cell<usize>>);
    impl Drop for WakeAll {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
            for waker in self.0.borrow().iter() {
                waker.wake_by_ref();
            }
        }
    }
    let (wakers, dropped) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
    let rt = Runtime::new().unwrap();
    rt.block_on(async {
        for _ in 0..50 {
            let wake_all = WakeAll(Rc::clone(&wakers), Rc::clone(&dropped));
            let wakers = Rc::clone(&wakers);
            let mut first = true;
            drop(runtime::spawn(std::future::poll_fn(move |task| {
                let _wake_all = &wake_all;
                if std::mem::take(&mut first) {
                    wakers.borrow_mut().push(task.waker().clone());
                }
                std::task::Poll::<()>::Pending
            })));
        }
        // A turn ends early on a machine that is slow.
        while wakers.borrow().len() < 50 {
            runtime::task::yield_now().await;
        }
    });
    let ((), took) = timed(|| drop(rt));
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(dropped.get(), 50);
}

#[test]
fn a_forgotten_operation_is_reclaimed_by_the_end_of_its_runtime() {
    in_child("shutdown::a_forgotten_operation_is_reclaimed_by_the_end_of_its_runtime", LIMIT, || {
        let round = || {
            let rt = Runtime::new().unwrap();
            let (pages, guards) = ((0..6).map(|_| Page::new()).collect::<Vec<_>>(), Guards::default());
            rt.block_on(async {
                let (stream, mut peer) = connected().await;
                let (tx, rx) = pipe().unwrap();
                let forget = |future: Pin<Box<dyn Future<Output = ()> + '_>>| {
                    let mut future = future;
                    assert!(poll_once(future.as_mut()).is_pending());
                    std::mem::forget(future);
                };
                // One on each that completes, one that waits behind it.
                forget(Box::pin(async { drop(stream.read(pages[0].buf()).await) }));
                forget(Box::pin(async { drop(rx.read(pages[1].buf()).await) }));
                forget(Box::pin(async { drop(stream.read(pages[2].buf()).await) }));
                let (idle, _idle_peer) = connected().await;
                forget(Box::pin(async { drop(idle.read_vectored(vec![pages[3].buf(), pages[4].buf()]).await) }));
                forget(Box::pin(runtime::time::sleep(Duration::from_secs(3600))));
                let guard = guards.guard();
                drop(runtime::spawn(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                }));
                runtime::task::yield_now().await;
                peer.write_all(b"stream").unwrap();
                tx.write_all("pipe").await.0.unwrap();
                while pages[0].byte(0) == 0 || pages[1].byte(0) == 0 {
                    runtime::task::yield_now().await;
                }
                assert!(!pages.iter().any(Page::is_dropped), "a buffer that the kernel may write to was dropped");
                // Other operations are not held up.
                let (other, mut other_peer) = connected().await;
                other_peer.write_all(b"x").unwrap();
                assert_eq!(other.read(pages[5].buf()).await.0.unwrap(), 1);
            });
            assert!(!pages[0].is_dropped() && !pages[3].is_dropped());
            let (left, took) = timed(|| rt.shutdown_timeout(Duration::from_secs(5)));
            assert_eq!((left, guards.living()), (0, 0));
            assert!(took < AT_ONCE, "{took:?}");
            // The one that waited for its turn was never given to the runtime: it is the user's leak.
            for n in [0, 1, 3, 4, 5] {
                assert!(pages[n].is_untouched_since_drop(), "page {n}");
            }
        };
        round();
        let open = fds();
        for _ in 0..20 {
            round();
        }
        // The future that was forgotten before it had its turn holds nothing but a reference to its stream.
        eventually("descriptors at base", || fds() == open);
    });
}

/// A read of a file in a kernel worker into memory whose fault nobody resolves: it cannot be cancelled.
struct StuckRead {
    file: std::fs::File,
    buf: PageBuf,
}

// SAFETY: the page is mapped for ever; one completion.
unsafe impl Op for StuckRead {
    type Output = ();
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        let at = runtime::io::IoBufMut::stable_mut_ptr(&mut self.buf);
        let read = opcode::Read::new(types::Fd(self.file.as_raw_fd()), at, 4096);
        read.offset(0).build().flags(squeue::Flags::ASYNC)
    }

    fn complete(self, _: Cqe) {
        drop(self.file);
        drop(self.buf);
    }
}

#[test]
fn what_cannot_be_cancelled_is_counted_and_leaked_not_freed() {
    in_child("shutdown::what_cannot_be_cancelled_is_counted_and_leaked_not_freed", LIMIT, || {
        for dropped in [false, true] {
            let Some(stuck) = StuckPage::new() else {
                eprintln!("SKIP: this process may not have userfaultfd");
                return;
            };
            let (dir, guards) = (tempfile::tempdir().unwrap(), Guards::default());
            let rt = Runtime::new().unwrap();
            let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
            let keep = rt.block_on(async {
                drop(runtime::spawn(submit(StuckRead { file, buf: stuck.buf() })));
                pend_on_everything(&guards, dir.path()).await
            });
            let (least, most) = if dropped { (3_000, 6_000) } else { (200, 2_000) };
            // The buffer's destructor writes to the page: dropping it now would hang.
            let (left, took) = timed(|| {
                if dropped {
                    drop(rt);
                    1
                } else {
                    rt.shutdown_timeout(Duration::from_millis(200))
                }
            });
            assert_eq!((left, guards.living()), (1, 0), "only the stuck one is left");
            assert!(took >= Duration::from_millis(least) && took < Duration::from_millis(most), "{took:?}");
            works(&Runtime::new().unwrap());
            stuck.resolve();
            drop(keep);
        }
    });
}

#[test]
fn an_operation_that_is_over_but_was_never_polled_again_is_not_waited_for() {
    let _dog = watchdog(LIMIT);
    for round in 0..200 {
        let rt = Runtime::new().unwrap();
        let mut kept: Option<Pin<Box<dyn Future<Output = ()>>>> = None;
        rt.block_on(async {
            let (tx, rx) = pipe().unwrap();
            let tx = std::rc::Rc::new(tx);
            let kept_tx = std::rc::Rc::clone(&tx);
            let mut read: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
                rx.read(vec![0; 8]).await.0.unwrap();
                drop(kept_tx);
            });
            // Before there is anything, so that it goes to the ring.
            assert!(poll_once(read.as_mut()).is_pending());
            tx.write_all("data").await.0.unwrap();
            runtime::task::yield_now().await;
            runtime::task::yield_now().await;
            if round % 2 == 0 {
                drop(read);
            } else {
                kept = Some(read);
            }
        });
        let ((), took) = timed(|| drop(rt));
        assert!(took < Duration::from_millis(200), "round {round}: {took:?}");
        drop(kept);
    }
}

#[test]
fn a_runtime_dropped_inside_another_leaves_the_other_one_alone() {
    in_child("shutdown::a_runtime_dropped_inside_another_leaves_the_other_one_alone", LIMIT, || {
        let round = || {
            let (dir, guards) = (tempfile::tempdir().unwrap(), Guards::default());
            let inner = Runtime::new().unwrap();
            let keep = inner.block_on(pend_on_everything(&guards, dir.path()));
            let nested = Runtime::new().unwrap();
            nested.block_on(async { drop(runtime::spawn(std::future::pending::<()>())) });
            let outer = Runtime::new().unwrap();
            outer.block_on(async {
                let (tx, rx) = pipe().unwrap();
                let mut read = Box::pin(rx.read(vec![0; 8]));
                let mut sleep = Box::pin(runtime::time::sleep(Duration::from_millis(20)));
                assert!(poll_once(read.as_mut()).is_pending());
                assert!(poll_once(sleep.as_mut()).is_pending());
                let flying = in_flight();
                drop(inner);
                assert_eq!(guards.living(), 0);
                assert_eq!(in_flight(), flying, "the outer runtime is the current one again");
                tx.write_all("x").await.0.unwrap();
                assert_eq!(read.await.0.unwrap(), 1);
                sleep.await;
                // This one goes down with a task of the outer runtime.
                drop(runtime::spawn(async move {
                    let _nested = nested;
                    std::future::pending::<()>().await;
                }));
                runtime::task::yield_now().await;
            });
            let ((), took) = timed(|| drop(outer));
            assert!(took < AT_ONCE, "{took:?}");
            drop(keep);
        };
        round();
        let open = fds();
        round();
        eventually("descriptors at base", || fds() == open);
    });
}

#[test]
fn a_listener_dropped_inside_another_runtime_closes_its_port() {
    let _dog = watchdog(LIMIT);
    let (home, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let listener = home.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert!(poll_once(Box::pin(listener.accept()).as_mut()).is_pending());
        runtime::task::yield_now().await;
        listener
    });
    let addr = listener.local_addr().unwrap();
    let mut waiting = std::net::TcpStream::connect(addr).unwrap();
    other.block_on(async move {
        drop(listener);
        runtime::task::yield_now().await;
        assert!(std::net::TcpStream::connect(addr).is_err(), "the port is still open");
    });
    waiting.set_read_timeout(Some(AT_ONCE)).unwrap();
    let end = waiting.read(&mut [0; 1]);
    assert!(matches!(&end, Ok(0)) || end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
}

#[test]
fn streams_and_listeners_outlive_their_runtime() {
    let _dog = watchdog(LIMIT);
    let first = Runtime::new().unwrap();
    let mut taken = None;
    first.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        {
            let mut read = Box::pin(stream.read(vec![0; 8]));
            assert!(poll_once(read.as_mut()).is_pending());
            runtime::task::yield_now().await;
        }
        taken = Some((listener, stream, client));
    });
    drop(first);
    let (listener, stream, mut client) = taken.unwrap();
    Runtime::new().unwrap().block_on(async {
        client.write_all(b"again").unwrap();
        assert_eq!(stream.read(vec![0; 8]).await.0.unwrap(), 5, "a cancelled read of the first runtime is in the way");
        let second = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(listener.accept().await.unwrap().1, second.local_addr().unwrap());
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert_eq!(listener.accept().await.unwrap().1, ours.local_addr().unwrap());
    });
}

#[test]
fn wakers_and_handles_that_outlive_their_runtime_hold_no_descriptor() {
    in_child("shutdown::wakers_and_handles_that_outlive_their_runtime_hold_no_descriptor", LIMIT, || {
        let round = || {
            let rt = Runtime::new().unwrap();
            rt.block_on(async {
                let handle = runtime::spawn(std::future::pending::<()>());
                let root = std::future::poll_fn(|task| std::task::Poll::Ready(task.waker().clone())).await;
                let of_task = runtime::spawn(std::future::poll_fn(|task| std::task::Poll::Ready(task.waker().clone())));
                (handle, root, of_task.await.unwrap())
            })
        };
        drop(round());
        let open = fds();
        let outliving: Vec<_> = (0..20).map(|_| round()).collect();
        eventually("descriptors at base", || fds() == open);
        for (handle, root, of_task) in outliving {
            root.wake();
            of_task.wake();
            assert!(futures::executor::block_on(handle).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn many_runtimes_one_after_the_other_cost_nothing_in_the_end() {
    in_child("shutdown::many_runtimes_one_after_the_other_cost_nothing_in_the_end", LIMIT, || {
        let round = || {
            let rt = tiny(8, 16).build().unwrap();
            rt.block_on(async {
                for _ in 0..8 {
                    let (tx, rx) = pipe().unwrap();
                    drop(runtime::spawn(async move {
                        drop(rx.read(Vec::with_capacity(1000)).await);
                        drop(tx);
                    }));
                }
                runtime::task::yield_now().await;
            });
        };
        for _ in 0..50 {
            round();
        }
        let (open, live) = (fds(), alloc::live());
        for _ in 0..300 {
            round();
        }
        eventually("descriptors at base", || fds() == open);
        assert!(alloc::live() - live < 16 << 10, "{} bytes more", alloc::live() - live);
    });
}

#[test]
fn a_task_that_other_threads_wake_all_the_time_is_dropped_all_the_same() {
    in_child("shutdown::a_task_that_other_threads_wake_all_the_time_is_dropped_all_the_same", LIMIT, || {
        let dropped = Arc::new(AtomicUsize::new(0));
        struct Count(Arc<AtomicUsize>);
        impl Drop for Count {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        const TASKS: usize = 4;
        for round in 0..150 {
            let rt = tiny(8, 16).build().unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let (send, wakers) = std::sync::mpsc::channel::<std::task::Waker>();
            rt.block_on(async {
                for _ in 0..TASKS {
                    let (send, count) = (send.clone(), Count(Arc::clone(&dropped)));
                    drop(runtime::spawn(std::future::poll_fn(move |task| {
                        let _count = &count;
                        let _ = send.send(task.waker().clone());
                        std::task::Poll::<()>::Pending
                    })));
                }
                runtime::task::yield_now().await;
            });
            let wakers: Vec<_> = wakers.try_iter().collect();
            assert_eq!(wakers.len(), TASKS);
            let others: Vec<_> = (0..4)
                .map(|n| {
                    let (waker, stop) = (wakers[n % TASKS].clone(), Arc::clone(&stop));
                    std::thread::spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            waker.wake_by_ref();
                        }
                    })
                })
                .collect();
            rt.block_on(runtime::time::sleep(Duration::from_millis(1)));
            drop(rt);
            assert_eq!(dropped.load(Ordering::SeqCst), (round + 1) * TASKS, "round {round}: tasks leaked");
            stop.store(true, Ordering::Relaxed);
            others.into_iter().for_each(|other| other.join().unwrap());
        }
    });
}
