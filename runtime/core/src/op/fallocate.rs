//! `IORING_OP_FALLOCATE`: reserving room for a file, and punching holes into it.

use io_uring::{opcode, squeue, types};
use std::io;

use super::{Cqe, Kind, Op};
use crate::fd::Origin;

/// What to do with a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// Reserve room; the file grows if it is shorter.
    Reserve,
    /// Give the room back; the range reads as zeros, and the length stays.
    PunchHole,
}

/// Reserves or frees a range of a file.
#[derive(Debug)]
pub struct Fallocate<F> {
    origin: F,
    what: Range,
    offset: u64,
    len: u64,
}

impl<F: Origin> Fallocate<F> {
    /// As fallocate(2).
    pub fn new(origin: F, what: Range, offset: u64, len: u64) -> Self {
        Self { origin, what, offset, len }
    }
}

// SAFETY: no pointers; one completion.
unsafe impl<F: Origin> Op for Fallocate<F> {
    type Output = (io::Result<()>, F);
    const KIND: Kind = Kind::Allocate;

    fn entry(&mut self) -> squeue::Entry {
        let mode = match self.what {
            Range::Reserve => 0,
            Range::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        };
        let fd = types::Fd(self.origin.raw_fd());
        opcode::Fallocate::new(fd, self.len).offset(self.offset).mode(mode).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(drop), self.origin)
    }
}
