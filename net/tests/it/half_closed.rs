//! Peers that have ended their own direction, and whether we tell such an end from a reset.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::task::{JoinHandle, yield_now};

use crate::calls::report_times_of_sends;
use crate::peer::{Peer, ms, pair, poll_once, run, secs, until, within};
use crate::support::in_child;

const LEN: usize = 8 << 20;

#[derive(Clone, Copy, Debug)]
enum How {
    All,
    Some,
    Vectored,
    ZeroCopy,
    Relay,
}

async fn write(stream: TcpStream, how: How) -> TcpStream {
    let all = vec![7; LEN];
    match how {
        How::All => stream.write_all(all).await.0.unwrap(),
        How::Some => {
            let mut sent = 0;
            while sent < LEN {
                sent += stream.write(vec![7; LEN - sent]).await.0.unwrap();
            }
        }
        How::Vectored => stream.write_all_vectored(vec![vec![7; LEN / 2], vec![7; LEN / 2]]).await.0.unwrap(),
        How::ZeroCopy => stream.write_all_zc(all).await.0.unwrap(),
        How::Relay => {
            let (mut ours, mut theirs) = (stream, pair().await);
            let writing = std::thread::spawn(move || theirs.1.write_all(&all).unwrap());
            assert_eq!(runtime::io::copy(&mut theirs.0, &mut ours).await.unwrap(), LEN as u64);
            writing.join().unwrap();
            return ours;
        }
    }
    stream
}

/// Everything is stuck: nothing happens any more.
async fn quiet() {
    let mut enters = 0;
    let mut quiet = 0;
    until("all wait", secs(10), || {
        let before = std::mem::replace(&mut enters, runtime::metrics().enters);
        quiet = if enters - before <= 2 { quiet + 1 } else { 0 };
        quiet > 50
    })
    .await;
}

fn workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.filter(|task| name(task.as_ref().unwrap()).starts_with("iou-wrk")).count()
}

fn name(task: &std::fs::DirEntry) -> String {
    std::fs::read_to_string(task.path().join("comm")).unwrap_or_default()
}

#[test]
fn a_peer_that_has_ended_its_direction_and_does_not_read_costs_no_worker_and_no_turns() {
    in_child(
        "half_closed::a_peer_that_has_ended_its_direction_and_does_not_read_costs_no_worker_and_no_turns",
        secs(60),
        || {
            for how in [How::All, How::Some, How::Vectored, How::ZeroCopy, How::Relay] {
                run(secs(50), async {
                    let mut writes: Vec<JoinHandle<TcpStream>> = Vec::new();
                    let mut peers: Vec<Peer> = Vec::new();
                    for _ in 0..8 {
                        let (stream, peer) = pair().await;
                        peer.shutdown(Shutdown::Write).unwrap();
                        assert_eq!(stream.peek(vec![0; 1]).await.0.unwrap(), 0, "the end is there");
                        writes.push(runtime::spawn(write(stream, how)));
                        peers.push(peer);
                    }
                    quiet().await;
                    let before = runtime::metrics();
                    runtime::time::sleep(ms(100)).await;
                    let after = runtime::metrics();
                    assert!(after.enters - before.enters <= 10, "{how:?}: {} enters", after.enters - before.enters);
                    assert_eq!(workers(), 0, "{how:?}");
                    for (mut peer, write) in peers.into_iter().zip(writes) {
                        let reading = std::thread::spawn(move || {
                            let mut all = Vec::new();
                            peer.read_to_end(&mut all).unwrap();
                            all
                        });
                        drop(within(secs(20), "the write", write).await.unwrap());
                        assert!(reading.join().unwrap() == vec![7; LEN], "{how:?}");
                    }
                });
            }
        },
    );
}

#[test]
fn an_orderly_end_behind_a_dropped_write_and_our_own_end_is_no_reset() {
    for nap_ms in [0, 5] {
        for is_zero_copy in [false, true] {
            run(secs(30), async move {
                let (stream, mut peer) = pair().await;
                stream.set_zc_threshold(1);
                peer.write_all(b"hello").unwrap();
                let (reader, writer) = stream.into_split();
                {
                    // SEND_ZC waits in the kernel with what it has sent so far, and our own end cuts it short there.
                    let mut write: Pin<Box<dyn Future<Output = _>>> = match is_zero_copy {
                        false => Box::pin(writer.write_all(vec![7; LEN])),
                        true => Box::pin(writer.write_all_zc(vec![7; LEN])),
                    };
                    assert!(poll_once(write.as_mut()).await.is_pending());
                    runtime::time::sleep(ms(5)).await;
                    assert!(poll_once(write.as_mut()).await.is_pending(), "the peer does not read yet");
                    // Not before it: a write to a peer that has ended its direction waits in another way.
                    peer.shutdown(Shutdown::Write).unwrap();
                    runtime::time::sleep(ms(5)).await;
                }
                drop(writer);
                // The peer reads everything up to our end while this thread is held up.
                let reading = std::thread::spawn(move || {
                    peer.read_to_end(&mut Vec::new()).unwrap();
                    peer
                });
                let peer = reading.join().unwrap();
                std::thread::sleep(Duration::from_millis(nap_ms));
                yield_now().await;
                assert_eq!(reader.read(Vec::with_capacity(100)).await.into_result().unwrap().1, b"hello");
                for _ in 0..2 {
                    let read = reader.read(Vec::with_capacity(100)).await.0;
                    assert_eq!(read.unwrap(), 0, "an end, as the peer meant it; zero-copy: {is_zero_copy}");
                }
                drop(peer);
            });
        }
    }
}

