//! A thread that writes into a pipe a while after it is asked to: when whoever waits for it waits indeed.

use std::fs::File;
use std::hint::spin_loop;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Result;
use crate::args::Args;
use crate::process::pin_thread;

const OVER: u64 = u64::MAX;

#[derive(Debug)]
struct Shared {
    since: Instant,
    /// Writes that were asked for.
    asked: AtomicU64,
    /// Nanoseconds, just before the last write.
    wrote_at: AtomicU64,
}

/// The thread and its end of a pipe. It runs on a core of its own and never sleeps, so that it is no sleeper's wake-up
/// that is measured but the waiter's.
#[derive(Debug)]
pub struct LateWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl LateWriter {
    /// Takes `later_us=`, how much later it writes than it is asked to, and starts it; every write has `size` bytes.
    ///
    /// # Errors
    /// The value cannot be parsed, or is more than 10 ms.
    pub fn start(args: &mut Args, pipe: File, size: usize) -> Result<Self> {
        let later = Duration::from_micros(args.at_most("later_us", 60, 10_000)?);
        let shared = Shared { since: Instant::now(), asked: AtomicU64::new(0), wrote_at: AtomicU64::new(0) };
        let shared = Arc::new(shared);
        let its = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            pin_thread(1);
            write_when_asked(&its, pipe, &vec![7; size], later)
        });
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Asks for a write.
    pub fn ask(&self) {
        self.shared.asked.fetch_add(1, Ordering::Release);
    }

    /// How long ago the last write began.
    #[must_use]
    pub fn since_write(&self) -> Duration {
        let now = self.shared.since.elapsed();
        now - Duration::from_nanos(self.shared.wrote_at.load(Ordering::Acquire))
    }
}

impl Drop for LateWriter {
    fn drop(&mut self) {
        self.shared.asked.store(OVER, Ordering::Release);
        // A write that failed shows at the other end.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn write_when_asked(shared: &Shared, mut pipe: File, message: &[u8], later: Duration) -> io::Result<()> {
    for round in 1.. {
        loop {
            match shared.asked.load(Ordering::Acquire) {
                OVER => return Ok(()),
                asked if asked >= round => break,
                _ => spin_loop(),
            }
        }
        let asked_at = Instant::now();
        while asked_at.elapsed() < later {
            spin_loop();
        }
        shared.wrote_at.store(shared.since.elapsed().as_nanos() as u64, Ordering::Release);
        pipe.write_all(message)?;
    }
    Ok(())
}
