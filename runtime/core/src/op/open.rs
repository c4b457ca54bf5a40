//! `IORING_OP_OPENAT` and `IORING_OP_OPENAT2`: opening a file by path.

use io_uring::{opcode, squeue, types};
use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::{Cqe, Kind, Op};
use crate::fd::At;

pub use libc::{
    O_ACCMODE, O_APPEND, O_CREAT, O_DIRECT, O_DIRECTORY, O_DSYNC, O_EXCL, O_NOFOLLOW, O_PATH, O_RDONLY, O_RDWR,
    O_TMPFILE, O_TRUNC, O_WRONLY, RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};

/// Opens a path; an orphan closes what was opened.
#[derive(Debug)]
pub struct Open {
    at: At,
    path: CString,
    flags: i32,
    mode: libc::mode_t,
    /// Of openat2(2), if it is to say how the path is walked.
    how: Option<types::OpenHow>,
}

impl Open {
    /// `flags` and `mode` are those of open(2); the descriptor is close-on-exec in any case.
    pub fn new(at: At, path: CString, flags: i32, mode: libc::mode_t) -> Self {
        Self { at, path, flags: flags | libc::O_CLOEXEC, mode, how: None }
    }

    /// Walks the path as these `RESOLVE_` flags say, which makes it openat2(2): that refuses flags that it does not
    /// know. None of them make it openat(2) again.
    pub fn resolve(mut self, resolve: u64) -> Self {
        // A mode without anything to create is an error there.
        let mode = if self.flags & (O_CREAT | O_TMPFILE) == 0 { 0 } else { self.mode };
        let how = types::OpenHow::new().flags(self.flags as u64 & 0xffff_ffff).mode(mode.into()).resolve(resolve);
        self.how = (resolve != 0).then_some(how);
        self
    }
}

// SAFETY: the path is heap memory that this operation owns, and `how` lies in it; one completion.
unsafe impl Op for Open {
    type Output = io::Result<OwnedFd>;
    const KIND: Kind = Kind::Open;

    fn entry(&mut self) -> squeue::Entry {
        let (at, path) = (types::Fd(self.at.raw_fd()), self.path.as_ptr());
        match &self.how {
            Some(how) => opcode::OpenAt2::new(at, path, how).build(),
            None => opcode::OpenAt::new(at, path).flags(self.flags).mode(self.mode).build(),
        }
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        // SAFETY: the kernel just made this descriptor for us (I5).
        cqe.result().map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

/// The opcodes' numbers.
pub const CODE: u8 = opcode::OpenAt::CODE;
/// Of openat2(2).
pub const CODE_2: u8 = opcode::OpenAt2::CODE;
