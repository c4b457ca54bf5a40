//! Descriptors of somebody else: one poll for any number of waiters, no lost wake, no flag of a shared description
//! touched, and nothing left when they go.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;
use runtime::io::Async;
use runtime::op::{Kind, Rung};
use runtime::task::yield_now;
use runtime::time::{sleep, timeout};
use runtime::{Runtime, metrics, spawn};

use crate::alloc;
use crate::kit::{panic_text, poll_once, poll_with, raw_pipe, std_end, until, waker};
use crate::raw::fork;
use crate::support::{fds, in_child, scaled, watchdog};

const LIMIT: Duration = Duration::from_secs(20);

/// Takes a descriptor that a system call just made.
fn owned(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: just made, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn eventfd(flags: i32) -> Arc<OwnedFd> {
    // SAFETY: no pointers.
    Arc::new(owned(unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC) }))
}

fn add(fd: &OwnedFd, n: u64) {
    File::from(fd.try_clone().unwrap()).write_all(&n.to_ne_bytes()).unwrap();
}

/// Reads the eight bytes of an event counter or timer.
fn take(fd: &impl AsFd) -> io::Result<u64> {
    let mut count = [0u8; 8];
    // SAFETY: eight bytes to write to.
    let n = unsafe { libc::read(fd.as_fd().as_raw_fd(), count.as_mut_ptr().cast(), 8) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(u64::from_ne_bytes(count)) }
}

fn is_nonblocking(fd: &impl AsFd) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK != 0
}

/// Kernel workers of this process.
fn workers() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok() // gone meanwhile
    });
    names.filter(|name| name.starts_with("iou-wrk")).count()
}

fn polls_armed() -> u64 {
    metrics().ops(Kind::PollAdd, Rung::Ring)
}

fn pair() -> (UnixStream, UnixStream) {
    let (a, b) = UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    (a, b)
}

/// Writes until there is no more room.
fn fill(mut stream: &UnixStream) -> usize {
    let mut sent = 0;
    loop {
        match stream.write(&[1; 4096]) {
            Ok(n) => sent += n,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                return sent;
            }
        }
    }
}

/// Reads `len` bytes.
fn drain(mut stream: &UnixStream, mut len: usize) {
    let mut buf = [0; 4096];
    while len > 0 {
        len -= stream.read(&mut buf).unwrap();
    }
}

#[test]
fn a_thousand_waiters_are_one_poll_and_no_worker() {
    in_child("foreign::a_thousand_waiters_are_one_poll_and_no_worker", LIMIT, || {
        Runtime::new().unwrap().block_on(async {
            let counter = eventfd(libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE);
            let shared = Rc::new(Async::new(Arc::clone(&counter)).unwrap());
            let tried = Rc::new(Cell::new(0));
            let waiting: Vec<_> = (0..1000)
                .map(|_| {
                    let (shared, tried) = (Rc::clone(&shared), Rc::clone(&tried));
                    spawn(async move {
                        let take = |fd: &Arc<OwnedFd>| {
                            tried.set(tried.get() + 1);
                            take(fd)
                        };
                        shared.read_with(take).await.unwrap()
                    })
                })
                .collect();
            until(|| tried.get() == 1000).await;
            let before = metrics();
            assert_eq!((before.in_flight, polls_armed()), (1, 1), "in flight, ever armed");
            let bell = Arc::clone(&counter);
            let ringer = std::thread::spawn(move || {
                for _ in 0..1000 {
                    add(&bell, 1);
                }
            });
            let served: u64 = join_all(waiting).await.into_iter().map(Result::unwrap).sum();
            ringer.join().unwrap();
            assert_eq!((served, workers()), (1000, 0));
            // Whoever was told found something, but for a few that came when a look had been taken already.
            assert!(tried.get() < 2100, "{} tries for a thousand reads", tried.get());
            assert!(polls_armed() < 1100, "{} polls for a thousand reads", polls_armed());
            drop(shared);
            until(|| metrics().in_flight == 0).await;
        });
    });
}

