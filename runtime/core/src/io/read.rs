//! [`AsyncRead`]: what a source of bytes can do.

use std::future::Future;
use std::io;

use super::is_interrupted;
use crate::buf::{self, BufResult, IoBuf, IoBufMut};
use crate::ends::View;

/// A source of bytes that are read into owned buffers.
///
/// One method is required. The others are here rather than in [`AsyncReadExt`](super::AsyncReadExt) because a source
/// may know a better way, and with sockets the better way is also the one that loses nothing when it is dropped.
///
/// The methods return futures of types without a name, one per buffer type, so there is no `dyn AsyncRead`: take a type
/// parameter, or an enum of the sources that there are. The futures are not `Send`; they stay on their thread.
///
/// # Contract
///
/// An implementation that is dropped in the middle of [`read`](Self::read) keeps the bytes for the next one. Bytes are
/// written from the start of the buffer, and afterwards a buffer that has a length has the length of what was read.
///
/// # Examples
///
/// ```
/// use runtime_core::io::{AsyncRead, AsyncReadExt};
///
/// async fn header<R: AsyncRead>(source: &mut R) -> std::io::Result<(u16, Vec<u8>)> {
///     let len = source.read_u16().await?;
///     let body = source.read_exact(Vec::with_capacity(len.into())).await.into_result()?.1;
///     Ok((len, body))
/// }
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// assert_eq!(header(&mut &b"\0\x05helloworld"[..]).await?, (5, b"hello".to_vec()));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub trait AsyncRead {
    /// Reads up to the buffer's capacity and returns the count: 0 at the end, or when the buffer has no room.
    ///
    /// # Errors
    ///
    /// The source's own.
    ///
    /// # Cancel safety
    ///
    /// Bytes that were taken from the source are what the next read returns; the buffer is dropped.
    fn read<B: IoBufMut>(&mut self, buf: B) -> impl Future<Output = BufResult<usize, B>>;

    /// Reads into several buffers, each filled before the next. Without an implementation of the source's own only the
    /// first buffer with room is used.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    fn read_vectored<B: IoBufMut>(&mut self, bufs: Vec<B>) -> impl Future<Output = BufResult<usize, Vec<B>>> {
        read_first(self, bufs)
    }

    /// Reads until the buffer's whole capacity is filled. Interrupted reads are tried again.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the source ends before, otherwise the source's own. The buffer comes back with what came.
    ///
    /// # Cancel safety
    ///
    /// Sockets, pipes and [`BufReader`](super::BufReader)s of them lose nothing: what had come is what the next read
    /// returns. A source that does not say so itself loses what earlier reads of the same call brought.
    fn read_exact<B: IoBufMut>(&mut self, buf: B) -> impl Future<Output = BufResult<(), B>> {
        read_whole(self, buf)
    }

    /// What the reads amount to, so that bytes which nobody looks at need not pass through the program.
    #[doc(hidden)]
    fn read_view(&mut self) -> View<'_> {
        View::Opaque
    }
}

async fn read_first<R: AsyncRead + ?Sized, B: IoBufMut>(reader: &mut R, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
    for buf in &mut bufs {
        // Buffers behind the first hold nothing of this read.
        buf::fill(buf, &[]);
    }
    let Some(first) = bufs.iter().position(|buf| buf.capacity() > 0) else { return BufResult(Ok(0), bufs) };
    let buf = bufs.swap_remove(first);
    let BufResult(result, buf) = believable(reader.read(buf).await);
    restore(&mut bufs, first, buf);
    BufResult(result, bufs)
}

/// A foreign read's count, up to what the buffer says.
pub(super) fn believable<B: IoBuf>(BufResult(result, buf): BufResult<usize, B>) -> BufResult<usize, B> {
    BufResult(result.map(|n| n.min(buf.init_len())), buf)
}

/// The same for several buffers. A count that is too large is the sum of what they say.
pub(super) fn believable_vectored<B: IoBuf>(
    BufResult(result, bufs): BufResult<usize, Vec<B>>,
) -> BufResult<usize, Vec<B>> {
    BufResult(result.map(|n| n.min(total_len(&bufs))), bufs)
}

pub(super) fn total_len<B: IoBuf>(bufs: &[B]) -> usize {
    bufs.iter().fold(0, |sum, buf| sum.saturating_add(buf.init_len()))
}

/// Undoes a `swap_remove`.
pub(super) fn restore<B>(bufs: &mut Vec<B>, at: usize, buf: B) {
    bufs.push(buf);
    let last = bufs.len() - 1;
    bufs.swap(at, last);
}

async fn read_whole<R: AsyncRead + ?Sized, B: IoBufMut>(reader: &mut R, mut buf: B) -> BufResult<(), B> {
    // The length counts from the start, whatever the buffer held before.
    let mut at = buf::fill(&mut buf, &[]);
    while at < buf.capacity() {
        let BufResult(result, part) = reader.read(buf.slice(at..)).await;
        let came = part.init_len();
        buf = part.into_inner();
        match result.map(|n| n.min(came)) {
            Ok(0) => return BufResult(Err(io::ErrorKind::UnexpectedEof.into()), buf),
            Ok(n) => at += n,
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return BufResult(Err(error), buf),
        }
    }
    BufResult(Ok(()), buf)
}

/// The methods of [`AsyncRead`], done by what `$inner` says.
macro_rules! pass_reads_on {
    ($self:ident => $inner:expr) => {
        fn read<B: IoBufMut>(&mut $self, buf: B) -> impl Future<Output = BufResult<usize, B>> {
            $inner.read(buf)
        }

        fn read_vectored<B: IoBufMut>(&mut $self, bufs: Vec<B>) -> impl Future<Output = BufResult<usize, Vec<B>>> {
            $inner.read_vectored(bufs)
        }

        fn read_exact<B: IoBufMut>(&mut $self, buf: B) -> impl Future<Output = BufResult<(), B>> {
            $inner.read_exact(buf)
        }
    };
}

pub(super) use pass_reads_on;

impl<R: AsyncRead + ?Sized> AsyncRead for &mut R {
    pass_reads_on!(self => (**self));

    fn read_view(&mut self) -> View<'_> {
        (**self).read_view()
    }
}

impl<R: AsyncRead + ?Sized> AsyncRead for Box<R> {
    pass_reads_on!(self => (**self));

    fn read_view(&mut self) -> View<'_> {
        (**self).read_view()
    }
}
