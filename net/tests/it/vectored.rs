//! Several buffers in one operation, and the shortcuts for none and for one (technique 3).

use std::io::{Read, Write};
use std::task::Poll;

use runtime::io::BufResult;
use runtime::op::{Kind, Rung};
use runtime::task::yield_now;

use crate::peer::{finish, pair, pattern, poll_once, read_len, run, secs, start_and_drop, within};

fn ops(kind: Kind) -> u64 {
    Rung::ALL.iter().map(|&rung| runtime::metrics().ops(kind, rung)).sum()
}

/// Opcodes of the requests that wait in the rings of this process, from the kernel's own list.
fn waiting_opcodes() -> Vec<u32> {
    let mut opcodes = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let is_ring = std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().contains("io_uring"));
        if is_ring {
            let info = entry.path().to_string_lossy().replace("/fd/", "/fdinfo/");
            let info = std::fs::read_to_string(info).unwrap_or_default();
            let op = |line: &str| line.trim().strip_prefix("op=")?.split(',').next()?.parse::<u32>().ok();
            opcodes.extend(info.lines().filter_map(op));
        }
    }
    opcodes
}

#[test]
fn no_buffer_at_all_is_no_operation() {
    run(secs(10), async {
        let (stream, mut peer) = pair().await;
        peer.write_all(b"stays").unwrap();
        let (recv, send) = (ops(Kind::Recv), ops(Kind::Send));
        assert_eq!(stream.read_vectored(Vec::<Vec<u8>>::new()).await.0.unwrap(), 0);
        assert_eq!(stream.write_vectored(Vec::<Vec<u8>>::new()).await.0.unwrap(), 0);
        stream.write_all_vectored(Vec::<Vec<u8>>::new()).await.0.unwrap();
        assert_eq!(stream.write("").await.0.unwrap(), 0);
        stream.write_all("").await.0.unwrap();
        assert_eq!(stream.read(Vec::new()).await.0.unwrap(), 0);
        assert_eq!((ops(Kind::Recv), ops(Kind::Send)), (recv, send));
        assert_eq!(read_len(&stream, 5).await, b"stays");
    });
}

#[test]
fn buffers_without_room_read_nothing_at_once() {
    run(secs(10), async {
        let (stream, mut peer) = pair().await;
        // Nothing has come: a receive of no bytes would wait.
        let empty = || vec![Vec::new(), Vec::new(), Vec::new()];
        let BufResult(result, bufs) = within(secs(1), "a read without room", stream.read_vectored(empty())).await;
        assert_eq!((result.unwrap(), bufs.len()), (0, 3));
        let BufResult(result, _) = within(secs(1), "a write of nothing", stream.write_vectored(empty())).await;
        assert_eq!(result.unwrap(), 0);
        within(secs(1), "a write of nothing", stream.write_all_vectored(empty())).await.0.unwrap();
        peer.write_all(b"abc").unwrap();
        let bufs = vec![Vec::new(), Vec::with_capacity(2), Vec::new(), Vec::with_capacity(8)];
        let (n, bufs) = stream.read_vectored(bufs).await.into_result().unwrap();
        assert_eq!((n, bufs.concat()), (3, b"abc".to_vec()));
        let (_, bufs) = (stream.write_vectored(bufs).await).into_result().unwrap();
        finish_and_read(stream, peer, &bufs.concat());
    });
}

fn finish_and_read(stream: runtime::net::TcpStream, mut peer: crate::peer::Peer, expected: &[u8]) {
    drop(stream);
    let mut all = Vec::new();
    peer.read_to_end(&mut all).unwrap();
    assert!(all == expected, "{} of {} bytes", all.len(), expected.len());
}

