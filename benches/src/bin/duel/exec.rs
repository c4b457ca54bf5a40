//! The executor rows: separate short processes, one after the other, in rotating order.

use std::process::Command;

use benches::driver::{Line, run};
use benches::exec::Test;
use runtime_limit::Result;
use runtime_limit::args::Args;

use crate::table::{self, Column, Sample};
use crate::who::{command, free_command, names};

const EXECUTORS: &str = "async-task,ours,tokio,monoio,compio,glommio";

const COLUMNS: [Column; 1] = [Column { field: "cpu_ns", title: "cpu ns", factor: 1.0, places: 1, compared: true }];

pub(crate) fn rows(args: &mut Args) -> Result<()> {
    let names = names(args, EXECUTORS)?;
    let cycles: usize = args.value("cycles", 9)?;
    let n: u64 = args.value("n", 300_000)?;
    let only: Option<Test> = args.optional("t")?;
    for (name, test) in Test::ALL {
        if only.is_none_or(|only| only == test) {
            println!("exec t={name}: {cycles} cycles of {n}");
            row(&names, &["exec".to_owned(), format!("t={name}"), format!("n={n}")], cycles, &COLUMNS)?;
        }
    }
    Ok(())
}

const SLEEPERS: &str = "ours,tokio,monoio,compio,glommio";

const LATE: [Column; 2] = [
    Column { field: "late_us", title: "late µs", factor: 1.0, places: 1, compared: true },
    Column { field: "late99_us", title: "p99 µs", factor: 1.0, places: 1, compared: false },
];

/// Arming and dropping a timer among many, and how late one of 1 ms is.
pub(crate) fn timers(args: &mut Args) -> Result<()> {
    let names = names(args, SLEEPERS)?;
    let cycles: usize = args.value("cycles", 7)?;
    let only: Option<u64> = args.optional("out")?;
    for outstanding in [100, 1_000, 10_000, 100_000] {
        if only.is_none_or(|only| only == outstanding) {
            println!("timer t=cancel out={outstanding}: {cycles} cycles of 200000");
            let arguments = ["timer", "t=cancel", "n=200000"].map(str::to_owned);
            row(&names, &[&arguments[..], &[format!("out={outstanding}")]].concat(), cycles, &COLUMNS)?;
        }
    }
    println!("timer t=late: {cycles} cycles of 200");
    row(&names, &["timer", "t=late", "n=200"].map(str::to_owned), cycles, &LATE)
}

const TALKERS: &str = "ours,ours-parks,tokio,compio,glommio";

const TRIP: [Column; 2] = [
    Column { field: "trip_us", title: "trip µs", factor: 1.0, places: 2, compared: true },
    Column { field: "trip99_us", title: "p99 µs", factor: 1.0, places: 2, compared: false },
];

/// Round trips between two threads: one after the other, and with a pause in which both fall asleep.
pub(crate) fn pingpong(args: &mut Args) -> Result<()> {
    let names = names(args, TALKERS)?;
    let cycles: usize = args.value("cycles", 7)?;
    for (what, further) in [("one after the other", ["n=20000", "pause_us=0"]), ("asleep", ["n=500", "pause_us=1000"])]
    {
        println!("pingpong, {what}: {cycles} cycles");
        row_of(free_command, &names, &["pingpong", further[0], further[1]].map(str::to_owned), cycles, &TRIP)?;
    }
    Ok(())
}

fn row(names: &[String], arguments: &[String], cycles: usize, columns: &[Column]) -> Result<()> {
    row_of(command, names, arguments, cycles, columns)
}

/// One process after the other, each printing its line `RESULT`.
pub(crate) fn row_of(
    command: fn(&str, &[String]) -> Result<Command>,
    names: &[String],
    arguments: &[String],
    cycles: usize,
    columns: &[Column],
) -> Result<()> {
    row_with(names, cycles, columns, |name| run(&mut command(name, arguments)?, "RESULT"))
}

/// The same of anything that has turns.
pub(crate) fn row_with(
    names: &[String],
    cycles: usize,
    columns: &[Column],
    turn: impl Fn(&str) -> Result<Vec<Line>>,
) -> Result<()> {
    let mut samples: Vec<Sample> = Vec::new();
    for name in names {
        // A round that does not count, and tells who can run at all.
        match turn(name) {
            Ok(_) => samples.push(Sample { name: name.clone(), lines: Vec::new() }),
            Err(error) => println!("  without {name}: {error}"),
        }
    }
    for cycle in 0..cycles {
        for at in 0..samples.len() {
            let which = (at + cycle) % samples.len();
            let sample = &mut samples[which];
            sample.lines.extend(turn(&sample.name)?);
        }
    }
    table::print(&samples, columns)
}
