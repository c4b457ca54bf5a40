//! The ends of a pipe beside reading and writing: attempts, readiness, sizes, vectors, names and conversions.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use runtime::op::{Kind, Rung};
use runtime::pipe::{Builder, OpenOptions, Receiver, Sender, pipe, splice};
use runtime::time::timeout;

use super::{pattern, poll_once, read_all, run};

#[test]
fn attempts_do_not_wait_and_readiness_does() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        assert_eq!(rx.try_read(vec![0; 8]).0.unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut readable = pin!(rx.readable());
        assert!(poll_once(readable.as_mut()).await.is_pending());
        assert_eq!(tx.try_write("abc").0.unwrap(), 3);
        readable.await.unwrap();
        assert_eq!(rx.available().unwrap(), 3);
        let (n, data) = rx.try_read(Vec::with_capacity(8)).into_result().unwrap();
        assert_eq!((n, &data[..]), (3, &b"abc"[..]));
        assert_eq!(tx.try_write(vec![0; 1 << 20]).0.unwrap(), tx.capacity().unwrap());
        assert_eq!(tx.try_write("x").0.unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut writable = Box::pin(tx.writable());
        assert!(poll_once(writable.as_mut()).await.is_pending());
        assert_eq!(rx.try_read(vec![0; 1 << 20]).0.unwrap(), tx.capacity().unwrap());
        writable.as_mut().await.unwrap();
        drop(writable);
        drop(tx);
        assert_eq!(rx.try_read(vec![0; 8]).0.unwrap(), 0);
        rx.readable().await.unwrap();
        let (tx, rx) = pipe().unwrap();
        drop(rx);
        assert_eq!(tx.try_write("x").0.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn sizes_and_packets_are_what_was_asked_for() {
    run(async {
        let (tx, rx) = Builder::new().capacity(4096).build().unwrap();
        assert_eq!((tx.capacity().unwrap(), rx.set_capacity(256 << 10).unwrap()), (4096, 256 << 10));
        assert_eq!(tx.capacity().unwrap(), 256 << 10);
        match Builder::new().capacity(1 << 20).build() {
            Ok((tx, _rx)) => assert_eq!(tx.capacity().unwrap(), 1 << 20),
            // The user has too many large ones.
            Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
        }
        let (tx, rx) = Builder::new().packets(true).build().unwrap();
        for packet in ["first", "second"] {
            assert_eq!(tx.write(packet).await.0.unwrap(), packet.len());
        }
        assert_eq!(rx.read(Vec::with_capacity(3)).await.1, b"fir", "the rest of the packet is lost");
        let (to, out) = pipe().unwrap();
        assert_eq!(splice(&rx, &to, 100).await.unwrap(), 6);
        assert_eq!(out.read(Vec::with_capacity(100)).await.1, b"second");
    });
}

#[test]
fn vectors_keep_their_order() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        let wrote = tx.write_vectored(vec!["ab".to_owned(), String::new(), "cdef".to_owned()]).await;
        assert_eq!(wrote.0.unwrap(), 6);
        let read = rx.read_vectored(vec![Vec::with_capacity(4), Vec::new(), Vec::with_capacity(9)]).await;
        assert_eq!(read.0.unwrap(), 6);
        assert_eq!(read.1, [&b"abcd"[..], b"", b"ef"]);
        // What a dropped read leaves comes first.
        {
            let mut read = pin!(rx.read_vectored(vec![vec![0; 1], vec![0; 1]]));
            assert!(poll_once(read.as_mut()).await.is_pending());
            tx.write_all("xyz").await.0.unwrap();
        }
        assert_eq!(read_all_then(tx, &rx).await, b"xyz");
    });
}

async fn read_all_then(tx: Sender, rx: &Receiver) -> Vec<u8> {
    drop(tx);
    read_all(rx).await
}

#[test]
fn a_small_write_and_read_alone_are_inline() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        for _ in 0..10 {
            tx.write_all("x").await.0.unwrap();
            rx.read(vec![0; 4]).await.0.unwrap();
        }
        let metrics = runtime::metrics();
        assert_eq!((metrics.ops(Kind::Write, Rung::Inline), metrics.ops(Kind::Read, Rung::Inline)), (10, 10));
    });
}

