//! Unix sockets: what streams promise, for the other family.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream as Std;
use std::path::PathBuf;

use runtime::io::{AsyncReadExt, BufReader, copy_bidirectional};
use runtime::net::{UnixListener, UnixStream};
use runtime::task::yield_now;
use runtime::time::timeout;

use crate::peer::{ms, pattern, poll_once, run, secs, until, within};
use crate::support::{fds, in_child};

/// A name that nobody else has, removed at the end.
struct Name(PathBuf);

impl Name {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("runtime-net-{name}-{}", std::process::id())))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn pair() -> (UnixStream, Std) {
    let (ours, theirs) = Std::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (UnixStream::from_std(ours).unwrap(), theirs)
}

#[test]
fn bytes_go_both_ways_whole_and_in_order_and_then_the_end() {
    run(secs(30), async {
        for pooled in [false, true] {
            let (stream, mut peer) = pair();
            let (up, down) = (pattern(1, 3_000_017), pattern(2, 2_000_003));
            let expected = down.clone();
            let other = std::thread::spawn(move || {
                let mut reading = peer.try_clone().unwrap();
                let reading = std::thread::spawn(move || {
                    let mut all = Vec::new();
                    reading.read_to_end(&mut all).unwrap();
                    all
                });
                peer.write_all(&down).unwrap();
                peer.shutdown(Shutdown::Write).unwrap();
                reading.join().unwrap()
            });
            let write = async {
                stream.write_all(up.clone()).await.0.unwrap();
                stream.shutdown(Shutdown::Write).await.unwrap();
            };
            let read = async {
                let mut all = Vec::new();
                loop {
                    let data = match pooled {
                        true => stream.recv().await.unwrap().to_vec(),
                        false => stream.read(Vec::with_capacity(70_000)).await.into_result().unwrap().1,
                    };
                    if data.is_empty() {
                        return all;
                    }
                    all.extend_from_slice(&data);
                }
            };
            let (read, ()) = futures::join!(read, write);
            assert!(read == expected, "pooled: {pooled}");
            assert!(other.join().unwrap() == up, "pooled: {pooled}");
        }
    });
}

#[test]
fn a_dropped_read_and_a_dropped_write_lose_nothing() {
    run(secs(30), async {
        let (stream, mut peer) = pair();
        {
            let mut read = Box::pin(stream.read_exact(vec![0; 10]));
            assert!(poll_once(read.as_mut()).await.is_pending());
            peer.write_all(b"12345").unwrap();
            yield_now().await;
            assert!(poll_once(read.as_mut()).await.is_pending());
        }
        peer.write_all(b"67").unwrap();
        assert_eq!(stream.read_exact(vec![0; 7]).await.1, b"1234567");
        let all = pattern(3, 4 << 20);
        assert!(timeout(ms(20), stream.write_all(all.clone())).await.is_err(), "nobody reads");
        let other = std::thread::spawn(move || {
            let mut seen = Vec::new();
            peer.read_to_end(&mut seen).unwrap();
            seen
        });
        stream.write_all("the end").await.0.unwrap();
        drop(stream);
        let seen = other.join().unwrap();
        let (start, end) = seen.split_at(seen.len() - 7);
        assert!(end == b"the end" && start == &all[..start.len()]);
    });
}

#[test]
fn a_peer_that_only_ended_its_own_direction_is_waited_for() {
    run(secs(30), async {
        let (stream, mut peer) = pair();
        peer.shutdown(Shutdown::Write).unwrap();
        let write = runtime::spawn(async move { stream.write_all(vec![7; 4 << 20]).await.0 });
        runtime::time::sleep(ms(50)).await;
        let before = runtime::metrics().enters;
        runtime::time::sleep(ms(100)).await;
        assert!(runtime::metrics().enters - before <= 10);
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all.len()
        });
        within(secs(10), "the write", write).await.unwrap().unwrap();
        assert_eq!(reading.join().unwrap(), 4 << 20);
    });
}

