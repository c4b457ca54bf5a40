//! `IORING_OP_CONNECT`: connecting a socket. Completes when connected or refused, never with `EINPROGRESS`.

use io_uring::{opcode, squeue, types};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{Cqe, Kind, Op};
use crate::sys::RawAddr;

/// Connects a socket that it owns; an orphan closes it.
#[derive(Debug)]
pub struct Connect {
    fd: OwnedFd,
    addr: RawAddr,
    len: u32,
}

impl Connect {
    /// `fd` is a socket of the address's family.
    pub fn new(fd: OwnedFd, addr: SocketAddr) -> Self {
        let (addr, len) = RawAddr::new(addr);
        Self { fd, addr, len }
    }
}

// SAFETY: the address lies in the slot; one completion.
unsafe impl Op for Connect {
    type Output = (io::Result<()>, OwnedFd);
    const KIND: Kind = Kind::Connect;

    fn entry(&mut self) -> squeue::Entry {
        opcode::Connect::new(types::Fd(self.fd.as_raw_fd()), self.addr.as_ptr(), self.len).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(drop), self.fd)
    }
}
