//! The last rungs of a splice, and what the kernel's own rules make of inline ones: sides that look ready and are not,
//! a lock that somebody has, packets, sockets of another family.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use runtime::net::TcpStream;
use runtime::op::{Kind, Rung};
use runtime::pipe::{Builder, Relay, pipe, send_file, splice, splice_all, splice_from_file, splice_to_file, tee};
use runtime::time::timeout;
use runtime_core::sys::pipes::set_pipe_capacity;

use super::calls::report_times_of_sends;
use super::send_file::file;
use super::splice::workers;
use super::support::in_child;
use super::{pattern, poll_once, read_all, run};

async fn connected() -> (TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (stream, listener.accept().unwrap().0)
}

fn reading(mut peer: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn a_socket_that_only_looks_ready_costs_a_splice_into_a_file_no_turns() {
    run(async {
        let (stream, mut peer) = connected().await;
        report_times_of_sends(&stream);
        stream.write_all("x").await.0.unwrap();
        peer.read_exact(&mut [0]).unwrap();
        let target = file(b"");
        let before = runtime::metrics().enters;
        {
            let mut splice = pin!(splice_to_file(&stream, &target, Some(0), 100));
            assert!(timeout(Duration::from_millis(100), splice.as_mut()).await.is_err());
            assert!(runtime::metrics().enters - before <= 20, "{} enters", runtime::metrics().enters - before);
            peer.write_all(b"data").unwrap();
            assert_eq!(splice.await.unwrap(), 4);
        }
    });
}

#[test]
fn a_splice_into_a_file_passes_over_an_urgent_byte() {
    run(async {
        let (stream, mut peer) = connected().await;
        socket2::SockRef::from(&peer).send_out_of_band(b"!").unwrap();
        peer.write_all(b"data").unwrap();
        runtime::time::sleep(Duration::from_millis(5)).await;
        let target = file(b"");
        let spliced = timeout(Duration::from_secs(5), splice_to_file(&stream, &target, Some(0), 100)).await;
        assert_eq!(spliced.expect("the data is there").unwrap(), 4);
    });
}

#[test]
fn an_input_that_only_looks_ready_is_tried_by_a_timer_and_then_copied() {
    run(async {
        for round in 0..3 {
            let (stream, mut peer) = connected().await;
            let (to, rx) = pipe().unwrap();
            // The kernel polls a socket as readable whose next byte is an urgent one, and splices nothing from there
            // on.
            socket2::SockRef::from(&peer).send_out_of_band(b"!").unwrap();
            peer.write_all(&pattern(round, 1000)).unwrap();
            let inline = runtime::metrics().ops(Kind::Splice, Rung::Inline);
            let before = runtime::metrics().ops(Kind::Recv, Rung::Ring);
            let mut moved = splice(&stream, &to, 10_000).await.unwrap();
            assert!(moved > 0);
            if runtime::metrics().ops(Kind::Splice, Rung::Inline) == inline {
                assert!(runtime::metrics().ops(Kind::Recv, Rung::Ring) > before, "copied");
            }
            peer.shutdown(Shutdown::Write).unwrap();
            while let n @ 1.. = splice(&stream, &to, 10_000).await.unwrap() {
                moved += n;
            }
            drop(to);
            assert_eq!(moved, 1000);
            assert!(read_all(&rx).await == pattern(round, 1000));
        }
        assert!(runtime::metrics().ops(Kind::Recv, Rung::Ring) > 0, "the last rung was never reached");
    });
}

#[test]
fn an_urgent_byte_before_the_end_of_a_stream_ends_nothing() {
    run(async {
        for way in 0..4 {
            let ((a, mut client), (b, server)) = (connected().await, connected().await);
            client.write_all(b"before ").unwrap();
            socket2::SockRef::from(&client).send_out_of_band(b"!").unwrap();
            client.write_all(&pattern(way, 50_000)).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            server.shutdown(Shutdown::Write).unwrap();
            let server = reading(server);
            let mut wanted = b"before ".to_vec();
            wanted.extend(pattern(way, 50_000));
            match way {
                0 => drop(Relay::new().splice().run(&a, &b).await.unwrap()),
                1 => drop(Relay::new().run(&a, &b).await.unwrap()),
                2 => {
                    let (to, rx) = pipe().unwrap();
                    let moving = async {
                        splice_all(&a, &to, u64::MAX).await.unwrap();
                        drop(to);
                    };
                    let ((), seen) = futures::join!(moving, read_all(&rx));
                    b.write_all(seen).await.0.unwrap();
                }
                _ => {
                    let target = file(&[]);
                    let mut at = 0;
                    while let n @ 1.. = splice_to_file(&a, &target, Some(at), 100_000).await.unwrap() {
                        at += n as u64;
                    }
                    send_file(&target, 0, u64::MAX, &b).await.unwrap();
                }
            }
            let _ = b.shutdown(Shutdown::Write).await;
            let seen = server.join().unwrap();
            assert!(seen == wanted, "{} of {} bytes, way {way}", seen.len(), wanted.len());
        }
    });
}

#[test]
fn an_output_that_only_looks_ready_is_tried_by_a_timer_and_then_copied() {
    run(async {
        let (stream, peer) = connected().await;
        report_times_of_sends(&stream);
        stream.write_all("mark").await.0.unwrap();
        let (tx, from) = pipe().unwrap();
        let all = pattern(3, 12 << 20);
        let write = async {
            tx.write_all(all.clone()).await.0.unwrap();
            drop(tx);
        };
        let mut both = pin!(futures::future::join(write, splice_all(&from, &stream, u64::MAX)));
        // Nobody reads: the socket is full, and yet poll(2) says that there is something.
        let start = Instant::now();
        while runtime::metrics().ops(Kind::Read, Rung::Ring) == 0 {
            assert!(timeout(Duration::from_millis(10), both.as_mut()).await.is_err());
            assert!(start.elapsed() < super::support::scaled(Duration::from_secs(5)), "copying was never reached");
        }
        let peer = reading(peer);
        let ((), moved) = both.await;
        assert_eq!(moved.unwrap(), all.len() as u64);
        stream.shutdown(Shutdown::Write).await.unwrap();
        let seen = peer.join().unwrap();
        assert!(seen[..4] == *b"mark" && seen[4..] == all);
    });
}

#[test]
fn private_pipes_are_emptied_into_an_output_that_only_looks_ready() {
    run(async {
        let all = pattern(4, 12 << 20);
        let source = file(&all);
        for relays in [false, true] {
            let ((a, mut client), (b, peer)) = (connected().await, connected().await);
            report_times_of_sends(&b);
            b.write_all("mark").await.0.unwrap();
            let up = all.clone();
            let client = std::thread::spawn(move || {
                if relays {
                    client.write_all(&up).unwrap();
                }
                client.shutdown(Shutdown::Write).unwrap();
                client
            });
            let mut moving = pin!(async {
                if relays {
                    Relay::new().splice().run(&a, &b).await.unwrap().there
                } else {
                    send_file(&source, 0, u64::MAX, &b).await.unwrap()
                }
            });
            assert!(timeout(Duration::from_millis(300), moving.as_mut()).await.is_err(), "nobody reads");
            if relays {
                peer.shutdown(Shutdown::Write).unwrap();
            }
            let peer = reading(peer);
            assert_eq!(moving.await, all.len() as u64);
            let _ = b.shutdown(Shutdown::Write).await;
            let seen = peer.join().unwrap();
            assert!(seen[..4] == *b"mark" && seen[4..] == all, "{} bytes, relay {relays}", seen.len());
            drop(client.join().unwrap());
        }
    });
}

#[test]
fn a_second_thread_that_fights_for_the_pipes_lock_changes_no_byte_and_stops_nobody() {
    in_child(
        "rungs::a_second_thread_that_fights_for_the_pipes_lock_changes_no_byte_and_stops_nobody",
        Duration::from_secs(60),
        || {
            run(async {
                let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
                let copies = (from.as_fd().try_clone_to_owned().unwrap(), rx.as_fd().try_clone_to_owned().unwrap());
                let done = std::sync::Arc::new(AtomicBool::new(false));
                let over = std::sync::Arc::clone(&done);
                let other = std::thread::spawn(move || {
                    // Each of these takes the lock of a pipe.
                    let mut rounds = 0_u64;
                    let sizes = [65_536, 131_072];
                    while !over.load(Ordering::Relaxed) {
                        for pipe in [&copies.0, &copies.1] {
                            // Refused when it holds more than that.
                            let _ = set_pipe_capacity(pipe.as_fd(), sizes[rounds as usize % 2]);
                            rounds += 1;
                        }
                        std::thread::yield_now();
                    }
                    rounds
                });
                let len = 8 << 20;
                let write = async {
                    for at in (0..len).step_by(1 << 16) {
                        tx.write_all(pattern(at, 1 << 16)).await.0.unwrap();
                    }
                    drop(tx);
                };
                let moving = async {
                    while splice(&from, &to, 10_000).await.unwrap() > 0 {}
                    drop(to);
                };
                let mut ticks = 0;
                let mut all = pin!(futures::future::join3(write, moving, read_all(&rx)));
                let ((), (), seen) = loop {
                    // A timer goes on beside it.
                    match timeout(Duration::from_millis(1), all.as_mut()).await {
                        Ok(output) => break output,
                        Err(_) => ticks += 1,
                    }
                };
                done.store(true, Ordering::Relaxed);
                assert!(other.join().unwrap() > 0);
                let wanted: Vec<u8> = (0..len).step_by(1 << 16).flat_map(|at| pattern(at, 1 << 16)).collect();
                assert!(seen == wanted, "{} bytes after {ticks} ticks", seen.len());
                assert_eq!(workers(), 0);
            });
        },
    );
}

#[test]
fn a_pipe_of_one_page_and_a_slow_reader_get_every_byte_of_a_file() {
    run(async {
        let all = pattern(7, (1 << 20) + 123);
        let source = file(&all);
        for capacity in [4096, 64 << 10] {
            let (tx, rx) = Builder::new().capacity(capacity).build().unwrap();
            let (stream, mut peer) = connected().await;
            let reader = std::thread::spawn(move || {
                let (mut seen, mut piece) = (Vec::<u8>::new(), vec![0; 20_000]);
                loop {
                    match peer.read(&mut piece).unwrap() {
                        0 => return seen,
                        n => seen.extend(&piece[..n]),
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            let fill = async {
                let mut at = 0;
                while let n @ 1.. = splice_from_file(&source, Some(at), &tx, usize::MAX).await.unwrap() {
                    at += n as u64;
                }
                drop(tx);
                at
            };
            let (filled, moved) = futures::join!(fill, splice_all(&rx, &stream, u64::MAX));
            assert_eq!((filled, moved.unwrap()), (all.len() as u64, all.len() as u64));
            stream.shutdown(Shutdown::Write).await.unwrap();
            assert!(reader.join().unwrap() == all, "through {capacity} bytes");
        }
    });
}

#[test]
fn packets_are_moved_and_copied_one_by_one() {
    run(async {
        let ((tx, from), (to, rx)) = (Builder::new().packets(true).build().unwrap(), pipe().unwrap());
        for packet in ["one", "two", "three"] {
            tx.write_all(packet).await.0.unwrap();
        }
        assert_eq!(tee(&from, &to, 3).await.unwrap(), 3);
        assert_eq!(rx.read(Vec::with_capacity(9)).await.1, b"one");
        // A splice takes bytes, not packets: what of one it leaves is a packet again.
        assert_eq!(splice(&from, &to, 2).await.unwrap(), 2);
        assert_eq!(rx.read(Vec::with_capacity(9)).await.1, b"on");
        assert_eq!(from.read(Vec::with_capacity(9)).await.1, b"e");
        assert_eq!(from.read(Vec::with_capacity(9)).await.1, b"two");
        assert_eq!(splice_all(&from, &to, 5).await.unwrap(), 5);
        assert_eq!(rx.read(Vec::with_capacity(9)).await.1, b"three");
    });
}

#[test]
fn an_empty_pipe_is_waited_for_by_the_input_alone() {
    run(async {
        let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
        let mut waits = pin!(splice(&from, &to, 10));
        assert!(poll_once(waits.as_mut()).await.is_pending());
        // The output fills up meanwhile: now it is that which is waited for.
        while to.as_fd().try_clone_to_owned().map(std::fs::File::from).unwrap().write(&[7; 4096]).is_ok() {}
        tx.write_all("moved").await.0.unwrap();
        for _ in 0..20 {
            assert!(poll_once(waits.as_mut()).await.is_pending());
            runtime::task::yield_now().await;
        }
        rx.read_exact(vec![0; 65_536]).await.0.unwrap();
        assert_eq!(waits.await.unwrap(), 5);
        assert_eq!(rx.read(Vec::with_capacity(9)).await.1, b"moved");
        assert!(runtime::metrics().ops(Kind::Splice, Rung::Reissue) >= 2);
    });
}

#[test]
fn unix_sockets_are_relayed_like_those_of_tcp() {
    run(async {
        for way in [Relay::new(), Relay::new().copy(), Relay::new().splice()] {
            for nonblocking in [true, false] {
                let end = || {
                    let (ours, theirs) = UnixStream::pair().unwrap();
                    ours.set_nonblocking(nonblocking).unwrap();
                    (runtime::net::UnixStream::from_std(ours).unwrap(), theirs)
                };
                let ((a, client), (b, server)) = (end(), end());
                let (up, down) = (pattern(1, 2_000_003), pattern(2, 700_001));
                let talk = |mut peer: UnixStream, data: Vec<u8>| {
                    std::thread::spawn(move || {
                        let seen = reading(peer.try_clone().unwrap());
                        peer.write_all(&data).unwrap();
                        peer.shutdown(Shutdown::Write).unwrap();
                        seen.join().unwrap()
                    })
                };
                let (client, server) = (talk(client, up.clone()), talk(server, down.clone()));
                let relayed = way.run(&a, &b).await.unwrap();
                assert_eq!((relayed.there, relayed.back), (up.len() as u64, down.len() as u64));
                assert!(client.join().unwrap() == down && server.join().unwrap() == up, "{way:?}, {nonblocking}");
            }
        }
    });
}

#[test]
fn an_urgent_byte_in_front_of_the_end_resets_nothing() {
    run(async {
        const LEN: usize = 2 << 20;
        for to_file in [false, true] {
            let (stream, mut peer) = connected().await;
            peer.write_all(b"data").unwrap();
            socket2::SockRef::from(&peer).send_out_of_band(b"!").unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            runtime::time::sleep(Duration::from_millis(5)).await;
            if to_file {
                let target = file(b"");
                while splice_to_file(&stream, &target, None, 100).await.unwrap() > 0 {}
            } else {
                let (tx, rx) = pipe().unwrap();
                assert_eq!(splice_all(&stream, &tx, u64::MAX).await.unwrap(), 4);
                assert_eq!(rx.read_exact(vec![0; 4]).await.1, b"data");
            }
            let reading = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                let mut all = Vec::new();
                peer.read_to_end(&mut all).unwrap();
                all.len()
            });
            stream.write_all(vec![7; LEN]).await.0.unwrap();
            drop(stream);
            assert_eq!(reading.join().unwrap(), LEN, "to a file: {to_file}");
        }
    });
}
