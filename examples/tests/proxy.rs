//! The examples `proxy` and `send_file` as a user starts them, with plain std at the other ends.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use support::binary;

/// The program, ended with the test.
struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
    addr: String,
}

impl Program {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(binary(name)).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let addr = line(&mut said).strip_prefix("listening on ").expect("it says where it listens").to_owned();
        Self { child, said, addr }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8)) as u8).collect()
}

#[test]
fn the_proxy_passes_both_directions_on_in_each_mode() {
    for mode in [None, Some("--copy"), Some("--splice")] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap().to_string();
        let mut arguments = vec!["127.0.0.1:0", &to];
        arguments.extend(mode);
        let mut proxy = Program::start("proxy", &arguments);
        let mut client = proxy.connect();
        let mut served = server.accept().unwrap().0;
        let server = std::thread::spawn(move || {
            let mut all = Vec::new();
            served.read_to_end(&mut all).unwrap();
            served.write_all(b"thanks").unwrap();
            all
        });
        client.write_all(&pattern(2_000_000)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "thanks");
        assert!(server.join().unwrap() == pattern(2_000_000), "{mode:?}");
        assert_eq!(line(&mut proxy.said), "2000000 bytes there, 6 back");
    }
}

#[test]
fn each_client_gets_the_file() {
    let path = std::env::temp_dir().join(format!("runtime-send-file-{}", std::process::id()));
    std::fs::write(&path, pattern(1_000_123)).unwrap();
    let mut program = Program::start("send_file", &[path.to_str().unwrap(), "127.0.0.1:0"]);
    let clients = [program.connect(), program.connect(), program.connect()];
    for mut client in clients {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert!(all == pattern(1_000_123));
    }
    assert_eq!(line(&mut program.said), "1000123 bytes");
    std::fs::remove_file(path).unwrap();
}
