//! The rows on files: separate short processes, on files that are made for them and go away with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use benches::driver::{Line, run};
use runtime_limit::Result;
use runtime_limit::args::Args;
use tempfile::TempDir;

use crate::bulk::fill;
use crate::exec::{row_of, row_with};
use crate::table::Column;
use crate::who::{command, free_command, names};

const CACHED: &str = "limit,ours,tokio,monoio,compio,glommio,pread,pool";
const DIRECT: &str = "limit,ours,tokio,monoio,compio,glommio,pool";
const REGISTERED: &str = "monoio,ours-fixed,ours,limit-fixed,limit,compio,glommio";
const VECTORED: &str = "limit,limit-readv,ours,ours-readv";
const STATS: &str = "sys,ours,ring,tokio,monoio,compio";
const OPENERS: &str = "sys,ours,ring,tokio,monoio,compio,glommio";
const WRITERS: &str = "std,ours,tokio,monoio,compio,glommio,fio";
const WALKERS: &str = "std,ours,tokio";

const EACH: [Column; 2] = [
    Column { field: "cpu_ns", title: "cpu ns", factor: 1.0, places: 0, compared: true },
    Column { field: "wall_ns", title: "ns", factor: 1.0, places: 0, compared: true },
];

const MANY: [Column; 2] = [
    Column { field: "wall_ns", title: "µs", factor: 1e-3, places: 1, compared: true },
    Column { field: "cpu_ns", title: "cpu µs", factor: 1e-3, places: 1, compared: true },
];

/// A directory for the files: below `dir=`, or where temporary files go.
fn place(args: &mut Args) -> Result<TempDir> {
    let dir: Option<PathBuf> = args.optional("dir")?;
    Ok(dir.map_or_else(TempDir::new, TempDir::new_in)?)
}

/// Reads of 4 KiB anywhere: through the page cache, past it, and of one buffer by READ and by READV.
pub(crate) fn reads(args: &mut Args) -> Result<()> {
    let who: Option<String> = args.optional("who")?;
    let cycles: usize = args.value("cycles", 7)?;
    let ms: u64 = args.value("ms", 100)?;
    let only: Option<usize> = args.optional("inflight")?;
    let direct: Option<bool> = args.optional("direct")?;
    let mib: usize = args.value("mib", 256)?;
    let dir = place(args)?;
    let data = dir.path().join("data");
    fill(&data, mib)?;
    let rows = [
        ("", 1, false, CACHED),
        ("", 32, false, CACHED),
        ("", 128, false, CACHED),
        (" READV", 1, false, VECTORED),
        (" READV", 32, false, VECTORED),
        ("", 1, true, DIRECT),
        ("", 32, true, DIRECT),
        ("", 128, true, DIRECT),
        (" registered", 128, true, REGISTERED),
    ];
    let wanted = |inflight, past| only.is_none_or(|only| only == inflight) && direct.is_none_or(|only| only == past);
    for (what, inflight, past, default) in rows.into_iter().filter(|row| wanted(row.1, row.2)) {
        println!("reads{what} inflight={inflight} direct={past}: {cycles} cycles of {ms} ms");
        let list = who.as_deref().unwrap_or(default);
        let names: Vec<String> = list.split(',').map(str::to_owned).collect();
        let further = [format!("inflight={inflight}"), format!("direct={past}"), format!("ms={ms}"), path(&data)?];
        row_of(free_command, &names, &[&["reads".to_owned()], &further[..]].concat(), cycles, &EACH)?;
    }
    Ok(())
}

/// Metadata of a cached file by its path; open, metadata, close; open, read 4 KiB, close.
pub(crate) fn meta(args: &mut Args) -> Result<()> {
    let who: Option<String> = args.optional("who")?;
    let cycles: usize = args.value("cycles", 11)?;
    let ms: u64 = args.value("ms", 60)?;
    let only: Option<String> = args.optional("t")?;
    let dir = place(args)?;
    let data = dir.path().join("data");
    fill(&data, 1)?;
    // At depth 1, so that the walk is no part of it.
    for (test, default) in [("stat", STATS), ("open", OPENERS), ("head", OPENERS)] {
        if only.as_ref().is_some_and(|only| only != test) {
            continue;
        }
        println!("meta t={test}: {cycles} cycles of {ms} ms");
        let list = who.as_deref().unwrap_or(default);
        let names: Vec<String> = list.split(',').map(str::to_owned).collect();
        let arguments = ["meta".to_owned(), format!("t={test}"), format!("ms={ms}"), "path=data".to_owned()];
        row_with(&names, cycles, &EACH, |name| run(command(name, &arguments)?.current_dir(dir.path()), "RESULT"))?;
    }
    Ok(())
}

