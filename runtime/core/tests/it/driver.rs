//! Ring and slots under pressure: full queues, overflows, cancel races, and the wake channel.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use runtime::fs::File;
use runtime::net::TcpStream;
use runtime::op::submit;
use runtime::pipe::pipe;
use runtime::task::yield_now;
use runtime::testing::{backlog, in_flight, ring_sizes, tiny};
use runtime::time::{sleep, timeout};
use runtime::{Runtime, spawn};

use crate::alloc;
use crate::kit::{self, ReadInto, raw_pipe};
use crate::raw::raise_descriptors;
use crate::support::{cpu, in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_thousand_reads_in_one_poll_fit_a_queue_of_eight() {
    in_child("driver::a_thousand_reads_in_one_poll_fit_a_queue_of_eight", LIMIT, || {
        if !raise_descriptors(4_096) {
            println!("SKIP: the limit of descriptors cannot be raised");
            return;
        }
        let rt = tiny(8, 16).build().unwrap();
        assert_eq!(ring_sizes(&rt), (8, 16));
        let pipes: Vec<_> = (0..1_000).map(|_| pipe().unwrap()).collect();
        let mut ends: Vec<_> = pipes.iter().map(|(tx, _)| kit::std_end(tx)).collect();
        let started = Rc::new(Cell::new(false));
        let (go_tx, go_rx) = mpsc::channel::<()>();
        let peer = thread::spawn(move || {
            go_rx.recv().unwrap();
            for (n, end) in ends.iter_mut().enumerate() {
                end.write_all(&(n as u32).to_le_bytes()).unwrap();
            }
        });
        rt.block_on(async {
            let reads = join_all(pipes.iter().map(|(_, rx)| rx.read(Vec::with_capacity(16))));
            let mut reads = std::pin::pin!(reads);
            let results = poll_fn(|task| {
                let result = reads.as_mut().poll(task);
                if !started.replace(true) {
                    assert_eq!((in_flight(), backlog(&rt)), (1_000, 992));
                    go_tx.send(()).unwrap();
                }
                result
            })
            .await;
            for (n, result) in results.into_iter().enumerate() {
                assert_eq!(result.into_result().unwrap().1, (n as u32).to_le_bytes());
            }
            assert_eq!((in_flight(), backlog(&rt)), (0, 0));
            assert!(runtime::metrics().backlogged >= 992);
        });
        peer.join().unwrap();
    });
}

#[test]
fn a_thousand_reads_of_a_file_fit_a_queue_of_eight() {
    let _watchdog = watchdog(LIMIT);
    let content: Vec<u8> = (0..1_000u32).flat_map(u32::to_le_bytes).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&content).unwrap();
    tiny(8, 16).build().unwrap().block_on(async {
        let opened = File::open(file.path()).await.unwrap();
        let reads = (0..1_000).map(|n| opened.read_at(Vec::with_capacity(4), n * 4));
        for (n, result) in join_all(reads).await.into_iter().enumerate() {
            assert_eq!(result.into_result().unwrap().1, (n as u32).to_le_bytes());
        }
        assert_eq!(in_flight(), 0);
        opened.close().await.unwrap();
    });
}

#[test]
fn three_hundred_reads_with_a_limit_fit_a_queue_of_eight() {
    let _watchdog = watchdog(LIMIT);
    let rt = tiny(8, 16).build().unwrap();
    let limit = crate::support::scaled(Duration::from_millis(60));
    rt.block_on(async {
        let pipes: Vec<_> = (0..150).map(|_| pipe().unwrap()).collect();
        for round in 0..3 {
            let start = Instant::now();
            // Every second pipe gets its byte, the others run into the limit.
            for (tx, _) in pipes.iter().step_by(2) {
                tx.write_all(vec![round]).await.0.unwrap();
            }
            let reads = pipes.iter().map(|(_, rx)| timeout(limit, rx.read(Vec::with_capacity(4))));
            for (n, result) in join_all(reads).await.into_iter().enumerate() {
                match result {
                    Ok(read) => assert_eq!((n % 2, read.into_result().unwrap().1), (0, vec![round])),
                    Err(_) => assert_eq!(n % 2, 1),
                }
            }
            assert!(start.elapsed() >= limit);
        }
        kit::until(|| in_flight() == 0).await;
    });
    assert_eq!(rt.metrics().in_flight, 0);
}

