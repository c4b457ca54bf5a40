//! Files spliced at offsets and at their own position: exact counts, positions that follow, and nothing lost where a
//! file does not take it.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::op::{Kind, Rung};
use runtime::pipe::{Builder, pipe, splice_from_file, splice_to_file};
use runtime::task::yield_now;
use runtime::time::timeout;

use super::send_file::file;
use super::splice::workers;
use super::support::{Rng, in_child};
use super::{pattern, poll_once, run};

const EBADF: i32 = 9;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ESPIPE: i32 = 29;

fn content(file: &File) -> Vec<u8> {
    let mut all = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut all, 0).unwrap();
    all
}

#[test]
fn a_file_is_spliced_from_any_offset_and_its_position_moves_only_without_one() {
    run(async {
        let all = pattern(1, 100_000);
        let mut file = file(&all);
        let (tx, rx) = pipe().unwrap();
        for (offset, len, wanted) in [(0, 10, 0..10), (4095, 5000, 4095..9095), (99_990, 1000, 99_990..100_000)] {
            assert_eq!(splice_from_file(&file, Some(offset), &tx, len).await.unwrap(), wanted.len());
            assert!(rx.read_exact(vec![0; wanted.len()]).await.1 == all[wanted]);
        }
        assert_eq!(splice_from_file(&file, Some(100_000), &tx, 10).await.unwrap(), 0, "the end");
        assert_eq!(splice_from_file(&file, Some(1 << 50), &tx, 10).await.unwrap(), 0);
        assert_eq!(splice_from_file(&file, Some(5), &tx, 0).await.unwrap(), 0);
        assert_eq!(file.stream_position().unwrap(), 100_000, "where writing had left it");
        file.seek(SeekFrom::Start(70)).unwrap();
        assert_eq!(splice_from_file(&file, None, &tx, 30).await.unwrap(), 30);
        assert_eq!(splice_from_file(&file, None, &tx, 5).await.unwrap(), 5);
        assert!(rx.read_exact(vec![0; 35]).await.1 == all[70..105]);
        assert_eq!(file.stream_position().unwrap(), 105);
    });
}

#[test]
fn a_splice_from_a_file_that_is_dropped_leaves_the_position_behind_what_went_out() {
    run(async {
        let mut rng = Rng(31);
        let all = pattern(2, 600_000);
        let mut file = file(&all);
        file.seek(SeekFrom::Start(0)).unwrap();
        let (tx, rx) = Builder::new().capacity(8192).build().unwrap();
        let mut seen: Vec<u8> = Vec::new();
        let mut dropped = 0;
        while seen.len() < all.len() {
            let limit = Duration::from_micros(rng.below(400));
            match timeout(limit, splice_from_file(&file, None, &tx, 1 + rng.below(300_000) as usize)).await {
                Ok(n) => drop(n.unwrap()),
                Err(_) => dropped += 1,
            }
            while let Ok(n) = rx.try_read(vec![0; 8192]).into_result().map(|(n, data)| {
                seen.extend(&data[..n]);
                n
            }) {
                assert!(n > 0);
            }
        }
        assert!(seen == all && dropped > 0, "{dropped} dropped");
        assert_eq!(file.stream_position().unwrap(), all.len() as u64);
    });
}

#[test]
fn a_pipe_is_spliced_into_a_file_at_offsets_and_at_its_position() {
    in_child("file::a_pipe_is_spliced_into_a_file_at_offsets_and_at_its_position", Duration::from_secs(30), || {
        run(async {
            let mut target = file(b"0123456789");
            let (tx, rx) = pipe().unwrap();
            tx.write_all("abc").await.0.unwrap();
            assert_eq!(splice_to_file(&rx, &target, Some(4), 2).await.unwrap(), 2);
            assert_eq!(splice_to_file(&rx, &target, None, 100).await.unwrap(), 1, "at the position, which is the end");
            assert_eq!((content(&target), target.stream_position().unwrap()), (b"0123ab6789c".to_vec(), 11));
            assert_eq!(splice_to_file(&rx, &target, Some(0), 0).await.unwrap(), 0);
            // It waits for what comes.
            let (moved, ()) = futures::join!(splice_to_file(&rx, &target, Some(5 << 30), 100), async {
                runtime::time::sleep(Duration::from_millis(5)).await;
                tx.write_all("far").await.0.unwrap();
            });
            assert_eq!((moved.unwrap(), target.metadata().unwrap().len()), (3, (5 << 30) + 3));
            target.set_len(0).unwrap();
            target.rewind().unwrap();
            let all = pattern(5, 3 << 20);
            let write = async {
                tx.write_all(all.clone()).await.0.unwrap();
                drop(tx);
            };
            let moving = async {
                let mut moved = 0;
                loop {
                    match splice_to_file(&rx, &target, None, usize::MAX).await.unwrap() {
                        0 => return moved,
                        n => moved += n,
                    }
                }
            };
            let ((), moved) = futures::join!(write, moving);
            assert!(moved == all.len() && content(&target) == all);
            let metrics = runtime::metrics();
            assert!(metrics.ops(Kind::Splice, Rung::Offload) > 0);
            assert_eq!((metrics.ops(Kind::Splice, Rung::Ring), workers()), (0, 0));
        });
    });
}

