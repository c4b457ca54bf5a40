//! The timer tests: what it costs to arm and drop one among many, and how late a short one is.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::cpu::CpuClock;

use crate::host::Timers;

const HOUR: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

/// The command `timer t=cancel|late out=N n=N`.
///
/// * `cancel`: with `out` timers armed, the time to make one more, poll it once and drop it.
/// * `late`: how much later than 1 ms a sleep of 1 ms ends: the median and the 99th percentile of `n`.
///
/// # Errors
/// The arguments are wrong, or the runtime does not start.
pub fn command<H: Timers>(mut args: Args) -> Result<()> {
    let name = args.value("t", "cancel".to_owned())?;
    let outstanding = args.at_most("out", 1000, 1_000_000)?;
    let n = args.at_most("n", 100_000, 100_000_000)?.max(1);
    args.finish()?;
    let mut host = H::new()?;
    match name.as_str() {
        "cancel" => host.block_on(cancel::<H>(outstanding, n)),
        "late" => {
            host.block_on(late::<H>(n));
            Ok(())
        }
        _ => Err("t= is cancel or late".into()),
    }
}

async fn cancel<H: Timers>(outstanding: u64, n: u64) -> Result<()> {
    let mut armed: Vec<Pin<Box<H::Sleep>>> = Vec::new();
    for i in 0..outstanding {
        // Deadlines in no order.
        let sleep = H::sleep(HOUR + Duration::from_millis(i.wrapping_mul(7919) % 100_000));
        let mut sleep = Box::pin(sleep);
        poll_once(sleep.as_mut()).await;
        armed.push(sleep);
    }
    let arm_and_drop = async |n: u64| {
        for i in 0..n {
            let mut sleep = pin!(H::sleep(HOUR + Duration::from_millis(i.wrapping_mul(104_729) % 100_000)));
            poll_once(sleep.as_mut()).await;
        }
    };
    arm_and_drop(n / 10).await;
    let (cpu, wall) = (CpuClock::own().read()?, Instant::now());
    arm_and_drop(n).await;
    let (wall, cpu) = (wall.elapsed(), CpuClock::own().read()? - cpu);
    let per = |time: Duration| time.as_nanos() as f64 / n as f64;
    println!("RESULT test=cancel n={n} cpu_ns={:.2} wall_ns={:.2}", per(cpu), per(wall));
    Ok(())
}

async fn late<H: Timers>(n: u64) {
    let mut late_us = Vec::new();
    for _ in 0..n {
        let began = Instant::now();
        H::sleep(SHORT).await;
        let took = began.elapsed();
        assert!(took >= SHORT, "a timer fired early: {took:?}");
        late_us.push((took - SHORT).as_nanos() as f64 / 1000.0);
    }
    late_us.sort_by(f64::total_cmp);
    let at = |share: usize| late_us[(late_us.len() * share / 100).min(late_us.len() - 1)];
    println!("RESULT test=late n={n} late_us={:.2} late99_us={:.2}", at(50), at(99));
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) {
    std::future::poll_fn(|cx: &mut Context<'_>| {
        let _: &Waker = cx.waker();
        let _ = future.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}
