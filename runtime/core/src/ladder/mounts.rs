//! Which mounts are known to answer from memory what they have in memory.
//!
//! Owns the list: ext4, xfs, btrfs, tmpfs. What a mount is, is asked once, on the blocking pool, because statfs(2) may
//! ask a server. Knows nothing of what is then asked of the file.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{PoisonError, RwLock};

use super::offload;
use crate::op::Kind;
use crate::op::statx::{STATX_MNT_ID, Status};
use crate::sys::files;

/// A mount, and the device on it: numbers are used again, but hardly both at once.
type Mount = (u64, u32, u32);

/// More mounts than this are not remembered together.
const MAX_MOUNTS: usize = 1024;

static MOUNTS: RwLock<Option<HashMap<Mount, bool>>> = RwLock::new(None);

/// Whether the file of this status is on such a mount; `None` when that cannot be told.
///
/// # Cancel safety
///
/// Changes nothing.
pub async fn is_local<F: AsFd + Send + 'static>(status: &Status, file: impl FnOnce() -> F) -> Option<bool> {
    if status.stx_mask & STATX_MNT_ID == 0 {
        return None;
    }
    let mount = (status.stx_mnt_id, status.stx_dev_major, status.stx_dev_minor);
    let known = {
        let mounts = MOUNTS.read().unwrap_or_else(PoisonError::into_inner);
        mounts.as_ref().and_then(|mounts| mounts.get(&mount).copied())
    };
    match known {
        Some(local) => Some(local),
        None => learn(mount, file()).await,
    }
}

async fn learn<F: AsFd + Send + 'static>(mount: Mount, file: F) -> Option<bool> {
    // On the way there and back the file may change, but not what it is on.
    let local = offload(Kind::Stat, move || files::is_local(file.as_fd())).await.ok()?;
    let mut mounts = MOUNTS.write().unwrap_or_else(PoisonError::into_inner);
    let mounts = mounts.get_or_insert_default();
    if mounts.len() >= MAX_MOUNTS {
        mounts.clear();
    }
    mounts.insert(mount, local);
    Some(local)
}
