//! Operations of a user's own, and enters that fail while operations are in flight.

use std::cell::{Cell, RefCell};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use runtime::op::{Cqe, stand, submit};
use runtime::pipe::pipe;
use runtime::task::yield_now;
use runtime::testing::{in_flight, inject_enter_faults, tiny};
use runtime::time::{sleep, timeout};
use runtime::{Runtime, spawn};

use crate::alloc;
use crate::kit::{self, PollMany, ReadInto, poll_with, raw_pipe};
use crate::support::{in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(60);

/// Memory of some size and alignment.
#[derive(Debug, Clone, Copy)]
#[repr(align(16))]
struct Aligned16<const N: usize>([u8; N]);

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Aligned64<const N: usize>([u8; N]);

impl<const N: usize> AsMut<[u8]> for Aligned16<N> {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl<const N: usize> AsMut<[u8]> for Aligned64<N> {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Reads into memory that lies in the operation: whole, in many at once, and orphaned in between.
async fn reads_into<M: AsMut<[u8]> + Copy + 'static>(empty: M) {
    let (fd, mut tx) = raw_pipe();
    let len = { empty }.as_mut().len();
    let base = in_flight();
    for round in 0..50u8 {
        let data = vec![round; len];
        let mut orphan = submit(ReadInto { fd: Arc::clone(&fd), memory: empty });
        assert!(kit::poll_once(&mut orphan).await.is_pending());
        yield_now().await;
        drop(orphan);
        kit::until(|| in_flight() == base).await;
        let writes = async {
            yield_now().await;
            tx.write_all(&data).unwrap();
        };
        let read = submit(ReadInto { fd: Arc::clone(&fd), memory: empty });
        let ((result, mut memory), ()) = futures::join!(read, writes);
        assert_eq!((result.unwrap() as usize, &*memory.as_mut()), (len, &data[..]));
    }
    let pipes: Vec<_> = (0..100).map(|_| raw_pipe()).collect();
    let reads = join_all(pipes.iter().map(|(fd, _)| submit(ReadInto { fd: Arc::clone(fd), memory: empty })));
    let writes = async {
        yield_now().await;
        for (n, (_, tx)) in pipes.iter().enumerate() {
            { tx }.write_all(&vec![n as u8; len]).unwrap();
        }
    };
    for (n, (result, mut memory)) in futures::join!(reads, writes).0.into_iter().enumerate() {
        assert_eq!((result.unwrap() as usize, &*memory.as_mut()), (len, &*vec![n as u8; len]));
    }
    assert_eq!(in_flight(), base);
}

#[test]
fn operations_of_any_size_and_alignment_stay_where_they_are() {
    in_child("driver_ops::operations_of_any_size_and_alignment_stay_where_they_are", LIMIT, || {
        let round = || {
            Runtime::new().unwrap().block_on(async {
                reads_into([0u8; 1]).await;
                // The last that fits a slot, the first that does not, and a large one.
                reads_into([0u8; 72]).await;
                reads_into([0u8; 73]).await;
                reads_into([0u8; 200]).await;
                reads_into(Aligned16([0; 16])).await;
                reads_into(Aligned16([0; 64])).await;
                reads_into(Aligned16([0; 80])).await;
                reads_into(Aligned64([0; 64])).await;
            });
        };
        round();
        let before = alloc::live();
        round();
        let grown = alloc::live() - before;
        assert!(grown < 4096, "{grown} bytes more than before");
    });
}

#[test]
fn an_operation_completes_once_or_ends_once_as_an_orphan() {
    let _watchdog = watchdog(LIMIT);
    let ends = Rc::new(Cell::new(0));
    let count = || {
        let ends = Rc::clone(&ends);
        kit::nop(move || ends.set(ends.get() + 1))
    };
    let rt = Runtime::new().unwrap();
    rt.block_on(async {
        // Never polled: never started, never completed.
        drop(submit(count()));
        assert_eq!((ends.get(), in_flight()), (0, 0));
        submit(count()).await.unwrap();
        assert_eq!(ends.get(), 1);
        // Dropped in flight, and dropped when it was settled already.
        let mut flying = submit(count());
        assert!(poll_with(&mut flying, Waker::noop()).is_pending());
        drop(flying);
        let mut settled = submit(count());
        assert!(poll_with(&mut settled, Waker::noop()).is_pending());
        kit::until(|| ends.get() == 2).await;
        drop(settled);
        assert_eq!(ends.get(), 3);
        // Forgotten: the end of the runtime gets it.
        let mut forgotten = submit(count());
        assert!(poll_with(&mut forgotten, Waker::noop()).is_pending());
        std::mem::forget(forgotten);
    });
    drop(rt);
    assert_eq!(ends.get(), 4);
}

#[test]
fn a_finished_operation_says_so_when_it_is_polled_again() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut operation = submit(kit::nop(|| {}));
        (&mut operation).await.unwrap();
        let text = kit::panic_text(|| poll_with(&mut operation, Waker::noop()));
        assert!(text.contains("after it completed"), "{text}");
    });
}

