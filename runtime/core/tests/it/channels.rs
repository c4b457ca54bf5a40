//! Channels and locks of the ecosystem wake tasks of this runtime, inside a thread and across threads, also when the
//! runtime sleeps: `futures`, `async-channel`, `flume`, `tokio::sync`. Each test is bounded in count and in time.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{Either, join, join_all, select};
use futures::{FutureExt, SinkExt, StreamExt};
use runtime::task::yield_now;
use runtime::time::{sleep, timeout};
use runtime::{Runtime, spawn};
use tokio::sync::{Barrier, Mutex, Notify, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};

use crate::support::{Rng, watchdog};

const LIMIT: Duration = Duration::from_secs(60);
/// Messages each way.
const MESSAGES: u64 = 10_000;
/// Round trips, of which each puts both ends to sleep.
const ROUND_TRIPS: u64 = 500;

fn run<F: Future>(future: F) -> F::Output {
    Runtime::new().unwrap().block_on(future)
}

type Sent = Pin<Box<dyn Future<Output = bool>>>;

/// The two ends of a channel, whatever crate it is from.
trait Sender: Clone + Send + 'static {
    /// False when nobody receives any more.
    fn give(&self, n: u64) -> Sent;
}

trait Receiver: Send + 'static {
    fn take(&mut self) -> impl Future<Output = Option<u64>>;
}

impl Sender for async_channel::Sender<u64> {
    fn give(&self, n: u64) -> Sent {
        let this = self.clone();
        Box::pin(async move { this.send(n).await.is_ok() })
    }
}

impl Receiver for async_channel::Receiver<u64> {
    async fn take(&mut self) -> Option<u64> {
        self.recv().await.ok()
    }
}

impl Sender for flume::Sender<u64> {
    fn give(&self, n: u64) -> Sent {
        let this = self.clone();
        Box::pin(async move { this.send_async(n).await.is_ok() })
    }
}

impl Receiver for flume::Receiver<u64> {
    async fn take(&mut self) -> Option<u64> {
        self.recv_async().await.ok()
    }
}

impl Sender for mpsc::Sender<u64> {
    fn give(&self, n: u64) -> Sent {
        let this = self.clone();
        Box::pin(async move { this.send(n).await.is_ok() })
    }
}

impl Receiver for mpsc::Receiver<u64> {
    async fn take(&mut self) -> Option<u64> {
        self.recv().await
    }
}

impl Sender for futures::channel::mpsc::Sender<u64> {
    fn give(&self, n: u64) -> Sent {
        let mut this = self.clone();
        Box::pin(async move { this.send(n).await.is_ok() })
    }
}

impl Receiver for futures::channel::mpsc::Receiver<u64> {
    async fn take(&mut self) -> Option<u64> {
        self.next().await
    }
}

/// Two senders in two runtimes and one in this one, one receiver in a third: each message comes once, in its order.
fn many_to_one<S: Sender, R: Receiver>(make: impl Fn(usize) -> (S, R)) {
    for capacity in [1, 64] {
        let (sender, mut receiver) = make(capacity);
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    run(async {
                        let tasks = (0..2).map(|task| {
                            let sender = sender.clone();
                            spawn(async move {
                                for n in 0..MESSAGES / 4 {
                                    assert!(sender.give((thread * 2 + task) << 32 | n).await);
                                }
                            })
                        });
                        for task in tasks.collect::<Vec<_>>() {
                            task.await.unwrap();
                        }
                    });
                })
            })
            .collect();
        drop(sender);
        run(async {
            let mut next = [0; 4];
            while let Some(message) = receiver.take().await {
                let expected = &mut next[(message >> 32) as usize];
                assert_eq!(message & 0xffff_ffff, *expected, "in order");
                *expected += 1;
            }
            assert_eq!(next, [MESSAGES / 4; 4]);
        });
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

