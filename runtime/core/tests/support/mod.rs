//! What integration tests share: processes of their own, bounds, and counts of what a process holds.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    reason = "each test binary uses its own part of this"
)]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs `body` in a process of its own and fails when that fails or takes longer than `limit`.
///
/// `name` is the test's full path as the test harness prints it. The test is started again with an environment
/// variable that says who it is; there `body` runs and the process ends.
pub fn in_child(name: &str, limit: Duration, body: impl FnOnce()) {
    if am_child(name) {
        body();
        return;
    }
    let output = run_child(name, limit, &[]);
    assert!(output.success, "the child process of {name} failed:\n{}", output.text);
}

/// Whether this process is the child that runs `name`.
pub fn am_child(name: &str) -> bool {
    std::env::var("RUNTIME_TEST_CHILD").is_ok_and(|child| child == name)
}

/// How a child ended and what it printed on both streams.
#[derive(Debug)]
pub struct ChildOutput {
    pub success: bool,
    pub status: std::process::ExitStatus,
    pub text: String,
}

/// Starts this test binary again for the test `name`, with more environment, and waits for its end.
pub fn run_child(name: &str, limit: Duration, env: &[(&str, &str)]) -> ChildOutput {
    // Not by its path: a build may have replaced the file meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env("RUNTIME_TEST_CHILD", name).envs(env.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let readers = [
        std::thread::spawn(move || std::io::read_to_string(out).unwrap_or_default()),
        std::thread::spawn(move || std::io::read_to_string(err).unwrap_or_default()),
    ];
    let deadline = Instant::now() + scaled(limit);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            let _ = child.wait();
            let text: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
            panic!("the child process of {name} did not end within {limit:?}:\n{}", text.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    ChildOutput { success: status.success(), status, text: text.join("\n") }
}

/// Time limits are for idle hardware; emulated kernels get ten times as much.
pub fn scaled(limit: Duration) -> Duration {
    if std::env::var_os("RUNTIME_EMULATED").is_some() { limit * 10 } else { limit }
}

/// Ends the process when the guard lives longer than `limit`: a hang is a failure.
#[must_use]
pub fn watchdog(limit: Duration) -> Watchdog {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    std::thread::spawn(move || {
        if wait.recv_timeout(scaled(limit)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs: not done within {limit:?}");
            std::process::abort();
        }
    });
    Watchdog { _done: done }
}

pub struct Watchdog {
    _done: std::sync::mpsc::Sender<()>,
}

/// Open descriptors of this process (without the one that reads the list).
pub fn fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Threads of this process, the kernel's workers included.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// CPU time of this process so far, all threads.
pub fn cpu() -> Duration {
    let total = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(total.sum())
}

/// Waits up to a second until `condition` holds; closes and worker exits may be late.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + scaled(Duration::from_secs(1));
    while !condition() {
        assert!(Instant::now() < deadline, "not within a second: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Random numbers that are the same in every run.
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