#[test]
fn a_standing_operation_hands_over_every_item_in_order_and_one_end() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (fd, mut tx) = raw_pipe();
        let items: Rc<RefCell<Vec<Cqe>>> = Rc::default();
        let list = Rc::clone(&items);
        let standing = stand(PollMany { fd: Arc::clone(&fd), item: move |cqe| list.borrow_mut().push(cqe) });
        let standing = standing.ok().unwrap();
        assert!(standing.is_here());
        for round in 1..=50 {
            tx.write_all(b"x").unwrap();
            kit::until(|| items.borrow().len() >= round).await;
            assert!(items.borrow().iter().all(|item| item.more() && item.result().unwrap() & 1 == 1));
        }
        standing.cancel();
        kit::until(|| in_flight() == 0).await;
        let items = items.take();
        let last = items.last().unwrap();
        assert!(!last.more() && last.is_errno(libc::ECANCELED));
        assert_eq!(items.iter().filter(|item| !item.more()).count(), 1);
        // Long over: nothing to cancel, and nobody else is hit.
        standing.cancel();
        standing.cancel_now();
        assert!(submit(kit::nop(|| {})).await.is_ok());
    });
}

#[test]
fn a_standing_operation_ends_at_once_when_asked_inside_or_outside_of_block_on() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    for inside in [true, false] {
        let ended = Rc::new(Cell::new(0));
        let count = Rc::clone(&ended);
        let (fd, _tx) = raw_pipe();
        let standing = rt.block_on(async {
            let item = move |cqe: Cqe| count.set(count.get() + u32::from(!cqe.more()));
            let standing = stand(PollMany { fd, item }).ok().unwrap();
            if inside {
                yield_now().await;
                standing.cancel_now();
                yield_now().await;
                assert_eq!(ended.get(), 1);
            }
            standing
        });
        standing.cancel_now();
        assert_eq!(ended.get(), 1, "{inside}");
    }
    assert_eq!(rt.metrics().in_flight, 0);
}

#[test]
fn a_standing_operation_that_is_dropped_ends() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (fd, _tx) = raw_pipe();
        let items = Rc::new(Cell::new(0));
        let count = Rc::clone(&items);
        let standing = stand(PollMany { fd, item: move |_| count.set(count.get() + 1) });
        assert!(standing.is_ok());
        yield_now().await;
        assert_eq!(in_flight(), 1);
        drop(standing);
        let deadline = Instant::now() + Duration::from_secs(2);
        kit::until(|| in_flight() == 0 || Instant::now() > deadline).await;
        assert_eq!((in_flight(), items.get()), (0, 1), "`Standing` stands until it is dropped");
    });
}

#[test]
fn a_standing_operation_goes_with_its_runtime() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let (fd, _tx) = raw_pipe();
    let ends = Rc::new(Cell::new(0));
    let count = Rc::clone(&ends);
    let standing = rt.block_on(async {
        let item = move |cqe: Cqe| count.set(count.get() + u32::from(!cqe.more()));
        let standing = stand(PollMany { fd: Arc::clone(&fd), item }).ok().unwrap();
        yield_now().await;
        standing
    });
    drop(rt);
    assert_eq!((ends.get(), Arc::strong_count(&fd)), (1, 1));
    assert!(!standing.is_here());
    standing.cancel();
    standing.cancel_now();
}

