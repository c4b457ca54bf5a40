//! Sources and sinks in memory: slices, `Vec<u8>`, `Cursor`.
//!
//! They never wait, and they are finite, so they do not spend from a task's budget.

use std::io::{self, Cursor, Write};

use super::{AsyncBufRead, AsyncRead, AsyncWrite, reserve};
use crate::buf::{self, BufResult, IoBuf, IoBufMut};

/// Reading moves the slice's start.
impl AsyncRead for &[u8] {
    async fn read<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<usize, B> {
        let n = buf::fill(&mut buf, self);
        *self = &self[n..];
        BufResult(Ok(n), buf)
    }
}

/// All that there is is buffered.
impl AsyncBufRead for &[u8] {
    fn buffer(&self) -> &[u8] {
        self
    }

    async fn fill_more(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    fn consume(&mut self, n: usize) {
        *self = &self[n.min(self.len())..];
    }
}

/// Reading moves the cursor.
impl<T: AsRef<[u8]>> AsyncRead for Cursor<T> {
    async fn read<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<usize, B> {
        let n = buf::fill(&mut buf, rest(self));
        self.set_position(self.position() + n as u64);
        BufResult(Ok(n), buf)
    }
}

/// All that there is is buffered.
impl<T: AsRef<[u8]>> AsyncBufRead for Cursor<T> {
    fn buffer(&self) -> &[u8] {
        rest(self)
    }

    async fn fill_more(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    fn consume(&mut self, n: usize) {
        let n = n.min(rest(self).len());
        self.set_position(self.position() + n as u64);
    }
}

fn rest<T: AsRef<[u8]>>(cursor: &Cursor<T>) -> &[u8] {
    let all = cursor.get_ref().as_ref();
    // A cursor may stand behind the end.
    usize::try_from(cursor.position()).ok().and_then(|at| all.get(at..)).unwrap_or(&[])
}

/// Writing appends.
impl AsyncWrite for Vec<u8> {
    async fn write<B: IoBuf>(&mut self, buf: B) -> BufResult<usize, B> {
        let bytes = buf::bytes(&buf);
        let result = reserve(self, bytes.len()).map(|()| {
            self.extend_from_slice(bytes);
            bytes.len()
        });
        BufResult(result, buf)
    }

    async fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        Ok(())
    }
}

macro_rules! as_std_writes {
    ($(#[$doc:meta] [$($generics:tt)*] $type:ty;)*) => {$(
        #[$doc]
        impl<$($generics)*> AsyncWrite for $type {
            async fn write<B: IoBuf>(&mut self, buf: B) -> BufResult<usize, B> {
                BufResult(Write::write(self, buf::bytes(&buf)), buf)
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

as_std_writes! {
    /// Writing moves the slice's start; a full one takes 0 bytes.
    [] &mut [u8];
    /// Writing overwrites and then appends.
    [] Cursor<Vec<u8>>;
    /// Writing overwrites and then appends.
    [] Cursor<&mut Vec<u8>>;
    /// Writing overwrites; at the end it takes 0 bytes.
    [] Cursor<&mut [u8]>;
    /// Writing overwrites; at the end it takes 0 bytes.
    [] Cursor<Box<[u8]>>;
    /// Writing overwrites; at the end it takes 0 bytes.
    [const N: usize] Cursor<[u8; N]>;
}
