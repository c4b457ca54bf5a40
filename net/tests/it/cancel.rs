//! Dropped futures: no byte is lost, repeated or reordered, and nothing stays behind.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use runtime::Builder;
use runtime::net::{TcpListener, TcpStream};
use runtime::task::yield_now;
use runtime::time::{sleep, timeout};

use crate::peer::{
    Peer, ends, finish, ms, pair, pattern, poll_once, read_len, reset, run, secs, start_and_drop, until, within,
};
use crate::support::{Rng, fds, in_child, watchdog};

// ---- bytes of dropped reads ----------------------------------------------------------------------------------------------

#[test]
fn read_timeouts_lose_no_byte_of_a_counter_stream() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            let mut rng = Rng(99);
            let mut sent = 0;
            while !stopped.load(Ordering::Relaxed) {
                let piece = pattern(sent, 1 + rng.below(700) as usize);
                peer.write_all(&piece).unwrap();
                sent += piece.len();
                if rng.below(3) == 0 {
                    std::thread::sleep(Duration::from_micros(rng.below(300)));
                }
            }
            finish(&peer);
            (sent, peer)
        });
        let mut rng = Rng(1);
        let (mut at, mut dropped) = (0, 0);
        let begun = std::time::Instant::now();
        loop {
            if begun.elapsed() > secs(1) {
                stop.store(true, Ordering::Relaxed);
            }
            let limit = Duration::from_micros(rng.below(200));
            let Ok(result) = timeout(limit, stream.read(Vec::with_capacity(1 + rng.below(2000) as usize))).await else {
                dropped += 1;
                continue;
            };
            let (n, data) = result.into_result().unwrap();
            if n == 0 {
                break;
            }
            assert_eq!(data, pattern(at, n), "at {at} after {dropped} dropped reads");
            at += n;
        }
        assert_eq!(writer.join().unwrap().0, at);
        assert!(dropped > 100, "only {dropped} reads were dropped");
    });
}

