//! `IORING_OP_FTRUNCATE` (6.9): changing the length of a file.

use io_uring::{opcode, squeue, types};
use std::io;

use super::{Cqe, Kind, Op};
use crate::fd::Origin;

/// Sets the length of a file.
#[derive(Debug)]
pub struct Ftruncate<F> {
    origin: F,
    len: u64,
}

/// The opcode's number.
pub const CODE: u8 = opcode::Ftruncate::CODE;

impl<F: Origin> Ftruncate<F> {
    /// As ftruncate(2).
    pub fn new(origin: F, len: u64) -> Self {
        Self { origin, len }
    }
}

// SAFETY: no pointers; one completion.
unsafe impl<F: Origin> Op for Ftruncate<F> {
    type Output = (io::Result<()>, F);
    const KIND: Kind = Kind::Truncate;

    fn entry(&mut self) -> squeue::Entry {
        opcode::Ftruncate::new(types::Fd(self.origin.raw_fd()), self.len).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(drop), self.origin)
    }
}