#[test]
fn operations_reach_the_kernel_in_the_order_they_were_started() {
    let _watchdog = watchdog(LIMIT);
    tiny(8, 16).build().unwrap().block_on(async {
        let order: Rc<std::cell::RefCell<Vec<u32>>> = Rc::default();
        let nops = (0..500).map(|n| {
            let order = Rc::clone(&order);
            submit(kit::nop(move || order.borrow_mut().push(n)))
        });
        for result in join_all(nops).await {
            result.unwrap();
        }
        assert!(order.borrow().is_sorted());
    });
}

#[test]
fn a_late_completion_never_hits_the_next_user_of_a_slot() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    rt.block_on(async {
        let (a_fd, mut a_tx) = raw_pipe();
        let (b_fd, mut b_tx) = raw_pipe();
        let mut fed = 0u32;
        let mut drained = 0u32;
        for round in 0..20_000u32 {
            let mut a = submit(ReadInto { fd: Arc::clone(&a_fd), memory: [0u8; 4] });
            assert!(kit::poll_once(&mut a).await.is_pending());
            if round % 3 == 0 {
                yield_now().await;
            }
            if round % 5 == 0 {
                a_tx.write_all(&fed.to_le_bytes()).unwrap();
                fed += 1;
            }
            b_tx.write_all(&(round | 1 << 31).to_le_bytes()).unwrap();
            let finished = match kit::poll_once(&mut a).await {
                Poll::Ready((result, data)) if result.is_ok() => Some(data),
                _ => None,
            };
            if let Some(data) = finished {
                assert_eq!(u32::from_le_bytes(data) >> 31, 0, "the first pipe's reader got the second's token");
                drained += 1;
            }
            drop(a);
            let (result, data) = submit(ReadInto { fd: Arc::clone(&b_fd), memory: [0u8; 4] }).await;
            assert_eq!((result.unwrap(), u32::from_le_bytes(data)), (4, round | 1 << 31));
        }
        assert!(drained <= fed);
        kit::until(|| in_flight() == 0).await;
        assert_eq!(runtime::metrics().stale_completions, 0, "slots live until the final completion");
    });
}

#[test]
fn completions_are_seen_though_the_loop_is_never_idle() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        spawn(async {
            loop {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(1) {
                    std::hint::spin_loop();
                }
                yield_now().await;
            }
        });
        let pipes: Vec<_> = (0..100).map(|_| pipe().unwrap()).collect();
        let mut ends: Vec<_> = pipes.iter().map(|(tx, _)| kit::std_end(tx)).collect();
        let written = Arc::new(AtomicU64::new(0));
        let mark = Arc::clone(&written);
        let epoch = Instant::now();
        let peer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            ends.iter_mut().for_each(|end| end.write_all(b"x").unwrap());
            mark.store(epoch.elapsed().as_millis() as u64, Ordering::SeqCst);
        });
        for read in join_all(pipes.iter().map(|(_, rx)| rx.read(Vec::with_capacity(4)))).await {
            assert_eq!(read.0.unwrap(), 1);
        }
        kit::until(|| peer.is_finished()).await;
        let late = epoch.elapsed().as_millis() as u64 - written.load(Ordering::SeqCst);
        assert!(late < 500, "the completions were seen {late} ms after the last write");
    });
}

