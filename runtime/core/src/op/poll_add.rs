//! `IORING_OP_POLL_ADD`: waiting until a descriptor is ready. The arm rung of the ladder.

use io_uring::{opcode, squeue, types};
use std::io;

use super::{Cqe, Kind, Op};
use crate::fd::Origin;

/// There is something to read.
pub const POLLIN: i16 = libc::POLLIN;
/// There is room for writing.
pub const POLLOUT: i16 = libc::POLLOUT;

/// Waits once for any of some events ([`POLLIN`], [`POLLOUT`], …).
#[derive(Debug)]
pub struct PollAdd<F> {
    origin: F,
    events: i16,
}

impl<F: Origin> PollAdd<F> {
    /// Errors and hang-ups are always reported.
    pub fn new(origin: F, events: i16) -> Self {
        Self { origin, events }
    }
}

// SAFETY: no pointers; one completion (not multishot).
unsafe impl<F: Origin> Op for PollAdd<F> {
    type Output = (io::Result<u32>, F);
    const KIND: Kind = Kind::PollAdd;

    fn entry(&mut self) -> squeue::Entry {
        opcode::PollAdd::new(types::Fd(self.origin.raw_fd()), self.events as u16 as u32).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result(), self.origin)
    }
}
