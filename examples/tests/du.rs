//! The example `du` as a user starts it.

mod support;

use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::binary;

fn du(dir: &Path, args: &[&str]) -> Output {
    Command::new(binary("du")).args(args).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

/// What std says, one after the other.
fn blocks(path: &Path, seen: &mut Vec<u64>) -> u64 {
    let metadata = path.symlink_metadata().unwrap();
    let mut sum = metadata.blocks();
    if !metadata.is_dir() && metadata.nlink() > 1 {
        if seen.contains(&metadata.ino()) {
            return 0;
        }
        seen.push(metadata.ino());
    }
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            sum += blocks(&entry.unwrap().path(), seen);
        }
    }
    sum
}

#[test]
fn the_sum_is_that_of_a_plain_walk() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for i in 0..30 {
        std::fs::create_dir_all(at(&format!("tree/{}/{i}", i % 5))).unwrap();
        for k in 0..40 {
            std::fs::write(at(&format!("tree/{}/{i}/file-{k}", i % 5)), vec![1; i * k * 50]).unwrap();
        }
    }
    std::fs::hard_link(at("tree/4/29/file-39"), at("tree/twin")).unwrap();
    // Out of the tree, and round in circles: never followed.
    std::fs::write(at("outside"), vec![1; 1 << 20]).unwrap();
    symlink("../outside", at("tree/out")).unwrap();
    symlink("..", at("tree/4/up")).unwrap();
    let sparse = std::fs::File::create(at("tree/sparse")).unwrap();
    sparse.write_all_at(b"x", 1 << 32).unwrap();

    let output = du(dir.path(), &["tree", "tree/4/29", "tree/sparse"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().map(|line| line.split_once('\t').unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line.1).collect::<Vec<_>>(), ["tree", "tree/4/29", "tree/sparse"]);
    let expected = blocks(&at("tree"), &mut Vec::new()).div_ceil(2).to_string();
    assert_eq!(lines[0].0, expected);
    assert!(lines[2].0.parse::<u64>().unwrap() < 1000, "a hole takes no room");
}

#[test]
fn what_cannot_be_read_is_said_and_the_rest_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), vec![1; 8192]).unwrap();
    let output = du(dir.path(), &["missing", "file"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("du: missing: "), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("\tfile\n"), "{output:?}");
    // Without arguments it is the directory that it was started in.
    let output = du(dir.path(), &[]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).ends_with("\t.\n"), "{output:?}");
}
