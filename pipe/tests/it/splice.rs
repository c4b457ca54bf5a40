//! Bytes that go from stream to stream inside the kernel: all of them, in order, and without a kernel worker.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use runtime::io::BufResult;
use runtime::net::TcpStream;
use runtime::op::{Kind, Rung};
use runtime::pipe::{Receiver, Sender, pipe, splice, splice_all, tee};
use runtime::time::timeout;

use super::support::{Rng, fds, in_child};
use super::{SIGPIPE, pattern, poll_once, read_all, run, signals};

/// Kernel workers of this process.
pub(crate) fn workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter(|task| {
            let name = std::fs::read_to_string(task.as_ref().unwrap().path().join("comm")).unwrap_or_default();
            name.starts_with("iou-wrk")
        })
        .count()
}

/// A stream of the runtime and its peer of std.
async fn connected() -> (TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (stream, listener.accept().unwrap().0)
}

#[test]
fn ten_thousand_splices_ready_and_not_ready_start_no_kernel_worker() {
    in_child(
        "splice::ten_thousand_splices_ready_and_not_ready_start_no_kernel_worker",
        Duration::from_secs(60),
        || {
            run(async {
                let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
                for round in 0..5000_usize {
                    // Ready.
                    tx.write_all(pattern(round, 64)).await.0.unwrap();
                    assert_eq!(splice(&from, &to, 4096).await.unwrap(), 64);
                    assert!(rx.read(Vec::with_capacity(100)).await.1 == pattern(round, 64));
                    // Not ready: there is nothing to read until the other side has run.
                    let (moved, written) =
                        futures::join!(splice(&from, &to, 4096), async { tx.write_all(pattern(round, 65)).await.0 });
                    assert_eq!((moved.unwrap(), written.unwrap()), (65, ()));
                    assert!(rx.read(Vec::with_capacity(100)).await.1 == pattern(round, 65));
                }
                let metrics = runtime::metrics();
                assert_eq!(metrics.ops(Kind::Splice, Rung::Inline), 10_000);
                assert_eq!(metrics.ops(Kind::Splice, Rung::Reissue), 5000);
                assert_eq!(metrics.ops(Kind::Splice, Rung::Ring) + metrics.ops(Kind::Splice, Rung::Offload), 0);
                assert_eq!(workers(), 0, "a kernel worker was started");
            });
        },
    );
}

#[test]
fn a_full_output_is_waited_for() {
    run(async {
        let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
        tx.write_all(pattern(9, 40)).await.0.unwrap();
        // Sixteen pieces of one byte fill a pipe of sixteen pages: slots count, not bytes.
        for _ in 0..16 {
            assert_eq!(splice(&from, &to, 1).await.unwrap(), 1);
        }
        let mut waiting = pin!(splice(&from, &to, 100));
        for _ in 0..10 {
            assert!(poll_once(waiting.as_mut()).await.is_pending());
            runtime::task::yield_now().await;
        }
        assert!(rx.read_exact(vec![0; 16]).await.1 == pattern(9, 16));
        assert_eq!(waiting.await.unwrap(), 24);
        assert!(rx.read_exact(vec![0; 24]).await.1 == pattern(25, 24));
    });
}

#[test]
fn everything_goes_through_in_order_whatever_the_sizes() {
    run(async {
        let mut rng = Rng(7);
        for round in 0..12_usize {
            let len = 1 + rng.below(2 << 20) as usize;
            let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
            let write = async {
                tx.write_all(pattern(round, len)).await.0.unwrap();
                drop(tx);
            };
            let mut limits = rng.clone();
            let moved = async {
                let mut moved = 0;
                let mut dropped = 0;
                loop {
                    let want = 1 + limits.below(200_000) as usize;
                    match timeout(Duration::from_micros(limits.below(50)), splice(&from, &to, want)).await {
                        Ok(Ok(0)) => break,
                        Ok(n) => moved += n.unwrap(),
                        Err(_) => dropped += 1,
                    }
                }
                drop(to);
                (moved, dropped)
            };
            let ((), (moved, _dropped), all) = futures::join!(write, moved, read_all(&rx));
            assert_eq!(moved, len);
            assert!(all == pattern(round, len), "round {round}");
        }
    });
}

