//! CPU time of a process, ours or another's, and the wait until that process sleeps.
//!
//! The figure is the process clock, the sum of `se.sum_exec_runtime` over all threads: what
//! `/proc/PID/task/*/schedstat` shows, and in addition what threads have used that ended since. Workers of io-wq are
//! threads of the process too, so what the kernel hands to them is not missed.
//!
//! The kernel brings a thread's sum up to date when it is switched out, so another process is read after it has gone to
//! sleep: [`settle`].

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The clock that counts the CPU time of one process.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// The clock of this process.
    #[must_use]
    pub fn own() -> Self {
        Self(libc::CLOCK_PROCESS_CPUTIME_ID)
    }

    /// The clock of the process `pid`.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of(pid: i32) -> io::Result<Self> {
        let mut id = 0;
        // SAFETY: `id` is a valid place for one clock id.
        match unsafe { libc::clock_getcpuclockid(pid, &raw mut id) } {
            0 => Ok(Self(id)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// CPU time used so far.
    ///
    /// # Errors
    /// The process has ended.
    pub fn read(self) -> io::Result<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for one timespec.
        match unsafe { libc::clock_gettime(self.0, &raw mut time) } {
            0 => Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Waits until every thread of `pid` sleeps, so that its clock stands still and is exact.
///
/// It looks for the first time after `at_least`, which should be longer than a server spins before it parks.
///
/// # Errors
/// The process has ended, or it is still busy a hundred times `at_least` later.
pub fn settle(pid: i32, at_least: Duration) -> io::Result<()> {
    let patience = Instant::now() + at_least * 100;
    loop {
        thread::sleep(at_least);
        if sleeps(pid)? {
            return Ok(());
        }
        if Instant::now() > patience {
            return Err(busy(pid));
        }
    }
}

/// Yields the core until every thread of `pid` sleeps.
///
/// For the middle of a measurement: neither the server nor a core that both share is left idle for longer than the server
/// has made it, so caches stay warm and no core has to be woken.
///
/// # Errors
/// The process has ended, or it is still busy after `patience`.
pub fn give_way(pid: i32, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        thread::yield_now();
        if sleeps(pid)? {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(busy(pid));
        }
    }
}

fn busy(pid: i32) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("process {pid} does not go to sleep"))
}

fn sleeps(pid: i32) -> io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that ended between the two reads uses no CPU any more.
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else { continue };
        if state(&stat) == Some('R') {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The state letter follows the name, which is in parentheses and may itself contain some.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_threads_are_counted() {
        let clock = CpuClock::of(std::process::id() as i32).unwrap();
        let before = clock.read().unwrap();
        let spin_for = Duration::from_millis(20);
        let spin = move || {
            let thread = Instant::now();
            while thread.elapsed() < spin_for {}
            // The kernel's own account of this thread, which is gone when it ends.
            let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
        };
        let in_thread = thread::spawn(spin).join().unwrap();
        assert!(clock.read().unwrap() - before >= in_thread);
        assert!(CpuClock::own().read().unwrap() >= before);
    }

    #[test]
    fn state_is_found_behind_any_name() {
        assert_eq!(state("7 (a) b (c) S 1 7"), Some('S'));
        assert_eq!(state("7 (iou-wrk-7) R 1"), Some('R'));
        assert_eq!(state(""), None);
    }

    #[test]
    fn own_process_does_not_settle() {
        let error = settle(std::process::id() as i32, Duration::from_micros(100)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = give_way(std::process::id() as i32, Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
