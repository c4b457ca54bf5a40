//! `IORING_OP_STATX`: what is known about a file.

use io_uring::{opcode, squeue, types};
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;

use super::{Cqe, Kind, Op};
use crate::fd::{At, Origin};

/// What statx(2) fills in.
pub use libc::statx as Status;
pub use libc::{STATX_BASIC_STATS, STATX_BTIME, STATX_DIOALIGN, STATX_MNT_ID, STATX_SIZE, STATX_TYPE};

/// The opcode's number.
pub const CODE: u8 = opcode::Statx::CODE;

/// Asks about a path, or about an open file.
#[derive(Debug)]
pub struct Statx<F> {
    of: Of<F>,
    mask: u32,
    status: Box<MaybeUninit<Status>>,
}

#[derive(Debug)]
enum Of<F> {
    File(F),
    Path(At, CString, i32),
}

const EMPTY: &CStr = c"";

impl<F: Origin> Statx<F> {
    /// About an open file.
    pub fn of_file(origin: F, mask: u32) -> Self {
        Self { of: Of::File(origin), mask, status: Box::new(MaybeUninit::zeroed()) }
    }

    /// About a path; of a symbolic link itself unless `follow`.
    pub fn of_path(at: At, path: CString, follow: bool, mask: u32) -> Self {
        let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        Self { of: Of::Path(at, path, flags), mask, status: Box::new(MaybeUninit::zeroed()) }
    }
}

// SAFETY: path and status are heap memory that this operation owns, only the kernel reaches the latter in flight; one
// completion.
unsafe impl<F: Origin> Op for Statx<F> {
    type Output = io::Result<Status>;
    const KIND: Kind = Kind::Stat;

    fn entry(&mut self) -> squeue::Entry {
        let status = self.status.as_mut_ptr().cast();
        let (dir, path, flags) = match &self.of {
            Of::File(origin) => (origin.raw_fd(), EMPTY.as_ptr(), libc::AT_EMPTY_PATH),
            Of::Path(at, path, flags) => (at.raw_fd(), path.as_ptr(), *flags),
        };
        opcode::Statx::new(types::Fd(dir), path, status).flags(flags).mask(self.mask).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        cqe.result()?;
        // SAFETY: plain integers, zeroed when they were made; the kernel is done with them.
        Ok(*unsafe { self.status.assume_init() })
    }
}
