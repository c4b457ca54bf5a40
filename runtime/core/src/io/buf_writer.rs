//! [`BufWriter`]: gathers small writes.
//!
//! ```text
//!  whole ──the memory, or a large write's own, goes to the sink──▶ away ──it comes back──▶ whole
//!    ▲                                                             │ dropped
//!    └──the next operation says so, once──── cut ◀─────────────────┘
//! ```

use std::fmt;
use std::future::Future;
use std::io;
use std::mem;

use super::buf_read::pass_buffer_on;
use super::read::{believable, believable_vectored, pass_reads_on, total_len};
use super::{AsyncBufRead, AsyncRead, AsyncWrite, CHUNK_BYTES, is_interrupted};
use crate::buf::{self, BufResult, IoBuf, IoBufMut};

/// Gathers small writes into pieces of 64 KiB. Flush it before it goes: dropping it drops what it holds.
///
/// # Cancel safety
///
/// What fits into the buffer is taken without waiting. While a flush is under way, alone or as a part of a write or a
/// shutdown, the buffer is lent to the kernel: when such a future is dropped, any part of what the buffer held may have
/// been written and the rest is lost, also of writes that had succeeded. Of a write that is too large for the buffer and
/// goes past it any part may have been written as well. The next operation says so with an error, once, so that a stream
/// with a hole is not taken for a whole one. Give whole frames their time limit, or give up the connection when it has
/// passed.
///
/// An *error* of the sink loses nothing: what was not written stays, and the next flush goes on with it. For that a flush
/// is as many writes as the sink needs, so give a stream that others write to as well (`&TcpStream`) whole frames with
/// `write_all` instead.
///
/// # Examples
///
/// ```
/// use runtime_core::io::{AsyncWrite, BufWriter};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut writer = BufWriter::new(Vec::new());
/// writer.write_all("one, ").await.0?;
/// writer.write_all("two").await.0?;
/// assert_eq!(writer.buffer(), b"one, two");
/// let sink = writer.into_inner().await?;
/// assert_eq!(sink, b"one, two");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct BufWriter<W> {
    inner: W,
    buf: Vec<u8>,
    capacity: usize,
    /// A flush or a write past the buffer is under way, or was dropped. Nothing is held back then.
    cut: bool,
}

impl<W> BufWriter<W> {
    /// Writes in pieces of 64 KiB.
    pub fn new(inner: W) -> Self {
        Self::with_capacity(CHUNK_BYTES, inner)
    }

    /// Writes in pieces of `capacity` bytes. With 0 nothing is held back.
    pub fn with_capacity(capacity: usize, inner: W) -> Self {
        Self { inner, buf: Vec::new(), capacity, cut: false }
    }

    /// What was taken and not written yet. Nothing after a dropped flush, which had all of it.
    pub fn buffer(&self) -> &[u8] {
        &self.buf
    }

    /// How many bytes it holds back at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The sink.
    pub fn get_ref(&self) -> &W {
        &self.inner
    }

    /// The sink. What is written to it directly overtakes what is held back here.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// The sink, and what was not written to it.
    ///
    /// # Errors
    ///
    /// In place of the bytes, when a flush or a write was dropped half-way and no operation has said so yet.
    pub fn into_parts(mut self) -> (W, io::Result<Vec<u8>>) {
        let told = self.check();
        (self.inner, told.map(|()| self.buf))
    }

    fn check(&mut self) -> io::Result<()> {
        if mem::take(&mut self.cut) { Err(hole()) } else { Ok(()) }
    }
}

/// Awaits a write past the buffer.
async fn past<T>(cut: &mut bool, writing: impl Future<Output = T>) -> T {
    *cut = true;
    let written = writing.await;
    *cut = false;
    written
}

#[cold]
fn hole() -> io::Error {
    let text =
        "a flush or a large write was dropped half-way: what it had may have been written in part, the rest is lost";
    io::Error::other(text)
}

impl<W: AsyncWrite> BufWriter<W> {
    /// Flushes, and gives the sink back.
    ///
    /// # Errors
    ///
    /// Those of writing; the writer, with what was not written, is in the error.
    ///
    /// # Cancel safety
    ///
    /// Any part of what was held back may have been written. The sink is dropped.
    pub async fn into_inner(mut self) -> Result<W, IntoInnerError<W>> {
        match self.flush_buffer().await {
            Ok(()) => Ok(self.inner),
            Err(error) => Err(IntoInnerError { error, writer: self }),
        }
    }

