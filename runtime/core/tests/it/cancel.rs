//! Dropping a future loses nothing that belongs to a resource: no byte, no connection, no descriptor, no slot; and it
//! touches nothing but what it started itself.

use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream as StdStream;
use std::os::unix::fs::OpenOptionsExt;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use runtime::Runtime;
use runtime::fs::File;
use runtime::io::IoBufMut;
use runtime::net::{TcpListener, TcpStream};
use runtime::pipe::{Receiver, Sender, pipe, splice};
use runtime::task::yield_now;
use runtime::testing::{in_flight, tiny};
use runtime::time::{sleep, timeout};

use crate::alloc;
use crate::raw::{PAGE, POISON, Page};
use crate::scene::{Full, connected, make_fifo, poll_once};
use crate::support::{Rng, eventually, fds, in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_secs(1);

/// The byte at a place of a stream that repeats late.
fn byte(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(31)) as u8
}

fn stretch(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(byte).collect()
}

#[track_caller]
fn assert_stretch(data: &[u8], from: usize) {
    if let Some(wrong) = (0..data.len()).find(|&at| data[at] != byte(from + at)) {
        panic!("byte {} of the stream is {}, not {}", from + wrong, data[wrong], byte(from + wrong));
    }
}

/// Drops the future at a random one of its suspensions, or after a random time; `None` if it was dropped.
async fn cut<F: Future>(rng: &mut Rng, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match rng.below(4) {
        // At its first suspension, before the kernel has seen anything.
        0 => {
            std::future::poll_fn(|task| match future.as_mut().poll(task) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => Poll::Ready(None),
            })
            .await
        }
        // After a few turns, in which it may complete without being polled again.
        1 => {
            if let Poll::Ready(output) = std::future::poll_fn(|task| Poll::Ready(future.as_mut().poll(task))).await {
                return Some(output);
            }
            for _ in 0..rng.below(4) {
                yield_now().await;
            }
            None
        }
        _ => timeout(Duration::from_micros(rng.below(200)), future).await.ok(),
    }
}

fn small_ring() -> Runtime {
    tiny(8, 16).build().unwrap()
}

/// Sends the stream in odd sizes, with pauses, for about this many bytes; returns the exact number.
fn send_stream(mut to: impl Write + Send + 'static, bytes: usize) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let (mut rng, mut at) = (Rng(0x5eed), 0);
        while at < bytes {
            let most = if rng.below(8) == 0 { 9000 } else { 90 };
            let len = 1 + rng.below(most) as usize;
            to.write_all(&stretch(at, len)).unwrap();
            at += len;
            if rng.below(3) == 0 {
                std::thread::sleep(Duration::from_micros(rng.below(200)));
            }
        }
        at
    })
}

#[test]
fn a_read_that_is_dropped_anywhere_loses_and_repeats_no_byte() {
    let _dog = watchdog(LIMIT);
    for (ring, seed) in [(small_ring(), 1), (Runtime::new().unwrap(), 2)] {
        ring.block_on(async {
            let (stream, peer) = connected().await;
            let sender = send_stream(peer, 2 << 20);
            let (mut rng, mut at, mut dropped) = (Rng(seed), 0, 0);
            loop {
                let len = 1 + rng.below(300) as usize;
                let kind = rng.below(5);
                let got = match kind {
                    0 => cut(&mut rng, stream.read_exact(vec![0; len])).await.map(|result| match result.0 {
                        Ok(()) => result.1,
                        Err(error) => {
                            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
                            result.1
                        }
                    }),
                    1 => {
                        let bufs = vec![Vec::with_capacity(len), Vec::with_capacity(7), Vec::with_capacity(len)];
                        cut(&mut rng, stream.read_vectored(bufs)).await.map(|result| {
                            let data = result.1.concat();
                            assert_eq!(data.len(), result.0.unwrap());
                            data
                        })
                    }
                    2 => {
                        if let Some(result) = cut(&mut rng, stream.peek(Vec::with_capacity(len))).await {
                            result.0.unwrap();
                            assert_stretch(&result.1, at);
                        }
                        continue;
                    }
                    _ => cut(&mut rng, stream.read(Vec::with_capacity(len))).await.map(|result| {
                        result.0.unwrap();
                        result.1
                    }),
                };
                let Some(data) = got else {
                    dropped += 1;
                    continue;
                };
                if kind == 0 && data.len() < len || data.is_empty() {
                    assert_stretch(&data, at);
                    at += data.len();
                    break;
                }
                assert_stretch(&data, at);
                at += data.len();
            }
            assert_eq!(at, sender.join().unwrap());
            assert!(dropped > 100, "only {dropped} reads were dropped");
        });
    }
}

