//! Metadata of what the kernel has in memory, without a worker: the ring hands every STATX to one, which takes ten times as
//! long as the call itself.
//!
//! Owns what is asked, and when the answer counts. The way of a path is walked with `RESOLVE_CACHED`, which fails where
//! anybody would have to be asked; then the file is asked with `AT_STATX_DONT_SYNC`, which no server hears of, and the
//! answer counts only if its file system is on core's list (`ladder::mounts`), where it is what a plain statx(2) says.
//! Everything else goes to the ring.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use runtime_core::coop;
use runtime_core::fd::At;
use runtime_core::ladder::mounts;
use runtime_core::op::Kind;
use runtime_core::op::statx::Status;
use runtime_core::open_file::OpenFile;
use runtime_core::sys::files::{FileSystem, name_cached, status_cached};

use crate::metadata::{MASK, Metadata};
use crate::way::known;

/// `None` when the ring has to be asked. A file that is not there is an answer.
///
/// # Cancel safety
///
/// Changes nothing.
pub(crate) async fn of_path(at: &At, path: &CStr, follow: bool) -> Option<io::Result<Metadata>> {
    coop::proceed().await;
    let fd = match name_cached(at.raw_fd(), path, follow) {
        Ok(fd) => fd,
        Err(error) if is_answer(&error) => {
            coop::done_inline(Kind::Stat, 0);
            return Some(Err(error));
        }
        // Not in memory, no descriptor free, or not allowed to say (ruling 30).
        Err(_) => return None,
    };
    let status = status_cached(fd.as_fd(), MASK).ok()?;
    answer(&status, move || fd).await.map(Ok)
}

/// As [`of_path`], of an open file.
///
/// # Cancel safety
///
/// Changes nothing.
pub(crate) async fn of_file(file: &Arc<OpenFile>) -> Option<Metadata> {
    coop::proceed().await;
    let status = status_cached(file.as_fd(), MASK).ok()?;
    let metadata = answer(&status, || Arc::clone(file)).await;
    // Said on the way: how it is read and closed.
    known(&status, file);
    metadata
}

async fn answer<F: AsFd + Send + 'static>(status: &Status, file: impl FnOnce() -> F) -> Option<Metadata> {
    if !matches!(mounts::find(status, file).await?, FileSystem::Disk | FileSystem::Memory) {
        return None;
    }
    coop::done_inline(Kind::Stat, 0);
    Some(Metadata::new(status))
}

/// Errors that a plain walk of the path would end with as well.
fn is_answer(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}