#[test]
fn items_of_a_standing_operation_survive_an_overflow() {
    let _watchdog = watchdog(LIMIT);
    let rt = tiny(8, 16).build().unwrap();
    rt.block_on(async {
        let pipes: Vec<_> = (0..100).map(|_| raw_pipe()).collect();
        let (seen, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let standing: Vec<_> = pipes
            .iter()
            .map(|(fd, _)| {
                let (seen, ended) = (Rc::clone(&seen), Rc::clone(&ended));
                let item = move |cqe: Cqe| {
                    seen.set(seen.get() + u32::from(cqe.result().is_ok()));
                    ended.set(ended.get() + u32::from(!cqe.more()));
                };
                stand(PollMany { fd: Arc::clone(fd), item }).ok().unwrap()
            })
            .collect();
        yield_now().await;
        for (_, tx) in &pipes {
            { tx }.write_all(b"x").unwrap();
        }
        // One of each, even of those that the full queue ended.
        kit::until(|| seen.get() == 100).await;
        standing.iter().for_each(runtime::op::Standing::cancel);
        kit::until(|| in_flight() == 0).await;
        assert_eq!((seen.get(), ended.get()), (100, 100));
    });
}

/// The faults that a kernel short of something shows.
const FAULTS: [i32; 4] = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ENOMEM];

#[test]
fn an_enter_that_fails_loses_no_operation_and_frees_no_memory() {
    let _watchdog = watchdog(LIMIT);
    for errno in FAULTS {
        for times in [1, 3, 20] {
            let rt = Runtime::new().unwrap();
            rt.block_on(async {
                let pipes: Vec<_> = (0..20).map(|_| raw_pipe()).collect();
                let memory = Aligned16([0xEE_u8; 200]);
                let mut reads = join_all(pipes.iter().map(|(fd, _)| submit(ReadInto { fd: Arc::clone(fd), memory })));
                assert!(kit::poll_once(&mut reads).await.is_pending());
                // The entries are in the queue; now the kernel does not take them.
                inject_enter_faults(&vec![errno; times]);
                yield_now().await;
                assert_eq!(in_flight(), 20, "slots stay in use");
                let more = submit(kit::nop(|| {}));
                for (n, (_, tx)) in pipes.iter().enumerate() {
                    { tx }.write_all(&[n as u8; 100]).unwrap();
                }
                more.await.unwrap();
                for (n, (result, memory)) in reads.await.into_iter().enumerate() {
                    assert_eq!(result.unwrap(), 100);
                    assert_eq!(memory.0[..100], [n as u8; 100], "errno {errno}, {times} times");
                    assert_eq!(memory.0[100..], [0xEE; 100], "the rest is as it was");
                }
                assert_eq!(in_flight(), 0);
            });
        }
    }
}

#[test]
fn an_enter_that_fails_while_it_waits_does_not_spoil_timers_or_wakes() {
    let _watchdog = watchdog(LIMIT);
    for errno in FAULTS {
        Runtime::new().unwrap().block_on(async {
            inject_enter_faults(&[errno; 3]);
            let start = Instant::now();
            sleep(Duration::from_millis(10)).await;
            assert!(start.elapsed() >= Duration::from_millis(10));
            // The door's poll is pushed by the enter that fails.
            inject_enter_faults(&[errno; 2]);
            let (tx, rx) = futures::channel::oneshot::channel();
            let peer = thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                tx.send(()).unwrap();
            });
            rx.await.unwrap();
            peer.join().unwrap();
        });
    }
}

#[test]
fn the_first_wake_comes_through_though_the_enter_that_arms_the_door_fails() {
    let _watchdog = watchdog(LIMIT);
    for errno in FAULTS {
        for backlogged in [false, true] {
            tiny(8, 16).build().unwrap().block_on(async {
                let (fd, _tx) = raw_pipe();
                let mut reads: Vec<_> = (0..if backlogged { 40 } else { 0 })
                    .map(|_| submit(ReadInto { fd: Arc::clone(&fd), memory: [0u8; 4] }))
                    .collect();
                for read in &mut reads {
                    assert!(poll_with(read, Waker::noop()).is_pending());
                }
                inject_enter_faults(&[errno; 4]);
                let (tx, rx) = futures::channel::oneshot::channel();
                let peer = thread::spawn(move || {
                    thread::sleep(Duration::from_millis(20));
                    tx.send(()).unwrap();
                });
                rx.await.unwrap();
                peer.join().unwrap();
                drop(reads);
                kit::until(|| in_flight() == 0).await;
            });
        }
    }
}

