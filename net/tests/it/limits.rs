//! Many connections: nothing is left over, nobody starves, and a second wave needs no more than the first.

use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::time::{sleep, timeout};

use crate::peer::{Peer, client, echo, listen, may_open, ms, pair, ping, resident, run, secs, until};
use crate::support::{fds, in_child, threads};

/// Each of `count` clients has one KiB echoed and closes.
async fn wave(addr: std::net::SocketAddr, count: usize, open: &Rc<Cell<usize>>) {
    let clients = std::thread::spawn(move || {
        let mut peers: Vec<Peer> = (0..count).map(|_| client(addr)).collect();
        let sent = crate::peer::pattern(count, 1024);
        for peer in &mut peers {
            peer.write_all(&sent).unwrap();
        }
        for peer in &mut peers {
            let mut back = vec![0; 1024];
            peer.read_exact(&mut back).unwrap();
            assert_eq!(back, sent);
        }
    });
    until("the wave is over", secs(60), || clients.is_finished()).await;
    clients.join().unwrap();
    until("all connections are served to their end", secs(5), || open.get() == 0).await;
}

#[test]
fn two_waves_of_two_thousand_connections_leave_nothing() {
    in_child("limits::two_waves_of_two_thousand_connections_leave_nothing", secs(150), || {
        run(secs(140), async {
            let (listener, addr) = listen().await;
            let open = Rc::new(Cell::new(0));
            let counted = Rc::clone(&open);
            let server = runtime::spawn(async move {
                let mut incoming = listener.incoming();
                while let Some(stream) = incoming.next().await {
                    let open = Rc::clone(&counted);
                    open.set(open.get() + 1);
                    runtime::spawn(async move {
                        echo(stream.unwrap()).await.unwrap();
                        open.set(open.get() - 1);
                    });
                }
            });
            wave(addr, 10, &open).await;
            let base = (fds(), runtime::testing::in_flight());
            wave(addr, 2000, &open).await;
            let first = resident();
            until("descriptors back to base", secs(2), || fds() == base.0).await;
            wave(addr, 2000, &open).await;
            let second = resident();
            until("descriptors back to base", secs(2), || fds() == base.0).await;
            assert!(second * 10 <= first * 11, "{first} bytes after the first wave, {second} after the second");
            assert_eq!(runtime::testing::in_flight(), base.1);
            assert_eq!(runtime::metrics().tasks, 1, "the server's");
            server.abort();
        });
    });
}

#[test]
fn nine_thousand_connections_at_once_echo_a_byte_each() {
    in_child("limits::nine_thousand_connections_at_once_echo_a_byte_each", secs(150), || {
        const COUNT: usize = 9000;
        if !may_open(COUNT) {
            return;
        }
        run(secs(140), async {
            let (listener, addr) = listen().await;
            let open = Rc::new(Cell::new(0));
            let counted = Rc::clone(&open);
            let server = runtime::spawn(async move {
                let mut incoming = listener.incoming();
                while let Some(stream) = incoming.next().await {
                    let open = Rc::clone(&counted);
                    open.set(open.get() + 1);
                    runtime::spawn(async move {
                        let _ = echo(stream.unwrap()).await;
                        open.set(open.get() - 1);
                    });
                }
            });
            let base = (fds(), threads());
            let connecting = std::thread::spawn(move || (0..COUNT).map(|_| client(addr)).collect::<Vec<_>>());
            until("all are connected", secs(60), || connecting.is_finished()).await;
            let mut peers = connecting.join().unwrap();
            until("all are accepted", secs(20), || open.get() == COUNT).await;
            assert!(threads() <= base.1 + 1, "no kernel workers: {} threads", threads());
            let pinging = std::thread::spawn(move || {
                for (i, peer) in peers.iter_mut().enumerate() {
                    ping(peer, i as u8);
                }
                peers
            });
            until("all have echoed", secs(60), || pinging.is_finished()).await;
            drop(pinging.join().unwrap());
            until("all are closed", secs(20), || open.get() == 0 && fds() == base.0).await;
            server.abort();
        });
    });
}

#[test]
fn a_firehose_starves_nobody() {
    run(secs(60), async {
        let (listener, addr) = listen().await;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let firehose = std::thread::spawn(move || {
            let mut peer = client(addr);
            peer.write_all(&[1]).unwrap();
            let data = vec![1; 256 * 1024];
            while !stopped.load(Ordering::Relaxed) && peer.write_all(&data).is_ok() {}
        });
        let swallowed = Rc::new(Cell::new(0));
        let count = Rc::clone(&swallowed);
        runtime::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let count = Rc::clone(&count);
                runtime::spawn(async move {
                    let (_, first) = stream.read(Vec::with_capacity(1)).await.into_result().unwrap();
                    if first == [1] {
                        let mut buf = Vec::with_capacity(16 * 1024);
                        loop {
                            let (n, data) = stream.read(buf).await.into_result().unwrap();
                            if n == 0 {
                                return;
                            }
                            count.set(count.get() + n);
                            buf = data;
                        }
                    }
                    stream.write_all(first).await.0.unwrap();
                    let _ = echo(stream).await;
                });
            }
        });
        until("the firehose runs", secs(5), || swallowed.get() > 1 << 20).await;
        let clients: Vec<_> = (0..4u8)
            .map(|i| {
                std::thread::spawn(move || {
                    let mut peer = client(addr);
                    for round in 0..50 {
                        ping(&mut peer, 10 + i * 50 + round);
                    }
                })
            })
            .collect();
        until("the others are served", secs(20), || clients.iter().all(std::thread::JoinHandle::is_finished)).await;
        clients.into_iter().for_each(|client| client.join().unwrap());
        let before = swallowed.get();
        until("and the firehose goes on", secs(5), || swallowed.get() > before).await;
        stop.store(true, Ordering::Relaxed);
        until("the firehose ends", secs(10), || firehose.is_finished()).await;
        firehose.join().unwrap();
    });
}

