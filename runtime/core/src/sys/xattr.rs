//! The system calls on extended attributes, for the blocking pool.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// What the kernel lets a value and a list of names have at most.
pub const MAX_BYTES: usize = 64 * 1024;

/// What has attributes: the file that a path leads to, or an open one.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// Symbolic links are followed.
    Path(&'a CStr),
    /// Not one that was opened with `O_PATH`.
    File(BorrowedFd<'a>),
}

/// getxattr(2): the value.
pub fn read(of: Subject<'_>, name: &CStr) -> io::Result<Vec<u8>> {
    let mut value = vec![0; MAX_BYTES];
    let (name, start) = (name.as_ptr(), value.as_mut_ptr().cast());
    let len = match of {
        // SAFETY: strings that end, and so much room.
        Subject::Path(path) => unsafe { libc::getxattr(path.as_ptr(), name, start, MAX_BYTES) },
        // SAFETY: as above; the descriptor is open while borrowed.
        Subject::File(fd) => unsafe { libc::fgetxattr(fd.as_raw_fd(), name, start, MAX_BYTES) },
    };
    value.truncate(check(len)?);
    Ok(value)
}

/// setxattr(2).
pub fn write(of: Subject<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    let (name, start, len) = (name.as_ptr(), value.as_ptr().cast(), value.len());
    let result = match of {
        // SAFETY: strings that end, and a value of this length.
        Subject::Path(path) => unsafe { libc::setxattr(path.as_ptr(), name, start, len, 0) },
        // SAFETY: as above; the descriptor is open while borrowed.
        Subject::File(fd) => unsafe { libc::fsetxattr(fd.as_raw_fd(), name, start, len, 0) },
    };
    check(result as isize).map(drop)
}

/// listxattr(2): the names, each with a NUL behind it.
pub fn list(of: Subject<'_>) -> io::Result<Vec<u8>> {
    let mut names = vec![0; MAX_BYTES];
    let start = names.as_mut_ptr().cast();
    let len = match of {
        // SAFETY: a path that ends, and so much room.
        Subject::Path(path) => unsafe { libc::listxattr(path.as_ptr(), start, MAX_BYTES) },
        // SAFETY: so much room; the descriptor is open while borrowed.
        Subject::File(fd) => unsafe { libc::flistxattr(fd.as_raw_fd(), start, MAX_BYTES) },
    };
    names.truncate(check(len)?);
    Ok(names)
}

/// removexattr(2).
pub fn remove(of: Subject<'_>, name: &CStr) -> io::Result<()> {
    let result = match of {
        // SAFETY: strings that end.
        Subject::Path(path) => unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) },
        // SAFETY: a string that ends; the descriptor is open while borrowed.
        Subject::File(fd) => unsafe { libc::fremovexattr(fd.as_raw_fd(), name.as_ptr()) },
    };
    check(result as isize).map(drop)
}
