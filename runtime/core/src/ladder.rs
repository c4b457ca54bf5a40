//! The rungs of the ladder that several kinds of I/O climb in the same way.
//!
//! Owns the arm rung, a poll of the descriptor, after which the operation is issued again, the inline rungs of reads,
//! and the last one, the blocking pool. Knows nothing of what is issued.

pub mod mounts;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use crate::buf::IoBufMut;
use crate::coop;
use crate::fd::Origin;
use crate::op::poll_add::PollAdd;
use crate::op::{Cqe, Kind, Rung};
use crate::submit::submit;
use crate::sys::{files, pipes};
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