#[test]
fn reads_of_every_kind_are_dropped_at_random_and_the_order_holds() {
    run(secs(60), async {
        for seed in 1..=30 {
            let (stream, mut peer) = pair().await;
            let total = 60_000;
            let writer = std::thread::spawn(move || {
                let mut rng = Rng(seed * 7919);
                let mut sent = 0;
                while sent < total {
                    let n = (1 + rng.below(3000) as usize).min(total - sent);
                    peer.write_all(&pattern(sent, n)).unwrap();
                    sent += n;
                    if rng.below(4) == 0 {
                        std::thread::sleep(Duration::from_micros(rng.below(200)));
                    }
                }
                finish(&peer);
                peer
            });
            let mut rng = Rng(seed);
            let mut at = 0;
            while at < total {
                let size = 1 + rng.below(5000) as usize;
                let limit = Duration::from_micros(rng.below(150));
                match rng.below(5) {
                    0 => {
                        let read = timeout(limit, stream.read_exact(Vec::with_capacity(size)));
                        let Ok(result) = read.await else { continue };
                        // Short only at the end, where the error says so and the buffer has what came.
                        let (ok, data) = (result.0.is_ok(), result.1);
                        assert!(ok || at + data.len() == total);
                        assert_eq!(data, pattern(at, data.len()), "exact at {at}, seed {seed}");
                        at += data.len();
                    }
                    1 => {
                        let bufs = vec![Vec::with_capacity(1 + size / 3), Vec::with_capacity(size)];
                        let Ok(result) = timeout(limit, stream.read_vectored(bufs)).await else { continue };
                        let (n, bufs) = result.into_result().unwrap();
                        assert_eq!(bufs.concat(), pattern(at, n), "vectored at {at}, seed {seed}");
                        at += n;
                    }
                    2 => {
                        let Ok(result) = timeout(limit, stream.peek(Vec::with_capacity(size))).await else { continue };
                        let (n, data) = result.into_result().unwrap();
                        assert_eq!(data, pattern(at, n), "peeked at {at}, seed {seed}");
                    }
                    3 => {
                        // Ready at once when there is a residue.
                        let Poll::Ready(result) = start_and_drop(stream.read(Vec::with_capacity(512))).await else {
                            continue;
                        };
                        let (n, data) = result.into_result().unwrap();
                        assert_eq!(data, pattern(at, n), "residue at {at}, seed {seed}");
                        at += n;
                    }
                    _ => {
                        let Ok(result) = timeout(limit, stream.read(Vec::with_capacity(size))).await else { continue };
                        let (n, data) = result.into_result().unwrap();
                        assert!(n > 0, "the end came early, at {at} of {total}, seed {seed}");
                        assert_eq!(data, pattern(at, n), "plain at {at}, seed {seed}");
                        at += n;
                    }
                }
            }
            assert_eq!(stream.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
            drop(writer.join().unwrap());
        }
    });
}

#[test]
fn read_exact_dropped_midway_gives_everything_back_in_order() {
    run(secs(60), async {
        let mut rng = Rng(4711);
        for round in 0..300 {
            let (stream, mut peer) = pair().await;
            let len = 1 + rng.below(40_000) as usize;
            let wanted = len + 1 + rng.below(1000) as usize;
            let mut exact = Box::pin(stream.read_exact(Vec::with_capacity(wanted)));
            let mut sent = 0;
            while sent < len {
                let n = (1 + rng.below(20_000) as usize).min(len - sent);
                peer.write_all(&pattern(sent, n)).unwrap();
                sent += n;
                for _ in 0..rng.below(4) {
                    assert!(poll_once(exact.as_mut()).await.is_pending(), "round {round}");
                    yield_now().await;
                }
            }
            drop(exact);
            assert_eq!(read_len(&stream, len).await, pattern(0, len), "round {round}");
            // And nothing twice.
            peer.write_all(b"next").unwrap();
            assert_eq!(read_len(&stream, 4).await, b"next", "round {round}");
        }
    });
}

#[test]
fn many_dropped_reads_in_a_row_keep_one_order() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        let mut sent = 0;
        let mut read = 0;
        let mut rng = Rng(5);
        for _ in 0..500 {
            for _ in 0..rng.below(4) {
                // Dropped once it has completed in the kernel, but before anybody looked.
                let mut waits = Box::pin(stream.read(Vec::with_capacity(1 + rng.below(64) as usize)));
                if let Poll::Ready(result) = poll_once(waits.as_mut()).await {
                    let (n, data) = result.into_result().unwrap();
                    assert_eq!(data, pattern(read, n), "residue at {read}");
                    read += n;
                    continue;
                }
                let n = 1 + rng.below(100) as usize;
                peer.write_all(&pattern(sent, n)).unwrap();
                sent += n;
                if rng.below(2) == 0 {
                    yield_now().await;
                }
                drop(waits);
                while read < sent && rng.below(3) > 0 {
                    let (n, data) =
                        stream.read(Vec::with_capacity(1 + rng.below(80) as usize)).await.into_result().unwrap();
                    assert_eq!(data, pattern(read, n), "at {read}");
                    read += n;
                }
            }
            let rest = read_len(&stream, sent - read).await;
            assert_eq!(rest, pattern(read, sent - read), "at {read}");
            read = sent;
        }
    });
}

#[test]
fn a_read_that_comes_while_an_orphan_settles_does_not_overtake_it() {
    run(secs(20), async {
        for _ in 0..500 {
            let (stream, mut peer) = pair().await;
            let mut first = Box::pin(stream.read(Vec::with_capacity(3)));
            assert!(poll_once(first.as_mut()).await.is_pending());
            yield_now().await;
            peer.write_all(b"abcdef").unwrap();
            drop(first);
            let (n, data) = stream.read(Vec::with_capacity(6)).await.into_result().unwrap();
            let rest = read_len(&stream, 6 - n).await;
            assert_eq!([data, rest].concat(), b"abcdef");
        }
    });
}

// ---- ruling 5: ends of orphans -------------------------------------------------------------------------------------------

#[test]
fn a_reset_that_an_orphaned_read_met_is_the_next_reads_error() {
    run(secs(20), async {
        for round in 0..100 {
            let (stream, peer) = pair().await;
            let mut read = Box::pin(stream.read(Vec::with_capacity(8)));
            assert!(poll_once(read.as_mut()).await.is_pending());
            yield_now().await;
            reset(peer);
            if round % 2 == 0 {
                yield_now().await;
            }
            drop(read);
            let error = stream.read(Vec::with_capacity(8)).await.0.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "round {round}");
            assert_eq!(stream.read(Vec::with_capacity(8)).await.0.unwrap(), 0, "and then the end, as in std");
        }
    });
}

#[test]
fn data_and_then_a_reset_met_by_an_orphan_come_in_that_order() {
    run(secs(20), async {
        for round in 0..100 {
            let (stream, mut peer) = pair().await;
            let mut read = Box::pin(stream.read_exact(Vec::with_capacity(64)));
            assert!(poll_once(read.as_mut()).await.is_pending());
            yield_now().await;
            peer.write_all(b"last words").unwrap();
            yield_now().await;
            reset(peer);
            if round % 2 == 0 {
                yield_now().await;
            }
            drop(read);
            assert_eq!(read_len(&stream, 10).await, b"last words");
            let error = stream.read(Vec::with_capacity(8)).await.0.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "round {round}");
        }
    });
}

