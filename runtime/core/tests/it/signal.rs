//! Signals: each listener in each thread receives them, none is lost, no thread is needed, and a child of fork(2) keeps
//! its own to itself. Each test is a process of its own, since handlers stay.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::{Either, join_all, select};
use futures::{FutureExt, StreamExt};
use runtime::pipe::pipe;
use runtime::signal::{Signal, SignalKind, ctrl_c, signal};
use runtime::time::{sleep, timeout};
use runtime::{Runtime, metrics};

use crate::kit::{panic_text, poll_once, until};
use crate::raw::fork;
use crate::support::{am_child, cpu, fds, in_child, scaled, threads, watchdog};

const LIMIT: Duration = Duration::from_secs(20);
const USR1: SignalKind = SignalKind::user_defined1();

/// Sends a signal to a process.
fn kill(pid: u32, kind: SignalKind) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::kill(pid as i32, kind.as_raw_value()) }, 0);
}

/// Sends a signal to this thread: it has been handled when this returns.
fn raise(kind: SignalKind) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::raise(kind.as_raw_value()) }, 0);
}

async fn is_pending(listener: &mut Signal) -> bool {
    timeout(Duration::from_millis(20), listener.recv()).await.is_err()
}

#[test]
fn every_listener_in_every_runtime_receives_it() {
    in_child("signal::every_listener_in_every_runtime_receives_it", LIMIT, || {
        let (ready, done) = (Barrier::new(4), Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    Runtime::new().unwrap().block_on(async {
                        let mut listeners = [signal(USR1).unwrap(), signal(USR1).unwrap()];
                        let mut other = signal(SignalKind::user_defined2()).unwrap();
                        for _ in 0..20 {
                            ready.wait();
                            let all = listeners.iter_mut().map(Signal::recv);
                            assert_eq!(join_all(all).await, [Some(()); 2]);
                            done.wait();
                        }
                        assert!(is_pending(&mut other).await);
                    });
                });
            }
            for _ in 0..20 {
                ready.wait();
                kill(std::process::id(), USR1);
                done.wait();
            }
        });
    });
}

#[test]
fn none_is_lost_before_the_first_recv_and_several_are_one() {
    in_child("signal::none_is_lost_before_the_first_recv_and_several_are_one", LIMIT, || {
        let mut early = signal(USR1).unwrap();
        for _ in 0..3 {
            raise(USR1);
        }
        Runtime::new().unwrap().block_on(async {
            let mut late = signal(USR1).unwrap();
            early.recv().await.unwrap();
            assert!(is_pending(&mut early).await && is_pending(&mut late).await);
            // It may come at any moment of a wait that is given up again and again.
            for round in 0..300u64 {
                let sender = std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_micros(round % 60 * 5));
                    kill(std::process::id(), USR1);
                });
                while timeout(Duration::from_micros(round % 7 * 30), early.recv()).await.is_err() {}
                late.next().await.unwrap();
                sender.join().unwrap();
            }
            assert!(is_pending(&mut early).await && is_pending(&mut late).await);
        });
    });
}

#[test]
fn what_cannot_be_caught_is_invalid_input() {
    in_child("signal::what_cannot_be_caught_is_invalid_input", LIMIT, || {
        let fatal = [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGBUS];
        for number in fatal.into_iter().chain([0, -1, 32, 65, 1000, i32::MAX, i32::MIN]) {
            let error = signal(SignalKind::from_raw(number)).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{number}: {error}");
        }
        // A real-time signal is one like any other.
        let mut real_time = signal(SignalKind::from_raw(libc::SIGRTMIN() + 3)).unwrap();
        raise(SignalKind::from_raw(libc::SIGRTMIN() + 3));
        Runtime::new().unwrap().block_on(real_time.recv()).unwrap();
    });
}

/// What the process that is to be ended does: says that it listens, waits for the signal, and ends well.
fn wait_for_the_end(threads: usize, interrupt: bool) {
    let wait = || {
        Runtime::new().unwrap().block_on(async {
            let mut terminate = signal(SignalKind::terminate()).unwrap();
            let mut interrupted = Box::pin(ctrl_c());
            assert!(poll_once(&mut interrupted).await.is_pending());
            println!("listening");
            match interrupt {
                true => interrupted.await.unwrap(),
                false => terminate.recv().await.unwrap(),
            }
            println!("ending");
        });
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(wait);
        }
        wait();
    });
}

/// Starts this test again as a process that listens, sends it signals, and expects a clean end within a second.
fn ends_cleanly(name: &str, threads: usize, kind: SignalKind, times: usize) {
    let _watchdog = watchdog(LIMIT);
    let mut child = Command::new("/proc/self/exe")
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("RUNTIME_TEST_CHILD", name)
        .env("THREADS", threads.to_string())
        .env("KIND", kind.as_raw_value().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..threads {
        let mut line = String::new();
        // The harness prints lines, and half lines, of its own.
        while !line.ends_with("listening\n") {
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended early: {line}");
        }
    }
    // It sleeps in the ring by now, or is about to.
    std::thread::sleep(Duration::from_millis(20));
    let start = Instant::now();
    for _ in 0..times {
        kill(child.id(), kind);
    }
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}: {rest}");
    assert!(start.elapsed() < scaled(Duration::from_secs(1)), "{:?}", start.elapsed());
    assert_eq!(rest.matches("ending").count(), threads);
}

