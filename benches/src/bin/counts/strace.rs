//! System calls per request, if `strace` is installed.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use benches::driver::Line;
use runtime_limit::Result;

/// Calls that are made less often than this are start-up noise.
const SELDOM: f64 = 0.005;

/// What `n` more requests add, per request and system call; `None` without strace.
pub(crate) fn calls(n: u64, serve: impl Fn(&mut Command, u64) -> Result<Line>) -> Result<Option<Vec<(String, f64)>>> {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return Ok(None);
    }
    let (once, twice) = (trace(|strace| serve(strace, n))?, trace(|strace| serve(strace, 2 * n))?);
    let per = twice.into_iter().map(|(call, count)| {
        let before = once.get(&call).copied().unwrap_or(0);
        (call, (count as f64 - before as f64) / n as f64)
    });
    Ok(Some(per.filter(|(_, per)| *per > SELDOM).collect()))
}

fn trace(serve: impl FnOnce(&mut Command) -> Result<Line>) -> Result<BTreeMap<String, u64>> {
    let out = std::env::temp_dir().join(format!("counts-{}.strace", std::process::id()));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-o"]).arg(&out);
    let served = serve(&mut strace).map_err(|error| format!("under strace: {error}"));
    let table = fs::read_to_string(&out);
    let _ = fs::remove_file(&out);
    served?;
    Ok(read(&table?))
}

/// Columns: share, seconds, µs per call, calls, errors (may be empty), name.
fn read(table: &str) -> BTreeMap<String, u64> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (calls, name) = (fields.get(3)?.parse().ok()?, *fields.last()?);
        (name != "total").then(|| (name.to_owned(), calls))
    };
    table.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_with_and_without_errors() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     90.00    0.000900           9       100         3 io_uring_enter\n\
                     10.00    0.000100           1        20           write\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    0.001000           8       120         3 total\n";
        let rows = read(table);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows["io_uring_enter"], rows["write"]), (100, 20));
    }
}
