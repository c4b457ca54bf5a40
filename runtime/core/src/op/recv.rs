//! `IORING_OP_RECV` and `IORING_OP_RECVMSG`: receiving from a socket.

use io_uring::{opcode, squeue, types};
use std::io;

use super::read::MAX_BYTES;
use super::{Cqe, Kind, Op};
use crate::buf::{self, IoBufMut};
use crate::fd::Origin;

/// Receives into one buffer, behind the `at` bytes that it holds already.
#[derive(Debug)]
pub struct Recv<B, F> {
    buf: B,
    origin: F,
    at: usize,
    flags: i32,
}

impl<B: IoBufMut, F: Origin> Recv<B, F> {
    /// `flags` are those of recv(2). The first `at` bytes belong to the same read: an orphan gives them back too.
    ///
    /// # Panics
    ///
    /// When `at` lies beyond the initialised bytes.
    pub fn new(origin: F, buf: B, at: usize, flags: i32) -> Self {
        assert!(at <= buf.init_len(), "a read can only go on behind initialised bytes");
        Self { buf, origin, at, flags }
    }
}

// SAFETY: the buffer's memory is stable while it sits in the slot (the contract of `IoBufMut`); one completion.
unsafe impl<B: IoBufMut, F: Origin> Op for Recv<B, F> {
    type Output = (io::Result<usize>, B, F);
    const KIND: Kind = Kind::Recv;

    fn entry(&mut self) -> squeue::Entry {
        let len = (self.buf.capacity() - self.at).min(MAX_BYTES) as u32;
        let start = self.buf.stable_mut_ptr().wrapping_add(self.at);
        opcode::Recv::new(types::Fd(self.origin.raw_fd()), start, len).flags(self.flags).build()
    }

    fn complete(mut self, cqe: Cqe) -> Self::Output {
        // SAFETY: this completion's own count, behind bytes that `new` saw initialised.
        let result = unsafe { received(&mut self.buf, self.at, cqe) };
        (result, self.buf, self.origin)
    }

    fn orphan(self, cqe: Cqe) {
        let (peek, at) = (self.flags & libc::MSG_PEEK != 0, self.at);
        let (result, buf, mut origin) = self.complete(cqe);
        keep(&mut origin, result, at, buf::bytes(&buf), peek);
    }
}

/// The count of a finished read, which together with the `at` bytes before is made the buffer's length.
///
/// # Safety
///
/// `cqe` is the completion of a read into `buf` behind its first `at` bytes, which are initialised.
pub(super) unsafe fn received<B: IoBufMut>(buf: &mut B, at: usize, cqe: Cqe) -> io::Result<usize> {
    // With MSG_TRUNC the kernel may report more than it stored.
    let n = (cqe.result()? as usize).min(buf.capacity() - at);
    // SAFETY: the kernel wrote `n` bytes behind `at`, and the sum is at most the capacity.
    unsafe { buf.set_len(at + n) };
    Ok(n)
}

/// Hands the end of an orphaned read to where it came from: the `at` bytes it had and what it received then, and its
/// error, which the kernel tells only once; of a peek the error alone.
pub(super) fn keep<F: Origin>(origin: &mut F, result: io::Result<usize>, at: usize, data: &[u8], peek: bool) {
    if !peek {
        let n = *result.as_ref().unwrap_or(&0);
        origin.keep_data(&data[..(at + n).min(data.len())]);
    }
    match result {
        // No receive is issued without room, so it is not for want of that.
        Ok(0) if !peek => origin.keep_end(),
        Ok(_) => {}
        Err(error) => origin.keep_error(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// As [`keep`], of a read into several buffers.
pub(super) fn keep_scattered<B: IoBufMut, F: Origin>(origin: &mut F, result: io::Result<usize>, bufs: &[B]) {
    match result {
        Ok(0) => origin.keep_end(),
        Ok(mut n) => {
            for buf in bufs {
                let data = buf::bytes(buf);
                let part = n.min(data.len());
                origin.keep_data(&data[..part]);
                n -= part;
            }
        }
        Err(error) => keep(origin, Err(error), 0, &[], false),
    }
}

/// Receives into several buffers, in order.
#[derive(Debug)]
pub struct RecvVectored<B, F> {
    origin: F,
    /// Boxed because it is larger than a slot, and only built where there is more than one buffer.
    message: Box<super::vectored::Message<B>>,
}

impl<B: IoBufMut, F: Origin> RecvVectored<B, F> {
    /// At most the first 1024 buffers (`IOV_MAX`) are used.
    pub fn new(origin: F, bufs: Vec<B>) -> Self {
        Self { origin, message: super::vectored::Message::new(bufs) }
    }
}

// SAFETY: header, vector and buffers' memory live in the boxed message, which is stable; one completion.
unsafe impl<B: IoBufMut, F: Origin> Op for RecvVectored<B, F> {
    type Output = (io::Result<usize>, Vec<B>, F);
    const KIND: Kind = Kind::Recv;

    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.origin.raw_fd());
        opcode::RecvMsg::new(fd, self.message.header_for_reading()).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        let mut bufs = self.message.into_bufs();
        let result = cqe.result().map(|n| {
            // SAFETY: this completion's own count.
            unsafe { super::vectored::scatter(&mut bufs, n as usize) }
        });
        (result, bufs, self.origin)
    }

    fn orphan(self, cqe: Cqe) {
        let (result, bufs, mut origin) = self.complete(cqe);
        keep_scattered(&mut origin, result, &bufs);
    }
}
