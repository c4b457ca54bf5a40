//! Zero-copy sends: the buffer is nobody else's when it comes back, whatever happens in between.
//!
//! On loopback the kernel keeps reading a buffer for as long as its bytes wait for room in the receiver's window: a peer
//! that does not read holds up the notification. What it takes is copied, and reported as that.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::TcpStream as StdStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runtime::io::{BufResult, IoBuf};
use runtime::net::TcpStream;
use runtime::op::{Kind, Rung, opcode};
use runtime::testing::{in_flight, tiny};

use crate::raw;
use crate::scene::connected;
use crate::support::{Rng, am_child, fds, in_child, run_child, scaled, watchdog};

const LIMIT: Duration = Duration::from_secs(60);

/// Memory that is mapped for ever; dropping the buffer poisons it, and what was sent from it later would be poison.
struct Poisoned {
    at: *mut u8,
    len: usize,
    dropped: Arc<AtomicBool>,
}

impl Poisoned {
    fn of(bytes: &[u8]) -> Self {
        let at = raw::map(bytes.len());
        // SAFETY: a fresh mapping of this length.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Self { at, len: bytes.len(), dropped: Arc::default() }
    }
}

impl Drop for Poisoned {
    fn drop(&mut self) {
        // SAFETY: this value's own, mapped for ever.
        unsafe { self.at.write_bytes(raw::POISON, self.len) };
        self.dropped.store(true, Ordering::SeqCst);
    }
}

// SAFETY: mapped for ever and wholly initialised.
unsafe impl IoBuf for Poisoned {
    fn stable_ptr(&self) -> *const u8 {
        self.at
    }

    fn init_len(&self) -> usize {
        self.len
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(seed * 2 + 1);
    // Without the byte that poison is made of.
    (0..len).map(|_| (rng.next() >> 32) as u8 & 0x7f).collect()
}

/// Whether this kernel sends without a copy at all.
fn offered() -> bool {
    let probe = runtime::probe();
    let there = probe.ring.unwrap().opcodes.iter().any(|&(name, there)| name == "SEND_ZC" && there);
    if !there {
        eprintln!("SKIP: no SEND_ZC here");
    }
    there
}

fn zc_sends() -> u64 {
    runtime::metrics().ops(Kind::SendZc, Rung::Ring)
}

/// A connection whose std side takes only a few KiB before it is read from.
async fn narrow() -> (TcpStream, StdStream) {
    narrow_by(4096).await
}

async fn narrow_by(size: i32) -> (TcpStream, StdStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: reads one integer.
    let set = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const size).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(set, 0);
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    ours.set_send_buffer_size(1 << 20).unwrap();
    ours.set_zc_threshold(1);
    let (peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(scaled(LIMIT))).unwrap();
    (ours, peer)
}

/// Bytes of which a narrow peer takes only the beginning.
const FILL: usize = 64 << 10;
/// Bytes behind them, which fit into our side's socket.
const LATE: usize = 32 << 10;

/// A zero-copy write of `LATE` bytes, behind `FILL` others, up to the moment at which it has its result and waits for its
/// notification: the next write is over.
async fn until_told(ours: &TcpStream, mut late: Pin<&mut impl Future>) {
    ours.write_all(noise(1, FILL)).await.0.unwrap();
    assert!(futures::poll!(late.as_mut()).is_pending());
    // It waits for its turn behind the other one.
    ours.write_all(b"|".to_vec()).await.0.unwrap();
    assert!(futures::poll!(late.as_mut()).is_pending(), "the kernel reads the buffer until the peer has taken it");
}

/// What the peer of [`until_told`] reads, and then the end or an error.
fn expect_all(peer: &mut StdStream, late: &[u8]) {
    let mut got = vec![0; FILL + LATE + 1];
    peer.read_exact(&mut got).unwrap();
    assert!(got[..FILL] == noise(1, FILL));
    assert!(got[FILL..FILL + LATE] == *late, "the peer reads what was in the buffer when it was written");
    assert_eq!(got[FILL + LATE], b'|');
}