#[test]
fn an_end_that_an_orphaned_read_met_is_an_end_for_every_later_read() {
    run(secs(20), async {
        for _ in 0..50 {
            let (stream, peer) = pair().await;
            let mut read = Box::pin(stream.read(Vec::with_capacity(8)));
            assert!(poll_once(read.as_mut()).await.is_pending());
            drop(peer);
            yield_now().await;
            drop(read);
            for _ in 0..3 {
                assert_eq!(stream.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
            }
        }
    });
}

#[test]
fn an_error_that_an_orphaned_write_met_is_the_next_writes_error() {
    run(secs(20), async {
        for round in 0..50 {
            let (stream, peer) = pair().await;
            let mut write = Box::pin(stream.write_all(vec![0u8; 16 << 20]));
            assert!(poll_once(write.as_mut()).await.is_pending());
            yield_now().await;
            reset(peer);
            if round % 2 == 0 {
                yield_now().await;
                yield_now().await;
            }
            drop(write);
            let error = stream.write("more").await.0.unwrap_err();
            let kind = error.kind();
            assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "round {round}: {error}");
        }
    });
}

#[test]
fn a_later_write_never_overtakes_a_dropped_one() {
    run(secs(60), async {
        let mut rng = Rng(31);
        for round in 0..40 {
            let (stream, mut peer) = pair().await;
            let big = 4 << 20;
            let mut write = Box::pin(stream.write_all(vec![b'a'; big]));
            assert!(poll_once(write.as_mut()).await.is_pending());
            for _ in 0..rng.below(3) {
                yield_now().await;
            }
            drop(write);
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                peer.read_to_end(&mut all).unwrap();
                all
            });
            stream.write_all(vec![b'b'; 100_000]).await.0.unwrap();
            drop(stream);
            let all = reader.join().unwrap();
            let first_b = all.iter().position(|&byte| byte == b'b').unwrap();
            assert!(first_b <= big && all.len() == first_b + 100_000, "round {round}: {first_b} of {}", all.len());
            assert!(all[first_b..].iter().all(|&byte| byte == b'b'), "round {round}: an old byte behind a new one");
        }
    });
}

// ---- siblings ----------------------------------------------------------------------------------------------------------

#[test]
fn a_timeout_cancels_only_its_own_read() {
    run(secs(20), async {
        for _ in 0..20 {
            let (a, _quiet) = pair().await;
            let (b, mut peer) = pair().await;
            let (timed, other) = futures::join!(
                async {
                    let timed = timeout(ms(10), a.read(Vec::with_capacity(8))).await;
                    peer.write_all(b"for b").unwrap();
                    timed
                },
                b.read(Vec::with_capacity(8)),
            );
            assert!(timed.is_err());
            assert_eq!(other.into_result().unwrap().1, b"for b");
        }
    });
}

#[test]
fn timing_out_a_read_leaves_the_write_on_the_same_socket_alone() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        let data = pattern(0, 8 << 20);
        let reader = std::thread::spawn(move || {
            std::thread::sleep(ms(50));
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        let reads = async {
            for _ in 0..20 {
                assert!(timeout(ms(2), stream.read(Vec::with_capacity(8))).await.is_err());
            }
        };
        let (written, ()) = futures::join!(stream.write_all(data), reads);
        let (result, data) = (written.0, written.1);
        result.unwrap();
        drop(stream);
        // The end is sent once the last dropped read has let go of the socket: let the runtime turn.
        until("the reader is done", secs(20), || reader.is_finished()).await;
        assert!(reader.join().unwrap() == data);
    });
}

// ---- what dropped operations hold -----------------------------------------------------------------------------------------

#[test]
fn dropped_connects_and_accepts_leave_no_descriptor() {
    in_child("cancel::dropped_connects_and_accepts_leave_no_descriptor", secs(60), || {
        run(secs(50), async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let base = fds();
            for round in 0..2000 {
                assert!(start_and_drop(TcpStream::connect(addr)).await.is_pending());
                if round % 50 == 0 {
                    let _ = start_and_drop(listener.incoming().next()).await;
                    yield_now().await;
                }
                // What did connect is in the listener's queue: taken and closed here.
                while let Some(Ok(accepted)) = listener.incoming().next().now_or_never().flatten() {
                    drop(accepted);
                }
            }
            drop(listener);
            until("descriptors back to base", secs(2), || fds() < base + 1).await;
        });
    });
}

