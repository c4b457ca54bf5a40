//! `IORING_OP_NOP`: a trip through the ring and back.

use io_uring::{opcode, squeue};
use std::io;

use super::{Cqe, Kind, Op};

/// Does nothing.
#[derive(Debug)]
pub struct Nop;

// SAFETY: no pointers; one completion.
unsafe impl Op for Nop {
    type Output = io::Result<()>;
    const KIND: Kind = Kind::Nop;

    fn entry(&mut self) -> squeue::Entry {
        opcode::Nop::new().build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        cqe.result().map(drop)
    }
}
