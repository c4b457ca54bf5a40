//! Scenes that the tests of shutdown, cancellation and fork set up: connections whose other side is std's, operations
//! that do not end by themselves, and runtimes that are busy with all of them.

use std::cell::Cell;
use std::ffi::CString;
use std::future::Future;
use std::net::TcpStream as StdStream;
use std::os::fd::{FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use runtime::net::{TcpListener, TcpStream};
use runtime::op::{Cqe, Kind, Op, opcode, squeue, submit, types};
use runtime::pipe::pipe;

/// Runs `f` and says how long it took.
pub(crate) fn timed<R>(f: impl FnOnce() -> R) -> (R, Duration) {
    let start = std::time::Instant::now();
    let result = f();
    (result, start.elapsed())
}

/// Polls once with a waker that does nothing, and keeps the future.
pub(crate) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A connected pair: the runtime's side and std's.
pub(crate) async fn connected() -> (TcpStream, StdStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (ours, listener.accept().unwrap().0)
}

/// A listener of std whose backlog is full: connecting to it neither succeeds nor fails.
pub(crate) struct Full {
    pub(crate) listener: TcpListener,
    _fill: Vec<socket::Socket>,
}

impl Full {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::options().backlog(0).bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        Self { listener, _fill: (0..4).map(|_| socket::Socket::connecting(addr)).collect() }
    }

    pub(crate) fn addr(&self) -> std::net::SocketAddr {
        self.listener.local_addr().unwrap()
    }
}

mod socket {
    //! A socket that has begun to connect.

    use std::net::SocketAddr;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use runtime_core::sys::RawAddr;

    pub(crate) struct Socket {
        _fd: OwnedFd,
    }

    impl Socket {
        pub(crate) fn connecting(addr: SocketAddr) -> Self {
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            // SAFETY: no pointers.
            let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
            assert!(fd >= 0);
            // SAFETY: a fresh descriptor that nobody else knows.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            let (addr, len) = RawAddr::new(addr);
            // SAFETY: an address of that length.
            unsafe { libc::connect(fd.as_raw_fd(), addr.as_ptr(), len) };
            Self { _fd: fd }
        }
    }
}

/// Counts the values of it that live.
#[derive(Clone, Default)]
pub(crate) struct Guards(Rc<Cell<usize>>);

pub(crate) struct Guard(Rc<Cell<usize>>);

impl Guards {
    pub(crate) fn guard(&self) -> Guard {
        self.0.set(self.0.get() + 1);
        Guard(Rc::clone(&self.0))
    }

    pub(crate) fn living(&self) -> usize {
        self.0.get()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Spawns one task per kind of operation that does not end by itself; each holds a guard. Returns what keeps them
/// from ending, for as long as the caller wants.
pub(crate) async fn pend_on_everything(guards: &Guards, dir: &std::path::Path) -> Box<dyn std::any::Any> {
    let mut keep: Vec<Box<dyn std::any::Any>> = Vec::new();
    let spawned = Cell::new(guards.living());
    let spawn = |future: Pin<Box<dyn Future<Output = ()>>>| {
        let guard = guards.guard();
        spawned.set(spawned.get() + 1);
        drop(runtime::spawn(async move {
            let _guard = guard;
            future.await;
            panic!("an operation that pends ended");
        }));
    };

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    spawn(Box::pin(async move { drop(listener.accept().await) }));
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    keep.push(Box::new(StdStream::connect(listener.local_addr().unwrap()).unwrap()));
    spawn(Box::pin(async move {
        let mut incoming = listener.incoming();
        let _first = incoming.next().await;
        drop(incoming.next().await);
    }));

    let (stream, peer) = connected().await;
    keep.push(Box::new(peer));
    spawn(Box::pin(async move {
        drop(futures::join!(stream.read(vec![0; 64]), stream.write_all(vec![1; 64 << 20])));
    }));
    let (stream, peer) = connected().await;
    keep.push(Box::new(peer));
    spawn(Box::pin(async move { drop(stream.read_exact(vec![0; 64]).await) }));
    let (stream, peer) = connected().await;
    keep.push(Box::new(peer));
    let (rx, tx) = stream.into_split();
    spawn(Box::pin(async move { drop(rx.read_vectored(vec![vec![0; 8], vec![0; 8]]).await) }));
    spawn(Box::pin(async move { drop(tx.write_all_vectored(vec![vec![1; 32 << 20], vec![1; 32 << 20]]).await) }));

    let full = Full::new().await;
    let addr = full.addr();
    keep.push(Box::new(full));
    spawn(Box::pin(async move { drop(TcpStream::connect(addr).await) }));

    let (tx, rx) = pipe().unwrap();
    keep.push(Box::new(tx));
    spawn(Box::pin(async move { drop(rx.read(vec![0; 64]).await) }));
    let (tx, rx) = pipe().unwrap();
    keep.push(Box::new(rx));
    spawn(Box::pin(async move { drop(tx.write_all(vec![1; 1 << 20]).await) }));

    let ((keep_tx, from), (to, keep_rx)) = (pipe().unwrap(), pipe().unwrap());
    keep.push(Box::new((keep_tx, keep_rx)));
    spawn(Box::pin(async move { drop(runtime::pipe::splice(&from, &to, 64).await) }));
    let ((one, one_peer), (other, other_peer)) = (connected().await, connected().await);
    keep.push(Box::new((one_peer, other_peer)));
    spawn(Box::pin(async move { drop(runtime::pipe::relay(&one, &other).await) }));
    let (stream, peer) = connected().await;
    keep.push(Box::new(peer));
    spawn(Box::pin(async move { drop(stream.recv().await) }));

    let fifo = dir.join("fifo");
    make_fifo(&fifo);
    spawn(Box::pin(async move { drop(submit(OpenInWorker(c_path(&fifo))).await) }));

    spawn(Box::pin(runtime::time::sleep(Duration::from_secs(3600))));
    spawn(Box::pin(std::future::pending()));
    // A job that has ended by the time of the end; a runtime waits for those that have not.
    spawn(Box::pin(async move { drop(runtime::spawn_blocking(|| ()).await) }));

    // All have been polled, and turns have been made in which what does not pend would have ended.
    while guards.living() >= spawned.get() {
        runtime::time::sleep(Duration::from_millis(1)).await;
    }
    runtime::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(guards.living() + 1, spawned.get(), "only the job ends by itself");
    Box::new(keep)
}

/// Opens a FIFO in a kernel worker, where it waits for the other side. (A ring's own try does not wait.)
struct OpenInWorker(CString);

// SAFETY: the path is heap memory that this operation owns; one completion.
unsafe impl Op for OpenInWorker {
    type Output = Option<OwnedFd>;
    const KIND: Kind = Kind::Open;

    fn entry(&mut self) -> squeue::Entry {
        opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), self.0.as_ptr()).build().flags(squeue::Flags::ASYNC)
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        // SAFETY: the kernel just made this descriptor for us.
        cqe.result().ok().map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

fn c_path(path: &std::path::Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

pub(crate) fn make_fifo(path: &std::path::Path) {
    let path = c_path(path);
    // SAFETY: a string with its NUL.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}
