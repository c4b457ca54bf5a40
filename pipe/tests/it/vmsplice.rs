//! Pages of the program's own that go into a pipe: whole, in order, and unmapped afterwards.

use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::pin::pin;
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::pipe::{Builder, Pages, pipe, splice_all, vmsplice};
use runtime::task::yield_now;

use super::support::in_child;
use super::{SIGPIPE, pattern, poll_once, read_all, run, signals};

fn pages(from: usize, len: usize) -> Pages {
    let mut pages = Pages::new(len).unwrap();
    pages.resize(len);
    pages.copy_from_slice(&pattern(from, len));
    pages
}

/// Bytes of memory that are mapped and there; address space alone is also taken by the allocator, for threads.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * runtime_core::sys::page_size()
}

#[test]
fn pages_of_any_length_arrive_whole_and_in_order() {
    run(async {
        for capacity in [4096, 64 << 10, 1 << 20] {
            let (tx, rx) = Builder::new().capacity(capacity).build().unwrap();
            let lens = [1, 4095, 4096, 4097, 0, 100_000, 1 << 20, (1 << 20) + 1];
            let write = async {
                for (round, len) in lens.into_iter().enumerate() {
                    assert_eq!(vmsplice(pages(round, len), &tx).await.unwrap(), len);
                    tx.write_all("|").await.0.unwrap();
                }
                drop(tx);
            };
            let ((), all) = futures::join!(write, read_all(&rx));
            let mut wanted = Vec::new();
            for (round, len) in lens.into_iter().enumerate() {
                wanted.extend(pattern(round, len));
                wanted.push(b'|');
            }
            assert!(all == wanted, "{} of {} bytes", all.len(), wanted.len());
        }
    });
}

#[test]
fn the_memory_is_unmapped_and_the_pipe_keeps_the_pages() {
    in_child("vmsplice::the_memory_is_unmapped_and_the_pipe_keeps_the_pages", Duration::from_secs(30), || {
        run(async {
            let (tx, rx) = Builder::new().capacity(1 << 20).build().unwrap();
            vmsplice(pages(1, 1 << 20), &tx).await.unwrap();
            rx.read_exact(Vec::with_capacity(1 << 20)).await.0.unwrap();
            let before = resident();
            // What follows in the same place of the address space is not what the reader sees.
            vmsplice(pages(7, 1 << 20), &tx).await.unwrap();
            let other = pages(90, 1 << 20);
            let read = rx.read_exact(Vec::with_capacity(1 << 20)).await;
            assert!(read.1 == pattern(7, 1 << 20));
            drop((other, read));
            for round in 0..100 {
                vmsplice(pages(round, 1 << 20), &tx).await.unwrap();
                let read = rx.read_exact(Vec::with_capacity(1 << 20)).await.1;
                assert!(read == pattern(round, 1 << 20));
            }
            assert!(resident() < before + (20 << 20), "{} bytes more", resident() - before);
        });
    });
}

#[test]
fn a_full_pipe_is_waited_for_and_a_dropped_transfer_leaves_a_prefix() {
    run(async {
        let (tx, rx) = Builder::new().capacity(64 << 10).build().unwrap();
        {
            let mut waits = pin!(vmsplice(pages(3, 200_000), &tx));
            for _ in 0..5 {
                assert!(poll_once(waits.as_mut()).await.is_pending());
                yield_now().await;
            }
            assert!(tx.try_write("x").0.is_err(), "nothing comes in between");
        }
        let end = async {
            tx.write_all("|").await.0.unwrap();
            drop(tx);
        };
        let ((), all) = futures::join!(end, read_all(&rx));
        let prefix = &all[..all.len() - 1];
        assert!(prefix.len() <= 64 << 10 && *prefix == pattern(3, prefix.len()) && all.ends_with(b"|"));
    });
}

#[test]
fn pages_go_on_to_a_socket_without_being_read() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut peer = listener.accept().unwrap().0;
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        let (tx, rx) = pipe().unwrap();
        let give = async {
            for round in 0..8 {
                vmsplice(pages(round, 300_001), &tx).await.unwrap();
            }
            drop(tx);
        };
        let ((), moved) = futures::join!(give, splice_all(&rx, &stream, u64::MAX));
        assert_eq!(moved.unwrap(), 8 * 300_001);
        stream.shutdown(std::net::Shutdown::Write).await.unwrap();
        let all = reader.join().unwrap();
        let wanted: Vec<u8> = (0..8).flat_map(|round| pattern(round, 300_001)).collect();
        assert!(all == wanted);
    });
}

#[test]
fn a_reader_that_is_gone_is_an_error_and_no_signal() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        drop(rx);
        assert_eq!(vmsplice(pages(0, 9000), &tx).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(signals("SigPnd:") & SIGPIPE, 0, "taken away");
        let (tx, rx) = pipe().unwrap();
        let mut waits = pin!(vmsplice(pages(0, 1 << 20), &tx));
        assert!(poll_once(waits.as_mut()).await.is_pending());
        drop(rx);
        assert_eq!(waits.await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(signals("SigPnd:") & SIGPIPE, 0, "taken away");
    });
}
