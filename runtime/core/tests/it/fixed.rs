//! Registered buffers: who has them, where they are used, and what outlives what.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use runtime::Runtime;
use runtime::fs::File;
use runtime::io::{BufResult, FixedBuf, FixedBufs, IoBuf, IoBufMut};
use runtime::op::{Kind, Rung};
use runtime::testing::{in_flight, tiny};
use runtime_core::buf::Registered;

use crate::raw;
use crate::scene::connected;
use crate::support::{in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(30);

fn file() -> (std::fs::File, File) {
    let file = tempfile::tempfile().unwrap();
    let ours = File::from(file.try_clone().unwrap());
    (file, ours)
}

/// The index under which this thread's runtime knows the buffer.
fn index_of(buf: &impl IoBuf) -> Option<u16> {
    runtime_core::coop::registered(buf)
}

#[test]
fn files_are_read_and_written_through_registered_memory() {
    let _watchdog = watchdog(LIMIT);
    let rt = tiny(8, 16).build().unwrap();
    rt.block_on(async {
        let (std, ours) = file();
        let bufs = FixedBufs::new(4, 10_000).unwrap();
        assert_eq!((bufs.free(), bufs.buf_size() % 4096), (4, 0));
        let mut buf = bufs.lease().await;
        assert!(buf.is_empty() && index_of(&buf) == Some(0));
        assert_eq!(buf.put(b"0123456789"), 10);
        let (n, buf) = ours.write_at(buf, 5).await.into_result().unwrap();
        assert_eq!((n, &buf[..]), (10, &b"0123456789"[..]));
        // A part of it is registered as well.
        let part = buf.slice(3..6);
        assert_eq!(index_of(&part), Some(0));
        let (n, part) = ours.write_at(part, 0).await.into_result().unwrap();
        assert_eq!(n, 3);
        let mut all = String::new();
        (&std).read_to_string(&mut all).unwrap();
        assert_eq!(all, "345\0\x000123456789");

        let (n, buf) = ours.read_at(part.into_inner(), 4).await.into_result().unwrap();
        assert_eq!((n, &buf[..]), (11, &b"\x000123456789"[..]), "a read replaces what it held");
        let (n, buf) = ours.read_at(buf, 100).await.into_result().unwrap();
        assert_eq!((n, buf.len()), (0, 0));
        assert_eq!(runtime::metrics().ops(Kind::Read, Rung::Ring), 2);
        // Of nothing at all.
        let (n, buf) = ours.write_at(buf, 0).await.into_result().unwrap();
        assert_eq!(n, 0);
        let (n, part) = ours.read_at(buf.slice(0..0), 0).await.into_result().unwrap();
        assert_eq!(n, 0);
        drop(part);
        assert_eq!(bufs.free(), 4);
    });
}

#[test]
fn every_piece_is_its_own_page_aligned_memory_and_comes_back() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (_std, ours) = file();
        let bufs = FixedBufs::new(8, 4096).unwrap();
        for _ in 0..3 {
            let mut held = Vec::new();
            while let Some(mut buf) = bufs.try_lease() {
                assert_eq!(buf.stable_mut_ptr().addr() % 4096, 0);
                let byte = held.len() as u8;
                buf.resize(4096);
                buf.fill(byte);
                held.push(ours.write_at(buf, u64::from(byte) * 4096).await.into_result().unwrap().1);
            }
            assert_eq!((held.len(), bufs.free()), (8, 0));
            for (i, buf) in held.into_iter().enumerate() {
                let (n, buf) = ours.read_at(buf, (7 - i as u64) * 4096).await.into_result().unwrap();
                assert!(n == 4096 && buf.iter().all(|&byte| byte == 7 - i as u8));
            }
        }
    });
}

#[test]
fn direct_io_goes_to_registered_memory() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let dir = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let path = dir.path().join("direct");
        std::fs::write(&path, vec![7; 8192]).unwrap();
        let mut options = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true).write(true), libc::O_DIRECT);
        let Ok(file) = options.open(&path) else {
            eprintln!("SKIP: no O_DIRECT here");
            return;
        };
        let ours = File::from(file);
        let bufs = FixedBufs::new(1, 8192).unwrap();
        let (n, mut buf) = ours.read_at(bufs.lease().await, 0).await.into_result().unwrap();
        assert!(n == 8192 && buf.iter().all(|&byte| byte == 7));
        buf.resize(4096);
        buf.fill(8);
        ours.write_at(buf, 4096).await.0.unwrap();
        let all = std::fs::read(&path).unwrap();
        assert!(all[..4096].iter().all(|&byte| byte == 7) && all[4096..].iter().all(|&byte| byte == 8));
    });
}

