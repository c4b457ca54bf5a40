//! Random sequences of everything at once, on rings of 8 and 16 entries, against a model that knows every byte.
//!
//! A *job* is a future that carries out one operation and compares what it brings with the model. Each round picks one
//! of: start a job, poll one once, drop one, give one a time limit, move one into a task, abort or await a task, close
//! an end, forget an operation, make enters fail. Buffers poison their memory when they are dropped, and complain when
//! the kernel writes to it later.
//!
//! `RUNTIME_SOAK_ROUNDS` is the number of rounds, `RUNTIME_SOAK_SEED` where the random numbers begin; a failure prints
//! the latter.

mod jobs;
mod model;
mod two_threads;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use runtime::op::{Kind, Rung};
use runtime::task::JoinHandle;
use runtime::testing::{in_flight, inject_enter_faults, tiny};

use crate::alloc;
use crate::support::{Rng, fds, in_child};
use jobs::{Job, World};

const LIMIT: Duration = Duration::from_secs(3000);
/// Rounds between a new runtime and its end.
const EPISODE: u64 = 250;
/// Jobs and tasks that exist at once.
const CROWD: usize = 48;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// The random numbers of one test; the seed is printed, and seen when the test fails.
fn rng(of: &str) -> Rng {
    let seed = setting("RUNTIME_SOAK_SEED", 0x5eed).wrapping_mul(2).wrapping_add(1);
    println!("{of}: RUNTIME_SOAK_SEED={}", seed / 2);
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    // Small seeds look alike at first.
    for _ in 0..8 {
        rng.next();
    }
    rng
}

#[test]
fn soak_random_sequences_lose_nothing() {
    in_child("soak::soak_random_sequences_lose_nothing", LIMIT, || {
        panic_ends_all();
        let mut rng = rng("random sequences");
        let rounds = setting("RUNTIME_SOAK_ROUNDS", 2_000);
        let (mut base, mut did) = ((0, 0), [0; 5]);
        for episode in 0..rounds.div_ceil(EPISODE).max(4) {
            let done = run_episode(&mut rng, EPISODE.min(rounds));
            let counts = [done.orphans, done.cancels, done.backlogged, done.completions, done.zc_notices];
            did.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            model::check_quarantine(0);
            let holds = (fds(), alloc::live());
            // The first episodes fill what is kept for ever: the registry's table, names of threads, buffers of stdout.
            if episode < 2 {
                base = holds;
                continue;
            }
            assert_eq!(holds.0, base.0, "descriptors after episode {episode}");
            let grown = holds.1 - base.1;
            assert!(grown.abs() < 16 << 10, "{} bytes are held after episode {episode}, {} at first", holds.1, base.1);
        }
        println!("orphans, cancels, backlogged, completions, zero-copy notifications: {did:?}");
        assert!(rounds < 2_000 || did.iter().all(|&count| count > 0), "the soak has left something out: {did:?}");
    });
}

/// A panic ends the process, also one in a task that nobody asks how it ended.
fn panic_ends_all() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

fn run_episode(rng: &mut Rng, rounds: u64) -> runtime::Metrics {
    let rt = tiny(8, 16).build().unwrap();
    let forgotten = rt.block_on(async {
        let mut soak = Soak { world: World::new().await, jobs: Vec::new(), tasks: Vec::new(), forgotten: 0 };
        for _ in 0..rounds {
            soak.round(rng).await;
        }
        soak.end(rng).await
    });
    let done = rt.metrics();
    let left = rt.shutdown_timeout(Duration::from_secs(5));
    assert_eq!(left, 0, "operations left behind, {forgotten} of them forgotten before");
    done
}

struct Task {
    handle: JoinHandle<()>,
    endless: bool,
    aborted: bool,
}

struct Soak {
    world: World,
    jobs: Vec<Job>,
    tasks: Vec<Task>,
    forgotten: u32,
}

impl Soak {
    async fn round(&mut self, rng: &mut Rng) {
        match rng.below(40) {
            0..=10 if self.jobs.len() < CROWD => {
                for _ in 0..=rng.below(4) {
                    self.jobs.push(self.world.job(rng));
                }
            }
            0..=13 => self.poll_one(rng).await,
            // More than the queues hold.
            14..=15 => {
                for _ in 0..self.jobs.len() {
                    self.poll_one(rng).await;
                }
            }
            16..=18 => drop(self.any(rng)),
            19..=23 => self.limit_one(rng).await,
            24..=26 if self.tasks.len() < CROWD => self.spawn_one(rng),
            24..=26 => self.abort_one(rng),
            27..=29 => self.join_one(rng).await,
            30 => self.lend_one(rng).await,
            31 => self.world.close_something(rng),
            32 if self.forgotten < 6 => {
                self.world.forget(rng).await;
                self.forgotten += 1;
            }
            32 => self.abort_one(rng),
            33 => {
                let errnos = [libc::EINTR, libc::EBUSY, libc::EAGAIN, libc::ENOMEM];
                let faults: Vec<_> = (0..=rng.below(3)).map(|_| errnos[rng.below(4) as usize]).collect();
                inject_enter_faults(&faults);
            }
            34 => self.world.match_up(),
            35..=36 => runtime::time::sleep(Duration::from_micros(rng.below(500))).await,
            _ => runtime::task::yield_now().await,
        }
    }

