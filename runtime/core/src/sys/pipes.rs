//! The system calls of pipes: splice(2), tee(2), and what can be asked of a pipe.
//!
//! Owns nothing but the calls; knows nothing of when they are the right ones.

use std::io::{self, IsTerminal};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;

/// What one call moves at most, as with read(2).
const MAX_BYTES: usize = 0x7fff_f000;

/// Flags of open(2) for a FIFO that nobody is to wait for.
pub fn fifo_flags(read: bool, write: bool) -> i32 {
    let mode = match (read, write) {
        (true, true) => libc::O_RDWR,
        (false, true) => libc::O_WRONLY,
        _ => libc::O_RDONLY,
    };
    mode | libc::O_NONBLOCK
}

/// Whether opening a FIFO failed because nobody reads it.
pub fn has_no_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENXIO)
}

/// `splice(2)` that does not wait for either *pipe*. A socket is asked by its own `O_NONBLOCK` only.
pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    let (none, flags) = (std::ptr::null_mut(), libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE);
    // SAFETY: no offsets; the descriptors are open while borrowed.
    check(unsafe { libc::splice(from.as_raw_fd(), none, to.as_raw_fd(), none, len.min(MAX_BYTES), flags) })
}

/// Whether a socket of which a splice(2) took nothing has really come to its end. TCP says the same of one whose peer
/// has ended the stream behind an urgent byte: that byte stops a splice, and a read passes over it.
#[cold]
pub fn is_at_end(socket: BorrowedFd<'_>) -> bool {
    let mut byte = 0_u8;
    let mut recv = |flags| {
        // SAFETY: writes one byte at most; the descriptor is open while borrowed.
        check(unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, flags | libc::MSG_DONTWAIT) })
    };
    // Behind an end nothing comes, so the second takes no byte but the urgent one: a socket that is closed with that unread
    // resets its connection.
    matches!(recv(libc::MSG_PEEK), Ok(0)) && matches!(recv(0), Ok(0))
}

/// `splice(2)` of a file at an offset into a pipe that has room; waits for the disk.
pub fn splice_file(file: BorrowedFd<'_>, offset: u64, pipe: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    let mut offset = i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let (none, flags) = (std::ptr::null_mut(), libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE);
    // SAFETY: the offset lives for the call; the descriptors are open while borrowed.
    check(unsafe { libc::splice(file.as_raw_fd(), &raw mut offset, pipe.as_raw_fd(), none, len.min(MAX_BYTES), flags) })
}

/// `splice(2)` of what is in a pipe into a file, at an offset or where its position is; waits for the disk, not for the
/// pipe.
pub fn splice_to_file(
    pipe: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: Option<u64>,
    len: usize,
) -> io::Result<usize> {
    let mut at = i64::try_from(offset.unwrap_or(0)).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let at = if offset.is_some() { &raw mut at } else { std::ptr::null_mut() };
    let (none, flags) = (std::ptr::null_mut(), libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE);
    // SAFETY: the offset lives for the call; the descriptors are open while borrowed.
    check(unsafe { libc::splice(pipe.as_raw_fd(), none, file.as_raw_fd(), at, len.min(MAX_BYTES), flags) })
}

/// What the kernel would say of a splice into this file at this offset, were there something to splice: that it
/// appends, cannot be sought, or is not open for writing. Does not wait.
pub fn check_target(file: BorrowedFd<'_>, offset: Option<u64>) -> io::Result<()> {
    let flags = super::open_flags(file)?;
    let errno = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => libc::EBADF,
        _ if flags & libc::O_APPEND != 0 => libc::EINVAL,
        _ if offset.is_some_and(|offset| i64::try_from(offset).is_err()) => libc::EINVAL,
        _ => return super::seek(file, None).map(drop),
    };
    Err(io::Error::from_raw_os_error(errno))
}

/// What the kernel would say of a splice or tee between these pipes, were there something to move: that they are the same.
pub fn check_ends(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let inode = |fd: BorrowedFd<'_>| {
        // SAFETY: plain data that the call fills.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: writes one structure; the descriptor is open while borrowed.
        check(unsafe { libc::fstat(fd.as_raw_fd(), &raw mut status) } as isize).map(|_| (status.st_dev, status.st_ino))
    };
    if inode(from)? == inode(to)? { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(()) }
}

