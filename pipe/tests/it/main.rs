//! Pipes as their users see them: bytes in order, an end after the last of them, and never a SIGPIPE.

#[path = "../../../runtime/core/tests/support/calls.rs"]
mod calls;
#[path = "../../../runtime/core/tests/support/mod.rs"]
mod support;

mod copy;
mod ends;
mod file;
mod model;
mod relay;
mod rungs;
mod send_file;
mod sigpipe;
mod splice;
mod stdio;
mod vmsplice;

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use runtime::Builder;
use runtime::io::{AsyncBufReadExt, BufReader, BufResult};
use runtime::pipe::{Receiver, pipe};
use runtime::task::yield_now;
use runtime::time::timeout;
use support::{Rng, fds, in_child, watchdog};

fn run<F: Future>(body: F) -> F::Output {
    let _watchdog = watchdog(Duration::from_secs(30));
    Builder::new().build().unwrap().block_on(body)
}

async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|task| Poll::Ready(future.as_mut().poll(task))).await
}

fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|i| (i ^ (i >> 8).wrapping_mul(31)) as u8).collect()
}

async fn read_all(rx: &Receiver) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let (n, data) = rx.read(Vec::with_capacity(65536)).await.into_result().unwrap();
        if n == 0 {
            return all;
        }
        all.extend(data);
    }
}

/// A mask of signals of the calling thread, as the kernel tells it.
fn signals(which: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    u64::from_str_radix(status.lines().find_map(|line| line.strip_prefix(which)).unwrap().trim(), 16).unwrap()
}

const SIGPIPE: u64 = 1 << 12;

#[test]
fn what_is_written_is_read_and_then_the_end() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        assert_eq!(tx.write("hello").await.0.unwrap(), 5);
        assert_eq!(tx.write("").await.0.unwrap(), 0);
        tx.write_all(" world").await.0.unwrap();
        assert_eq!(rx.read(Vec::new()).await.0.unwrap(), 0, "no room is no end");
        let data = rx.read_exact(Vec::with_capacity(7)).await.into_result().unwrap().1;
        assert_eq!(data, b"hello w");
        drop(tx);
        let BufResult(result, data) = rx.read_exact(Vec::with_capacity(7)).await;
        assert_eq!((result.unwrap_err().kind(), data), (ErrorKind::UnexpectedEof, b"orld".to_vec()));
        for _ in 0..3 {
            assert_eq!(rx.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
        }
    });
}

#[test]
fn lines_through_a_pipe_survive_a_time_limit_at_every_wait() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        let writer = std::thread::spawn(move || {
            let mut tx = std::fs::File::from(tx.as_fd().try_clone_to_owned().unwrap());
            for number in 0..300 {
                for byte in format!("{number}\n").bytes() {
                    tx.write_all(&[byte]).unwrap();
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let mut lines = BufReader::with_capacity(8, rx).lines();
        let mut dropped = 0;
        for number in 0..300 {
            let line = loop {
                match timeout(Duration::from_micros(number % 80), lines.next_line()).await {
                    Ok(line) => break line.unwrap().unwrap(),
                    Err(_) => dropped += 1,
                }
            };
            assert_eq!(line, number.to_string(), "after {dropped} dropped waits");
        }
        writer.join().unwrap();
        assert!(dropped > 0);
        assert_eq!(lines.next_line().await.unwrap(), None);
    });
}

#[test]
fn data_comes_before_the_end_always() {
    run(async {
        let mut rng = Rng(45);
        for round in 0..1000 {
            let (tx, rx) = pipe().unwrap();
            let len = 1 + rng.below(65_536) as usize;
            let write = move |tx: std::os::fd::OwnedFd| {
                std::fs::File::from(tx).write_all(&pattern(round, len)).unwrap();
            };
            if round % 2 == 0 {
                runtime::spawn(async move { tx.write_all(pattern(round, len)).await.0.unwrap() });
            } else {
                // A std writer on a copy of the end, whose description is non-blocking: it all fits.
                let copy = tx.as_fd().try_clone_to_owned().unwrap();
                drop(tx);
                std::thread::spawn(move || write(copy));
            }
            assert!(read_all(&rx).await == pattern(round, len), "round {round}");
        }
    });
}

#[test]
fn a_large_write_waits_for_a_slow_reader() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        let reader = std::thread::spawn(move || {
            let reader = Builder::new().build().unwrap();
            reader.block_on(async move {
                let mut all = Vec::new();
                loop {
                    let (n, data) = rx.read(Vec::with_capacity(50_000)).await.into_result().unwrap();
                    if n == 0 {
                        return all;
                    }
                    all.extend(data);
                    runtime::time::sleep(Duration::from_micros(200)).await;
                }
            })
        });
        tx.write_all(pattern(0, 4 << 20)).await.0.unwrap();
        drop(tx);
        assert!(reader.join().unwrap() == pattern(0, 4 << 20));
    });
}

#[test]
fn a_dropped_read_keeps_its_bytes() {
    run(async {
        let mut rng = Rng(46);
        let (tx, rx) = pipe().unwrap();
        let writer = runtime::spawn(async move {
            let mut rng = Rng(47);
            let mut at = 0;
            while at < 300_000 {
                let n = (1 + rng.below(3000) as usize).min(300_000 - at);
                tx.write_all(pattern(at, n)).await.0.unwrap();
                at += n;
                if rng.below(3) == 0 {
                    runtime::time::sleep(Duration::from_micros(rng.below(200))).await;
                }
            }
        });
        let (mut at, mut dropped) = (0, 0);
        loop {
            let limit = Duration::from_micros(rng.below(150));
            let Ok(read) = timeout(limit, rx.read(Vec::with_capacity(1 + rng.below(4000) as usize))).await else {
                dropped += 1;
                continue;
            };
            let (n, data) = read.into_result().unwrap();
            if n == 0 {
                break;
            }
            assert_eq!(data, pattern(at, n), "at {at}");
            at += n;
        }
        assert!(at == 300_000 && dropped > 10, "{at} bytes, {dropped} dropped reads");
        writer.await.unwrap();
    });
}

