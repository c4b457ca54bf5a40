//! The example `shutdown`, run as its header says: clients are served, a signal drains them, and the process ends well.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use support::binary;

const LIMIT: Duration = Duration::from_secs(30);

/// The server; killed when a test fails.
struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    addr: String,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(binary("shutdown"));
        let mut child = command.arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().expect("the example was built");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let addr = line.trim().strip_prefix("listening on ").expect("the address").to_owned();
        Self { child, out, addr }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(&self.addr).expect("the server listens");
        client.set_read_timeout(Some(LIMIT)).expect("a time limit");
        client
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(kill.expect("kill(1)").success());
    }

    /// The rest of what it says, once it has ended well.
    fn end(mut self) -> String {
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its status") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{status}");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("what it said");
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // ended, unless the test failed
        let _ = self.child.wait();
    }
}

fn echo(client: &mut TcpStream, text: &[u8]) {
    client.write_all(text).expect("it reads");
    let mut back = vec![0; text.len()];
    client.read_exact(&mut back).expect("it answers");
    assert_eq!(back, text);
}

#[test]
fn a_signal_drains_the_connections() {
    for signal in ["INT", "TERM"] {
        let server = Server::start();
        let mut clients = [server.connect(), server.connect(), server.connect()];
        for client in &mut clients {
            echo(client, b"one line\n");
        }
        let [gone, ..] = &clients;
        gone.shutdown(std::net::Shutdown::Both).expect("it was open");
        // Sent before the signal, so answered.
        clients[1].write_all(b"the last one\n").expect("it reads");
        server.signal(signal);
        let mut rest = String::new();
        clients[1].read_to_string(&mut rest).expect("an end without a reset");
        assert_eq!(rest, "the last one\n");
        assert_eq!(clients[2].read(&mut [0; 8]).expect("an end without a reset"), 0);
        assert!(server.end().ends_with("all closed\n"));
    }
}

#[test]
fn a_server_without_clients_ends_at_once() {
    let server = Server::start();
    server.signal("TERM");
    assert_eq!(server.end(), "closing 0 connections\nall closed\n");
}

#[test]
fn more_than_one_read_of_what_was_sent_before_the_signal_is_answered() {
    let server = Server::start();
    let mut client = server.connect();
    echo(&mut client, b"one line\n");
    server.signal("STOP");
    let sent: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
    client.write_all(&sent).expect("its socket has room");
    server.signal("INT");
    server.signal("CONT");
    let mut back = Vec::new();
    client.read_to_end(&mut back).expect("an end without a reset");
    assert_eq!(back.len(), sent.len());
    assert!(back == sent);
    assert!(server.end().ends_with("all closed\n"));
}