#[test]
fn event_counters_and_timers_of_the_kernel_are_read() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let counter = eventfd(libc::EFD_NONBLOCK);
        let reader = Async::new(Arc::clone(&counter)).unwrap();
        let bell = std::thread::spawn(move || add(&counter, 5));
        assert_eq!(reader.read_with(take).await.unwrap(), 5);
        bell.join().unwrap();

        // SAFETY: no pointers.
        let timer =
            owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) });
        let at = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 },
        };
        let start = Instant::now();
        // SAFETY: reads one structure, writes none.
        assert_eq!(unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const at, std::ptr::null_mut()) }, 0);
        assert_eq!(Async::new(timer).unwrap().read_with(take).await.unwrap(), 1);
        assert!(start.elapsed() >= Duration::from_millis(5));
    });
}

#[test]
fn inotify_tells_of_a_new_file() {
    let _watchdog = watchdog(LIMIT);
    let folder = tempfile::tempdir().unwrap();
    // SAFETY: no pointers.
    let notify = owned(unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) });
    let path = std::ffi::CString::new(folder.path().to_str().unwrap()).unwrap();
    // SAFETY: a string that ends with zero.
    assert!(unsafe { libc::inotify_add_watch(notify.as_raw_fd(), path.as_ptr(), libc::IN_CREATE) } >= 0);
    Runtime::new().unwrap().block_on(async {
        let events = Async::new(File::from(notify)).unwrap();
        let mut buf = [0; 1024];
        let mut waiting = Box::pin(events.read_with(|mut file| file.read(&mut buf)));
        assert!(poll_once(&mut waiting).await.is_pending());
        File::create(folder.path().join("new")).unwrap();
        assert!(waiting.await.unwrap() > 16);
    });
}

#[test]
fn the_output_of_a_child_process_is_read_to_its_end() {
    let _watchdog = watchdog(LIMIT);
    let mut child = Command::new("sh")
        .args(["-c", "echo one; read line; echo \"$line\"; echo end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    Runtime::new().unwrap().block_on(async {
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        // Both are blocking, and the child has the other end.
        let (mut stdin, mut stdout) = (Async::new(stdin).unwrap(), Async::new(stdout).unwrap());
        let (mut text, mut buf) = (Vec::new(), [0; 64]);
        loop {
            let n = stdout.read_with_mut(|out| out.read(&mut buf)).await.unwrap();
            if n == 0 {
                break;
            }
            text.extend_from_slice(&buf[..n]);
            if text == b"one\n" {
                stdin.write_with_mut(|stdin| stdin.write_all(b"two\n")).await.unwrap();
            }
        }
        assert_eq!(text, b"one\ntwo\nend\n");
        assert!(!is_nonblocking(&stdout) && !is_nonblocking(&stdin));
    });
    assert!(child.wait().unwrap().success());
}

#[test]
fn streams_of_std_carry_a_megabyte_each_way() {
    let _watchdog = watchdog(LIMIT);
    const TOTAL: usize = 1 << 20;
    let (a, b) = pair();
    Runtime::new().unwrap().block_on(async {
        let (a, b) = (Async::new(a).unwrap(), Async::new(b).unwrap());
        let send = async |end: &Async<UnixStream>| {
            let mut at = 0;
            while at < TOTAL {
                let piece: Vec<u8> = (at..TOTAL.min(at + 70_000)).map(|n| (n % 251) as u8).collect();
                at += end.write_with(|mut stream| stream.write(&piece)).await.unwrap();
            }
        };
        let receive = async |end: &Async<UnixStream>| {
            let (mut at, mut buf) = (0, vec![0; 7000]);
            while at < TOTAL {
                let n = end.read_with(|mut stream| stream.read(&mut buf)).await.unwrap();
                assert!(n > 0 && buf[..n].iter().enumerate().all(|(i, &byte)| byte == ((at + i) % 251) as u8));
                at += n;
            }
        };
        futures::join!(send(&a), send(&b), receive(&a), receive(&b));
    });
}

