//! `IORING_OP_WRITE` and `IORING_OP_SEND` of bytes that were taken from another descriptor: the copying rung of a splice.
//!
//! It holds both descriptors, so that an orphan gives what was not written back to where it came from.

use io_uring::{opcode, squeue, types};
use std::io;

use super::read::{MAX_BYTES, NO_OFFSET};
use super::send::{FLAGS, keep_failure};
use super::{Cqe, Kind, Op, Rung, placed, rung};
use crate::fd::Origin;

/// Writes the bytes behind `skip`.
#[derive(Debug)]
pub struct Pass<F, T> {
    data: Vec<u8>,
    skip: usize,
    from: F,
    to: T,
    to_socket: bool,
    on_worker: bool,
}

impl<F: Origin, T: Origin> Pass<F, T> {
    /// The bytes were taken from `from`. A socket is sent to, without SIGPIPE.
    pub fn new(from: F, to: T, data: Vec<u8>, skip: usize, to_socket: bool) -> Self {
        Self { data, skip, from, to, to_socket, on_worker: false }
    }

    /// As [`Write::on_worker`](super::write::Write::on_worker); not for sockets.
    pub fn on_worker(mut self, on_worker: bool) -> Self {
        self.on_worker = on_worker;
        self
    }
}

// SAFETY: the bytes are heap memory that this operation owns; one completion.
unsafe impl<F: Origin, T: Origin> Op for Pass<F, T> {
    type Output = (io::Result<usize>, Vec<u8>, F, T);
    const KIND: Kind = Kind::Write;

    fn entry(&mut self) -> squeue::Entry {
        let bytes = &self.data[self.skip..];
        let (start, len) = (bytes.as_ptr(), bytes.len().min(MAX_BYTES) as u32);
        let fd = types::Fd(self.to.raw_fd());
        if self.to_socket {
            opcode::Send::new(fd, start, len).flags(FLAGS).build()
        } else {
            opcode::Write::new(fd, start, len).offset(NO_OFFSET).build().flags(placed(self.on_worker))
        }
    }

    fn rung(&self) -> Rung {
        rung(self.on_worker && !self.to_socket)
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(|n| n as usize), self.data, self.from, self.to)
    }

    fn orphan(self, cqe: Cqe) {
        let skip = self.skip;
        let (result, data, mut from, mut to) = self.complete(cqe);
        let written = skip + *result.as_ref().unwrap_or(&0);
        from.give_back(&data[written.min(data.len())..]);
        keep_failure(&mut to, result);
    }
}
