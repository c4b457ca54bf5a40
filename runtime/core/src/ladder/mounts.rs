//! Which file system a mount is of.
//!
//! Owns what is known of mounts, for the whole process. What a mount is, is asked once, by a thread that may block, because
//! statfs(2) may ask a server. Knows nothing of what follows from it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{PoisonError, RwLock};

use super::offload;
use crate::op::Kind;
use crate::op::statx::{STATX_MNT_ID, Status};
use crate::sys::files::{FileSystem, file_system};

/// A mount, and the device on it: numbers are used again, but hardly both at once.
type Mount = (u64, u32, u32);

/// More mounts than this are not remembered together.
const MAX_MOUNTS: usize = 1024;

static MOUNTS: RwLock<Option<HashMap<Mount, FileSystem>>> = RwLock::new(None);

fn mount_of(status: &Status) -> Option<Mount> {
    let is_told = status.stx_mask & STATX_MNT_ID != 0;
    is_told.then_some((status.stx_mnt_id, status.stx_dev_major, status.stx_dev_minor))
}

/// The file system that a file with this status is on, if it was learned.
pub fn known(status: &Status) -> Option<FileSystem> {
    let mounts = MOUNTS.read().unwrap_or_else(PoisonError::into_inner);
    mounts.as_ref()?.get(&mount_of(status)?).copied()
}

/// The file system that a file with this status is on, learned by the blocking pool if it must be; `None` if nobody can tell.
///
/// # Cancel safety
///
/// Changes nothing.
pub async fn find<F: AsFd + Send + 'static>(status: &Status, file: impl FnOnce() -> F) -> Option<FileSystem> {
    mount_of(status)?;
    if let Some(known) = known(status) {
        return Some(known);
    }
    // On the way there and back the file may change, but not what it is on.
    let (status, file) = (*status, file());
    offload(Kind::Stat, move || Ok(learn(&status, file.as_fd()))).await.ok()?
}

/// As [`find`], on this thread, which may block.
pub fn learn(status: &Status, fd: BorrowedFd<'_>) -> Option<FileSystem> {
    let (mount, found) = (mount_of(status)?, file_system(fd).ok()?);
    let mut mounts = MOUNTS.write().unwrap_or_else(PoisonError::into_inner);
    let mounts = mounts.get_or_insert_default();
    if mounts.len() >= MAX_MOUNTS {
        mounts.clear();
    }
    mounts.insert(mount, found);
    Some(found)
}