#[test]
fn a_waiter_that_is_dropped_passes_its_wake_on() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (mut peer, ours) = pair();
        let ours = Async::new(ours).unwrap();
        let woken: [Rc<Cell<u32>>; 3] = Default::default();
        let wakers = woken.clone().map(|count| waker(move || count.set(count.get() + 1)));
        let mut waiting = [ours.readable(), ours.readable(), ours.readable()];
        for (future, waker) in waiting.iter_mut().zip(&wakers) {
            assert!(poll_with(future, waker).is_pending());
        }
        peer.write_all(b"x").unwrap();
        until(|| woken[0].get() == 1).await;
        let [first, mut second, mut third] = waiting;
        drop(first);
        // Nobody has read, so the next one is told, and after it the one behind it.
        until(|| woken[1].get() == 1).await;
        assert!(poll_with(&mut second, &wakers[1]).is_ready());
        until(|| woken[2].get() == 1).await;
        // Now the byte is taken, and what is told to nobody is told to nobody later.
        assert!(poll_with(&mut third, &wakers[2]).is_ready());
        let n = ours.get_ref().read(&mut [0; 8]).unwrap();
        assert_eq!(n, 1);
        assert!(timeout(Duration::from_millis(20), ours.readable()).await.is_err());
        peer.write_all(b"y").unwrap();
        ours.readable().await.unwrap();
    });
}

#[test]
fn a_waiter_that_is_not_polled_holds_nobody_up() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (mut peer, ours) = pair();
        let ours = Async::new(ours).unwrap();
        let mut idle = ours.readable();
        assert!(poll_once(&mut idle).await.is_pending());
        let mut buf = [0; 8];
        let mut reads = Box::pin(ours.read_with(|mut stream| stream.read(&mut buf)));
        assert!(poll_once(&mut reads).await.is_pending());
        peer.write_all(b"x").unwrap();
        assert_eq!(reads.await.unwrap(), 1);
        drop(idle);
    });
}

#[test]
fn waits_that_time_out_leave_one_poll_and_lose_nothing() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (mut peer, ours) = pair();
        let ours = Async::new(ours).unwrap();
        let mut buf = [0; 8];
        for round in 0..200u64 {
            assert!(timeout(Duration::from_micros(round), ours.readable()).await.is_err());
            assert!(metrics().in_flight <= 1);
        }
        let before = polls_armed();
        peer.write_all(b"x").unwrap();
        assert_eq!(ours.read_with(|mut stream| stream.read(&mut buf)).await.unwrap(), 1);
        assert!(before <= 1 && polls_armed() <= 2, "{before} and {}", polls_armed());
    });
}

#[test]
fn dropping_it_cancels_and_closes() {
    in_child("foreign::dropping_it_cancels_and_closes", LIMIT, || {
        let rt = Runtime::new().unwrap();
        let base = fds();
        rt.block_on(async {
            let (mut peer, ours) = pair();
            peer.set_nonblocking(false).unwrap();
            let ours = Async::new(ours).unwrap();
            assert!(poll_once(&mut ours.readable()).await.is_pending());
            fill(ours.get_ref());
            assert!(poll_once(&mut ours.writable()).await.is_pending());
            assert_eq!(metrics().in_flight, 2);
            drop(ours);
            until(|| metrics().in_flight == 0).await;
            // The kernel has let go of the file: the peer sees the end behind what was sent.
            assert!(peer.read_to_end(&mut Vec::new()).unwrap() > 0);

            let (mut peer, ours) = pair();
            let ours = Async::new(ours).unwrap();
            assert!(poll_once(&mut ours.readable()).await.is_pending());
            let mut ours = ours.into_inner();
            peer.write_all(b"x").unwrap();
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 1);
            until(|| metrics().in_flight == 0).await;
        });
        assert_eq!(fds(), base);
    });
}

