//! `IORING_OP_SYNC_FILE_RANGE`: starting and awaiting the write-back of a range.

use io_uring::{opcode, squeue, types};
use std::io;

use super::{Cqe, Kind, Op};
use crate::fd::Origin;

/// Writes the dirty pages of a range back and waits for that; says nothing of what is known about the file.
#[derive(Debug)]
pub struct SyncRange<F> {
    origin: F,
    offset: u64,
    len: u32,
}

impl<F: Origin> SyncRange<F> {
    /// A `len` of 0 means up to the end.
    pub fn new(origin: F, offset: u64, len: u32) -> Self {
        Self { origin, offset, len }
    }
}

// SAFETY: no pointers; one completion.
unsafe impl<F: Origin> Op for SyncRange<F> {
    type Output = (io::Result<()>, F);
    const KIND: Kind = Kind::Sync;

    fn entry(&mut self) -> squeue::Entry {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let fd = types::Fd(self.origin.raw_fd());
        opcode::SyncFileRange::new(fd, self.len).offset(self.offset).flags(flags).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(drop), self.origin)
    }

    fn orphan(self, cqe: Cqe) {
        let (result, mut origin) = self.complete(cqe);
        super::send::keep_failure(&mut origin, result.map(|()| 0));
    }
}