#[test]
fn one_buffer_is_a_plain_operation_and_keeps_its_memory() {
    const RECV: u32 = 27;
    run(secs(10), async {
        let (stream, mut peer) = pair().await;
        let bufs = vec![Vec::with_capacity(100)];
        let (outer, inner) = (bufs.as_ptr(), bufs[0].as_ptr());
        let mut read = Box::pin(stream.read_vectored(bufs));
        assert!(poll_once(read.as_mut()).await.is_pending());
        yield_now().await;
        let waiting = waiting_opcodes();
        if waiting.is_empty() {
            eprintln!("SKIP: this kernel does not list waiting requests");
        } else {
            // Other tests of this process may have rings of their own, but none waits in a RECVMSG for long.
            assert!(waiting.contains(&RECV), "{waiting:?}");
        }
        peer.write_all(b"hello").unwrap();
        let (n, bufs) = read.await.into_result().unwrap();
        assert_eq!((n, &bufs[0][..]), (5, &b"hello"[..]));
        assert_eq!((bufs.as_ptr(), bufs[0].as_ptr()), (outer, inner));
        // A plain send is tried inline when the turn brought nothing; a SENDMSG never is.
        for _ in 0..3 {
            yield_now().await;
        }
        let inline = runtime::metrics().ops(Kind::Send, Rung::Inline);
        assert_eq!(stream.write_vectored(vec!["hello"]).await.0.unwrap(), 5);
        assert_eq!(runtime::metrics().ops(Kind::Send, Rung::Inline), inline + 1);
        let mut back = [0; 5];
        peer.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello");
    });
}

#[test]
fn two_buffers_are_filled_one_after_the_other() {
    run(secs(10), async {
        let (stream, mut peer) = pair().await;
        peer.write_all(b"abcdef").unwrap();
        let (n, bufs) = stream.read_vectored(vec![[0u8; 4], [0u8; 4]]).await.into_result().unwrap();
        assert_eq!((n, bufs), (6, vec![*b"abcd", *b"ef\0\0"]));
        peer.write_all(b"xy").unwrap();
        // Whatever the buffers held before, their length is what was read.
        let (n, bufs) = stream.read_vectored(vec![vec![7u8; 4], vec![7u8; 4]]).await.into_result().unwrap();
        assert_eq!((n, bufs), (2, vec![b"xy".to_vec(), Vec::new()]));
        finish(&peer);
        let (n, _) = stream.read_vectored(vec![[0u8; 4], [0u8; 4]]).await.into_result().unwrap();
        assert_eq!(n, 0);
        assert_eq!(stream.write_vectored(vec!["ab", "", "cd"]).await.0.unwrap(), 4);
        finish_and_read(stream, peer, b"abcd");
    });
}

#[test]
fn more_buffers_than_the_kernel_takes_are_a_short_transfer() {
    run(secs(20), async {
        let (stream, peer) = pair().await;
        let bufs: Vec<Vec<u8>> = (0..1500).map(|i| pattern(i, 1)).collect();
        let (n, bufs) = stream.write_vectored(bufs).await.into_result().unwrap();
        assert_eq!(n, 1024);
        // From the start, all of it.
        stream.write_all_vectored(bufs).await.0.unwrap();
        finish_and_read(stream, peer, &[pattern(0, 1024), pattern(0, 1500)].concat());

        let (stream, mut peer) = pair().await;
        peer.write_all(&pattern(0, 1500)).unwrap();
        let room = || (0..1500).map(|_| Vec::with_capacity(1)).collect::<Vec<Vec<u8>>>();
        let (n, bufs) = stream.read_vectored(room()).await.into_result().unwrap();
        assert!(n <= 1024, "{n}");
        assert_eq!(bufs.concat(), pattern(0, n));
        let (rest, bufs) = stream.read_vectored(room()).await.into_result().unwrap();
        assert_eq!(bufs.concat(), pattern(n, rest));
        assert_eq!(n + rest, 1500);
    });
}

