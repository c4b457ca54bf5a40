//! What is done to a file as a whole: syncing, its length, its metadata, its room, locks.

use std::fs::TryLockError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use runtime_core::coop;
use runtime_core::ladder::offload;
use runtime_core::op::fadvise::{Advice, Fadvise};
use runtime_core::op::fallocate::{Fallocate, Range};
use runtime_core::op::fsync::{self, Fsync};
use runtime_core::op::ftruncate::{self, Ftruncate};
use runtime_core::op::statx::{self, Statx};
use runtime_core::op::sync_range::SyncRange;
use runtime_core::op::{Kind, Op};
use runtime_core::open_file::{Change, OpenFile};
use runtime_core::submit::submit;

use super::{File, check};
use crate::cached;
use crate::metadata::{MASK, Metadata};
use crate::way::Way;
use crate::{FileTimes, Permissions};

/// Between two tries for a lock that somebody has.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(64);

impl File {
    /// Writes everything that was written to this file, and what is known about it, to the medium (fsync(2)).
    ///
    /// It covers writes that were awaited before it starts, and those that were dropped before. Writes in flight beside it
    /// may be covered or not.
    ///
    /// # Errors
    ///
    /// Those of fsync(2), and that of a dropped write or sync that failed: each is told once, to the first who asks. A sync
    /// that failed is not tried again; if both an earlier change and this sync failed, the earlier error is told and
    /// this one by the next sync or close. The kernel may have thrown away what it could not write, so a later `Ok`
    /// does not say that it is there.
    ///
    /// # Cancel safety
    ///
    /// It goes on, and if it fails the next sync says so.
    #[doc(alias = "IORING_OP_FSYNC")]
    pub async fn sync_all(&self) -> io::Result<()> {
        self.sync(false).await
    }

