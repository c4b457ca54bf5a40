//! [`AsyncWrite`]: what a sink of bytes can do.

use std::future::Future;
use std::io;

use super::is_interrupted;
use super::read::{believable, restore};
use crate::buf::{BufResult, IoBuf};
use crate::ends::End;

/// A sink for bytes from owned buffers.
///
/// As with [`AsyncRead`](super::AsyncRead), there is no `dyn AsyncWrite`, and the futures stay on their thread.
///
/// # Examples
///
/// ```
/// use runtime_core::io::{AsyncWrite, AsyncWriteExt};
///
/// async fn frame<W: AsyncWrite>(sink: &mut W, body: &'static str) -> std::io::Result<()> {
///     sink.write_u16(body.len() as u16).await?;
///     sink.write_all(body).await.0?;
///     sink.flush().await
/// }
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut sent = Vec::new();
/// frame(&mut sent, "hello").await?;
/// assert_eq!(sent, b"\0\x05hello");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub trait AsyncWrite {
    /// Writes some of the buffer and returns the count.
    ///
    /// # Errors
    ///
    /// The sink's own.
    ///
    /// # Cancel safety
    ///
    /// Any part may have been written. Of sockets and pipes a later write starts only once this one is over.
    fn write<B: IoBuf>(&mut self, buf: B) -> impl Future<Output = BufResult<usize, B>>;

    /// Writes some of several buffers, in order. Without an implementation of the sink's own only the first buffer that
    /// is not empty is used.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// As [`write`](Self::write).
    fn write_vectored<B: IoBuf>(&mut self, bufs: Vec<B>) -> impl Future<Output = BufResult<usize, Vec<B>>> {
        write_first(self, bufs)
    }

    /// Writes the whole buffer. Interrupted writes are tried again.
    ///
    /// # Errors
    ///
    /// `WriteZero` when the sink takes nothing any more, otherwise its own; some of the buffer may have been written.
    ///
    /// # Cancel safety
    ///
    /// As [`write`](Self::write).
    fn write_all<B: IoBuf>(&mut self, buf: B) -> impl Future<Output = BufResult<(), B>> {
        write_whole(self, buf)
    }

    /// Writes all of several buffers, in order, however many there are.
    ///
    /// # Errors
    ///
    /// As [`write_all`](Self::write_all).
    ///
    /// # Cancel safety
    ///
    /// As [`write`](Self::write).
    fn write_all_vectored<B: IoBuf>(&mut self, bufs: Vec<B>) -> impl Future<Output = BufResult<(), Vec<B>>> {
        write_each(self, bufs)
    }

    /// Passes on what the sink holds back. Sockets and pipes hold nothing back.
    ///
    /// # Errors
    ///
    /// Those of writing.
    ///
    /// # Cancel safety
    ///
    /// As [`write`](Self::write), for the bytes that were held back.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>>;

    /// Flushes and ends the stream: the reader at the other end sees its end. What that means for a sink is said by the
    /// sink.
    ///
    /// # Errors
    ///
    /// Those of writing and of ending.
    ///
    /// # Cancel safety
    ///
    /// As [`flush`](Self::flush); repeat it.
    fn shutdown(&mut self) -> impl Future<Output = io::Result<()>>;

    /// The end of a stream that every write goes to at once and unchanged, if that is what this is.
    #[doc(hidden)]
    fn write_view(&mut self) -> Option<End<'_>> {
        None
    }
}

async fn write_first<W: AsyncWrite + ?Sized, B: IoBuf>(writer: &mut W, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
    let Some(first) = bufs.iter().position(|buf| buf.init_len() > 0) else { return BufResult(Ok(0), bufs) };
    let buf = bufs.swap_remove(first);
    let BufResult(result, buf) = believable(writer.write(buf).await);
    restore(&mut bufs, first, buf);
    BufResult(result, bufs)
}

async fn write_whole<W: AsyncWrite + ?Sized, B: IoBuf>(writer: &mut W, mut buf: B) -> BufResult<(), B> {
    let mut written = 0;
    while written < buf.init_len() {
        let BufResult(result, part) = writer.write(buf.slice(written..)).await;
        let rest = part.init_len();
        buf = part.into_inner();
        match result {
            Ok(0) => return BufResult(Err(io::ErrorKind::WriteZero.into()), buf),
            Ok(n) => written += n.min(rest),
            Err(error) if is_interrupted(&error) => {}
            Err(error) => return BufResult(Err(error), buf),
        }
    }
    BufResult(Ok(()), buf)
}

async fn write_each<W: AsyncWrite + ?Sized, B: IoBuf>(writer: &mut W, mut bufs: Vec<B>) -> BufResult<(), Vec<B>> {
    for at in 0..bufs.len() {
        let buf = bufs.swap_remove(at);
        let BufResult(result, buf) = writer.write_all(buf).await;
        restore(&mut bufs, at, buf);
        if result.is_err() {
            return BufResult(result, bufs);
        }
    }
    BufResult(Ok(()), bufs)
}

/// The methods of [`AsyncWrite`], done by what `$inner` says.
macro_rules! pass_writes_on {
    ($self:ident => $inner:expr) => {
        fn write<B: IoBuf>(&mut $self, buf: B) -> impl Future<Output = BufResult<usize, B>> {
            $inner.write(buf)
        }

        fn write_vectored<B: IoBuf>(&mut $self, bufs: Vec<B>) -> impl Future<Output = BufResult<usize, Vec<B>>> {
            $inner.write_vectored(bufs)
        }

        fn write_all<B: IoBuf>(&mut $self, buf: B) -> impl Future<Output = BufResult<(), B>> {
            $inner.write_all(buf)
        }

        fn write_all_vectored<B: IoBuf>(&mut $self, bufs: Vec<B>) -> impl Future<Output = BufResult<(), Vec<B>>> {
            $inner.write_all_vectored(bufs)
        }

        fn flush(&mut $self) -> impl Future<Output = io::Result<()>> {
            $inner.flush()
        }

        fn shutdown(&mut $self) -> impl Future<Output = io::Result<()>> {
            $inner.shutdown()
        }
    };
}

pub(super) use pass_writes_on;

impl<W: AsyncWrite + ?Sized> AsyncWrite for &mut W {
    pass_writes_on!(self => (**self));

    fn write_view(&mut self) -> Option<End<'_>> {
        (**self).write_view()
    }
}

impl<W: AsyncWrite + ?Sized> AsyncWrite for Box<W> {
    pass_writes_on!(self => (**self));

    fn write_view(&mut self) -> Option<End<'_>> {
        (**self).write_view()
    }
}
