//! Pooled receives: bytes come in order whatever is dropped, the end after them; a slow consumer holds up the peer, an
//! empty pool nobody.

use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;

use futures::StreamExt;
use runtime::Builder;
use runtime::io::Pooled;
use runtime::net::TcpStream;
use runtime::task::yield_now;
use runtime::testing::tiny;
use runtime::time::timeout;

use crate::peer::{
    Peer, Ticker, ends, finish, ms, pair, pattern, poll_once, read_len, reset, run, secs, start_and_drop, until, within,
};
use crate::support::{Rng, in_child, scaled, watchdog};

/// How the pool is cut, by name.
pub(crate) const POOLS: [&str; 8] = [
    "incremental",
    "classic",
    "none",
    "two small",
    "two small classic",
    "single classic",
    "six small classic",
    "two small single classic",
];

pub(crate) fn with_pool(mut builder: Builder, pool: &str) -> Builder {
    let setup = &mut builder.setup_mut().pool;
    setup.classic = pool.ends_with("classic");
    setup.single = pool.contains("single");
    setup.none = pool == "none";
    if pool.starts_with("two small") {
        (setup.slab_bytes, setup.first, setup.most, setup.queue_bytes) = (2048, 2, 2, 8192);
    } else if pool.starts_with("six small") {
        (setup.slab_bytes, setup.first, setup.most, setup.queue_bytes) = (1024, 6, 6, 8192);
    }
    builder
}

/// Runs `body` once for each kind of pool.
fn each_pool<F: Future<Output = ()>>(body: impl Fn(&'static str) -> F) {
    for pool in POOLS {
        let _watchdog = watchdog(scaled(secs(40)));
        println!("pool: {pool}");
        with_pool(Builder::new(), pool).build().unwrap().block_on(body(pool));
    }
}

async fn recv_len(stream: &TcpStream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let data = stream.recv().await.unwrap();
        assert!(!data.is_empty(), "the stream ended after {} of {len} bytes", all.len());
        all.extend_from_slice(&data);
    }
    assert_eq!(all.len(), len, "more than was sent");
    all
}

// ---- bytes and ends ----------------------------------------------------------------------------------------------------

#[test]
fn bytes_come_in_order_and_then_the_end_again_and_again() {
    each_pool(|_| async {
        let (stream, mut peer) = pair().await;
        for round in 0..50 {
            peer.write_all(&pattern(round * 100, 100)).unwrap();
            assert_eq!(recv_len(&stream, 100).await, pattern(round * 100, 100));
        }
        peer.write_all(b"last").unwrap();
        drop(peer);
        assert_eq!(recv_len(&stream, 4).await, b"last");
        for _ in 0..3 {
            assert!(stream.recv().await.unwrap().is_empty());
        }
        assert_eq!(stream.read(vec![0; 8]).await.0.unwrap(), 0);
    });
}

#[test]
fn a_large_transfer_arrives_whole() {
    each_pool(|_| async {
        const LEN: usize = 3 << 20;
        let (stream, mut peer) = pair().await;
        let writer = std::thread::spawn(move || peer.write_all(&pattern(0, LEN)).unwrap());
        let mut incoming = stream.recv_stream();
        let mut all = Vec::new();
        while let Some(data) = StreamExt::next(&mut incoming).await {
            let data = data.unwrap();
            assert!(!data.is_empty());
            all.extend_from_slice(&data);
        }
        assert!(all == pattern(0, LEN));
        writer.join().unwrap();
    });
}

/// Completions that it takes to receive what lies in the socket already, and pieces that they bring.
fn completions_and_pieces(pool: &'static str) -> (u64, u64) {
    const LEN: usize = 48 << 10;
    let rt = with_pool(Builder::new(), pool).build().unwrap();
    rt.block_on(async {
        let (stream, mut peer) = pair().await;
        let data = pattern(0, LEN);
        peer.write_all(&data).unwrap();
        let (mut all, mut pieces) = (Vec::new(), 0);
        let before = runtime::metrics().completions;
        while all.len() < LEN {
            all.extend_from_slice(&stream.recv().await.unwrap());
            pieces += 1;
        }
        assert!(all == data);
        (runtime::metrics().completions - before, pieces)
    })
}

