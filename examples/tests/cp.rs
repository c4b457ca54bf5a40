//! The example `cp` as a user starts it.

mod support;

use std::process::{Command, Output, Stdio};

use support::binary;

fn cp(args: &[&std::path::Path]) -> Output {
    Command::new(binary("cp")).args(args).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_copy_is_byte_exact_whatever_the_length() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    for len in [0, 1, 512 * 1024 - 1, 512 * 1024, 512 * 1024 + 1, 9_000_001, 100] {
        let data: Vec<u8> = (0..len as u64).map(|i| ((i * i) >> 3) as u8).collect();
        std::fs::write(&from, &data).unwrap();
        std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o640)).unwrap();
        let output = cp(&[&from, &to]);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "no terminal, no progress");
        assert!(std::fs::read(&to).unwrap() == data, "{len}");
        assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o640);
    }
    let output = cp(&["/proc/version".as_ref(), &to]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(&to).unwrap(), std::fs::read("/proc/version").unwrap());
}

#[test]
fn what_cannot_be_copied_is_said_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (from, link) = (dir.path().join("from"), dir.path().join("link"));
    std::fs::write(&from, "precious").unwrap();
    std::fs::hard_link(&from, &link).unwrap();
    for args in
        [&[&*from, &*link][..], &[&*from, &*from], &[&*from], &[dir.path(), &*link], &[&*dir.path().join("no"), &*link]]
    {
        let output = cp(args);
        assert!(!output.status.success() && !output.stderr.is_empty(), "{args:?}: {output:?}");
        assert_eq!(std::fs::read(&from).unwrap(), b"precious");
    }
    let output = cp(&[&from, "/dev/full".as_ref()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("28"), "{output:?}");
}

#[test]
fn a_terminal_sees_how_far_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, vec![7; 3 << 20]).unwrap();
    // script(1) gives the program a terminal.
    let line = format!("{} {} {}", binary("cp").display(), from.display(), to.display());
    let Ok(output) = Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output() else {
        eprintln!("skipped: there is no script(1)");
        return;
    };
    let seen = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && seen.contains("\r100 %  3072 of 3072 KiB"), "{output:?}");
    assert!(std::fs::read(&to).unwrap() == vec![7; 3 << 20]);
}
