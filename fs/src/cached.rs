//! Metadata of what the kernel has in memory, without a worker: the ring hands every STATX to one, which takes ten times as
//! long as the call itself.
//!
//! Owns which mounts are known to answer from memory. The way of a path is walked with `RESOLVE_CACHED`, which fails where
//! anybody would have to be asked; then the file is asked with `AT_STATX_DONT_SYNC`, which no server hears of, and the answer
//! counts only if its file system is on the list: ext4, xfs, btrfs, tmpfs, where it is what a plain statx(2) says. What a
//! mount is, is asked once, on the blocking pool, because statfs(2) may ask a server. Everything else goes to the ring.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError, RwLock};

use runtime_core::coop;
use runtime_core::fd::At;
use runtime_core::op::Kind;
use runtime_core::op::statx::{STATX_MNT_ID, Status};
use runtime_core::open_file::OpenFile;
use runtime_core::sys::files::{is_local, name_cached, status_cached};

use crate::metadata::{MASK, Metadata};
use crate::offload::offload;

/// A mount, and the device on it: numbers are used again, but hardly both at once.
type Mount = (u64, u32, u32);

/// More mounts than this are not remembered together.
const MAX_MOUNTS: usize = 1024;

static MOUNTS: RwLock<Option<HashMap<Mount, bool>>> = RwLock::new(None);

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
    answer(&status, || Arc::clone(file)).await
}

async fn answer<F: AsFd + Send + 'static>(status: &Status, file: impl FnOnce() -> F) -> Option<Metadata> {
    if status.stx_mask & STATX_MNT_ID == 0 {
        return None;
    }
    let mount = (status.stx_mnt_id, status.stx_dev_major, status.stx_dev_minor);
    let known = {
        let mounts = MOUNTS.read().unwrap_or_else(PoisonError::into_inner);
        mounts.as_ref().and_then(|mounts| mounts.get(&mount).copied())
    };
    let local = match known {
        Some(local) => local,
        None => learn(mount, file()).await?,
    };
    if !local {
        return None;
    }
    coop::done_inline(Kind::Stat, 0);
    Some(Metadata::new(status))
}

async fn learn<F: AsFd + Send + 'static>(mount: Mount, file: F) -> Option<bool> {
    // On the way there and back the file may change, but not what it is on.
    let local = offload(Kind::Stat, move || is_local(file.as_fd())).await.ok()?;
    let mut mounts = MOUNTS.write().unwrap_or_else(PoisonError::into_inner);
    let mounts = mounts.get_or_insert_default();
    if mounts.len() >= MAX_MOUNTS {
        mounts.clear();
    }
    mounts.insert(mount, local);
    Some(local)
}

/// Errors that a plain walk of the path would end with as well.
fn is_answer(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}
