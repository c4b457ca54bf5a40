//! `IORING_OP_FSYNC`: writing a file's data, and what is known about it, to the medium.

use io_uring::{opcode, squeue, types};
use std::io;

use super::{Cqe, Kind, Op};
use crate::fd::Origin;

/// Syncs a file. The kernel does not order it against writes in flight: await those before.
#[derive(Debug)]
pub struct Fsync<F> {
    origin: F,
    data_only: bool,
}

/// The opcode's number.
pub const CODE: u8 = opcode::Fsync::CODE;

impl<F: Origin> Fsync<F> {
    /// As fsync(2), or fdatasync(2) with `data_only`.
    pub fn new(origin: F, data_only: bool) -> Self {
        Self { origin, data_only }
    }
}

// SAFETY: no pointers; one completion.
unsafe impl<F: Origin> Op for Fsync<F> {
    type Output = (io::Result<()>, F);
    const KIND: Kind = Kind::Sync;

    fn entry(&mut self) -> squeue::Entry {
        let flags = if self.data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
        opcode::Fsync::new(types::Fd(self.origin.raw_fd())).flags(flags).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(drop), self.origin)
    }

    fn orphan(self, cqe: Cqe) {
        let (result, mut origin) = self.complete(cqe);
        super::send::keep_failure(&mut origin, result.map(|()| 0));
    }
}
