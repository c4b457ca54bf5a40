//! `IORING_OP_WRITE` and `IORING_OP_WRITEV`: writing to a file or a pipe.
//!
//! A write to a pipe without readers raises SIGPIPE on the submitting thread; the runtime keeps it blocked there.

use io_uring::{opcode, squeue, types};
use std::io;

use super::read::MAX_BYTES;
use super::send::keep_failure;
use super::vectored::Message;
use super::{Cqe, Kind, Op, Rung, placed, rung};
use crate::buf::{self, IoBuf};
use crate::fd::Origin;

/// Writes the bytes of one buffer behind `skip`.
#[derive(Debug)]
pub struct Write<B, F> {
    buf: B,
    origin: F,
    skip: usize,
    offset: u64,
    index: Option<u16>,
    on_worker: bool,
}

impl<B: IoBuf, F: Origin> Write<B, F> {
    /// Writes at `offset`, which is [`NO_OFFSET`](super::read::NO_OFFSET) for pipes.
    pub fn new(origin: F, buf: B, skip: usize, offset: u64) -> Self {
        Self { buf, origin, skip, offset, index: None, on_worker: false }
    }

    /// The buffer lies in the memory that is registered under this index: `IORING_OP_WRITE_FIXED` (5.1).
    pub fn registered(mut self, index: Option<u16>) -> Self {
        self.index = index;
        self
    }

    /// It may block although a poll says that there is room, so the kernel is to carry it out on a worker
    /// (`IOSQE_ASYNC`).
    pub fn on_worker(mut self, on_worker: bool) -> Self {
        self.on_worker = on_worker;
        self
    }
}

// SAFETY: the buffer's memory is stable while it sits in the slot (the contract of `IoBuf`); one completion.
unsafe impl<B: IoBuf, F: Origin> Op for Write<B, F> {
    type Output = (io::Result<usize>, B, F);
    const KIND: Kind = Kind::Write;

    fn entry(&mut self) -> squeue::Entry {
        let bytes = &buf::bytes(&self.buf)[self.skip..];
        let len = bytes.len().min(MAX_BYTES) as u32;
        let fd = types::Fd(self.origin.raw_fd());
        let start = bytes.as_ptr();
        let entry = match self.index {
            // Of no bytes at all it would be a bad address.
            Some(index) if len > 0 => opcode::WriteFixed::new(fd, start, len, index).offset(self.offset).build(),
            _ => opcode::Write::new(fd, start, len).offset(self.offset).build(),
        };
        entry.flags(placed(self.on_worker))
    }

    fn rung(&self) -> Rung {
        rung(self.on_worker)
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(|n| n as usize), self.buf, self.origin)
    }

    fn orphan(self, cqe: Cqe) {
        let (result, _buf, mut origin) = self.complete(cqe);
        keep_failure(&mut origin, result);
    }
}

/// Writes the bytes of several buffers, in order, behind the first `skip`.
#[derive(Debug)]
pub struct WriteVectored<B, F> {
    origin: F,
    skip: usize,
    offset: u64,
    on_worker: bool,
    message: Box<Message<B>>,
}

impl<B: IoBuf, F: Origin> WriteVectored<B, F> {
    /// At most 1024 buffers (`IOV_MAX`) are used.
    pub fn new(origin: F, bufs: Vec<B>, skip: usize, offset: u64) -> Self {
        Self { origin, skip, offset, on_worker: false, message: Message::new(bufs) }
    }

    /// As [`Write::on_worker`].
    pub fn on_worker(mut self, on_worker: bool) -> Self {
        self.on_worker = on_worker;
        self
    }
}

// SAFETY: vector and buffers' memory live in the boxed message, which is stable; one completion.
unsafe impl<B: IoBuf, F: Origin> Op for WriteVectored<B, F> {
    type Output = (io::Result<usize>, Vec<B>, F);
    const KIND: Kind = Kind::Write;

    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.origin.raw_fd());
        let (vector, len) = self.message.vector_for_writing(self.skip);
        opcode::Writev::new(fd, vector, len).offset(self.offset).build().flags(placed(self.on_worker))
    }

    fn rung(&self) -> Rung {
        rung(self.on_worker)
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(|n| n as usize), self.message.into_bufs(), self.origin)
    }

    fn orphan(self, cqe: Cqe) {
        let (result, _bufs, mut origin) = self.complete(cqe);
        keep_failure(&mut origin, result);
    }
}
