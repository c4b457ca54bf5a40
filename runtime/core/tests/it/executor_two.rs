//! Several runtimes on one thread: each future belongs to the one that polled it first.
#![allow(clippy::async_yields_async, reason = "handles and futures are carried out of `block_on` on purpose")]

use std::cell::Cell;
use std::future::pending;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use runtime::net::TcpListener;
use runtime::op::submit;
use runtime::pipe::pipe;
use runtime::task::yield_now;
use runtime::testing::in_flight;
use runtime::time::sleep;
use runtime::{Runtime, spawn};

use crate::alloc;
use crate::kit::{self, Guarded, OnDrop, panic_text, poll_with};
use crate::support::{fds, in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(60);
const WRONG: &str = "is polled in another";

#[test]
fn two_runtimes_take_turns_on_one_thread() {
    let _watchdog = watchdog(LIMIT);
    let (a, b) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let ((a_tx, a_rx), (b_tx, b_rx)) = (pipe().unwrap(), pipe().unwrap());
    let echoed = Rc::new(Cell::new(0));
    let echo = |rx: runtime::pipe::Receiver, tx: runtime::pipe::Sender, echoed: Rc<Cell<u32>>| async move {
        let mut buf = Vec::with_capacity(8);
        loop {
            let (n, data) = rx.read(buf).await.into_result().unwrap();
            if n == 0 {
                return;
            }
            buf = tx.write_all(data).await.into_result().unwrap().1;
            echoed.set(echoed.get() + 1);
        }
    };
    let (back_tx, back_rx) = pipe().unwrap();
    let in_a = a.block_on(async { spawn(echo(a_rx, b_tx, Rc::clone(&echoed))) });
    let in_b = b.block_on(async { spawn(echo(b_rx, back_tx, Rc::default())) });
    for round in 0..100u8 {
        a.block_on(async {
            a_tx.write_all(vec![round]).await.0.unwrap();
            kit::until(|| echoed.get() > u32::from(round)).await;
        });
        // Handles of the other side work here, too.
        let back = b.block_on(async { back_rx.read(Vec::with_capacity(8)).await.1 });
        if back.is_empty() {
            panic!("the end came early");
        }
        assert_eq!(back, [round]);
    }
    drop(a_tx);
    a.block_on(in_a).unwrap();
    b.block_on(in_b).unwrap();
}

#[test]
fn an_operation_that_is_polled_in_another_runtime_says_so_and_nothing_is_lost() {
    let _watchdog = watchdog(LIMIT);
    let (a, b) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (tx, rx) = pipe().unwrap();
    let dropped = Rc::new(Cell::new(false));
    let mark = Rc::clone(&dropped);
    let mut read = Box::pin(rx.read(Guarded(vec![0; 8], OnDrop(move || mark.set(true)))));
    a.block_on(async {
        assert!(kit::poll_once(&mut read).await.is_pending());
        yield_now().await;
    });
    let text = panic_text(|| b.block_on(&mut read));
    assert!(text.contains(WRONG), "{text}");
    assert!(!dropped.get(), "the kernel may still write into the buffer");
    // An async block that panicked cannot be polled again, but its operation is still where it was.
    b.block_on(async {
        assert_eq!(in_flight(), 0);
        drop(read);
        sleep(Duration::from_millis(1)).await;
    });
    assert!(!dropped.get(), "its own runtime has not run");
    a.block_on(async {
        kit::until(|| in_flight() == 0).await;
        assert!(dropped.get());
        tx.write_all("kept").await.0.unwrap();
        assert_eq!(rx.read(Vec::with_capacity(8)).await.1, b"kept");
    });
}

#[test]
fn an_operation_goes_on_in_its_own_runtime_after_it_was_polled_in_another() {
    let _watchdog = watchdog(LIMIT);
    let (a, b) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (fd, mut tx) = kit::raw_pipe();
    let mut read = submit(kit::ReadInto { fd, memory: [0u8; 4] });
    a.block_on(async {
        assert!(kit::poll_once(&mut read).await.is_pending());
        yield_now().await;
    });
    for _ in 0..3 {
        let text = panic_text(|| b.block_on(&mut read));
        assert!(text.contains(WRONG), "{text}");
    }
    std::io::Write::write_all(&mut tx, b"data").unwrap();
    let (result, data) = a.block_on(read);
    assert_eq!((result.unwrap(), &data), (4, b"data"));
}

#[test]
fn a_timer_that_is_polled_in_another_runtime_says_so() {
    let _watchdog = watchdog(LIMIT);
    let (a, b) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let mut timer = sleep(Duration::from_millis(30));
    a.block_on(async { assert!(kit::poll_once(&mut timer).await.is_pending()) });
    let text = panic_text(|| b.block_on(&mut timer));
    assert!(text.contains(WRONG), "{text}");
    a.block_on(&mut timer);
    // Unarmed, it may go anywhere.
    b.block_on(sleep(Duration::from_millis(1)));
    let mut dropped_in_b = sleep(Duration::from_secs(3600));
    a.block_on(async { assert!(kit::poll_once(&mut dropped_in_b).await.is_pending()) });
    b.block_on(async { drop(dropped_in_b) });
    a.block_on(async {
        yield_now().await;
        yield_now().await;
        assert_eq!(runtime::metrics().timers, 0);
    });
}

#[test]
fn a_listener_that_accepts_in_another_runtime_says_so() {
    let _watchdog = watchdog(LIMIT);
    let (a, b) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let listener = a.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let to = listener.local_addr().unwrap();
    let client = std::net::TcpStream::connect(to).unwrap();
    a.block_on(listener.accept()).unwrap();
    let text = panic_text(|| b.block_on(listener.accept()));
    assert!(text.contains("belongs to one thread"), "{text}");
    let second = std::net::TcpStream::connect(to).unwrap();
    a.block_on(listener.accept()).unwrap();
    // Dropped in the other one, it still closes.
    b.block_on(async { drop(listener) });
    drop((client, second));
    assert!(std::net::TcpStream::connect(to).is_err());
}

#[test]
fn futures_may_be_dropped_in_another_runtime_outside_or_after_the_end() {
    in_child("executor_two::futures_may_be_dropped_in_another_runtime_outside_or_after_the_end", LIMIT, || {
        let round = || {
            let b = Runtime::new().unwrap();
            for place in 0..4 {
                let a = Runtime::new().unwrap();
                let (tx, rx) = pipe().unwrap();
                let mut read = Box::pin(rx.read(vec![0; 64 * 1024]));
                let mut timer = sleep(Duration::from_secs(3600));
                let mut nop = submit(kit::nop(|| {}));
                let task = a.block_on(async {
                    assert!(kit::poll_once(&mut read).await.is_pending());
                    assert!(kit::poll_once(&mut timer).await.is_pending());
                    assert!(kit::poll_once(&mut nop).await.is_pending());
                    spawn(pending::<()>())
                });
                match place {
                    0 => b.block_on(async { drop((read, timer, nop, task)) }),
                    1 => drop((read, timer, nop, task)),
                    2 => {
                        drop(a);
                        drop((read, timer, nop, task));
                        continue;
                    }
                    _ => {
                        drop(a);
                        b.block_on(async { drop((read, timer, nop, task)) });
                        continue;
                    }
                }
                a.block_on(async {
                    kit::until(|| in_flight() == 0).await;
                    assert_eq!(runtime::metrics().tasks, 1);
                });
                drop((tx, a));
            }
        };
        round();
        let (before, open) = (alloc::live(), fds());
        (0..10).for_each(|_| round());
        let grown = alloc::live() - before;
        assert!(grown < 16 * 1024, "{grown} bytes more than before");
        assert_eq!(fds(), open);
    });
}

#[test]
fn a_future_in_flight_when_its_runtime_ended_says_so_when_it_is_polled() {
    let _watchdog = watchdog(LIMIT);
    let (a, b) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let mut operation = submit(kit::nop(|| {}));
    let mut timer = sleep(Duration::ZERO + Duration::from_secs(1));
    a.block_on(async {
        assert!(kit::poll_once(&mut operation).await.is_pending());
        assert!(kit::poll_once(&mut timer).await.is_pending());
    });
    drop(a);
    assert!(panic_text(|| b.block_on(operation)).contains(WRONG));
    assert!(panic_text(|| b.block_on(timer)).contains(WRONG));
}

#[test]
fn a_runtime_that_is_dropped_inside_a_task_of_another_restores_it() {
    let _watchdog = watchdog(LIMIT);
    let a = Runtime::new().unwrap();
    let b = Runtime::new().unwrap();
    let refused = Rc::new(Cell::new(0));
    let (tx, rx) = pipe().unwrap();
    b.block_on(async {
        let count = Rc::clone(&refused);
        let guard = OnDrop(move || {
            // Here the runtime that ends is the current one.
            if spawn(async {}).is_finished() {
                count.set(count.get() + 1);
            }
        });
        let mut polls = 0;
        spawn(async move {
            let _guard = guard;
            polls += 1;
            (rx.read(vec![0; 8]).await.0, polls)
        });
        yield_now().await;
    });
    a.block_on(async {
        let waiting = spawn(async {
            sleep(Duration::from_millis(2)).await;
            1
        });
        yield_now().await;
        let outer = in_flight();
        spawn(async move { drop(b) }).await.unwrap();
        assert_eq!((refused.get(), in_flight()), (1, outer));
        // Spawning, sleeping and I/O are those of the outer one again.
        assert_eq!(spawn(async { 2 }).await.unwrap(), 2);
        assert_eq!(waiting.await.unwrap(), 1);
        let (out, back) = pipe().unwrap();
        out.write_all("x").await.0.unwrap();
        assert_eq!(back.read(Vec::with_capacity(8)).await.1, b"x");
        assert_eq!(tx.write_all("y").await.0.unwrap_err().raw_os_error(), Some(libc::EPIPE));
        // Built and dropped inside, without ever having run.
        drop(Runtime::new().unwrap());
        assert!(kit::poll_once(&mut sleep(Duration::from_secs(1))).await.is_pending());
    });
}

#[test]
fn tasks_of_one_runtime_are_woken_from_within_another() {
    let _watchdog = watchdog(LIMIT);
    let (a, b) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let shared: Rc<Cell<Option<Waker>>> = Rc::default();
    let slot = Rc::clone(&shared);
    let mut polls = 0;
    let handle = a.block_on(async {
        let handle = spawn(std::future::poll_fn(move |task| {
            polls += 1;
            slot.set(Some(task.waker().clone()));
            if polls == 2 { std::task::Poll::Ready(polls) } else { std::task::Poll::Pending }
        }));
        yield_now().await;
        handle
    });
    b.block_on(async {
        shared.take().unwrap().wake();
        let aborted = spawn(async {});
        aborted.abort();
    });
    assert_eq!(a.block_on(handle).unwrap(), 2);
    // A handle of one is awaited in the other, and the end of the first resolves it.
    let never = a.block_on(async { spawn(pending::<()>()) });
    b.block_on(async {
        let waits = spawn(never);
        yield_now().await;
        spawn(async move { drop(a) });
        assert!(waits.await.unwrap().unwrap_err().is_cancelled());
    });
    // A waker of a runtime that is gone does nothing.
    let mut operation = submit(kit::nop(|| {}));
    let stale = {
        let c = Runtime::new().unwrap();
        c.block_on(std::future::poll_fn(|task| std::task::Poll::Ready(task.waker().clone())))
    };
    b.block_on(async {
        assert!(poll_with(&mut operation, &stale).is_pending());
        yield_now().await;
        yield_now().await;
        assert!(operation.await.is_ok());
    });
}