/// Both runtimes sleep again and again: each message has to end the sleep of the other one.
fn ping_pong<S: Sender, R: Receiver>(make: impl Fn(usize) -> (S, R)) {
    let ((ping, mut pinged), (pong, mut ponged)) = (make(1), make(1));
    let other = std::thread::spawn(move || {
        run(async {
            while let Some(n) = pinged.take().await {
                if !pong.give(n + 1).await {
                    break;
                }
            }
        });
    });
    run(async {
        for n in 0..ROUND_TRIPS {
            assert!(ping.give(n).await);
            assert_eq!(ponged.take().await, Some(n + 1));
        }
    });
    drop(ping);
    other.join().unwrap();
}

/// Receives that are given up lose nothing, and a receiver that is dropped ends its senders.
fn timeouts_and_ends<S: Sender, R: Receiver>(make: impl Fn(usize) -> (S, R)) {
    let (sender, mut receiver) = make(4);
    let other = std::thread::spawn(move || {
        run(async {
            let mut random = Rng(7);
            for n in 0.. {
                // Sometimes the receiver waits, sometimes this does.
                match random.below(16) {
                    0 => sleep(Duration::from_micros(random.below(300))).await,
                    1..4 => yield_now().await,
                    _ => {}
                }
                if !sender.give(n).await {
                    return n;
                }
            }
            unreachable!()
        })
    });
    run(async {
        let (mut random, mut next) = (Rng(11), 0);
        while next < MESSAGES / 5 {
            let limit = Duration::from_micros(random.below(60));
            let received = {
                let take = Box::pin(receiver.take());
                match select(take, Box::pin(sleep(limit))).await {
                    Either::Left((message, _)) => message,
                    Either::Right((_, take)) => {
                        // Dropped on the spot, or polled once more.
                        if random.below(2) == 0 { take.now_or_never().flatten() } else { None }
                    }
                }
            };
            if let Some(message) = received {
                assert_eq!(message, next, "in order, none lost");
                next += 1;
            }
        }
        drop(receiver);
    });
    assert!(other.join().unwrap() >= MESSAGES / 5);
}

#[test]
fn async_channel_works() {
    let _watchdog = watchdog(LIMIT);
    many_to_one(async_channel::bounded);
    ping_pong(async_channel::bounded);
    timeouts_and_ends(async_channel::bounded);
}

#[test]
fn flume_works() {
    let _watchdog = watchdog(LIMIT);
    many_to_one(flume::bounded);
    ping_pong(flume::bounded);
    timeouts_and_ends(flume::bounded);
}

#[test]
fn mpsc_of_tokio_works() {
    let _watchdog = watchdog(LIMIT);
    many_to_one(mpsc::channel);
    ping_pong(mpsc::channel);
    timeouts_and_ends(mpsc::channel);
}

#[test]
fn mpsc_of_futures_works() {
    let _watchdog = watchdog(LIMIT);
    many_to_one(futures::channel::mpsc::channel);
    ping_pong(futures::channel::mpsc::channel);
    timeouts_and_ends(futures::channel::mpsc::channel);
}

#[test]
fn a_std_thread_talks_to_a_runtime() {
    let _watchdog = watchdog(LIMIT);
    let ((to_us, ours), (to_them, theirs)) = (flume::bounded(8), flume::bounded(8));
    let (blocking, mut from_blocking) = mpsc::channel(8);
    let thread = std::thread::spawn(move || {
        for n in 0..MESSAGES {
            to_us.send(n).unwrap();
            if n % 10 == 0 {
                blocking.blocking_send(n).unwrap();
            }
        }
        drop((to_us, blocking));
        theirs.iter().sum::<u64>()
    });
    run(async {
        let receive = async {
            let mut sum = 0;
            while let Ok(n) = ours.recv_async().await {
                sum += n;
            }
            sum
        };
        let receive_blocking = async {
            let mut count = 0;
            while from_blocking.recv().await.is_some() {
                count += 1;
            }
            count
        };
        let (sum, count) = join(receive, receive_blocking).await;
        assert_eq!((sum, count), (MESSAGES * (MESSAGES - 1) / 2, MESSAGES / 10));
        for n in 0..MESSAGES {
            to_them.send_async(n).await.unwrap();
        }
        drop(to_them);
    });
    assert_eq!(thread.join().unwrap(), MESSAGES * (MESSAGES - 1) / 2);
}

