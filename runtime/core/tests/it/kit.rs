//! What the executor, timer and driver tests share: wakers with a behaviour, operations of a test's own, echo peers.

use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread::{JoinHandle, ThreadId};

use runtime::op::{Cqe, Kind, Op, opcode, squeue, types};

/// A closure that stays on the thread that made it.
struct Home<F> {
    thread: ThreadId,
    f: F,
}

// SAFETY: `f` is only touched after a look at the thread, and leaked elsewhere.
unsafe impl<F> Send for Home<F> {}
// SAFETY: as above.
unsafe impl<F> Sync for Home<F> {}

impl<F: Fn()> Wake for Home<F> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        assert_eq!(self.thread, std::thread::current().id(), "a waker of this thread was woken on another");
        (self.f)();
    }
}

/// A waker that runs `f`, on this thread only. What `f` holds is dropped with the last clone.
pub(crate) fn waker(f: impl Fn() + 'static) -> Waker {
    Waker::from(Arc::new(Home { thread: std::thread::current().id(), f }))
}

/// Runs a closure when it is dropped.
pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Polls a future once with this waker.
pub(crate) fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls a future once with the waker of the task that runs.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|task| Poll::Ready(Pin::new(&mut *future).poll(task))).await
}

/// Yields until the condition holds; the watchdog of the test bounds it.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        runtime::time::sleep(std::time::Duration::from_micros(200)).await;
    }
}

/// Runs `f` and returns the text of its panic.
#[track_caller]
pub(crate) fn panic_text<R>(f: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("this should have panicked"),
        Err(payload) => text_of(&*payload),
    }
}

pub(crate) fn text_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "not a text".to_owned())
}

/// A no-op of the ring that says `done` when it completes or ends as an orphan.
pub(crate) struct Nop<F: FnOnce() + 'static>(pub(crate) Option<F>);

pub(crate) fn nop<F: FnOnce() + 'static>(done: F) -> Nop<F> {
    Nop(Some(done))
}

// SAFETY: no pointers; one completion.
unsafe impl<F: FnOnce() + 'static> Op for Nop<F> {
    type Output = io::Result<u32>;
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        opcode::Nop::new().build()
    }

    fn complete(mut self, cqe: Cqe) -> Self::Output {
        if let Some(done) = self.0.take() {
            done();
        }
        cqe.result()
    }
}

/// Reads into memory that is part of the operation itself, so that its size and alignment are the slot's business.
pub(crate) struct ReadInto<M> {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) memory: M,
}

// SAFETY: the memory lies in the operation, which does not move between `entry` and the completion; one completion.
unsafe impl<M: AsMut<[u8]> + 'static> Op for ReadInto<M> {
    type Output = (io::Result<u32>, M);
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        let at = (&raw const self.memory).addr();
        assert_eq!(at % align_of::<M>(), 0, "the memory is aligned as its type asks");
        let memory = self.memory.as_mut();
        let len = memory.len() as u32;
        opcode::Read::new(types::Fd(self.fd.as_raw_fd()), memory.as_mut_ptr(), len).offset(u64::MAX).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result(), self.memory)
    }
}

/// A pipe of the kernel: the end to read as a shared descriptor, the end to write as std's.
pub(crate) fn raw_pipe() -> (Arc<OwnedFd>, io::PipeWriter) {
    let (rx, tx) = io::pipe().unwrap();
    (Arc::new(OwnedFd::from(rx)), tx)
}

/// A second descriptor of the pipe, for the std side.
pub(crate) fn std_end(end: &impl std::os::fd::AsFd) -> std::fs::File {
    std::fs::File::from(end.as_fd().try_clone_to_owned().unwrap())
}

/// A std client that makes `rounds` round trips of one byte, and says how long each took.
pub(crate) fn echo_client(to: std::net::SocketAddr, rounds: usize) -> JoinHandle<Vec<std::time::Duration>> {
    std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut took = Vec::with_capacity(rounds);
        for round in 0..rounds {
            let start = std::time::Instant::now();
            stream.write_all(&[round as u8]).unwrap();
            let mut back = [0u8];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back[0], round as u8);
            took.push(start.elapsed());
        }
        took
    })
}

/// Serves one connection until its end.
pub(crate) async fn echo_once(listener: &runtime::net::TcpListener) {
    let (stream, _peer) = listener.accept().await.unwrap();
    let mut buf = Vec::with_capacity(64);
    loop {
        let (n, data) = stream.read(buf).await.into_result().unwrap();
        if n == 0 {
            return;
        }
        buf = stream.write_all(data).await.into_result().unwrap().1;
    }
}

/// A buffer with something in it that has a destructor.
pub(crate) struct Guarded<G>(pub(crate) Vec<u8>, #[allow(dead_code, reason = "is there to be dropped")] pub(crate) G);

// SAFETY: that of the vector, which is never replaced.
unsafe impl<G: 'static> runtime::io::IoBuf for Guarded<G> {
    fn stable_ptr(&self) -> *const u8 {
        self.0.stable_ptr()
    }

    fn init_len(&self) -> usize {
        self.0.init_len()
    }
}

// SAFETY: as above.
unsafe impl<G: 'static> runtime::io::IoBufMut for Guarded<G> {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.0.stable_mut_ptr()
    }

    fn capacity(&self) -> usize {
        runtime::io::IoBufMut::capacity(&self.0)
    }

    unsafe fn set_len(&mut self, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { runtime::io::IoBufMut::set_len(&mut self.0, len) }
    }
}

/// A multishot poll on a descriptor that hands each completion to a closure.
pub(crate) struct PollMany<F> {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) item: F,
}

// SAFETY: no pointers; as many completions as the kernel likes, the last one without MORE.
unsafe impl<F: FnMut(Cqe) + 'static> runtime::op::Multi for PollMany<F> {
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        const POLLIN: u32 = 1;
        opcode::PollAdd::new(types::Fd(self.fd.as_raw_fd()), POLLIN).multi(true).build()
    }

    fn item(&mut self, cqe: Cqe) {
        (self.item)(cqe);
    }
}

/// A waker that runs `f` as it is cloned for the first time, and is `inner` otherwise.
pub(crate) fn waker_with_clone(inner: Waker, f: impl FnOnce() + 'static) -> Waker {
    type Hook = std::cell::Cell<Option<Box<dyn FnOnce()>>>;
    struct Odd {
        inner: Waker,
        hook: Hook,
    }
    fn raw(odd: Odd) -> RawWaker {
        RawWaker::new(Box::into_raw(Box::new(odd)).cast_const().cast(), &VTABLE)
    }
    // SAFETY: each pointer is a box of its own, made by `raw` and given up by `wake` or `drop`; on one thread.
    static VTABLE: RawWakerVTable = RawWakerVTable::new(
        |at| {
            // SAFETY: as above.
            let odd = unsafe { &*at.cast::<Odd>() };
            if let Some(hook) = odd.hook.take() {
                hook();
            }
            raw(Odd { inner: odd.inner.clone(), hook: Hook::new(None) })
        },
        // SAFETY: as above.
        |at| unsafe { Box::from_raw(at.cast_mut().cast::<Odd>()) }.inner.wake(),
        // SAFETY: as above.
        |at| unsafe { &*at.cast::<Odd>() }.inner.wake_by_ref(),
        // SAFETY: as above.
        |at| drop(unsafe { Box::from_raw(at.cast_mut().cast::<Odd>()) }),
    );
    // SAFETY: the functions above keep what `RawWakerVTable` asks for, on this thread, which is where tests use it.
    unsafe { Waker::from_raw(raw(Odd { inner, hook: Hook::new(Some(Box::new(f))) })) }
}
