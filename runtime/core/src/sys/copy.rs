//! Copying between files without the bytes passing through the process, for the blocking pool.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// Has `to` share all data of `from` (`FICLONE`): nothing is copied until one of them is changed. Fails where the file
/// system cannot, and between two of them.
pub fn share(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an ioctl whose argument is a descriptor; both are open while borrowed.
    check(unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) } as isize).map(drop)
}

/// copy_file_range(2) of up to `len` bytes that are at the same offset in both; returns the count, 0 at the end.
pub fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
    let (mut input, mut output) = (offset as i64, offset as i64);
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: two offsets to read and write; both descriptors are open while borrowed.
    check(unsafe { libc::copy_file_range(from, &raw mut input, to, &raw mut output, len, 0) })
}

/// The next run of bytes at or behind `offset` that are not a hole, as its start and end; `None` when there is none.
/// Moves the position of the open file. Where the file system does not know, everything up to the end is one run.
pub fn next_data(fd: BorrowedFd<'_>, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |offset: u64, whence| {
        // SAFETY: no pointers; the descriptor is open while borrowed.
        check(unsafe { libc::lseek(fd.as_raw_fd(), offset as i64, whence) } as isize).map(|at| at as u64)
    };
    let start = match seek(offset, libc::SEEK_DATA) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
        start => start?,
    };
    Ok(Some((start, seek(start, libc::SEEK_HOLE)?)))
}