#[test]
fn bytes_are_exact_at_every_size_on_a_tiny_ring() {
    let _watchdog = watchdog(LIMIT);
    let rt = tiny(8, 16).build().unwrap();
    rt.block_on(async {
        let sizes = [1, 2, 4095, 4096, 4097, 16 << 10, (64 << 10) + 1, 1 << 20, 8 << 20];
        let (ours, mut peer) = connected().await;
        ours.set_zc_threshold(1);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        let mut sent = Vec::new();
        for (i, size) in sizes.into_iter().enumerate() {
            let data = noise(i as u64, size);
            sent.extend_from_slice(&data);
            let BufResult(result, back) = ours.write_all_zc(data.clone()).await;
            result.unwrap();
            assert!(back == data);
            // Some of it, and the rest.
            let (n, _) = ours.write_zc(data.clone()).await.into_result().unwrap();
            sent.extend_from_slice(&data);
            assert!((1..=size).contains(&n));
            ours.write_all_zc(data.slice(n..)).await.0.unwrap();
        }
        assert!(zc_sends() >= 2 * sizes.len() as u64 || !offered());
        assert_eq!(runtime::metrics().zc_notices, zc_sends(), "each was told to be done with");
        drop(ours);
        let all = runtime::spawn_blocking(|| reader.join().unwrap()).await.unwrap();
        assert!(all == sent, "{} bytes arrived, {} were sent", all.len(), sent.len());
    });
}

/// Each send has two completions: forty at once are five times what the completion queue holds.
#[test]
fn more_notifications_than_the_queue_holds_are_all_taken() {
    let _watchdog = watchdog(LIMIT);
    const STREAMS: usize = 40;
    let rt = tiny(8, 16).build().unwrap();
    rt.block_on(async {
        let mut pairs = Vec::new();
        for _ in 0..STREAMS {
            let (ours, peer) = connected().await;
            ours.set_zc_threshold(1);
            pairs.push((ours, peer));
        }
        for round in 0..20u64 {
            let writes = pairs.iter().enumerate().map(|(n, (ours, _))| {
                let data = noise(round * 100 + n as u64, 3000);
                async move {
                    let BufResult(result, back) = ours.write_all_zc(data.clone()).await;
                    result.unwrap();
                    assert!(back == data);
                }
            });
            futures::future::join_all(writes).await;
            for (n, (_, peer)) in pairs.iter_mut().enumerate() {
                let mut got = vec![0; 3000];
                peer.read_exact(&mut got).unwrap();
                assert!(got == noise(round * 100 + n as u64, 3000));
            }
        }
        assert_eq!(in_flight(), 0);
        assert!(runtime::metrics().zc_notices == zc_sends() && runtime::metrics().stale_completions == 0);
    });
}

/// What the field reports: with zero-copy sends only, data is corrupted, because the buffer was used again too early.
#[test]
fn a_buffer_that_came_back_can_be_overwritten() {
    let _watchdog = watchdog(LIMIT);
    const ROUNDS: u64 = 1000;
    const LEN: usize = 64 << 10;
    // Different in neighbouring rounds, and never poison.
    let byte_of = |round: u64| (round % 100) as u8;
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, mut peer) = narrow_by(128 << 10).await;
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; LEN];
            // Of each of the two the next round.
            let mut next = [0, 1];
            for block in 0..ROUNDS {
                peer.read_exact(&mut got).unwrap();
                let Some(whose) = next.iter().position(|&round| byte_of(round) == got[0]) else {
                    panic!("block {block} begins with {}, which is not of {next:?}", got[0]);
                };
                assert!(got.iter().all(|&b| b == got[0]), "block {block}, round {}, has other bytes", next[whose]);
                next[whose] += 2;
            }
            assert_eq!(peer.read(&mut got).unwrap(), 0);
        });
        let ours = &ours;
        // Two buffers in turn: the second is sent while the first still waits for its notification.
        let writer = |first: u64| async move {
            let mut buf = vec![0; LEN];
            for round in (first..ROUNDS).step_by(2) {
                buf.fill(byte_of(round));
                buf = ours.write_all_zc(buf).await.into_result().unwrap().1;
                buf.fill(raw::POISON);
            }
        };
        futures::join!(writer(0), writer(1));
        assert!(zc_sends() >= ROUNDS || !offered());
        ours.shutdown(std::net::Shutdown::Write).await.unwrap();
        runtime::spawn_blocking(|| reader.join().unwrap()).await.unwrap();
    });
}