#[test]
fn a_connect_that_times_out_leaves_nothing_and_the_next_works() {
    in_child("cancel::a_connect_that_times_out_leaves_nothing_and_the_next_works", secs(60), || {
        run(secs(50), async {
            let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
            full.listen(0).unwrap();
            let addr = full.local_addr().unwrap().as_socket().unwrap();
            let fill: Vec<_> = (0..2).map(|_| Peer::connect_timeout(&addr, ms(100))).collect();
            let base = fds();
            for _ in 0..3 {
                let connect = timeout(ms(200), TcpStream::connect(addr)).await;
                assert!(connect.is_err(), "the queue is full");
            }
            until("descriptors back to base", secs(2), || fds() == base).await;
            let (stream, mut peer) = pair().await;
            stream.write_all("fine").await.0.unwrap();
            drop(stream);
            assert_eq!(ends(&mut peer).unwrap(), 4);
            drop(fill);
        });
    });
}

#[test]
fn a_hundred_thousand_dropped_reads_leave_no_slot_and_no_memory() {
    in_child("cancel::a_hundred_thousand_dropped_reads_leave_no_slot_and_no_memory", secs(120), || {
        run(secs(110), async {
            let (stream, mut peer) = pair().await;
            let (mut sent, mut read) = (0, 0);
            let mut base = 0;
            for round in 0..100_000 {
                let mut waits = Box::pin(stream.read(Vec::with_capacity(64)));
                match poll_once(waits.as_mut()).await {
                    Poll::Ready(result) => read += result.0.unwrap(),
                    Poll::Pending if round % 10 == 0 => {
                        peer.write_all(&pattern(sent, 16)).unwrap();
                        sent += 16;
                        yield_now().await;
                    }
                    Poll::Pending => {}
                }
                drop(waits);
                if round % 100 == 99 {
                    read += read_len(&stream, sent - read).await.len();
                    yield_now().await;
                    assert!(runtime::testing::in_flight() <= 2, "round {round}: {}", runtime::testing::in_flight());
                }
                if round == 2000 {
                    base = crate::peer::resident();
                }
            }
            assert!(read == sent && sent > 10_000);
            let grown = crate::peer::resident().saturating_sub(base);
            assert!(grown < 4 << 20, "{grown} bytes more after the warm-up");
        });
    });
}

#[test]
fn a_fresh_operation_after_a_dropped_one_works_at_once() {
    run(secs(60), async {
        let (stream, mut peer) = pair().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        for round in 0..1000 {
            assert!(start_and_drop(stream.read(Vec::with_capacity(1))).await.is_pending());
            peer.write_all(b"r").unwrap();
            assert_eq!(within(secs(1), "a read", stream.read(Vec::with_capacity(1))).await.0.unwrap(), 1);

            let _ = start_and_drop(stream.write("w")).await;
            within(secs(1), "a write", stream.write_all("w")).await.0.unwrap();

            let _ = start_and_drop(TcpStream::connect(addr)).await;
            let ours = within(secs(1), "a connect", TcpStream::connect(addr)).await.unwrap();
            let _ = start_and_drop(listener.incoming().next()).await;
            loop {
                let (theirs, from) = within(secs(1), "an accept", listener.accept()).await.unwrap();
                if from == ours.local_addr().unwrap() {
                    drop(theirs);
                    break;
                }
            }
            if round % 100 == 0 {
                sleep(ms(1)).await;
            }
        }
    });
}

#[test]
fn a_forgotten_read_keeps_its_direction_only_and_ends_with_the_runtime() {
    in_child("cancel::a_forgotten_read_keeps_its_direction_only_and_ends_with_the_runtime", secs(30), || {
        let _watchdog = watchdog(secs(20));
        let base = fds();
        let runtime = Builder::new().build().unwrap();
        let (stream, mut peer) = runtime.block_on(async {
            let (stream, peer) = pair().await;
            let mut read = Box::pin(async move {
                let result = stream.read(Vec::with_capacity(8)).await;
                (stream, result)
            });
            assert!(poll_once(read.as_mut()).await.is_pending());
            (read, peer)
        });
        std::mem::forget(stream);
        drop(runtime);
        // The forgotten future owns the stream for ever, but nothing of the kernel's.
        assert!(fds() <= base + 2);
        peer.write_all(b"to nobody").unwrap();
    });
}
