//! Direct I/O: what has to be aligned, and an error that says so.

use std::io;
use std::sync::Arc;

use runtime_core::op::statx::{STATX_DIOALIGN, Statx};
use runtime_core::submit::submit;

use super::File;

/// What direct I/O on a file asks for, in bytes; see [`File::direct_align`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectAlign {
    /// What addresses of buffers have to be multiples of.
    pub memory: u32,
    /// What offsets and lengths have to be multiples of.
    pub offset: u32,
}

impl DirectAlign {
    /// Of several buffers, by their addresses and lengths.
    pub(super) fn check_all(self, bufs: impl Iterator<Item = (*const u8, usize)>, offset: u64) -> io::Result<()> {
        let mut bufs = bufs;
        bufs.try_for_each(|(start, len)| self.check(start, 0, len, offset))
    }

    /// Of the bytes `from..to` of memory that starts at `start`.
    pub(super) fn check(self, start: *const u8, from: usize, to: usize, offset: u64) -> io::Result<()> {
        let (address, len) = (start.addr() + from, to - from);
        let Self { memory, offset: blocks } = self;
        let faults = [
            (address as u64 % u64::from(memory), "the buffer's address", memory),
            (len as u64 % u64::from(blocks), "the length", blocks),
            (offset % u64::from(blocks), "the offset", blocks),
        ];
        match faults.iter().find(|(rest, ..)| *rest != 0) {
            None => Ok(()),
            Some((_, what, align)) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("direct I/O: {what} must be a multiple of {align}"),
            )),
        }
    }
}

impl File {
    /// What direct I/O on this file asks for, or `None` where it is not offered or the file system does not tell
    /// (`STATX_DIOALIGN`, 6.1). A file that was opened with [`direct`](crate::OpenOptions::direct) checks each transfer
    /// against it and fails with `InvalidInput` before the kernel does with `EINVAL`.
    ///
    /// # Errors
    ///
    /// Those of statx(2).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(alias = "IORING_OP_STATX")]
    pub async fn direct_align(&self) -> io::Result<Option<DirectAlign>> {
        let status = submit(Statx::of_file(Arc::clone(&self.open), STATX_DIOALIGN)).await?;
        let (memory, offset) = (status.stx_dio_mem_align, status.stx_dio_offset_align);
        let known = status.stx_mask & STATX_DIOALIGN != 0 && memory > 0 && offset > 0;
        Ok(known.then_some(DirectAlign { memory, offset }))
    }
}