/// 1 MiB after the other and a sync; groups of 100 small writes, each with a sync.
pub(crate) fn writes(args: &mut Args) -> Result<()> {
    let names = names(args, WRITERS)?;
    let cycles: usize = args.value("cycles", 5)?;
    let only: Option<String> = args.optional("t")?;
    let (mib, n): (usize, usize) = (args.value("mib", 64)?, args.value("n", 50)?);
    let dir = place(args)?;
    let data = dir.path().join("data");
    for (test, unit) in [("seq", "1 MiB"), ("group", "100 × 256 B and a sync")] {
        if only.as_ref().is_some_and(|only| only != test) {
            continue;
        }
        // What is written over is there, so that no blocks are searched for.
        fill(&data, mib)?;
        println!("writes t={test} mib={mib} n={n}: {cycles} cycles, for each {unit}");
        let further = [format!("t={test}"), format!("mib={mib}"), format!("n={n}"), path(&data)?];
        let arguments = [&["writes".to_owned()], &further[..]].concat();
        row_with(&names, cycles, &MANY, |name| match name {
            "fio" => fio(&data, test, mib, n),
            _ => run(&mut free_command(name, &arguments)?, "RESULT"),
        })?;
    }
    Ok(())
}

/// The same job by fio, as a line of ours.
fn fio(data: &Path, test: &str, mib: usize, n: usize) -> Result<Vec<Line>> {
    let job: Vec<String> = match test {
        "seq" => vec!["--bs=1M".to_owned(), format!("--size={mib}M"), "--end_fsync=1".to_owned()],
        _ => vec!["--bs=256".to_owned(), format!("--size={}", n * 100 * 256), "--fdatasync=100".to_owned()],
    };
    let mut command = Command::new("fio");
    command.args([
        "--name=job",
        "--rw=write",
        "--ioengine=psync",
        "--overwrite=1",
        "--invalidate=0",
        "--minimal",
        "--terse-version=3",
    ]);
    command.arg(format!("--filename={}", data.display())).args(job);
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{error} (it is the package fio)"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let fields: Vec<&str> = text.trim().split(';').collect();
    // Of version 3: of the writes the time in ms, and of the job the shares of CPU.
    let number = |at: usize| -> Result<f64> {
        let field = fields.get(at).ok_or_else(|| format!("fio says `{}`", text.trim()))?;
        Ok(field.trim_end_matches('%').parse()?)
    };
    let ns = number(49)? * 1e6 / if test == "seq" { mib as f64 } else { n as f64 };
    let cpu_ns = ns * (number(87)? + number(88)?) / 100.0;
    Ok(Line::parse(&format!("RESULT wall_ns={ns} cpu_ns={cpu_ns}"), "RESULT").into_iter().collect())
}

/// A tree of `n` files, walked with the metadata of everything.
pub(crate) fn tree(args: &mut Args) -> Result<()> {
    let names = names(args, WALKERS)?;
    let cycles: usize = args.value("cycles", 5)?;
    let n: usize = args.at_most("n", 100_000, 10_000_000)?;
    let dir = place(args)?;
    for at in 0..n.div_ceil(1000) {
        let below = dir.path().join(at.to_string());
        fs::create_dir(&below)?;
        (0..1000.min(n - at * 1000)).try_for_each(|file| fs::write(below.join(file.to_string()), ""))?;
    }
    println!("tree n={n}: {cycles} cycles, for each entry");
    row_of(free_command, &names, &["tree".to_owned(), path(dir.path())?], cycles, &EACH)
}

fn path(path: &Path) -> Result<String> {
    Ok(format!("path={}", path.to_str().ok_or("the directory has no usual name")?))
}