#[test]
fn the_buffer_comes_back_with_the_notification_and_the_direction_before() {
    if !offered() {
        return;
    }
    let _watchdog = watchdog(LIMIT);
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, mut peer) = narrow().await;
        let data = noise(2, LATE);
        let late = Poisoned::of(&data);
        let mut late = pin!(ours.write_all_zc(late));
        until_told(&ours, late.as_mut()).await;
        let reader = std::thread::spawn(move || expect_all(&mut peer, &data));
        let BufResult(result, buf) = late.await;
        result.unwrap();
        drop(buf);
        runtime::spawn_blocking(|| reader.join().unwrap()).await.unwrap();
        assert_eq!(in_flight(), 0);
    });
}

#[test]
fn dropped_between_result_and_notification_the_buffer_stays_whole_until_the_latter() {
    if !offered() {
        return;
    }
    let _watchdog = watchdog(LIMIT);
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, mut peer) = narrow().await;
        let data = noise(3, LATE);
        let buf = Poisoned::of(&data);
        let dropped = Arc::clone(&buf.dropped);
        {
            let mut late = pin!(ours.write_all_zc(buf));
            until_told(&ours, late.as_mut()).await;
        }
        for _ in 0..20 {
            runtime::task::yield_now().await;
        }
        assert!(!dropped.load(Ordering::SeqCst), "the kernel still reads it");
        assert_eq!(in_flight(), 1);
        runtime::spawn_blocking(move || expect_all(&mut peer, &data)).await.unwrap();
        crate::kit::until(|| dropped.load(Ordering::SeqCst)).await;
        assert_eq!(in_flight(), 0);
        let cancels = runtime::metrics().cancels;
        assert_eq!(cancels, 0, "there was nothing to cancel");
    });
}

#[test]
fn dropped_before_its_result_no_byte_of_another_buffer_is_sent() {
    let _watchdog = watchdog(LIMIT);
    const LEN: usize = 4 << 20;
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, mut peer) = narrow().await;
        let data = noise(4, LEN);
        let buf = Poisoned::of(&data);
        let dropped = Arc::clone(&buf.dropped);
        {
            // More than the socket takes: it waits for room, in the kernel.
            let mut write = pin!(ours.write_all_zc(buf));
            assert!(futures::poll!(write.as_mut()).is_pending());
            runtime::time::sleep(Duration::from_millis(2)).await;
            assert!(futures::poll!(write.as_mut()).is_pending());
        }
        // The next one has its turn as soon as the cancelled one has its result; nobody has read yet.
        assert!(!dropped.load(Ordering::SeqCst));
        let next = runtime::spawn(async move {
            ours.write_all(b"END".to_vec()).await.0.unwrap();
        });
        let read = runtime::spawn_blocking(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        let all = read.await.unwrap();
        next.await.unwrap();
        let sent = all.strip_suffix(b"END").expect("the next write comes whole");
        assert!(sent.len() < LEN, "it was cancelled");
        assert!(sent == &data[..sent.len()], "what was sent is a beginning of the buffer");
        crate::kit::until(|| dropped.load(Ordering::SeqCst)).await;
    });
}

