//! Both directions between two connections: every byte in order, ends and resets passed on, nothing left behind in a pipe.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream as Std};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::op::{Kind, Rung};
use runtime::pipe::{Relay, pipe, relay};
use runtime::time::timeout;

use super::support::Rng;
use super::{pattern, read_all, run};

async fn connected() -> (TcpStream, Std) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let peer = listener.accept().unwrap().0;
    peer.set_read_timeout(Some(super::support::scaled(Duration::from_secs(20)))).unwrap();
    (stream, peer)
}

/// Sends in pieces, ends its direction, and returns all that comes.
fn talk(mut peer: Std, data: Vec<u8>, piece: usize) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut reading = peer.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            reading.read_to_end(&mut all).unwrap();
            all
        });
        for piece in data.chunks(piece) {
            peer.write_all(piece).unwrap();
        }
        peer.shutdown(Shutdown::Write).unwrap();
        reader.join().unwrap()
    })
}

#[test]
fn both_directions_arrive_whole_copied_or_spliced() {
    run(async {
        for (round, way) in [Relay::new(), Relay::new().copy(), Relay::new().splice()].iter().enumerate() {
            let ((a, client), (b, server)) = (connected().await, connected().await);
            let (up, down) = (pattern(round, (4 << 20) + 123), pattern(round + 50, 700_001));
            let (client, server) = (talk(client, up.clone(), 1 << 20), talk(server, down.clone(), 999));
            let relayed = way.run(&a, &b).await.unwrap();
            assert_eq!((relayed.there, relayed.back), (up.len() as u64, down.len() as u64));
            assert!(client.join().unwrap() == down && server.join().unwrap() == up, "{way:?}");
        }
        let metrics = runtime::metrics();
        assert!(metrics.ops(Kind::Splice, Rung::Inline) > 0);
        assert_eq!(metrics.ops(Kind::Splice, Rung::Ring), 0);
    });
}

#[test]
fn copying_stays_copying() {
    run(async {
        let ((a, client), (b, server)) = (connected().await, connected().await);
        let (client, server) = (talk(client, pattern(0, 1 << 20), 1 << 20), talk(server, Vec::new(), 1));
        Relay::new().copy().run(&a, &b).await.unwrap();
        assert_eq!(runtime::metrics().ops(Kind::Splice, Rung::Inline), 0);
        assert!(client.join().unwrap().is_empty() && server.join().unwrap() == pattern(0, 1 << 20));
    });
}

#[test]
fn one_side_may_end_long_before_the_other() {
    run(async {
        let ((a, mut client), (b, mut server)) = (connected().await, connected().await);
        client.shutdown(Shutdown::Write).unwrap();
        let peers = std::thread::spawn(move || {
            assert_eq!(server.read(&mut [0; 8]).unwrap(), 0, "the end is passed on at once");
            let mut data = [0; 4];
            for word in ["some", "more"] {
                server.write_all(word.as_bytes()).unwrap();
                client.read_exact(&mut data).unwrap();
                assert_eq!(&data, word.as_bytes());
            }
            drop(server);
            assert_eq!(client.read(&mut data).unwrap(), 0);
        });
        let relayed = relay(&a, &b).await.unwrap();
        assert_eq!((relayed.there, relayed.back), (0, 8));
        peers.join().unwrap();
    });
}

#[test]
fn a_header_is_read_first_and_the_rest_relayed_in_order() {
    run(async {
        let ((a, client), (b, server)) = (connected().await, connected().await);
        let up = pattern(4, 600_000);
        let (client, server) = (talk(client, up.clone(), 600_000), talk(server, b"ok".to_vec(), 2));
        let header = a.recv().await.unwrap().to_vec();
        b.write_all(header).await.0.unwrap();
        Relay::new().splice().run(&a, &b).await.unwrap();
        assert!(client.join().unwrap() == b"ok" && server.join().unwrap() == up);
    });
}

#[test]
fn a_reset_is_passed_on_as_a_reset() {
    run(async {
        // Often, since the reset may come in the very turn in which the last write is over.
        for round in 0..500 {
            let way = if round % 2 == 0 { Relay::new().copy() } else { Relay::new().splice() };
            let ((a, mut client), (b, mut server)) = (connected().await, connected().await);
            client.write_all(b"abc").unwrap();
            let peers = std::thread::spawn(move || {
                server.read_exact(&mut [0; 3]).unwrap();
                // Closing with something unread is a reset.
                server.write_all(b"unread").unwrap();
                client.peek(&mut [0; 1]).unwrap();
                drop(client);
                let mut all = Vec::new();
                assert_eq!(server.read_to_end(&mut all).unwrap_err().kind(), ErrorKind::ConnectionReset);
            });
            let error = way.run(&a, &b).await.unwrap_err();
            assert_eq!(error.error.kind(), ErrorKind::ConnectionReset, "{error}");
            assert_eq!((error.relayed.there, error.relayed.back), (3, 6), "round {round}");
            peers.join().unwrap();
        }
    });
}