#[test]
fn empty_buffers_do_not_hide_the_ones_with_bytes() {
    run(secs(20), async {
        let (stream, peer) = pair().await;
        // Two thousand empty ones before and between what matters.
        let mut bufs = vec![Vec::new(); 1200];
        bufs.push(b"first".to_vec());
        bufs.extend(vec![Vec::new(); 800]);
        bufs.push(b"second".to_vec());
        stream.write_all_vectored(bufs.clone()).await.0.unwrap();
        let (n, _) = stream.write_vectored(bufs).await.into_result().unwrap();
        assert_eq!(n, 11);
        finish_and_read(stream, peer, b"firstsecondfirstsecond");

        let (stream, mut peer) = pair().await;
        peer.write_all(b"data").unwrap();
        let mut bufs = vec![Vec::new(); 1200];
        bufs.push(Vec::with_capacity(8));
        let read = within(secs(2), "a read with room behind 1200 empty buffers", stream.read_vectored(bufs)).await;
        assert_eq!(read.0.unwrap(), 4, "0 would be the end of the stream");
    });
}

#[test]
fn a_residue_is_spread_over_the_buffers_and_never_mixed_with_later_bytes_out_of_order() {
    run(secs(20), async {
        for round in 0..50 {
            let (stream, mut peer) = pair().await;
            let mut waits = Box::pin(stream.read(Vec::with_capacity(10)));
            assert!(poll_once(waits.as_mut()).await.is_pending());
            yield_now().await;
            peer.write_all(&pattern(0, 10)).unwrap();
            yield_now().await;
            drop(waits);
            peer.write_all(&pattern(10, 10)).unwrap();
            let mut all = Vec::new();
            while all.len() < 20 {
                let bufs = vec![Vec::with_capacity(3), Vec::new(), Vec::with_capacity(4), vec![9u8; 1 + round % 5]];
                let (n, bufs) = stream.read_vectored(bufs).await.into_result().unwrap();
                assert_eq!(bufs.iter().map(Vec::len).sum::<usize>(), n);
                all.extend(bufs.concat());
            }
            assert_eq!(all, pattern(0, 20), "round {round}");
        }
    });
}

#[test]
fn a_dropped_vectored_read_gives_its_bytes_back_in_order() {
    run(secs(20), async {
        for round in 0..100 {
            let (stream, mut peer) = pair().await;
            let bufs = || vec![Vec::with_capacity(3), Vec::with_capacity(1), Vec::with_capacity(200)];
            let mut waits = Box::pin(stream.read_vectored(bufs()));
            assert!(poll_once(waits.as_mut()).await.is_pending());
            yield_now().await;
            peer.write_all(&pattern(0, 100)).unwrap();
            if round % 2 == 0 {
                yield_now().await;
            }
            drop(waits);
            // Arrays count by their part, not by their size.
            let mut waits = Box::pin(stream.read_vectored(vec![[0u8; 20], [0u8; 20]]));
            let taken = match poll_once(waits.as_mut()).await {
                // What the first had got already.
                Poll::Ready(result) => {
                    let (n, bufs) = result.into_result().unwrap();
                    assert_eq!(bufs.concat()[..n], pattern(0, n), "round {round}");
                    n
                }
                Poll::Pending => {
                    yield_now().await;
                    yield_now().await;
                    0
                }
            };
            drop(waits);
            assert_eq!(read_len(&stream, 100 - taken).await, pattern(taken, 100 - taken), "round {round}");
            let _ = start_and_drop(stream.read_vectored(bufs())).await;
            peer.write_all(b"end").unwrap();
            assert_eq!(read_len(&stream, 3).await, b"end");
        }
    });
}

#[test]
fn a_large_vectored_write_reaches_a_slow_reader_whole() {
    run(secs(40), async {
        let (stream, mut peer) = pair().await;
        let bufs: Vec<Vec<u8>> = (0..2000).map(|i| pattern(i * 4096, 4096)).collect();
        let reader = std::thread::spawn(move || {
            let (mut all, mut piece) = (Vec::new(), [0; 70_001]);
            loop {
                match peer.read(&mut piece).unwrap() {
                    0 => return all,
                    n => all.extend_from_slice(&piece[..n]),
                }
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        stream.write_all_vectored(bufs).await.0.unwrap();
        drop(stream);
        assert!(reader.join().unwrap() == pattern(0, 2000 * 4096));
    });
}