#[test]
fn dropped_after_its_end_or_never_polled_it_leaves_nothing() {
    let _watchdog = watchdog(LIMIT);
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, mut peer) = connected().await;
        ours.set_zc_threshold(1);
        let never = Poisoned::of(b"never");
        let dropped = Arc::clone(&never.dropped);
        drop(ours.write_zc(never));
        assert!(dropped.load(Ordering::SeqCst));
        {
            let mut write = pin!(ours.write_all_zc(Poisoned::of(b"sent")));
            assert!(futures::poll!(write.as_mut()).is_pending());
            // Both completions are there, and nobody asked.
            let mut got = [0; 4];
            let read = runtime::spawn_blocking(move || {
                peer.read_exact(&mut got).unwrap();
                (peer, got)
            });
            let (back, got) = read.await.unwrap();
            peer = back;
            assert_eq!(&got, b"sent");
            crate::kit::until(|| runtime::metrics().zc_notices == zc_sends()).await;
        }
        assert_eq!(in_flight(), 0);
        ours.write_all(b"more".to_vec()).await.0.unwrap();
        let mut got = [0; 4];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"more");
    });
}

#[test]
fn a_reset_in_between_gives_the_buffer_back() {
    let _watchdog = watchdog(LIMIT);
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, peer) = narrow().await;
        let mut late = pin!(ours.write_all_zc(Poisoned::of(&noise(5, LATE))));
        if offered() {
            until_told(&ours, late.as_mut()).await;
        }
        // Unread bytes make its close a reset.
        drop(peer);
        let BufResult(result, _buf) = late.await;
        if offered() {
            result.unwrap();
        }
        let error = loop {
            if let Err(error) = ours.write_all_zc(vec![1; LATE]).await.0 {
                break error;
            }
        };
        assert!(matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{error}");
        assert_eq!(in_flight(), 0);
    });
}

#[test]
fn an_error_that_only_a_dropped_write_was_told_is_the_next_ones() {
    if !offered() {
        return;
    }
    let _watchdog = watchdog(LIMIT);
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, peer) = narrow().await;
        {
            let mut write = pin!(ours.write_all_zc(noise(6, 4 << 20)));
            assert!(futures::poll!(write.as_mut()).is_pending());
            runtime::time::sleep(Duration::from_millis(2)).await;
            // The part that was sent is its result; the reset is for the one after.
            drop(peer);
        }
        let (result, _) = (ours.write_all(b"x".to_vec()).await.0, ());
        assert!(result.is_err());
        assert_eq!(in_flight(), 0);
    });
}

#[test]
fn dropped_with_a_part_sent_it_lets_go_of_the_stream_before_the_notification() {
    if !offered() {
        return;
    }
    let _watchdog = watchdog(LIMIT);
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, peer) = narrow().await;
        {
            let mut write = pin!(ours.write_all_zc(vec![1; 8 << 20]));
            assert!(futures::poll!(write.as_mut()).is_pending());
            runtime::time::sleep(Duration::from_millis(2)).await;
            let before = runtime::metrics().completions;
            // What is in the socket stays there, and no more goes in: a part is its result.
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::shutdown(ours.as_raw_fd(), libc::SHUT_WR) }, 0);
            crate::kit::until(|| runtime::metrics().completions > before).await;
            assert!(futures::poll!(write.as_mut()).is_pending(), "the kernel reads the buffer");
        }
        let result = runtime::time::timeout(scaled(Duration::from_secs(10)), ours.write_all(b"x".to_vec())).await;
        assert_eq!(result.expect("the direction is free").0.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(in_flight(), 1, "the notification");
        drop(peer);
        crate::kit::until(|| in_flight() == 0).await;
    });
}

