//! Buffered streams in steady state: no allocation per read, per line or per flush.

use std::time::Duration;

use runtime::io::prelude::*;
use runtime::io::{BufReader, BufWriter};
use runtime::net::{TcpListener, TcpStream};

use crate::alloc;
use crate::support::in_child;

const LIMIT: Duration = Duration::from_secs(20);

async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

#[test]
fn requests_and_answers_through_buffers_allocate_nothing() {
    in_child("io_steady::requests_and_answers_through_buffers_allocate_nothing", LIMIT, || {
        runtime::Runtime::new().unwrap().block_on(async {
            let (client, server) = connected().await;
            let (mut requests, mut answers) = (BufReader::new(&server), BufWriter::new(&server));
            let (mut line, mut back) = (String::with_capacity(64), Vec::with_capacity(16));
            let mut before = 0;
            for round in 0..2_000 {
                if round == 1_000 {
                    before = alloc::calls();
                }
                client.write_all("a request of some length\n").await.0.unwrap();
                line.clear();
                assert_eq!(requests.read_line(&mut line).await.unwrap(), 25);
                answers.write_u32(line.len() as u32).await.unwrap();
                answers.write_all("an answer.\r\n").await.0.unwrap();
                answers.flush().await.unwrap();
                (_, back) = client.read_exact(back).await.into_result().unwrap();
                assert_eq!(&back[..5], b"\0\0\0\x19a");
            }
            assert_eq!(alloc::calls() - before, 0, "allocations in a thousand requests");
        });
    });
}

#[test]
fn lines_across_the_edges_of_the_buffer_allocate_nothing() {
    in_child("io_steady::lines_across_the_edges_of_the_buffer_allocate_nothing", LIMIT, || {
        runtime::Runtime::new().unwrap().block_on(async {
            let (client, server) = connected().await;
            let mut lines = BufReader::with_capacity(100, &server);
            let (mut line, mut batch) = (Vec::with_capacity(64), "0123456789 0123456789 0123456\n".repeat(70));
            let mut before = 0;
            for round in 0..200 {
                if round == 100 {
                    before = alloc::calls();
                }
                (_, batch) = client.write_all(batch).await.into_result().unwrap();
                for _ in 0..70 {
                    line.clear();
                    assert_eq!(lines.read_until(b'\n', &mut line).await.unwrap(), 30);
                }
            }
            assert_eq!(alloc::calls() - before, 0, "allocations in seven thousand lines");
        });
    });
}
