//! Streams: ends, resets, halves, and large transfers to slow peers.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use runtime::net::TcpStream;
use runtime::task::yield_now;
use runtime::time::{sleep, timeout};

use crate::peer::{Ticker, ends, finish, ms, pair, pattern, poll_once, read_len, reset, run, secs, until, within};

/// Signals that are pending for the calling thread, as the kernel's mask.
fn pending_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:")).unwrap();
    u64::from_str_radix(pending.trim(), 16).unwrap()
}

const SIGPIPE: u64 = 1 << 12;

#[test]
fn a_slow_reader_gets_eight_mebibytes_whole() {
    run(secs(60), async {
        let ticker = Ticker::start();
        let (stream, mut peer) = pair().await;
        let reader = std::thread::spawn(move || {
            let (mut all, mut piece) = (Vec::new(), [0; 100_000]);
            loop {
                match peer.read(&mut piece).unwrap() {
                    0 => return all,
                    n => all.extend_from_slice(&piece[..n]),
                }
                std::thread::sleep(ms(1));
            }
        });
        let (_, data) = stream.write_all(pattern(0, 8 << 20)).await.into_result().unwrap();
        drop(stream);
        until("the slow reader is done", secs(50), || reader.is_finished()).await;
        assert!(reader.join().unwrap() == data);
        assert!(ticker.stop() < ms(400));
    });
}

// ---- the tail ----------------------------------------------------------------------------------------------------------

#[test]
fn what_was_written_reaches_the_peer_before_the_end() {
    run(secs(60), async {
        for round in 0..20 {
            let (stream, mut peer) = pair().await;
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                let mut piece = [0; 300_000];
                loop {
                    std::thread::sleep(ms(1));
                    match peer.read(&mut piece).unwrap() {
                        0 => return all,
                        n => all.extend_from_slice(&piece[..n]),
                    }
                }
            });
            stream.write_all(pattern(round, 4 << 20)).await.0.unwrap();
            if round % 2 == 0 {
                stream.shutdown(Shutdown::Write).await.unwrap();
            }
            drop(stream);
            until("the slow reader is done", secs(30), || reader.is_finished()).await;
            assert!(reader.join().unwrap() == pattern(round, 4 << 20), "round {round}");
        }
    });
}

// ---- half-close ----------------------------------------------------------------------------------------------------------

#[test]
fn writing_goes_on_after_the_peer_has_finished() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let reader = std::thread::spawn(move || {
            peer.write_all(b"ping").unwrap();
            finish(&peer);
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        assert_eq!(read_len(&stream, 4).await, b"ping");
        for _ in 0..3 {
            assert_eq!(stream.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
        }
        stream.write_all(pattern(0, 1 << 20)).await.0.unwrap();
        drop(stream);
        assert!(reader.join().unwrap() == pattern(0, 1 << 20));
    });
}

#[test]
fn dropping_the_writing_half_ends_only_that_direction() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let (rx, tx) = stream.into_split();
        tx.write_all("last").await.0.unwrap();
        drop(tx);
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"last");
        peer.write_all(b"still here").unwrap();
        let data = rx.read_exact(Vec::with_capacity(10)).await.into_result().unwrap().1;
        assert_eq!(data, b"still here");

        let (stream, mut peer) = pair().await;
        let (rx, tx) = stream.into_split();
        drop(rx);
        tx.write_all("without a reader").await.0.unwrap();
        tx.shutdown().await.unwrap();
        drop(tx);
        assert_eq!(ends(&mut peer).unwrap(), 16);
    });
}

#[test]
fn joined_halves_end_nothing_and_wrong_halves_come_back() {
    run(secs(20), async {
        let (one, mut peer_one) = pair().await;
        let (two, mut peer_two) = pair().await;
        let ((rx_one, tx_one), (rx_two, tx_two)) = (one.into_split(), two.into_split());
        let wrong = rx_one.reunite(tx_two).unwrap_err();
        assert!(wrong.to_string().contains("same stream"), "{wrong}");
        let runtime::net::ReuniteError(rx_one, tx_two) = wrong;
        let one = rx_one.reunite(tx_one).unwrap();
        let two = rx_two.reunite(tx_two).unwrap();
        for (stream, peer) in [(one, &mut peer_one), (two, &mut peer_two)] {
            peer.set_read_timeout(Some(ms(50))).unwrap();
            assert_eq!(peer.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock, "no end was sent");
            peer.set_read_timeout(Some(secs(10))).unwrap();
            stream.write_all("whole").await.0.unwrap();
            peer.write_all(b"again").unwrap();
            assert_eq!(read_len(&stream, 5).await, b"again");
            drop(stream);
            assert_eq!(ends(peer).unwrap(), 5);
        }
    });
}