#[test]
fn where_the_kernel_has_bundles_one_completion_brings_many_buffers() {
    let _watchdog = watchdog(scaled(secs(40)));
    let (completions, pieces) = completions_and_pieces("single classic");
    assert!(pieces == 3 && completions >= 3, "{completions} completions, {pieces} pieces");
    let (completions, pieces) = completions_and_pieces("classic");
    let bundles = runtime::probe().ring.unwrap().bundles;
    println!("bundles: {bundles}, completions: {completions}");
    assert_eq!((pieces, completions < 3), (3, bundles));
}

#[test]
fn a_reset_comes_after_the_bytes_once_and_then_the_end() {
    each_pool(|pool| async move {
        for round in 0..20 {
            let (stream, mut peer) = pair().await;
            peer.write_all(b"x").unwrap();
            assert_eq!(recv_len(&stream, 1).await, b"x");
            let mut waits = Box::pin(stream.recv());
            assert!(poll_once(waits.as_mut()).await.is_pending());
            if round % 2 == 0 && pool != "none" {
                drop(waits);
                peer.write_all(b"abc").unwrap();
                until("the queue has it", secs(5), || runtime::metrics().pool_pieces > 0 || pool.starts_with("two"))
                    .await;
                yield_now().await;
                reset(peer);
                let mut got = Vec::new();
                let error = loop {
                    match stream.recv().await {
                        Ok(data) if data.is_empty() => panic!("a clean end instead of a reset"),
                        Ok(data) => got.extend_from_slice(&data),
                        Err(error) => break error,
                    }
                };
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                // With few buffers the kernel may not have read it when the reset came, and throws it away then.
                assert!(got == b"abc" || pool.starts_with("two"), "{got:?}");
            } else {
                reset(peer);
                assert_eq!(waits.await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
            }
            assert!(stream.recv().await.unwrap().is_empty());
            assert_eq!(stream.read(vec![0; 4]).await.0.unwrap(), 0);
        }
    });
}

#[test]
fn a_received_piece_is_written_out_as_it_is() {
    each_pool(|_| async {
        const LEN: usize = 1 << 20;
        let (stream, mut peer) = pair().await;
        let mut writer = peer.try_clone().unwrap();
        let writes = std::thread::spawn(move || {
            writer.write_all(&pattern(0, LEN)).unwrap();
            finish(&writer);
        });
        let reads = std::thread::spawn(move || {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut peer, &mut all).unwrap();
            all
        });
        loop {
            let data = stream.recv().await.unwrap();
            if data.is_empty() {
                break;
            }
            stream.write_all(data).await.0.unwrap();
        }
        drop(stream);
        writes.join().unwrap();
        assert!(reads.join().unwrap() == pattern(0, LEN));
    });
}

// ---- dropped futures -----------------------------------------------------------------------------------------------------

#[test]
fn a_dropped_receive_loses_nothing() {
    each_pool(|_| async {
        let (stream, mut peer) = pair().await;
        let mut rng = Rng(7);
        let (mut sent, mut got) = (0, Vec::new());
        for _ in 0..400 {
            let n = rng.below(50) as usize;
            peer.write_all(&pattern(sent, n)).unwrap();
            sent += n;
            match rng.below(3) {
                0 => {
                    if let std::task::Poll::Ready(data) = start_and_drop(stream.recv()).await {
                        got.extend_from_slice(&data.unwrap());
                    }
                }
                1 => {
                    let limit = std::time::Duration::from_micros(rng.below(300));
                    if let Ok(data) = timeout(limit, stream.recv()).await {
                        got.extend_from_slice(&data.unwrap());
                    }
                }
                _ => yield_now().await,
            }
        }
        finish(&peer);
        let mut incoming = stream.recv_stream();
        while let Some(data) = incoming.next().await {
            got.extend_from_slice(&data.unwrap());
        }
        assert!(got == pattern(0, sent));
    });
}

#[test]
fn receives_that_wait_are_served_in_turn() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let stream = Rc::new(stream);
        let tasks: Vec<_> = (0..20u8)
            .map(|_| {
                let stream = Rc::clone(&stream);
                runtime::spawn(async move { stream.recv().await.unwrap().to_vec() })
            })
            .collect();
        yield_now().await;
        yield_now().await;
        for (i, task) in tasks.into_iter().enumerate() {
            peer.write_all(&[i as u8]).unwrap();
            assert_eq!(task.await.unwrap(), [i as u8]);
        }
    });
}

