//! Time and CPU of the same work done again and again for a given time: of the parts of it that count, not of what
//! prepares them.

use std::time::{Duration, Instant};

use crate::Result;
use crate::args::Args;
use crate::cpu::CpuClock;

/// Adds up parts until its time is over. The first part warms up and is not counted.
#[derive(Debug)]
pub struct Meter {
    clock: CpuClock,
    until: Instant,
    warm: bool,
    began: Option<(Duration, Instant)>,
    cpu: Duration,
    wall: Duration,
    n: u64,
}

impl Meter {
    /// Takes `ms=`: for how long there are parts.
    ///
    /// # Errors
    /// The value cannot be parsed, or it is more than a minute.
    pub fn new(args: &mut Args) -> Result<Self> {
        let time = Duration::from_millis(args.at_most("ms", 60, 60_000)?);
        Ok(Self {
            clock: CpuClock::own(),
            until: Instant::now() + time,
            warm: false,
            began: None,
            cpu: Duration::ZERO,
            wall: Duration::ZERO,
            n: 0,
        })
    }

    /// Whether there is time for another part; there is always one that counts.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.n == 0 || Instant::now() < self.until
    }

    /// A part begins.
    ///
    /// # Errors
    /// The clock cannot be read.
    pub fn begin(&mut self) -> Result<()> {
        // The dearer clock outside.
        self.began = Some((self.clock.read()?, Instant::now()));
        Ok(())
    }

    /// It ends, and was `n` repetitions.
    ///
    /// # Errors
    /// The clock cannot be read.
    ///
    /// # Panics
    /// It has not begun.
    pub fn end(&mut self, n: u64) -> Result<()> {
        let now = Instant::now();
        let (cpu, wall) = self.began.take().expect("a part begins before it ends");
        if !std::mem::replace(&mut self.warm, true) {
            return Ok(());
        }
        self.cpu += self.clock.read()? - cpu;
        self.wall += now - wall;
        self.n += n;
        Ok(())
    }

    /// Prints what one repetition has cost.
    pub fn print(&self, test: &str) {
        let per = |time: Duration| time.as_nanos() as f64 / self.n as f64;
        println!("RESULT test={test} n={} cpu_ns={:.1} wall_ns={:.1}", self.n, per(self.cpu), per(self.wall));
    }
}

/// Prints median and 99th percentile of times of which each is one's own.
///
/// # Panics
/// There are none.
pub fn print_times(test: &str, mut times: Vec<Duration>) {
    assert!(!times.is_empty(), "nothing was measured");
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].as_nanos();
    println!("RESULT test={test} n={} wall_ns={} p99_ns={}", times.len(), at(50), at(99));
}