#[test]
fn a_residue_survives_split_and_reunite() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let (rx, tx) = stream.into_split();
        let mut waits = Box::pin(rx.read_exact(Vec::with_capacity(100)));
        assert!(poll_once(waits.as_mut()).await.is_pending());
        yield_now().await;
        peer.write_all(b"half of").unwrap();
        yield_now().await;
        drop(waits);
        let stream = rx.reunite(tx).unwrap();
        peer.write_all(b" a word").unwrap();
        let (rx, _tx) = stream.into_split();
        let data = rx.read_exact(Vec::with_capacity(14)).await.into_result().unwrap().1;
        assert_eq!(data, b"half of a word");
    });
}

// ---- ends and resets -------------------------------------------------------------------------------------------------------

#[test]
fn shutdown_twice_or_after_a_reset_is_harmless() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        stream.shutdown(Shutdown::Write).await.unwrap();
        stream.shutdown(Shutdown::Write).await.unwrap();
        assert_eq!(ends(&mut peer).unwrap(), 0);
        stream.shutdown(Shutdown::Both).await.unwrap();

        let (stream, peer) = pair().await;
        reset(peer);
        // What std says: the connection is gone.
        assert_eq!(stream.shutdown(Shutdown::Write).await.unwrap_err().kind(), ErrorKind::NotConnected);
        drop(stream);

        let (stream, _peer) = pair().await;
        stream.shutdown(Shutdown::Read).await.unwrap();
        assert_eq!(stream.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
        stream.write_all("fine").await.0.unwrap();
    });
}

#[test]
fn shutting_down_ends_a_read_that_waits() {
    run(secs(20), async {
        for how in [Shutdown::Read, Shutdown::Both] {
            let (stream, _peer) = pair().await;
            let mut read = Box::pin(stream.read(Vec::with_capacity(8)));
            assert!(poll_once(read.as_mut()).await.is_pending());
            yield_now().await;
            stream.shutdown(how).await.unwrap();
            assert_eq!(within(secs(2), "the read that waited", read).await.0.unwrap(), 0);
        }
    });
}

#[test]
fn a_reset_is_an_error_and_an_end_is_an_end() {
    run(secs(20), async {
        for _ in 0..20 {
            let (stream, peer) = pair().await;
            // Unread data turns the peer's close into a reset.
            stream.write_all("never read").await.0.unwrap();
            drop(peer);
            assert_eq!(stream.read(Vec::with_capacity(8)).await.0.unwrap_err().kind(), ErrorKind::ConnectionReset);
            let kind = stream.write("x").await.0.unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));

            let (stream, peer) = pair().await;
            drop(peer);
            for _ in 0..3 {
                assert_eq!(stream.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
            }
        }
    });
}

#[test]
fn a_reset_in_the_middle_of_read_exact_is_no_clean_end() {
    run(secs(20), async {
        for round in 0..30 {
            let (stream, mut peer) = pair().await;
            let mut exact = Box::pin(stream.read_exact(Vec::with_capacity(100)));
            assert!(poll_once(exact.as_mut()).await.is_pending());
            if round % 2 == 0 {
                yield_now().await;
            }
            peer.write_all(b"part").unwrap();
            assert!(poll_once(exact.as_mut()).await.is_pending());
            yield_now().await;
            reset(peer);
            let runtime::io::BufResult(result, data) = exact.await;
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionReset, "round {round}");
            assert_eq!(data, b"part");
        }
    });
}

#[test]
fn read_exact_says_when_the_stream_is_too_short_and_returns_what_came() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let dribble = std::thread::spawn(move || {
            for byte in pattern(0, 500) {
                peer.write_all(&[byte]).unwrap();
            }
            finish(&peer);
            peer
        });
        let data = stream.read_exact(vec![9; 300]).await.into_result().unwrap().1;
        assert_eq!(data, pattern(0, 300));
        let runtime::io::BufResult(result, data) = stream.read_exact(Vec::with_capacity(300)).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(data, pattern(300, 200));
        drop(dribble.join().unwrap());
    });
}

