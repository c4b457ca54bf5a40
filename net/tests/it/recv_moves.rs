//! Streams that receive ahead and change threads and runtimes: what was received goes with them, in order.

use std::future::Future;
use std::io::{Read, Write};

use runtime::net::TcpStream;
use runtime::task::yield_now;
use runtime::{Builder, Runtime};

use crate::peer::{ends, ms, pair, pattern, poll_once, read_len, run, secs, until, within};
use crate::recv::{POOLS, with_pool};
use crate::support::{Rng, fds, in_child, scaled, watchdog};

async fn recv_len(stream: &TcpStream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let data = stream.recv().await.unwrap();
        assert!(!data.is_empty(), "the stream ended after {} of {len} bytes", all.len());
        all.extend_from_slice(&data);
    }
    all
}

#[test]
fn what_was_received_ahead_goes_to_the_new_thread() {
    for pool in POOLS {
        let _watchdog = watchdog(secs(60));
        with_pool(Builder::new(), pool).build().unwrap().block_on(async {
            let mut rng = Rng(11);
            for round in 0..40 {
                let (stream, mut peer) = pair().await;
                peer.write_all(&pattern(0, 10)).unwrap();
                assert_eq!(recv_len(&stream, 10).await, pattern(0, 10));
                let ahead = rng.below(5000) as usize;
                peer.write_all(&pattern(10, ahead)).unwrap();
                for _ in 0..rng.below(3) {
                    yield_now().await;
                }
                let reads = rng.below(2) == 0;
                let other = std::thread::spawn(move || {
                    with_pool(Builder::new(), pool).build().unwrap().block_on(async {
                        let all =
                            async { if reads { read_len(&stream, 5990).await } else { recv_len(&stream, 5990).await } };
                        let all = within(secs(10), "the bytes on the new thread", all).await;
                        assert!(all == pattern(10, 5990), "{pool}, round {round}");
                        stream.write_all("done").await.0.unwrap();
                    });
                });
                peer.write_all(&pattern(10 + ahead, 5990 - ahead)).unwrap();
                until("the other thread is done", secs(15), || other.is_finished()).await;
                other.join().unwrap();
                assert_eq!(ends(&mut peer).unwrap(), 4);
            }
            until("nothing is left here", secs(5), || runtime::metrics().in_flight == 0).await;
            assert_eq!(runtime::metrics().pool_pieces, 0);
        });
    }
}

#[test]
fn a_stream_goes_back_and_forth_between_two_running_threads() {
    let _watchdog = watchdog(secs(60));
    let (to, from) = std::sync::mpsc::channel::<(TcpStream, usize)>();
    let (back, returned) = std::sync::mpsc::channel::<TcpStream>();
    let other = std::thread::spawn(move || {
        Builder::new().build().unwrap().block_on(async move {
            loop {
                match from.try_recv() {
                    Ok((stream, at)) => {
                        assert_eq!(within(secs(5), "there", recv_len(&stream, 100)).await, pattern(at, 100));
                        back.send(stream).unwrap();
                    }
                    Err(std::sync::mpsc::TryRecvError::Empty) => runtime::time::sleep(ms(1)).await,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                }
            }
        });
    });
    Builder::new().build().unwrap().block_on(async move {
        let (mut stream, mut peer) = pair().await;
        for round in 0..50 {
            let at = round * 200;
            peer.write_all(&pattern(at, 200)).unwrap();
            let mut here = Vec::new();
            while here.len() < 100 {
                // Not more than a hundred, so that the rest is received ahead.
                let buf = Vec::with_capacity(100 - here.len());
                if here.is_empty() && round % 2 == 0 {
                    // Makes this thread the home.
                    let _ = runtime::time::timeout(ms(0), stream.recv()).await.map(|data| {
                        let data = data.unwrap();
                        assert!(data.len() <= 200);
                        here.extend_from_slice(&data);
                    });
                    continue;
                }
                let (n, data) = stream.read(buf).await.into_result().unwrap();
                here.extend_from_slice(&data[..n]);
            }
            assert_eq!(here, pattern(at, here.len()));
            if here.len() > 100 {
                assert_eq!(read_len(&stream, 200 - here.len()).await, pattern(at + here.len(), 200 - here.len()));
                continue;
            }
            to.send((stream, at + 100)).unwrap();
            stream = loop {
                match returned.try_recv() {
                    Ok(stream) => break stream,
                    Err(_) => runtime::time::sleep(ms(1)).await,
                }
            };
        }
        drop(to);
    });
    other.join().unwrap();
}

