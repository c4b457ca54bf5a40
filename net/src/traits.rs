//! The traits of `runtime::io` for streams and their halves, owned or borrowed.
//!
//! Every method is the stream's own, so that what it promises holds for generic code too: whole writes are not mixed with
//! those of others, and a dropped `read_exact` gives everything back.

use std::future::Future;
use std::io;
use std::net::Shutdown;

use runtime_core::buf::{BufResult, IoBuf, IoBufMut};
use runtime_core::ends::{End, Sink, Source, View};
use runtime_core::io::{AsyncRead, AsyncWrite};

use crate::tcp::split::{OwnedReadHalf, OwnedWriteHalf};
use crate::tcp::stream::TcpStream;
use crate::unix::stream::UnixStream;

macro_rules! reads {
    ($($(#[$doc:meta])? $for:ty => $type:ty;)*) => {$(
        $(#[$doc])?
        impl AsyncRead for $for {
            fn read<B: IoBufMut>(&mut self, buf: B) -> impl Future<Output = BufResult<usize, B>> {
                <$type>::read(self, buf)
            }

            fn read_vectored<B: IoBufMut>(&mut self, bufs: Vec<B>) -> impl Future<Output = BufResult<usize, Vec<B>>> {
                <$type>::read_vectored(self, bufs)
            }

            fn read_exact<B: IoBufMut>(&mut self, buf: B) -> impl Future<Output = BufResult<(), B>> {
                <$type>::read_exact(self, buf)
            }

            fn read_view(&mut self) -> View<'_> {
                View::Stream(self.source())
            }
        }
    )*};
}

macro_rules! writes {
    ($($(#[$doc:meta])? $for:ty => $type:ty, $shutdown:path;)*) => {$(
        $(#[$doc])?
        impl AsyncWrite for $for {
            fn write<B: IoBuf>(&mut self, buf: B) -> impl Future<Output = BufResult<usize, B>> {
                <$type>::write(self, buf)
            }

            fn write_vectored<B: IoBuf>(&mut self, bufs: Vec<B>) -> impl Future<Output = BufResult<usize, Vec<B>>> {
                <$type>::write_vectored(self, bufs)
            }

            fn write_all<B: IoBuf>(&mut self, buf: B) -> impl Future<Output = BufResult<(), B>> {
                <$type>::write_all(self, buf)
            }

            fn write_all_vectored<B: IoBuf>(&mut self, bufs: Vec<B>) -> impl Future<Output = BufResult<(), Vec<B>>> {
                <$type>::write_all_vectored(self, bufs)
            }

            async fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }

            fn shutdown(&mut self) -> impl Future<Output = io::Result<()>> {
                $shutdown(self)
            }

            fn write_view(&mut self) -> Option<End<'_>> {
                Some(self.sink())
            }
        }
    )*};
}

reads! {
    TcpStream => TcpStream;
    /// One stream, used from several places: reads are carried out one after the other.
    &TcpStream => TcpStream;
    UnixStream => UnixStream;
    /// One stream, used from several places: reads are carried out one after the other.
    &UnixStream => UnixStream;
    OwnedReadHalf => OwnedReadHalf;
    &OwnedReadHalf => OwnedReadHalf;
}

writes! {
    /// Nothing is held back, so `flush` has nothing to do. `shutdown` ends the writing direction.
    TcpStream => TcpStream, end_writing;
    /// One stream, used from several places: writes are carried out one after the other.
    &TcpStream => TcpStream, end_writing;
    /// Nothing is held back, so `flush` has nothing to do. `shutdown` ends the writing direction.
    UnixStream => UnixStream, end_unix_writing;
    /// One stream, used from several places: writes are carried out one after the other.
    &UnixStream => UnixStream, end_unix_writing;
    OwnedWriteHalf => OwnedWriteHalf, OwnedWriteHalf::shutdown;
    &OwnedWriteHalf => OwnedWriteHalf, OwnedWriteHalf::shutdown;
}

async fn end_writing(stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write).await
}

async fn end_unix_writing(stream: &UnixStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write).await
}