#[test]
fn what_a_standing_receive_had_brought_goes_into_the_file_first() {
    run(async {
        for blocking in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            let stream = if blocking {
                TcpStream::from_std(std::net::TcpStream::connect(addr).unwrap()).unwrap()
            } else {
                TcpStream::connect(addr).await.unwrap()
            };
            let mut peer = listener.accept().unwrap().0;
            let all = pattern(9, 400_000);
            let sent = all.clone();
            let sender = std::thread::spawn(move || peer.write_all(&sent).unwrap());
            let target = file(&[]);
            let header = stream.recv().await.unwrap().to_vec();
            let mut at = header.len() as u64;
            target.write_all_at(&header, 0).unwrap();
            loop {
                match splice_to_file(&stream, &target, Some(at), 100_000).await.unwrap() {
                    0 => break,
                    n => at += n as u64,
                }
            }
            assert!(content(&target) == all, "{at} bytes");
            sender.join().unwrap();
        }
    });
}

#[test]
fn unsuitable_files_get_the_kernels_own_error_at_once() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        let path = std::env::temp_dir().join(format!("runtime-append-{}", std::process::id()));
        let append = File::options().append(true).create(true).open(&path).unwrap();
        let read_only = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        // Nothing is in the pipe: each answer comes without waiting for that.
        for offset in [None, Some(0)] {
            let code = |result: std::io::Result<usize>| result.unwrap_err().raw_os_error();
            let into = async |target: &File| code(splice_to_file(&rx, target, offset, 5).await);
            assert_eq!(into(&append).await, Some(EINVAL));
            assert_eq!(into(&read_only).await, Some(EBADF));
            assert_eq!(code(splice_to_file(&rx, &tx, offset, 5).await), Some(ESPIPE), "the same pipe");
            assert_eq!(code(splice_from_file(&rx, offset, &tx, 5).await), Some(ESPIPE), "an offset of a pipe");
            let mut from = pin!(splice_from_file(&append, offset, &tx, 5));
            assert_eq!(code(timeout(Duration::from_secs(5), from.as_mut()).await.unwrap()), Some(EBADF));
        }
        let target = file(&[]);
        let error = splice_to_file(&rx, &target, Some(u64::MAX), 5).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EINVAL));
        assert_eq!(
            splice_from_file(&target, Some(u64::MAX), &tx, 5).await.unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    });
}

#[test]
fn what_a_file_does_not_take_stays_with_the_stream() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        tx.write_all(pattern(3, 50_000)).await.0.unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        for _ in 0..3 {
            let error = splice_to_file(&rx, &full, Some(0), 40_000).await.unwrap_err();
            // A device without splice_write says EINVAL on some kernels.
            assert!(matches!(error.raw_os_error(), Some(ENOSPC | EINVAL)), "{error}");
        }
        let target = file(&[]);
        let mut at = 0;
        while at < 50_000 {
            at += splice_to_file(&rx, &target, Some(at), 7000).await.unwrap() as u64;
        }
        assert!(content(&target) == pattern(3, 50_000));
    });
}

#[test]
fn a_splice_to_a_file_that_is_dropped_loses_no_byte() {
    run(async {
        let mut rng = Rng(77);
        let (tx, rx) = pipe().unwrap();
        let all = pattern(4, 1 << 20);
        let write = async {
            for piece in all.chunks(10_007) {
                tx.write_all(piece.to_vec()).await.0.unwrap();
            }
            drop(tx);
        };
        let target = file(&[]);
        let moving = async {
            let mut dropped = 0;
            loop {
                // At its position: what was written by a dropped one has moved it.
                let mut moving = pin!(splice_to_file(&rx, &target, None, 1 + rng.below(60_000) as usize));
                let mut polled = Poll::Pending;
                for _ in 0..rng.below(4) {
                    polled = poll_once(moving.as_mut()).await;
                    if polled.is_ready() {
                        break;
                    }
                    yield_now().await;
                }
                let moved = match polled {
                    Poll::Ready(moved) => moved.unwrap(),
                    Poll::Pending if rng.below(2) == 0 => {
                        dropped += 1;
                        continue;
                    }
                    Poll::Pending => moving.await.unwrap(),
                };
                if moved == 0 {
                    return dropped;
                }
            }
        };
        let ((), dropped) = futures::join!(write, moving);
        assert!(content(&target) == all && dropped > 0, "{dropped} dropped");
        let mut nothing = pin!(splice_to_file(&rx, &target, None, 5));
        assert!(matches!(poll_once(nothing.as_mut()).await, Poll::Ready(Ok(0))));
    });
}
