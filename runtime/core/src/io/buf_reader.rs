//! [`BufReader`]: reads ahead in large pieces.
//!
//! ```text
//!  data │ consumed │ unread: the tail │      a read with an empty tail goes into this very memory
//!                    │ copied, if short
//!                    ▼
//!  next │ tail       │ what the read brings │ ── done ──▶ becomes data, and data's memory the spare
//! ```
//!
//! The memory of a read in flight belongs to the kernel and is gone when the read is dropped, so the tail, which nobody
//! could bring back, never travels with it: it stays in `data` until the read is over. A short tail is copied in front of
//! what comes, which keeps lines whole; that is at most 4 KiB a read, so a peer that sends byte by byte makes us copy less
//! than its reads cost anyhow. Behind a long tail (a line of megabytes that comes byte by byte) what comes is appended,
//! and the tail moves only when something before it was consumed or the memory grows, which it does by doubling.
//!
//! Memory that grew for something long is given back before the next read, which may take long, and when all of it is
//! consumed.

use std::fmt;
use std::future::Future;
use std::io;
use std::mem;

use super::read::{believable, believable_vectored};
use super::write::pass_writes_on;
use super::{AsyncBufRead, AsyncRead, AsyncWrite, CHUNK_BYTES, allocate, is_interrupted, reserve, spend};
use crate::buf::{self, BufResult, IoBuf, IoBufMut};

/// Reads ahead in pieces of 64 KiB, so that many small reads cost one operation.
///
/// The memory is allocated by the first read, and again by the first read after one that was dropped. In
/// general it is one or two times the capacity. It grows while something longer is waited for, which
/// [`max_len`](super::Split::max_len) bounds, and shrinks when that is over.
///
/// # Cancel safety
///
/// All its reads lose nothing when they are dropped, if its source keeps the bytes of a dropped read, as all sources of
/// this crate do; [`read_exact`](AsyncRead::read_exact) for more than the capacity, if the source's `read_exact` does.
///
/// # Examples
///
/// ```
/// use runtime_core::io::{AsyncBufRead, AsyncBufReadExt, BufReader};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut reader = BufReader::new(&b"key=value;rest"[..]);
/// let mut key = Vec::new();
/// reader.read_until(b'=', &mut key).await?;
/// assert_eq!(key, b"key=");
/// assert_eq!(reader.fill_buf().await?, b"value;rest");
/// reader.consume(6);
/// assert_eq!(reader.buffer(), b"rest");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct BufReader<R> {
    inner: R,
    data: Vec<u8>,
    /// Bytes of `data` that were consumed.
    at: usize,
    /// Memory for a read behind a tail.
    spare: Vec<u8>,
    capacity: usize,
}

/// A longer tail is not copied.
const SHORT_TAIL_BYTES: usize = 4096;

impl<R> BufReader<R> {
    /// Reads ahead in pieces of 64 KiB.
    pub fn new(inner: R) -> Self {
        Self::with_capacity(CHUNK_BYTES, inner)
    }

    /// Reads ahead in pieces of `capacity` bytes, at least one.
    pub fn with_capacity(capacity: usize, inner: R) -> Self {
        Self { inner, data: Vec::new(), at: 0, spare: Vec::new(), capacity: capacity.max(1) }
    }

    /// What is buffered and not consumed.
    pub fn buffer(&self) -> &[u8] {
        &self.data[self.at..]
    }

    /// How many bytes it reads at a time.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The source.
    pub fn get_ref(&self) -> &R {
        &self.inner
    }

    /// The source. What is read from it directly is missing here.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// The source; what is [buffered](Self::buffer) is lost.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// The source, and what was read ahead of it.
    pub fn into_parts(mut self) -> (R, Vec<u8>) {
        self.data.drain(..self.at);
        (self.inner, self.data)
    }

    /// Memory for the next read, of at least `self.capacity` bytes.
    fn memory(&mut self, tail: usize) -> io::Result<Vec<u8>> {
        let mut next = if tail == 0 {
            self.at = 0;
            mem::take(&mut self.data)
        } else {
            mem::take(&mut self.spare)
        };
        next.clear();
        if next.capacity() / 2 > self.capacity {
            // It grew for something long that is over.
            next = Vec::new();
        }
        next.try_reserve_exact(self.capacity).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(next)
    }
}

impl<R> BufReader<R> {
    /// Moves a tail that something long has left behind to memory of its own size, and `more`.
    fn shrink(&mut self, more: usize) {
        let tail = self.buffer();
        if self.data.capacity() / 2 <= self.capacity.max(2 * tail.len()) {
            return;
        }
        // Without memory for less, the old does.
        if let Ok(mut small) = allocate(tail.len().saturating_add(more)) {
            small.extend_from_slice(tail);
            (self.data, self.at) = (small, 0);
        }
    }
}

