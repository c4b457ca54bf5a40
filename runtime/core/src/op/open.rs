//! `IORING_OP_OPENAT`: opening a file by path.

use io_uring::{opcode, squeue, types};
use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::{Cqe, Kind, Op};

pub use libc::{O_ACCMODE, O_APPEND, O_CREAT, O_DIRECT, O_EXCL, O_PATH, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};

/// Opens a path relative to the working directory; an orphan closes what was opened.
#[derive(Debug)]
pub struct Open {
    path: CString,
    flags: i32,
    mode: libc::mode_t,
}

impl Open {
    /// `flags` and `mode` are those of open(2); the descriptor is close-on-exec in any case.
    pub fn new(path: CString, flags: i32, mode: libc::mode_t) -> Self {
        Self { path, flags: flags | libc::O_CLOEXEC, mode }
    }
}

// SAFETY: the path is heap memory that this operation owns; one completion.
unsafe impl Op for Open {
    type Output = io::Result<OwnedFd>;
    const KIND: Kind = Kind::Open;

    fn entry(&mut self) -> squeue::Entry {
        opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), self.path.as_ptr()).flags(self.flags).mode(self.mode).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        // SAFETY: the kernel just made this descriptor for us (I5).
        cqe.result().map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

/// The opcode's number.
pub const CODE: u8 = opcode::OpenAt::CODE;
