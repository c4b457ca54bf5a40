//! [`File`]: opening, closing, and what it can be made of.

mod at;
mod cursor;
mod direct;
mod state;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use runtime_core::coop;
use runtime_core::op::Kind;
use runtime_core::op::close::Close;
use runtime_core::op::open::{O_APPEND, O_DIRECT};
use runtime_core::open_file::OpenFile;
use runtime_core::submit::submit;
use runtime_core::sys;

use crate::OpenOptions;
use crate::way::{CLOSING, Way, closes_at_once};
use cursor::Cursor;
pub use direct::DirectAlign;

/// An open file.
///
/// It is read and written at offsets through `&self`, by as many operations at once as one likes; and where its cursor is
/// through `&mut self`, as a source and a sink of `runtime::io`. The cursor is the file's own, not the kernel's.
///
/// # Order
///
/// Operations on one file run side by side and in no particular order: await a write before what must follow it. One order
/// is kept: an operation that starts after the future of a write (or of a sync, or of another change) was *dropped* waits
/// until that is over, on this file and on its clones. So a write that was given up after a timeout never lands on top of
/// its repetition, and a sync covers it. Other descriptors of the same file know nothing of it.
///
/// For what has to be on the medium in an order, [`write_all_at_sync`](Self::write_all_at_sync) orders its sync behind
/// its write, and two of them are in order if the second starts when the first is over; `O_DSYNC`
/// ([`OpenOptions::dsync`]) makes each write end so. Writes that are merely awaited one after the other may reach the
/// medium in any order before the next sync.
///
/// # Dropping
///
/// closes the file, or leaves that to the last dropped operation that still uses it. Where a close asks nobody (ext4,
/// xfs, btrfs, tmpfs, /proc, and what is no regular file) that is at once; elsewhere, as on overlayfs, FUSE and NFS,
/// another thread does it, for which `block_on` waits at its end, a second at most. [`close`](Self::close) waits and tells.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("greeting");
/// let file = runtime_fs::File::create(&path).await?;
/// file.write_at("hello", 0).await.0?;
/// let (n, data) = file.read_at(Vec::with_capacity(16), 1).await.into_result()?;
/// assert_eq!((n, &data[..]), (4, &b"ello"[..]));
/// file.close().await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct File {
    pub(crate) open: Arc<OpenFile>,
    cursor: Cursor,
    append: bool,
    /// Known of a file that was opened with `direct`, where the kernel tells.
    direct: Option<DirectAlign>,
}

impl File {
    /// Opens a file for reading.
    ///
    /// FIFOs are for `runtime::pipe::OpenOptions`: whether this waits for the other side, as open(2) does, depends on what
    /// the kernel has in memory.
    ///
    /// # Errors
    ///
    /// Those of open(2); `InvalidInput` for a path with a NUL byte.
    ///
    /// # Cancel safety
    ///
    /// A file that was opened is closed.
    #[doc(alias = "IORING_OP_OPENAT")]
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for reading and writing, empty; creates it with mode 0o666 less the umask if it is not there.
    ///
    /// # Errors
    ///
    /// Those of open(2); `InvalidInput` for a path with a NUL byte.
    ///
    /// # Cancel safety
    ///
    /// A file that was opened is closed; it may have been created or emptied.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).await
    }

    /// Creates a file for reading and writing, with mode 0o666 less the umask.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if there is anything under this name; otherwise as [`create`](Self::create).
    ///
    /// # Cancel safety
    ///
    /// A file that was created is closed, not removed.
    pub async fn create_new(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path).await
    }

    /// As [`OpenOptions::new`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    pub(crate) async fn opened(fd: OwnedFd, append: bool, checks: bool, direct: bool) -> io::Result<Self> {
        let mut file = Self { open: OpenFile::new(fd, &CLOSING), cursor: Cursor::At(0), append, direct: None };
        if direct {
            Way::by_ring(&file.open);
        }
        if checks {
            file.direct = file.direct_align().await?;
        }
        Ok(file)
    }

    /// Another descriptor of the same open file (`F_DUPFD_CLOEXEC`), with a cursor of its own that starts where this one
    /// is. What was dropped on either is waited for by both; locks belong to both.
    ///
    /// # Errors
    ///
    /// `EMFILE` when the process has as many descriptors as it may.
    pub fn try_clone(&self) -> io::Result<Self> {
        let fd = self.as_fd().try_clone_to_owned()?;
        Ok(Self { open: self.open.beside(fd), ..*self })
    }

    /// Takes over a file of std. The cursor starts where that file's is.
    pub fn from_std(file: std::fs::File) -> Self {
        Self::from(OwnedFd::from(file))
    }

    /// The file as one of std, whose position is set to the cursor. Waits for dropped changes; while a dropped read still
    /// uses the descriptor, it is a duplicate.
    ///
    /// # Errors
    ///
    /// Those of lseek(2) and of fcntl(`F_DUPFD_CLOEXEC`), and that of a dropped change; the file is closed.
    ///
    /// # Cancel safety
    ///
    /// The file is closed.
    pub async fn into_std(mut self) -> io::Result<std::fs::File> {
        self.open.settled().await;
        self.open.take_error()?;
        if self.cursor != Cursor::Stream {
            let at = self.stream_position().await?;
            sys::seek(self.as_fd(), Some(at))?;
        }
        match self.open.into_fd() {
            Ok(fd) => Ok(fd.into()),
            Err(used) => used.as_fd().try_clone_to_owned().map(Into::into),
        }
    }

    /// Closes the file and says how that went; waits for dropped changes before. While a dropped read still uses the file,
    /// it is closed by that read's end instead, and this succeeds at once.
    ///
    /// # Errors
    ///
    /// Those of close(2), and that of a dropped write or sync that nobody has been told; the file is closed all the same.
    /// Success does not say that the data is on the medium: [`sync_all`](Self::sync_all) does.
    ///
    /// # Cancel safety
    ///
    /// The file is closed in any case.
    #[doc(alias = "IORING_OP_CLOSE")]
    pub async fn close(self) -> io::Result<()> {
        coop::proceed().await;
        self.open.settled().await;
        let unseen = self.open.take_error();
        let at_once = !Way::was_in_ring(&self.open) && closes_at_once(&self.open);
        match self.open.into_fd() {
            Ok(fd) if at_once => {
                coop::done_inline(Kind::Close, 0);
                unseen.and(sys::files::close(fd))
            }
            Ok(fd) => unseen.and(submit(Close::new(fd)).await),
            Err(_still_used) => unseen,
        }
    }
}

/// The kernel's offsets are signed; −1 would mean "where the file's position is".
fn check(offset: u64) -> io::Result<()> {
    if i64::try_from(offset).is_err() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file offset must be below 2^63"));
    }
    Ok(())
}

fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.open.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Takes over an open file. The cursor starts where the kernel's is; whether it appends is asked.
impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> Self {
        // What is no file, or cannot be sought, is read and written without offsets.
        let cursor = sys::seek(fd.as_fd(), None).map_or(Cursor::Stream, Cursor::At);
        let flags = sys::open_flags(fd.as_fd()).unwrap_or(0);
        let open = OpenFile::new(fd, &CLOSING);
        if cursor == Cursor::Stream || flags & O_DIRECT != 0 {
            Way::by_ring(&open);
        }
        Self { open, cursor, append: flags & O_APPEND != 0, direct: None }
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        Self::from_std(file)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("fd", &self.as_raw_fd()).field("cursor", &self.cursor).finish_non_exhaustive()
    }
}