#[test]
fn a_connection_that_both_sides_have_ended_is_alive_until_everything_has_arrived() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        stream.set_zc_threshold(1);
        let (reader, writer) = stream.into_split();
        {
            let mut write = Box::pin(writer.write_all_zc(vec![7; LEN]));
            assert!(poll_once(write.as_mut()).await.is_pending());
            runtime::time::sleep(ms(5)).await;
            peer.write_all(b"answer").unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            runtime::time::sleep(ms(5)).await;
        }
        drop(writer);
        assert_eq!(reader.read(vec![0; 100]).await.into_result().unwrap().0, 6);
        for _ in 0..2 {
            assert_eq!(reader.read(vec![0; 100]).await.0.unwrap(), 0, "the peer has read nothing yet");
        }
        let reading = std::thread::spawn(move || peer.read_to_end(&mut Vec::new()).unwrap());
        assert!(reading.join().unwrap() > 0);
    });
}

#[test]
fn an_end_that_came_before_a_reset_is_told_as_an_end() {
    run(secs(30), async {
        for is_dropped in [false, true] {
            let (stream, mut peer) = pair().await;
            let mut write = Box::pin(stream.write_all(vec![7; LEN]));
            for _ in 0..3 {
                assert!(poll_once(write.as_mut()).await.is_pending());
                runtime::time::sleep(ms(5)).await;
            }
            peer.write_all(b"answer").unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            std::thread::sleep(ms(5));
            // With something unread this is a reset, which the kernel tells as an EPIPE, and only to who writes.
            drop(peer);
            std::thread::sleep(ms(5));
            if is_dropped {
                assert!(poll_once(write.as_mut()).await.is_pending(), "tried again");
                drop(write);
            } else {
                assert_eq!(within(secs(5), "the write", write).await.0.unwrap_err().kind(), ErrorKind::BrokenPipe);
            }
            assert_eq!(stream.read(vec![0; 100]).await.0.unwrap(), 6);
            for _ in 0..2 {
                assert_eq!(stream.read(vec![0; 100]).await.0.unwrap(), 0, "dropped: {is_dropped}");
            }
        }
    });
}

#[test]
fn what_lies_in_the_error_queue_costs_a_write_that_waits_no_turns() {
    in_child("half_closed::what_lies_in_the_error_queue_costs_a_write_that_waits_no_turns", secs(60), || {
        for how in [How::All, How::Some, How::Vectored, How::ZeroCopy, How::Relay] {
            for is_half_closed in [false, true] {
                run(secs(50), async {
                    let (stream, mut peer) = pair().await;
                    report_times_of_sends(&stream);
                    stream.write_all("x").await.0.unwrap();
                    peer.read_exact(&mut [0]).unwrap();
                    if is_half_closed {
                        peer.shutdown(Shutdown::Write).unwrap();
                    }
                    let write = runtime::spawn(write(stream, how));
                    quiet().await;
                    let before = runtime::metrics();
                    runtime::time::sleep(ms(100)).await;
                    let after = runtime::metrics();
                    assert!(after.enters - before.enters <= 10, "{how:?}: {} enters", after.enters - before.enters);
                    assert_eq!(workers(), 0, "{how:?}");
                    let reading = std::thread::spawn(move || {
                        let mut all = Vec::new();
                        peer.read_to_end(&mut all).unwrap();
                        all
                    });
                    drop(within(secs(20), "the write", write).await.unwrap());
                    assert!(reading.join().unwrap() == vec![7; LEN], "{how:?}");
                });
            }
        }
    });
}

#[test]
fn reads_that_wait_beside_an_error_queue_or_an_urgent_byte_cost_no_turns() {
    in_child("half_closed::reads_that_wait_beside_an_error_queue_or_an_urgent_byte_cost_no_turns", secs(60), || {
        for (is_urgent, is_peek) in [(false, true), (true, true), (false, false), (true, false)] {
            run(secs(50), async {
                let (stream, mut peer) = pair().await;
                if is_urgent {
                    socket2::SockRef::from(&peer).send_out_of_band(b"!").unwrap();
                } else {
                    report_times_of_sends(&stream);
                    stream.write_all("x").await.0.unwrap();
                    peer.read_exact(&mut [0]).unwrap();
                }
                let read = runtime::spawn(async move {
                    let len = match is_peek {
                        true => stream.peek(vec![0; 8]).await.0.unwrap(),
                        false => stream.read_vectored(vec![vec![0; 4], vec![0; 4]]).await.0.unwrap(),
                    };
                    (stream, len)
                });
                quiet().await;
                let before = runtime::metrics();
                runtime::time::sleep(ms(100)).await;
                let turns = runtime::metrics().turns - before.turns;
                let case = (is_urgent, is_peek);
                assert!(turns <= 20, "{case:?}: {turns} turns");
                // A vectored read waits in the kernel, which has a worker do it beside an error queue.
                assert!(!is_peek || workers() == 0, "{case:?}: a kernel worker");
                peer.write_all(b"five!").unwrap();
                assert_eq!(within(secs(5), "the read", read).await.unwrap().1, 5, "{case:?}");
            });
        }
    });
}
