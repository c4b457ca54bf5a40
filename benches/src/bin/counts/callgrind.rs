//! One run under callgrind: how many instructions, and how often the C allocator was called.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use benches::driver::Line;
use runtime_limit::Result;

const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"];

/// Runs `serve` with a command that it completes, and returns (instructions, allocations).
pub(crate) fn profile(serve: impl FnOnce(&mut Command) -> Result<Line>) -> Result<(u64, u64)> {
    let out = std::env::temp_dir().join(format!("counts-{}.callgrind", std::process::id()));
    let log = out.with_extension("log");
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind");
    valgrind.arg(format!("--callgrind-out-file={}", out.display())).arg(format!("--log-file={}", log.display()));
    let served = serve(&mut valgrind).map_err(|error| format!("under valgrind: {error}"));
    let profile = fs::read_to_string(&out);
    let _ = fs::remove_file(&out);
    let _ = fs::remove_file(&log);
    served?;
    read(&profile?)
}

fn read(profile: &str) -> Result<(u64, u64)> {
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    let instructions = totals.and_then(|total| total.trim().parse().ok()).ok_or("a profile without totals")?;
    Ok((instructions, allocations(profile)))
}

/// A call is two lines: `cfn=(id) name`, where the name is written only the first time, and `calls=count position`.
fn allocations(profile: &str) -> u64 {
    let mut names = HashMap::new();
    let mut callee = "";
    let mut count = 0;
    for line in profile.lines() {
        let callee_line = line.strip_prefix("cfn=");
        if let Some(function) = callee_line.or_else(|| line.strip_prefix("fn=")) {
            let (id, name) = function.split_once(' ').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            if callee_line.is_some() {
                callee = names.get(id).copied().unwrap_or_default();
            }
        } else if let Some(calls) = line.strip_prefix("calls=")
            && ALLOCATORS.contains(&callee)
        {
            count += calls.split(' ').next().and_then(|calls| calls.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_allocator_are_summed() {
        let profile = "fn=(1) main\ncfn=(2) malloc\ncalls=3 0\n0 30\ncfn=(3) free\ncalls=9 0\n0 9\n\
                       fn=(4) other\ncfn=(2)\ncalls=4 0\n0 40\ntotals: 123\n";
        assert_eq!(read(profile).unwrap(), (123, 7));
        assert!(read("fn=(1) main\n").is_err());
    }
}
