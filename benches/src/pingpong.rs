//! Two threads, a runtime each, and one word that goes back and forth: what a wake from another thread costs.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;
use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::process::pin_thread;

use crate::host::Host;

#[derive(Default)]
struct Cell {
    value: AtomicU64,
    waker: AtomicWaker,
}

impl Cell {
    fn put(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        self.waker.wake();
    }

    async fn wait_for(&self, value: u64) {
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            if self.value.load(Ordering::Acquire) >= value { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The command `pingpong n=N [pause_us=0]`: the time of one round trip. With a pause before each, both threads have gone
/// to sleep when it begins; the pause is not counted.
///
/// # Errors
/// The arguments are wrong, or a runtime does not start.
pub fn command<H: Host>(mut args: Args, make: impl Fn() -> Result<H> + Send + Sync + 'static) -> Result<()> {
    let n = args.at_most("n", 20_000, 100_000_000)?.max(1);
    let pause = Duration::from_micros(args.value("pause_us", 0)?);
    args.finish()?;
    let cells = Arc::new((Cell::default(), Cell::default()));
    let make = Arc::new(make);
    let rounds = n + n / 10;
    let other = {
        let (cells, make) = (Arc::clone(&cells), Arc::clone(&make));
        thread::spawn(move || -> std::result::Result<(), String> {
            pin_thread(1);
            make().map_err(|error| error.to_string())?.block_on(async {
                for round in 1..=rounds {
                    cells.0.wait_for(round).await;
                    cells.1.put(round);
                }
            });
            Ok(())
        })
    };
    let one = thread::spawn(move || talk(n, pause, &cells, &*make));
    let times = one.join().map_err(|_| "a thread panicked")??;
    other.join().map_err(|_| "the other thread panicked")??;
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    println!("RESULT test=pingpong n={n} trip_us={:.3} trip99_us={:.3}", at(50), at(99));
    Ok(())
}

/// The thread that begins; its times, sorted.
fn talk<H: Host>(
    n: u64,
    pause: Duration,
    cells: &(Cell, Cell),
    make: &impl Fn() -> Result<H>,
) -> std::result::Result<Vec<f64>, String> {
    // A core each: on one core a wake is a switch, whatever the runtime does.
    pin_thread(0);
    let rounds = n + n / 10;
    let mut times = Vec::with_capacity(n as usize);
    make().map_err(|error| error.to_string())?.block_on(async {
        for round in 1..=rounds {
            if !pause.is_zero() {
                // Asleep by another means than its own timers.
                thread::sleep(pause);
            }
            let began = Instant::now();
            cells.0.put(round);
            cells.1.wait_for(round).await;
            if round > n / 10 {
                times.push(began.elapsed().as_nanos() as f64 / 1000.0);
            }
        }
    });
    times.sort_by(f64::total_cmp);
    Ok(times)
}
