//! `IORING_OP_SEND` and `IORING_OP_SENDMSG`: sending on a socket. Neither raises SIGPIPE.

use io_uring::{opcode, squeue, types};
use std::io;

use super::read::MAX_BYTES;
use super::vectored::Message;
use super::{Cqe, Kind, Op};
use crate::buf::{self, IoBuf};
use crate::fd::Origin;

/// The kernel is not to wait for room by itself: its polls also tell that the peer has ended its own direction, which says
/// nothing of room, and after a few of them it would leave the rest to a worker, one for each such peer.
pub(super) const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// Sends the bytes of one buffer behind `skip`.
#[derive(Debug)]
pub struct Send<B, F> {
    buf: B,
    origin: F,
    skip: usize,
}

impl<B: IoBuf, F: Origin> Send<B, F> {
    /// Sends what there is room for, without waiting.
    pub fn new(origin: F, buf: B, skip: usize) -> Self {
        Self { buf, origin, skip }
    }
}

// SAFETY: the buffer's memory is stable while it sits in the slot (the contract of `IoBuf`); one completion.
unsafe impl<B: IoBuf, F: Origin> Op for Send<B, F> {
    type Output = (io::Result<usize>, B, F);
    const KIND: Kind = Kind::Send;

    fn entry(&mut self) -> squeue::Entry {
        let bytes = &buf::bytes(&self.buf)[self.skip..];
        let len = bytes.len().min(MAX_BYTES) as u32;
        opcode::Send::new(types::Fd(self.origin.raw_fd()), bytes.as_ptr(), len).flags(FLAGS).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(|n| n as usize), self.buf, self.origin)
    }

    fn orphan(self, cqe: Cqe) {
        let (result, _buf, mut origin) = self.complete(cqe);
        keep_failure(&mut origin, result);
    }
}

/// Hands the error of an orphaned write to where it came from.
pub(super) fn keep_failure<F: Origin>(origin: &mut F, result: io::Result<usize>) {
    if let Err(error) = result {
        origin.keep_error(error.raw_os_error().unwrap_or(libc::EIO));
    }
}

/// Sends the bytes of several buffers, in order, behind the first `skip`.
#[derive(Debug)]
pub struct SendVectored<B, F> {
    origin: F,
    skip: usize,
    message: Box<Message<B>>,
}

impl<B: IoBuf, F: Origin> SendVectored<B, F> {
    /// At most 1024 buffers (`IOV_MAX`) are used.
    pub fn new(origin: F, bufs: Vec<B>, skip: usize) -> Self {
        Self { origin, skip, message: Message::new(bufs) }
    }
}

// SAFETY: header, vector and buffers' memory live in the boxed message, which is stable; one completion.
unsafe impl<B: IoBuf, F: Origin> Op for SendVectored<B, F> {
    type Output = (io::Result<usize>, Vec<B>, F);
    const KIND: Kind = Kind::Send;

    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.origin.raw_fd());
        let header = self.message.header_for_writing(self.skip);
        opcode::SendMsg::new(fd, header).flags(FLAGS as u32).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(|n| n as usize), self.message.into_bufs(), self.origin)
    }

    fn orphan(self, cqe: Cqe) {
        let (result, _bufs, mut origin) = self.complete(cqe);
        keep_failure(&mut origin, result);
    }
}