#[test]
fn writes_to_a_gone_peer_are_errors_without_any_sigpipe() {
    run(secs(20), async {
        // Has the runtime block SIGPIPE on this thread: were one raised from here on, it would stay pending.
        let (tx, rx) = runtime::pipe::pipe().unwrap();
        drop(rx);
        assert_eq!(tx.write("x").await.0.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(pending_signals() & SIGPIPE, 0, "the pipe's own was consumed");
        for round in 0..10 {
            let (stream, peer) = pair().await;
            reset(peer);
            if round % 2 == 0 {
                // Through the ring rather than inline: a turn that brought more than one completion.
                let (one, mut one_peer) = pair().await;
                let (two, mut two_peer) = pair().await;
                one_peer.write_all(b"1").unwrap();
                two_peer.write_all(b"2").unwrap();
                let (a, b) = futures::join!(one.read(Vec::with_capacity(1)), two.read(Vec::with_capacity(1)));
                assert_eq!(a.0.unwrap() + b.0.unwrap(), 2);
            }
            for _ in 0..3 {
                let kind = stream.write("x").await.0.unwrap_err().kind();
                assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
                let kind = stream.write_vectored(vec!["x", "y"]).await.0.unwrap_err().kind();
                assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
                assert!(stream.write_all(vec![0; 1 << 20]).await.0.is_err());
                assert!(stream.write_all_vectored(vec!["x", "y"]).await.0.is_err());
            }
            assert!(stream.shutdown(Shutdown::Write).await.is_err());
        }
        assert_eq!(pending_signals() & SIGPIPE, 0);
    });
    assert_eq!(pending_signals() & SIGPIPE, 0);
}

// ---- nothing to read into --------------------------------------------------------------------------------------------------

#[test]
fn a_read_without_room_takes_nothing() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        assert_eq!(within(secs(1), "no room, no data", stream.read(Vec::new())).await.0.unwrap(), 0);
        assert_eq!(within(secs(1), "no room, no data", stream.peek([0u8; 0])).await.0.unwrap(), 0);
        within(secs(1), "no room, no data", stream.read_exact(Vec::new())).await.0.unwrap();
        peer.write_all(b"abc").unwrap();
        assert_eq!(stream.read(Vec::new()).await.0.unwrap(), 0);
        assert_eq!(read_len(&stream, 3).await, b"abc");
    });
}

#[test]
fn a_buffers_length_is_what_was_read() {
    use runtime::io::IoBuf;
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        for buf in [vec![7; 10], Vec::with_capacity(10), vec![7; 3]] {
            let room = buf.capacity();
            peer.write_all(b"abc").unwrap();
            let (n, data) = stream.read(buf).await.into_result().unwrap();
            assert_eq!((n, &data[..], data.capacity()), (3, &b"abc"[..], room));
        }
        peer.write_all(b"abc").unwrap();
        let (n, part) = stream.read(vec![7; 10].slice(3..6)).await.into_result().unwrap();
        assert_eq!((n, part.into_inner()), (3, [&[7; 3][..], b"abc", &[7; 4]].concat()));
        peer.write_all(b"ab").unwrap();
        let (n, array) = stream.read([7u8; 4]).await.into_result().unwrap();
        assert_eq!((n, &array), (2, b"ab\x07\x07"));
        // Behind what it holds already.
        peer.write_all(b"cd").unwrap();
        let mut buf = Vec::with_capacity(8);
        buf.extend_from_slice(b"ab");
        let (n, part) = stream.read(buf.slice(2..)).await.into_result().unwrap();
        assert_eq!((n, part.into_inner()), (2, b"abcd".to_vec()));
    });
}

// ---- connect ---------------------------------------------------------------------------------------------------------------

#[test]
fn a_connect_to_nobody_is_refused_with_the_systems_number() {
    run(secs(20), async {
        let bound = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        bound.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        let addr = bound.local_addr().unwrap().as_socket().unwrap();
        for _ in 0..100 {
            let error = TcpStream::connect(addr).await.unwrap_err();
            assert_eq!((error.raw_os_error(), error.kind()), (Some(111), ErrorKind::ConnectionRefused));
        }
        let started = futures::future::join_all((0..50).map(|_| TcpStream::connect(addr))).await;
        assert!(started.iter().all(|result| result.as_ref().is_err_and(|error| error.raw_os_error() == Some(111))));
    });
}

#[test]
fn a_connect_goes_on_to_the_address_that_listens() {
    run(secs(20), async {
        let bound = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        bound.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        let dead = bound.local_addr().unwrap().as_socket().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addrs = [dead, listener.local_addr().unwrap()];
        let stream = TcpStream::connect(&addrs[..]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addrs[1]);
        let (_, from) = listener.accept().unwrap();
        assert_eq!(stream.local_addr().unwrap(), from);
        assert_eq!(TcpStream::connect(vec![dead, dead]).await.unwrap_err().raw_os_error(), Some(111));
        assert_eq!(TcpStream::connect(Vec::new()).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_stream_dropped_with_operations_in_flight_closes() {
    run(secs(20), async {
        for _ in 0..50 {
            let (stream, mut peer) = pair().await;
            let mut read = Box::pin(async {
                let stream = stream;
                let mut write = Box::pin(stream.write_all(vec![0u8; 8 << 20]));
                assert!(poll_once(write.as_mut()).await.is_pending());
                let _ = stream.read(Vec::with_capacity(8)).await;
            });
            assert!(timeout(ms(1), read.as_mut()).await.is_err());
            drop(read);
            sleep(ms(1)).await;
            // Some of the write, then an end or a reset; never a hang.
            let _ = ends(&mut peer);
        }
        until("nothing is in flight", secs(2), || runtime::testing::in_flight() == 0).await;
    });
}