// ---- the other reads -----------------------------------------------------------------------------------------------------

#[test]
fn other_reads_take_from_what_was_received_ahead() {
    each_pool(|_| async {
        let (stream, mut peer) = pair().await;
        peer.write_all(b"head").unwrap();
        assert_eq!(recv_len(&stream, 4).await, b"head");
        peer.write_all(b"abcdefghijklmnopqrstuvwxyz").unwrap();
        let peeked = stream.peek(Vec::with_capacity(3)).await.into_result().unwrap().1;
        assert_eq!(peeked, b"abc");
        assert_eq!(read_len(&stream, 5).await, b"abcde");
        assert_eq!(stream.read_exact(vec![0; 4]).await.into_result().unwrap().1, b"fghi");
        // Waits for bytes that are not there yet, is dropped, and gives back what it had.
        let mut exact = Box::pin(stream.read_exact(Vec::with_capacity(100)));
        assert!(poll_once(exact.as_mut()).await.is_pending());
        assert!(poll_once(exact.as_mut()).await.is_pending());
        drop(exact);
        let bufs = vec![Vec::with_capacity(4), Vec::with_capacity(100)];
        let (n, bufs) = stream.read_vectored(bufs).await.into_result().unwrap();
        let mut all = bufs.concat();
        assert_eq!(n, all.len());
        all.extend(recv_len(&stream, 17 - n).await);
        assert_eq!(all, b"jklmnopqrstuvwxyz");
        let waiting = std::thread::spawn(move || {
            std::thread::sleep(ms(20));
            peer.write_all(b"late").unwrap();
            peer
        });
        let bufs = vec![Vec::with_capacity(2), Vec::with_capacity(2)];
        let (n, bufs) = stream.read_vectored(bufs).await.into_result().unwrap();
        let mut all = bufs.concat();
        assert!(n > 0 && n == all.len());
        all.extend(read_len(&stream, 4 - n).await);
        assert_eq!(all, b"late");
        let mut peer = waiting.join().unwrap();
        peer.write_all(b"x").unwrap();
        assert_eq!(read_len(&stream, 1).await, b"x");
        finish(&peer);
        assert_eq!(stream.peek(vec![0; 1]).await.0.unwrap(), 0);
        assert!(stream.read_exact(vec![0; 1]).await.0.is_err());
        assert!(stream.recv().await.unwrap().is_empty());
    });
}

#[test]
fn a_peek_shows_everything_that_came_in_pieces() {
    each_pool(|_| async {
        let (stream, mut peer) = pair().await;
        peer.write_all(b".").unwrap();
        recv_len(&stream, 1).await;
        let mut sent = 0;
        for n in 1..20 {
            peer.write_all(&pattern(sent, n)).unwrap();
            sent += n;
            yield_now().await;
        }
        // As a protocol does that waits for a whole header.
        within(secs(5), "all bytes in a peek", async {
            loop {
                let seen = stream.peek(Vec::with_capacity(sent)).await.into_result().unwrap().1;
                assert!(seen == pattern(0, seen.len()));
                if seen.len() == sent {
                    break;
                }
                runtime::time::sleep(ms(1)).await;
            }
        })
        .await;
        assert_eq!(read_len(&stream, sent).await, pattern(0, sent));
    });
}

#[test]
fn residue_of_a_read_comes_before_what_is_received() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let mut exact = Box::pin(stream.read_exact(Vec::with_capacity(100)));
        assert!(poll_once(exact.as_mut()).await.is_pending());
        peer.write_all(b"first").unwrap();
        until("it has arrived", secs(5), || runtime::metrics().completions > 0).await;
        drop(exact);
        peer.write_all(b"second").unwrap();
        assert_eq!(recv_len(&stream, 11).await, b"firstsecond");
    });
}

// ---- limits ----------------------------------------------------------------------------------------------------------------