#[test]
fn a_header_is_read_with_recv_and_the_rest_is_spliced_in_order() {
    run(async {
        for round in 0..20_usize {
            let (stream, mut peer) = connected().await;
            let sender = std::thread::spawn(move || peer.write_all(&pattern(round, 300_000)).unwrap());
            // The standing receive has brought more than the header by now, or brings it meanwhile.
            let mut all = stream.recv().await.unwrap().to_vec();
            if round % 3 == 1
                && let Poll::Ready(result) = poll_once(pin!(stream.read(vec![0; 100]))).await
            {
                all.extend(&result.1);
            }
            let (to, rx) = pipe().unwrap();
            let move_on = async {
                let moved = splice_all(&stream, &to, u64::MAX).await.unwrap();
                drop(to);
                moved
            };
            let (moved, rest) = futures::join!(move_on, read_all(&rx));
            all.extend(&rest);
            assert_eq!(moved as usize, rest.len());
            assert!(all == pattern(round, 300_000), "round {round}: {} bytes", all.len());
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_splice_that_is_dropped_loses_no_byte_of_a_socket() {
    run(async {
        let mut rng = Rng(99);
        for round in 0..10_usize {
            let (stream, mut peer) = connected().await;
            let len = 200_000 + round;
            let sender = std::thread::spawn(move || {
                for piece in pattern(round, len).chunks(7001) {
                    peer.write_all(piece).unwrap();
                }
            });
            let (to, rx) = pipe().unwrap();
            let move_on = async {
                loop {
                    let limit = Duration::from_micros(rng.below(60));
                    if rng.below(4) == 0 {
                        // Between splices somebody lets the runtime receive ahead.
                        let _ = timeout(limit, stream.peek(vec![0; 10])).await;
                        let mut recv = Box::pin(stream.recv());
                        if let Poll::Ready(data) = poll_once(recv.as_mut()).await {
                            let data = data.unwrap();
                            if data.is_empty() {
                                break;
                            }
                            to.write_all(data).await.0.unwrap();
                        }
                    }
                    if let Ok(Ok(0)) = timeout(limit, splice(&stream, &to, 50_000)).await {
                        break;
                    }
                }
                drop(to);
            };
            let ((), all) = futures::join!(move_on, read_all(&rx));
            assert!(all == pattern(round, len), "round {round}: {} of {len}", all.len());
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_pipe_goes_into_a_socket_that_reads_slowly() {
    // Alone, since it counts descriptors.
    in_child("splice::a_pipe_goes_into_a_socket_that_reads_slowly", Duration::from_secs(30), || {
        run(async {
            let (stream, mut peer) = connected().await;
            let (tx, from) = pipe().unwrap();
            let reader = std::thread::spawn(move || {
                let mut all: Vec<u8> = Vec::new();
                let mut piece = [0; 10_000];
                loop {
                    match peer.read(&mut piece).unwrap() {
                        0 => return all,
                        n => all.extend(&piece[..n]),
                    }
                }
            });
            let len = (8 << 20) + 123;
            let write = async {
                tx.write_all(pattern(1, len)).await.0.unwrap();
                drop(tx);
            };
            let before = fds();
            let move_on = async {
                let moved = splice_all(&from, &stream, u64::MAX).await.unwrap();
                assert!(fds() <= before, "no pipe of its own");
                stream.shutdown(std::net::Shutdown::Write).await.unwrap();
                moved
            };
            let ((), moved) = futures::join!(write, move_on);
            assert_eq!(moved as usize, len);
            assert!(reader.join().unwrap() == pattern(1, len));
        })
    });
}

#[test]
fn a_socket_in_blocking_mode_is_copied_and_never_blocks_the_thread() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let stream = TcpStream::from_std(stream).unwrap();
        let (to, rx) = pipe().unwrap();
        // Nothing is there: a splice(2) would block the thread until the watchdog barks.
        assert!(poll_once(pin!(splice(&stream, &to, 100))).await.is_pending());
        peer.write_all(&pattern(3, 1000)).unwrap();
        let mut moved = 0;
        while moved < 1000 {
            moved += splice(&stream, &to, 1000 - moved).await.unwrap();
        }
        assert!(rx.read_exact(vec![0; 1000]).await.1 == pattern(3, 1000));
        // The other way, into a peer that does not read.
        let (tx, from) = pipe().unwrap();
        let len = 16 << 20;
        let mut both =
            pin!(futures::future::join(tx.write_all(pattern(5, len)), splice_all(&from, &stream, len as u64)));
        for _ in 0..2000 {
            assert!(poll_once(both.as_mut()).await.is_pending());
            runtime::task::yield_now().await;
        }
        let reader = std::thread::spawn(move || {
            let mut data = vec![0; len];
            peer.read_exact(&mut data).unwrap();
            data
        });
        let (written, moved) = both.await;
        written.0.unwrap();
        assert_eq!(moved.unwrap(), len as u64);
        assert!(reader.join().unwrap() == pattern(5, len));
    });
}

#[test]
fn odd_arguments_get_the_kernels_own_answer_at_once() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        let (to, other) = pipe().unwrap();
        assert_eq!(splice(&rx, &to, 0).await.unwrap(), 0);
        assert_eq!(tee(&rx, &to, 0).await.unwrap(), 0);
        assert_eq!(splice_all(&rx, &to, 0).await.unwrap(), 0);
        assert_eq!(splice(&rx, &tx, 1).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(tee(&rx, &tx, 1).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        let ((a, _p), (b, _q)) = (connected().await, connected().await);
        assert_eq!(splice(&a, &b, 1).await.unwrap_err().kind(), ErrorKind::InvalidInput, "neither is a pipe");
        drop(tx);
        assert_eq!(splice(&rx, &to, 1).await.unwrap(), 0, "the end");
        assert_eq!(tee(&rx, &to, 1).await.unwrap(), 0);
        drop(other);
    });
}

#[test]
fn a_reader_that_is_gone_is_an_error_and_no_signal() {
    in_child("splice::a_reader_that_is_gone_is_an_error_and_no_signal", Duration::from_secs(30), || {
        run(async {
            let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
            drop(rx);
            tx.write_all("abc").await.0.unwrap();
            assert_eq!(splice(&from, &to, 8).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            assert_eq!(tee(&from, &to, 8).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            assert_eq!(signals("SigPnd:") & SIGPIPE, 0, "taken away");
            let (stream, peer) = connected().await;
            drop(peer);
            stream.shutdown(std::net::Shutdown::Write).await.unwrap();
            assert_eq!(splice(&from, &stream, 8).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
            assert_eq!(signals("SigPnd:") & SIGPIPE, 0, "taken away");
            assert_eq!(from.read(Vec::with_capacity(9)).await.1, b"abc", "nothing was lost");
            // A full output whose reader goes away while the splice waits.
            let (to, rx) = pipe().unwrap();
            let _ = tx.write_all("abc").await;
            to.write(vec![0; 65536]).await.0.unwrap();
            let mut waiting = pin!(splice(&from, &to, 8));
            assert!(poll_once(waiting.as_mut()).await.is_pending());
            drop(rx);
            assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
    });
}

#[test]
fn tee_copies_and_takes_nothing() {
    run(async {
        let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
        let (seen, ()) = futures::join!(tee(&from, &to, 100), async { tx.write_all("one").await.0.unwrap() });
        assert_eq!(seen.unwrap(), 3);
        assert_eq!(rx.read(Vec::with_capacity(9)).await.1, b"one");
        // What a dropped read left is seen too, and stays.
        let mut read = Box::pin(from.read_exact(Vec::with_capacity(5)));
        assert!(poll_once(read.as_mut()).await.is_pending());
        runtime::time::sleep(Duration::from_millis(1)).await;
        assert!(poll_once(read.as_mut()).await.is_pending());
        drop(read);
        assert_eq!(tee(&from, &to, 100).await.unwrap(), 3);
        assert_eq!(rx.read(Vec::with_capacity(9)).await.1, b"one");
        assert_eq!(splice(&from, &to, 100).await.unwrap(), 3);
        assert_eq!(rx.read(Vec::with_capacity(9)).await.1, b"one");
        let metrics = runtime::metrics();
        assert_eq!((metrics.ops(Kind::Tee, Rung::Inline), metrics.ops(Kind::Tee, Rung::Reissue)), (1, 1));
    });
}

#[test]
fn a_tee_of_what_is_no_pipe_is_the_kernels_error_also_with_something_left_behind() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut peer = listener.accept().unwrap().0;
        let (tx, rx) = pipe().unwrap();
        let (to, out) = pipe().unwrap();
        // What dropped reads leave of a socket and of a pipe.
        let (mut one, mut other) = (Box::pin(stream.read(vec![0; 9])), Box::pin(rx.read(vec![0; 9])));
        assert!(poll_once(one.as_mut()).await.is_pending() && poll_once(other.as_mut()).await.is_pending());
        peer.write_all(b"socket").unwrap();
        tx.write_all("pipe").await.0.unwrap();
        while runtime::testing::in_flight() > 0 && runtime::metrics().completions < 3 {
            runtime::task::yield_now().await;
        }
        drop((one, other));
        while runtime::testing::in_flight() > 0 {
            runtime::task::yield_now().await;
        }
        for _ in 0..2 {
            assert_eq!(tee(&stream, &to, 9).await.unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(tee(&rx, &stream, 9).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(out.try_read(vec![0; 9]).0.unwrap_err().kind(), ErrorKind::WouldBlock, "nothing was copied");
        peer.set_nonblocking(true).unwrap();
        assert_eq!(peer.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock, "nothing was sent");
        assert_eq!(stream.read_exact(vec![0; 6]).await.1, b"socket");
        assert_eq!(rx.read_exact(vec![0; 4]).await.1, b"pipe");
    });
}

#[test]
fn reads_of_a_pipe_that_was_spliced_wait_and_lose_nothing_when_dropped() {
    run(async {
        let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
        tx.write_all("x").await.0.unwrap();
        splice(&from, &to, 1).await.unwrap();
        for pipe in [(&tx, &from), (&to, &rx)] as [(&Sender, &Receiver); 2] {
            let (tx, rx) = pipe;
            tx.write_all("ab").await.0.unwrap();
            for _ in 0..3 {
                let dropped = timeout(Duration::from_millis(5), rx.read_exact(Vec::with_capacity(10))).await;
                assert!(dropped.is_err());
            }
            let (read, ()) = futures::join!(rx.read_exact(Vec::with_capacity(10)), async {
                tx.write_all("cdefghij").await.0.unwrap();
            });
            read.0.unwrap();
            let all = read.1;
            assert!(all == b"abcdefghij" || all == b"xabcdefghi", "{all:?}");
            let big = timeout(Duration::from_millis(5), tx.write_all(pattern(0, 100_000))).await;
            assert!(big.is_err());
        }
    });
}

#[test]
fn random_moves_dropped_at_random_keep_every_byte_in_order() {
    run(async {
        for seed in 1..=12_u64 {
            let mut rng = Rng(seed * 7919);
            let len = rng.below(400_000) as usize;
            let capacity = |rng: &mut Rng| 4096 << rng.below(6);
            let builder = |bytes| runtime::pipe::Builder::new().capacity(bytes).build().unwrap();
            let (tx, from) = builder(capacity(&mut rng));
            let (to, rx) = builder(capacity(&mut rng));
            let mut writes = rng.clone();
            let write = async {
                let data = pattern(seed as usize, len);
                let mut rest = &data[..];
                while !rest.is_empty() {
                    let n = (1 + writes.below(9000) as usize).min(rest.len());
                    tx.write_all(rest[..n].to_vec()).await.0.unwrap();
                    rest = &rest[n..];
                }
                drop(tx);
            };
            // What is read from the input by hand goes on by hand, between splices and at their place.
            let move_on = async {
                loop {
                    let limit = Duration::from_micros(rng.below(40));
                    let n = 1 + rng.below(30_000) as usize;
                    match rng.below(6) {
                        0 => {
                            if let Ok(BufResult(_, data)) = timeout(limit, from.read_exact(Vec::with_capacity(n))).await
                            {
                                // Also what came before the end.
                                to.write_all(data).await.0.unwrap();
                            }
                        }
                        1 => {
                            if let Ok(BufResult(Ok(n), data)) = timeout(limit, from.read(Vec::with_capacity(n))).await {
                                if n == 0 {
                                    break;
                                }
                                to.write_all(data).await.0.unwrap();
                            }
                        }
                        2 => drop(timeout(limit, from.readable()).await),
                        _ => match timeout(limit, splice(&from, &to, n)).await {
                            Ok(Ok(0)) => break,
                            Ok(result) => drop(result.unwrap()),
                            Err(_) => {}
                        },
                    }
                }
                drop(to);
            };
            let ((), (), all) = futures::join!(write, move_on, read_all(&rx));
            assert!(all == pattern(seed as usize, len), "seed {seed}: {} of {len}", all.len());
        }
    });
}

#[test]
fn a_copied_splice_takes_no_more_than_it_was_asked_for() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        // In blocking mode, so that it is copied; in pieces of 64 KiB and a rest.
        let stream = TcpStream::from_std(ours).unwrap();
        let all = pattern(1, 160_000);
        peer.write_all(&all).unwrap();
        let (tx, rx) = runtime::pipe::Builder::new().capacity(1 << 20).build().unwrap();
        assert_eq!(splice_all(&stream, &tx, 100_000).await.unwrap(), 100_000);
        assert_eq!(rx.available().unwrap(), 100_000);
        assert!(rx.read_exact(vec![0; 100_000]).await.1 == all[..100_000]);
        assert!(stream.read_exact(vec![0; 60_000]).await.1 == all[100_000..], "the rest is for others");
    });
}

#[test]
fn what_cannot_be_spliced_is_the_kernels_error_whatever_is_there() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for nonblocking in [true, false] {
            let sockets = || {
                let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                ours.set_nonblocking(nonblocking).unwrap();
                (TcpStream::from_std(ours).unwrap(), listener.accept().unwrap().0)
            };
            let ((from, mut peer), (to, mut other)) = (sockets(), sockets());
            {
                let mut read = Box::pin(from.read(vec![0; 9]));
                assert!(poll_once(read.as_mut()).await.is_pending());
                peer.write_all(b"hello").unwrap();
                runtime::time::sleep(Duration::from_millis(5)).await;
            }
            runtime::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(splice(&from, &to, 9).await.unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(splice_all(&from, &to, 9).await.unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(from.read(vec![0; 9]).await.0.unwrap(), 5, "nothing was moved");
            other.set_nonblocking(true).unwrap();
            assert_eq!(other.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        let (tx, rx) = pipe().unwrap();
        {
            let mut read = Box::pin(rx.read(vec![0; 9]));
            assert!(poll_once(read.as_mut()).await.is_pending());
            tx.write_all("hello").await.0.unwrap();
            runtime::time::sleep(Duration::from_millis(5)).await;
        }
        runtime::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(splice(&rx, &tx, 9).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(tee(&rx, &tx, 9).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(rx.read(vec![0; 9]).await.1, b"hello");
    });
}
