//! The rows on pipes: separate short processes, as the executor rows.

use runtime_limit::Result;
use runtime_limit::args::Args;

use crate::exec::row_of;
use crate::table::Column;
use crate::who::{command, free_command, names};

const PASSERS: &str = "sys,ours,tokio,monoio,compio,ring";
const MOVERS: &str = "sys,ours,ours-parks,tokio,monoio,compio,ring";
const TEERS: &str = "sys,ours,ours-parks,tokio,ring";

const READY: [Column; 2] = [
    Column { field: "wall_ns", title: "ns", factor: 1.0, places: 0, compared: true },
    Column { field: "cpu_ns", title: "cpu ns", factor: 1.0, places: 0, compared: true },
];

const ALONE: [Column; 2] = [
    Column { field: "wall_ns", title: "µs", factor: 1e-3, places: 1, compared: true },
    Column { field: "p99_ns", title: "p99 µs", factor: 1e-3, places: 1, compared: false },
];

/// Write, splice and read in one thread.
pub(crate) fn pass(args: &mut Args) -> Result<()> {
    let names = names(args, PASSERS)?;
    let cycles: usize = args.value("cycles", 11)?;
    let ms: u64 = args.value("ms", 60)?;
    for size in sizes(args)? {
        println!("pass size={size}: {cycles} cycles of {ms} ms");
        let arguments = ["pass".to_owned(), format!("size={size}"), format!("ms={ms}")];
        row_of(command, &names, &arguments, cycles, &READY)?;
    }
    Ok(())
}

/// The splice alone.
pub(crate) fn splice(args: &mut Args) -> Result<()> {
    step(args, "splice", MOVERS)?;
    println!(
        "The kernel mailing list, June 2022, pipe to pipe: 119.85 µs by a worker, 29.5 µs tried inside the kernel first.\n"
    );
    Ok(())
}

/// The tee alone.
pub(crate) fn tee(args: &mut Args) -> Result<()> {
    step(args, "tee", TEERS)
}

fn step(args: &mut Args, what: &str, default: &str) -> Result<()> {
    let names = names(args, default)?;
    let cycles: usize = args.value("cycles", 11)?;
    let ms: u64 = args.value("ms", 60)?;
    let only: Option<String> = args.optional("t")?;
    let sizes = sizes(args)?;
    let wanted = |test: &str| only.as_deref().is_none_or(|only| only == test);
    for size in sizes.iter().filter(|_| wanted("ready")) {
        println!("{what} t=ready size={size}: {cycles} cycles of {ms} ms");
        let arguments = [what.to_owned(), "t=ready".to_owned(), format!("size={size}"), format!("ms={ms}")];
        row_of(command, &names, &arguments, cycles, &READY)?;
    }
    // Neither is bound to one core: the kernel's workers may run where they like.
    for further in [&["t=cold", "n=12"][..], &["t=wait", "n=500", "later_us=20"], &["t=wait", "n=500", "later_us=60"]] {
        if !wanted(&further[0]["t=".len()..]) {
            continue;
        }
        println!("{what} {} size=4096: {cycles} cycles", further.join(" "));
        let arguments: Vec<String> = [what, "size=4096"].iter().chain(further).map(ToString::to_string).collect();
        row_of(free_command, &names, &arguments, cycles, &ALONE)?;
    }
    Ok(())
}

fn sizes(args: &mut Args) -> Result<Vec<usize>> {
    Ok(args.optional("size")?.map_or_else(|| vec![64, 4 << 10, 64 << 10], |size| vec![size]))
}