#[test]
fn an_idle_relay_ends_and_a_busy_one_does_not() {
    run(async {
        let ((a, mut client), (b, mut server)) = (connected().await, connected().await);
        let limit = super::support::scaled(Duration::from_millis(300));
        let busy = std::thread::spawn(move || {
            for byte in 0..20 {
                client.write_all(&[byte]).unwrap();
                server.read_exact(&mut [0]).unwrap();
                std::thread::sleep(limit / 15);
            }
            (client, server)
        });
        let error = Relay::new().idle_timeout(limit).run(&a, &b).await.unwrap_err();
        assert_eq!((error.error.kind(), error.relayed.there), (ErrorKind::TimedOut, 20));
        drop(busy.join().unwrap());
    });
}

#[test]
fn a_relay_that_is_dropped_again_and_again_loses_nothing() {
    run(async {
        let mut rng = Rng(26);
        let mut dropped = 0;
        for way in [Relay::new(), Relay::new().copy(), Relay::new().splice()] {
            let ((a, client), (b, server)) = (connected().await, connected().await);
            let (up, down) = (pattern(1, 3 << 20), pattern(2, 1_500_000));
            let (client, server) = (talk(client, up.clone(), 3000), talk(server, down.clone(), 777));
            // Each drop takes place somewhere else; what is under way goes back to where it came from.
            while timeout(Duration::from_micros(rng.below(300)), way.run(&a, &b)).await.is_err() {
                dropped += 1;
            }
            assert!(client.join().unwrap() == down && server.join().unwrap() == up, "{way:?}, {dropped} dropped");
        }
        assert!(dropped > 0);
    });
}

#[test]
fn what_is_left_in_a_pipe_never_reaches_the_next_transfer() {
    run(async {
        for round in 0..5_usize {
            {
                // A peer that does not read: the relay is dropped with its private pipe full.
                let ((a, client), (b, _server)) = (connected().await, connected().await);
                let _client = std::thread::spawn(move || {
                    let mut client = client;
                    let _ = client.write_all(&vec![0xee; 16 << 20]);
                });
                let way = Relay::new().splice();
                assert!(timeout(Duration::from_millis(50), way.run(&a, &b)).await.is_err());
            }
            for _ in 0..4 {
                let ((a, client), (b, server)) = (connected().await, connected().await);
                let (client, server) = (talk(client, pattern(round, 100_000), 50_000), talk(server, Vec::new(), 1));
                Relay::new().splice().run(&a, &b).await.unwrap();
                assert!(client.join().unwrap().is_empty() && server.join().unwrap() == pattern(round, 100_000));
            }
        }
    });
}

#[test]
fn pipes_are_relayed_by_their_halves() {
    run(async {
        let (tx, from) = pipe().unwrap();
        let (to, rx) = pipe().unwrap();
        let (stream, peer) = connected().await;
        let peer = talk(peer, pattern(8, 300_000), 10_000);
        let (read, write) = stream.into_split();
        let whole = async {
            tx.write_all(pattern(9, 200_000)).await.0.unwrap();
            drop(tx);
        };
        let way = Relay::new();
        let (relayed, (), all) = futures::join!(way.run_halves((from, to), (read, write)), whole, read_all(&rx));
        let relayed = relayed.unwrap();
        assert_eq!((relayed.there, relayed.back), (200_000, 300_000));
        assert!(all == pattern(8, 300_000) && peer.join().unwrap() == pattern(9, 200_000));
    });
}

#[test]
fn what_was_in_a_private_pipe_goes_back_to_where_it_came_from() {
    run(async {
        let ((a, client), (b, server)) = (connected().await, connected().await);
        let up = pattern(11, 24 << 20);
        let client = talk(client, up.clone(), 1 << 20);
        let way = Relay::new().splice();
        // Nobody reads at the other side: the private pipe is full when the relay is dropped, again and again.
        for _ in 0..5 {
            assert!(timeout(Duration::from_millis(60), way.run(&a, &b)).await.is_err());
        }
        let server = talk(server, Vec::new(), 1);
        way.run(&a, &b).await.unwrap();
        assert!(client.join().unwrap().is_empty());
        assert!(server.join().unwrap() == up);
    });
}

#[test]
fn bytes_that_go_a_few_at_a_time_are_counted_as_they_go() {
    async fn is_busy(way: Relay) {
        // Small buffers, in which the peer makes a little room all the time and never for a whole piece.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&listener).set_recv_buffer_size(20_000).unwrap();
        let b = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        socket2::SockRef::from(&b).set_send_buffer_size(1).unwrap();
        let (mut server, (a, mut client)) = (listener.accept().unwrap().0, connected().await);
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let reading = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                assert!(server.read(&mut [0; 1024]).unwrap() > 0);
                std::thread::sleep(Duration::from_millis(40));
            }
            server
        });
        let sending = std::thread::spawn(move || {
            let _ = client.write_all(&vec![1; 4 << 20]);
            client
        });
        let limit = super::support::scaled(Duration::from_secs(1));
        let relay = way.idle_timeout(limit);
        let busy = timeout(limit * 7 / 2, relay.run(&a, &b)).await;
        over.store(true, Ordering::Relaxed);
        assert!(busy.is_err(), "{busy:?}");
        let server = reading.join().unwrap();
        drop((a, b, server));
        sending.join().unwrap();
    }
    run(async {
        futures::join!(is_busy(Relay::new().copy()), is_busy(Relay::new()), is_busy(Relay::new().splice()));
    });
}