#[test]
fn a_peer_that_is_gone_is_an_end_and_an_error_and_no_signal() {
    run(secs(20), async {
        let (stream, peer) = pair();
        drop(peer);
        assert_eq!(stream.read(vec![0; 8]).await.0.unwrap(), 0);
        assert_eq!(stream.write("x").await.0.unwrap_err().kind(), ErrorKind::BrokenPipe);
        let (stream, peer) = pair();
        stream.write_all("unread").await.0.unwrap();
        drop(peer);
        assert_eq!(stream.read(vec![0; 8]).await.0.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(stream.read(vec![0; 8]).await.0.unwrap(), 0);
    });
}

#[test]
fn every_connection_is_accepted_once_and_those_that_wait_for_the_backlog_too() {
    in_child("unix::every_connection_is_accepted_once_and_those_that_wait_for_the_backlog_too", secs(60), || {
        run(secs(50), async {
            let base = fds();
            {
                let name = Name::new("accept");
                let listener = UnixListener::bind(&name.0).await.unwrap();
                assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*name.0));
                let clients: Vec<_> = (0..300u32)
                    .map(|n| {
                        let path = name.0.clone();
                        runtime::spawn(async move {
                            let stream = UnixStream::connect(path).await.unwrap();
                            stream.write_all(n.to_le_bytes().to_vec()).await.0.unwrap();
                            stream.read_exact(vec![0; 4]).await.into_result().unwrap().1
                        })
                    })
                    .collect();
                // Given up again and again, which costs no connection.
                let mut seen = vec![0; 300];
                while seen.contains(&0) {
                    let Ok(accepted) = timeout(ms(1), listener.accept()).await else { continue };
                    let stream = accepted.unwrap().0;
                    let number = stream.read_exact(vec![0; 4]).await.into_result().unwrap().1;
                    seen[u32::from_le_bytes(number[..].try_into().unwrap()) as usize] += 1;
                    stream.write_all(number).await.0.unwrap();
                }
                assert!(seen.iter().all(|&times| times == 1));
                for (n, client) in clients.into_iter().enumerate() {
                    assert_eq!(client.await.unwrap(), (n as u32).to_le_bytes());
                }
            }
            until("descriptors back to base", secs(5), || fds() <= base).await;
        });
    });
}

#[test]
fn errors_are_those_of_std() {
    run(secs(20), async {
        let name = Name::new("errors");
        assert_eq!(UnixStream::connect(&name.0).await.unwrap_err().kind(), ErrorKind::NotFound);
        drop(UnixListener::bind(&name.0).await.unwrap());
        assert_eq!(UnixStream::connect(&name.0).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(UnixListener::bind(&name.0).await.unwrap_err().kind(), ErrorKind::AddrInUse);
        let long = "x".repeat(200);
        assert_eq!(UnixListener::bind(&long).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        let (a, b) = UnixStream::pair().unwrap();
        assert!(a.peer_addr().unwrap().is_unnamed() && b.local_addr().unwrap().is_unnamed());
        assert!(a.take_error().unwrap().is_none());
    });
}

#[test]
fn streams_go_to_std_and_back_through_wrappers_and_between_threads() {
    run(secs(20), async {
        let (a, b) = UnixStream::pair().unwrap();
        let a = UnixStream::from_std(a.into_std().unwrap()).unwrap();
        a.write_all("one\ntwo\n").await.0.unwrap();
        let mut lines = runtime::io::AsyncBufReadExt::lines(BufReader::new(&b));
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("one"));
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("two"));
        drop(lines);
        // Received ahead, and taken along.
        a.write_all("moved").await.0.unwrap();
        assert_eq!(b.recv().await.unwrap()[..], *b"moved");
        a.write_all("ahead").await.0.unwrap();
        yield_now().await;
        let b = std::thread::spawn(move || {
            run(secs(10), async {
                assert_eq!(b.read_exact(vec![0; 5]).await.1, b"ahead");
                b
            })
        });
        while !b.is_finished() {
            yield_now().await;
        }
        let b = b.join().unwrap();
        let (c, d) = UnixStream::pair().unwrap();
        let relay = runtime::spawn(async move { copy_bidirectional(&b, &c).await });
        a.write_all("through").await.0.unwrap();
        a.shutdown(Shutdown::Write).await.unwrap();
        let mut all = Vec::new();
        assert_eq!((&d).read_to_end(&mut all).await.unwrap(), 7);
        assert_eq!(all, b"through");
        drop(d);
        assert_eq!(relay.await.unwrap().unwrap(), (7, 0));
        assert_eq!(a.read(vec![0; 1]).await.0.unwrap(), 0);
    });
}
