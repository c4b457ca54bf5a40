//! Failures that were found by reading: each test failed once.

use std::cell::Cell;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use runtime::net::TcpStream;
use runtime::op::{Cqe, Kind, Multi, opcode, squeue, stand, types};
use runtime::pipe::pipe;
use runtime::task::yield_now;
use runtime::testing::in_flight;
use runtime::time::{sleep, timeout};
use runtime::{Builder, Runtime};
use runtime_core::op::read::{NO_OFFSET, Read};

use crate::kit::{poll_once, poll_with, raw_pipe, std_end, waker, waker_with_clone};
use crate::raw::StuckPage;
use crate::support::{in_child, scaled, watchdog};

const LIMIT: Duration = Duration::from_secs(20);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Yields, never sleeping, until the flag is set.
async fn spin_until(flag: &Cell<bool>) {
    let start = Instant::now();
    while !flag.get() {
        assert!(start.elapsed() < scaled(Duration::from_secs(5)), "ready tasks starve completions");
        yield_now().await;
    }
}

/// A task that sets the flag when a byte has come through the pipe, and the end to write it to.
async fn reader() -> (Rc<Cell<bool>>, runtime::pipe::Sender) {
    let (tx, rx) = pipe().unwrap();
    let done = Rc::new(Cell::new(false));
    let theirs = Rc::clone(&done);
    runtime::spawn(async move {
        rx.read(Vec::with_capacity(8)).await.0.unwrap();
        theirs.set(true);
    });
    sleep(ms(5)).await;
    (done, tx)
}

#[test]
fn completions_that_a_listeners_drop_brought_out_do_not_starve_behind_ready_tasks() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let listener = runtime::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _ = timeout(ms(1), listener.accept()).await;
        let (done, tx) = reader().await;
        std_end(&tx).write_all(b"x").unwrap();
        // Visits the ring beside the turn.
        drop(listener);
        spin_until(&done).await;
    });
}

#[test]
fn ready_tasks_do_not_starve_completions_of_a_ring_that_defers_nothing() {
    const DEFER_TASKRUN: u32 = 1 << 13;
    const TASKRUN_FLAG: u32 = 1 << 9;
    const COOP_TASKRUN: u32 = 1 << 8;
    let _watchdog = watchdog(LIMIT);
    let mut builder = Builder::new();
    builder.setup_mut().refuse_flags = DEFER_TASKRUN | TASKRUN_FLAG | COOP_TASKRUN;
    builder.build().unwrap().block_on(async {
        let (done, tx) = reader().await;
        let mut end = std_end(&tx);
        let writer = std::thread::spawn(move || {
            std::thread::sleep(ms(20));
            end.write_all(b"x").unwrap();
        });
        spin_until(&done).await;
        writer.join().unwrap();
    });
}

#[test]
fn a_write_in_flight_from_an_earlier_block_on_raises_no_sigpipe() {
    in_child("regressions::a_write_in_flight_from_an_earlier_block_on_raises_no_sigpipe", LIMIT, || {
        // SAFETY: the default action, as in programs that are not std's.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        for drop_only in [false, true] {
            let rt = Runtime::new().unwrap();
            let rx = rt.block_on(async {
                let (tx, rx) = pipe().unwrap();
                runtime::spawn(async move { tx.write_all(vec![0; 1 << 20]).await.0.unwrap_err() });
                sleep(ms(5)).await;
                rx
            });
            drop(rx);
            if !drop_only {
                rt.block_on(sleep(ms(5)));
            }
        }
    });
}

#[test]
fn an_incoming_that_nobody_polls_does_not_keep_connections_from_accept() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let listener = runtime::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut incoming = listener.incoming();
        assert!(timeout(ms(1), incoming.next()).await.is_err());
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = timeout(scaled(Duration::from_secs(5)), listener.accept()).await;
        accepted.expect("the wait that was given up has left the queue").unwrap();
    });
}

#[test]
fn a_runtime_that_has_no_time_to_end_still_cancels_what_can_be_cancelled() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let (rx, _tx) = raw_pipe();
    rt.block_on(async {
        let mut read = runtime::op::submit(Read::new(rx, vec![0u8; 8], 0, NO_OFFSET));
        assert!(poll_once(&mut read).await.is_pending());
        sleep(ms(1)).await;
        std::mem::forget(read);
    });
    assert_eq!(rt.shutdown_timeout(Duration::ZERO), 0);
    assert_eq!(Runtime::new().unwrap().shutdown_timeout(Duration::MAX), 0, "no limit is a limit, too");
}

/// A read of `/dev/zero` by a worker.
struct ReadZero {
    file: std::fs::File,
    buf: crate::raw::PageBuf,
}

// SAFETY: the buffer's page does not move with it; one completion.
unsafe impl runtime::op::Op for ReadZero {
    type Output = std::io::Result<u32>;
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        use runtime::io::IoBufMut as _;
        let fd = types::Fd(std::os::fd::AsRawFd::as_raw_fd(&self.file));
        opcode::Read::new(fd, self.buf.stable_mut_ptr(), 64).build().flags(squeue::Flags::ASYNC)
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        cqe.result()
    }
}