#[test]
fn a_pipe_read_that_is_dropped_anywhere_loses_and_repeats_no_byte() {
    let _dog = watchdog(LIMIT);
    for (ring, seed) in [(small_ring(), 3), (Runtime::new().unwrap(), 4)] {
        ring.block_on(async {
            let (tx, rx) = pipe().unwrap();
            // A blocking description of the same pipe for the std side.
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&tx)));
            let std_end = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            drop(tx);
            let sender = send_stream(std_end, 1 << 20);
            let (mut rng, mut at, mut dropped) = (Rng(seed), 0, 0);
            loop {
                let len = 1 + rng.below(300) as usize;
                let Some(result) = cut(&mut rng, rx.read(Vec::with_capacity(len))).await else {
                    dropped += 1;
                    continue;
                };
                if result.0.unwrap() == 0 {
                    break;
                }
                assert_stretch(&result.1, at);
                at += result.1.len();
            }
            assert_eq!(at, sender.join().unwrap());
            assert!(dropped > 100, "only {dropped} reads were dropped");
        });
    }
}

#[test]
fn many_readers_of_one_stream_that_come_and_go_share_it_without_loss() {
    let _dog = watchdog(LIMIT);
    small_ring().block_on(async {
        let (stream, peer) = connected().await;
        let (stream, sender) = (Rc::new(stream), send_stream(peer, 512 << 10));
        let at = Rc::new(std::cell::Cell::new(0));
        let readers: Vec<_> = (0..4)
            .map(|seed| {
                let (stream, at) = (Rc::clone(&stream), Rc::clone(&at));
                runtime::spawn(async move {
                    let mut rng = Rng(77 + seed);
                    loop {
                        let len = 1 + rng.below(200) as usize;
                        let read = async {
                            let result = stream.read(Vec::with_capacity(len)).await;
                            // Looked at in the poll that completes it, so in the order of the stream.
                            assert_stretch(&result.1, at.get());
                            at.set(at.get() + result.1.len());
                            result.0.unwrap()
                        };
                        if cut(&mut rng, read).await == Some(0) {
                            return;
                        }
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.await.unwrap();
        }
        assert_eq!(at.get(), sender.join().unwrap());
    });
}

/// Frame `n` of a stream of writes that may be cut short.
fn frame(n: usize, len: usize) -> Vec<u8> {
    let mut rng = Rng(n as u64 * 0x9e37_79b9 + 1);
    (0..len).map(|_| rng.next() as u8).collect()
}

/// Checks that what a peer got is each frame in order: the whole of those that were written, a beginning of the others.
fn assert_frames(got: &[u8], frames: &[(usize, bool)]) {
    // Where the frame may begin: more than one place when the next frame begins as the cut one would have gone on.
    let mut begins = std::collections::BTreeSet::from([0]);
    for (n, &(len, whole)) in frames.iter().enumerate() {
        let expected = frame(n, len);
        let mut ends = std::collections::BTreeSet::new();
        for &begin in &begins {
            let common = got[begin..].iter().zip(&expected).take_while(|(a, b)| a == b).count();
            if whole && common == len {
                ends.insert(begin + len);
            } else if !whole {
                ends.extend((0..=common.min(4)).chain(common.saturating_sub(4)..=common).map(|cut| begin + cut));
            }
        }
        assert!(!ends.is_empty(), "frame {n} of {len} bytes was written, but is not at {begins:?}");
        begins = ends;
    }
    assert!(begins.contains(&got.len()), "{} bytes, and the last frame ends at {begins:?}", got.len());
}

/// Reads everything, slowly enough for writes to wait.
fn drain_slowly(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let (mut all, mut buf, mut rng) = (Vec::new(), vec![0; 40_000], Rng(9));
        loop {
            match from.read(&mut buf).unwrap() {
                0 => return all,
                n => all.extend_from_slice(&buf[..n]),
            }
            if rng.below(4) == 0 {
                std::thread::sleep(Duration::from_micros(rng.below(300)));
            }
        }
    })
}

#[test]
fn a_write_that_is_dropped_anywhere_is_a_beginning_and_is_never_overtaken() {
    let _dog = watchdog(LIMIT);
    for (ring, seed) in [(small_ring(), 5), (Runtime::new().unwrap(), 6)] {
        ring.block_on(async {
            let (stream, peer) = connected().await;
            stream.set_send_buffer_size(16 << 10).unwrap();
            let reader = drain_slowly(peer);
            let (mut rng, mut frames) = (Rng(seed), Vec::new());
            for n in 0..1500 {
                let most = if rng.below(3) == 0 { 60_000 } else { 900 };
                let len = 1 + rng.below(most) as usize;
                let data = frame(n, len);
                let done = if rng.below(2) == 0 {
                    cut(&mut rng, stream.write_all(data)).await.map(|result| result.0.unwrap()).is_some()
                } else {
                    let (head, tail) = data.split_at(len / 2);
                    let bufs = vec![head.to_vec(), tail.to_vec()];
                    cut(&mut rng, stream.write_all_vectored(bufs)).await.map(|result| result.0.unwrap()).is_some()
                };
                frames.push((len, done));
            }
            stream.shutdown(std::net::Shutdown::Write).await.unwrap();
            assert_frames(&reader.join().unwrap(), &frames);
            assert!(frames.iter().filter(|(_, done)| !done).count() > 50);
        });
    }
}

#[test]
fn a_pipe_write_that_is_dropped_anywhere_is_a_beginning_and_is_never_overtaken() {
    let _dog = watchdog(LIMIT);
    small_ring().block_on(async {
        let (tx, rx) = pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&rx)));
        let reader = drain_slowly(std::fs::File::open(path).unwrap());
        drop(rx);
        let (mut rng, mut frames) = (Rng(8), Vec::new());
        for n in 0..1500 {
            let most = if rng.below(3) == 0 { 60_000 } else { 900 };
            let len = 1 + rng.below(most) as usize;
            let done = cut(&mut rng, tx.write_all(frame(n, len))).await.map(|result| result.0.unwrap()).is_some();
            frames.push((len, done));
        }
        // Behind the last orphan, so that closing does not cut it.
        tx.write_all(frame(1500, 5)).await.0.unwrap();
        frames.push((5, true));
        drop(tx);
        assert_frames(&reader.join().unwrap(), &frames);
        assert!(frames.iter().filter(|(_, done)| !done).count() > 0);
    });
}

