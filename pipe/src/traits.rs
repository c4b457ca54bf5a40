//! The traits of `runtime::io` for the ends of a pipe, owned or borrowed.

use std::future::Future;
use std::io;

use runtime_core::buf::{BufResult, IoBuf, IoBufMut};
use runtime_core::ends::{End, Sink, Source, View};
use runtime_core::io::{AsyncRead, AsyncWrite};

use crate::{Receiver, Sender};

macro_rules! ends {
    ($($sender:ty, $receiver:ty;)*) => {$(
        impl AsyncRead for $receiver {
            fn read<B: IoBufMut>(&mut self, buf: B) -> impl Future<Output = BufResult<usize, B>> {
                Receiver::read(self, buf)
            }

            fn read_vectored<B: IoBufMut>(&mut self, bufs: Vec<B>) -> impl Future<Output = BufResult<usize, Vec<B>>> {
                Receiver::read_vectored(self, bufs)
            }

            fn read_exact<B: IoBufMut>(&mut self, buf: B) -> impl Future<Output = BufResult<(), B>> {
                Receiver::read_exact(self, buf)
            }

            fn read_view(&mut self) -> View<'_> {
                View::Stream(self.source())
            }
        }

        /// Nothing is held back, so `flush` has nothing to do. Nor has `shutdown`: a pipe ends when its sender is dropped.
        impl AsyncWrite for $sender {
            fn write<B: IoBuf>(&mut self, buf: B) -> impl Future<Output = BufResult<usize, B>> {
                Sender::write(self, buf)
            }

            fn write_vectored<B: IoBuf>(&mut self, bufs: Vec<B>) -> impl Future<Output = BufResult<usize, Vec<B>>> {
                Sender::write_vectored(self, bufs)
            }

            fn write_all<B: IoBuf>(&mut self, buf: B) -> impl Future<Output = BufResult<(), B>> {
                Sender::write_all(self, buf)
            }

            async fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }

            async fn shutdown(&mut self) -> io::Result<()> {
                Ok(())
            }

            fn write_view(&mut self) -> Option<End<'_>> {
                Some(self.sink())
            }
        }
    )*};
}

ends! {
    Sender, Receiver;
    &Sender, &Receiver;
}