/// Writes until the peer has been held up for a while; how much that was.
fn fill(peer: &mut Peer) -> usize {
    peer.set_nonblocking(true).unwrap();
    let mut sent = 0;
    for _ in 0..5 {
        while let Ok(n) = peer.write(&pattern(sent, 64 << 10)) {
            sent += n;
        }
        std::thread::sleep(ms(1));
    }
    sent
}

#[test]
fn a_slow_consumer_stops_the_kernel_from_reading() {
    for pool in POOLS {
        let _watchdog = watchdog(scaled(secs(40)));
        let mut builder = with_pool(Builder::new(), pool);
        builder.setup_mut().pool.queue_bytes = 64 << 10;
        builder.build().unwrap().block_on(async {
            let (stream, mut peer) = pair().await;
            // Small buffers in the kernel, so that what is on its way is mostly what was received ahead.
            stream.set_recv_buffer_size(32 << 10).unwrap();
            socket2::SockRef::from(&peer).set_send_buffer_size(32 << 10).unwrap();
            peer.write_all(b".").unwrap();
            recv_len(&stream, 1).await;
            let (mut sent, mut quiet) = (0, 0);
            // Nobody receives; until nothing has gone out for a while.
            while quiet < 5 {
                let n = fill(&mut peer);
                sent += n;
                quiet = if n == 0 { quiet + 1 } else { 0 };
                assert!(sent < 1 << 20, "{pool}: {sent} bytes went out and nobody took them");
                runtime::time::sleep(ms(1)).await;
            }
            assert!(pool != "incremental" || runtime::metrics().cancels > 0, "the receive was not taken back");
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            let mut got = 0;
            let mut incoming = stream.recv_stream();
            while let Some(data) = incoming.next().await {
                got += data.unwrap().len();
            }
            assert_eq!(got, sent, "{pool}");
        });
    }
}

#[test]
fn an_empty_pool_is_no_error_and_stalls_nobody() {
    for pool in ["two small", "two small classic", "incremental"] {
        let _watchdog = watchdog(secs(40));
        with_pool(Builder::new(), pool).build().unwrap().block_on(async {
            const LEN: usize = 64 << 10;
            let mut held: Vec<Pooled> = Vec::new();
            let (mut streams, mut writers) = (Vec::new(), Vec::new());
            for _ in 0..8 {
                let (stream, mut peer) = pair().await;
                // Held by the test: the kernel's memory, as long as the pool lets it.
                peer.write_all(&[1; 512]).unwrap();
                let mut got = 0;
                while got < 512 {
                    let data = stream.recv().await.unwrap();
                    got += data.len();
                    held.push(data);
                }
                streams.push(stream);
                writers.push(std::thread::spawn(move || peer.write_all(&pattern(0, LEN)).unwrap()));
            }
            let tasks: Vec<_> = streams
                .into_iter()
                .map(|stream| {
                    runtime::spawn(async move {
                        let all = recv_len(&stream, LEN).await;
                        assert!(stream.recv().await.unwrap().is_empty());
                        all
                    })
                })
                .collect();
            for task in tasks {
                let all = within(secs(10), "a transfer with all of the pool held", task).await.unwrap();
                assert!(all == pattern(0, LEN));
            }
            assert!(held.iter().flat_map(|data| data.iter()).all(|&byte| byte == 1));
            drop(held);
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            let metrics = runtime::metrics();
            assert_eq!(metrics.pool_pieces, 0, "{pool}: pieces that nobody holds");
            if pool.starts_with("two") {
                assert!(
                    metrics.pool_empty > 0 && metrics.pool_apart > 0,
                    "{pool}: the pool was never empty: {metrics:?}"
                );
                assert_eq!(metrics.pool_bytes, 2 * 2048);
            }
        });
    }
}

#[test]
fn the_pool_grows_when_it_is_empty() {
    let mut builder = Builder::new();
    (builder.setup_mut().pool.slab_bytes, builder.setup_mut().pool.first, builder.setup_mut().pool.most) =
        (16384, 2, 64);
    let _watchdog = watchdog(secs(20));
    builder.build().unwrap().block_on(async {
        let (stream, mut peer) = pair().await;
        let writer = std::thread::spawn(move || peer.write_all(&pattern(0, 400_000)).unwrap());
        let mut held = Vec::new();
        let mut got = 0;
        while got < 400_000 {
            let data = stream.recv().await.unwrap();
            assert!(data[..] == pattern(got, data.len()));
            got += data.len();
            held.push(data);
        }
        writer.join().unwrap();
        let metrics = runtime::metrics();
        assert!(metrics.pool_bytes > 2 * 16384 && metrics.pool_bytes <= 64 * 16384, "{metrics:?}");
        let mut at = 0;
        for data in &held {
            assert!(data[..] == pattern(at, data.len()));
            at += data.len();
        }
    });
}