impl<R: AsyncRead> AsyncBufRead for BufReader<R> {
    fn buffer(&self) -> &[u8] {
        self.buffer()
    }

    async fn fill_more(&mut self) -> io::Result<usize> {
        let tail = self.data.len() - self.at;
        let carried = if tail <= SHORT_TAIL_BYTES.min(self.capacity / 2) { tail } else { 0 };
        if tail > 0 {
            self.shrink(if carried < tail { self.capacity } else { 0 });
        }
        if carried < tail {
            // Before the read, so that what it brings has a place.
            self.data.drain(..mem::take(&mut self.at));
            reserve(&mut self.data, self.capacity)?;
        }
        let mut next = self.memory(tail)?;
        next.extend_from_slice(&self.data[self.at..][..carried]);
        let result = loop {
            let BufResult(result, part) = self.inner.read(next.slice(carried..)).await;
            next = part.into_inner();
            match result {
                Err(error) if is_interrupted(&error) => {}
                result => break result,
            }
        };
        let came = next.len().saturating_sub(carried);
        if carried == tail {
            let old = mem::replace(&mut self.data, next);
            self.at = 0;
            if self.spare.capacity() == 0 {
                self.spare = old;
            }
        } else {
            self.data.extend_from_slice(&next[carried..]);
            self.spare = next;
        }
        result.map(|_| came)
    }

    fn consume(&mut self, n: usize) {
        self.at += n.min(self.data.len() - self.at);
        if self.at == self.data.len() && self.data.capacity() / 2 > self.capacity {
            (self.data, self.at) = (Vec::new(), 0);
        }
    }
}

impl<R: AsyncRead> BufReader<R> {
    /// Moves what is buffered into `buf`, behind its first `at` bytes, and returns how many bytes there are then.
    fn serve<B: IoBufMut>(&mut self, buf: &mut B, at: usize) -> usize {
        let n = buf::fill_at(buf, at, self.buffer());
        self.consume(n);
        at + n
    }
}

impl<R: AsyncRead> AsyncRead for BufReader<R> {
    async fn read<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<usize, B> {
        if buf.capacity() == 0 {
            return BufResult(Ok(0), buf);
        }
        if self.buffer().is_empty() {
            if buf.capacity() >= self.capacity {
                return believable(self.inner.read(buf).await);
            }
            if let Err(error) = self.fill_more().await {
                buf::fill(&mut buf, &[]);
                return BufResult(Err(error), buf);
            }
        } else {
            spend(buf.capacity().min(self.buffer().len())).await;
        }
        let n = self.serve(&mut buf, 0);
        BufResult(Ok(n), buf)
    }

    async fn read_vectored<B: IoBufMut>(&mut self, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        let room = bufs.iter().fold(0usize, |sum, buf| sum.saturating_add(buf.capacity()));
        if self.buffer().is_empty() && room > 0 {
            if room >= self.capacity {
                return believable_vectored(self.inner.read_vectored(bufs).await);
            }
            if let Err(error) = self.fill_more().await {
                bufs.iter_mut().for_each(|buf| _ = buf::fill(buf, &[]));
                return BufResult(Err(error), bufs);
            }
        } else {
            spend(room.min(self.buffer().len())).await;
        }
        let n = bufs.iter_mut().map(|buf| self.serve(buf, 0)).sum();
        BufResult(Ok(n), bufs)
    }

    async fn read_exact<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<(), B> {
        buf::fill(&mut buf, &[]);
        let wanted = buf.capacity();
        if wanted > self.capacity.max(self.buffer().len()) {
            // Past the buffer. What is buffered is copied, but consumed only when the rest is there.
            let at = buf::fill(&mut buf, self.buffer());
            let BufResult(result, part) = self.inner.read_exact(buf.slice(at..)).await;
            self.consume(at);
            let all = part.init_len() >= part.capacity();
            let result = result.and_then(|()| if all { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) });
            return BufResult(result, part.into_inner());
        }
        if self.buffer().len() >= wanted {
            spend(wanted).await;
        }
        while self.buffer().len() < wanted {
            let failure = match self.fill_more().await {
                Ok(0) => io::ErrorKind::UnexpectedEof.into(),
                Ok(_) => continue,
                Err(error) => error,
            };
            self.serve(&mut buf, 0);
            return BufResult(Err(failure), buf);
        }
        self.serve(&mut buf, 0);
        BufResult(Ok(()), buf)
    }
}

/// Writes go past the buffer.
impl<R: AsyncWrite> AsyncWrite for BufReader<R> {
    pass_writes_on!(self => self.inner);
}

impl<R: fmt::Debug> fmt::Debug for BufReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufReader")
            .field("inner", &self.inner)
            .field("buffered", &self.buffer().len())
            .field("capacity", &self.capacity)
            .finish()
    }
}
