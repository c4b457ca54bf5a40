//! The gate on counts: what one echo costs in instructions, allocations and system calls.
//!
//! ```text
//! cargo build --profile measured -p runtime-limit -p benches --bin load --bin ours --bin counts
//! counts [who=ours,ours-pooled] [n=4000] [limit64=1150] [limit1=850] [enters=0.12] [allocations=0]
//! counts who=limit,ours,tokio,monoio,compio,glommio
//! ```
//!
//! Times on a shared machine move by a third; these do not move, so they can stop a change that times would let pass.
//! Those of valgrind and strace are taken twice, with N and with 2 N requests, and the difference is divided by N:
//! start-up, connecting and shut-down cancel out.
//!
//! * Instructions and allocations come from callgrind: user space only, calls of the C allocator's functions.
//! * Enters and polls come from the server's own counters, without valgrind, in one run that is long enough for start-up
//!   not to show. They depend on how much the kernel has ready at a time, and a difference of two runs would mostly be
//!   the difference in that.
//! * System calls come from `strace -c`, if it is installed, and are only printed: a traced server is slow, finds more
//!   ready each time, and makes fewer calls than it would.
//!
//! It starts what was built beside it, and builds nothing: the command above first. The limits hold in the profile
//! `measured`. It fails (status 1) if `ours`, or `ours-pooled` (which uses `recv`), is above a limit.

#![forbid(unsafe_code)]

mod callgrind;
mod strace;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use benches::driver::{Line, program, run, run_pinned, start};
use runtime_limit::Result;
use runtime_limit::args::Args;

const SUBJECT: &str = "ours";
const POOLED: &str = "ours-pooled";
/// Instructions per request that a pooled echo may take. With many connections what is ready at a time, and so the number
/// of polls, varies.
const POOLED_LIMITS: [f64; 2] = [1100.0, 850.0];
const SERVER_CORE: usize = 0;
const LOAD_CORE: usize = 1;
/// The connection counts that there are limits for.
const CONNECTIONS: [usize; 2] = [64, 1];
/// Without valgrind there is time for more requests, which evens batches out.
const NATIVE_FACTOR: u64 = 50;

/// A request is a receive and a send, so it takes at most two polls; the rest is for start-up.
const POLLS: f64 = 2.05;
/// With one connection there is nothing to share an enter with, and nothing that could need a second one.
const ALONE_ENTERS: f64 = 1.05;
/// The send that does not go through the ring. Only strace sees it; nothing comes in batches here that tracing could
/// make larger.
const ALONE_OTHER_CALLS: f64 = 1.05;

struct Limits {
    instructions: [f64; 2],
    /// With more than one connection.
    enters: f64,
    allocations: f64,
}

fn main() -> ExitCode {
    runtime_limit::main(|_| body(Args::without_command(std::env::args().skip(1))))
}