#[test]
fn a_blocking_pipe_of_others_is_used_without_changing_its_mode() {
    run(async {
        let (their_rx, their_tx) = std::io::pipe().unwrap();
        let keep = their_rx.try_clone().unwrap();
        let rx = Receiver::from_owned_fd(OwnedFd::from(their_rx)).unwrap();
        assert_eq!(rx.try_read(vec![0; 8]).0.unwrap_err().kind(), ErrorKind::WouldBlock);
        (&their_tx).write_all(b"abc").unwrap();
        assert_eq!(rx.read(Vec::with_capacity(9)).await.1, b"abc");
        let tx = Sender::from(OwnedFd::from(their_tx));
        assert_eq!(tx.try_write(vec![7; 1 << 20]).0.unwrap(), 4096, "as much as surely fits");
        assert_eq!(rx.read_exact(vec![0; 4096]).await.1, [7; 4096]);
        let raw = Receiver::from(OwnedFd::from(keep));
        assert_eq!(raw.try_read(vec![0; 8]).0.unwrap_err().kind(), ErrorKind::WouldBlock, "rather than wait");
        // A full pipe in blocking mode is spliced into without blocking the thread.
        while tx.try_write(vec![1; 4096]).0.is_ok() {}
        let (more, from) = pipe().unwrap();
        more.write_all("more").await.0.unwrap();
        let mut waits = pin!(splice(&from, &tx, 4));
        assert!(poll_once(waits.as_mut()).await.is_pending());
        assert_eq!(raw.read_exact(vec![0; 65536]).await.1, [1; 65536]);
        assert_eq!(waits.await.unwrap(), 4);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(Receiver::from_owned_fd(file.into()).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_child_process_gets_a_blocking_end() {
    run(async {
        let (tx, rx) = pipe().unwrap();
        let mut child = Command::new("cat")
            .stdin(rx.into_blocking_fd().unwrap())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        runtime::time::sleep(Duration::from_millis(20)).await;
        tx.write_all("late").await.0.unwrap();
        drop(tx);
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((said.as_str(), child.wait().unwrap().success()), ("late", true));
    });
}

/// A FIFO of its own, removed at the end.
pub(crate) struct Fifo(pub(crate) std::path::PathBuf);

impl Fifo {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("runtime-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        Self(path)
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_reader_waits_for_its_first_writer_and_then_sees_the_end() {
    run(async {
        let fifo = Fifo::new("reader");
        for way in 0..2 {
            let rx = OpenOptions::new().open_receiver(&fifo.0).await.unwrap();
            let path = fifo.0.clone();
            let writer = async move {
                runtime::time::sleep(Duration::from_millis(20)).await;
                std::thread::spawn(move || std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all(b"hi"))
            };
            let read = async {
                if way == 0 {
                    return read_all(&rx).await;
                }
                let (to, out) = pipe().unwrap();
                while splice(&rx, &to, 100).await.unwrap() > 0 {}
                drop(to);
                read_all(&out).await
            };
            let (read, writer) = futures::join!(read, writer);
            assert_eq!(read, b"hi");
            writer.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_writer_waits_for_a_reader_without_a_thread() {
    run(async {
        let fifo = Fifo::new("writer");
        let options = OpenOptions::new();
        assert!(timeout(Duration::from_millis(30), options.open_sender(&fifo.0)).await.is_err());
        let path = fifo.0.clone();
        let reader = std::thread::spawn(move || std::fs::read(path).unwrap());
        let tx = options.open_sender(&fifo.0).await.unwrap();
        tx.write_all(pattern(0, 200_000)).await.0.unwrap();
        drop(tx);
        assert!(reader.join().unwrap() == pattern(0, 200_000));
        let both = OpenOptions::new().read_write(true);
        let tx = both.open_sender(&fifo.0).await.unwrap();
        let rx = both.open_receiver(&fifo.0).await.unwrap();
        tx.write_all("x").await.0.unwrap();
        assert_eq!(rx.read(Vec::with_capacity(9)).await.1, b"x");
        let exe = std::env::current_exe().unwrap();
        assert_eq!(options.open_receiver(&exe).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(options.unchecked(true).open_receiver(&exe).await.is_ok());
        assert_eq!(OpenOptions::new().open_receiver("a\0b").await.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_fifo_of_others_whose_writer_is_gone_ends() {
    run(async {
        let fifo = Fifo::new("gone");
        // Both ways, so that opening does not wait; then the one that writes goes.
        let mut writer = std::fs::File::options().read(true).write(true).open(&fifo.0).unwrap();
        let rx = std::fs::File::open(&fifo.0).unwrap();
        writer.write_all(b"all there is").unwrap();
        drop(writer);
        let rx = Receiver::from_owned_fd(rx.into()).unwrap();
        let limit = super::support::scaled(Duration::from_secs(5));
        assert_eq!(timeout(limit, read_all(&rx)).await.expect("it ends"), b"all there is");
    });
}

#[test]
fn a_read_that_was_dropped_before_the_first_writer_leaves_no_end() {
    run(async {
        let fifo = Fifo::new("early");
        for way in 0..5 {
            let rx = OpenOptions::new().open_receiver(&fifo.0).await.unwrap();
            for _ in 0..3 {
                // Two reads, so that the turn brings more than one completion and the next read is no inline one.
                let (_other_tx, other) = pipe().unwrap();
                let mut read = Box::pin(rx.read(Vec::with_capacity(9)));
                let mut beside = Box::pin(other.read(Vec::with_capacity(9)));
                assert!(poll_once(beside.as_mut()).await.is_pending());
                assert!(poll_once(read.as_mut()).await.is_pending());
                drop((read, beside));
                while runtime::testing::in_flight() > 0 {
                    runtime::task::yield_now().await;
                }
            }
            let (to, out) = pipe().unwrap();
            let read = async {
                match way {
                    0 => rx.read(Vec::with_capacity(9)).await.1,
                    1 => rx.read_exact(Vec::with_capacity(2)).await.1,
                    2 => rx.read_vectored(vec![Vec::with_capacity(1), Vec::with_capacity(9)]).await.1.concat(),
                    3 => {
                        assert_eq!(rx.try_read(vec![0; 9]).0.unwrap_err().kind(), ErrorKind::WouldBlock);
                        rx.readable().await.unwrap();
                        rx.try_read(Vec::with_capacity(9)).1
                    }
                    _ => {
                        assert_eq!(splice(&rx, &to, 100).await.unwrap(), 2, "no end");
                        out.read(Vec::with_capacity(9)).await.1
                    }
                }
            };
            let write = async {
                runtime::time::sleep(Duration::from_millis(5)).await;
                let tx = OpenOptions::new().open_sender(&fifo.0).await.unwrap();
                tx.write_all("hi").await.0.unwrap();
                tx
            };
            let limit = super::support::scaled(Duration::from_secs(5));
            let both = timeout(limit, futures::future::join(read, write)).await.expect("in time");
            assert_eq!(both.0, b"hi", "way {way}");
        }
    });
}

#[test]
fn what_comes_right_after_a_read_met_no_writer_is_no_end() {
    run(async {
        let fifo = Fifo::new("right-after");
        for way in 0..3 {
            let rx = OpenOptions::new().open_receiver(&fifo.0).await.unwrap();
            let mut read = pin!(async {
                match way {
                    0 => rx.read(Vec::with_capacity(9)).await,
                    1 => {
                        let read = rx.read_vectored(vec![Vec::with_capacity(2), Vec::with_capacity(1)]).await;
                        runtime::io::BufResult(read.0, read.1.concat())
                    }
                    _ => {
                        let (to, out) = pipe().unwrap();
                        let moved = splice(&rx, &to, 9).await;
                        match moved {
                            Ok(n) if n > 0 => out.read(Vec::with_capacity(9)).await,
                            result => runtime::io::BufResult(result, Vec::new()),
                        }
                    }
                }
            });
            assert!(poll_once(read.as_mut()).await.is_pending());
            // The kernel has answered that there is nothing; before that is looked at, there is.
            runtime::task::yield_now().await;
            let mut writer = std::fs::File::options().write(true).open(&fifo.0).unwrap();
            writer.write_all(b"hi").unwrap();
            let limit = super::support::scaled(Duration::from_secs(5));
            let runtime::io::BufResult(n, data) = timeout(limit, read).await.expect("in time");
            assert_eq!((n.unwrap(), data), (2, b"hi".to_vec()), "way {way}");
        }
    });
}

/// Another description of the same pipe, in either mode.
fn reopened(end: &impl std::os::fd::AsFd, write: bool, nonblocking: bool) -> OwnedFd {
    use std::os::unix::fs::OpenOptionsExt;
    const O_NONBLOCK: i32 = 0o4000;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&end.as_fd()));
    let mode = if nonblocking { O_NONBLOCK } else { 0 };
    OwnedFd::from(std::fs::OpenOptions::new().read(!write).write(write).custom_flags(mode).open(path).unwrap())
}

#[test]
fn pipes_of_others_in_either_mode_neither_block_the_loop_nor_show_would_block() {
    const WAIT: Duration = Duration::from_millis(600);
    // Made before anything is timed.
    let data = pattern(1, 8 << 20);
    for (nonblocking, as_it_is) in [(true, true), (true, false), (false, true), (false, false)] {
        run(async {
            let (there, back) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
            let (rx, tx) = (reopened(&there.0, false, nonblocking), reopened(&back.1, true, nonblocking));
            let (mut to_us, mut from_us) = (there.1, back.0);
            drop((there.0, back.1));
            let (rx, tx) = if as_it_is {
                (Receiver::from(rx), Sender::from(tx))
            } else {
                (Receiver::from_owned_fd(rx).unwrap(), Sender::from_owned_fd(tx).unwrap())
            };
            let longest = std::rc::Rc::new(std::cell::Cell::new(Duration::ZERO));
            let gap = std::rc::Rc::clone(&longest);
            let ticker = runtime::spawn(async move {
                loop {
                    let last = std::time::Instant::now();
                    runtime::time::sleep(Duration::from_millis(10)).await;
                    gap.set(gap.get().max(last.elapsed()));
                }
            });
            let peer = std::thread::spawn(move || {
                std::thread::sleep(WAIT);
                to_us.write_all(b"late").unwrap();
                std::thread::sleep(WAIT);
                let mut all = Vec::new();
                from_us.read_to_end(&mut all).unwrap();
                all
            });
            // Nothing is there yet, and then nobody reads yet.
            assert_eq!(rx.read(Vec::with_capacity(8)).await.into_result().unwrap().1, b"late");
            tx.write_all(data.clone()).await.0.unwrap();
            drop(tx);
            while !peer.is_finished() {
                runtime::time::sleep(Duration::from_millis(1)).await;
            }
            ticker.abort();
            assert!(peer.join().unwrap() == data);
            let gap = longest.get();
            assert!(gap < WAIT * 3 / 4, "the loop stood still for {gap:?}, {nonblocking} {as_it_is}");
        });
    }
}
