//! The executor rows: separate short processes, one after the other, in rotating order.

use benches::driver::run;
use benches::exec::Test;
use runtime_limit::Result;
use runtime_limit::args::Args;

use crate::table::{self, Column, Sample};
use crate::who::{command, names};

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
            row(&names, &["exec".to_owned(), format!("t={name}"), format!("n={n}")], cycles)?;
        }
    }
    Ok(())
}

fn row(names: &[String], arguments: &[String], cycles: usize) -> Result<()> {
    let mut samples: Vec<Sample> = Vec::new();
    for name in names {
        // A round that does not count, and tells who can run at all.
        match command(name, arguments).and_then(|mut command| run(&mut command, "RESULT")) {
            Ok(_) => samples.push(Sample { name: name.clone(), lines: Vec::new() }),
            Err(error) => println!("  without {name}: {error}"),
        }
    }
    for cycle in 0..cycles {
        for turn in 0..samples.len() {
            let which = (turn + cycle) % samples.len();
            let sample = &mut samples[which];
            sample.lines.extend(run(&mut command(&sample.name, arguments)?, "RESULT")?);
        }
    }
    table::print(&samples, &COLUMNS)
}