/// Wakes the main future `times` times from another thread, each time while it sleeps; says how long each took.
async fn wakes_from_elsewhere(times: usize) -> Vec<Duration> {
    let (tx, rx) = mpsc::channel::<(Waker, Arc<AtomicU64>)>();
    let epoch = Instant::now();
    let peer = thread::spawn(move || {
        for (waker, at) in rx {
            thread::sleep(Duration::from_micros(500));
            at.store(epoch.elapsed().as_nanos() as u64, Ordering::SeqCst);
            waker.wake();
        }
    });
    let mut took = Vec::new();
    for _ in 0..times {
        let at = Arc::new(AtomicU64::new(0));
        let mut sent = false;
        poll_fn(|task| {
            if !std::mem::replace(&mut sent, true) {
                tx.send((task.waker().clone(), Arc::clone(&at))).unwrap();
            }
            if at.load(Ordering::SeqCst) == 0 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        took.push(epoch.elapsed() - Duration::from_nanos(at.load(Ordering::SeqCst)));
    }
    drop(tx);
    peer.join().unwrap();
    took
}

#[test]
fn wakes_from_other_threads_work_after_the_completion_queue_overflowed() {
    let _watchdog = watchdog(LIMIT);
    let rt = tiny(8, 16).build().unwrap();
    rt.block_on(async {
        let pipes: Vec<_> = (0..200).map(|_| pipe().unwrap()).collect();
        let mut ends: Vec<_> = pipes.iter().map(|(tx, _)| kit::std_end(tx)).collect();
        for round in 0..3 {
            // The door's poll stands from the first sleep on.
            sleep(Duration::from_millis(1)).await;
            let reads: Vec<_> = pipes.iter().map(|(_, rx)| Box::pin(rx.read(Vec::with_capacity(4)))).collect();
            let mut reads = join_all(reads);
            assert!(kit::poll_once(&mut reads).await.is_pending());
            yield_now().await;
            ends.iter_mut().for_each(|end| end.write_all(b"x").unwrap());
            // And wakes in the very same pile.
            let root = poll_fn(|task| Poll::Ready(task.waker().clone())).await;
            let task = spawn(std::future::pending::<()>());
            let peer = thread::spawn(move || {
                for _ in 0..20 {
                    root.wake_by_ref();
                    thread::sleep(Duration::from_millis(1));
                }
                task.abort();
            });
            thread::sleep(Duration::from_millis(100));
            for read in reads.await {
                assert_eq!(read.0.unwrap(), 1);
            }
            kit::until(|| peer.is_finished()).await;
            let mut took = wakes_from_elsewhere(if round == 2 { 100 } else { 10 }).await;
            took.sort_unstable();
            let last = took[took.len() - 1];
            assert!(last < Duration::from_millis(500), "a wake took {last:?}");
            assert!(took[took.len() / 2] < Duration::from_millis(50), "half of the wakes took longer");
        }
        assert_eq!(in_flight(), 0);
    });
}

#[test]
fn a_wake_is_one_turn_and_the_loop_does_not_spin() {
    in_child("driver::a_wake_is_one_turn_and_the_loop_does_not_spin", LIMIT, || {
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            for took in wakes_from_elsewhere(5).await {
                assert!(took < Duration::from_secs(1));
            }
            let (before, used) = (runtime::metrics(), cpu());
            sleep(Duration::from_secs(1)).await;
            let (after, used) = (runtime::metrics(), cpu() - used);
            assert!(used < Duration::from_millis(30), "{used:?} of CPU time in an idle second after a wake");
            assert!(after.turns - before.turns <= 4, "{} turns", after.turns - before.turns);
        });
    });
}

#[test]
fn ten_thousand_wakes_while_the_thread_is_blocked_are_a_few_turns() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    rt.block_on(async {
        sleep(Duration::from_millis(1)).await;
        let (tx, rx) = mpsc::channel::<Waker>();
        let task = spawn(poll_fn(move |task| {
            let _ = tx.send(task.waker().clone());
            Poll::<()>::Pending
        }));
        yield_now().await;
        let root = poll_fn(|task| Poll::Ready(task.waker().clone())).await;
        let of_task = rx.recv().unwrap();
        let before = runtime::metrics();
        thread::spawn(move || {
            for _ in 0..10_000 {
                root.wake_by_ref();
                of_task.wake_by_ref();
            }
        })
        .join()
        .unwrap();
        sleep(Duration::from_millis(50)).await;
        let turns = runtime::metrics().turns - before.turns;
        assert!(turns <= 6, "{turns} turns");
        task.abort();
    });
}

