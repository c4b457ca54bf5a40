//! The example `kv_wal` as a user starts it, and as an accident ends it.

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use support::binary;

/// The store, ended with the test.
struct Store {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    keys: usize,
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Store {
    fn start(log: &Path) -> Self {
        let mut child =
            Command::new(binary("kv_wal")).arg(log).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut store = Self { child, stdin, stdout, keys: 0 };
        store.keys = store.hear().unwrap().strip_suffix(" keys").unwrap().parse().unwrap();
        store
    }

    fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.strip_suffix('\n').map(str::to_owned)
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").unwrap();
        self.hear().unwrap()
    }
}

#[test]
fn the_example_answers_as_its_header_says() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("store.log");
    let mut store = Store::start(&log);
    for (request, expected) in [
        ("set color dark blue", "ok"),
        ("get color", "dark blue"),
        ("get size", "not found"),
        ("set size 7", "ok"),
        ("del color", "ok"),
        ("keys", "1"),
    ] {
        assert_eq!(store.ask(request), expected, "{request}");
    }
    assert!(store.ask("what?").starts_with("error"));
    // Torn in the middle of a record, and with rubbish behind: what was before is there, and the log goes on.
    drop(store);
    let whole = std::fs::read(&log).unwrap();
    for tail in [&b"\x07"[..], &[0; 64], b"\x05\0\0\0\x01\x02\x03\x04hello", &[0xff; 9], &whole[..whole.len() / 4]] {
        std::fs::write(&log, [&whole, tail].concat()).unwrap();
        let mut store = Store::start(&log);
        assert_eq!(store.ask("get size"), "7", "{tail:?}");
        assert_eq!(store.ask("set more x"), "ok");
        drop(store);
        assert_eq!(Store::start(&log).ask("get more"), "x");
    }
}

#[test]
fn what_was_acknowledged_survives_being_killed() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("store.log");
    let mut acknowledged: HashMap<String, String> = HashMap::new();
    for round in 0..12usize {
        let mut store = Store::start(&log);
        assert!(store.keys >= acknowledged.len(), "round {round}");
        for (key, value) in &acknowledged {
            // A later change may have reached the log and its answer not us.
            let found = store.ask(&format!("get {key}"));
            let (found, value): (u64, u64) = (found.parse().unwrap(), value.parse().unwrap());
            assert!(found >= value, "round {round}: {key} is {found}, and {value} was acknowledged");
        }
        // Batches without waiting for answers, and the end in the middle of it.
        let changes: Vec<_> = (0..200).map(|i| (format!("k{}", i % 37), format!("{}", round * 1000 + i))).collect();
        let text: String = changes.iter().map(|(key, value)| format!("set {key} {value}\n")).collect();
        store.stdin.write_all(text.as_bytes()).unwrap();
        let mut heard = changes.iter();
        for _ in 0..round * 16 {
            assert_eq!(store.hear().unwrap(), "ok");
            let (key, value) = heard.next().unwrap();
            acknowledged.insert(key.clone(), value.clone());
        }
        store.child.kill().unwrap();
        store.child.wait().unwrap();
        // What it had said before it was killed counts as well.
        while let Some(answer) = store.hear() {
            assert_eq!(answer, "ok");
            let (key, value) = heard.next().unwrap();
            acknowledged.insert(key.clone(), value.clone());
        }
    }
    assert_eq!(acknowledged.len(), 37);
}