#[test]
fn a_writer_that_is_always_ready_starves_nobody() {
    run(secs(60), async {
        // Writes that complete inline spend the task's budget.
        let (sink, mut drain) = pair().await;
        let draining = std::thread::spawn(move || {
            let mut piece = vec![0; 1 << 20];
            while drain.read(&mut piece).unwrap() > 0 {}
        });
        let writer = runtime::spawn(async move {
            loop {
                sink.write_all("a few bytes").await.0.unwrap();
            }
        });
        let (stream, mut peer) = pair().await;
        let server = runtime::spawn(echo(stream));
        let pinging = std::thread::spawn(move || (0..200).for_each(|round| ping(&mut peer, round as u8)));
        until("the other connection is served", secs(20), || pinging.is_finished()).await;
        pinging.join().unwrap();
        server.await.unwrap().unwrap();
        writer.abort();
        until("the drain ends", secs(10), || draining.is_finished()).await;
        draining.join().unwrap();
    });
}

// ---- threads ---------------------------------------------------------------------------------------------------------------

#[test]
fn idle_and_waiting_sockets_need_no_threads() {
    in_child("limits::idle_and_waiting_sockets_need_no_threads", secs(60), || {
        run(secs(50), async {
            let (listener, addr) = listen().await;
            let base = threads();
            let mut peers = Vec::new();
            for _ in 0..500 {
                peers.push(client(addr));
                let (stream, _) = listener.accept().await.unwrap();
                runtime::spawn(async move {
                    let stream = Rc::new(stream);
                    let full = Rc::clone(&stream);
                    // More than the peer takes: both directions wait.
                    runtime::spawn(async move {
                        let _ = full.write_all(vec![0; 6 << 20]).await;
                    });
                    let _ = stream.read(Vec::with_capacity(8)).await;
                });
            }
            sleep(ms(300)).await;
            assert!(threads() <= base, "{} threads, {base} before", threads());
            drop(peers);
        });
    });
}

#[test]
fn connections_come_and_go_for_a_while_without_a_trace() {
    in_child("limits::connections_come_and_go_for_a_while_without_a_trace", secs(90), || {
        run(secs(80), async {
            let (listener, addr) = listen().await;
            let base = fds();
            let turn = |rounds: usize| {
                let listener = &listener;
                async move {
                    for i in 0..rounds {
                        let (ours, theirs) = futures::join!(TcpStream::connect(addr), listener.accept());
                        let (ours, theirs) = (ours.unwrap(), theirs.unwrap().0);
                        match i % 4 {
                            0 => drop((ours, theirs)),
                            1 => {
                                let read = runtime::time::timeout(ms(0), theirs.read(Vec::with_capacity(1024)));
                                assert!(read.await.is_err());
                            }
                            2 => {
                                ours.write_all("x").await.0.unwrap();
                                let (rx, tx) = theirs.into_split();
                                assert_eq!(rx.read(Vec::with_capacity(8)).await.0.unwrap(), 1);
                                drop(tx);
                                assert_eq!(ours.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
                            }
                            _ => {
                                ours.set_linger(Some(std::time::Duration::ZERO)).unwrap();
                                drop(ours);
                                assert!(theirs.read(Vec::with_capacity(8)).await.0.is_err());
                            }
                        }
                    }
                }
            };
            turn(1000).await;
            let first = resident();
            turn(4000).await;
            until("descriptors back to base", secs(2), || fds() == base).await;
            let grown = resident().saturating_sub(first);
            assert!(grown < 2 << 20, "{grown} bytes more");
            assert!(runtime::testing::in_flight() <= 1, "the accept at most");
        });
    });
}

/// What the documentation of registered buffers advises against peers that do not read.
#[test]
fn a_stream_that_does_not_linger_gives_registered_buffers_back_at_once() {
    run(secs(30), async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&listener).set_recv_buffer_size(4096).unwrap();
        let set = runtime::io::FixedBufs::new(1, 1 << 20).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        stream.set_zc_threshold(1);
        let _peer = listener.accept().unwrap();
        let mut buf = set.lease().await;
        buf.resize(1 << 20);
        assert!(timeout(ms(50), stream.write_all_zc(buf)).await.is_err(), "the peer does not read");
        assert!(set.try_lease().is_none(), "the kernel has it");
        stream.set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        timeout(secs(10), set.lease()).await.expect("it comes back");
    });
}
