//! Socket options: each is what was set, on the right socket, and linger never blocks the loop.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use runtime::net::{TcpListener, TcpStream};
use socket2::SockRef;

use crate::peer::{Peer, Ticker, client, ends, listen, ms, pair, run, secs, until};
use crate::support::{fds, in_child};

#[test]
fn options_of_a_stream_are_what_was_set() {
    run(secs(10), async {
        let (stream, _peer) = pair().await;
        for on in [true, false, true] {
            stream.set_nodelay(on).unwrap();
            assert_eq!(stream.nodelay().unwrap(), on);
        }
        stream.set_ttl(42).unwrap();
        assert_eq!(stream.ttl().unwrap(), 42);
        assert!(!stream.keepalive().unwrap());
        stream.set_keepalive(Some(secs(77))).unwrap();
        assert!(stream.keepalive().unwrap());
        assert_eq!(SockRef::from(&stream).tcp_keepalive_time().unwrap(), secs(77));
        stream.set_keepalive(None).unwrap();
        assert!(!stream.keepalive().unwrap());
        stream.set_recv_buffer_size(32 * 1024).unwrap();
        stream.set_send_buffer_size(32 * 1024).unwrap();
        assert_eq!(stream.recv_buffer_size().unwrap(), 64 * 1024, "the kernel doubles it");
        assert_eq!(stream.send_buffer_size().unwrap(), 64 * 1024);
        assert!(stream.take_error().unwrap().is_none());
        for linger in [Some(secs(3)), Some(Duration::ZERO), None] {
            stream.set_linger(linger).unwrap();
            assert_eq!(stream.linger().unwrap(), linger);
        }
    });
}

#[test]
fn options_of_a_listener_are_what_was_set() {
    run(secs(10), async {
        let listener = TcpListener::options().ttl(33).reuse_port(true).bind("127.0.0.1:0").await.unwrap();
        assert_eq!(listener.ttl().unwrap(), 33);
        assert!(SockRef::from(&listener).reuse_port().unwrap());
        assert!(SockRef::from(&listener).reuse_address().unwrap());
        let second = TcpListener::options().reuse_port(true).bind(listener.local_addr().unwrap()).await;
        assert!(second.is_ok(), "a second one on the same port");
        let plain = TcpListener::options().reuse_address(false).bind("127.0.0.1:0").await.unwrap();
        assert!(!SockRef::from(&plain).reuse_address().unwrap());
        assert!(!SockRef::from(&plain).reuse_port().unwrap());
        plain.set_ttl(9).unwrap();
        assert_eq!(plain.ttl().unwrap(), 9);
        let taken = TcpListener::bind(plain.local_addr().unwrap()).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        // Connections inherit it.
        let _peer = client(plain.local_addr().unwrap());
        assert_eq!(plain.accept().await.unwrap().0.ttl().unwrap(), 9);
    });
}

#[test]
fn a_backlog_bounds_what_the_kernel_keeps() {
    run(secs(20), async {
        let listener = TcpListener::options().backlog(1).bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let waiting: Vec<_> = (0..8).map(|_| Peer::connect_timeout(&addr, ms(100))).collect();
        let connected = waiting.iter().filter(|peer| peer.is_ok()).count();
        assert!((1..=3).contains(&connected), "{connected} of a backlog of 1");
        for _ in 0..connected {
            listener.accept().await.unwrap();
        }
    });
}

#[test]
fn connections_are_what_the_listener_binds_to_first() {
    run(secs(10), async {
        let (taken, addr) = listen().await;
        // The first address is in use, the second is free.
        let addrs = [addr, "127.0.0.1:0".parse().unwrap()];
        let listener = TcpListener::bind(&addrs[..]).await.unwrap();
        assert_ne!(listener.local_addr().unwrap(), addr);
        assert_eq!(TcpListener::bind(Vec::new()).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        drop(taken);
    });
}

// ---- linger ----------------------------------------------------------------------------------------------------------------

/// A stream with more unsent than the peer will take.
async fn stuffed() -> (TcpStream, Peer) {
    let (stream, peer) = pair().await;
    stream.set_send_buffer_size(256 * 1024).unwrap();
    loop {
        let write = stream.write(vec![1u8; 64 * 1024]);
        if runtime::time::timeout(ms(20), write).await.is_err() {
            break;
        }
    }
    runtime::task::yield_now().await;
    (stream, peer)
}

#[test]
fn closing_with_a_long_linger_leaves_the_loop_alone() {
    in_child("options::closing_with_a_long_linger_leaves_the_loop_alone", secs(30), || {
        run(secs(20), async {
            let ticker = Ticker::start();
            let mut peers = Vec::new();
            let base = fds();
            for from_std in [false, true] {
                let (stream, peer) = stuffed().await;
                let stream = if from_std {
                    // Set before the runtime knows of it.
                    SockRef::from(&stream).set_linger(Some(secs(1))).unwrap();
                    TcpStream::from_std(stream.into_std().unwrap()).unwrap()
                } else {
                    stream.set_linger(Some(secs(1))).unwrap();
                    stream
                };
                let begun = Instant::now();
                drop(stream);
                assert!(begun.elapsed() < ms(300), "the drop itself waited");
                peers.push(peer);
            }
            runtime::time::sleep(ms(1300)).await;
            let gap = ticker.stop();
            assert!(gap < ms(400), "the loop stood still for {gap:?}");
            drop(peers);
            until("descriptors back to base", secs(5), || fds() <= base).await;
        });
    });
}

#[test]
fn a_split_stream_with_a_long_linger_leaves_the_loop_alone_too() {
    run(secs(20), async {
        let ticker = Ticker::start();
        let (stream, _peer) = stuffed().await;
        stream.set_linger(Some(secs(1))).unwrap();
        let (rx, tx) = stream.into_split();
        drop(tx);
        drop(rx);
        runtime::time::sleep(ms(1200)).await;
        let gap = ticker.stop();
        assert!(gap < ms(400), "the loop stood still for {gap:?}");
    });
}

#[test]
fn a_linger_of_zero_resets_the_connection() {
    run(secs(20), async {
        for _ in 0..20 {
            let (stream, mut peer) = pair().await;
            stream.write_all("gone").await.0.unwrap();
            stream.set_linger(Some(Duration::ZERO)).unwrap();
            drop(stream);
            assert_eq!(ends(&mut peer).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    });
}
