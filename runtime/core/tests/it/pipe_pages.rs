//! Relays of a user whose share of the memory for pipes is used up, so that each new pipe has a page or two.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener as StdListener, TcpStream as StdStream};
use std::time::Duration;

use runtime::Runtime;
use runtime::net::TcpStream;
use runtime::op::{Kind, Rung};
use runtime::pipe::{Relay, pipe};

use crate::raw::{become_user, fork, is_root, raise_descriptors};
use crate::support::{eventually, fds, in_child};

const LIMIT: Duration = Duration::from_secs(100);
const RELAYS: usize = 300;
const LEN: usize = 48 << 10;
/// What a thread keeps at most, as the documentation of its pool says.
const POOL_PIPES: usize = 16;

fn bytes_of(relay: usize) -> Vec<u8> {
    (0..LEN).map(|at| (at ^ (at >> 8) ^ (relay * 37)) as u8).collect()
}

/// Pipes until the kernel gives no more than two pages; `None` if it gives them for ever.
fn use_up_pages() -> Option<Vec<(runtime::pipe::Sender, runtime::pipe::Receiver)>> {
    let mut pipes = Vec::new();
    for _ in 0..2_000 {
        let new = pipe().ok()?;
        if new.0.capacity().unwrap() <= 2 * 4096 {
            // And what was asked for is refused.
            return new.0.set_capacity(64 << 10).is_err().then_some(pipes);
        }
        pipes.push(new);
    }
    None
}

async fn connected() -> (TcpStream, StdStream) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (ours, listener.accept().unwrap().0)
}

fn relays() {
    let Some(_pages) = use_up_pages() else {
        eprintln!("SKIP: this user's memory for pipes does not end");
        return;
    };
    Runtime::new().unwrap().block_on(async {
        // One by itself, so that what is opened once is open.
        let open = fds();
        let (mut clients, mut servers, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..RELAYS {
            let ((a, client), (b, server)) = (connected().await, connected().await);
            clients.push(client);
            servers.push(server);
            tasks.push(runtime::spawn(async move { Relay::new().splice().run(&a, &b).await.unwrap() }));
        }
        let sender = std::thread::spawn(move || {
            for (n, client) in clients.iter_mut().enumerate() {
                client.write_all(&bytes_of(n)).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
            }
            clients
        });
        let receiver = std::thread::spawn(move || {
            for (n, server) in servers.iter_mut().enumerate() {
                let mut all = Vec::new();
                server.read_to_end(&mut all).unwrap();
                assert!(all == bytes_of(n), "relay {n}: {} bytes", all.len());
                server.write_all(b"thanks").unwrap();
            }
        });
        for task in tasks {
            let relayed = task.await.unwrap();
            assert_eq!((relayed.there, relayed.back), (LEN as u64, 6));
        }
        crate::kit::until(|| sender.is_finished() && receiver.is_finished()).await;
        receiver.join().unwrap();
        for mut client in sender.join().unwrap() {
            let mut thanks = String::new();
            client.read_to_string(&mut thanks).unwrap();
            assert_eq!(thanks, "thanks");
        }
        let metrics = runtime::metrics();
        assert_eq!(metrics.ops(Kind::Splice, Rung::Ring), 0);
        // Several moves each, since a pipe holds two pages.
        let moves = metrics.ops(Kind::Splice, Rung::Inline);
        assert!(moves >= (RELAYS * LEN / (2 * 4096)) as u64, "{moves} moves");
        eventually("no more pipes are kept than the pool has room for", || fds() <= open + 2 * POOL_PIPES);
    });
}

#[test]
fn three_hundred_relays_are_exact_through_pipes_of_two_pages() {
    in_child("pipe_pages::three_hundred_relays_are_exact_through_pipes_of_two_pages", LIMIT, || {
        if !is_root() || !raise_descriptors(8_192) {
            eprintln!("SKIP: only root may become another user, with enough descriptors");
            return;
        }
        let child = fork(|| {
            // A user that nobody else is: pages count for all processes of a user.
            become_user(2_000_000 + std::process::id());
            relays();
            0
        });
        assert_eq!(child.wait(), 0);
    });
}