#[test]
fn a_connection_is_never_lost_when_an_accept_is_dropped() {
    in_child("cancel::a_connection_is_never_lost_when_an_accept_is_dropped", LIMIT, || {
        const CLIENTS: usize = 300;
        let round = |rt: Runtime| {
            rt.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let addr = listener.local_addr().unwrap();
                let clients: Vec<_> = (0..3)
                    .map(|_| {
                        std::thread::spawn(move || {
                            for n in 0..CLIENTS / 3 {
                                let mut client = StdStream::connect(addr).unwrap();
                                client.set_read_timeout(Some(SOON)).unwrap();
                                let greeted = client.read(&mut [0; 1]);
                                assert!(matches!(greeted, Ok(1)), "client {n} waits for nobody: {greeted:?}");
                            }
                        })
                    })
                    .collect();
                let (mut rng, mut served) = (Rng(11), 0);
                while served < CLIENTS {
                    let accepted = if rng.below(2) == 0 {
                        cut(&mut rng, listener.accept()).await.map(|result| result.unwrap().0)
                    } else {
                        let mut incoming = listener.incoming();
                        cut(&mut rng, incoming.next()).await.map(|item| item.unwrap().unwrap())
                    };
                    if let Some(stream) = accepted {
                        stream.write_all("!").await.0.unwrap();
                        served += 1;
                    } else {
                        sleep(Duration::from_micros(rng.below(1000))).await;
                    }
                }
                for client in clients {
                    client.join().unwrap();
                }
            });
        };
        round(Runtime::new().unwrap());
        let open = fds();
        round(small_ring());
        eventually("descriptors at base", || fds() == open);
    });
}

