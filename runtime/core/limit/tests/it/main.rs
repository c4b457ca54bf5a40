//! The measuring equipment measured: servers and load against each other, as the driver runs them.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

struct Server {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl Server {
    fn start(arguments: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_limit"));
        let mut child = command.args(arguments.split(' ')).arg("secs=60").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.next().unwrap().unwrap();
        let port = ready.strip_prefix("READY port=").unwrap().parse().unwrap();
        Self { child, lines, port }
    }

    fn target(&self, name: &str) -> String {
        format!("{name}:{}:{}", self.port, self.child.id())
    }

    /// The server's counts after its orderly end.
    fn finish(mut self) -> String {
        let counts = self.lines.next().unwrap().unwrap();
        assert!(self.child.wait().unwrap().success());
        counts
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(arguments: &str) -> std::result::Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_load"));
    let output = command.args(arguments.split(' ')).arg("secs=60").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn exactly_the_requests_asked_for_are_echoed() {
    for (conns, msg, n) in [(1, 64, 10), (64, 64, 1000), (7, 1, 5)] {
        let server = Server::start(&format!("echo requests={n}"));
        let result = load(&format!("once port={} conns={conns} msg={msg} n={n}", server.port)).unwrap();
        assert!(result.starts_with(&format!("RESULT echoed={n} ")), "{result}");
        assert!(server.finish().starts_with(&format!("COUNTS requests={n} enters=")));
    }
}

#[test]
fn messages_above_the_buffer_come_back_whole() {
    let server = Server::start("echo buf=1000");
    load(&format!("once port={} conns=3 msg=100000 n=20", server.port)).unwrap();
}

#[test]
fn every_server_has_a_result_per_cycle() {
    let (first, second) = (Server::start("echo"), Server::start("echo"));
    let servers = [first.target("first"), second.target("second")].join(",");
    for mode in ["duel conns=4 slice=5", "connect total=50 conc=8"] {
        let result = load(&format!("{mode} servers={servers} cycles=3")).unwrap();
        let of = |name: &str| result.lines().filter(|line| line.starts_with(&format!("RESULT server={name} "))).count();
        assert_eq!((of("first"), of("second")), (3, 3), "{result}");
    }
}

#[test]
fn bursts_are_accepted_and_closed_in_both_modes() {
    for mode in ["multi", "single"] {
        // A warm-up and a cycle of 2 × 32, and one that lets the server end.
        let server = Server::start(&format!("accept mode={mode} conns=129"));
        load(&format!("burst servers={} burst=32 rounds=2 cycles=1", server.target(mode))).unwrap();
        let mut last = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        assert_eq!(last.read(&mut [0]).unwrap(), 0);
        assert!(server.finish().starts_with("COUNTS accepted=129 enters="));
    }
}

#[test]
fn held_connections_stay_open_until_the_next_one_after_them() {
    for mode in ["multi", "single"] {
        // A warm-up and a cycle of 2 × 32 and one each, and one that lets the server end.
        let server = Server::start(&format!("accept mode={mode} hold=64 conns=131"));
        let result = load(&format!("hold servers={} burst=32 rounds=2 cycles=1", server.target(mode))).unwrap();
        assert!(result.starts_with(&format!("RESULT server={mode} cycle=1 connections=64 ")), "{result}");
        let mut last = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        assert_eq!(last.read(&mut [0]).unwrap(), 0);
        let counts = server.finish();
        assert!(counts.starts_with("COUNTS accepted=131 "), "{counts}");
        let (_, accepting) = counts.rsplit_once("accepting=").unwrap();
        let accepting: u64 = accepting.parse().unwrap();
        // One for each connection when it is armed for each; multishot takes what is there, and never more than that.
        let expected = if mode == "single" { 128..=128 } else { 1..=128 };
        assert!(expected.contains(&accepting), "{counts}");
    }
}

#[test]
fn a_server_that_keeps_more_than_the_load_makes_is_found_out() {
    let server = Server::start("accept hold=65");
    let error = load(&format!("hold servers={} burst=32 rounds=2 cycles=1", server.target("slow"))).unwrap_err();
    assert!(error.starts_with("slow in cycle 0: "), "{error}");
}

#[test]
fn a_server_that_changes_bytes_is_found_out() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let liar = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 64];
        stream.read_exact(&mut bytes).unwrap();
        bytes.reverse();
        stream.write_all(&bytes).unwrap();
    });
    let error = load(&format!("once port={port} conns=1 n=1")).unwrap_err();
    assert!(error.contains("not what was sent"), "{error}");
    liar.join().unwrap();
}

#[test]
fn both_relays_pass_everything_on_in_order() {
    for via in ["splice", "copy"] {
        let server = Server::start(&format!("relay via={via}"));
        // The cycle that warms up compares every byte.
        for mode in ["relay msg=100001 mib=3", "ping msg=100 n=20"] {
            let result = load(&format!("{mode} servers={} cycles=1", server.target(via))).unwrap();
            assert!(result.starts_with(&format!("RESULT server={via} cycle=1 ")), "{result}");
        }
    }
}

#[test]
fn a_file_is_sent_as_a_whole() {
    let path = scratch("sent", 2 << 20);
    let server = Server::start(&format!("file path={}", path.display()));
    let result = load(&format!("fetch mib=2 servers={} cycles=1", server.target("file"))).unwrap();
    assert!(result.contains(" bytes=2097152 "), "{result}");
    let error = load(&format!("fetch mib=3 servers={} cycles=1", server.target("file"))).unwrap_err();
    assert!(error.contains("1048576 bytes are missing"), "{error}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn pipes_and_files_are_measured_in_every_way() {
    let path = scratch("read", 1 << 20);
    let file = format!("path={}", path.display());
    let mut commands: Vec<String> = Vec::new();
    for via in ["sys", "ring"] {
        commands.push(format!("pass via={via} ms=2"));
        for what in ["splice", "tee"] {
            let tests = ["t=ready ms=2", "t=cold n=2", "t=wait n=3"];
            commands.extend(tests.map(|test| format!("{what} via={via} {test} size=4096")));
        }
        commands.extend(["stat", "open", "head"].map(|test| format!("meta via={via} t={test} {file} ms=2")));
    }
    let ways = ["ring", "fixed", "readv", "sys", "pool"];
    commands.extend(ways.map(|via| format!("reads via={via} inflight=3 {file} ms=2")));
    commands.extend(["seq", "group"].map(|test| format!("writes t={test} mib=1 n=1 {file}")));
    commands.push(format!("tree path={}", env!("CARGO_MANIFEST_DIR")));
    for command in commands {
        let limit = Command::new(env!("CARGO_BIN_EXE_limit")).args(command.split(' ')).arg("secs=60").output().unwrap();
        let said = String::from_utf8(limit.stdout).unwrap();
        let error = String::from_utf8(limit.stderr).unwrap();
        assert!(limit.status.success() && said.starts_with("RESULT test="), "{command}: {said}{error}");
    }
    std::fs::remove_file(path).unwrap();
}

/// A file of this process.
fn scratch(name: &str, len: usize) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("limit-{}-{name}", std::process::id()));
    std::fs::write(&path, vec![7; len]).unwrap();
    path
}

#[test]
fn only_this_machine_is_loaded() {
    let error = load("once addr=192.0.2.1 port=9 n=1").unwrap_err();
    assert!(error.contains("only ever sent to this machine"), "{error}");
}