    async fn flush_buffer(&mut self) -> io::Result<()> {
        self.check()?;
        if self.buf.is_empty() {
            return Ok(());
        }
        self.cut = true;
        let mut buf = mem::take(&mut self.buf);
        let mut written = 0;
        // Not `write_all`: after an error it would not say how much is left.
        let result = loop {
            if written == buf.len() {
                break Ok(());
            }
            let BufResult(result, part) = self.inner.write(buf.slice(written..)).await;
            let rest = part.len();
            buf = part.into_inner();
            match result {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => written += n.min(rest),
                Err(error) if is_interrupted(&error) => {}
                Err(error) => break Err(error),
            }
        };
        self.cut = false;
        buf.drain(..written);
        self.buf = buf;
        result
    }

    /// Room for `len` bytes; says whether they are to be held back rather than written at once.
    async fn make_room(&mut self, len: usize) -> io::Result<bool> {
        self.check()?;
        if self.buf.len().saturating_add(len) > self.capacity {
            self.flush_buffer().await?;
        }
        if len >= self.capacity {
            return Ok(false);
        }
        let missing = self.capacity.saturating_sub(self.buf.len());
        self.buf.try_reserve_exact(missing).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(true)
    }
}

impl<W: AsyncWrite> AsyncWrite for BufWriter<W> {
    async fn write<B: IoBuf>(&mut self, buf: B) -> BufResult<usize, B> {
        match self.make_room(buf.init_len()).await {
            Ok(true) => {
                self.buf.extend_from_slice(buf::bytes(&buf));
                BufResult(Ok(buf.init_len()), buf)
            }
            Ok(false) => believable(past(&mut self.cut, self.inner.write(buf)).await),
            Err(error) => BufResult(Err(error), buf),
        }
    }

    async fn write_vectored<B: IoBuf>(&mut self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        let len = total_len(&bufs);
        match self.make_room(len).await {
            Ok(true) => {
                bufs.iter().for_each(|buf| self.buf.extend_from_slice(buf::bytes(buf)));
                BufResult(Ok(len), bufs)
            }
            Ok(false) => believable_vectored(past(&mut self.cut, self.inner.write_vectored(bufs)).await),
            Err(error) => BufResult(Err(error), bufs),
        }
    }

    async fn write_all<B: IoBuf>(&mut self, buf: B) -> BufResult<(), B> {
        match self.make_room(buf.init_len()).await {
            Ok(true) => {
                self.buf.extend_from_slice(buf::bytes(&buf));
                BufResult(Ok(()), buf)
            }
            Ok(false) => past(&mut self.cut, self.inner.write_all(buf)).await,
            Err(error) => BufResult(Err(error), buf),
        }
    }

    async fn write_all_vectored<B: IoBuf>(&mut self, bufs: Vec<B>) -> BufResult<(), Vec<B>> {
        let len = total_len(&bufs);
        match self.make_room(len).await {
            Ok(true) => {
                bufs.iter().for_each(|buf| self.buf.extend_from_slice(buf::bytes(buf)));
                BufResult(Ok(()), bufs)
            }
            Ok(false) => past(&mut self.cut, self.inner.write_all_vectored(bufs)).await,
            Err(error) => BufResult(Err(error), bufs),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.flush_buffer().await?;
        self.inner.flush().await
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        self.flush_buffer().await?;
        self.inner.shutdown().await
    }
}

/// Reads go past the buffer.
impl<W: AsyncRead> AsyncRead for BufWriter<W> {
    pass_reads_on!(self => self.inner);
}

impl<W: AsyncBufRead> AsyncBufRead for BufWriter<W> {
    pass_buffer_on!(self => self.inner);
}

impl<W: fmt::Debug> fmt::Debug for BufWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufWriter")
            .field("inner", &self.inner)
            .field("buffered", &self.buf.len())
            .field("capacity", &self.capacity)
            .finish()
    }
}

/// The flush of [`BufWriter::into_inner`] failed.
#[derive(Debug)]
pub struct IntoInnerError<W> {
    error: io::Error,
    writer: BufWriter<W>,
}

impl<W> IntoInnerError<W> {
    /// What went wrong.
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// The writer, with what was not written.
    pub fn into_inner(self) -> BufWriter<W> {
        self.writer
    }
}

impl<W> fmt::Display for IntoInnerError<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<W: fmt::Debug> std::error::Error for IntoInnerError<W> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<W> From<IntoInnerError<W>> for io::Error {
    fn from(error: IntoInnerError<W>) -> Self {
        error.error
    }
}