#[test]
fn a_reset_that_only_a_write_is_told_of_is_no_end_of_the_stream() {
    for (is_swapped, is_relay) in [(false, true), (true, true), (false, false), (true, false)] {
        run(async {
            let ((a, mut client), (b, mut server), (busy, mut peer)) =
                (connected().await, connected().await, connected().await);
            let script = std::thread::spawn(move || {
                let nap = |ms| std::thread::sleep(Duration::from_millis(ms));
                client.write_all(b"half of it").unwrap();
                server.read_exact(&mut [0; 10]).unwrap();
                // The thread of the relay is busy from here on; what comes then is no inline write, as it is two things.
                peer.write_all(b"1").unwrap();
                nap(20);
                server.write_all(b"answer").unwrap();
                peer.write_all(b"2").unwrap();
                nap(60);
                // And again: the write of the answer is queued, and meets the reset before the read does.
                socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
                drop(client);
                server.read(&mut [0; 10])
            });
            let keep_busy = runtime::spawn(async move {
                for _ in 0..2 {
                    busy.read(vec![0; 1]).await.0.unwrap();
                    std::thread::sleep(Duration::from_millis(60));
                }
            });
            let (one, other) = if is_swapped { (&b, &a) } else { (&a, &b) };
            let error = match is_relay {
                true => Relay::new().run(one, other).await.unwrap_err().error,
                false => runtime::io::copy_bidirectional(one, other).await.unwrap_err(),
            };
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            keep_busy.await.unwrap();
            // The program decides then.
            drop((a, b));
            let seen = script.join().unwrap();
            assert!(!is_relay || seen.unwrap_err().kind() == ErrorKind::ConnectionReset, "no clean end");
        });
    }
}

#[test]
fn an_end_that_was_made_elsewhere_is_no_reset() {
    for by_std in [true, false] {
        for connects in [true, false] {
            run(async {
                const LEN: usize = 2 << 20;
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let one = Std::connect(listener.local_addr().unwrap()).unwrap();
                let other = listener.accept().unwrap().0;
                let (ours, mut server) = if connects { (one, other) } else { (other, one) };
                let a = match by_std {
                    true => {
                        (&ours).write_all(b"ask").unwrap();
                        ours.shutdown(Shutdown::Write).unwrap();
                        TcpStream::from_std(ours).unwrap()
                    }
                    false => {
                        let stream = TcpStream::from_std(ours).unwrap();
                        stream.write_all("ask").await.0.unwrap();
                        stream.shutdown(Shutdown::Write).await.unwrap();
                        TcpStream::from_std(stream.into_std().unwrap()).unwrap()
                    }
                };
                let (b, mut client) = connected().await;
                let served = std::thread::spawn(move || {
                    let mut asked = Vec::new();
                    server.read_to_end(&mut asked).unwrap();
                    assert_eq!(asked, b"ask");
                    server.write_all(&vec![7; LEN]).unwrap();
                });
                let reading = std::thread::spawn(move || {
                    // Slow enough for the connection of the server to be over when its end is passed on.
                    std::thread::sleep(Duration::from_millis(50));
                    let mut all = Vec::new();
                    client.read_to_end(&mut all).unwrap();
                    client.shutdown(Shutdown::Write).unwrap();
                    all.len()
                });
                let relayed = relay(&a, &b).await.unwrap();
                assert_eq!(relayed.there, LEN as u64);
                assert_eq!(reading.join().unwrap(), LEN, "by std: {by_std}, connects: {connects}");
                served.join().unwrap();
            });
        }
    }
}

#[test]
fn a_client_that_has_ended_and_is_gone_is_passed_on_whole() {
    for is_relay in [true, false] {
        run(async {
            const LEN: usize = 60_000;
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            socket2::SockRef::from(&listener).set_recv_buffer_size(4096).unwrap();
            let b = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            socket2::SockRef::from(&b).set_send_buffer_size(4096).unwrap();
            let (mut server, (a, mut client)) = (listener.accept().unwrap().0, connected().await);
            // Closed with nothing unread; what comes for it is answered by a reset, behind the end.
            std::thread::spawn(move || client.write_all(&vec![7; LEN]).unwrap()).join().unwrap();
            let served = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                server.write_all(b"!").unwrap();
                std::thread::sleep(Duration::from_millis(50));
                let mut all = Vec::new();
                server.read_to_end(&mut all).unwrap();
                all.len()
            });
            let there = match is_relay {
                true => relay(&a, &b).await.unwrap().there,
                false => runtime::io::copy_bidirectional(&a, &b).await.unwrap().0,
            };
            assert_eq!(there, LEN as u64);
            assert_eq!(served.join().unwrap(), LEN, "relay: {is_relay}");
        });
    }
}
