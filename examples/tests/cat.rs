//! The examples `cat` and `tee` as a user starts them, between pipes, files and nothing.

mod support;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use support::binary;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8)) as u8).collect()
}

/// Runs it with this input, and returns what it wrote.
fn run(name: &str, arguments: &[&str], input: Vec<u8>) -> Vec<u8> {
    let mut command = Command::new(binary(name));
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let feed = std::thread::spawn(move || to.write_all(&input));
    let mut all = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut all).unwrap();
    feed.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    all
}

#[test]
fn cat_passes_on_its_input_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, pattern(300_000)).unwrap();
    assert!(run("cat", &[], pattern(1_000_000)) == pattern(1_000_000));
    let all = run("cat", &[path.to_str().unwrap(), "-", path.to_str().unwrap()], b"between".to_vec());
    assert!(all == [&pattern(300_000), &b"between"[..], &pattern(300_000)].concat());
    // From file to file, and into nothing.
    let (input, output) =
        (std::fs::File::open(&path).unwrap(), std::fs::File::create(dir.path().join("copy")).unwrap());
    assert!(Command::new(binary("cat")).stdin(input).stdout(output).status().unwrap().success());
    assert!(std::fs::read(dir.path().join("copy")).unwrap() == pattern(300_000));
    assert!(
        Command::new(binary("cat")).arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success()
    );
    let missing = Command::new(binary("cat")).arg(dir.path().join("missing")).output().unwrap();
    assert!(!missing.status.success() && String::from_utf8(missing.stderr).unwrap().contains("No such file"));
}

#[test]
fn cat_ends_when_nobody_reads_any_more() {
    let mut child = Command::new(binary("cat")).arg("/dev/zero").stdout(Stdio::piped()).spawn().unwrap();
    let mut some = [1; 1000];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert!(child.wait().unwrap().success() && some == [0; 1000]);
}

#[test]
fn tee_writes_to_both_also_where_they_are_no_pipes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy");
    assert!(run("tee", &[path.to_str().unwrap()], pattern(1_000_000)) == pattern(1_000_000));
    assert!(std::fs::read(&path).unwrap() == pattern(1_000_000));
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    std::fs::write(&source, pattern(700_000)).unwrap();
    let (input, output) = (std::fs::File::open(&source).unwrap(), std::fs::File::create(&target).unwrap());
    let status = Command::new(binary("tee")).arg(&path).stdin(input).stdout(output).status().unwrap();
    assert!(status.success());
    assert!(std::fs::read(&path).unwrap() == pattern(700_000) && std::fs::read(&target).unwrap() == pattern(700_000));
}
