//! [`Take`]: the first bytes of a source.

use std::io;

use super::read::believable;
use super::{AsyncBufRead, AsyncRead};
use crate::buf::{self, BufResult, IoBufMut};

/// The first bytes of a source; from [`take`](super::AsyncReadExt::take).
///
/// # Cancel safety
///
/// Reads are those of the source: one that is dropped takes nothing, neither bytes nor from the limit.
/// [`read_exact`](AsyncRead::read_exact), and with it the numbers, is several of them, whatever the source's own is: when
/// it is dropped, what earlier reads of the same call brought is lost, and has counted. A [`BufReader`](super::BufReader)
/// *around* the `Take` keeps that, up to its capacity.
///
/// # Examples
///
/// ```
/// use runtime_core::io::AsyncReadExt;
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut source = &b"bodynext"[..];
/// let mut body = Vec::new();
/// (&mut source).take(4).read_to_end(&mut body).await?;
/// assert_eq!((&body[..], source), (&b"body"[..], &b"next"[..]));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Take<R> {
    inner: R,
    limit: u64,
}

impl<R> Take<R> {
    pub(super) fn new(inner: R, limit: u64) -> Self {
        Self { inner, limit }
    }

    /// How many bytes may still come.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Lets `limit` bytes come from now on.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The source.
    pub fn get_ref(&self) -> &R {
        &self.inner
    }

    /// The source. What is read from it directly does not count.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// The source, at the byte behind what was read.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// The limit, as far as it matters to a buffer of `len` bytes.
    fn at_most(&self, len: usize) -> usize {
        usize::try_from(self.limit).map_or(len, |limit| limit.min(len))
    }

    fn spend(&mut self, n: usize) {
        self.limit = self.limit.saturating_sub(n as u64);
    }
}

impl<R: AsyncRead> AsyncRead for Take<R> {
    async fn read<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<usize, B> {
        let room = buf.capacity();
        let limit = self.at_most(room);
        if limit == 0 {
            buf::fill(&mut buf, &[]);
            return BufResult(Ok(0), buf);
        }
        let BufResult(result, buf) = if limit == room {
            believable(self.inner.read(buf).await)
        } else {
            // A slice does not cut its buffer, so what was in it goes first.
            buf::fill(&mut buf, &[]);
            believable(self.inner.read(buf.slice(..limit)).await).map_buf(buf::Slice::into_inner)
        };
        if let Ok(n) = result {
            self.spend(n);
        }
        BufResult(result, buf)
    }

    // Not the source's `read_exact`: after one that failed or was dropped nobody knows how much it took, and a limit that
    // is too high lets the reader of a body go on into what follows it. The trait's own reads through `read`.
}

impl<R: AsyncBufRead> AsyncBufRead for Take<R> {
    fn buffer(&self) -> &[u8] {
        let buffer = self.inner.buffer();
        &buffer[..self.at_most(buffer.len())]
    }

    async fn fill_more(&mut self) -> io::Result<usize> {
        let before = self.buffer().len();
        if before as u64 == self.limit {
            return Ok(0);
        }
        self.inner.fill_more().await?;
        Ok(self.buffer().len().saturating_sub(before))
    }

    fn consume(&mut self, n: usize) {
        let n = n.min(self.buffer().len());
        self.spend(n);
        self.inner.consume(n);
    }
}
