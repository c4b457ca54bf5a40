//! [`AsyncReadExt`]: what can be done with any source.

use std::future::Future;
use std::io;

use super::numbers::read_numbers;
use super::{AsyncRead, CHUNK_BYTES, Chain, Take, allocate, is_interrupted, reserve};
use crate::buf::BufResult;

/// What can be done with any [`AsyncRead`].
///
/// # Examples
///
/// ```
/// use runtime_core::io::AsyncReadExt;
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut source = &b"\x01\x02\x03\x04the rest"[..];
/// assert_eq!(source.read_u32().await?, 0x01020304);
/// let mut rest = String::new();
/// source.read_to_string(&mut rest).await?;
/// assert_eq!(rest, "the rest");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub trait AsyncReadExt: AsyncRead {
    /// Appends everything up to the end of the source to `buf` and returns the count. It is read in pieces of 64 KiB,
    /// so a source of a few bytes that claims to be large costs little; bound one that may be endless with
    /// [`take`](Self::take). Interrupted reads are tried again.
    ///
    /// # Errors
    ///
    /// The source's own; `OutOfMemory`. What came before is in `buf`.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing: what came is in `buf`, the rest is still to be read. Call it again with the same `buf` to go on.
    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> impl Future<Output = io::Result<usize>> {
        read_to_end(self, buf)
    }

    /// Appends everything up to the end of the source to `buf` and returns the count in bytes.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it is not UTF-8; the inner error is a [`FromUtf8Error`](std::string::FromUtf8Error) that has
    /// the bytes. Otherwise as [`read_to_end`](Self::read_to_end). `buf` is changed only by a success.
    ///
    /// # Cancel safety
    ///
    /// What had come is lost, since half of a character fits into no `String`. Where that matters, use
    /// [`read_to_end`](Self::read_to_end) and convert the bytes.
    fn read_to_string(&mut self, buf: &mut String) -> impl Future<Output = io::Result<usize>> {
        read_to_string(self, buf)
    }

    /// The first `limit` bytes of this source as a source of their own. Works on `&mut` of a source too.
    fn take(self, limit: u64) -> Take<Self>
    where
        Self: Sized,
    {
        Take::new(self, limit)
    }

    /// This source and then `next`.
    fn chain<R: AsyncRead>(self, next: R) -> Chain<Self, R>
    where
        Self: Sized,
    {
        Chain::new(self, next)
    }

    read_numbers!();
}

impl<R: AsyncRead + ?Sized> AsyncReadExt for R {}

async fn read_to_end<R: AsyncRead + ?Sized>(reader: &mut R, buf: &mut Vec<u8>) -> io::Result<usize> {
    // Not into `buf` itself: that would be lost with a dropped read.
    let mut piece = allocate(CHUNK_BYTES)?;
    let before = buf.len();
    loop {
        if buf.len() >= piece.capacity() {
            // Before the read, so that what it brings has a place. What is small so far is not made large for it.
            reserve(buf, piece.capacity())?;
        }
        let result;
        BufResult(result, piece) = reader.read(piece).await;
        match result.map(|n| n.min(piece.len())) {
            Ok(0) => return Ok(buf.len() - before),
            Ok(n) => {
                piece.truncate(n);
                reserve(buf, piece.len())?;
                buf.extend_from_slice(&piece);
            }
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

async fn read_to_string<R: AsyncRead + ?Sized>(reader: &mut R, buf: &mut String) -> io::Result<usize> {
    let mut bytes = Vec::new();
    let n = read_to_end(reader, &mut bytes).await?;
    let text = String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    if buf.is_empty() {
        *buf = text;
    } else {
        buf.try_reserve(n).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        buf.push_str(&text);
    }
    Ok(n)
}
