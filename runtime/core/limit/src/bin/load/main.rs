//! The load generator: the other end of every socket, on a ring of its own.
//!
//! ```text
//! load once    port=P conns=K msg=M n=N          exactly N echoes over K connections, each verified
//! load duel    servers=name:port:pid,… conns=64 msg=64 slice=100 cycles=25
//! load connect servers=name:port:pid,… total=1000 conc=64 msg=64 cycles=25
//! load burst   servers=name:port:pid,… burst=64 rounds=16 cycles=25
//! load hold    servers=name:port:pid,… burst=64 rounds=16 cycles=25
//! load relay   servers=name:port:pid,… msg=65536 mib=256 cycles=9
//! load ping    servers=name:port:pid,… msg=64 n=1000 cycles=9
//! load fetch   servers=name:port:pid,… mib=256 cycles=9
//! ```
//!
//! All but `once` load one server after the other, in short slices whose order rotates (A B C, B C A, …),
//! and print a line `RESULT` for each server and cycle. Machines have slow seconds; servers that are measured a tenth
//! of a second apart share them, so that the ratio within a cycle says more than any of its two figures. The cycle 0 is a
//! warm-up that is not printed.
//!
//! Everything is bounded: the addresses to 127/8, the counts by [`Args::at_most`], a silent server by [`PATIENCE`], and
//! the whole run by `secs`.

mod bulk;
mod clients;
mod dial;
mod duel;
mod once;
mod target;

use std::process::ExitCode;
use std::time::Duration;

use runtime_limit::args::Args;
use runtime_limit::{Result, process};

/// How long a server may be silent while answers are due.
const PATIENCE: Duration = Duration::from_secs(5);
const MOST_CONNECTIONS: usize = 8192;
const MOST_CYCLES: usize = 10_000;

fn main() -> ExitCode {
    runtime_limit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    process::exit_after(args.at_most("secs", 600, 7200)?);
    process::raise_open_files()?;
    match args.command() {
        "once" => once::run(args),
        "duel" => duel::run(args),
        "connect" => dial::connect(args),
        "burst" => dial::burst(args),
        "hold" => dial::hold(args),
        "relay" => bulk::relay(args),
        "ping" => bulk::ping(args),
        "fetch" => bulk::fetch(args),
        _ => Err("usage: load once|duel|connect|burst|hold|relay|ping|fetch key=value…".into()),
    }
}
