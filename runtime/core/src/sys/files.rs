//! System calls on files that answer from what the kernel has in memory, and the one that says what file system it is.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use super::check;

/// `cachestat(2)`, which has one number on all that matters here.
const CACHESTAT: libc::c_long = 451;

/// `openat2(2)` with `O_PATH` and `RESOLVE_CACHED` (5.12): names a file without opening it, and fails with `EAGAIN` where a
/// disk or a server would have to be asked for the way. `at` is an open directory, or `AT_FDCWD`.
pub fn name_cached(at: RawFd, path: &CStr, follow: bool) -> io::Result<OwnedFd> {
    let nofollow = if follow { 0 } else { libc::O_NOFOLLOW };
    open(at, path, libc::O_PATH | nofollow, 0, libc::RESOLVE_CACHED)
}

/// `openat2(2)`, and without `RESOLVE_` flags `openat(2)`, which refuses less; the descriptor is close-on-exec. May
/// block. `at` is an open directory, or `AT_FDCWD`; of what is neither, the error is the kernel's.
pub fn open(at: RawFd, path: &CStr, flags: i32, mode: u32, resolve: u64) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_CLOEXEC;
    let fd = if resolve == 0 {
        // SAFETY: a path that ends, and plain integers.
        unsafe { libc::openat(at, path.as_ptr(), flags, mode) }.into()
    } else {
        // SAFETY: plain integers, all of which may be zero.
        let mut how: libc::open_how = unsafe { MaybeUninit::zeroed().assume_init() };
        how.flags = u64::from(flags as u32);
        how.mode = if flags & (libc::O_CREAT | libc::O_TMPFILE) == 0 { 0 } else { mode.into() };
        how.resolve = resolve;
        // SAFETY: a path that ends, and a structure of the size that the call is told.
        unsafe { libc::syscall(libc::SYS_openat2, at, path.as_ptr(), &raw const how, size_of::<libc::open_how>()) }
    };
    let fd = check(fd as isize)?;
    // SAFETY: the kernel just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// `statx(2)` of an open file with `AT_STATX_DONT_SYNC`: file systems of servers answer from memory, local ones as always.
pub fn status_cached(fd: BorrowedFd<'_>, mask: u32) -> io::Result<libc::statx> {
    let mut status = MaybeUninit::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an empty path that ends, and room for the answer; the descriptor is open while borrowed.
    check(unsafe { libc::statx(fd.as_raw_fd(), c"".as_ptr(), flags, mask, status.as_mut_ptr()) } as isize)?;
    // SAFETY: plain integers, zeroed before the kernel wrote to them.
    Ok(unsafe { status.assume_init() })
}

/// What a file system is known for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// On a disk of this machine: ext4, xfs, btrfs.
    Disk,
    /// tmpfs.
    Memory,
    /// Made up by the kernel, as /proc: reading may take its time, closing does not.
    Kernel,
    /// Anything else may ask anybody about anything.
    Other,
}

/// What file system an open file is on, by its `f_type`. May block: file systems of servers ask them.
pub fn file_system(fd: BorrowedFd<'_>) -> io::Result<FileSystem> {
    let mut status = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: room for the answer; the descriptor is open while borrowed.
    check(unsafe { libc::fstatfs(fd.as_raw_fd(), status.as_mut_ptr()) } as isize)?;
    // SAFETY: plain integers, zeroed before the kernel wrote to them.
    let status = unsafe { status.assume_init() };
    Ok(match status.f_type {
        libc::EXT4_SUPER_MAGIC | libc::XFS_SUPER_MAGIC | libc::BTRFS_SUPER_MAGIC => FileSystem::Disk,
        libc::TMPFS_MAGIC => FileSystem::Memory,
        libc::PROC_SUPER_MAGIC | libc::SYSFS_MAGIC | libc::CGROUP2_SUPER_MAGIC => FileSystem::Kernel,
        _ => FileSystem::Other,
    })
}

/// `preadv2(2)` of one buffer. With `no_wait` (`RWF_NOWAIT`) what is not in memory is `WouldBlock`, or a short count,
/// and `Unsupported` what cannot tell.
pub fn read_at(fd: BorrowedFd<'_>, memory: &mut [MaybeUninit<u8>], offset: u64, no_wait: bool) -> io::Result<usize> {
    if !no_wait {
        let (start, len) = (memory.as_mut_ptr().cast(), memory.len());
        // SAFETY: so much memory to write to; the descriptor is open while borrowed.
        return check(unsafe { libc::pread64(fd.as_raw_fd(), start, len, offset as i64) });
    }
    let vector = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    // Not by the C library, for whose threads it is a point where they may be cancelled: that takes longer than the rest of it.
    let (call, start, count, high) = (libc::SYS_preadv2, &raw const vector, 1_usize, 0_usize);
    // SAFETY: one vector of so much memory to write to; the descriptor is open while borrowed.
    check(unsafe { libc::syscall(call, fd.as_raw_fd(), start, count, offset as i64, high, libc::RWF_NOWAIT) } as isize)
}

/// `close(2)`, and what it says. The descriptor is closed in any case.
pub fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: the caller's own descriptor, which nobody uses after this.
    check(unsafe { libc::close(fd.into_raw_fd()) } as isize).map(drop)
}

/// The length of a regular file, of whose status type and size were asked for; nothing else has one to rely on.
pub fn regular_size(status: &libc::statx) -> Option<u64> {
    (u32::from(status.stx_mode) & libc::S_IFMT == libc::S_IFREG).then_some(status.stx_size)
}

/// Whether this stretch of a file, which it has, is in the page cache as a whole (cachestat(2), 6.5), so that reading
/// it does not wait for a disk. `false` also when that cannot be told.
///
/// Pages that are being read in count as cached; they come in order, so the ends are tried with `RWF_NOWAIT`, which
/// also says whether the file system can read without waiting at all. What is evicted between this and the read is
/// waited for.
pub fn is_cached(file: BorrowedFd<'_>, at: u64, len: u64) -> bool {
    let Some(last) = at.checked_add(len).and_then(|end| end.checked_sub(1)) else { return false };
    if len == 0 {
        return true;
    }
    let page = super::page_size() as u64;
    // The structures of the call: where and how long; cached, dirty, in writeback, evicted, recently evicted.
    let (range, mut counts) = ([at, len], [0_u64; 5]);
    let (fd, flags) = (file.as_raw_fd(), 0_u32);
    // SAFETY: structures of the layout that the call knows; the descriptor is open while borrowed.
    let result = unsafe { libc::syscall(CACHESTAT, fd, range.as_ptr(), counts.as_mut_ptr(), flags) };
    result == 0 && counts[0] > last / page - at / page && has_byte(file, at) && has_byte(file, last)
}

/// Whether the byte can be read without waiting.
fn has_byte(file: BorrowedFd<'_>, at: u64) -> bool {
    read_at(file, &mut [MaybeUninit::uninit()], at, true).is_ok_and(|n| n == 1)
}
