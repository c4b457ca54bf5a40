//! [`BufStream`]: both directions of a stream buffered.

use std::future::Future;
use std::io;

use super::buf_read::pass_buffer_on;
use super::read::pass_reads_on;
use super::write::pass_writes_on;
use super::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, BufWriter, CHUNK_BYTES, IntoInnerError};
use crate::buf::{BufResult, IoBuf, IoBufMut};

/// A stream that reads ahead like a [`BufReader`] and gathers writes like a [`BufWriter`]. Their notes on dropped
/// futures hold here too.
///
/// # Examples
///
/// ```
/// use runtime_core::io::{AsyncWrite, BufStream};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut stream = BufStream::new(Vec::new());
/// stream.write_all("held back").await.0?;
/// assert_eq!(stream.get_ref(), b"");
/// stream.flush().await?;
/// assert_eq!(stream.get_ref(), b"held back");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct BufStream<S> {
    stream: BufReader<BufWriter<S>>,
}

impl<S> BufStream<S> {
    /// Reads and writes in pieces of 64 KiB.
    pub fn new(inner: S) -> Self {
        Self::with_capacity(CHUNK_BYTES, CHUNK_BYTES, inner)
    }

    /// Reads and writes in pieces of so many bytes.
    pub fn with_capacity(reader_capacity: usize, writer_capacity: usize, inner: S) -> Self {
        let writer = BufWriter::with_capacity(writer_capacity, inner);
        Self { stream: BufReader::with_capacity(reader_capacity, writer) }
    }

    /// The stream.
    pub fn get_ref(&self) -> &S {
        self.stream.get_ref().get_ref()
    }

    /// The stream. What is read from it or written to it directly goes past what is buffered.
    pub fn get_mut(&mut self) -> &mut S {
        self.stream.get_mut().get_mut()
    }
}

impl<S: AsyncWrite> BufStream<S> {
    /// Flushes, and gives the stream back; what was read ahead is lost.
    ///
    /// # Errors
    ///
    /// As [`BufWriter::into_inner`].
    ///
    /// # Cancel safety
    ///
    /// As [`BufWriter::into_inner`].
    pub async fn into_inner(self) -> Result<S, IntoInnerError<S>> {
        self.stream.into_inner().into_inner().await
    }
}

impl<S: AsyncRead> AsyncRead for BufStream<S> {
    pass_reads_on!(self => self.stream);
}

impl<S: AsyncRead> AsyncBufRead for BufStream<S> {
    pass_buffer_on!(self => self.stream);
}

impl<S: AsyncWrite> AsyncWrite for BufStream<S> {
    pass_writes_on!(self => self.stream);
}