#[test]
fn every_read_and_connect_ends_at_its_limit() {
    in_child("driver::every_read_and_connect_ends_at_its_limit", LIMIT, || {
        if !raise_descriptors(4_096) {
            println!("SKIP: the limit of descriptors cannot be raised");
            return;
        }
        let full = full_listener();
        let to = std::net::TcpListener::from(full.0).local_addr_and_keep();
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            let limit = Duration::from_millis(20);
            let pipes: Vec<_> = (0..1_000).map(|_| pipe().unwrap()).collect();
            let start = Instant::now();
            let reads = join_all(pipes.iter().map(|(_, rx)| timeout(limit, rx.read(Vec::with_capacity(4)))));
            assert!(reads.await.iter().all(Result::is_err));
            let took = start.elapsed();
            assert!(took >= limit && took < Duration::from_secs(2), "{took:?}");
            let start = Instant::now();
            let connects = join_all((0..50).map(|_| timeout(limit, TcpStream::connect(to.1))));
            assert!(connects.await.iter().all(Result::is_err), "the backlog was not full");
            let took = start.elapsed();
            assert!(took >= limit && took < Duration::from_secs(2), "{took:?}");
            kit::until(|| in_flight() == 0).await;
        });
        drop(full.1);
    });
}

trait KeepAddr {
    fn local_addr_and_keep(self) -> (Self, std::net::SocketAddr)
    where
        Self: Sized;
}

impl KeepAddr for std::net::TcpListener {
    fn local_addr_and_keep(self) -> (Self, std::net::SocketAddr) {
        let addr = self.local_addr().unwrap();
        (self, addr)
    }
}

/// A listener that takes no more connections, and the ones that fill it.
fn full_listener() -> (OwnedFd, Vec<std::net::TcpStream>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: a descriptor of ours; listening again sets the backlog.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let to = listener.local_addr().unwrap();
    let mut clients = Vec::new();
    while let Ok(client) = std::net::TcpStream::connect_timeout(&to, Duration::from_millis(200)) {
        clients.push(client);
        assert!(clients.len() < 64, "the backlog does not fill up");
    }
    (OwnedFd::from(listener), clients)
}

#[test]
fn the_in_flight_count_returns_to_its_base_after_random_work() {
    in_child("driver::the_in_flight_count_returns_to_its_base_after_random_work", LIMIT, || {
        let rt = tiny(8, 16).build().unwrap();
        rt.block_on(random_work(200));
        let (live, fds) = (alloc::live(), crate::support::fds());
        for round in 0..5 {
            rt.block_on(random_work(1_000 + round));
            let metrics = rt.metrics();
            assert_eq!((metrics.in_flight, metrics.timers, metrics.tasks, metrics.stale_completions), (0, 0, 0, 0));
            assert_eq!(crate::support::fds(), fds);
        }
        let grown = alloc::live() - live;
        assert!(grown < 64 * 1024, "{grown} bytes more than before");
    });
}

/// Reads, writes, timeouts, drops and no-ops in an order that a seed decides.
async fn random_work(seed: u64) {
    let mut rng = crate::support::Rng(seed * 7_919 + 1);
    let mut tasks = Vec::new();
    for _ in 0..300 {
        let (kind, wait) = (rng.below(6), Duration::from_micros(rng.below(800)));
        tasks.push(spawn(async move {
            let (tx, rx) = pipe().unwrap();
            match kind {
                0 => drop(timeout(wait, rx.read(vec![0; 64])).await),
                1 => {
                    tx.write_all("abc").await.0.unwrap();
                    drop(timeout(wait, rx.read(vec![0; 64])).await);
                }
                2 => drop(timeout(wait, tx.write_all(vec![1; 300_000])).await),
                3 => drop(kit::poll_once(&mut submit(kit::nop(|| {}))).await),
                4 => submit(kit::nop(|| {})).await.map(drop).unwrap(),
                _ => {
                    let mut read = Box::pin(rx.read(vec![0; 64]));
                    let _ = kit::poll_once(&mut read).await;
                    sleep(wait).await;
                }
            }
        }));
        if rng.below(4) == 0 {
            let at = rng.below(tasks.len() as u64) as usize;
            tasks[at].abort();
        }
        if rng.below(8) == 0 {
            yield_now().await;
        }
    }
    for task in tasks {
        if let Err(error) = task.await {
            assert!(error.is_cancelled(), "{error}");
        }
    }
    kit::until(|| in_flight() == 0).await;
}