#[test]
fn oneshots_cross_threads_and_tell_of_dropped_ends() {
    let _watchdog = watchdog(LIMIT);
    let (requests, served) =
        async_channel::bounded::<(u64, oneshot::Sender<u64>, futures::channel::oneshot::Sender<u64>)>(16);
    let server = std::thread::spawn(move || {
        run(async {
            while let Ok((n, first, second)) = served.recv().await {
                match n % 4 {
                    // Dropped unanswered; answered though nobody waits; answered late; answered.
                    0 => drop((first, second)),
                    2 => drop(spawn(async move {
                        yield_now().await;
                        (first.send(n).unwrap(), second.send(n).unwrap())
                    })),
                    _ => {
                        let sent = (second.send(n), first.send(n));
                        assert!(n % 4 == 1 || sent == (Ok(()), Ok(())));
                    }
                }
            }
        });
    });
    run(async {
        let clients = (0..20u64).map(|client| {
            let requests = requests.clone();
            spawn(async move {
                for round in 0..100 {
                    let n = client * 100 + round;
                    let ((first, answer), (second, other)) = (oneshot::channel(), futures::channel::oneshot::channel());
                    requests.send((n, first, second)).await.unwrap();
                    match n % 4 {
                        0 => assert!(answer.await.is_err() && other.await.is_err()),
                        1 => drop((answer, other)),
                        _ => assert_eq!((answer.await.unwrap(), other.await.unwrap()), (n, n)),
                    }
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
    });
    drop(requests);
    server.join().unwrap();
}

#[test]
fn broadcast_and_watch_reach_every_runtime() {
    let _watchdog = watchdog(LIMIT);
    let (messages, _) = broadcast::channel::<u64>(64);
    let (state, seen) = watch::channel(0u64);
    let ready = Arc::new(std::sync::Barrier::new(4));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (mut messages, mut seen, ready) = (messages.subscribe(), seen.clone(), Arc::clone(&ready));
            std::thread::spawn(move || {
                ready.wait();
                run(async {
                    let receive = async {
                        let (mut got, mut missed) = (0, 0);
                        loop {
                            match messages.recv().await {
                                Ok(_) => got += 1,
                                Err(broadcast::error::RecvError::Lagged(n)) => missed += n,
                                Err(broadcast::error::RecvError::Closed) => return got + missed,
                            }
                        }
                    };
                    let observe = async {
                        let mut last = 0;
                        while seen.changed().await.is_ok() {
                            let now = *seen.borrow_and_update();
                            assert!(now >= last, "never back");
                            last = now;
                        }
                        last
                    };
                    join(receive, observe).await
                })
            })
        })
        .collect();
    ready.wait();
    run(async {
        for n in 1..=2000 {
            messages.send(n).unwrap();
            state.send(n).unwrap();
            if n % 50 == 0 {
                sleep(Duration::from_micros(200)).await;
            }
        }
    });
    drop((messages, state));
    for thread in threads {
        assert_eq!(thread.join().unwrap(), (2000, 2000));
    }
}

#[test]
fn locks_are_held_by_one_and_given_up_by_who_gives_up() {
    let _watchdog = watchdog(LIMIT);
    let counter = Arc::new(Mutex::new(0u64));
    let shared = Arc::new(RwLock::new(0u64));
    let permits = Arc::new(Semaphore::new(2));
    let (inside, given_up) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..3u64)
        .map(|thread| {
            let (counter, shared, permits) = (Arc::clone(&counter), Arc::clone(&shared), Arc::clone(&permits));
            let (inside, given_up) = (Arc::clone(&inside), Arc::clone(&given_up));
            std::thread::spawn(move || {
                run(async {
                    let tasks = (0..8u64).map(|task| {
                        let (counter, shared, permits) =
                            (Arc::clone(&counter), Arc::clone(&shared), Arc::clone(&permits));
                        let (inside, given_up) = (Arc::clone(&inside), Arc::clone(&given_up));
                        spawn(async move {
                            let mut random = Rng(thread * 8 + task + 1);
                            for _ in 0..100 {
                                let limit = Duration::from_micros(random.below(100));
                                let Ok(permit) = timeout(limit, permits.acquire()).await else {
                                    given_up.fetch_add(1, Ordering::Relaxed);
                                    *counter.lock().await += 1;
                                    continue;
                                };
                                let permit = permit.unwrap();
                                assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                                {
                                    // Held across a suspension.
                                    let mut counter = counter.lock().await;
                                    let before = *counter;
                                    yield_now().await;
                                    *counter = before + 1;
                                }
                                *shared.write().await += 1;
                                assert!(*shared.read().await >= 1);
                                inside.fetch_sub(1, Ordering::SeqCst);
                                drop(permit);
                            }
                        })
                    });
                    for task in tasks.collect::<Vec<_>>() {
                        task.await.unwrap();
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    run(async {
        assert_eq!(*counter.lock().await, 3 * 8 * 100);
        assert_eq!(*shared.read().await + given_up.load(Ordering::Relaxed), 3 * 8 * 100);
        assert_eq!(permits.available_permits(), 2);
    });
}

#[test]
fn notifications_and_barriers_cross_threads() {
    let _watchdog = watchdog(LIMIT);
    let (there, back) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let barrier = Arc::new(Barrier::new(3));
    let leaders = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..2)
        .map(|thread| {
            let (there, back) = (Arc::clone(&there), Arc::clone(&back));
            let (barrier, leaders) = (Arc::clone(&barrier), Arc::clone(&leaders));
            std::thread::spawn(move || {
                run(async {
                    for _ in 0..ROUND_TRIPS {
                        match thread {
                            0 => {
                                there.notify_one();
                                back.notified().await;
                            }
                            _ => {
                                there.notified().await;
                                back.notify_one();
                            }
                        }
                    }
                    for _ in 0..100 {
                        leaders.fetch_add(u64::from(barrier.wait().await.is_leader()), Ordering::Relaxed);
                    }
                    // All who wait are told, but for the one that left.
                    let mut gone = pin!(there.notified());
                    let waits = gone.as_mut().enable();
                    let all = [there.notified(), there.notified()];
                    barrier.wait().await;
                    if thread == 0 {
                        barrier.wait().await;
                        there.notify_waiters();
                    } else {
                        let told = join_all(all);
                        barrier.wait().await;
                        assert!(!waits);
                        told.await;
                    }
                });
            })
        })
        .collect();
    run(async {
        for _ in 0..102 {
            leaders.fetch_add(u64::from(barrier.wait().await.is_leader()), Ordering::Relaxed);
        }
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(leaders.load(Ordering::Relaxed) >= 100);
}

#[test]
fn a_runtime_that_ends_in_the_middle_ends_the_others_cleanly() {
    let _watchdog = watchdog(LIMIT);
    for round in 0..50u64 {
        let (to_them, theirs) = flume::bounded::<u64>(1);
        let (to_us, ours) = async_channel::bounded::<u64>(1);
        let lock = Arc::new(Mutex::new(()));
        let held = Arc::clone(&lock);
        let other = std::thread::spawn(move || {
            let rt = Runtime::new().unwrap();
            rt.block_on(async move {
                // Tasks that hold an end, a lock, and places in queues, and are dropped by the end of the runtime.
                for _ in 0..4 {
                    let (theirs, to_us, held) = (theirs.clone(), to_us.clone(), Arc::clone(&held));
                    spawn(async move {
                        let _guard = held.lock().await;
                        while let Ok(n) = theirs.recv_async().await {
                            if to_us.send(n).await.is_err() {
                                return;
                            }
                        }
                    });
                }
                sleep(Duration::from_micros(round * 20)).await;
            });
        });
        run(async {
            let send = async { while to_them.send_async(round).await.is_ok() {} };
            let receive = async { while ours.recv().await.is_ok() {} };
            join(send, receive).await;
            drop(lock.lock().await);
        });
        other.join().unwrap();
    }
}