    fn any(&mut self, rng: &mut Rng) -> Option<Job> {
        let n = self.jobs.len() as u64;
        (n > 0).then(|| self.jobs.swap_remove(rng.below(n) as usize))
    }

    /// Polls a job once, with the task's waker or with one that does nothing.
    async fn poll_one(&mut self, rng: &mut Rng) {
        let Some(mut job) = self.any(rng) else { return };
        let quiet = rng.below(3) == 0;
        let state = poll_fn(|task| {
            let mut nobody = Context::from_waker(std::task::Waker::noop());
            Poll::Ready(Pin::new(&mut job).poll(if quiet { &mut nobody } else { task }))
        });
        if state.await.is_pending() {
            self.jobs.push(job);
        }
    }

    /// Awaits a job, but not for long; then it is dropped.
    async fn limit_one(&mut self, rng: &mut Rng) {
        let Some(job) = self.any(rng) else { return };
        let _ = runtime::time::timeout(Duration::from_micros(rng.below(2_000)), job).await;
    }

    /// A job goes on in a task of its own, whatever it did before.
    fn spawn_one(&mut self, rng: &mut Rng) {
        let Some(job) = self.any(rng) else { return };
        let endless = job.endless;
        let handle = runtime::spawn(job);
        if endless || rng.below(4) > 0 {
            self.tasks.push(Task { handle, endless, aborted: false });
        }
    }

    fn abort_one(&mut self, rng: &mut Rng) {
        if self.tasks.is_empty() {
            return;
        }
        let n = self.tasks.len() as u64;
        let task = &mut self.tasks[rng.below(n) as usize];
        task.handle.abort();
        task.aborted = true;
    }

    async fn join_one(&mut self, rng: &mut Rng) {
        if self.tasks.is_empty() {
            return;
        }
        let n = self.tasks.len() as u64;
        let mut task = self.tasks.swap_remove(rng.below(n) as usize);
        let joined = runtime::time::timeout(Duration::from_micros(rng.below(1_000)), &mut task.handle).await;
        match joined {
            Ok(result) => task.check(result),
            // Dropping the handle here detaches it now and then.
            Err(_) if task.endless || rng.below(8) > 0 => self.tasks.push(task),
            Err(_) => {}
        }
    }

    /// A job is polled in another task for a while and comes back.
    async fn lend_one(&mut self, rng: &mut Rng) {
        let Some(mut job) = self.any(rng) else { return };
        let polls = 1 + rng.below(3);
        let lent = runtime::spawn(async move {
            for _ in 0..polls {
                if crate::kit::poll_once(&mut job).await.is_ready() {
                    return None;
                }
                runtime::task::yield_now().await;
            }
            Some(job)
        });
        self.jobs.extend(lent.await.unwrap());
    }

    /// Everything comes to its end, and nothing is left but what was forgotten.
    async fn end(mut self, rng: &mut Rng) -> u32 {
        while let Some(job) = self.any(rng) {
            drop(job);
        }
        for task in &mut self.tasks {
            task.handle.abort();
            task.aborted = true;
        }
        for mut task in self.tasks.drain(..) {
            let result = (&mut task.handle).await;
            task.check(result);
        }
        let forgotten = self.forgotten;
        // Nothing was closed yet: it is the cancelling that ends orphans. The listener's accept goes on, and tasks that
        // were detached have one operation each. A zero-copy write that a full window holds up is over when its end is.
        let others = || in_flight().saturating_sub(announced());
        settled(|| others() <= forgotten + 1 + runtime::metrics().tasks as u32, forgotten).await;
        self.world.finish().await;
        settled(|| runtime::metrics().tasks == 0 && in_flight() <= forgotten, forgotten).await;
        assert_eq!(in_flight(), forgotten, "operations in flight at the end");
        assert_eq!(runtime::metrics().timers, 0, "timers at the end");
        assert_eq!(runtime::metrics().stale_completions, 0, "completions without an operation");
        forgotten
    }
}

/// Zero-copy writes without a notification so far.
fn announced() -> u32 {
    let metrics = runtime::metrics();
    (metrics.ops(Kind::SendZc, Rung::Ring) - metrics.zc_notices) as u32
}

/// Waits until what was given up is over.
async fn settled(condition: impl Fn() -> bool, forgotten: u32) {
    let deadline = Instant::now() + crate::support::scaled(Duration::from_secs(10));
    while !condition() {
        assert!(Instant::now() < deadline, "{forgotten} forgotten, still there: {:?}", runtime::metrics());
        runtime::time::sleep(Duration::from_millis(1)).await;
    }
}

impl Task {
    fn check(&self, result: Result<(), runtime::task::JoinError>) {
        if let Err(error) = result {
            assert!(self.aborted && error.is_cancelled(), "{error}");
        }
    }
}