    /// As [`sync_all`](Self::sync_all), without what is not needed to find the data again, as the times (fdatasync(2)).
    ///
    /// # Errors
    ///
    /// As [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    ///
    /// As [`sync_all`](Self::sync_all).
    #[doc(alias = "IORING_OP_FSYNC")]
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync(true).await
    }

    async fn sync(&self, data_only: bool) -> io::Result<()> {
        let result = if coop::has_opcode(fsync::CODE) {
            self.change(|change| Fsync::new(change, data_only)).await
        } else {
            let sync = if data_only { std::fs::File::sync_data } else { std::fs::File::sync_all };
            self.change_offloaded(Kind::Sync, sync).await
        };
        self.told(result)
    }

    /// Has the kernel write what was written to a range to the medium, and waits for that; a `len` of 0, or of
    /// 4 GiB and more, means up to the end.
    ///
    /// It is no sync: neither what is needed to find the bytes again, as the length of a file that grew, nor the
    /// medium's own cache is cared for. It spreads the work of a later [`sync_data`](Self::sync_data), in a file whose
    /// room was reserved and written before.
    ///
    /// # Errors
    ///
    /// Those of sync_file_range(2), and that of a dropped change, as a sync.
    ///
    /// # Cancel safety
    ///
    /// As [`sync_all`](Self::sync_all).
    #[doc(alias = "IORING_OP_SYNC_FILE_RANGE")]
    pub async fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        check(offset)?;
        check(offset.saturating_add(len))?;
        // The ring's lengths have 32 bits.
        let len = u32::try_from(len).unwrap_or(0);
        let result = self.change(|change| SyncRange::new(change, offset, len)).await;
        self.told(result)
    }

    /// Both an earlier change whose future is gone and this one may have failed. The earlier error is told, since it is
    /// older news; this one is kept for the next who asks.
    pub(super) fn told(&self, result: io::Result<()>) -> io::Result<()> {
        let earlier = self.open.take_error();
        if let (Err(_), Err(error)) = (&earlier, &result) {
            self.open.keep_error(error);
        }
        earlier.and(result)
    }

    /// Cuts the file, or lets it grow with zeros that take no room. Before kernel 6.9 on the blocking pool.
    ///
    /// # Errors
    ///
    /// Those of ftruncate(2); `InvalidInput` from 2^63 on.
    ///
    /// # Cancel safety
    ///
    /// It may happen or not; operations that start later wait until that is decided.
    #[doc(alias = "IORING_OP_FTRUNCATE")]
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        check(len)?;
        if coop::has_opcode(ftruncate::CODE) {
            return self.change(|change| Ftruncate::new(change, len)).await;
        }
        self.change_offloaded(Kind::Truncate, move |file| file.set_len(len)).await
    }

    /// Reserves room for a range, so that writing there cannot fail for want of it. The file grows if it is shorter; new
    /// bytes are zeros.
    ///
    /// # Errors
    ///
    /// Those of fallocate(2): `EOPNOTSUPP` where the file system cannot, `EINVAL` for an empty range.
    ///
    /// # Cancel safety
    ///
    /// As [`set_len`](Self::set_len).
    #[doc(alias = "IORING_OP_FALLOCATE")]
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.range(Range::Reserve, offset, len).await
    }

    /// Gives the room of a range back; it reads as zeros, and the length stays.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate).
    ///
    /// # Cancel safety
    ///
    /// As [`set_len`](Self::set_len).
    #[doc(alias = "IORING_OP_FALLOCATE")]
    pub async fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.range(Range::PunchHole, offset, len).await
    }

    async fn range(&self, what: Range, offset: u64, len: u64) -> io::Result<()> {
        check(offset)?;
        check(len)?;
        self.change(|change| Fallocate::new(change, what, offset, len)).await
    }

    /// Tells the kernel how a range will be read; a `len` of 0 means up to the end.
    ///
    /// # Errors
    ///
    /// Those of posix_fadvise(2).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing but speed.
    #[doc(alias = "IORING_OP_FADVISE")]
    pub async fn advise(&self, advice: Advice, offset: u64, len: u32) -> io::Result<()> {
        check(offset)?;
        Way::goes_to_ring(&self.open);
        submit(Fadvise::new(Arc::clone(&self.open), advice, offset, len)).await.0
    }

    /// What is known about the file that is open, whatever its path leads to by now.
    ///
    /// # Errors
    ///
    /// Those of statx(2).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(alias = "IORING_OP_STATX")]
    pub async fn metadata(&self) -> io::Result<Metadata> {
        self.open.settled().await;
        let file = Arc::clone(&self.open);
        if let Some(metadata) = cached::of_file(&file).await {
            return Ok(metadata);
        }
        if coop::has_opcode(statx::CODE) {
            Way::goes_to_ring(&self.open);
            return submit(Statx::of_file(file, MASK)).await.map(|status| Metadata::new(&status));
        }
        offload(Kind::Stat, move || file.with_std(std::fs::File::metadata)).await.map(Metadata::from)
    }

    /// Changes the permissions, on the blocking pool: the ring has no opcode for it.
    ///
    /// # Errors
    ///
    /// Those of fchmod(2).
    ///
    /// # Cancel safety
    ///
    /// As [`set_len`](Self::set_len).
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.change_offloaded(Kind::Other, move |file| file.set_permissions(permissions)).await
    }

    /// Changes the times, on the blocking pool: the ring has no opcode for it.
    ///
    /// # Errors
    ///
    /// Those of futimens(2).
    ///
    /// # Cancel safety
    ///
    /// As [`set_len`](Self::set_len).
    pub async fn set_times(&self, times: FileTimes) -> io::Result<()> {
        self.change_offloaded(Kind::Other, move |file| file.set_times(times)).await
    }

    /// Waits for the exclusive lock of the file (flock(2), advisory; as std's `File::lock`).
    ///
    /// It tries, on the blocking pool, and again after a pause of 1 ms that doubles up to 64 ms: no thread is blocked, and
    /// there is no order among those who wait. The lock belongs to the open file, which clones share.
    ///
    /// # Errors
    ///
    /// Those of flock(2).
    ///
    /// # Cancel safety
    ///
    /// The lock is not held.
    pub async fn lock(&self) -> io::Result<()> {
        self.wait_for(std::fs::File::try_lock).await
    }

    /// Waits for a shared lock; otherwise like [`lock`](Self::lock).
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_shared(&self) -> io::Result<()> {
        self.wait_for(std::fs::File::try_lock_shared).await
    }

    /// Takes the exclusive lock if nobody has one.
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`] when somebody has; those of flock(2).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<(), TryLockError> {
        self.try_for(std::fs::File::try_lock).await
    }

    /// Takes a shared lock if nobody has the exclusive one.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.try_for(std::fs::File::try_lock_shared).await
    }

    /// Gives the lock back.
    ///
    /// # Errors
    ///
    /// Those of flock(2).
    ///
    /// # Cancel safety
    ///
    /// It is given back once the call was started.
    pub async fn unlock(&self) -> io::Result<()> {
        self.change_offloaded(Kind::Other, std::fs::File::unlock).await
    }

    async fn wait_for(&self, attempt: fn(&std::fs::File) -> Result<(), TryLockError>) -> io::Result<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_for(attempt).await {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => runtime_core::time::sleep(pause).await,
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn try_for(&self, attempt: fn(&std::fs::File) -> Result<(), TryLockError>) -> Result<(), TryLockError> {
        let file = Arc::clone(&self.open);
        let taken = self
            .change_offloaded(Kind::Other, move |std| match attempt(std) {
                Ok(()) => Ok(Ok(Taken(Some(file)))),
                Err(TryLockError::WouldBlock) => Ok(Err(TryLockError::WouldBlock)),
                Err(TryLockError::Error(error)) => Err(error),
            })
            .await
            .map_err(TryLockError::Error)?;
        taken.map(|mut taken| drop(taken.0.take()))
    }

    pub(crate) async fn change<O: Op<Output = (io::Result<()>, Change)>>(
        &self,
        op: impl FnOnce(Change) -> O,
    ) -> io::Result<()> {
        self.carry_out(op, |output| output).await
    }

    /// Carries a change out once those are over that were dropped; `part` takes the change out of what comes back.
    pub(super) async fn carry_out<O: Op, R>(
        &self,
        op: impl FnOnce(Change) -> O,
        part: impl FnOnce(O::Output) -> (R, Change),
    ) -> R {
        self.open.settled().await;
        Way::goes_to_ring(&self.open);
        let (change, watch) = self.open.change();
        let mut op = submit(op(change));
        // Declared last, so dropped first.
        let watch = watch;
        let (result, change) = part((&mut op).await);
        watch.over(change);
        result
    }

    pub(crate) async fn change_offloaded<T, F>(&self, kind: Kind, job: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&std::fs::File) -> io::Result<T> + Send + 'static,
    {
        self.open.settled().await;
        let (mut change, watch) = self.open.change();
        let job = offload(kind, move || {
            let result = change.file().with_std(job);
            change.ended(&result);
            Ok((result, change))
        });
        let mut job = std::pin::pin!(job);
        // Declared last, so dropped first.
        let watch = watch;
        let (result, change) = job.as_mut().await?;
        watch.over(change);
        result
    }
}

/// A lock that was taken for a future that may be gone: given back unless the future comes for it.
struct Taken(Option<Arc<OpenFile>>);

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // Never blocks. Nobody is there to hear of an error.
            let _ = file.with_std(std::fs::File::unlock);
        }
    }
}
