//! Reading and writing at offsets, which never moves a cursor.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use runtime_core::buf::{BufResult, IoBuf, IoBufMut};
use runtime_core::coop;
use runtime_core::ladder::read_at_inline;
use runtime_core::op::Kind;
use runtime_core::op::fsync::{self, Fsync};
use runtime_core::op::read::{Read, ReadVectored};
use runtime_core::op::write::{Write, WriteVectored};
use runtime_core::submit::{chain, submit};

use super::{File, check, is_interrupted};
use crate::way::Way;

/// What is read on this thread at most: more is copied as well by somebody else.
const INLINE_BYTES: usize = 64 * 1024;
const ECANCELED: i32 = 125;

/// What a read brought.
struct Part {
    n: usize,
    /// The file ends behind it, for certain.
    is_end: bool,
}

/// What is known of the sync that was linked to a write.
enum Synced {
    /// It ran after the write.
    Yes(io::Result<()>),
    NotSure,
}

/// What `read_to_end_at` asks for at first, and at least.
const FIRST_BYTES: usize = 8 * 1024;

impl File {
    /// Reads at an offset, up to the buffer's capacity, and returns the count: 0 at or behind the end. What is in
    /// memory is read on the spot where the file system allows that (ext4, xfs, btrfs, tmpfs; up to 64 KiB). Into a
    /// [`FixedBuf`](runtime_core::fixed::FixedBuf) it is a read into registered memory.
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
    pub async fn read_at<B: IoBufMut>(&self, mut buf: B, offset: u64) -> BufResult<usize, B> {
        if let Err(error) = check(offset) {
            return BufResult(Err(error), buf);
        }
        // The usual case of a file in memory first, ahead of the futures that everything else needs.
        let tried =
            if self.open.is_settled() { self.read_inline(&mut buf, 0, offset, Way::of(&self.open)) } else { None };
        if let Some(Ok(part)) = &tried
            && (part.is_end || part.n == buf.capacity())
        {
            return BufResult(Ok(part.n), buf);
        }
        let (result, buf) = self.read_once(buf, 0, offset, tried).await;
        BufResult(result.map(|part| part.n), buf)
    }