#[test]
fn cancels_are_not_lost_when_enters_fail_or_the_queue_is_full() {
    let _watchdog = watchdog(LIMIT);
    for errno in FAULTS {
        tiny(8, 16).build().unwrap().block_on(async {
            let (tx, rx) = pipe().unwrap();
            for round in 0..20u8 {
                let mut reads: Vec<_> = Vec::new();
                let (fd, _other) = raw_pipe();
                for _ in 0..30 {
                    let mut read = submit(ReadInto { fd: Arc::clone(&fd), memory: [0u8; 4] });
                    assert!(poll_with(&mut read, Waker::noop()).is_pending());
                    reads.push(read);
                }
                assert!(timeout(Duration::ZERO, rx.read(vec![0; 8])).await.is_err());
                inject_enter_faults(&[errno, errno]);
                drop(reads);
                kit::until(|| in_flight() == 0).await;
                tx.write_all(vec![round]).await.0.unwrap();
                assert_eq!(rx.read(Vec::with_capacity(8)).await.1, [round]);
            }
        });
    }
}

#[test]
fn a_runtime_whose_enters_fail_ends_all_the_same() {
    let _watchdog = watchdog(LIMIT);
    for errno in FAULTS {
        let rt = tiny(8, 16).build().unwrap();
        let (fd, _tx) = raw_pipe();
        rt.block_on(async {
            for _ in 0..30 {
                let read = submit(ReadInto { fd: Arc::clone(&fd), memory: [0u8; 4] });
                spawn(async move { drop(read.await) });
            }
            yield_now().await;
            inject_enter_faults(&[errno; 5]);
        });
        assert_eq!(rt.shutdown_timeout(Duration::from_secs(3)), 0);
        assert_eq!(Arc::strong_count(&fd), 1);
    }
}

extern "C" fn on_signal(_: libc::c_int) {}

#[test]
fn signals_that_interrupt_the_thread_spoil_nothing() {
    in_child("driver_ops::signals_that_interrupt_the_thread_spoil_nothing", LIMIT, || {
        // SAFETY: all zeroes is a valid `sigaction`; without SA_RESTART, so that calls are interrupted.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        // SAFETY: a handler that does nothing.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) }, 0);
        // SAFETY: no arguments.
        let me = unsafe { libc::pthread_self() };
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let peer = thread::spawn(move || {
            let mut sent = 0;
            while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                // SAFETY: the thread lives until this one is joined.
                assert_eq!(unsafe { libc::pthread_kill(me, libc::SIGUSR1) }, 0);
                sent += 1;
                thread::sleep(Duration::from_micros(300));
            }
            sent
        });
        let rt = tiny(8, 16).build().unwrap();
        rt.block_on(async {
            let (tx, rx) = pipe().unwrap();
            let writer = spawn(async move {
                for n in 0..200u8 {
                    tx.write_all(vec![n; 1_000]).await.0.unwrap();
                    sleep(Duration::from_micros(500)).await;
                }
            });
            let mut all = Vec::new();
            loop {
                let start = Instant::now();
                let (n, data) = rx.read(Vec::with_capacity(4096)).await.into_result().unwrap();
                sleep(Duration::from_micros(100)).await;
                assert!(start.elapsed() >= Duration::from_micros(100));
                if n == 0 {
                    break;
                }
                all.extend(data);
            }
            writer.await.unwrap();
            let expected: Vec<u8> = (0..200u8).flat_map(|n| vec![n; 1_000]).collect();
            assert!(all == expected);
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(peer.join().unwrap() > 10);
    });
}

#[test]
fn the_other_side_of_a_pipe_may_be_anybody() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (tx, rx) = pipe().unwrap();
        let mut other = kit::std_end(&rx);
        // SAFETY: a descriptor of ours, and the only one of its description that is read.
        assert_eq!(unsafe { libc::fcntl(other.as_raw_fd(), libc::F_SETFL, 0) }, 0);
        let peer = thread::spawn(move || {
            let mut all = Vec::new();
            other.read_to_end(&mut all).map(|_| all)
        });
        drop(rx);
        let data: Vec<u8> = (0..300_000).map(|n| n as u8).collect();
        tx.write_all(data.clone()).await.0.unwrap();
        drop(tx);
        kit::until(|| peer.is_finished()).await;
        assert!(peer.join().unwrap().unwrap() == data);
    });
}
