//! The driver for times: runs the servers side by side and prints ratios taken within the same tenth of a second.
//!
//! ```text
//! duel echo    [conns=64 msg=64] [slice=100]      CPU per request on open connections
//! duel connect [conc=64]                          CPU per connection with one request
//! duel accept  [burst=64]                         CPU per connection that is accepted and closed
//! duel hold    [burst=64]                         CPU per connection that is accepted and kept
//! duel exec    [t=spawn1] [n=300000]              time per spawn, join and yield
//! duel timer   [out=1000]                         time to arm and drop a timer; how late one of 1 ms is
//! duel pingpong                                   a round trip between two threads
//! duel pass    [size=64] [ms=60]                  write, splice, read between pipes in one thread
//! duel splice  [t=ready|cold|wait] [size=64]      the splice alone; `duel tee` likewise
//! duel relay   [msg=65536] [mib=128]              CPU per GiB through a relay; 64 B there and back through it
//! duel file    [mib=256]                          CPU per GiB of a file that is sent
//! duel reads   [inflight=1] [direct=false]        CPU per read of 4 KiB
//! duel meta    [t=stat|open|head]                 metadata of a path; open, metadata, close; open, read, close
//! duel writes  [t=seq|group]                      time per 1 MiB with a sync at the end, and per group of small ones with one
//! duel tree    [n=100000]                         time per entry of a walk with metadata
//! duel all
//! ```
//!
//! Each takes `cycles=N` (or `--cycles N`) and `who=limit,ours,tokio,…`. Without the keys in brackets it goes through its
//! default rows.

#![forbid(unsafe_code)]

mod bulk;
mod exec;
mod files;
mod net;
mod pipe;
mod table;
mod who;

use std::process::ExitCode;

use runtime_limit::Result;
use runtime_limit::args::Args;

const COMMANDS: [&str; 16] = [
    "echo", "connect", "accept", "hold", "exec", "timer", "pingpong", "pass", "splice", "tee", "relay", "file",
    "reads", "meta", "writes", "tree",
];

fn main() -> ExitCode {
    runtime_limit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    let command = args.command().to_owned();
    match command.as_str() {
        "echo" => net::echo(&mut args)?,
        "connect" => net::connect(&mut args)?,
        "accept" => net::accept(&mut args)?,
        "hold" => net::hold(&mut args)?,
        "exec" => exec::rows(&mut args)?,
        "timer" => exec::timers(&mut args)?,
        "pingpong" => exec::pingpong(&mut args)?,
        "pass" => pipe::pass(&mut args)?,
        "splice" => pipe::splice(&mut args)?,
        "tee" => pipe::tee(&mut args)?,
        "relay" => bulk::relay(&mut args)?,
        "file" => bulk::send_file(&mut args)?,
        "reads" => files::reads(&mut args)?,
        "meta" => files::meta(&mut args)?,
        "writes" => files::writes(&mut args)?,
        "tree" => files::tree(&mut args)?,
        "all" => return all(args),
        _ => {
            return Err(
                "usage: duel echo|connect|accept|hold|exec|timer|pingpong|pass|splice|tee|relay|file|reads|meta|writes|tree|all key=value…"
                    .into(),
            );
        }
    }
    args.finish()
}

/// Every default row; `cycles=` holds for all of them.
fn all(mut args: Args) -> Result<()> {
    let cycles = args.optional::<usize>("cycles")?;
    args.finish()?;
    for command in COMMANDS {
        let cycles = cycles.map(|cycles| format!("cycles={cycles}"));
        run(Args::parse([Some(command.to_owned()), cycles].into_iter().flatten()))?;
    }
    Ok(())
}
