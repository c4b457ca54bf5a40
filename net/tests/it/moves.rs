//! Streams and halves that change threads and runtimes, and what std gets back.

use std::io::{Read, Write};
use std::panic::AssertUnwindSafe;
use std::sync::mpsc;

use runtime::Builder;
use runtime::net::TcpStream;
use runtime::task::yield_now;

use crate::peer::{Peer, ends, ms, pair, pattern, poll_once, read_len, run, secs, until, within};
use crate::support::{Rng, fds, in_child, watchdog};

/// Runs `body` on a runtime of its own on another thread.
fn elsewhere<F: Future<Output = ()>>(body: impl FnOnce() -> F + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || Builder::new().build().unwrap().block_on(body()))
}

#[test]
fn a_stream_moved_while_an_orphaned_read_settles_gives_its_bytes_in_order() {
    run(secs(60), async {
        let mut rng = Rng(3);
        for round in 0..100 {
            let (stream, mut peer) = pair().await;
            let mut waits = Box::pin(stream.read_exact(Vec::with_capacity(1000)));
            assert!(poll_once(waits.as_mut()).await.is_pending());
            if rng.below(2) == 0 {
                yield_now().await;
            }
            let before = rng.below(500) as usize;
            peer.write_all(&pattern(0, before)).unwrap();
            if rng.below(2) == 0 {
                assert!(poll_once(waits.as_mut()).await.is_pending());
                yield_now().await;
            }
            drop(waits);
            // The cancel request has not been sent yet: the other thread waits for this one to turn.
            let other = elsewhere(move || async move {
                let data = within(secs(10), "the bytes on the new thread", read_len(&stream, 2000)).await;
                assert_eq!(data, pattern(0, 2000), "round {round}");
                stream.write_all("done").await.0.unwrap();
            });
            peer.write_all(&pattern(before, 2000 - before)).unwrap();
            until("the other thread is done", secs(15), || other.is_finished()).await;
            other.join().unwrap();
            assert_eq!(ends(&mut peer).unwrap(), 4);
        }
    });
}

#[test]
fn a_stream_returned_from_block_on_is_usable_although_its_old_runtime_never_runs_again() {
    let _watchdog = watchdog(secs(30));
    let old = Builder::new().build().unwrap();
    for round in 0..50 {
        let (stream, mut peer) = old.block_on(async {
            let (stream, peer) = pair().await;
            let mut waits = Box::pin(stream.read(Vec::with_capacity(100)));
            assert!(poll_once(waits.as_mut()).await.is_pending());
            if round % 2 == 0 {
                yield_now().await;
            }
            drop(waits);
            (stream, peer)
        });
        // The old runtime exists, but nobody turns it.
        peer.write_all(b"hello").unwrap();
        let other = elsewhere(move || async move {
            let data = within(secs(5), "a read after the old runtime went idle", read_len(&stream, 5)).await;
            assert_eq!(data, b"hello");
        });
        other.join().unwrap();
    }
}

#[test]
fn a_future_dropped_outside_of_its_runtime_frees_the_stream_for_others() {
    let _watchdog = watchdog(secs(30));
    let old = Builder::new().build().unwrap();
    let (read, mut peer) = old.block_on(async {
        let (stream, peer) = pair().await;
        let stream = std::sync::Arc::new(std::sync::Mutex::new(Some(stream)));
        let mut read = Box::pin(async move {
            let stream = stream.lock().unwrap().take().unwrap();
            let data = read_len(&stream, 5).await;
            (stream, data)
        });
        assert!(poll_once(read.as_mut()).await.is_pending());
        (read, peer)
    });
    // Dropped between two `block_on`s: stream and operation go, the peer sees the end.
    drop(read);
    old.block_on(yield_now());
    assert_eq!(ends(&mut peer).unwrap(), 0);
}

#[test]
fn a_read_polled_in_another_runtime_panics_with_a_sentence() {
    let _watchdog = watchdog(secs(30));
    let (home, other) = (Builder::new().build().unwrap(), Builder::new().build().unwrap());
    let (stream, mut peer) = home.block_on(pair());
    let mut read = Box::pin(stream.read(Vec::with_capacity(8)));
    assert!(home.block_on(poll_once(read.as_mut())).is_pending());
    let wrong = std::panic::catch_unwind(AssertUnwindSafe(|| other.block_on(poll_once(read.as_mut())).is_ready()));
    let panic = wrong.unwrap_err();
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap();
    assert!(text.contains("is polled in another"), "{text}");
    peer.write_all(b"home").unwrap();
    let (n, data) = home.block_on(read).into_result().unwrap();
    assert_eq!((n, &data[..]), (4, &b"home"[..]));
}

#[test]
fn halves_on_two_threads_with_a_runtime_each_move_both_directions() {
    const BYTES: usize = 3 << 20;
    let _watchdog = watchdog(secs(60));
    let (stream, mut peer) = Builder::new().build().unwrap().block_on(pair());
    let (rx, tx) = stream.into_split();
    let echo = std::thread::spawn(move || {
        let mut piece = [0; 30_000];
        loop {
            match peer.read(&mut piece).unwrap() {
                0 => return,
                n => peer.write_all(&piece[..n]).unwrap(),
            }
        }
    });
    let writer = elsewhere(move || async move {
        let mut at = 0;
        while at < BYTES {
            let n = 50_000.min(BYTES - at);
            tx.write_all(pattern(at, n)).await.0.unwrap();
            at += n;
        }
        // Dropping it ends the direction.
    });
    let reader = elsewhere(move || async move {
        let mut rng = Rng(77);
        let mut at = 0;
        loop {
            let limit = ms(rng.below(3));
            let Ok(read) = runtime::time::timeout(limit, rx.read(Vec::with_capacity(20_000))).await else { continue };
            let (n, data) = read.into_result().unwrap();
            if n == 0 {
                break;
            }
            assert!(data == pattern(at, n), "at {at}");
            at += n;
        }
        assert_eq!(at, BYTES);
    });
    writer.join().unwrap();
    reader.join().unwrap();
    echo.join().unwrap();
}

