//! Random mixes of everything that reads, against a model that knows every byte: on a ring of 8 and 16 entries, with
//! pools of every kind, with streams that are dropped, moved and reset, and with runtimes that end in the middle of it.
//!
//! The model of a connection is two counts: what its std end has sent, and what came out here. The bytes say their
//! position, so that each one that is lost, doubled or out of place shows itself.
//!
//! `RUNTIME_SOAK_ROUNDS` is the number of rounds, `RUNTIME_SOAK_SEED` where the random numbers begin; a failure prints
//! the latter.

use std::io::{Read, Write};
use std::time::Duration;

use futures::StreamExt;
use runtime::Runtime;
use runtime::io::Pooled;
use runtime::net::TcpStream;
use runtime::task::yield_now;
use runtime::testing::tiny;
use runtime::time::timeout;

use crate::peer::{Peer, finish, pair, pattern, poll_once, reset, secs, within};
use crate::recv::{POOLS, with_pool};
use crate::support::{Rng, watchdog};

const CONNECTIONS: usize = 6;
/// Bytes that may be on their way.
const AHEAD: usize = 40_000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

struct Connection {
    stream: Option<TcpStream>,
    peer: Option<Peer>,
    sent: usize,
    got: usize,
    /// The peer has said that nothing more comes.
    finished: bool,
    /// The peer has reset: bytes may be missing at the end, and an error is due.
    was_reset: bool,
}

impl Connection {
    async fn new() -> Self {
        let (stream, peer) = pair().await;
        peer.set_nonblocking(true).unwrap();
        Self { stream: Some(stream), peer: Some(peer), sent: 0, got: 0, finished: false, was_reset: false }
    }

    fn stream(&self) -> &TcpStream {
        self.stream.as_ref().expect("there between steps")
    }

    fn send(&mut self, n: usize) {
        let n = n.min(AHEAD - (self.sent - self.got).min(AHEAD));
        if let Some(peer) = self.peer.as_mut().filter(|_| !self.finished)
            && let Ok(n) = peer.write(&pattern(self.sent, n))
        {
            self.sent += n;
        }
    }

    #[track_caller]
    fn came(&mut self, data: &[u8]) {
        assert!(self.got + data.len() <= self.sent, "more than was sent");
        assert!(data == pattern(self.got, data.len()), "{} bytes at {} are not what was sent", data.len(), self.got);
        self.got += data.len();
    }

    #[track_caller]
    fn ended(&self) {
        assert!(self.finished || self.was_reset, "an end that nobody has sent");
        assert!(self.was_reset || self.got == self.sent, "the end after {} of {} bytes", self.got, self.sent);
    }

    #[track_caller]
    fn failed(&self, error: &std::io::Error) {
        assert!(self.was_reset && error.kind() == std::io::ErrorKind::ConnectionReset, "{error}");
    }

    fn is_over(&self) -> bool {
        self.was_reset || self.finished && self.got == self.sent
    }
}

struct Soak {
    connections: Vec<Connection>,
    /// Kept for a while, with what they must read as.
    held: Vec<(Pooled, Vec<u8>)>,
}

impl Soak {
    fn new() -> Self {
        Self { connections: Vec::new(), held: Vec::new() }
    }