#[test]
fn operations_that_make_descriptors_leak_none_when_they_are_dropped() {
    in_child("cancel::operations_that_make_descriptors_leak_none_when_they_are_dropped", LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let (path, fifo) = (dir.path().join("file"), dir.path().join("fifo"));
        std::fs::write(&path, b"data").unwrap();
        make_fifo(&fifo);
        for rt in [Runtime::new().unwrap(), small_ring()] {
            rt.block_on(async {
                let (full, listener) = (Full::new().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
                let (addr, full_addr) = (listener.local_addr().unwrap(), full.addr());
                drop(cut(&mut Rng(1), listener.accept()).await);
                sleep(Duration::from_millis(20)).await;
                let open = fds();
                let mut rng = Rng(12);
                for n in 0..2000 {
                    assert!(poll_once(pin!(File::open(&path))).is_pending());
                    drop(cut(&mut rng, File::create(&path)).await);
                    if n % 8 == 0 {
                        drop(cut(&mut rng, TcpStream::connect(addr)).await);
                        drop(cut(&mut rng, TcpStream::connect(full_addr)).await);
                        drop(cut(&mut rng, File::open(&fifo)).await);
                        drop(cut(&mut rng, TcpListener::bind("127.0.0.1:0")).await);
                        // Those that got through, whoever they are.
                        while let Some(accepted) = futures::FutureExt::now_or_never(listener.accept()) {
                            drop(accepted.unwrap());
                        }
                    }
                }
                let deadline = Instant::now() + SOON;
                // Orphans end after their cancel requests, an enter or a worker later.
                while (fds(), in_flight()) != (open, 1) && Instant::now() < deadline {
                    drop(timeout(Duration::from_millis(2), listener.accept()).await);
                }
                assert_eq!((fds(), in_flight()), (open, 1), "descriptors and operations (the standing accept)");
                // And the next ones work.
                File::open(&path).await.unwrap();
                TcpStream::connect(addr).await.unwrap();
                listener.accept().await.unwrap();
            });
        }
    });
}

#[test]
fn only_what_was_dropped_is_cancelled() {
    let _dog = watchdog(LIMIT);
    small_ring().block_on(async {
        let (a, _a_peer) = connected().await;
        let (b, mut b_peer) = connected().await;
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            b_peer.write_all(b"late").unwrap();
            b_peer
        });
        let (cancelled, read) =
            futures::join!(timeout(Duration::from_millis(10), a.read(vec![0; 8])), b.read(vec![0; 8]));
        assert!(cancelled.is_err());
        assert_eq!(read.0.unwrap(), 4);
        sender.join().unwrap();

        // Reading and writing on one socket.
        let (both, mut peer) = connected().await;
        let len = 8 << 20;
        let mut write = Box::pin(both.write_all(stretch(0, len)));
        assert!(poll_once(write.as_mut()).is_pending());
        assert!(timeout(Duration::from_millis(10), both.read(vec![0; 8])).await.is_err());
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; len];
            peer.read_exact(&mut all).unwrap();
            peer.write_all(b"got it").unwrap();
            (all, peer)
        });
        write.await.0.unwrap();
        assert_eq!(both.read(vec![0; 8]).await.0.unwrap(), 6);
        assert_stretch(&reader.join().unwrap().0, 0);
    });
}

