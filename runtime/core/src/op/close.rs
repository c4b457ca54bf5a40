//! `IORING_OP_CLOSE`: closing a descriptor and hearing how it went.

use io_uring::{opcode, squeue, types};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use super::{Cqe, Kind, Op};

/// Closes a descriptor. Once submitted it is closed whatever becomes of the future.
#[derive(Debug)]
pub struct Close {
    fd: Option<OwnedFd>,
}

impl Close {
    /// Takes the descriptor over.
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd: Some(fd) }
    }
}

// SAFETY: no pointers; one completion.
unsafe impl Op for Close {
    type Output = io::Result<()>;
    const KIND: Kind = Kind::Close;

    fn entry(&mut self) -> squeue::Entry {
        let fd = self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        opcode::Close::new(types::Fd(fd)).build()
    }

    fn complete(mut self, cqe: Cqe) -> Self::Output {
        // Closes are never cancelled. One that never reached the kernel left the descriptor open: dropping it closes it.
        // In any other case the number is free already, whatever the result says (a file system may say anything), and
        // may belong to somebody else.
        if !cqe.never_sent()
            && let Some(fd) = self.fd.take()
        {
            let _ = fd.into_raw_fd();
        }
        cqe.result().map(drop)
    }
}