#[test]
fn another_descriptor_may_be_put_in_its_place() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (_silent, ours) = pair();
        let mut ours = Async::new(ours).unwrap();
        assert!(poll_once(&mut ours.readable()).await.is_pending());
        let (mut peer, other) = pair();
        *ours.get_mut() = other;
        peer.write_all(b"x").unwrap();
        ours.readable().await.unwrap();
        assert!(poll_once(&mut ours.readable()).await.is_pending());
    });
}

#[test]
fn a_hang_up_wakes_both_directions() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (peer, ours) = pair();
        let ours = Async::new(ours).unwrap();
        fill(ours.get_ref());
        let (mut read, mut write) = (ours.readable(), ours.writable());
        assert!(poll_once(&mut read).await.is_pending() && poll_once(&mut write).await.is_pending());
        drop(peer);
        read.await.unwrap();
        write.await.unwrap();
        let error = ours.write_with(|mut stream| stream.write(b"x")).await.unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{error}");
    });
}

#[test]
fn a_peer_that_only_ends_its_own_side_makes_nothing_writable() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (peer, ours) = pair();
        let ours = Async::new(ours).unwrap();
        let sent = fill(ours.get_ref());
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let mut waiting = Box::pin(ours.write_with(|mut stream| stream.write(b"end")));
        assert!(poll_once(&mut waiting).await.is_pending());
        sleep(Duration::from_millis(5)).await;
        let before = metrics();
        assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err());
        let looks = metrics().completions - before.completions;
        assert!(looks < 10, "{looks} completions while there was no room");
        drain(&peer, sent);
        assert_eq!(waiting.await.unwrap(), 3);
        // And again, since the next wait begins like the first.
        let sent = 3 + fill(ours.get_ref());
        let mut waiting = ours.writable();
        assert!(timeout(Duration::from_millis(10), &mut waiting).await.is_err());
        drain(&peer, sent);
        waiting.await.unwrap();
    });
}

#[test]
fn what_looks_ready_for_ever_does_not_spin() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        // An error that nobody fetches stays pending: the message that the other end was not there to take.
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let on = 1i32;
        // SAFETY: reads one integer.
        let set = unsafe {
            libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, (&raw const on).cast(), 4)
        };
        assert_eq!(set, 0);
        let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        socket.send_to(b"x", gone).unwrap();
        let ours = Async::new(socket).unwrap();
        let mut buf = [0; 8];
        let first = ours.read_with(|socket| socket.recv(&mut buf)).await.unwrap_err();
        assert_eq!(first.kind(), io::ErrorKind::ConnectionRefused);
        // Told once, but it lies in the error queue.
        let mut waiting = Box::pin(ours.read_with(|socket| socket.recv(&mut buf)));
        assert!(poll_once(&mut waiting).await.is_pending());
        sleep(Duration::from_millis(10)).await;
        assert!(poll_once(&mut waiting).await.is_pending());
        let before = metrics();
        assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err());
        let looks = metrics().completions - before.completions;
        assert!(looks < 20, "{looks} completions while there was nothing to read");
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.send_to(b"hello", ours.get_ref().local_addr().unwrap()).unwrap();
        assert_eq!(waiting.await.unwrap(), 5);
    });
}

#[test]
fn regular_files_are_always_ready() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let file = Async::new(file).unwrap();
        file.readable().await.unwrap();
        file.writable().await.unwrap();
        file.write_with(|mut file| file.write_all(b"def")).await.unwrap();
        let n = file.read_with(|file| std::os::unix::fs::FileExt::read_at(file, &mut [0; 16], 0)).await.unwrap();
        assert_eq!(n, 6);
        let folder = Async::new(File::open("/").unwrap()).unwrap();
        folder.readable().await.unwrap();
    });
}

