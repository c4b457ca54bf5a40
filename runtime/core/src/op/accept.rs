//! `IORING_OP_ACCEPT` with `IORING_ACCEPT_MULTISHOT` (5.19): one submission, many connections.
//!
//! The idea is Hao Xu's, "fast poll multishot mode" (RFC, io-uring mailing list, September 2021).

use io_uring::{opcode, squeue, types};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::{Cqe, Kind, Multi};
use crate::fd::Origin;

/// Where accepted connections go.
pub trait AcceptSink: 'static {
    /// Takes one result. `more` says whether the request goes on; a last result is as valid as any other.
    fn accepted(&mut self, result: io::Result<OwnedFd>, more: bool);
}

/// Accepts until cancelled, or until the kernel ends it.
#[derive(Debug)]
pub struct AcceptMulti<F, S> {
    origin: F,
    sink: S,
}

impl<F: Origin, S: AcceptSink> AcceptMulti<F, S> {
    /// Accepted sockets are close-on-exec and O_NONBLOCK.
    pub fn new(origin: F, sink: S) -> Self {
        Self { origin, sink }
    }
}

// SAFETY: the entry holds no pointers (no address is asked for); all completions but the last carry F_MORE.
unsafe impl<F: Origin, S: AcceptSink> Multi for AcceptMulti<F, S> {
    const KIND: Kind = Kind::Accept;

    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.origin.raw_fd());
        opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK).build()
    }

    fn item(&mut self, cqe: Cqe) {
        let result = cqe.result().map(|fd| {
            // SAFETY: the kernel just made this descriptor for us (I5).
            unsafe { OwnedFd::from_raw_fd(fd as i32) }
        });
        self.sink.accepted(result, cqe.more());
    }
}