#[test]
fn a_new_pool_takes_no_memory_before_it_is_used() {
    if std::env::var_os("ASAN_OPTIONS").is_some() {
        eprintln!("SKIP: a sanitizer has memory of its own");
        return;
    }
    in_child("recv::a_new_pool_takes_no_memory_before_it_is_used", secs(20), || {
        Builder::new().build().unwrap().block_on(async {
            let (stream, mut peer) = pair().await;
            let before = crate::peer::resident();
            peer.write_all(b"x").unwrap();
            recv_len(&stream, 1).await;
            let grown = crate::peer::resident().saturating_sub(before);
            // Less than the pool has, also where the kernel gives huge pages to the heap.
            assert!(grown < 3 << 20, "{grown} bytes for one byte");
        });
    });
}

#[test]
fn small_pieces_that_are_held_do_not_pin_the_pool() {
    let _watchdog = watchdog(secs(60));
    // Slabs of 8 KiB, so that there are many of them in little traffic.
    let mut builder = Builder::new();
    let setup = &mut builder.setup_mut().pool;
    (setup.slab_bytes, setup.first, setup.most) = (8192, 4, 64);
    builder.build().unwrap().block_on(async {
        let (small, mut small_peer) = pair().await;
        let (large, mut large_peer) = pair().await;
        let mut held = Vec::new();
        for round in 0..500 {
            small_peer.write_all(&pattern(round * 16, 16)).unwrap();
            held.extend([small.recv().await.unwrap()]);
            large_peer.write_all(&[0; 8192]).unwrap();
            recv_len(&large, 8192).await;
        }
        let metrics = runtime::metrics();
        assert!(metrics.pool_copied > 400, "{metrics:?}");
        // A quarter of the bound, and what doubling brings on top.
        assert!(metrics.pool_bytes <= 32 * 8192, "{metrics:?}");
        assert!(metrics.pool_pinned <= 16, "{metrics:?}");
        let all: Vec<u8> = held.into_iter().flat_map(Pooled::into_vec).collect();
        assert!(all == pattern(0, all.len()) && all.len() == 500 * 16);
    });
}

#[test]
fn a_piece_of_a_cancelled_receive_goes_back_to_the_pool() {
    for pool in ["two small", "two small classic"] {
        let _watchdog = watchdog(secs(40));
        with_pool(Builder::new(), pool).build().unwrap().block_on(async {
            let (stream, mut peer) = pair().await;
            let mut got = 0;
            for _ in 0..200 {
                let mut waits = Box::pin(stream.recv());
                let early = poll_once(waits.as_mut()).await.is_ready();
                peer.write_all(b"x").unwrap();
                yield_now().await;
                drop(waits);
                got += usize::from(early);
            }
            while got < 200 {
                got += stream.recv().await.unwrap().len();
            }
            for _ in 0..4 {
                let (stream, mut peer) = pair().await;
                peer.write_all(&[0; 1000]).unwrap();
                recv_len(&stream, 1000).await;
            }
            assert_eq!(runtime::metrics().pool_pieces, 0);
        });
    }
}

#[test]
fn many_streams_on_a_tiny_ring_lose_nothing() {
    for pool in POOLS {
        let _watchdog = watchdog(secs(60));
        with_pool(tiny(8, 16), pool).build().unwrap().block_on(async {
            let mut tasks = Vec::new();
            let mut peers = Vec::new();
            for _ in 0..60 {
                let (stream, peer) = pair().await;
                peers.push(peer);
                tasks.push(runtime::spawn(async move { recv_len(&stream, 60).await }));
            }
            yield_now().await;
            yield_now().await;
            for part in 0..6 {
                // All at once, so that the completion queue overflows and ends standing receives.
                for peer in &mut peers {
                    peer.write_all(&pattern(part * 10, 10)).unwrap();
                }
                yield_now().await;
            }
            for task in tasks {
                assert_eq!(within(secs(10), pool, task).await.unwrap(), pattern(0, 60));
            }
            assert_eq!(runtime::metrics().stale_completions, 0);
        });
    }
}

