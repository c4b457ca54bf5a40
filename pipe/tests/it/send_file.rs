//! Files that go to a stream past the program: whole, from any offset, whatever the file and the client do meanwhile.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::op::{Kind, Rung};
use runtime::pipe::{pipe, send_file, splice_from_file};
use runtime::time::timeout;

use super::support::{Rng, in_child, threads};
use super::{SIGPIPE, pattern, poll_once, read_all, run, signals};

async fn connected() -> (TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (stream, listener.accept().unwrap().0)
}

/// A file without a name.
pub(crate) fn file(content: &[u8]) -> File {
    let path = std::env::temp_dir().join(format!("runtime-file-{}-{:p}", std::process::id(), content));
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(content).unwrap();
    file
}

fn reading(mut peer: std::net::TcpStream) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn a_file_arrives_whole_and_its_position_stays() {
    run(async {
        let content = pattern(41, (1 << 20) + 123);
        let mut file = file(&content);
        file.seek(SeekFrom::Start(7)).unwrap();
        let (stream, peer) = connected().await;
        let peer = reading(peer);
        assert_eq!(send_file(&file, 0, u64::MAX, &stream).await.unwrap(), content.len() as u64);
        assert_eq!(send_file(&file, 1000, 300_000, &stream).await.unwrap(), 300_000);
        assert_eq!(send_file(&file, 5, 0, &stream).await.unwrap(), 0);
        assert_eq!(send_file(&file, 1 << 40, 10, &stream).await.unwrap(), 0, "behind the end");
        stream.shutdown(Shutdown::Write).await.unwrap();
        let all = peer.join().unwrap();
        assert!(all[..content.len()] == content && all[content.len()..] == content[1000..301_000]);
        assert_eq!(file.stream_position().unwrap(), 7);
        assert!(runtime::metrics().ops(Kind::Splice, Rung::Offload) > 0);
    });
}