#[test]
fn sockets_send_from_registered_memory() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (ours, mut peer) = connected().await;
        ours.set_zc_threshold(1);
        let bufs = FixedBufs::new(2, 64 << 10).unwrap();
        for round in 0..10u8 {
            let mut buf = bufs.lease().await;
            buf.resize(64 << 10);
            buf.fill(round);
            let reader = std::thread::spawn(move || {
                let mut got = vec![0; 64 << 10];
                peer.read_exact(&mut got).unwrap();
                assert!(got.iter().all(|&byte| byte == round));
                peer
            });
            let BufResult(result, buf) = ours.write_all_zc(buf).await;
            result.unwrap();
            assert_eq!(bufs.free(), 1);
            drop(buf);
            peer = runtime::spawn_blocking(|| reader.join().unwrap()).await.unwrap();
        }
        // Everything else takes it for what it is: memory.
        peer.write_all(b"hello").unwrap();
        let (n, buf) = ours.read(bufs.lease().await).await.into_result().unwrap();
        assert_eq!((n, &buf[..]), (5, &b"hello"[..]));
        ours.write_all(buf).await.0.unwrap();
        let mut got = [0; 5];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
        assert_eq!(bufs.free(), 2);
    });
}

/// Memory that says of itself what is true of other memory.
struct Liar(FixedBuf, Vec<u8>);

// SAFETY: that of the vector; what it says of its registration is the kernel's to check.
unsafe impl IoBuf for Liar {
    fn stable_ptr(&self) -> *const u8 {
        self.1.stable_ptr()
    }

    fn init_len(&self) -> usize {
        self.1.init_len()
    }

    fn registered(&self) -> Option<Registered> {
        self.0.registered()
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for Liar {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.1.stable_mut_ptr()
    }

    fn capacity(&self) -> usize {
        IoBufMut::capacity(&self.1)
    }

    unsafe fn set_len(&mut self, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { IoBufMut::set_len(&mut self.1, len) }
    }
}

/// Which also shows that the operations for registered memory are the ones that are used: plain ones would succeed.
#[test]
fn a_buffer_that_lies_about_its_registration_is_refused_by_the_kernel() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (_std, ours) = file();
        let (stream, _peer) = connected().await;
        stream.set_zc_threshold(1);
        let bufs = FixedBufs::new(1, 4096).unwrap();
        let mut liar = Liar(bufs.lease().await, vec![1; 100]);
        let refused =
            |result: std::io::Result<usize>| assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EFAULT));
        let result;
        BufResult(result, liar) = ours.write_at(liar, 0).await;
        refused(result);
        let result;
        BufResult(result, liar) = ours.read_at(liar, 0).await;
        refused(result);
        if runtime::probe().ring.unwrap().opcodes.contains(&("SEND_ZC", true)) {
            let BufResult(result, _) = stream.write_zc(liar).await;
            refused(result);
        }
    });
}

#[test]
fn in_another_runtime_it_is_an_ordinary_buffer() {
    let _watchdog = watchdog(LIMIT);
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (_std, ours) = file();
    let (bufs, mut buf) = first.block_on(async {
        let bufs = FixedBufs::new(1, 4096).unwrap();
        let buf = bufs.lease().await;
        (bufs, buf)
    });
    second.block_on(async {
        assert_eq!(index_of(&buf), None);
        buf.put(b"elsewhere");
        let (n, mut buf) = ours.write_at(buf, 0).await.into_result().unwrap();
        assert_eq!(n, 9);
        buf.clear();
        let (_, buf) = ours.read_at(buf, 0).await.into_result().unwrap();
        assert_eq!(&buf[..], b"elsewhere");
        // Its own index of that number is other memory.
        let own = FixedBufs::new(1, 4096).unwrap();
        assert_eq!(index_of(&own.lease().await), Some(0));
        assert_eq!(bufs.free(), 0);
        drop(buf);
        assert_eq!(bufs.free(), 1);
    });
}

#[test]
fn the_set_and_the_runtime_may_go_before_the_pieces() {
    let _watchdog = watchdog(LIMIT);
    let (_std, ours) = file();
    let (rt, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (mut held, kept) = rt.block_on(async {
        let bufs = FixedBufs::new(2, 4096).unwrap();
        let buf = bufs.lease().await;
        drop(bufs);
        let (_, buf) = ours.write_at(buf, 0).await.into_result().unwrap();
        (buf, FixedBufs::new(1, 4096).unwrap())
    });
    drop(rt);
    held.put(b"still here");
    assert_eq!(&held[..], b"still here");
    drop(held);
    other.block_on(async {
        let mut buf = kept.lease().await;
        assert_eq!(index_of(&buf), None);
        buf.put(b"x");
        ours.write_at(buf, 0).await.0.unwrap();
        assert_eq!(kept.free(), 1);
    });
}

#[test]
fn a_dropped_operation_keeps_its_piece_until_its_end() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (rx, mut tx) = std::io::pipe().unwrap();
        let bufs = FixedBufs::new(1, 4096).unwrap();
        let fd = std::sync::Arc::new(rx.as_fd().try_clone_to_owned().unwrap());
        {
            let read = runtime_core::op::read::Read::new(fd, bufs.lease().await, 0, u64::MAX);
            let mut read = pin!(runtime::op::submit(read));
            assert!(futures::poll!(read.as_mut()).is_pending());
        }
        assert_eq!(bufs.free(), 0);
        crate::kit::until(|| in_flight() == 0).await;
        assert_eq!(bufs.free(), 1);
        tx.write_all(b"x").unwrap();
        assert!(rx.as_raw_fd() >= 0);
    });
}