#[test]
fn a_firehose_does_not_starve_the_others() {
    run(secs(40), async {
        let (loud, mut hose) = pair().await;
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let firehose = std::thread::spawn(move || {
            let data = vec![7; 256 << 10];
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) && hose.write_all(&data).is_ok() {}
        });
        let drain = runtime::spawn(async move { while loud.recv().await.is_ok_and(|data| !data.is_empty()) {} });
        let ticker = Ticker::start();
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let (stream, mut peer) = pair().await;
            tasks.push(runtime::spawn(async move {
                for _ in 0..50 {
                    let data = stream.recv().await.unwrap();
                    stream.write_all(data).await.0.unwrap();
                }
            }));
            std::thread::spawn(move || (0..50).for_each(|i| crate::peer::ping(&mut peer, i)));
        }
        for task in tasks {
            within(secs(5), "ping-pongs beside a firehose", task).await.unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        drain.abort();
        let _ = drain.await;
        firehose.join().unwrap();
        drop(ticker);
    });
}

// ---- lifetimes ---------------------------------------------------------------------------------------------------------------

#[test]
fn pieces_outlive_their_stream_and_their_runtime() {
    for pool in POOLS {
        let _watchdog = watchdog(secs(20));
        let rt = with_pool(Builder::new(), pool).build().unwrap();
        let (mut held, mut peers) = (Vec::new(), Vec::new());
        let outside = rt.block_on(async {
            for _ in 0..10 {
                let (stream, mut peer) = pair().await;
                peer.write_all(&pattern(0, 700)).unwrap();
                let mut at = 0;
                while at < 700 {
                    let data = stream.recv().await.unwrap();
                    let from = at;
                    at += data.len();
                    held.push((from, data));
                }
                peers.push(peer);
            }
            held.pop().unwrap()
        });
        // Not inside of `block_on`.
        drop(outside);
        drop(held.pop());
        drop(rt);
        for (at, data) in held {
            assert_eq!(data[..], pattern(at, data.len()), "{pool}");
        }
        for peer in &mut peers {
            assert_eq!(ends(peer).unwrap(), 0, "{pool}: the streams are closed");
        }
    }
}

#[test]
fn a_dropped_stream_closes_although_a_receive_stood() {
    each_pool(|_| async {
        for round in 0..20 {
            let (stream, mut peer) = pair().await;
            peer.write_all(b"x").unwrap();
            recv_len(&stream, 1).await;
            if round % 2 == 0 {
                start_and_drop(stream.recv()).await.is_pending();
                yield_now().await;
            }
            stream.write_all("bye").await.0.unwrap();
            drop(stream);
            yield_now().await;
            yield_now().await;
            let end = runtime::spawn_blocking(move || ends(&mut peer).unwrap());
            assert_eq!(within(secs(5), "the peer sees the end", end).await.unwrap(), 3);
        }
        until("nothing is in flight", secs(5), || runtime::metrics().in_flight == 0).await;
        assert_eq!(runtime::metrics().pool_pieces, 0);
    });
}

#[test]
fn halves_receive_and_either_may_go_first() {
    each_pool(|_| async {
        let (stream, mut peer) = pair().await;
        peer.write_all(b"one").unwrap();
        assert_eq!(recv_len(&stream, 3).await, b"one");
        let (rx, tx) = stream.into_split();
        peer.write_all(b"two").unwrap();
        let data = rx.recv().await.unwrap();
        tx.write_all(data).await.0.unwrap();
        // What was received ahead survives the writing half, and joining.
        peer.write_all(b"three").unwrap();
        yield_now().await;
        let stream = rx.reunite(tx).unwrap();
        assert_eq!(recv_len(&stream, 5).await, b"three");
        let (rx, tx) = stream.into_split();
        peer.write_all(b"four").unwrap();
        drop(tx);
        let mut all = Vec::new();
        let mut incoming = rx.recv_stream();
        while all.len() < 4 {
            all.extend_from_slice(&incoming.next().await.unwrap().unwrap());
        }
        assert_eq!(all, b"four");
        drop(incoming);
        drop(rx);
        let end = runtime::spawn_blocking(move || ends(&mut peer).unwrap());
        assert_eq!(within(secs(5), "the end", end).await.unwrap(), 3);
    });
}