#[test]
fn halves_hop_from_thread_to_thread_with_orphans_behind_them() {
    in_child("moves::halves_hop_from_thread_to_thread_with_orphans_behind_them", secs(60), || {
        let _watchdog = watchdog(secs(50));
        let base = fds();
        let (stream, mut peer) = Builder::new().build().unwrap().block_on(pair());
        let (mut rx, tx) = stream.into_split();
        let mut at = 0;
        let mut sent = 0;
        for hop in 0..60 {
            peer.write_all(&pattern(sent, 100)).unwrap();
            sent += 100;
            let (hand_over, taken) = mpsc::channel();
            let hopped = elsewhere(move || async move {
                // On every third thread all of it, so that residues of several hops pile up in between.
                let mut read = at;
                while read < if hop % 3 == 2 { sent } else { at + 1 } {
                    let data = within(secs(5), "a read after a hop", rx.read(Vec::with_capacity(60))).await;
                    let (n, data) = data.into_result().unwrap();
                    assert_eq!(data, pattern(read, n), "hop {hop}");
                    read += n;
                }
                let mut orphan = Box::pin(rx.read_exact(Vec::with_capacity(50_000)));
                assert!(poll_once(orphan.as_mut()).await.is_pending());
                if hop % 2 == 0 {
                    yield_now().await;
                }
                drop(orphan);
                // Its ring ends with this thread and settles what is left.
                hand_over.send((rx, read)).unwrap();
            });
            (rx, at) = taken.recv().unwrap();
            if hop % 5 == 0 {
                hopped.join().unwrap();
            }
        }
        drop(rx);
        drop((tx, peer));
        crate::support::eventually("descriptors back to base", || fds() == base);
    });
}

// ---- from and to std -------------------------------------------------------------------------------------------------------

#[test]
fn std_streams_in_either_mode_neither_block_the_loop_nor_show_would_block() {
    for nonblocking in [true, false] {
        run(secs(40), async {
            let ticker = crate::peer::Ticker::start();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut peer = Peer::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(nonblocking).unwrap();
            let stream = TcpStream::from_std(stream).unwrap();
            let other = std::thread::spawn(move || {
                std::thread::sleep(ms(100));
                peer.write_all(b"late").unwrap();
                std::thread::sleep(ms(300));
                let mut all = Vec::new();
                peer.read_to_end(&mut all).unwrap();
                all
            });
            assert_eq!(read_len(&stream, 4).await, b"late");
            stream.write_all(pattern(0, 8 << 20)).await.0.unwrap();
            drop(stream);
            until("the slow reader is done", secs(20), || other.is_finished()).await;
            assert!(other.join().unwrap() == pattern(0, 8 << 20));
            let gap = ticker.stop();
            assert!(gap < ms(400), "the loop stood still for {gap:?}");
        });
    }
}

#[test]
fn into_std_gives_the_socket_or_the_stream_back() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let mut std_stream = stream.into_std().unwrap();
        std_stream.set_nonblocking(false).unwrap();
        std_stream.write_all(b"from std").unwrap();
        drop(std_stream);
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"from std");

        // An operation that was dropped and is not settled.
        let (stream, mut peer) = pair().await;
        let mut waits = Box::pin(stream.read(Vec::with_capacity(8)));
        assert!(poll_once(waits.as_mut()).await.is_pending());
        yield_now().await;
        drop(waits);
        let refused = stream.into_std().unwrap_err();
        assert!(refused.to_string().contains("in use"), "{refused}");
        let mut stream = refused.into_inner();

        // One that has left bytes.
        for _ in 0..3 {
            yield_now().await;
        }
        let mut waits = Box::pin(stream.read(Vec::with_capacity(8)));
        assert!(poll_once(waits.as_mut()).await.is_pending());
        yield_now().await;
        peer.write_all(b"residue").unwrap();
        yield_now().await;
        drop(waits);
        for _ in 0..3 {
            stream = stream.into_std().unwrap_err().into_inner();
            yield_now().await;
        }
        assert_eq!(std::io::Error::from(stream.into_std().unwrap_err()).kind(), std::io::ErrorKind::ResourceBusy);
    });
}

#[test]
fn into_std_after_the_residue_was_read_gives_the_socket() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let mut waits = Box::pin(stream.read(Vec::with_capacity(8)));
        assert!(poll_once(waits.as_mut()).await.is_pending());
        yield_now().await;
        peer.write_all(b"residue+rest").unwrap();
        yield_now().await;
        drop(waits);
        let first = read_len(&stream, 8).await;
        let mut std_stream = stream.into_std().expect("nothing is left");
        std_stream.set_nonblocking(false).unwrap();
        let mut rest = [0; 4];
        std_stream.read_exact(&mut rest).unwrap();
        assert_eq!([&first[..], &rest].concat(), b"residue+rest");
    });
}