#[test]
fn what_cannot_be_polled_is_an_error_for_each_who_waits() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        // SAFETY: a string that ends with zero.
        let path = owned(unsafe { libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC) });
        let path = Async::new(path).unwrap();
        let errors = join_all((0..3).map(|_| path.readable())).await;
        assert!(errors.into_iter().all(|result| result.unwrap_err().raw_os_error() == Some(libc::EBADF)));
    });
}

#[test]
fn a_blocking_descriptor_is_left_as_it_is_and_blocks_nobody() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (rx, mut tx) = raw_pipe();
        let reader = Rc::new(Async::new(std_end(&rx)).unwrap());
        // Many of them, for one byte each: nobody may be stuck in a read of what another one took.
        let readers: Vec<_> = (0..50)
            .map(|_| {
                let reader = Rc::clone(&reader);
                spawn(async move { reader.read_with(|mut file| file.read(&mut [0])).await.unwrap() })
            })
            .collect();
        yield_now().await;
        let writer = std::thread::spawn(move || {
            for _ in 0..50 {
                tx.write_all(b"x").unwrap();
            }
            tx
        });
        let read: usize = join_all(readers).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(read, 50);
        assert!(!is_nonblocking(&*reader) && !is_nonblocking(&rx));
        drop(writer.join().unwrap());
        assert_eq!(reader.read_with(|mut file| file.read(&mut [0])).await.unwrap(), 0);
    });
}

#[test]
fn polling_by_hand_tells_each_event_once() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (mut peer, ours) = pair();
        let ours = Async::new(ours).unwrap();
        std::future::poll_fn(|task| ours.poll_writable(task)).await.unwrap();
        let read = async || {
            std::future::poll_fn(|task| {
                loop {
                    match ours.get_ref().read(&mut [0; 8]) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        result => return Poll::Ready(result),
                    }
                    std::task::ready!(ours.poll_readable(task))?;
                }
            })
            .await
        };
        for _ in 0..100 {
            let mut reading = Box::pin(read());
            assert!(poll_once(&mut reading).await.is_pending());
            peer.write_all(b"x").unwrap();
            assert_eq!(reading.await.unwrap(), 1);
        }
        // Both ways to wait are told.
        let mut waiting = ours.readable();
        assert!(poll_once(&mut waiting).await.is_pending());
        let mut reading = Box::pin(read());
        assert!(poll_once(&mut reading).await.is_pending());
        peer.write_all(b"x").unwrap();
        waiting.await.unwrap();
        assert_eq!(reading.await.unwrap(), 1);
    });
}

#[test]
fn it_may_move_to_another_runtime() {
    let _watchdog = watchdog(LIMIT);
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (mut peer, ours) = pair();
    let ours = Async::new(ours).unwrap();
    // A poll is left in the first, which is not run again.
    first.block_on(async { assert!(poll_once(&mut ours.readable()).await.is_pending()) });
    let writer = std::thread::spawn(move || {
        peer.write_all(b"x").unwrap();
        peer
    });
    second.block_on(ours.readable()).unwrap();
    let peer = writer.join().unwrap();
    drop(first);
    let n = second.block_on(ours.read_with(|mut stream| stream.read(&mut [0; 8]))).unwrap();
    assert_eq!(n, 1);
    // To another thread, with a poll left here; the runtime here ends first.
    second.block_on(async { assert!(poll_once(&mut ours.readable()).await.is_pending()) });
    let elsewhere = std::thread::spawn(move || {
        Runtime::new().unwrap().block_on(async {
            let mut waiting = Box::pin(ours.read_with(|mut stream| stream.read(&mut [0; 8])));
            assert!(poll_once(&mut waiting).await.is_pending());
            let _ = (&peer).write(b"yz");
            waiting.await.unwrap()
        })
    });
    assert_eq!(elsewhere.join().unwrap(), 2);
    drop(second);
}