    /// Fills the buffer's whole capacity from an offset. Interrupted reads are tried again.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the file ends before; those of pread(2). The buffer comes back with what was read.
    ///
    /// # Cancel safety
    ///
    /// As [`read_at`](Self::read_at).
    pub async fn read_exact_at<B: IoBufMut>(&self, mut buf: B, offset: u64) -> BufResult<(), B> {
        let mut at = 0;
        while at < buf.capacity() {
            let here = offset.saturating_add(at as u64);
            if let Err(error) = check(here) {
                return BufResult(Err(error), buf);
            }
            let BufResult(result, back) = self.read_part(buf, at, here).await;
            buf = back;
            match result {
                Ok(0) => return BufResult(Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(n) => at += n,
                Err(error) if is_interrupted(&error) => {}
                Err(error) => return BufResult(Err(error), buf),
            }
        }
        BufResult(Ok(()), buf)
    }

    /// Appends everything from an offset to the end to `buf`, and returns the count. Reads until the file says that it
    /// ends, whatever it says about its length; the memory grows with what comes.
    ///
    /// # Errors
    ///
    /// Those of pread(2); `OutOfMemory`. The buffer comes back with what was read before.
    ///
    /// # Cancel safety
    ///
    /// As [`read_at`](Self::read_at); `buf` is dropped.
    pub async fn read_to_end_at(&self, mut buf: Vec<u8>, offset: u64) -> BufResult<usize, Vec<u8>> {
        let before = buf.len();
        let mut asked = false;
        loop {
            let come = buf.len() - before;
            let here = offset.saturating_add(come as u64);
            if let Err(error) = check(here) {
                return BufResult(Err(error), buf);
            }
            if buf.len() == buf.capacity() {
                let mut more = FIRST_BYTES.max(come);
                if come > 0 && !asked {
                    // It is larger than the first piece: now its length is worth a question.
                    asked = true;
                    let len = self.metadata().await.map_or(0, |metadata| metadata.len());
                    // One byte more shows the end without another allocation.
                    let rest = usize::try_from(len.saturating_sub(here)).unwrap_or(0).saturating_add(1);
                    // A file may say anything: such a wish is no reason to fail.
                    if rest > more && buf.try_reserve_exact(rest).is_ok() {
                        more = 0;
                    }
                }
                if buf.try_reserve(more).is_err() {
                    return BufResult(Err(io::ErrorKind::OutOfMemory.into()), buf);
                }
            }
            let at = buf.len();
            let (result, back) = self.read_once(buf, at, here, None).await;
            buf = back;
            match result {
                Ok(part) if part.n == 0 || part.is_end => return BufResult(Ok(buf.len() - before), buf),
                Ok(_) => {}
                Err(error) if is_interrupted(&error) => {}
                Err(error) => return BufResult(Err(error), buf),
            }
        }
    }

    /// Reads at an offset into several buffers, each filled before the next; into one it is a plain read. At most 1024
    /// (`IOV_MAX`) are used: more make a short read.
    ///
    /// # Errors
    ///
    /// Those of preadv(2).
    ///
    /// # Cancel safety
    ///
    /// As [`read_at`](Self::read_at).
    #[doc(alias = "IORING_OP_READV")]
    pub async fn read_vectored_at<B: IoBufMut>(&self, mut bufs: Vec<B>, offset: u64) -> BufResult<usize, Vec<B>> {
        if let Err(error) = check(offset) {
            return BufResult(Err(error), bufs);
        }
        match bufs.pop() {
            Some(buf) if bufs.is_empty() => {
                let BufResult(result, buf) = self.read_at(buf, offset).await;
                bufs.push(buf);
                BufResult(result, bufs)
            }
            last => {
                bufs.extend(last);
                if let Some(direct) = self.direct
                    && let Err(error) =
                        direct.check_all(bufs.iter().map(|buf| (buf.stable_ptr(), buf.capacity())), offset)
                {
                    return BufResult(Err(error), bufs);
                }
                self.open.settled().await;
                Way::goes_to_ring(&self.open);
                let (result, bufs, _file) = submit(ReadVectored::new(Arc::clone(&self.open), bufs, offset)).await;
                BufResult(result, bufs)
            }
        }
    }

    /// Writes at an offset and returns the count. From a [`FixedBuf`](runtime_core::fixed::FixedBuf) it is a write from
    /// registered memory. A file that was opened to append ignores the offset: Linux writes at the end.
    ///
    /// # Errors
    ///
    /// Those of pwrite(2).
    ///
    /// # Cancel safety
    ///
    /// Any part may have been written. Operations that start later on this file, or on a clone of it, wait until it is
    /// over.
    #[doc(alias = "IORING_OP_WRITE")]
    #[doc(alias = "IORING_OP_WRITE_FIXED")]
    pub async fn write_at<B: IoBuf>(&self, buf: B, offset: u64) -> BufResult<usize, B> {
        if let Err(error) = check(offset) {
            return BufResult(Err(error), buf);
        }
        self.write_part(buf, 0, offset).await
    }

    /// Writes the whole buffer at an offset. Interrupted writes are tried again.
    ///
    /// # Errors
    ///
    /// `WriteZero` when the file takes nothing any more; those of pwrite(2). Some of the buffer may have been written.
    ///
    /// # Cancel safety
    ///
    /// As [`write_at`](Self::write_at).
    pub async fn write_all_at<B: IoBuf>(&self, buf: B, offset: u64) -> BufResult<(), B> {
        self.write_whole(buf, offset).await
    }

    /// Writes the whole buffer at an offset, durably: with `Ok` a sync ran after the last byte, so the bytes and what
    /// is needed to find them again are on the medium, as after [`write_all_at`](Self::write_all_at) and
    /// [`sync_data`](Self::sync_data), in one submission. It covers all that was written to the file before.
    ///
    /// The sync is linked to the write (`IOSQE_IO_LINK`): the kernel starts it when the write is whole, without coming
    /// back to this thread. After a short write the rest and a sync are linked anew.
    ///
    /// # Errors
    ///
    /// As [`write_all_at`](Self::write_all_at) and [`sync_data`](Self::sync_data); `InvalidInput` for a file that was
    /// opened to append.
    ///
    /// # Cancel safety
    ///
    /// It is a dropped write *and* a dropped sync: any part may have been written or not, and be on the medium or not.
    /// Operations that start later on this file, or on a clone of it, wait until both are over.
    #[doc(alias = "IORING_OP_WRITE")]
    #[doc(alias = "IORING_OP_FSYNC")]
    pub async fn write_all_at_sync<B: IoBuf>(&self, mut buf: B, offset: u64) -> BufResult<(), B> {
        if self.append {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "a file that appends has no offsets to write at");
            return BufResult(Err(error), buf);
        }
        if buf.init_len() == 0 || !coop::has_opcode(fsync::CODE) {
            let BufResult(result, buf) = self.write_all_at(buf, offset).await;
            return match result {
                Ok(()) => BufResult(self.sync_data().await, buf),
                error => BufResult(error, buf),
            };
        }
        let mut written = 0;
        let result = loop {
            let here = offset.saturating_add(written as u64);
            if let Err(error) = check(here) {
                break Err(error);
            }
            let (result, back, synced) = self.write_and_sync(buf, written, here).await;
            buf = back;
            match result {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => written += n,
                Err(error) if is_interrupted(&error) => continue,
                Err(error) => break Err(error),
            }
            // A short write has broken the link: nothing was synced.
            if written == buf.init_len() {
                break match synced {
                    Synced::Yes(result) => result,
                    Synced::NotSure => return BufResult(self.sync_data().await, buf),
                };
            }
        };
        BufResult(self.told(result), buf)
    }

