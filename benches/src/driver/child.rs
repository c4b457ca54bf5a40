//! A program that we have started: it is ended by us at the latest when its handle is dropped.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::path::PathBuf;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use runtime_limit::Result;

use super::Line;

const TO_START: Duration = Duration::from_secs(30);
const TO_END: Duration = Duration::from_secs(30);

/// A server, from its line `READY` on.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    lines: Receiver<String>,
    port: u16,
}

/// A program that was built beside this one.
///
/// # Errors
/// It was not built.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(format!("{name} is not there: cargo build --profile measured -p runtime-limit -p benches").into())
    }
}

/// Runs on one core, if there is such a core and `taskset`; otherwise wherever the kernel likes.
pub fn run_pinned(core: usize, program: &Path) -> Command {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| {
        let taskset = Command::new("taskset").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if taskset.is_ok() { thread::available_parallelism().map_or(1, usize::from) } else { 0 }
    });
    if core >= cores {
        return Command::new(program);
    }
    // It executes the program in its own place, so the process id is that of the program.
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program);
    command
}

/// Runs a program to its end and returns the lines that start with `word`.
///
/// # Errors
/// It cannot be run or it fails; then the text is what it said.
pub fn run(command: &mut Command, word: &str) -> Result<Vec<Line>> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{:?}: {}; {}", command.get_program(), output.status, said.trim()).into());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().filter_map(|line| Line::parse(line, word)).collect())
}

/// Starts a server and waits until it listens.
///
/// # Errors
/// It cannot be started, or ends or says nothing before it listens.
pub fn start(command: &mut Command) -> Result<Child> {
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = process.stdout.take().ok_or("the standard output is a pipe")?;
    let (sender, lines) = channel();
    // Ends with the pipe.
    thread::spawn(move || {
        BufReader::new(output).lines().map_while(std::io::Result::ok).try_for_each(|line| sender.send(line))
    });
    let mut child = Child { process, lines, port: 0 };
    let ready = child.line("READY", TO_START)?.ok_or("the server ended before it listened")?;
    child.port = ready.text("port")?.parse()?;
    Ok(child)
}

/// Takes a server over that says nothing, once it listens on `port`.
///
/// # Errors
/// It cannot be started, or does not listen in time.
pub fn start_silent(command: &mut Command, port: u16) -> Result<Child> {
    let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let mut child = Child { process, lines: channel().1, port };
    let deadline = Instant::now() + TO_START;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if child.process.try_wait()?.is_some() || Instant::now() > deadline {
            return Err("the server does not listen".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}

impl Child {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits for the orderly end of a server that knew how much there was to do, and returns its line `COUNTS`.
    ///
    /// # Errors
    /// It does not end, or fails, or does not count.
    pub fn finish(mut self) -> Result<Line> {
        let counts = self.line("COUNTS", TO_END)?.ok_or("the server ended without counts")?;
        let status = self.wait()?;
        if status.success() { Ok(counts) } else { Err(format!("the server ended with {status}").into()) }
    }

    fn line(&mut self, word: &str, patience: Duration) -> Result<Option<Line>> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(line) = Line::parse(&line, word) {
                        return Ok(Some(line));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => return Err(format!("no {word} within {patience:?}").into()),
            }
        }
    }

    fn wait(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + TO_END;
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(format!("the server does not end within {TO_END:?}").into());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only if it has ended and been waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