#[test]
fn a_hundred_thousand_cancelled_reads_leave_neither_slots_nor_memory() {
    in_child("cancel::a_hundred_thousand_cancelled_reads_leave_neither_slots_nor_memory", LIMIT, || {
        for rt in [small_ring(), Runtime::new().unwrap()] {
            rt.block_on(async {
                let (stream, mut peer) = connected().await;
                let (tx, rx) = pipe().unwrap();
                let (mut live, mut sent, mut got) = (0, 0, [0; 2]);
                for n in 0..50_000 {
                    if n == 1_000 {
                        live = alloc::live();
                    }
                    {
                        let mut one = pin!(stream.read(Vec::with_capacity(64)));
                        let mut other = pin!(rx.read(Vec::with_capacity(64)));
                        if let Poll::Ready(result) = poll_once(one.as_mut()) {
                            got[0] += result.0.unwrap();
                        }
                        if let Poll::Ready(result) = poll_once(other.as_mut()) {
                            got[1] += result.0.unwrap();
                        }
                        if n % 3 == 0 {
                            yield_now().await;
                        }
                    }
                    if n % 100 == 0 {
                        // Some complete: their bytes are residue, which a later read takes.
                        peer.write_all(b"some").unwrap();
                        tx.write_all("some").await.0.unwrap();
                        sent += 4;
                    }
                    while n % 100 == 50 && got != [sent; 2] {
                        if got[0] < sent {
                            got[0] += stream.read(vec![0; 64]).await.0.unwrap();
                        }
                        if got[1] < sent {
                            got[1] += rx.read(vec![0; 64]).await.0.unwrap();
                        }
                    }
                    assert!(in_flight() < 40, "{} slots in use", in_flight());
                }
                sleep(Duration::from_millis(5)).await;
                assert_eq!(in_flight(), 0);
                assert!((alloc::live() - live).abs() < 32 << 10, "{} bytes more", alloc::live() - live);
            });
        }
    });
}

/// Polls a read once and drops it; then the kernel has something for it. The page must not change any more once its
/// buffer is dropped.
async fn drop_and_send<F: Future>(rng: &mut Rng, read: F, pages: &[Page], send: impl FnOnce()) {
    {
        let mut read = pin!(read);
        let first = std::future::poll_fn(|task| Poll::Ready(read.as_mut().poll(task))).await;
        assert!(first.is_pending());
        if rng.below(2) == 0 {
            yield_now().await;
        }
    }
    send();
    let deadline = Instant::now() + SOON;
    while !pages.iter().all(Page::is_dropped) {
        assert!(Instant::now() < deadline, "the buffer was not dropped");
        yield_now().await;
    }
    yield_now().await;
    assert!(pages.iter().all(Page::is_untouched_since_drop), "the kernel wrote to a buffer after its end");
}

#[test]
fn no_buffer_is_dropped_while_the_kernel_may_write_to_it() {
    let _dog = watchdog(LIMIT);
    let pages: Vec<Page> = (0..3).map(|_| Page::new()).collect();
    for rt in [small_ring(), Runtime::new().unwrap()] {
        rt.block_on(async {
            let mut rng = Rng(13);
            let (stream, mut peer) = connected().await;
            let (tx, rx) = pipe().unwrap();
            for n in 0..500 {
                let bytes = stretch(n * 5, 5);
                match n % 3 {
                    0 => {
                        let read = stream.read(pages[0].buf());
                        drop_and_send(&mut rng, read, &pages[..1], || peer.write_all(&bytes).unwrap()).await;
                    }
                    1 => {
                        let read = stream.read_vectored(vec![pages[0].buf(), pages[1].buf(), pages[2].buf()]);
                        drop_and_send(&mut rng, read, &pages, || peer.write_all(&bytes).unwrap()).await;
                    }
                    _ => {
                        let read = rx.read(pages[0].buf());
                        drop_and_send(&mut rng, read, &pages[..1], || ()).await;
                        tx.write_all("x").await.0.unwrap();
                        assert_eq!(rx.read(vec![0; 8]).await.0.unwrap(), 1);
                        continue;
                    }
                }
                let result = stream.read_exact(vec![0; 5]).await;
                result.0.unwrap();
                assert_stretch(&result.1, n * 5);
            }
        });
    }
}

