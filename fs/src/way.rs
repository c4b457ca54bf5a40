//! Which way a file is read and closed: decided once per open file, by the file system that it is on (ruling 9).
//!
//! Owns the word of an open file in which the decision is kept, together with how the tries to read from memory went. What is
//! not on the list may ask a server, or a program, which may wait for this very thread: that is left to workers.
//!
//! | way | file system | read | close |
//! |---|---|---|---|
//! | `Disk` | ext4, xfs, btrfs | from memory without wait (`RWF_NOWAIT`), else the ring | close(2) |
//! | `Memory` | tmpfs | pread(2) up to 64 KiB, else a worker | close(2) |
//! | `Kernel` | /proc, /sys | a worker of the kernel | close(2) |
//! | `Worker` | all others: overlayfs, FUSE, NFS | a worker of the kernel | a worker, or the pool |
//! | `Ring` | no regular file; direct I/O | the ring | as the file system says |

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use runtime_core::ladder::mounts;
use runtime_core::op::statx::{STATX_MNT_ID, STATX_TYPE, Status};
use runtime_core::open_file::{Closing, OpenFile};
use runtime_core::sys::files::{FileSystem, status_cached};

/// How a file is read and closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    Unknown = 0,
    Disk,
    Memory,
    Kernel,
    Worker,
    Ring,
}

const WAYS: [Way; 6] = [Way::Unknown, Way::Disk, Way::Memory, Way::Kernel, Way::Worker, Way::Ring];

// The word: the way; whether the file system says that closes ask nobody, if that is known; how many reads in a row are not
// tried inline, and how many of those are left.
const WAY: u32 = 0xff;
const CLOSES_AT_ONCE: u32 = 1 << 8;
const CLOSE_KNOWN: u32 = 1 << 9;
/// The ring had requests on the file. The kernel's worker may hold such a request, and with it the file, for a moment after
/// its completion.
const WAS_IN_RING: u32 = 1 << 10;
const PAUSE_SHIFT: u32 = 16;
const LEFT_SHIFT: u32 = 24;
/// After so many misses in a row only one read in so many is tried inline.
const MAX_PAUSE: u32 = 64;

pub(crate) static CLOSING: Closing = Closing {
    is_at_once: closes_at_once,
    learn: |fd| {
        let _ = status_of(fd).and_then(|status| mounts::learn(&status, fd));
    },
};

impl Way {
    /// What is known of an open file; never asks.
    #[inline]
    pub(crate) fn of(file: &OpenFile) -> Self {
        WAYS.get((file.word().load(Ordering::Relaxed) & WAY) as usize).copied().unwrap_or(Self::Unknown)
    }

    /// For direct I/O, and for what cannot be sought.
    pub(crate) fn by_ring(file: &OpenFile) {
        file.word().fetch_or(Self::Ring as u32, Ordering::Relaxed);
    }

    /// What is known of an open file; asks the first time.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[cold]
    pub(crate) async fn learn(file: &Arc<OpenFile>) -> Self {
        let Some(status) = status_of(file.as_fd()) else {
            // Nobody can tell; what is tried will say whether it works.
            keep(file, Self::Ring, false);
            return Self::Ring;
        };
        if known(&status, file).is_none() {
            mounts::find(&status, || Arc::clone(file)).await;
            if known(&status, file).is_none() {
                keep(file, Self::Worker, false);
            }
        }
        Self::of(file)
    }

    /// An operation on the file goes to the ring.
    #[inline]
    pub(crate) fn goes_to_ring(file: &OpenFile) {
        if file.word().load(Ordering::Relaxed) & WAS_IN_RING == 0 {
            file.word().fetch_or(WAS_IN_RING, Ordering::Relaxed);
        }
    }

    /// Whether a visit to the kernel has to come with the close, so that the requests that were there let go of the file.
    pub(crate) fn was_in_ring(file: &OpenFile) -> bool {
        file.word().load(Ordering::Relaxed) & WAS_IN_RING != 0
    }

    /// Whether to try to read from memory now, after the tries that missed.
    #[inline]
    pub(crate) fn tries(file: &OpenFile) -> bool {
        let word = file.word().load(Ordering::Relaxed);
        if word >> LEFT_SHIFT == 0 {
            return true;
        }
        file.word().store(word - (1 << LEFT_SHIFT), Ordering::Relaxed);
        false
    }

    /// A try found everything.
    #[inline]
    pub(crate) fn hit(file: &OpenFile) {
        let word = file.word().load(Ordering::Relaxed);
        if word >> PAUSE_SHIFT != 0 {
            file.word().store(word & ((1 << PAUSE_SHIFT) - 1), Ordering::Relaxed);
        }
    }

    /// A try was in vain: a disk has to be asked, and is likely to have to for the next ones.
    #[cold]
    pub(crate) fn missed(file: &OpenFile) {
        let word = file.word().load(Ordering::Relaxed);
        let pause = (((word >> PAUSE_SHIFT) & 0xff) * 2).clamp(1, MAX_PAUSE);
        file.word()
            .store(word & ((1 << PAUSE_SHIFT) - 1) | pause << PAUSE_SHIFT | pause << LEFT_SHIFT, Ordering::Relaxed);
    }
}

fn status_of(fd: BorrowedFd<'_>) -> Option<Status> {
    status_cached(fd, STATX_TYPE | STATX_MNT_ID).ok()
}

/// Keeps what follows from the status of an open file for it, if its file system is known.
pub(crate) fn known(status: &Status, file: &OpenFile) -> Option<FileSystem> {
    const S_IFMT: u16 = 0o170_000;
    const S_IFREG: u16 = 0o100_000;
    if status.stx_mode & S_IFMT != S_IFREG {
        // A pipe, a device, a directory: none of these asks the file system that it is named in.
        keep(file, Way::Ring, true);
        return Some(FileSystem::Other);
    }
    let found = mounts::known(status)?;
    let way = match found {
        FileSystem::Disk => Way::Disk,
        FileSystem::Memory => Way::Memory,
        FileSystem::Kernel => Way::Kernel,
        FileSystem::Other => Way::Worker,
    };
    keep(file, way, found != FileSystem::Other);
    Some(found)
}

fn keep(file: &OpenFile, way: Way, closes_at_once: bool) {
    let close = CLOSE_KNOWN | if closes_at_once { CLOSES_AT_ONCE } else { 0 };
    let way = if Way::of(file) == Way::Unknown { way as u32 } else { 0 };
    file.word().fetch_or(close | way, Ordering::Relaxed);
}

/// Whether closing a file asks nobody; what is not known is said to ask.
pub(crate) fn closes_at_once(file: &OpenFile) -> bool {
    let is_known = || file.word().load(Ordering::Relaxed) & CLOSE_KNOWN != 0;
    if !is_known()
        && let Some(status) = status_of(file.as_fd())
    {
        known(&status, file);
    }
    file.word().load(Ordering::Relaxed) & CLOSES_AT_ONCE != 0
}