#[test]
fn offsets_beyond_four_gibibytes_are_not_cut() {
    run(async {
        let file = file(b"start");
        file.write_all_at(b"far away", (5 << 30) + 1).unwrap();
        let (tx, rx) = pipe().unwrap();
        assert_eq!(send_file(&file, 5 << 30, 100, &tx).await.unwrap(), 9);
        assert_eq!(rx.read(Vec::with_capacity(100)).await.1, b"\0far away");
        assert_eq!(send_file(&file, u64::MAX, 1, &tx).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_small_file_that_is_in_memory_needs_no_thread() {
    run(async {
        let content = pattern(8, 10_000);
        let file = file(&content);
        let (tx, rx) = pipe().unwrap();
        // What the mount is, is asked once.
        assert_eq!(send_file(&file, 0, u64::MAX, &tx).await.unwrap(), 10_000);
        assert!(rx.read_exact(vec![0; 10_000]).await.1 == content);
        let before = runtime::metrics();
        for at in [0, 1, 4095, 4096, 9999, 10_000, 20_000] {
            let len = 10_000_usize.saturating_sub(at);
            assert_eq!(send_file(&file, at as u64, u64::MAX, &tx).await.unwrap(), len as u64);
            if len > 0 {
                assert!(rx.read_exact(vec![0; len]).await.1 == content[at..]);
            }
        }
        let offloaded = runtime::metrics().ops(Kind::Splice, Rung::Offload) - before.ops(Kind::Splice, Rung::Offload);
        // Not every kernel and file system can tell.
        let tells = runtime_core::sys::files::is_cached(file.as_fd(), 0, 10_000);
        assert_eq!(offloaded == 0, tells, "{offloaded} jobs");
    });
}

#[test]
fn a_file_that_shrinks_meanwhile_is_shorter() {
    run(async {
        let file = file(&pattern(0, 8 << 20));
        let (stream, mut peer) = connected().await;
        let sent = {
            let mut sending = pin!(send_file(&file, 0, 8 << 20, &stream));
            assert!(timeout(Duration::from_millis(50), sending.as_mut()).await.is_err(), "nobody reads");
            file.set_len(1 << 20).unwrap();
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                peer.read_to_end(&mut all).unwrap();
                all
            });
            let sent = sending.await.unwrap();
            stream.shutdown(Shutdown::Write).await.unwrap();
            let all = reader.join().unwrap();
            assert_eq!(all.len() as u64, sent);
            sent
        };
        assert!(((1 << 20)..(8 << 20)).contains(&sent), "{sent}");
    });
}

#[test]
fn clients_that_do_not_read_hold_no_thread() {
    in_child("send_file::clients_that_do_not_read_hold_no_thread", Duration::from_secs(60), || {
        run(async {
            let content = pattern(3, 12 << 20);
            let file = file(&content);
            let mut streams = Vec::new();
            let mut peers = Vec::new();
            for _ in 0..20 {
                let (stream, peer) = connected().await;
                streams.push(stream);
                peers.push(peer);
            }
            let sends = streams.iter().map(|stream| send_file(&file, 0, u64::MAX, stream));
            let mut all = pin!(futures::future::join_all(sends));
            assert!(timeout(Duration::from_millis(300), all.as_mut()).await.is_err());
            // The threads of the pool are idle: all of them can be had for other work.
            let before = threads();
            assert_eq!(runtime::spawn_blocking(|| 5).await.unwrap(), 5);
            assert!(threads() <= before, "none of {before} threads was idle");
            let readers: Vec<_> = peers
                .into_iter()
                .map(|mut peer| {
                    std::thread::spawn(move || {
                        let mut data = vec![0; 12 << 20];
                        peer.read_exact(&mut data).unwrap();
                        data
                    })
                })
                .collect();
            assert!(all.await.into_iter().all(|sent| sent.unwrap() == 12 << 20));
            assert!(readers.into_iter().all(|reader| reader.join().unwrap() == content));
        });
    });
}

#[test]
fn what_a_dropped_transfer_leaves_reaches_no_other() {
    run(async {
        let bad = file(&vec![0xee; 8 << 20]);
        let good = file(&pattern(6, 100_000));
        for round in 0..6_u64 {
            let (stream, _peer) = connected().await;
            let limit = Duration::from_micros(round * round * 700);
            let _ = timeout(limit, send_file(&bad, 0, u64::MAX, &stream)).await;
            for _ in 0..4 {
                let (tx, rx) = pipe().unwrap();
                let send = async {
                    send_file(&good, 0, u64::MAX, &tx).await.unwrap();
                    drop(tx);
                };
                let ((), all) = futures::join!(send, read_all(&rx));
                assert!(all == pattern(6, 100_000));
            }
        }
    });
}

#[test]
fn what_cannot_be_spliced_is_copied() {
    run(async {
        // A socket in blocking mode whose client reads late.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        let stream = TcpStream::from_std(stream).unwrap();
        let content = pattern(2, 12 << 20);
        let file = file(&content);
        let mut sending = pin!(send_file(&file, 0, u64::MAX, &stream));
        for _ in 0..500 {
            assert!(poll_once(sending.as_mut()).await.is_pending());
            runtime::task::yield_now().await;
        }
        let peer = reading(peer);
        sending.await.unwrap();
        stream.shutdown(Shutdown::Write).await.unwrap();
        assert!(peer.join().unwrap() == content);
        // A device has no length, and no end: it is no file that could be in memory.
        let (tx, rx) = pipe().unwrap();
        let zeros = File::open("/dev/zero").unwrap();
        assert_eq!(send_file(&zeros, 0, 5000, &tx).await.unwrap(), 5000);
        assert_eq!(rx.read_exact(vec![1; 5000]).await.1, [0; 5000]);
        // Files of /proc without a splice.
        let (tx, rx) = pipe().unwrap();
        let status = File::open("/proc/self/status").unwrap();
        assert!(send_file(&status, 0, 10, &tx).await.unwrap() > 0);
        assert!(rx.read(Vec::with_capacity(10)).await.1.starts_with(b"Name:"));
    });
}

#[test]
fn a_client_that_is_gone_is_an_error_and_no_signal() {
    in_child("send_file::a_client_that_is_gone_is_an_error_and_no_signal", Duration::from_secs(30), || {
        run(async {
            let file = file(&pattern(0, 1 << 20));
            let (tx, rx) = pipe().unwrap();
            drop(rx);
            let error = send_file(&file, 0, u64::MAX, &tx).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            assert_eq!(signals("SigPnd:") & SIGPIPE, 0);
        });
    });
}

#[test]
fn a_file_that_is_sent_by_halves_to_a_blocking_socket_arrives_once() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let all = pattern(7, 8 << 20);
        let mut source = file(&all);
        source.seek(SeekFrom::Start(0)).unwrap();
        // In blocking mode, as std makes them.
        let stream = TcpStream::from_std(ours).unwrap();
        let reading = std::thread::spawn(move || {
            let mut seen = Vec::new();
            peer.read_to_end(&mut seen).unwrap();
            seen
        });
        let mut rng = Rng(3);
        let mut dropped = 0;
        loop {
            let mut moving = Box::pin(splice_from_file(&source, None, &stream, 10_000));
            let mut over = None;
            // Given up after one poll, or two, or not at all.
            for _ in 0..rng.below(4) {
                if let Poll::Ready(moved) = poll_once(moving.as_mut()).await {
                    over = Some(moved.unwrap());
                    break;
                }
                runtime::task::yield_now().await;
                if rng.below(3) == 0 {
                    over = Some(moving.as_mut().await.unwrap());
                    break;
                }
            }
            if over == Some(0) {
                break;
            }
            dropped += usize::from(over.is_none());
        }
        assert!(dropped > 50, "{dropped}");
        drop(stream);
        let seen = reading.join().unwrap();
        let first = seen.iter().zip(&all).position(|(a, b)| a != b);
        assert!(seen == all, "{} of {} bytes, the first wrong one at {first:?}", seen.len(), all.len());
    });
}