#[test]
fn std_gets_the_socket_back_unless_bytes_wait() {
    each_pool(|pool| async move {
        let (stream, mut peer) = pair().await;
        peer.write_all(b"one").unwrap();
        assert_eq!(recv_len(&stream, 3).await, b"one");
        let (mut stream, mut back) = (Some(stream), None);
        if pool != "none" {
            peer.write_all(b"two").unwrap();
            until("it is here", secs(5), || runtime::metrics().pool_pieces > 0 || pool.starts_with("two")).await;
            match stream.take().unwrap().into_std() {
                Err(error) => {
                    let again = error.into_inner();
                    assert_eq!(recv_len(&again, 3).await, b"two");
                    stream = Some(again);
                }
                Ok(std) => {
                    assert!(pool.starts_with("two"));
                    back = Some(std);
                }
            }
        }
        let mut std = back.unwrap_or_else(|| stream.unwrap().into_std().unwrap());
        std.set_nonblocking(false).unwrap();
        peer.write_all(b"std").unwrap();
        let mut got = vec![0; 3];
        std::io::Read::read_exact(&mut std, &mut got).unwrap();
        assert!(got == b"std" || got == b"two");
        assert_eq!(runtime::metrics().pool_pieces, 0);
    });
}

#[test]
fn a_reader_goes_on_when_its_receive_was_ended_with_bytes_behind_its_back() {
    // The kernel ends a receive with its last bytes when there is no room for its completions, and a listener that is
    // dropped reaps them ahead of their turn.
    const STREAMS: usize = 40;
    for pool in ["incremental", "classic"] {
        let _watchdog = watchdog(scaled(secs(40)));
        with_pool(Builder::new().entries(4), pool).build().unwrap().block_on(async {
            let mut rng = Rng(1);
            let (mut peers, mut counts, mut sent) = (Vec::new(), Vec::new(), vec![0; STREAMS]);
            for _ in 0..STREAMS {
                let (stream, peer) = pair().await;
                let count = Rc::new(Cell::new(0));
                counts.push(Rc::clone(&count));
                peers.push(peer);
                runtime::spawn(async move {
                    while let Ok(data) = stream.recv().await
                        && !data.is_empty()
                    {
                        count.set(count.get() + data.len());
                    }
                });
            }
            for _ in 0..100 {
                let mut send = |peers: &mut [Peer], sent: &mut [usize]| {
                    for (peer, sent) in peers.iter_mut().zip(sent) {
                        if rng.below(3) > 0 {
                            let len = 1 + rng.below(200) as usize;
                            peer.write_all(&vec![7; len]).unwrap();
                            *sent += len;
                        }
                    }
                };
                send(&mut peers, &mut sent);
                runtime::task::yield_now().await;
                let listener = runtime::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                assert!(poll_once(std::pin::pin!(listener.accept())).await.is_pending());
                runtime::task::yield_now().await;
                send(&mut peers, &mut sent);
                drop(listener);
                until("everything is received", secs(5), || {
                    counts.iter().map(|count| count.get()).eq(sent.iter().copied())
                })
                .await;
            }
        });
    }
}

#[test]
fn a_stream_of_pieces_is_polled_and_awaited_in_turn() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let mut pieces = stream.recv_stream();
        for round in 0..5u8 {
            // Polled as a stream it keeps its place, in which the other way goes on.
            assert!(timeout(ms(2), StreamExt::next(&mut pieces)).await.is_err());
            peer.write_all(&[round]).unwrap();
            let piece = within(secs(5), "a piece", pieces.next()).await.unwrap().unwrap();
            assert_eq!(piece[..], [round]);
            // Which leaves the line when it is dropped.
            assert!(timeout(ms(2), pieces.next()).await.is_err());
            peer.write_all(b"x").unwrap();
            assert_eq!(within(secs(5), "a read", stream.read(vec![0; 1])).await.1, b"x");
        }
    });
}