#[test]
fn a_runtime_that_is_left_keeps_nothing_of_its_streams() {
    for pool in POOLS {
        let _watchdog = watchdog(secs(30));
        let old = with_pool(Builder::new(), pool).build().unwrap();
        for round in 0..20 {
            let (stream, mut peer) = old.block_on(async {
                let (stream, mut peer) = pair().await;
                peer.write_all(b".").unwrap();
                recv_len(&stream, 1).await;
                peer.write_all(b"ahead ").unwrap();
                if round % 2 == 0 {
                    yield_now().await;
                }
                (stream, peer)
            });
            // The old runtime exists, but nobody turns it.
            peer.write_all(b"behind").unwrap();
            let other = std::thread::spawn(move || {
                Builder::new().build().unwrap().block_on(async {
                    let data =
                        within(secs(5), "a receive after the old runtime went idle", recv_len(&stream, 12)).await;
                    assert_eq!(data, b"ahead behind", "{pool}");
                });
            });
            other.join().unwrap();
        }
        assert_eq!(old.metrics().in_flight, 0);
        assert_eq!(old.metrics().pool_pieces, 0);
    }
}

#[test]
fn a_runtime_that_ends_gives_its_streams_what_they_had() {
    for pool in POOLS {
        let _watchdog = watchdog(secs(30));
        let (keep, kept) = std::sync::mpsc::channel();
        let old = with_pool(Builder::new(), pool).build().unwrap();
        let mut peers = Vec::new();
        old.block_on(async {
            for i in 0..20usize {
                let (stream, mut peer) = pair().await;
                peer.write_all(b".").unwrap();
                recv_len(&stream, 1).await;
                peer.write_all(&pattern(0, i * 100)).unwrap();
                keep.send(stream).unwrap();
                peers.push(peer);
            }
            yield_now().await;
        });
        drop(old);
        let new = with_pool(Builder::new(), pool).build().unwrap();
        new.block_on(async {
            for (i, stream) in kept.try_iter().enumerate() {
                peers[i].write_all(&pattern(i * 100, 50)).unwrap();
                assert!(recv_len(&stream, i * 100 + 50).await == pattern(0, i * 100 + 50), "{pool}, stream {i}");
            }
        });
    }
}

#[test]
fn a_receive_that_outlives_its_runtime_goes_on_in_the_next() {
    for pool in POOLS {
        let _watchdog = watchdog(secs(30));
        for round in 0..8 {
            let old = with_pool(Builder::new(), pool).build().unwrap();
            let (stream, mut peer) = old.block_on(pair());
            let mut waits = Box::pin(stream.recv());
            old.block_on(async { assert!(crate::peer::poll_once(waits.as_mut()).await.is_pending()) });
            let mut sent = Vec::new();
            if round % 2 == 0 {
                // Comes while the old runtime turns, and is not taken.
                peer.write_all(b"before ").unwrap();
                sent.extend_from_slice(b"before ");
                old.block_on(async {
                    runtime::time::sleep(ms(2)).await;
                });
            }
            drop(old);
            peer.write_all(b"after").unwrap();
            sent.extend_from_slice(b"after");
            let new = with_pool(Builder::new(), pool).build().unwrap();
            let all = new.block_on(async {
                let mut all = Vec::new();
                if round % 4 < 2 {
                    all.extend_from_slice(&within(secs(5), "the receive goes on", waits).await.unwrap());
                } else {
                    drop(waits);
                }
                all.extend(within(secs(5), "the rest", recv_len(&stream, sent.len() - all.len())).await);
                all
            });
            assert_eq!(all, sent, "{pool}");
            drop(stream);
        }
    }
}

