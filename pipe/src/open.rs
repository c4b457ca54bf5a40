//! [`OpenOptions`]: pipes that have a name.
//!
//! Owns how one waits for the other side without a thread; knows nothing of the pipe once it is open.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use runtime_core::fd::At;
use runtime_core::op::open::Open;
use runtime_core::submit::submit;
use runtime_core::sys::pipes;
use runtime_core::time::sleep;

use crate::{Receiver, Sender};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Opens FIFOs (mkfifo(1)).
///
/// No thread waits for the other side. A reader opens at once, and its first read waits for the first writer. A writer
/// tries again and again, first after a millisecond, later every 50, until somebody reads.
///
/// # Examples
///
/// ```no_run
/// use runtime_pipe::OpenOptions;
/// # async fn f() -> std::io::Result<()> {
/// let rx = OpenOptions::new().open_receiver("/run/commands").await?;
/// let (n, command) = rx.read(Vec::with_capacity(100)).await.into_result()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    read_write: bool,
    unchecked: bool,
}

impl OpenOptions {
    /// The usual: each side for its own direction, and nothing but a FIFO.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens for both directions: there is always a reader and a writer then, so that nobody is waited for and a reader
    /// never meets the end.
    pub fn read_write(mut self, read_write: bool) -> Self {
        self.read_write = read_write;
        self
    }

    /// Does not look whether it is a FIFO.
    pub fn unchecked(mut self, unchecked: bool) -> Self {
        self.unchecked = unchecked;
        self
    }

    /// Opens the reading end, at once. The end of the stream that a FIFO shows before its first writer is waited out by the
    /// first read.
    ///
    /// # Errors
    ///
    /// Those of open(2); `InvalidInput` for what is no FIFO.
    ///
    /// # Cancel safety
    ///
    /// What was opened is closed.
    pub async fn open_receiver(&self, path: impl AsRef<Path>) -> io::Result<Receiver> {
        let fd =
            submit(Open::new(At::HERE, c_path(path.as_ref())?, pipes::fifo_flags(true, self.read_write), 0)).await?;
        Ok(Receiver::new(self.check(fd)?, true))
    }

    /// Opens the writing end, once somebody has opened it for reading.
    ///
    /// # Errors
    ///
    /// Those of open(2); `InvalidInput` for what is no FIFO.
    ///
    /// # Cancel safety
    ///
    /// What was opened is closed.
    pub async fn open_sender(&self, path: impl AsRef<Path>) -> io::Result<Sender> {
        let path = c_path(path.as_ref())?;
        let mut pause = FIRST_PAUSE;
        loop {
            match submit(Open::new(At::HERE, path.clone(), pipes::fifo_flags(self.read_write, true), 0)).await {
                Ok(fd) => return Ok(Sender::new(self.check(fd)?, true)),
                Err(error) if pipes::has_no_reader(&error) => sleep(pause).await,
                Err(error) => return Err(error),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn check(&self, fd: std::os::fd::OwnedFd) -> io::Result<std::os::fd::OwnedFd> {
        let file = std::fs::File::from(fd);
        if !self.unchecked && !file.metadata()?.file_type().is_fifo() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a FIFO"));
        }
        Ok(file.into())
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path cannot contain a zero byte"))
}