#[test]
fn a_runtime_that_ends_in_between_leaks_the_buffer_and_the_peer_reads_it_whole() {
    if !offered() {
        return;
    }
    in_child("zero_copy::a_runtime_that_ends_in_between_leaks_the_buffer_and_the_peer_reads_it_whole", LIMIT, || {
        let data = noise(7, LATE);
        let buf = Poisoned::of(&data);
        let dropped = Arc::clone(&buf.dropped);
        let rt = runtime::Runtime::new().unwrap();
        let mut peer = rt.block_on(async {
            let (ours, peer) = narrow().await;
            let mut late = pin!(ours.write_all_zc(buf));
            until_told(&ours, late.as_mut()).await;
            peer
        });
        assert_eq!(rt.shutdown_timeout(Duration::from_millis(50)), 1, "left behind");
        assert!(!dropped.load(Ordering::SeqCst), "leaked, not freed");
        expect_all(&mut peer, &data);
    });
}

/// Nothing can cancel a notification, and a peer that lives and does not read puts it off for ever.
#[test]
fn a_process_can_end_while_a_peer_that_does_not_read_holds_up_a_notification() {
    const NAME: &str = "zero_copy::a_process_can_end_while_a_peer_that_does_not_read_holds_up_a_notification";
    if !am_child(NAME) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let output = run_child(NAME, Duration::from_secs(20), &[("RUNTIME_TEST_PORT", &port)]);
        assert!(output.success, "{}", output.text);
        let (mut peer, _) = listener.accept().unwrap();
        let mut first = [0];
        peer.read_exact(&mut first).unwrap();
        assert_eq!(first, [1]);
        return;
    }
    let port: u16 = std::env::var("RUNTIME_TEST_PORT").unwrap().parse().unwrap();
    let rt = runtime::Runtime::new().unwrap();
    rt.block_on(async {
        let ours = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        ours.set_zc_threshold(1);
        let mut write = pin!(ours.write_all_zc(vec![1; 64 << 20]));
        assert!(futures::poll!(write.as_mut()).is_pending());
        runtime::time::sleep(Duration::from_millis(20)).await;
        assert!(futures::poll!(write.as_mut()).is_pending());
    });
    let left = rt.shutdown_timeout(Duration::from_millis(50));
    assert_eq!(left, usize::from(offered()), "the notification");
}

#[test]
fn a_stuck_peer_does_not_keep_a_dropped_stream_open() {
    in_child("zero_copy::a_stuck_peer_does_not_keep_a_dropped_stream_open", LIMIT, || {
        runtime::Runtime::new().unwrap().block_on(async {
            let (ours, peer) = narrow().await;
            let before = fds();
            let slow = ours.write_all_zc(vec![1; 8 << 20]);
            assert!(runtime::time::timeout(Duration::from_millis(5), slow).await.is_err());
            drop(ours);
            // The watchdog of the process bounds it.
            crate::kit::until(|| fds() == before - 1).await;
            assert_eq!(in_flight(), u32::from(offered()), "the kernel still reads the buffer");
            drop(peer);
            crate::kit::until(|| in_flight() == 0).await;
        });
    });
}

#[test]
fn without_the_opcode_it_is_a_plain_write() {
    let _watchdog = watchdog(LIMIT);
    let mut builder = runtime::Builder::new();
    builder.setup_mut().missing_opcodes.push(opcode::SendZc::CODE);
    builder.build().unwrap().block_on(async {
        let (ours, mut peer) = connected().await;
        ours.set_zc_threshold(1);
        let data = noise(8, 100 << 10);
        let expected = data.clone();
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; expected.len()];
            peer.read_exact(&mut got).unwrap();
            assert!(got == expected);
        });
        ours.write_all_zc(data).await.0.unwrap();
        runtime::spawn_blocking(|| reader.join().unwrap()).await.unwrap();
        assert_eq!(zc_sends(), 0);
    });
}

