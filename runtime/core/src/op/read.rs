//! `IORING_OP_READ` and `IORING_OP_READV`: reading from a file or a pipe.

use io_uring::{opcode, squeue, types};
use std::io;

use super::recv::{keep, keep_scattered, received};
use super::vectored::{Message, scatter};
use super::{Cqe, Kind, Op, Rung, placed, rung};
use crate::buf::{self, IoBufMut};
use crate::fd::Origin;

/// The offset that means "from where the kernel is", for what cannot be sought.
pub const NO_OFFSET: u64 = u64::MAX;
/// What one read or write of the kernel moves at most.
pub(super) const MAX_BYTES: usize = 0x7fff_f000;

/// Reads into one buffer, behind the `at` bytes that it holds already.
#[derive(Debug)]
pub struct Read<B, F> {
    buf: B,
    origin: F,
    at: usize,
    offset: u64,
    index: Option<u16>,
    on_worker: bool,
}

impl<B: IoBufMut, F: Origin> Read<B, F> {
    /// Reads at `offset`, which is [`NO_OFFSET`] for pipes. The first `at` bytes of the buffer belong to the same read:
    /// an orphan gives them back too.
    ///
    /// # Panics
    ///
    /// When `at` lies beyond the initialised bytes.
    pub fn new(origin: F, buf: B, at: usize, offset: u64) -> Self {
        assert!(at <= buf.init_len(), "a read can only go on behind initialised bytes");
        Self { buf, origin, at, offset, index: None, on_worker: false }
    }

    /// The buffer lies in the memory that is registered under this index: `IORING_OP_READ_FIXED` (5.1).
    pub fn registered(mut self, index: Option<u16>) -> Self {
        self.index = index;
        self
    }

    /// A worker of the kernel reads, without a try on this thread before (`IOSQE_ASYNC`).
    pub fn on_worker(mut self, on_worker: bool) -> Self {
        self.on_worker = on_worker;
        self
    }
}

// SAFETY: the buffer's memory is stable while it sits in the slot (the contract of `IoBufMut`); one completion.
unsafe impl<B: IoBufMut, F: Origin> Op for Read<B, F> {
    type Output = (io::Result<usize>, B, F);
    const KIND: Kind = Kind::Read;

    fn entry(&mut self) -> squeue::Entry {
        let len = (self.buf.capacity() - self.at).min(MAX_BYTES) as u32;
        let start = self.buf.stable_mut_ptr().wrapping_add(self.at);
        let fd = types::Fd(self.origin.raw_fd());
        let entry = match self.index {
            // Of no bytes at all it would be a bad address.
            Some(index) if len > 0 => opcode::ReadFixed::new(fd, start, len, index).offset(self.offset).build(),
            _ => opcode::Read::new(fd, start, len).offset(self.offset).build(),
        };
        entry.flags(placed(self.on_worker))
    }

    fn rung(&self) -> Rung {
        rung(self.on_worker)
    }

    fn complete(mut self, cqe: Cqe) -> Self::Output {
        // SAFETY: this completion's own count, behind bytes that `new` saw initialised.
        let result = unsafe { received(&mut self.buf, self.at, cqe) };
        (result, self.buf, self.origin)
    }

    fn orphan(self, cqe: Cqe) {
        let at = self.at;
        let (result, buf, mut origin) = self.complete(cqe);
        keep(&mut origin, result, at, buf::bytes(&buf), false);
    }
}

/// Reads into several buffers, in order.
#[derive(Debug)]
pub struct ReadVectored<B, F> {
    origin: F,
    offset: u64,
    message: Box<Message<B>>,
}

impl<B: IoBufMut, F: Origin> ReadVectored<B, F> {
    /// At most the first 1024 buffers (`IOV_MAX`) are used.
    pub fn new(origin: F, bufs: Vec<B>, offset: u64) -> Self {
        Self { origin, offset, message: Message::new(bufs) }
    }
}

// SAFETY: vector and buffers' memory live in the boxed message, which is stable; one completion.
unsafe impl<B: IoBufMut, F: Origin> Op for ReadVectored<B, F> {
    type Output = (io::Result<usize>, Vec<B>, F);
    const KIND: Kind = Kind::Read;

    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.origin.raw_fd());
        let (vector, len) = self.message.vector_for_reading();
        opcode::Readv::new(fd, vector, len).offset(self.offset).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        let mut bufs = self.message.into_bufs();
        let result = cqe.result().map(|n| {
            // SAFETY: this completion's own count.
            unsafe { scatter(&mut bufs, n as usize) }
        });
        (result, bufs, self.origin)
    }

    fn orphan(self, cqe: Cqe) {
        let (result, bufs, mut origin) = self.complete(cqe);
        keep_scattered(&mut origin, result, &bufs);
    }
}
