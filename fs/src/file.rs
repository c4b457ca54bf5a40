//! [`File`].

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use runtime_core::buf::{BufResult, IoBuf, IoBufMut};
use runtime_core::coop;
use runtime_core::op::close::Close;
use runtime_core::op::open::Open;
use runtime_core::op::read::Read;
use runtime_core::op::write::Write;
use runtime_core::submit::submit;

const O_RDONLY: i32 = 0o0;
const O_RDWR: i32 = 0o2;
const O_CREAT: i32 = 0o100;
const O_TRUNC: i32 = 0o1000;

/// A file, read and written at offsets.
///
/// Operations on one file run side by side and in no particular order: await a write before what must follow it.
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
    fd: Arc<OwnedFd>,
}

impl File {
    /// Opens a file for reading. A FIFO without a writer opens at once, where open(2) would wait.
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
        open(path.as_ref(), O_RDONLY).await
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
        open(path.as_ref(), O_RDWR | O_CREAT | O_TRUNC).await
    }

    /// Reads at an offset, up to the buffer's capacity, and returns the count: 0 at or behind the end.
    /// Into a [`FixedBuf`](runtime_core::fixed::FixedBuf) it is a read into registered memory.
    ///
    /// # Errors
    ///
    /// Those of pread(2).
    ///
    /// # Cancel safety
    ///
    /// Takes nothing from the file; the buffer is dropped once the kernel is done with it.
    #[doc(alias = "IORING_OP_READ")]
    #[doc(alias = "IORING_OP_READ_FIXED")]
    pub async fn read_at<B: IoBufMut>(&self, buf: B, offset: u64) -> BufResult<usize, B> {
        if let Err(error) = check(offset) {
            return BufResult(Err(error), buf);
        }
        let index = coop::registered(&buf);
        let read = Read::new(Arc::clone(&self.fd), buf, 0, offset).registered(index);
        let (result, buf, _fd) = submit(read).await;
        BufResult(result, buf)
    }

    /// Writes at an offset and returns the count. From a [`FixedBuf`](runtime_core::fixed::FixedBuf) it is a write from
    /// registered memory.
    ///
    /// # Errors
    ///
    /// Those of pwrite(2).
    ///
    /// # Cancel safety
    ///
    /// Any part may have been written, and the rest may still be while later operations run.
    #[doc(alias = "IORING_OP_WRITE")]
    #[doc(alias = "IORING_OP_WRITE_FIXED")]
    pub async fn write_at<B: IoBuf>(&self, buf: B, offset: u64) -> BufResult<usize, B> {
        if let Err(error) = check(offset) {
            return BufResult(Err(error), buf);
        }
        let index = coop::registered(&buf);
        let write = Write::new(Arc::clone(&self.fd), buf, 0, offset).registered(index);
        let (result, buf, _fd) = submit(write).await;
        BufResult(result, buf)
    }

    /// Closes the file and says how that went. While a dropped operation still uses the file, it is closed by that
    /// operation's end instead, and this succeeds at once.
    ///
    /// # Errors
    ///
    /// Those of close(2); the file is closed all the same.
    ///
    /// # Cancel safety
    ///
    /// The file is closed in any case.
    #[doc(alias = "IORING_OP_CLOSE")]
    pub async fn close(self) -> io::Result<()> {
        match Arc::try_unwrap(self.fd) {
            Ok(fd) => submit(Close::new(fd)).await,
            Err(_still_used) => Ok(()),
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

async fn open(path: &Path, flags: i32) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path must not contain a NUL byte"))?;
    let fd = submit(Open::new(path, flags, 0o666)).await?;
    Ok(File { fd: Arc::new(fd) })
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Takes over an open file.
impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd) }
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        Self::from(OwnedFd::from(file))
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("fd", &self.as_raw_fd()).finish()
    }
}