/// Without the kernel's worker, which a page fault under a signal keeps busy.
fn cpu_of_this_thread() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn waiting_for_what_cannot_be_cancelled_burns_no_cpu() {
    in_child("regressions::waiting_for_what_cannot_be_cancelled_burns_no_cpu", LIMIT, || {
        let Some(page) = StuckPage::new() else {
            println!("skipped: no userfaultfd here");
            return;
        };
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            let read = ReadZero { file: std::fs::File::open("/dev/zero").unwrap(), buf: page.buf() };
            let mut read = runtime::op::submit(read);
            assert!(poll_once(&mut read).await.is_pending());
            sleep(ms(20)).await;
        });
        let before = cpu_of_this_thread();
        assert_eq!(rt.shutdown_timeout(ms(500)), 1);
        let used = cpu_of_this_thread() - before;
        page.resolve();
        assert!(used < ms(100), "{used:?} of CPU time in half a second of waiting");
        // The operation is leaked, as it must be: that is no finding of a leak checker.
        crate::raw::exit_at_once(0);
    });
}

/// A poll that stands.
struct Poll(std::fs::File);

// SAFETY: no pointers; all completions but the last carry F_MORE.
unsafe impl Multi for Poll {
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(std::os::fd::AsRawFd::as_raw_fd(&self.0));
        opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build()
    }

    fn item(&mut self, _: Cqe) {}
}

#[test]
fn a_standing_operation_ends_when_its_handle_is_dropped() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (_tx, rx) = pipe().unwrap();
        let standing = stand(Poll(rx.as_fd().try_clone_to_owned().unwrap().into())).ok().unwrap();
        sleep(ms(1)).await;
        assert_eq!(in_flight(), 1);
        drop(standing);
        sleep(ms(5)).await;
        assert_eq!(in_flight(), 0);
    });
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_look_at_readiness_is_no_error_under_a_storm_of_signals() {
    in_child("regressions::a_look_at_readiness_is_no_error_under_a_storm_of_signals", LIMIT, || {
        let handler = on_signal as extern "C" fn(libc::c_int);
        // SAFETY: a handler that only counts.
        unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
        let (rx, _tx) = runtime_core::sys::pipe().unwrap();
        // SAFETY: no pointers.
        let target = unsafe { libc::pthread_self() };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // SAFETY: the thread waits for this one.
                    unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                }
            });
            let mut failed = 0;
            while SIGNALS.load(Ordering::Relaxed) < 10_000 {
                failed += u32::from(!matches!(runtime_core::sys::is_ready(rx.as_raw_fd(), libc::POLLIN), Ok(false)));
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(failed, 0);
        });
    });
}

#[test]
fn a_waker_whose_clone_visits_the_ring_costs_a_receive_no_wake() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = async || {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            (stream, listener.accept().unwrap().0)
        };
        let ((stream, mut peer), (other, _other_peer)) = (connect().await, connect().await);
        // Both receive ahead.
        assert!(timeout(ms(5), other.recv()).await.is_err());
        peer.write_all(b"first").unwrap();
        assert_eq!(stream.recv().await.unwrap()[..], *b"first");
        sleep(ms(5)).await;
        let mut recv = Box::pin(stream.recv());
        let arrive = move || {
            peer.write_all(b"second").unwrap();
            // Ends the other's receive, and takes what else came to the ring.
            let _ = other.into_std();
        };
        let woken = Rc::new(Cell::new(false));
        let told = Rc::clone(&woken);
        let waker = waker_with_clone(waker(move || told.set(true)), arrive);
        assert!(poll_with(&mut recv, &waker).is_pending());
        for _ in 0..100 {
            if !woken.get() {
                sleep(ms(10)).await;
            }
        }
        assert!(woken.get(), "the bytes are there, and nobody is woken");
        let data = recv.await;
        assert_eq!(data.unwrap()[..], *b"second");
    });
}

#[test]
fn a_waker_that_panics_as_it_is_cloned_costs_no_byte_that_was_taken() {
    async fn drive<F: Future>(future: F) {
        let mut future = Box::pin(future);
        assert!(poll_with(&mut future, std::task::Waker::noop()).is_pending());
        sleep(ms(10)).await;
        let bad = waker_with_clone(std::task::Waker::noop().clone(), || panic!("a clone that panics"));
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll_with(&mut future, &bad)));
        assert!(polled.is_err());
    }
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        for how in ["exact", "standing", "splice", "pipe"] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let mut peer = listener.accept().unwrap().0;
            if how == "standing" {
                peer.write_all(b"x").unwrap();
                assert_eq!(stream.recv().await.unwrap().len(), 1);
            }
            let (tx, rx) = pipe().unwrap();
            if how == "pipe" {
                tx.write_all("hello").await.0.unwrap();
                drive(rx.read_exact(vec![0; 10])).await;
                tx.write_all(" world").await.0.unwrap();
                assert_eq!(rx.read_exact(vec![0; 11]).await.1, b"hello world");
                continue;
            }
            peer.write_all(b"hello").unwrap();
            if how == "splice" {
                while tx.try_write(vec![0; 4096]).0.is_ok() {}
                drive(runtime::pipe::splice(&stream, &tx, 100)).await;
            } else {
                drive(stream.read_exact(vec![0; 10])).await;
            }
            peer.write_all(b" world").unwrap();
            let all = timeout(ms(5000), stream.read_exact(vec![0; 11])).await.expect("nothing is missing");
            assert_eq!(all.1, b"hello world", "{how}");
        }
    });
}