#[test]
fn direct_reads_of_a_file_own_their_buffers_until_the_disk_is_done() {
    in_child("cancel::direct_reads_of_a_file_own_their_buffers_until_the_disk_is_done", LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![0x55; 64 * PAGE]).unwrap();
        let direct = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
        let Ok(direct) = direct else {
            eprintln!("SKIP: no direct reads on this file system");
            return;
        };
        let pages: Vec<Page> = (0..64).map(|_| Page::new()).collect();
        Runtime::new().unwrap().block_on(async {
            let file = File::from(direct);
            for round in 0..20 {
                {
                    let mut reads: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
                    for (n, page) in pages.iter().enumerate() {
                        let (file, buf) = (&file, page.buf());
                        reads.push(Box::pin(async move {
                            file.read_at(buf, (n * PAGE) as u64).await.0.unwrap();
                        }));
                    }
                    for read in &mut reads {
                        assert!(poll_once(read.as_mut()).is_pending());
                    }
                    for _ in 0..round % 3 {
                        yield_now().await;
                    }
                }
                let deadline = Instant::now() + 5 * SOON;
                while !pages.iter().all(Page::is_dropped) {
                    assert!(Instant::now() < deadline, "a buffer was not dropped");
                    sleep(Duration::from_micros(200)).await;
                }
                sleep(Duration::from_millis(2)).await;
                let spoilt = pages.iter().filter(|page| !page.is_untouched_since_drop()).count();
                assert_eq!(spoilt, 0, "pages without {POISON:#x}: written to after their end");
            }
            assert_eq!(file.read_at(pages[0].buf(), 0).await.0.unwrap(), PAGE);
        });
    });
}

/// A read that was dropped, and then one that has to complete soon.
async fn read_again<F: Future>(dropped: F, send: impl AsyncFnOnce(), next: impl Future<Output = usize>, len: usize) {
    {
        let mut dropped = pin!(dropped);
        assert!(poll_once(dropped.as_mut()).is_pending());
    }
    let (read, ()) = futures::join!(timeout(SOON, next), send());
    assert_eq!(read.expect("the operation after a cancelled one hangs"), len);
}

async fn read_some<B: IoBufMut>(rx: &Receiver, buf: B) -> usize {
    rx.read(buf).await.0.unwrap()
}

async fn fill(tx: &Sender) {
    drop(timeout(Duration::from_millis(2), tx.write_all(vec![0; 1 << 20])).await);
}

#[test]
fn the_operation_after_a_cancelled_one_works_at_once() {
    let _dog = watchdog(LIMIT);
    for rt in [small_ring(), Runtime::new().unwrap()] {
        rt.block_on(async {
            let (stream, mut peer) = connected().await;
            let ((tx, rx), (to, from)) = (pipe().unwrap(), pipe().unwrap());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let full = Full::new().await;
            let dir = tempfile::tempdir().unwrap();
            let file = File::create(dir.path().join("file")).await.unwrap();
            for _ in 0..1000 {
                let next = async { stream.read(vec![0; 8]).await.0.unwrap() };
                read_again(stream.read(vec![0; 8]), async || peer.write_all(b"x").unwrap(), next, 1).await;
                let send = async || tx.write_all("xy").await.0.unwrap();
                read_again(rx.read(vec![0; 8]), send, read_some(&rx, vec![0; 8]), 2).await;
                let send = async || tx.write_all("xyz").await.0.unwrap();
                let next = async { splice(&rx, &to, 8).await.unwrap() };
                read_again(splice(&rx, &to, 8), send, next, 3).await;
                assert_eq!(from.read(vec![0; 8]).await.0.unwrap(), 3);
                assert!(poll_once(pin!(file.write_at("data", 0))).is_pending());
                timeout(SOON, file.write_at("data", 0)).await.unwrap().0.unwrap();
                assert!(poll_once(pin!(file.read_at(vec![0; 8], 0))).is_pending());
                assert_eq!(timeout(SOON, file.read_at(vec![0; 8], 0)).await.unwrap().0.unwrap(), 4);
            }
            for _ in 0..300 {
                assert!(poll_once(pin!(listener.accept())).is_pending());
                assert!(poll_once(pin!(TcpStream::connect(full.addr()))).is_pending());
                let (client, server) = futures::join!(TcpStream::connect(addr), timeout(SOON, listener.accept()));
                client.unwrap();
                server.expect("an accept after a cancelled one hangs").unwrap();
            }
            // Writes: the pipe is full, the write is dropped, the pipe is emptied, the next write goes through.
            for _ in 0..50 {
                fill(&tx).await;
                let next = async { timeout(SOON, tx.write_all("z")).await.expect("a write hangs").0.unwrap() };
                let drain = async {
                    loop {
                        let result = timeout(SOON, rx.read(Vec::with_capacity(1 << 20))).await.expect("a read hangs");
                        result.0.unwrap();
                        if result.1.ends_with(b"z") {
                            return;
                        }
                    }
                };
                futures::join!(next, drain);
            }
        });
    }
}