/// `vmsplice(2)` into a pipe that does not wait for room.
///
/// # Safety
///
/// `len` initialised bytes at `start`, which nobody changes from now on, and which are not used again but unmapped: the
/// pipe refers to the pages, not to copies of them. With `gift`, `start` and `len` are multiples of a page.
pub unsafe fn vmsplice(start: *const u8, len: usize, pipe: BorrowedFd<'_>, gift: bool) -> io::Result<usize> {
    let vector = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len.min(MAX_BYTES) };
    let flags = libc::SPLICE_F_NONBLOCK | if gift { libc::SPLICE_F_GIFT } else { 0 };
    // SAFETY: one vector, which lives for the call; the caller's promise about the memory; the descriptor is open.
    check(unsafe { libc::vmsplice(pipe.as_raw_fd(), &raw const vector, 1, flags) })
}

/// `tee(2)` that does not wait.
pub fn tee(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    // SAFETY: no pointers; the descriptors are open while borrowed.
    check(unsafe { libc::tee(from.as_raw_fd(), to.as_raw_fd(), len.min(MAX_BYTES), libc::SPLICE_F_NONBLOCK) })
}

/// `read(2)`, which says how much of `data` it initialised; waits unless the description has `O_NONBLOCK`.
pub fn read(fd: BorrowedFd<'_>, data: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    // SAFETY: `data` is writable for its length, the descriptor is open while borrowed.
    check(unsafe { libc::read(fd.as_raw_fd(), data.as_mut_ptr().cast(), data.len()) })
}

/// `write(2)`; waits unless the description has `O_NONBLOCK`.
pub fn write(fd: BorrowedFd<'_>, data: &[u8]) -> io::Result<usize> {
    // SAFETY: `data` is valid for its length, the descriptor is open while borrowed.
    check(unsafe { libc::write(fd.as_raw_fd(), data.as_ptr().cast(), data.len()) })
}

/// `pipe2(2)` in packet mode (`O_DIRECT`): the reading and the writing end, close-on-exec and O_NONBLOCK.
pub fn packet_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: an array of two integers, as the call wants.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_DIRECT) } as isize)?;
    // SAFETY: a fresh descriptor that nobody else knows.
    let rx = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: as above.
    let tx = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((rx, tx))
}

/// Bytes that the pipe can hold, when they come in whole pages (`F_GETPIPE_SZ`).
pub fn pipe_capacity(fd: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: no pointers; the descriptor is open while borrowed.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETPIPE_SZ) } as isize)
}

/// Has the pipe hold so many bytes; the kernel rounds up and says what it made of it (`F_SETPIPE_SZ`).
pub fn set_pipe_capacity(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
    let bytes = libc::c_int::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: no pointers; the descriptor is open while borrowed.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) } as isize)
}

/// Bytes that can be read now (`FIONREAD`).
pub fn available(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: writes one integer; the descriptor is open while borrowed.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut bytes) } as isize)?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Another open file description of the same pipe or terminal, in non-blocking mode, by way of `/proc`; close-on-exec.
///
/// Not of a FIFO with a name: a new description does not know whether there has been a writer, and would take the end
/// for the time before the first one. Nor of a terminal's master side, whose file makes another terminal each time.
pub fn reopen(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let what = std::fs::read_link(&path)?;
    let is_pipe = what.as_os_str().as_encoded_bytes().starts_with(b"pipe:[");
    let is_terminal = || fd.is_terminal() && !what.ends_with("ptmx");
    if !is_pipe && !is_terminal() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let flags = super::open_flags(fd)? & libc::O_ACCMODE | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    let path = std::ffi::CString::new(path)?;
    // SAFETY: a string with its end.
    let fd = check(unsafe { libc::open(path.as_ptr(), flags) } as isize)?;
    // SAFETY: a fresh descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sets or clears `O_NONBLOCK` of the open file description, for descriptors that we created (ruling 7).
pub fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> io::Result<()> {
    // SAFETY: no pointers; the descriptor is open while borrowed.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) } as isize)? as libc::c_int;
    let flags = if nonblocking { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) } as isize).map(drop)
}

/// Ends a connection at once with a reset, whatever is unsent or unread; the descriptor stays.
pub fn reset(fd: BorrowedFd<'_>) -> io::Result<()> {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of::<libc::linger>() as libc::socklen_t;
    let value = (&raw const at_once).cast();
    // Should the kernel not disconnect it while others use it, the close will reset it.
    // SAFETY: a valid value of that size; the descriptor is open while borrowed.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, size) } as isize)?;
    let nobody = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    let len = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: a valid address of that length; the descriptor is open while borrowed.
    check(unsafe { libc::connect(fd.as_raw_fd(), &raw const nobody, len) } as isize).map(drop)
}
