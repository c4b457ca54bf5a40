//! The limit: programs that are nothing but a loop around one ring.
//!
//! ```text
//! limit echo   port=P buf=16384 requests=N secs=600      sends back what it receives; direct=true by direct descriptors
//! limit accept port=P mode=multi|single conns=N secs=600 accepts and closes; with hold=N, N at a time
//! limit relay  port=P via=splice|copy                    moves bytes between pairs of connections
//! limit file   port=P path=FILE                          sends a file to whoever connects and asks
//! limit pass   via=sys|ring size=64 ms=60                write, splice, read between two pipes in one thread
//! limit splice via=sys|ring t=ready|cold|wait size=64    the splice alone; `tee` likewise
//! limit reads  via=ring|fixed|readv|sys|pool path=FILE inflight=1 direct=false    4 KiB anywhere
//! limit meta   via=sys|ring t=stat|open|head path=FILE   metadata; open, metadata, close; open, read, close
//! limit writes t=seq|group path=FILE                     1 MiB one after the other, or 100 small ones, and a sync
//! limit tree   path=DIR                                  a walk with the metadata of everything
//! limit wake   n=20000 core=1                            round trips of two threads by eventfd and by MSG_RING, in turns
//! ```
//!
//! The first four listen on 127.0.0.1, print `READY port=P` once they do (port 0 takes a free one), and end after the given
//! number of requests or connections with a line `COUNTS`, or without one after `secs`. The others print a line `RESULT`.

mod accept;
mod echo;
mod file;
mod files;
mod pipes;
mod relay;
mod wake;

use std::process::ExitCode;

use io_uring::{opcode, squeue, types};
use runtime_limit::args::Args;
use runtime_limit::{Result, process};

const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 8192;

fn main() -> ExitCode {
    runtime_limit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    process::exit_after(args.value("secs", 600)?);
    process::raise_open_files()?;
    match args.command() {
        "echo" => echo::run(args),
        "accept" => accept::run(args),
        "wake" => wake::run(args),
        "pass" => pipes::pass(args),
        "splice" | "tee" => pipes::step(args),
        "relay" => relay::run(args),
        "file" => file::run(args),
        "reads" => files::reads(args),
        "meta" => files::meta(args),
        "writes" => files::writes(args),
        "tree" => files::tree(args),
        _ => Err("usage: limit echo|accept|relay|file|pass|splice|tee|reads|meta|writes|tree|wake key=value…".into()),
    }
}

/// Closes through the ring, with the next enter; nothing is said of it unless it fails.
fn close(fd: u32, user_data: u64) -> squeue::Entry {
    let entry = opcode::Close::new(types::Fd(fd as i32)).build();
    entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(user_data)
}
