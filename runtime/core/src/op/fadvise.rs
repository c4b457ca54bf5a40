//! `IORING_OP_FADVISE`: telling the kernel how a file will be read.

use io_uring::{opcode, squeue, types};
use std::io;

use super::{Cqe, Kind, Op};
use crate::fd::Origin;

/// How a range of a file will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum Advice {
    /// Nothing is known.
    Normal = libc::POSIX_FADV_NORMAL,
    /// In any order: no reading ahead.
    Random = libc::POSIX_FADV_RANDOM,
    /// From the start to the end: read ahead further.
    Sequential = libc::POSIX_FADV_SEQUENTIAL,
    /// Soon: start reading it now.
    WillNeed = libc::POSIX_FADV_WILLNEED,
    /// Not again: its pages may go.
    DontNeed = libc::POSIX_FADV_DONTNEED,
}

/// Advice on a range of a file.
#[derive(Debug)]
pub struct Fadvise<F> {
    origin: F,
    advice: Advice,
    offset: u64,
    len: u32,
}

impl<F: Origin> Fadvise<F> {
    /// As posix_fadvise(2); a `len` of 0 means up to the end.
    pub fn new(origin: F, advice: Advice, offset: u64, len: u32) -> Self {
        Self { origin, advice, offset, len }
    }
}

// SAFETY: no pointers; one completion.
unsafe impl<F: Origin> Op for Fadvise<F> {
    type Output = (io::Result<()>, F);
    const KIND: Kind = Kind::Advise;

    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.origin.raw_fd());
        opcode::Fadvise::new(fd, self.len.into(), self.advice as i32).offset(self.offset).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(drop), self.origin)
    }
}