    async fn round(&mut self, rng: &mut Rng, pool: &'static str) {
        while self.connections.len() < CONNECTIONS {
            self.connections.push(Connection::new().await);
        }
        let at = rng.below(CONNECTIONS as u64) as usize;
        let connection = &mut self.connections[at];
        let limit = Duration::from_micros(rng.below(400));
        let ahead = connection.sent - connection.got;
        match rng.below(30) {
            0..=5 => connection.send([1, 10, 100, 1000, 10_000][rng.below(5) as usize]),
            6..=9 => {
                if let Ok(result) = timeout(limit, connection.stream().recv()).await {
                    self.received(at, result, rng);
                }
            }
            10..=11 => {
                let polled = {
                    let mut recv = Box::pin(connection.stream().recv());
                    let mut polled = poll_once(recv.as_mut()).await;
                    if polled.is_pending() && rng.below(2) == 0 {
                        yield_now().await;
                        polled = poll_once(recv.as_mut()).await;
                    }
                    polled
                };
                if let std::task::Poll::Ready(result) = polled {
                    self.received(at, result, rng);
                }
            }
            12 => {
                let next = timeout(limit, connection.stream().recv_stream().next()).await;
                match next {
                    Ok(Some(result)) => self.received(at, result, rng),
                    Ok(None) => connection.ended(),
                    Err(_) => {}
                }
            }
            13 => {
                let next = {
                    let mut incoming = connection.stream().recv_stream();
                    timeout(limit, StreamExt::next(&mut incoming)).await
                };
                match next {
                    Ok(Some(result)) => self.received(at, result, rng),
                    Ok(None) => connection.ended(),
                    Err(_) => {}
                }
            }
            14..=16 => {
                let buf = Vec::with_capacity(1 + rng.below(3000) as usize);
                if let Ok(result) = timeout(limit, connection.stream().read(buf)).await {
                    match result.into_result() {
                        Ok((0, _)) => connection.ended(),
                        Ok((_, data)) => connection.came(&data),
                        Err(error) => connection.failed(&error),
                    }
                }
            }
            17..=18 => {
                // Sometimes more than there is.
                let n = 1 + rng.below(ahead as u64 * 3 / 2 + 2) as usize;
                if let Ok(result) = timeout(limit, connection.stream().read_exact(vec![0; n])).await {
                    match result.0 {
                        Ok(()) => connection.came(&result.1),
                        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                            let rest = connection.sent - connection.got;
                            assert!(connection.was_reset || connection.finished && rest < n);
                            if !connection.was_reset {
                                connection.came(&result.1[..rest]);
                            }
                        }
                        Err(error) => connection.failed(&error),
                    }
                    if connection.was_reset {
                        // What came before the error is in the buffer; its count is not told.
                        connection.got = connection.sent;
                    }
                }
            }
            19 => {
                let bufs =
                    vec![Vec::with_capacity(rng.below(20) as usize), Vec::with_capacity(1 + rng.below(2000) as usize)];
                if let Ok(result) = timeout(limit, connection.stream().read_vectored(bufs)).await {
                    match result.into_result() {
                        Ok((0, _)) => connection.ended(),
                        Ok((n, bufs)) => {
                            assert_eq!(n, bufs.iter().map(Vec::len).sum::<usize>());
                            connection.came(&bufs.concat());
                        }
                        Err(error) => connection.failed(&error),
                    }
                }
            }
            20 => {
                let buf = Vec::with_capacity(1 + rng.below(100) as usize);
                if let Ok(result) = timeout(limit, connection.stream().peek(buf)).await {
                    match result.into_result() {
                        Ok((0, _)) => connection.ended(),
                        Ok((_, data)) => {
                            connection.came(&data);
                            connection.got -= data.len();
                        }
                        Err(error) => connection.failed(&error),
                    }
                }
            }
            21 => {
                let (rx, tx) = connection.stream.take().unwrap().into_split();
                let result = timeout(limit, rx.recv()).await;
                connection.stream = Some(rx.reunite(tx).unwrap());
                if let Ok(result) = result {
                    self.received(at, result, rng);
                }
            }
            22 => {
                let stream = connection.stream.take().unwrap();
                connection.stream = Some(match stream.into_std() {
                    Ok(std) => TcpStream::from_std(std).unwrap(),
                    Err(error) => error.into_inner(),
                });
            }
            23 if rng.below(4) == 0 => self.elsewhere(at, pool).await,
            24 => {
                for _ in 0..rng.below(4) {
                    yield_now().await;
                }
            }
            25 if rng.below(4) == 0 => {
                let connection = &mut self.connections[at];
                match (rng.below(4), connection.peer.take()) {
                    (0, Some(peer)) => {
                        reset(peer);
                        connection.was_reset = true;
                    }
                    (1, peer) => {
                        // Whatever is in flight goes with the stream.
                        drop(connection.stream.take());
                        drop(peer);
                        self.connections.swap_remove(at);
                    }
                    (_, Some(peer)) => {
                        finish(&peer);
                        connection.peer = Some(peer);
                        connection.finished = true;
                    }
                    (_, None) => {}
                }
            }
            26 => self.held.truncate(rng.below(8) as usize),
            27 => {
                for connection in &mut self.connections {
                    connection.send(100);
                }
            }
            _ => runtime::time::sleep(limit).await,
        }
        for (data, expected) in &self.held {
            assert!(data[..] == expected[..], "a piece that is held has changed");
        }
        self.connections
            .retain(|connection| !connection.is_over() || connection.got < connection.sent && !connection.was_reset);
    }

    fn received(&mut self, at: usize, result: std::io::Result<Pooled>, rng: &mut Rng) {
        let connection = &mut self.connections[at];
        match result {
            Ok(data) if data.is_empty() => connection.ended(),
            Ok(data) => {
                connection.came(&data);
                if rng.below(4) == 0 && self.held.len() < 16 {
                    let expected = data.to_vec();
                    self.held.push((data, expected));
                }
            }
            Err(error) => connection.failed(&error),
        }
    }

    /// Some bytes are read by another thread, to which the stream moves and from which it comes back.
    async fn elsewhere(&mut self, at: usize, pool: &'static str) {
        let connection = &mut self.connections[at];
        if connection.was_reset || connection.finished {
            return;
        }
        connection.send(50);
        let want = (connection.sent - connection.got).min(50);
        let stream = connection.stream.take().unwrap();
        let there = runtime::spawn_blocking(move || {
            with_pool(tiny(8, 16), pool).build().unwrap().block_on(async {
                let mut all = Vec::new();
                while all.len() < want {
                    if all.is_empty() {
                        all.extend_from_slice(&stream.recv().await.unwrap());
                    } else {
                        all.extend(stream.read(Vec::with_capacity(7)).await.into_result().unwrap().1);
                    }
                }
                (stream, all)
            })
        });
        let (stream, all) = within(secs(10), "a stream that went elsewhere", there).await.unwrap();
        connection.stream = Some(stream);
        connection.came(&all);
    }

    /// What is left comes out, to the last byte.
    async fn end(mut self) {
        for connection in &mut self.connections {
            if let Some(peer) = &connection.peer {
                finish(peer);
                connection.finished = true;
            }
            loop {
                match within(secs(10), "the end of a connection", connection.stream().recv()).await {
                    Ok(data) if data.is_empty() => break,
                    Ok(data) => connection.came(&data),
                    Err(error) => connection.failed(&error),
                }
            }
            connection.ended();
            if let Some(mut peer) = connection.peer.take() {
                connection.stream().write_all("bye").await.0.unwrap();
                drop(connection.stream.take());
                peer.set_nonblocking(false).unwrap();
                yield_now().await;
                yield_now().await;
                let mut all = Vec::new();
                peer.read_to_end(&mut all).unwrap();
                assert_eq!(all, b"bye");
            }
        }
        drop(self);
    }
}