    /// Writes the bytes behind `skip`, and then syncs.
    async fn write_and_sync<B: IoBuf>(&self, buf: B, skip: usize, offset: u64) -> (io::Result<usize>, B, Synced) {
        if let Some(direct) = self.direct
            && let Err(error) = direct.check(buf.stable_ptr(), skip, buf.init_len(), offset)
        {
            return (Err(error), buf, Synced::NotSure);
        }
        let index = coop::registered(&buf);
        self.open.settled().await;
        Way::goes_to_ring(&self.open);
        let (write, write_watch) = self.open.change();
        let (sync, sync_watch) = self.open.change();
        let write = Write::new(write, buf, skip, offset).registered(index);
        let mut op = chain(write, Fsync::new(sync, true));
        // Declared last, so dropped first.
        let watches = (write_watch, sync_watch);
        let done = (&mut op).await;
        let ((result, buf, write), (synced, sync)) = (done.first, done.second);
        watches.0.over(write);
        watches.1.over(sync);
        let synced = match synced {
            // Not started, or started too early.
            Err(error) if error.raw_os_error() == Some(ECANCELED) => Synced::NotSure,
            Ok(()) if !done.is_linked => Synced::NotSure,
            result => Synced::Yes(result),
        };
        (result, buf, synced)
    }

    /// Writes several buffers at an offset, in order, and returns the count; of one it is a plain write. At most 1024
    /// (`IOV_MAX`) are used: more make a short write.
    ///
    /// # Errors
    ///
    /// Those of pwritev(2).
    ///
    /// # Cancel safety
    ///
    /// As [`write_at`](Self::write_at).
    #[doc(alias = "IORING_OP_WRITEV")]
    pub async fn write_vectored_at<B: IoBuf>(&self, mut bufs: Vec<B>, offset: u64) -> BufResult<usize, Vec<B>> {
        if let Err(error) = check(offset) {
            return BufResult(Err(error), bufs);
        }
        match bufs.pop() {
            Some(buf) if bufs.is_empty() => {
                let BufResult(result, buf) = self.write_part(buf, 0, offset).await;
                bufs.push(buf);
                BufResult(result, bufs)
            }
            last => {
                bufs.extend(last);
                if let Some(direct) = self.direct
                    && let Err(error) =
                        direct.check_all(bufs.iter().map(|buf| (buf.stable_ptr(), buf.init_len())), offset)
                {
                    return BufResult(Err(error), bufs);
                }
                let write = |change| WriteVectored::new(change, bufs, 0, offset);
                self.carry_out(write, |(result, bufs, change)| (BufResult(result, bufs), change)).await
            }
        }
    }

    /// Reads behind the `at` bytes of the buffer.
    pub(super) async fn read_part<B: IoBufMut>(&self, buf: B, at: usize, offset: u64) -> BufResult<usize, B> {
        let (result, buf) = self.read_once(buf, at, offset, None).await;
        BufResult(result.map(|part| part.n), buf)
    }

