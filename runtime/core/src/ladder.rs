//! The rungs of the ladder that several kinds of I/O climb in the same way.
//!
//! Owns the arm rung, a poll of the descriptor, after which the operation is issued again ([`Arm`]), the inline rungs of reads, and the last one, the blocking pool. Knows nothing of what is issued.

pub mod mounts;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::buf::IoBufMut;
use crate::coop;
use crate::fd::Origin;
use crate::op::poll_add::{POLLIN, POLLOUT, PollAdd};
use crate::op::{Cqe, Kind, Rung};
use crate::submit::submit;
use crate::sys::{self, files, pipes};
use crate::task::spawn_blocking;

/// The inline rung of a read: read(2) of a descriptor that does not block, behind the first `at` bytes of the buffer.
///
/// # Errors
///
/// Those of read(2), `WouldBlock` among them.
///
/// # Panics
///
/// When `at` lies beyond the initialised bytes.
pub fn read_inline<B: IoBufMut>(fd: BorrowedFd<'_>, buf: &mut B, at: usize) -> io::Result<usize> {
    read_with(buf, at, |memory| pipes::read(fd, memory))
}

/// The inline rung of a read of a file: behind the first `at` bytes of the buffer, from an offset. With `no_wait` only what
/// is in memory.
///
/// # Errors
///
/// Those of preadv2(2), `WouldBlock` among them.
///
/// # Panics
///
/// When `at` lies beyond the initialised bytes.
#[inline]
pub fn read_at_inline<B: IoBufMut>(
    fd: BorrowedFd<'_>,
    buf: &mut B,
    at: usize,
    offset: u64,
    no_wait: bool,
) -> io::Result<usize> {
    read_with(buf, at, |memory| files::read_at(fd, memory, offset, no_wait))
}

#[inline]
fn read_with<B: IoBufMut>(
    buf: &mut B,
    at: usize,
    call: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
) -> io::Result<usize> {
    assert!(at <= buf.init_len(), "a read can only go on behind initialised bytes");
    let room = buf.capacity() - at;
    let start = buf.stable_mut_ptr().wrapping_add(at).cast::<MaybeUninit<u8>>();
    // SAFETY: the contract of `IoBufMut`: so much memory, which nothing else reaches while the buffer is borrowed; no
    // operation has it (I8).
    let memory = unsafe { std::slice::from_raw_parts_mut(start, room) };
    let n = call(memory)?.min(room);
    // SAFETY: the kernel wrote `n` bytes behind `at`, and the sum is at most the capacity.
    unsafe { buf.set_len(at + n) };
    Ok(n)
}

/// Waits until the descriptor may be ready, because an operation said that it would block.
///
/// The result is the events that were seen. Who issues the operation again anyway need not look at it: an error of the
/// poll shows itself there.
///
/// # Cancel safety
///
/// The poll takes nothing from the descriptor; `origin` is dropped when the kernel has let go of it.
#[cold]
pub async fn ready<F: Origin>(origin: F, events: i16) -> (io::Result<u32>, F) {
    coop::count(Kind::PollAdd, Rung::Reissue);
    submit(PollAdd::new(origin, events)).await
}

/// Waits until a socket or pipe has room; an error shows itself in what is tried next. See [`Arm`].
///
/// # Cancel safety
///
/// Takes nothing from the descriptor; `origin` is dropped.
///
/// # Panics
///
/// Outside a runtime.
pub async fn room<F: Origin>(origin: F) -> F {
    wait(Arm::room(origin)).await
}

/// Waits until a socket or pipe has data, or has ended; an error shows itself in what is tried next. See [`Arm`].
///
/// # Cancel safety
///
/// Takes nothing from the descriptor; `origin` is dropped.
///
/// # Panics
///
/// Outside a runtime.
pub async fn readable<F: Origin>(origin: F) -> F {
    wait(Arm::data(origin)).await
}

#[cold]
async fn wait<F: Origin>(mut poll: PollAdd<Arm<F>>) -> F {
    coop::count(Kind::PollAdd, Rung::Reissue);
    loop {
        let (events, arm) = submit(poll).await;
        poll = match arm.after(&events) {
            Ok(origin) => return origin,
            Err(next) => next,
        };
    }
}

/// What waits for room or data. The ring's polls always tell that the peer has ended its own direction, which says nothing
/// of room, and of what lies in an error queue, such as time stamps, for as long as nobody fetches it. So would the kernel's
/// own poll of a send, which would then be tried again and again, and in the end by a worker that blocks. Sockets that do
/// this are waited for by way of an epoll instance, which tells of changes alone.
#[derive(Debug)]
pub struct Arm<F> {
    origin: F,
    events: i16,
    epoll: Option<OwnedFd>,
}

impl<F: Origin> Arm<F> {
    /// The first poll for room.
    pub fn room(origin: F) -> PollAdd<Self> {
        Self::poll(origin, POLLOUT)
    }

    /// The first poll for data, or the end of it.
    pub fn data(origin: F) -> PollAdd<Self> {
        Self::poll(origin, POLLIN)
    }

    fn poll(origin: F, events: i16) -> PollAdd<Self> {
        PollAdd::new(Self { origin, events, epoll: None }, events)
    }

    /// After a poll: what was waited for, or another one.
    pub fn after(self, seen: &io::Result<u32>) -> Result<F, PollAdd<Self>> {
        const ERROR: u32 = libc::POLLERR as u32;
        let told = (self.events | libc::POLLHUP | libc::POLLNVAL) as u32;
        let fd = self.origin.raw_fd();
        // The error of anything else is one of the operation, and lasts.
        let is_clear = |seen: u32| seen & told == 0 && (seen & ERROR == 0 || sys::is_tcp(fd));
        if self.epoll.is_some() || !seen.as_ref().is_ok_and(|&seen| is_clear(seen)) {
            return Ok(self.origin);
        }
        // Without a descriptor for it the operation is tried too early.
        match sys::watch(fd, self.events) {
            Ok(Some(epoll)) => Err(PollAdd::new(Self { epoll: Some(epoll), ..self }, POLLIN)),
            Ok(None) | Err(_) => Ok(self.origin),
        }
    }
}

// SAFETY: both are owned.
unsafe impl<F: Origin> Origin for Arm<F> {
    fn raw_fd(&self) -> RawFd {
        self.epoll.as_ref().map_or_else(|| self.origin.raw_fd(), AsRawFd::as_raw_fd)
    }
}

/// Runs a job on the blocking pool, and counts it.
///
/// # Errors
///
/// Those of the job; `ECANCELED` when no thread can be started or the runtime is closing.
///
/// # Cancel safety
///
/// A job that was started is finished; its output is dropped.
pub async fn offload<T, F>(kind: Kind, job: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    coop::count(kind, Rung::Offload);
    match spawn_blocking(job).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // What an operation of the ring would say.
            Err(_cancelled) => Cqe::CANCELED.result().and(Err(io::ErrorKind::Other.into())),
        },
    }
}