fn build(pool: &str, rng: &mut Rng) -> Runtime {
    let mut builder = with_pool(tiny(8, 16), pool);
    if rng.below(3) == 0 {
        builder.setup_mut().pool.queue_bytes = 4096;
    }
    builder.build().unwrap()
}

fn soak(pool: &'static str) {
    let rounds = setting("RUNTIME_SOAK_ROUNDS", 2_000);
    let _watchdog = watchdog(secs(120 + rounds / 20));
    let seed = setting("RUNTIME_SOAK_SEED", 0x5eed);
    println!("{pool}: RUNTIME_SOAK_SEED={seed}");
    let mut rng = Rng((seed * 2 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for _ in 0..8 {
        rng.next();
    }
    let (mut done, mut did) = (0, [0; 5]);
    while done < rounds {
        let mut soak = Soak::new();
        // The streams of one runtime go on in the next, and what they have received with them.
        for runtimes_left in (0..1 + rng.below(3)).rev() {
            let rt = build(pool, &mut rng);
            let mut parts = 1 + rng.below(3);
            while parts > 0 {
                parts -= 1;
                soak = rt.block_on(async {
                    for _ in 0..100 {
                        soak.round(&mut rng, pool).await;
                    }
                    soak
                });
                done += 100;
            }
            let metrics = rt.metrics();
            assert_eq!(metrics.stale_completions, 0);
            let counts =
                [metrics.orphans, metrics.pool_empty, metrics.pool_apart, metrics.pool_copied, metrics.cancels];
            did.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            if runtimes_left == 0 {
                let held = std::mem::take(&mut soak.held);
                rt.block_on(soak.end());
                drop(held);
                assert_eq!(rt.metrics().pool_pieces, 0, "pieces that nobody holds");
                soak = Soak::new();
            }
            assert_eq!(rt.shutdown_timeout(secs(5)), 0, "operations left behind");
        }
    }
    println!("{pool}: orphans, empty, apart, copied, cancels: {did:?}");
    assert!(did[4] > 0);
}

#[test]
fn soak_recv_incremental() {
    soak(POOLS[0]);
}

#[test]
fn soak_recv_classic() {
    soak(POOLS[1]);
}

#[test]
fn soak_recv_without_a_pool() {
    soak(POOLS[2]);
}

#[test]
fn soak_recv_two_small_slabs() {
    soak(POOLS[3]);
}

#[test]
fn soak_recv_two_small_buffers() {
    soak(POOLS[4]);
}

#[test]
fn soak_recv_without_bundles() {
    soak(POOLS[5]);
}

#[test]
fn soak_recv_six_small_buffers() {
    soak(POOLS[6]);
}

#[test]
fn soak_recv_two_small_buffers_without_bundles() {
    soak(POOLS[7]);
}
