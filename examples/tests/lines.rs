//! The example `lines` as a user starts it, with plain std at the other end.

mod support;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::binary;

/// The server, ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start() -> (Server, String) {
    let mut child = Command::new(binary("lines")).arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let addr = line.trim().strip_prefix("listening on ").expect("the server says where it listens").to_owned();
    (Server(child), addr)
}

fn connect(addr: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    BufReader::new(stream)
}

fn say(stream: &mut BufReader<TcpStream>, text: &str) {
    stream.get_mut().write_all(text.as_bytes()).unwrap();
}

fn hear(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn the_example_answers_as_its_header_says() {
    let (_server, addr) = start();
    let (mut one, mut other) = (connect(&addr), connect(&addr));
    for (request, expected) in [
        ("set color dark blue", "ok"),
        ("get color", "dark blue"),
        ("get size", "not found"),
        ("del color", "ok"),
        ("del color", "not found"),
    ] {
        say(&mut one, &format!("{request}\n"));
        assert_eq!(hear(&mut one), expected, "{request}");
    }
    // Byte by byte, with the other kind of ending, seen by the other connection; then a batch at once.
    for byte in "set a 1\r\n".chars() {
        say(&mut other, &byte.to_string());
    }
    assert_eq!(hear(&mut other), "ok");
    say(&mut one, "get a\nwhat?\nget a\r\nquit\nget a\n");
    assert_eq!([hear(&mut one), hear(&mut one)[..5].to_owned(), hear(&mut one)], ["1", "error", "1"]);
    assert_eq!(hear(&mut one), "bye");
    assert_eq!(one.read(&mut [0]).unwrap(), 0, "the end, not a reset");
    // An endless line ends its own connection only.
    let mut endless = connect(&addr);
    let block = [b'x'; 4096];
    while endless.get_mut().write_all(&block).is_ok() {
        endless.get_mut().set_nonblocking(true).unwrap();
        match endless.fill_buf() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => endless.get_mut().set_nonblocking(false).unwrap(),
            _ => break,
        }
    }
    endless.get_mut().set_nonblocking(false).unwrap();
    assert!(hear(&mut endless).starts_with("error: no delimiter within 4096 bytes"));
    say(&mut other, "get a\n");
    assert_eq!(hear(&mut other), "1");
}