    /// The rungs of a read: from memory on this thread, the ring, a worker; see [`Way`]. It may have been tried inline.
    async fn read_once<B: IoBufMut>(
        &self,
        mut buf: B,
        at: usize,
        offset: u64,
        tried: Option<io::Result<Part>>,
    ) -> (io::Result<Part>, B) {
        if let Some(direct) = self.direct
            && let Err(error) = direct.check(buf.stable_ptr(), at, buf.capacity(), offset)
        {
            return (Err(error), buf);
        }
        self.open.settled().await;
        let mut way = Way::of(&self.open);
        if way == Way::Unknown {
            way = Way::learn(&self.open).await;
        }
        let mut n = 0;
        if way == Way::Memory {
            coop::proceed().await;
        }
        let tried = if tried.is_some() { tried } else { self.read_inline(&mut buf, at, offset, way) };
        if let Some(result) = tried {
            match result {
                Ok(part) if part.is_end || at + part.n == buf.capacity() => return (Ok(part), buf),
                Ok(part) => n = part.n,
                Err(error) => return (Err(error), buf),
            }
        }
        // The rest of a short count too, before it is believed to be the end.
        let on_worker = matches!(way, Way::Worker | Way::Kernel | Way::Memory);
        let index = coop::registered(&buf);
        Way::goes_to_ring(&self.open);
        let read = Read::new(Arc::clone(&self.open), buf, at + n, offset + n as u64);
        let (result, buf, _file) = submit(read.registered(index).on_worker(on_worker)).await;
        let result = match result {
            Ok(more) => {
                if way == Way::Disk && more > 0 && n > 0 {
                    Way::missed(&self.open);
                }
                Ok(Part { n: n + more, is_end: more == 0 && at + n < buf.capacity() })
            }
            // The next read meets it again.
            Err(_) if n > 0 => Ok(Part { n, is_end: false }),
            Err(error) => Err(error),
        };
        (result, buf)
    }

    /// The inline rung: `None` where it is not taken, or nothing was there.
    #[inline]
    fn read_inline<B: IoBufMut>(&self, buf: &mut B, at: usize, offset: u64, way: Way) -> Option<io::Result<Part>> {
        let no_wait = way == Way::Disk;
        let room = buf.capacity() - at;
        // Who registers memory wants the ring's operation on it.
        let is_fit = (1..=INLINE_BYTES).contains(&room) && buf.registered().is_none();
        let is_time = match way {
            Way::Disk => coop::prefers_inline() && Way::tries(&self.open),
            // No batch to be part of: anything else is a worker.
            Way::Memory => coop::has_budget(),
            _ => false,
        };
        if !is_fit || !is_time {
            return None;
        }
        match read_at_inline(self.as_fd(), buf, at, offset, no_wait) {
            Ok(n) => {
                coop::done_inline(Kind::Read, n);
                if n == room {
                    Way::hit(&self.open);
                }
                // Without `RWF_NOWAIT` a short count says the end, and it alone.
                Some(Ok(Part { n, is_end: !no_wait && n < room }))
            }
            // The ring says it right, whatever it is.
            Err(_) if no_wait => {
                Way::missed(&self.open);
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Writes the bytes behind `skip`.
    pub(super) async fn write_part<B: IoBuf>(&self, buf: B, skip: usize, offset: u64) -> BufResult<usize, B> {
        if let Some(direct) = self.direct
            && let Err(error) = direct.check(buf.stable_ptr(), skip, buf.init_len(), offset)
        {
            return BufResult(Err(error), buf);
        }
        let index = coop::registered(&buf);
        let write = |change| Write::new(change, buf, skip, offset).registered(index);
        self.carry_out(write, |(result, buf, change)| (BufResult(result, buf), change)).await
    }

    async fn write_whole<B: IoBuf>(&self, mut buf: B, offset: u64) -> BufResult<(), B> {
        let mut written = 0;
        while written < buf.init_len() {
            let here = offset.saturating_add(written as u64);
            if let Err(error) = check(here) {
                return BufResult(Err(error), buf);
            }
            let BufResult(result, back) = self.write_part(buf, written, here).await;
            buf = back;
            match result {
                Ok(0) => return BufResult(Err(io::ErrorKind::WriteZero.into()), buf),
                Ok(n) => written += n,
                Err(error) if is_interrupted(&error) => {}
                Err(error) => return BufResult(Err(error), buf),
            }
        }
        BufResult(Ok(()), buf)
    }
}