#[test]
fn waiters_get_the_pieces_in_their_order_and_one_that_leaves_passes_it_on() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let bufs = Rc::new(FixedBufs::new(2, 4096).unwrap());
        let (one, two) = (bufs.lease().await, bufs.lease().await);
        assert!(bufs.try_lease().is_none());
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let mut first = Box::pin(bufs.lease());
        assert!(futures::poll!(first.as_mut()).is_pending());
        let tasks: Vec<_> = (0..3)
            .map(|n| {
                let (bufs, order) = (Rc::clone(&bufs), Rc::clone(&order));
                runtime::spawn(async move {
                    let buf = bufs.lease().await;
                    order.borrow_mut().push(n);
                    runtime::task::yield_now().await;
                    drop(buf);
                })
            })
            .collect();
        crate::kit::until(|| runtime::metrics().ready == 0).await;
        drop(one);
        assert!(bufs.try_lease().is_none(), "it is promised to the first waiter");
        drop(two);
        assert!(bufs.try_lease().is_none());
        // Chosen, and leaves.
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.borrow(), [0, 1, 2]);
        assert_eq!(bufs.free(), 2);
        let (_one, _two) = (bufs.lease().await, bufs.lease().await);
    });
}

#[test]
fn a_waiter_that_was_chosen_and_leaves_makes_room_for_the_next() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let bufs = FixedBufs::new(1, 4096).unwrap();
        let only = bufs.lease().await;
        let (mut first, mut second) = (Box::pin(bufs.lease()), Box::pin(bufs.lease()));
        assert!(futures::poll!(first.as_mut()).is_pending());
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(only);
        drop(first);
        assert_eq!(second.await.capacity(), 4096);
        assert_eq!(bufs.free(), 1);
    });
}

#[test]
fn a_newcomer_takes_what_is_not_promised() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let bufs = FixedBufs::new(2, 4096).unwrap();
        let (one, two) = (bufs.lease().await, bufs.lease().await);
        let mut waiter = Box::pin(bufs.lease());
        assert!(futures::poll!(waiter.as_mut()).is_pending());
        drop((one, two));
        // One is the waiter's, which has not come for it; the other one is anybody's.
        let newcomer = bufs.lease().await;
        assert!(bufs.try_lease().is_none());
        let chosen = waiter.await;
        drop((newcomer, chosen));
        assert_eq!(bufs.free(), 2);
    });
}

#[test]
fn a_task_that_always_finds_a_piece_does_not_keep_the_thread() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let bufs = FixedBufs::new(1, 4096).unwrap();
        let done = Rc::new(std::cell::Cell::new(false));
        let other = Rc::clone(&done);
        runtime::spawn(async move { other.set(true) });
        while !done.get() {
            drop(bufs.lease().await);
        }
    });
}

#[test]
fn places_in_the_ring_are_given_back() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        for _ in 0..200 {
            drop(FixedBufs::new(1, 4096).unwrap());
        }
        let all: Vec<_> = (0..64).map(|_| FixedBufs::new(1, 4096).unwrap()).collect();
        let error = FixedBufs::new(1, 4096).unwrap_err();
        assert!(error.to_string().contains("64 sets"), "{error}");
        drop(all);
        FixedBufs::new(1, 4096).unwrap();
    });
}

#[test]
fn what_cannot_be_registered_is_refused_with_a_reason() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let sizes = [(0, 4096), (1, 0), (1, (1 << 30) + 1), (usize::MAX, 4096), (1, usize::MAX), (2, 1 << 63)];
        for (count, size) in sizes {
            let error = FixedBufs::new(count, size).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{count} x {size}: {error}");
        }
    });
    in_child("fixed::what_cannot_be_registered_is_refused_with_a_reason", LIMIT, || {
        if raw::is_root() {
            raw::become_user(65534);
        }
        let rt = Runtime::new().unwrap();
        raw::set_limit(libc::RLIMIT_MEMLOCK, 1 << 20);
        rt.block_on(async {
            let error = FixedBufs::new(512, 4096).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
            let text = error.to_string();
            assert!(
                text.contains("RLIMIT_MEMLOCK") && text.contains("1024 KiB") && text.contains("2048 KiB"),
                "{text}"
            );
            assert!(!text.contains('\n'));
            // Less may be had.
            FixedBufs::new(16, 4096).unwrap();
        });
    });
}
