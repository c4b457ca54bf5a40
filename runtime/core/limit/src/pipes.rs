//! Pipes in blocking mode, and splice(2) and tee(2) as they are.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// What a pipe of the tests holds: as much as anybody may ask for.
pub const CAPACITY: usize = 1 << 20;

/// A pipe of [`CAPACITY`]: its reading and its writing end.
///
/// # Errors
/// There are no descriptors left, or the user has too many pages in pipes.
pub fn pipe() -> io::Result<(File, File)> {
    let mut fds = [0; 2];
    // SAFETY: there is room for two descriptors.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } as isize)?;
    // SAFETY: new, and nobody else's.
    let rx = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: new, and nobody else's.
    let tx = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    enlarge(&tx)?;
    Ok((rx.into(), tx.into()))
}

/// Gives a pipe [`CAPACITY`].
///
/// # Errors
/// The user has too many pages in pipes.
pub fn enlarge(pipe: &impl AsFd) -> io::Result<()> {
    let fd = pipe.as_fd().as_raw_fd();
    // SAFETY: takes integers only.
    check(unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, CAPACITY as libc::c_int) } as isize).map(drop)
}

/// splice(2); `waits` without SPLICE_F_NONBLOCK.
///
/// # Errors
/// Those of the system call.
#[inline]
pub fn splice(from: &impl AsFd, to: &impl AsFd, len: usize, waits: bool) -> io::Result<usize> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    // SAFETY: there are no offsets to read or write.
    check(unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), len, flags(waits)) })
}

/// tee(2), likewise.
///
/// # Errors
/// Those of the system call.
#[inline]
pub fn tee(from: &impl AsFd, to: &impl AsFd, len: usize, waits: bool) -> io::Result<usize> {
    // SAFETY: takes integers only.
    check(unsafe { libc::tee(from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd(), len, flags(waits)) })
}

fn flags(waits: bool) -> libc::c_uint {
    if waits { 0 } else { libc::SPLICE_F_NONBLOCK }
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
