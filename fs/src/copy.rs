//! Copying a file: [`copy`].
//!
//! A job of the blocking pool, from the cheapest way on: the file system shares the data (`FICLONE`); it copies the
//! runs that are no holes (`copy_file_range`); std reads and writes, as files in /proc need, which have no length.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use runtime_core::ladder::offload;
use runtime_core::op::Kind;
use runtime_core::sys::copy as calls;

/// What one call copies at most: a signal, or the end of the process, waits for no more.
const STEP_BYTES: u64 = 1 << 30;

/// Copies the contents and the permissions of a file, in place of what `to` held, and returns the count of bytes: its
/// length. On the blocking pool.
///
/// The file system shares the data where it can (reflinks), and holes stay holes where it knows them. Links are
/// followed.
///
/// # Errors
///
/// Those of open(2), read(2), write(2) and fchmod(2); `InvalidInput` if `from` is no regular file, or is `to`.
///
/// # Cancel safety
///
/// It goes on.
#[doc(alias = "copy_file_range")]
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
    offload(Kind::Copy, move || copy_now(&from, &to)).await
}

fn copy_now(from: &Path, to: &Path) -> io::Result<u64> {
    let from = File::open(from)?;
    let source = from.metadata()?;
    if !source.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "only a regular file can be copied"));
    }
    let permissions = source.permissions();
    // With the mode from the start: nobody is to read what only the owner may.
    let mut options = std::fs::OpenOptions::new();
    let to = options.write(true).create(true).truncate(false).mode(permissions.mode()).open(to)?;
    let target = to.metadata()?;
    if (source.dev(), source.ino()) == (target.dev(), target.ino()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file cannot be copied to itself"));
    }
    if target.is_file() {
        to.set_len(0)?;
        to.set_permissions(permissions)?;
        if source.len() > 0 {
            if calls::share(from.as_fd(), to.as_fd()).is_ok() {
                return Ok(to.metadata()?.len());
            }
            if let Some(len) = copy_runs(&from, &to)? {
                return Ok(len);
            }
        }
    }
    (&from).rewind()?;
    io::copy(&mut &from, &mut &to)
}

/// `None` when the kernel cannot do it between these two, and nothing was copied.
fn copy_runs(from: &File, to: &File) -> io::Result<Option<u64>> {
    let mut copied = false;
    let mut at = 0;
    while let Some((start, end)) = calls::next_data(from.as_fd(), at)? {
        at = start;
        while at < end {
            let step = (end - at).min(STEP_BYTES) as usize;
            match calls::copy_range(from.as_fd(), to.as_fd(), at, step) {
                // Cut meanwhile.
                Ok(0) => break,
                Ok(n) => at += n as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if copied => return Err(error),
                Err(error) if is_left_to_std(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
            copied = true;
        }
        if at < end {
            break;
        }
    }
    // A hole at the end is length alone.
    let end = (&mut &*from).seek(SeekFrom::End(0))?.max(at);
    if copied || end > 0 {
        to.set_len(end)?;
    }
    Ok(Some(end))
}

/// Not offered here: between two file systems, by this one, for these flags, in this sandbox.
fn is_left_to_std(error: &io::Error) -> bool {
    const EPERM: i32 = 1;
    const EBADF: i32 = 9;
    const EXDEV: i32 = 18;
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;
    const EOPNOTSUPP: i32 = 95;
    matches!(error.raw_os_error(), Some(EPERM | EBADF | EXDEV | EINVAL | ENOSYS | EOPNOTSUPP))
}