#[test]
fn a_socket_that_cannot_is_asked_once() {
    if !offered() {
        return;
    }
    let _watchdog = watchdog(LIMIT);
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, mut peer) = StdUnixStream::pair().unwrap();
        let ours = TcpStream::from(OwnedFd::from(ours));
        ours.set_zc_threshold(1);
        for _ in 0..3 {
            ours.write_all_zc(vec![5; 1000]).await.0.unwrap();
            let (n, _) = ours.write_zc(vec![6; 1000]).await.into_result().unwrap();
            assert_eq!(n, 1000);
            let mut got = [0; 2000];
            peer.read_exact(&mut got).unwrap();
            assert!(got[..1000].iter().all(|&b| b == 5) && got[1000..].iter().all(|&b| b == 6));
        }
        assert_eq!(zc_sends(), 1);
        peer.write_all(b"back").unwrap();
        assert_eq!(ours.read(Vec::with_capacity(4)).await.1, b"back");
    });
}

#[test]
fn without_memory_to_lock_the_rest_is_a_plain_write() {
    if !offered() {
        return;
    }
    in_child("zero_copy::without_memory_to_lock_the_rest_is_a_plain_write", LIMIT, || {
        // A ring that root has made is not charged.
        if raw::is_root() {
            raw::become_user(65534);
        }
        let rt = runtime::Runtime::new().unwrap();
        raw::set_limit(libc::RLIMIT_MEMLOCK, 16 << 10);
        rt.block_on(async {
            let (ours, mut peer) = connected().await;
            ours.set_zc_threshold(1);
            let data = noise(9, 1 << 20);
            let mut expected = data.clone();
            expected.extend_from_slice(b"small");
            let reader = std::thread::spawn(move || {
                let mut got = vec![0; expected.len()];
                peer.read_exact(&mut got).unwrap();
                assert!(got == expected);
            });
            ours.write_all_zc(data).await.0.unwrap();
            let plain = |rung| runtime::metrics().ops(Kind::Send, rung);
            assert!(plain(Rung::Ring) > 0, "it went another way");
            // It was the size, not the socket.
            let before = zc_sends();
            ours.write_all_zc(b"small".to_vec()).await.0.unwrap();
            assert_eq!(zc_sends(), before + 1);
            runtime::spawn_blocking(|| reader.join().unwrap()).await.unwrap();
        });
    });
}

#[test]
fn a_stream_that_copies_every_time_goes_back_to_plain_writes() {
    let _watchdog = watchdog(LIMIT);
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, mut peer) = connected().await;
        let reader = std::thread::spawn(move || io::copy(&mut peer, &mut io::sink()).unwrap());
        ours.write_all_zc(vec![1; 1000]).await.0.unwrap();
        assert_eq!(zc_sends(), 0, "too small");
        let mut buf = vec![1; 256 << 10];
        for _ in 0..20 {
            buf = ours.write_all_zc(buf).await.into_result().unwrap().1;
        }
        let reports = offered() && runtime::probe().kernel >= (6, 2);
        if reports {
            assert_eq!(runtime::metrics().zc_copied, zc_sends(), "loopback always copies");
            assert_eq!(zc_sends(), 8);
            // Whoever insists gets it.
            ours.set_zc_threshold(1000);
            ours.write_all_zc(vec![1; 1000]).await.0.unwrap();
            assert_eq!(zc_sends(), 9);
        }
        drop(ours);
        runtime::spawn_blocking(|| reader.join().unwrap()).await.unwrap();
    });
}

#[test]
fn halves_write_without_a_copy_as_well() {
    let _watchdog = watchdog(LIMIT);
    runtime::Runtime::new().unwrap().block_on(async {
        let (ours, mut peer) = connected().await;
        let (_read, write) = ours.into_split();
        write.set_zc_threshold(1);
        write.write_all_zc(b"one ".to_vec()).await.0.unwrap();
        assert_eq!(write.write_zc(b"two").await.0.unwrap(), 3);
        drop(write);
        let mut all = String::new();
        peer.read_to_string(&mut all).unwrap();
        assert_eq!(all, "one two");
        assert!(zc_sends() == 2 || !offered());
    });
}
