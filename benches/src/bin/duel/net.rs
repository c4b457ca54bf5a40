//! The rows on sockets: all servers are up and asleep, and the load wakes one after the other.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};

use benches::driver::{Line, program, run, run_pinned};
use runtime_limit::Result;
use runtime_limit::args::Args;

use crate::table::{self, Column};
use crate::who::{SERVER_CORE, Server, list, names, start_all};

/// The load has a core of its own, unless a row says otherwise.
const LOAD_CORE: usize = 1;
const SERVERS: &str = "limit,ours,tokio,monoio,compio,glommio";
const ACCEPTORS: &str = "single,multi,ours,tokio,monoio,compio,glommio";

/// Connections of a slice of `accept` and `hold`, in whole bursts.
const EACH: usize = 2048;

const COLUMNS: [Column; 6] = [
    Column { field: "cpu_ns", title: "cpu µs", factor: 1e-3, places: 2, compared: true },
    Column { field: "both_ns", title: "with load µs", factor: 1e-3, places: 2, compared: true },
    // Those of `hold` end here.
    Column { field: "rate", title: "1/s", factor: 1.0, places: 0, compared: false },
    Column { field: "p50_us", title: "p50 µs", factor: 1.0, places: 0, compared: false },
    Column { field: "p99_us", title: "p99 µs", factor: 1.0, places: 0, compared: false },
    Column { field: "batch", title: "batch", factor: 1.0, places: 1, compared: false },
];

/// `conns` connections that echo `msg` bytes each, again and again.
pub(crate) fn echo(args: &mut Args) -> Result<()> {
    let names = names(args, SERVERS)?;
    let cycles: usize = args.value("cycles", 25)?;
    let slice: u32 = args.value("slice", 100)?;
    let core = args.value("load_core", LOAD_CORE)?;
    let rows = match (args.optional("conns")?, args.optional("msg")?) {
        (None, None) => vec![(1, 64), (64, 64), (512, 64), (64, 16 << 10)],
        (conns, msg) => vec![(conns.unwrap_or(64), msg.unwrap_or(64))],
    };
    for (conns, msg) in rows {
        println!("echo conns={conns} msg={msg}: {cycles} cycles of {slice} ms");
        let servers = start_all(&names, &["echo".to_owned()]);
        load(&servers, core, &format!("duel conns={conns} msg={msg} slice={slice} cycles={cycles}"), &COLUMNS)?;
    }
    Ok(())
}

/// Connections that carry one request: accept, read, write, close.
pub(crate) fn connect(args: &mut Args) -> Result<()> {
    let names = names(args, SERVERS)?;
    let cycles: usize = args.value("cycles", 25)?;
    let core = args.value("load_core", LOAD_CORE)?;
    let rows = args.optional("conc")?.map_or_else(|| vec![64, 512], |conc: usize| vec![conc]);
    for conc in rows {
        println!("connect conc={conc}: {cycles} cycles of 1000 connections, one 64 B request each");
        let servers = start_all(&names, &["echo".to_owned()]);
        load(&servers, core, &format!("connect total=1000 conc={conc} msg=64 cycles={cycles}"), &COLUMNS)?;
    }
    Ok(())
}

/// Bursts of connections that the server closes at once.
///
/// Opening a connection costs the load more than accepting it costs the server, so on a core of its own the server
/// keeps up and seldom sees a burst. On the same core the burst is complete before the server runs, since neither
/// preempts the other: both are printed.
pub(crate) fn accept(args: &mut Args) -> Result<()> {
    for_bursts(args, |names, core, burst, cycles| {
        let rounds = EACH.div_ceil(burst);
        let each = burst * rounds;
        println!("accept burst={burst}, load on core {core}: {cycles} cycles of {each} connections");
        // One more is the driver's, which lets the server end after the load has read its clock.
        let total = (cycles + 1) * each + 1;
        let servers = start_all(names, &["accept".to_owned(), format!("conns={total}")]);
        load(&servers, core, &format!("burst burst={burst} rounds={rounds} cycles={cycles}"), &COLUMNS)?;
        servers.into_iter().try_for_each(|server| print_enters(server, "enters", total as f64))
    })
}

/// Bursts of connections that the server keeps until the slice is accounted for: accepting alone.
///
/// Nothing tells the load when a connection has been accepted, so there is neither rate nor latency. What the kernel does
/// for a hand-shake it does in the load's calls, on either core; so the server's own CPU is the figure to read.
pub(crate) fn hold(args: &mut Args) -> Result<()> {
    for_bursts(args, |names, core, burst, cycles| {
        let rounds = EACH.div_ceil(burst);
        let each = burst * rounds;
        println!("hold burst={burst}, load on core {core}: {cycles} cycles of {each} connections");
        // One more for each slice says that it is over, and one is the driver's as above.
        let total = (cycles + 1) * (each + 1) + 1;
        let arguments = ["accept".to_owned(), format!("hold={each}"), format!("conns={total}")];
        let servers = start_all(names, &arguments);
        load(&servers, core, &format!("hold burst={burst} rounds={rounds} cycles={cycles}"), &COLUMNS[..2])?;
        let held = ((cycles + 1) * each) as f64;
        servers.into_iter().try_for_each(|server| print_enters(server, "accepting", held))
    })
}

/// Takes the keys and goes through the rows: both places of the load, and all bursts.
fn for_bursts(args: &mut Args, row: impl Fn(&[String], usize, usize, usize) -> Result<()>) -> Result<()> {
    let names = names(args, ACCEPTORS)?;
    let cycles: usize = args.value("cycles", 25)?;
    let bursts = args.optional("burst")?.map_or_else(|| vec![64, 512], |burst: usize| vec![burst.clamp(1, EACH)]);
    for core in [SERVER_CORE, LOAD_CORE] {
        for &burst in &bursts {
            row(&names, core, burst, cycles)?;
        }
    }
    Ok(())
}

pub(crate) fn load(servers: &[Server], core: usize, arguments: &str, columns: &[Column]) -> Result<()> {
    let mut command = run_pinned(core, &program("load")?);
    command.args(arguments.split(' ')).arg(format!("servers={}", list(servers))).arg("secs=3600");
    let lines = run(&mut command, "RESULT")?;
    let samples = table::by_server(servers.iter().map(|server| server.name.as_str()), &lines);
    table::print(&samples, columns)
}

/// Lets the server end, and prints what it has counted in `field`.
fn print_enters(server: Server, field: &str, connections: f64) -> Result<()> {
    let mut last = TcpStream::connect((Ipv4Addr::LOCALHOST, server.child.port()))?;
    let _closed_by_server = last.read(&mut [0]);
    let counts: Line = server.child.finish().map_err(|error| format!("{}: {error}", server.name))?;
    if let Ok(enters) = counts.number(field) {
        println!("  {:<13} {:.4} enters per connection", server.name, enters / connections);
    }
    Ok(())
}
