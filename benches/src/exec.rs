//! The executor tests: what a spawn, a join and a yield cost, the same code on every runtime.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::Instant;

use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::cpu::CpuClock;

use crate::host::Host;

/// Tasks that exist at once in [`Test::SpawnMany`].
const BATCH: u64 = 1000;
/// Tasks that take turns in [`Test::YieldMany`].
const YIELDERS: u64 = 100;

/// What is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Spawn a task that does nothing and wait for it.
    SpawnOne,
    /// Spawn a batch of 1000, then wait for each.
    SpawnMany,
    /// One task yields.
    YieldOne,
    /// 100 tasks yield in turn.
    YieldMany,
}

impl Test {
    /// All of them, with their names on the command line.
    pub const ALL: [(&str, Self); 4] = [
        ("spawn1", Self::SpawnOne),
        ("spawn1000", Self::SpawnMany),
        ("yield1", Self::YieldOne),
        ("yield100", Self::YieldMany),
    ];
}

impl FromStr for Test {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, test)| test).ok_or_else(|| "it is spawn1, spawn1000, yield1 or yield100".to_owned())
    }
}

/// Repeats `test` about `n` times: batches are not cut.
pub async fn run<H: Host>(test: Test, n: u64) {
    match test {
        Test::SpawnOne => spawn_one::<H>(n).await,
        Test::SpawnMany => spawn_many::<H>(n).await,
        Test::YieldOne => yield_many::<H>(n, 1).await,
        Test::YieldMany => yield_many::<H>(n, YIELDERS).await,
    }
}

async fn spawn_one<H: Host>(n: u64) {
    for i in 0..n {
        H::spawn(async move { black_box(i) }).await;
    }
}

async fn spawn_many<H: Host>(n: u64) {
    let mut handles = Vec::with_capacity(BATCH as usize);
    for _ in 0..n.div_ceil(BATCH) {
        handles.extend((0..BATCH).map(|i| H::spawn(async move { black_box(i) })));
        for handle in handles.drain(..) {
            handle.await;
        }
    }
}

async fn yield_many<H: Host>(n: u64, tasks: u64) {
    let yielder = |_| {
        H::spawn(async move {
            for _ in 0..n.div_ceil(tasks) {
                YieldNow::default().await;
            }
        })
    };
    let handles: Vec<_> = (0..tasks).map(yielder).collect();
    for handle in handles {
        handle.await;
    }
}

/// Wakes itself once. The runtimes' own `yield_now` do different things (tokio's also visits the driver); this one
/// measures the way from a wake to the next poll.
#[derive(Default)]
struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The command `exec t=TEST n=N`: repeats a test and prints the time of one repetition.
///
/// # Errors
/// The arguments are wrong, or the runtime does not start.
pub fn command<H: Host>(mut args: Args) -> Result<()> {
    let name = args.value("t", "spawn1".to_owned())?;
    let test = name.parse()?;
    let n = args.at_most("n", 300_000, 1_000_000_000)?.max(1);
    args.finish()?;
    let mut host = H::new()?;
    // The first repetitions fault pages in and fill the allocator's lists.
    host.block_on(run::<H>(test, (n / 10).max(1)));
    let (cpu, wall) = (CpuClock::own().read()?, Instant::now());
    host.block_on(run::<H>(test, n));
    let (wall, cpu) = (wall.elapsed(), CpuClock::own().read()? - cpu);
    let per = |time: std::time::Duration| time.as_nanos() as f64 / n as f64;
    println!("RESULT test={name} n={n} cpu_ns={:.2} wall_ns={:.2}", per(cpu), per(wall));
    Ok(())
}