#[test]
fn a_read_exact_dropped_before_it_took_anything_keeps_all() {
    // What earlier reads of it had taken is lost with the buffer, as its docs say; what the last one took is not.
    run(async {
        let (tx, rx) = pipe().unwrap();
        let mut exact = Box::pin(rx.read_exact(Vec::with_capacity(100)));
        assert!(poll_once(exact.as_mut()).await.is_pending());
        tx.write_all("not yet taken").await.0.unwrap();
        yield_now().await;
        drop(exact);
        tx.write_all("!").await.0.unwrap();
        drop(tx);
        assert_eq!(read_all(&rx).await, b"not yet taken!");
    });
}

#[test]
fn writing_without_a_reader_is_an_error_and_no_signal() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        drop(rx);
        for _ in 0..3 {
            let BufResult(result, data) = tx.write("gone").await;
            assert_eq!((result.unwrap_err().kind(), data), (ErrorKind::BrokenPipe, "gone"));
            assert_eq!(tx.write_all("gone").await.0.unwrap_err().kind(), ErrorKind::BrokenPipe);
            assert_eq!(tx.write_vectored(vec!["go", "ne"]).await.0.unwrap_err().kind(), ErrorKind::BrokenPipe);
        }
        assert_eq!(signals("SigPnd:") & SIGPIPE, 0, "consumed");
        assert_eq!(signals("SigBlk:") & SIGPIPE, SIGPIPE, "blocked, so that it cannot kill");
    });
    assert_eq!(signals("SigBlk:") & SIGPIPE, 0, "the mask is as before");
    assert_eq!(signals("SigPnd:") & SIGPIPE, 0);
}

#[test]
fn a_write_that_waits_is_broken_by_the_readers_end() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        let mut write = Box::pin(tx.write_all(vec![1u8; 1 << 20]));
        assert!(poll_once(write.as_mut()).await.is_pending());
        yield_now().await;
        drop(rx);
        let write = timeout(Duration::from_secs(1), write).await.expect("within a second");
        assert_eq!(write.0.unwrap_err().kind(), ErrorKind::BrokenPipe);
        // A dropped one tells the next.
        let (tx, rx) = pipe().unwrap();
        let mut write = Box::pin(tx.write_all(vec![1u8; 1 << 20]));
        assert!(poll_once(write.as_mut()).await.is_pending());
        yield_now().await;
        drop(write);
        drop(rx);
        assert_eq!(tx.write("x").await.0.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn an_orphaned_write_to_a_gone_reader_leaves_no_signal_behind() {
    run(async {
        for round in 0..20 {
            let (tx, rx) = pipe().unwrap();
            let mut write = Box::pin(tx.write_all(vec![1u8; 1 << 20]));
            assert!(poll_once(write.as_mut()).await.is_pending());
            if round % 2 == 0 {
                yield_now().await;
            }
            drop(rx);
            if round % 4 < 2 {
                yield_now().await;
            }
            drop(write);
            yield_now().await;
        }
        while runtime::testing::in_flight() > 0 {
            yield_now().await;
        }
    });
    assert_eq!(signals("SigPnd:") & SIGPIPE, 0, "no signal is left for after `block_on`");
    assert_eq!(signals("SigBlk:") & SIGPIPE, 0);
}

#[test]
fn writes_of_several_tasks_never_mix() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        let tx = std::rc::Rc::new(tx);
        for id in 0..4u8 {
            let tx = std::rc::Rc::clone(&tx);
            runtime::spawn(async move {
                for _ in 0..20 {
                    tx.write_all(vec![id; 100_000]).await.0.unwrap();
                }
            });
        }
        drop(tx);
        let all = read_all(&rx).await;
        assert_eq!(all.len(), 8_000_000);
        assert!(all.chunks(100_000).all(|frame| frame.iter().all(|&byte| byte == frame[0])), "a torn frame");
    });
}

#[test]
fn pipes_leave_no_descriptors() {
    in_child("pipes_leave_no_descriptors", Duration::from_secs(30), || {
        run(async {
            let base = fds();
            for _ in 0..500 {
                let (tx, rx) = pipe().unwrap();
                let mut read = Box::pin(rx.read(Vec::with_capacity(8)));
                assert!(poll_once(read.as_mut()).await.is_pending());
                drop(read);
                let mut write = Box::pin(tx.write_all(vec![0u8; 200_000]));
                let _ = poll_once(write.as_mut()).await;
            }
            while runtime::testing::in_flight() > 0 {
                yield_now().await;
            }
            support::eventually("descriptors back to base", || fds() == base);
        });
    });
}

#[test]
fn the_other_end_may_be_stds() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        let copy = rx.as_fd().try_clone_to_owned().unwrap();
        drop(rx);
        tx.write_all("for std").await.0.unwrap();
        drop(tx);
        let mut all = String::new();
        std::fs::File::from(copy).read_to_string(&mut all).unwrap();
        assert_eq!(all, "for std");
    });
}
