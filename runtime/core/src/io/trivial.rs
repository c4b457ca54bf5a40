//! [`empty`], [`sink`] and [`repeat`]: sources and sinks that never wait and have no end of their own.
//!
//! A loop over them would keep its thread, so they spend from their task's budget like an operation of the kernel.

use std::io;

use super::{AsyncBufRead, AsyncRead, AsyncWrite, spend};
use crate::buf::{self, BufResult, IoBuf, IoBufMut};

/// A source at its end, which is also a sink like [`sink`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Empty;

/// A sink that takes everything and keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sink;

/// A source of one byte, without end.
#[derive(Debug, Clone, Copy)]
pub struct Repeat {
    byte: u8,
}

/// A source at its end, which is also a sink like [`sink`].
///
/// ```
/// use runtime_core::io::{AsyncRead, empty};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// assert_eq!(empty().read(Vec::with_capacity(8)).await.0?, 0);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub fn empty() -> Empty {
    Empty
}

/// A sink that takes everything and keeps nothing.
///
/// ```
/// use runtime_core::io::{AsyncWrite, sink};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// sink().write_all("into the void").await.0?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub fn sink() -> Sink {
    Sink
}

/// A source of one byte, without end.
///
/// ```
/// use runtime_core::io::{AsyncReadExt, repeat};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut line = String::new();
/// repeat(b'-').take(4).read_to_string(&mut line).await?;
/// assert_eq!(line, "----");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub fn repeat(byte: u8) -> Repeat {
    Repeat { byte }
}

impl AsyncRead for Empty {
    async fn read<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<usize, B> {
        spend(0).await;
        buf::fill(&mut buf, &[]);
        BufResult(Ok(0), buf)
    }
}

impl AsyncBufRead for Empty {
    fn buffer(&self) -> &[u8] {
        &[]
    }

    async fn fill_more(&mut self) -> io::Result<usize> {
        spend(0).await;
        Ok(0)
    }

    fn consume(&mut self, _n: usize) {}
}

impl AsyncRead for Repeat {
    async fn read<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<usize, B> {
        let block = [self.byte; 1024];
        let room = buf.capacity();
        spend(room).await;
        let mut at = buf::fill(&mut buf, &[]);
        while at < room {
            at += buf::fill_at(&mut buf, at, &block);
        }
        BufResult(Ok(room), buf)
    }
}

macro_rules! take_everything {
    ($($type:ty)*) => {$(
        impl AsyncWrite for $type {
            async fn write<B: IoBuf>(&mut self, buf: B) -> BufResult<usize, B> {
                let n = buf.init_len();
                spend(n).await;
                BufResult(Ok(n), buf)
            }

            async fn write_vectored<B: IoBuf>(&mut self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
                let n = bufs.iter().fold(0usize, |sum, buf| sum.saturating_add(buf.init_len()));
                spend(n).await;
                BufResult(Ok(n), bufs)
            }

            async fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }

            async fn shutdown(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    )*};
}

take_everything!(Empty Sink);
