//! The spin before the park: it changes when a thread sleeps, never what happens, and an idle program does not do it.

use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use runtime::net::{TcpListener, TcpStream};
use runtime::pipe::pipe;
use runtime::time::sleep;
use runtime::{Builder, metrics, spawn_on};

use crate::kit::{echo_client, echo_once};
use crate::support::{in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(60);
const ROUNDS: usize = 5_000;

/// Exchanges with a thread that answers as soon as it can.
async fn exchange() {
    let (tx, rx) = mpsc::channel::<(Waker, mpsc::SyncSender<usize>)>();
    let other = thread::spawn(move || {
        for (n, (waker, answer)) in rx.iter().enumerate() {
            answer.send(n).unwrap();
            waker.wake();
        }
    });
    for n in 0..ROUNDS {
        let (answer, answered) = mpsc::sync_channel(1);
        let mut asked = false;
        let got = std::future::poll_fn(|task| {
            if !std::mem::replace(&mut asked, true) {
                tx.send((task.waker().clone(), answer.clone())).unwrap();
            }
            answered.try_recv().map_or(Poll::Pending, Poll::Ready)
        });
        assert_eq!(got.await, n);
    }
    drop(tx);
    other.join().unwrap();
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn wakes_from_elsewhere_arrive_with_and_without_it() {
    let _watchdog = watchdog(LIMIT);
    for limit in [Duration::ZERO, Duration::from_micros(100), Duration::MAX] {
        Builder::new().spin(limit).build().unwrap().block_on(async {
            exchange().await;
            let metrics = metrics();
            assert!(limit > Duration::ZERO || metrics.spins == 0, "it is switched off");
            assert!(metrics.spins_won <= metrics.spins);
        });
    }
}

#[test]
fn an_idle_runtime_sleeps_after_load() {
    in_child("spin::an_idle_runtime_sleeps_after_load", LIMIT, || {
        Builder::new().build().unwrap().block_on(async {
            exchange().await;
            let (before, cpu) = (metrics(), cpu_time());
            sleep(Duration::from_secs(1)).await;
            let (after, cpu) = (metrics(), cpu_time() - cpu);
            assert!(after.spins - before.spins <= 1, "what the record of the load leads to");
            assert!(after.enters - before.enters <= 2, "{}", after.enters - before.enters);
            assert!(cpu < Duration::from_millis(1), "{cpu:?} of a second");
        });
    });
}

/// How long each thread of this process but the calling one has run, and how often it got a core.
fn schedules() -> std::collections::BTreeMap<String, String> {
    // SAFETY: no arguments.
    let me = unsafe { libc::gettid() }.to_string();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap());
    let of = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        Some((format!("{} {}", task.file_name().display(), name.trim()), stat))
    };
    tasks.filter(|task| *task.file_name() != *me).filter_map(of).collect()
}

/// Load of every kind at once: echoes, sleeps, pipes, jobs of another thread of the runtime, wakes of a foreign one.
async fn load() {
    let echoes = async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = echo_client(listener.local_addr().unwrap(), 2_000);
        echo_once(&listener).await;
        client.join().unwrap();
    };
    let sleeps = async {
        for n in 0..500 {
            sleep(Duration::from_micros(n)).await;
        }
    };
    let pipes = async {
        let (tx, rx) = pipe().unwrap();
        for _ in 0..2_000 {
            let (read, wrote) = futures::join!(rx.read(Vec::with_capacity(8)), tx.write_all("x"));
            wrote.0.unwrap();
            assert_eq!(read.0.unwrap(), 1);
        }
    };
    let jobs = async {
        for n in 0..2_000 {
            assert_eq!(spawn_on(1, move || async move { n }).await.unwrap(), n);
        }
    };
    futures::join!(echoes, sleeps, pipes, jobs);
    // Last what leads to a spin, unless the machine is too busy for one.
    exchange().await;
}

/// Not only few system calls: no thread of it gets a core at all.
#[test]
fn nothing_runs_in_an_idle_program_after_load() {
    if std::env::var_os("TSAN_OPTIONS").is_some() {
        eprintln!("SKIP: a sanitizer has a thread of its own");
        return;
    }
    in_child("spin::nothing_runs_in_an_idle_program_after_load", LIMIT, || {
        let (idle, is_idle) = mpsc::channel();
        let (end, ended) = futures::channel::oneshot::channel::<()>();
        let program = thread::spawn(move || {
            Builder::new().threads(2).spin(Duration::from_micros(100)).build().unwrap().block_on(async {
                load().await;
                println!("{} spins", metrics().spins);
                // What a server that nobody talks to has: accepts, reads and receives that stand, a timer far away.
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let addr = listener.local_addr().unwrap();
                let (ours, theirs) = futures::join!(TcpStream::connect(addr), listener.accept());
                let (ours, theirs) = (ours.unwrap(), theirs.unwrap().0);
                runtime::spawn(async move { drop(ours.read(vec![0; 8]).await) });
                runtime::spawn(async move { drop(theirs.recv().await) });
                runtime::spawn(async move { drop(listener.accept().await) });
                runtime::spawn(sleep(Duration::from_secs(3600)));
                runtime::spawn(async move { idle.send(()).unwrap() });
                ended.await.unwrap();
            });
        });
        is_idle.recv().unwrap();
        // It is on its way into the sleep, perhaps by a last spin.
        let mut before = schedules();
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(50));
            let now = schedules();
            if now == before {
                break;
            }
            before = now;
        }
        thread::sleep(Duration::from_secs(1));
        assert_eq!(schedules(), before, "somebody ran in an idle second");
        end.send(()).unwrap();
        program.join().unwrap();
    });
}