#[test]
fn a_wait_outlives_the_runtime_that_it_began_in() {
    let _watchdog = watchdog(LIMIT);
    let (mut peer, ours) = pair();
    let ours = Async::new(ours).unwrap();
    let mut waiting = ours.readable();
    let first = Runtime::new().unwrap();
    first.block_on(async { assert!(poll_once(&mut waiting).await.is_pending()) });
    drop(first);
    Runtime::new().unwrap().block_on(async {
        // What ended with the first runtime is no readiness.
        assert!(timeout(Duration::from_millis(5), &mut waiting).await.is_err());
        peer.write_all(b"x").unwrap();
        waiting.await.unwrap();
    });
}

#[test]
fn waiting_allocates_nothing_in_steady_state() {
    in_child("foreign::waiting_allocates_nothing_in_steady_state", LIMIT, || {
        Runtime::new().unwrap().block_on(async {
            let (peer, ours) = pair();
            let (peer, ours) = (Async::new(peer).unwrap(), Async::new(ours).unwrap());
            let mut before = 0;
            for round in 0..1000 {
                if round == 500 {
                    before = alloc::calls();
                }
                let write = async {
                    yield_now().await;
                    peer.write_with(|mut stream| stream.write(b"x")).await.unwrap();
                };
                let mut byte = [0];
                let (n, ()) = futures::join!(ours.read_with(|mut stream| stream.read(&mut byte)), write);
                assert_eq!(n.unwrap(), 1);
            }
            assert_eq!(alloc::calls() - before, 0);
        });
    });
}

#[test]
fn a_runtime_that_ends_takes_its_waiters_along() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let (_peer, ours) = pair();
    let ours = Rc::new(Async::new(ours).unwrap());
    rt.block_on(async {
        for _ in 0..10 {
            let ours = Rc::clone(&ours);
            spawn(async move { ours.readable().await });
        }
        yield_now().await;
    });
    drop(rt);
    assert_eq!(Rc::strong_count(&ours), 1);
}

#[test]
fn a_child_of_fork_leaves_it_to_its_parent() {
    in_child("foreign::a_child_of_fork_leaves_it_to_its_parent", LIMIT, || {
        let rt = Runtime::new().unwrap();
        let (mut peer, ours) = pair();
        let ours = Async::new(ours).unwrap();
        rt.block_on(async {
            let waiting = ours.read_with(|mut stream| stream.read(&mut [0; 8]));
            let mut waiting: Pin<Box<dyn Future<Output = io::Result<usize>>>> = Box::pin(waiting);
            assert!(poll_once(&mut waiting).await.is_pending());
            let child = fork(|| {
                let text = panic_text(|| (&mut waiting).now_or_never());
                let other = panic_text(|| ours.read_with(|_| io::Result::Ok(())).now_or_never());
                i32::from(!text.contains("child of fork(2)")) + 2 * i32::from(!other.contains("child of fork(2)"))
            });
            assert_eq!(child.wait(), 0);
            let child = fork(|| {
                // Polls of its parent's ring are cancelled by nobody here.
                waiting = Box::pin(std::future::pending());
                0
            });
            assert_eq!(child.wait(), 0);
            peer.write_all(b"x").unwrap();
            assert_eq!(waiting.await.unwrap(), 1);
        });
    });
}

/// The future of a wait, for bounds that are checked when this compiles.
#[test]
fn it_is_send_and_its_waiters_stay() {
    fn is_send<T: Send>(_: &T) {}
    let (_peer, ours) = pair();
    let ours = Async::new(ours).unwrap();
    is_send(&ours);
    let mut waiting = ours.readable();
    let mut task = Context::from_waker(std::task::Waker::noop());
    let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Pin::new(&mut waiting).poll(&mut task)));
    assert!(outside.is_err(), "needs a runtime");
    assert!(scaled(LIMIT) >= LIMIT);
}