#[test]
fn a_stream_dropped_on_another_thread_is_closed_by_its_home() {
    in_child("recv_moves::a_stream_dropped_on_another_thread_is_closed_by_its_home", secs(30), || {
        let rt = Builder::new().build().unwrap();
        rt.block_on(async {
            let (stream, peer) = pair().await;
            drop((stream, peer));
            yield_now().await;
            yield_now().await;
            let before = fds();
            for _ in 0..20 {
                let (stream, mut peer) = pair().await;
                peer.write_all(b"x").unwrap();
                recv_len(&stream, 1).await;
                peer.write_all(b"unread").unwrap();
                std::thread::spawn(move || drop(stream)).join().unwrap();
                let end = runtime::spawn_blocking(move || {
                    let _ = ends(&mut peer);
                });
                within(secs(5), "the peer sees the end", end).await.unwrap();
            }
            until("descriptors are closed", secs(5), || fds() <= before).await;
            assert_eq!(runtime::metrics().in_flight, 0);
            assert_eq!(runtime::metrics().pool_pieces, 0);
        });
    });
}

#[test]
fn a_forgotten_stream_is_let_go_when_the_runtime_ends() {
    in_child("recv_moves::a_forgotten_stream_is_let_go_when_the_runtime_ends", secs(30), || {
        let rt = Builder::new().build().unwrap();
        rt.block_on(async {
            let (stream, mut peer) = pair().await;
            peer.write_all(b"x").unwrap();
            recv_len(&stream, 1).await;
            let mut waits = Box::pin(stream.recv());
            assert!(crate::peer::poll_once(waits.as_mut()).await.is_pending());
            std::mem::forget(waits);
            std::mem::forget(stream);
        });
        assert_eq!(rt.shutdown_timeout(secs(5)), 0);
    });
}

#[test]
fn a_stream_received_from_elsewhere_gives_its_descriptor_up_soon_after_it_was_asked() {
    let _watchdog = watchdog(scaled(secs(40)));
    Builder::new().threads(2).build().unwrap().block_on(async {
        let (stream, mut peer) = pair().await;
        peer.write_all(b"x").unwrap();
        assert_eq!(&stream.recv().await.unwrap()[..], b"x");
        let elsewhere = runtime::spawn_on(1, move || async move {
            let mut stream = stream;
            loop {
                match stream.into_std() {
                    Ok(stream) => return stream,
                    Err(refused) => stream = refused.into_inner(),
                }
                runtime::time::sleep(ms(1)).await;
            }
        });
        let mut stream = within(secs(10), "into_std", elsewhere).await.unwrap();
        stream.set_nonblocking(false).unwrap();
        peer.write_all(b"yz").unwrap();
        let mut data = [0; 2];
        stream.read_exact(&mut data).unwrap();
        assert_eq!(&data, b"yz");
    });
}

#[test]
fn a_stream_that_is_handed_over_as_the_last_thing_of_a_block_on_is_given_up() {
    for read in [false, true] {
        let (to, from) = std::sync::mpsc::channel::<TcpStream>();
        let (asked, wait) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            let stream = from.recv().unwrap();
            run(secs(20), async {
                let mut next: std::pin::Pin<Box<dyn Future<Output = Vec<u8>>>> = match read {
                    true => Box::pin(async { stream.read(vec![0; 10]).await.1 }),
                    false => Box::pin(async { stream.recv().await.unwrap().to_vec() }),
                };
                // It asks the other thread, which is still in its `block_on`.
                assert!(poll_once(next.as_mut()).await.is_pending());
                asked.send(()).unwrap();
                within(secs(5), "what arrives later", next).await
            })
        });
        let rt = Runtime::new().unwrap();
        let mut peer = rt.block_on(async {
            let (stream, mut peer) = pair().await;
            peer.write_all(b"header").unwrap();
            assert_eq!(stream.recv().await.unwrap()[..], *b"header");
            to.send(stream).unwrap();
            wait.recv().unwrap();
            peer
        });
        peer.write_all(b"body").unwrap();
        assert_eq!(other.join().unwrap()[..4], *b"body", "read: {read}");
        drop(rt);
    }
}