fn body(mut args: Args) -> Result<()> {
    let who = args.value("who", format!("{SUBJECT},{POOLED}"))?;
    let n: u64 = args.at_most("n", 4000, 1_000_000)?.max(1);
    let limits = Limits {
        instructions: [args.value("limit64", 1150.0)?, args.value("limit1", 850.0)?],
        enters: args.value("enters", 0.12)?,
        allocations: args.value("allocations", 0.0)?,
    };
    args.finish()?;
    let mut broken = Vec::new();
    for name in who.split(',') {
        let program = server(name)?;
        let instructions = if name == POOLED { POOLED_LIMITS } else { limits.instructions };
        for (conns, limit) in CONNECTIONS.into_iter().zip(instructions) {
            let counted = count(&program, conns, n)?;
            counted.print(name, conns);
            if matches!(name, SUBJECT | POOLED) {
                counted.check(conns, limit, &limits, &mut broken);
            }
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n").into()) }
}

/// A program, and what it is told beside the usual.
struct Server {
    program: PathBuf,
    argument: Option<&'static str>,
}

fn server(name: &str) -> Result<Server> {
    let (program, argument) = match name {
        "ours" | "limit" => (program(name)?, None),
        POOLED => (program(SUBJECT)?, Some("pooled=true")),
        peer => (program(&format!("peer-{peer}"))?, None),
    };
    Ok(Server { program, argument })
}

/// Per request.
struct Counted {
    instructions: f64,
    allocations: f64,
    /// The server's own counters, by name.
    own: Vec<(&'static str, f64)>,
    calls: Option<Vec<(String, f64)>>,
}

fn count(server: &Server, conns: usize, n: u64) -> Result<Counted> {
    let Server { program, argument } = server;
    let serve = |command: &mut Command, conns, n| serve(command, *argument, conns, n);
    let profile = difference(n, |n| callgrind::profile(|valgrind| serve(valgrind.arg(program), conns, n)))?;
    let native = n * NATIVE_FACTOR;
    let counts = serve(&mut run_pinned(SERVER_CORE, program), conns, native)?;
    let counters = ["enters", "submissions", "completions", "polls"];
    let own = counters.into_iter().filter_map(|counter| Some((counter, counts.number(counter).ok()? / native as f64)));
    Ok(Counted {
        instructions: profile.0,
        allocations: profile.1,
        own: own.collect(),
        calls: strace::calls(n, |strace, n| serve(strace.arg(program), conns, n))?,
    })
}

/// What N more requests add, per request.
fn difference(n: u64, mut count: impl FnMut(u64) -> Result<(u64, u64)>) -> Result<(f64, f64)> {
    let (once, twice) = (count(n)?, count(2 * n)?);
    let per = |once: u64, twice: u64| (twice as f64 - once as f64) / n as f64;
    Ok((per(once.0, twice.0), per(once.1, twice.1)))
}

/// Runs an echo server for `n` verified requests; what it has counted.
fn serve(command: &mut Command, argument: Option<&str>, conns: usize, n: u64) -> Result<Line> {
    command.args(["echo", "secs=300"]).arg(format!("requests={n}")).args(argument);
    if command.get_args().chain([command.get_program()]).any(|arg| Path::new(arg).ends_with("ours")) {
        // A spin lasts as long as the answer takes, which is no count.
        command.arg("spin=off");
    }
    let server = start(command)?;
    let mut load = run_pinned(LOAD_CORE, &program("load")?);
    load.args(["once", "secs=300"]);
    load.arg(format!("port={}", server.port())).arg(format!("conns={conns}")).arg(format!("n={n}"));
    run(&mut load, "RESULT")?;
    server.finish()
}

impl Counted {
    fn print(&self, name: &str, conns: usize) {
        print!("{name:<12} conns={conns:<3} instructions {:.0} allocations {:.2}", self.instructions, self.allocations);
        for (counter, per) in &self.own {
            print!(" {counter} {per:.3}");
        }
        println!();
        for (call, per) in self.calls.iter().flatten() {
            println!("         strace: {per:.3} {call}");
        }
    }

    fn check(&self, conns: usize, instructions: f64, limits: &Limits, broken: &mut Vec<String>) {
        let mut check = |what: &str, found: f64, limit: f64| {
            if found > limit {
                broken.push(format!("{what} per request at {conns} connections: {found:.3}, the limit is {limit}"));
            }
        };
        check("instructions", self.instructions, instructions);
        // The odd one, of a table that grows, is not one per request.
        check("allocations", (self.allocations * 100.0).round() / 100.0, limits.allocations);
        check("polls", self.own("polls"), POLLS);
        if conns > 1 {
            return check("enters", self.own("enters"), limits.enters);
        }
        check("enters", self.own("enters"), ALONE_ENTERS);
        let other = |(call, per): &(String, f64)| if call == "io_uring_enter" { 0.0 } else { *per };
        if let Some(calls) = &self.calls {
            check("calls other than enter", calls.iter().map(other).sum(), ALONE_OTHER_CALLS);
        }
    }

    /// A counter that is missing is above every limit.
    fn own(&self, counter: &str) -> f64 {
        self.own.iter().find(|(name, _)| *name == counter).map_or(f64::INFINITY, |(_, per)| *per)
    }
}