#[test]
fn a_parked_process_ends_cleanly() {
    const NAME: &str = "signal::a_parked_process_ends_cleanly";
    if am_child(NAME) {
        // Ends by itself if its parent cannot end it.
        // SAFETY: no pointers; the default action ends the process.
        unsafe { libc::alarm(scaled(LIMIT).as_secs() as u32) };
        let kind = std::env::var("KIND").unwrap();
        let is_interrupt = kind == SignalKind::interrupt().as_raw_value().to_string();
        return wait_for_the_end(std::env::var("THREADS").unwrap().parse().unwrap(), is_interrupt);
    }
    for threads in [1, 3] {
        for times in [1, 2] {
            ends_cleanly(NAME, threads, SignalKind::terminate(), times);
            ends_cleanly(NAME, threads, SignalKind::interrupt(), times);
        }
    }
}

#[test]
fn interruptions_of_the_ring_never_show() {
    in_child("signal::interruptions_of_the_ring_never_show", LIMIT, || {
        let done = AtomicBool::new(false);
        // SAFETY: no arguments.
        let runner = unsafe { libc::pthread_self() };
        std::thread::scope(|scope| {
            let mut listener = signal(USR1).unwrap();
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    // SAFETY: the thread lives until the scope ends.
                    unsafe { libc::pthread_kill(runner, libc::SIGUSR1) };
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            Runtime::new().unwrap().block_on(async {
                let (tx, rx) = pipe().unwrap();
                let reading = runtime::spawn(async move { rx.read(Vec::with_capacity(8)).await.0.unwrap() });
                let start = Instant::now();
                sleep(Duration::from_millis(100)).await;
                assert!(start.elapsed() >= Duration::from_millis(100));
                for _ in 0..50 {
                    listener.recv().await.unwrap();
                }
                tx.write_all(b"x".to_vec()).await.0.unwrap();
                assert_eq!(reading.await.unwrap(), 1);
            });
            done.store(true, Ordering::Release);
        });
    });
}

#[test]
fn listening_costs_no_thread_and_nothing_while_idle() {
    in_child("signal::listening_costs_no_thread_and_nothing_while_idle", LIMIT, || {
        let rt = Runtime::new().unwrap();
        let base = fds();
        rt.block_on(async {
            let before_threads = threads();
            let mut listeners: Vec<_> = (0..8).map(|_| signal(USR1).unwrap()).collect();
            let mut waiting: Vec<_> = listeners.iter_mut().map(|listener| Box::pin(listener.recv())).collect();
            for wait in &mut waiting {
                assert!(poll_once(wait).await.is_pending());
            }
            assert_eq!((fds(), threads()), (base + 8, before_threads));
            sleep(Duration::from_millis(20)).await;
            let (before, cpu_before) = (metrics(), cpu());
            sleep(Duration::from_millis(500)).await;
            let enters = metrics().enters - before.enters;
            assert!(enters <= 2, "{enters} enters while nothing happened");
            assert!(cpu() - cpu_before < scaled(Duration::from_millis(5)));
            // One signal is one turn or a few, not a spin, though nobody fetches it at once.
            raise(USR1);
            sleep(Duration::from_millis(50)).await;
            let before = metrics();
            sleep(Duration::from_millis(100)).await;
            assert!(metrics().enters - before.enters <= 2);
            drop(waiting);
            drop(listeners);
            until(|| metrics().in_flight == 0).await;
            assert_eq!(fds(), base);
            // The handler stays, so this ends nothing.
            raise(USR1);
        });
    });
}

#[test]
fn a_listener_moves_with_its_signals() {
    in_child("signal::a_listener_moves_with_its_signals", LIMIT, || {
        let mut listener = signal(USR1).unwrap();
        let here = Runtime::new().unwrap();
        here.block_on(async { assert!(is_pending(&mut listener).await) });
        raise(USR1);
        let moved = std::thread::spawn(move || {
            Runtime::new().unwrap().block_on(async {
                listener.recv().await.unwrap();
                assert!(is_pending(&mut listener).await);
                {
                    let first = select(Box::pin(listener.recv()), Box::pin(sleep(Duration::ZERO))).await;
                    assert!(matches!(first, Either::Right(_)));
                }
                raise(USR1);
                listener.recv().await.unwrap();
            });
        });
        moved.join().unwrap();
        drop(here);
    });
}

#[test]
fn a_child_of_fork_keeps_its_signals_to_itself() {
    in_child("signal::a_child_of_fork_keeps_its_signals_to_itself", LIMIT, || {
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            let mut listener = Some(signal(USR1).unwrap());
            assert!(is_pending(listener.as_mut().unwrap()).await);
            let child = fork(|| {
                raise(USR1);
                let texts = [
                    panic_text(|| listener.as_mut().unwrap().recv().now_or_never()),
                    panic_text(|| drop(signal(USR1))),
                ];
                drop(listener.take());
                texts.iter().filter(|text| !text.contains("child of fork(2)")).count() as i32
            });
            assert_eq!(child.wait(), 0);
            let mut listener = listener.unwrap();
            assert!(is_pending(&mut listener).await, "the child's signal is not the parent's");
            raise(USR1);
            listener.recv().await.unwrap();
        });
    });
}