#[test]
fn who_waits_without_a_task_for_a_stream_of_another_thread_is_woken_as_that_ends_its_block_on() {
    let (to, from) = std::sync::mpsc::channel::<TcpStream>();
    let (asked, wait) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let stream = from.recv().unwrap();
        // The waker is the one of `block_on`, which is nobody's task.
        run(secs(20), async {
            let mut next = Box::pin(stream.recv());
            assert!(poll_once(next.as_mut()).await.is_pending());
            asked.send(()).unwrap();
            within(secs(5), "the end of the stream", next).await.unwrap().len()
        })
    });
    let rt = Runtime::new().unwrap();
    rt.block_on(async {
        let (stream, peer) = pair().await;
        drop(peer);
        // Nothing receives ahead any more, but this is still the stream's home.
        assert!(stream.recv().await.unwrap().is_empty());
        to.send(stream).unwrap();
        wait.recv().unwrap();
    });
    assert_eq!(other.join().unwrap(), 0);
    drop(rt);
}

#[test]
fn streams_that_are_wanted_elsewhere_a_turn_before_the_end_of_block_on_are_all_given_up() {
    const COUNT: usize = 200;
    let (to, from) = std::sync::mpsc::channel::<Vec<TcpStream>>();
    let (asked, wait) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let streams = from.recv().unwrap();
        run(secs(30), async {
            let mut reads: Vec<_> = streams.iter().map(|stream| Box::pin(stream.read(vec![0; 16]))).collect();
            for read in &mut reads {
                assert!(poll_once(read.as_mut()).await.is_pending());
            }
            asked.send(()).unwrap();
            for read in reads {
                assert_eq!(within(secs(5), "what arrives later", read).await.0.unwrap(), 5);
            }
        });
    });
    let rt = Runtime::new().unwrap();
    let mut peers = rt.block_on(async {
        let (mut streams, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..COUNT {
            let (stream, mut peer) = pair().await;
            peer.write_all(b"x").unwrap();
            assert_eq!(stream.recv().await.unwrap().len(), 1);
            streams.push(stream);
            peers.push(peer);
        }
        to.send(streams).unwrap();
        wait.recv().unwrap();
        // They are asked for, and not all of them have been let go.
        yield_now().await;
        peers
    });
    for peer in &mut peers {
        peer.write_all(b"hello").unwrap();
    }
    other.join().unwrap();
    drop(rt);
}

#[test]
fn a_waker_that_panics_at_the_end_of_block_on_keeps_no_stream_from_leaving() {
    struct Bad;
    impl std::task::Wake for Bad {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("somebody else's waker");
        }
    }
    in_child("recv_moves::a_waker_that_panics_at_the_end_of_block_on_keeps_no_stream_from_leaving", secs(30), || {
        let (to, from) = std::sync::mpsc::channel::<TcpStream>();
        let other = std::thread::spawn(move || {
            let stream = from.recv().unwrap();
            run(secs(20), async { within(secs(5), "what was received", stream.recv()).await.unwrap().to_vec() })
        });
        let rt = Runtime::new().unwrap();
        let keep = std::cell::RefCell::new(None);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rt.block_on(async {
                let (stream, mut peer) = pair().await;
                peer.write_all(b"one").unwrap();
                assert_eq!(stream.recv().await.unwrap()[..], *b"one");
                peer.write_all(b"two").unwrap();
                runtime::time::sleep(ms(10)).await;
                let bufs: &'static _ = Box::leak(Box::new(runtime::io::FixedBufs::new(1, 1).unwrap()));
                let lease = bufs.lease().await;
                let mut waits = Box::pin(bufs.lease());
                let bad = std::task::Waker::from(std::sync::Arc::new(Bad));
                assert!(waits.as_mut().poll(&mut std::task::Context::from_waker(&bad)).is_pending());
                to.send(stream).unwrap();
                drop(lease);
                *keep.borrow_mut() = Some((waits, peer));
            });
        }));
        assert!(told.is_err(), "the waker's panic is told");
        assert_eq!(other.join().unwrap(), b"two");
        drop((keep, rt));
    });
}
