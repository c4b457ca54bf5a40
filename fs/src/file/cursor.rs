//! Reading and writing where the cursor is. The cursor is this file's own: the kernel's is never used, so that nobody who
//! shares the open file moves it.
//!
//! All of it takes `&mut self`: two operations at the cursor at once do not compile. The cursor moves when an operation is
//! over, by what it did; one that is dropped leaves it where it was.

use std::io::{self, Seek, SeekFrom};

use runtime_core::buf::{self, BufResult, IoBuf, IoBufMut};
use runtime_core::ends::View;
use runtime_core::io::{AsyncRead, AsyncWrite};
use runtime_core::ladder::offload;
use runtime_core::op::Kind;
use runtime_core::op::read::NO_OFFSET;

use super::{File, check};

/// Where the next operation at the cursor goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cursor {
    At(u64),
    /// At the end, wherever that is: behind what was appended.
    End,
    /// The file cannot be sought: it goes where the kernel is.
    Stream,
}

impl File {
    /// Moves the cursor and returns where it is; behind the end is fine.
    ///
    /// # Errors
    ///
    /// `InvalidInput` before the start or beyond 2^63; `NotSeekable` for what has no positions, as a pipe; those of
    /// statx(2), which is asked for the length by [`SeekFrom::End`].
    ///
    /// # Cancel safety
    ///
    /// The cursor has not moved.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            _ if self.cursor == Cursor::Stream => return Err(not_seekable()),
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(by) => (self.offset().await?, by),
            SeekFrom::End(by) => (self.end().await?, by),
        };
        let at = base.checked_add_signed(by).filter(|&at| check(at).is_ok());
        let at = at.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the cursor cannot be there"))?;
        self.cursor = Cursor::At(at);
        Ok(at)
    }

    /// Where the cursor is.
    ///
    /// # Errors
    ///
    /// `NotSeekable` for what has no positions; after an append those of statx(2), which is asked for the length.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn stream_position(&mut self) -> io::Result<u64> {
        self.seek(SeekFrom::Current(0)).await
    }

    /// Moves the cursor to the start.
    ///
    /// # Errors
    ///
    /// `NotSeekable` for what has no positions.
    ///
    /// # Cancel safety
    ///
    /// It has not moved.
    pub async fn rewind(&mut self) -> io::Result<()> {
        self.seek(SeekFrom::Start(0)).await.map(drop)
    }

    async fn end(&self) -> io::Result<u64> {
        let metadata = self.metadata().await?;
        if !metadata.file_type().is_block_device() {
            return Ok(metadata.len());
        }
        // Only its own position knows where a device ends.
        let file = std::sync::Arc::clone(&self.open);
        offload(Kind::Other, move || file.with_std(|mut file| file.seek(SeekFrom::End(0)))).await
    }

    /// The offset for the kernel.
    async fn offset(&mut self) -> io::Result<u64> {
        match self.cursor {
            Cursor::At(at) => Ok(at),
            Cursor::Stream => Ok(NO_OFFSET),
            Cursor::End => {
                let at = self.end().await?;
                self.cursor = Cursor::At(at);
                Ok(at)
            }
        }
    }

    fn advance(&mut self, n: usize) {
        if let Cursor::At(at) = self.cursor {
            self.cursor = Cursor::At(at.saturating_add(n as u64));
        }
    }

    fn wrote(&mut self, n: usize) {
        if self.append && n > 0 && self.cursor != Cursor::Stream {
            self.cursor = Cursor::End;
        } else {
            self.advance(n);
        }
    }
}

fn not_seekable() -> io::Error {
    const ESPIPE: i32 = 29;
    io::Error::from_raw_os_error(ESPIPE)
}

/// Reads at the cursor.
///
/// A read that is dropped leaves the cursor where it was, so nothing is lost; of what cannot be sought, as a terminal or a
/// pipe, bytes that it took are lost.
impl AsyncRead for File {
    async fn read<B: IoBufMut>(&mut self, buf: B) -> BufResult<usize, B> {
        let offset = match self.offset().await {
            Ok(offset) => offset,
            Err(error) => return BufResult(Err(error), buf),
        };
        let BufResult(result, buf) = self.read_part(buf, 0, offset).await;
        self.advance(*result.as_ref().unwrap_or(&0));
        BufResult(result, buf)
    }

    async fn read_vectored<B: IoBufMut>(&mut self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        let offset = match self.offset().await {
            Ok(offset) => offset,
            Err(error) => return BufResult(Err(error), bufs),
        };
        if offset == NO_OFFSET {
            return self.read_first(bufs).await;
        }
        let BufResult(result, bufs) = self.read_vectored_at(bufs, offset).await;
        self.advance(*result.as_ref().unwrap_or(&0));
        BufResult(result, bufs)
    }

    async fn read_exact<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<(), B> {
        let offset = match self.offset().await {
            Ok(offset) => offset,
            Err(error) => return BufResult(Err(error), buf),
        };
        if offset != NO_OFFSET {
            let BufResult(result, buf) = self.read_exact_at(buf, offset).await;
            if result.is_ok() {
                self.advance(buf.capacity());
            }
            return BufResult(result, buf);
        }
        let mut at = buf::fill(&mut buf, &[]);
        while at < buf.capacity() {
            let BufResult(result, back) = self.read_part(buf, at, NO_OFFSET).await;
            buf = back;
            match result {
                Ok(0) => return BufResult(Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(n) => at += n,
                Err(error) if super::is_interrupted(&error) => {}
                Err(error) => return BufResult(Err(error), buf),
            }
        }
        BufResult(Ok(()), buf)
    }

    fn read_view(&mut self) -> View<'_> {
        match &mut self.cursor {
            Cursor::At(at) => View::File { open: &self.open, at },
            Cursor::End | Cursor::Stream => View::Opaque,
        }
    }
}

impl File {
    /// Into the first buffer with room: what cannot be sought is read in no particular hurry.
    async fn read_first<B: IoBufMut>(&mut self, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        for buf in &mut bufs {
            buf::fill(buf, &[]);
        }
        let Some(first) = bufs.iter().position(|buf| buf.capacity() > 0) else { return BufResult(Ok(0), bufs) };
        let rest = bufs.split_off(first + 1);
        let Some(buf) = bufs.pop() else { return BufResult(Ok(0), bufs) };
        let BufResult(result, buf) = self.read_part(buf, 0, NO_OFFSET).await;
        bufs.push(buf);
        bufs.extend(rest);
        BufResult(result, bufs)
    }
}

/// Writes at the cursor; a file that was opened to append writes at its end, and the cursor is then at the end as it is
/// when the cursor is next used.
///
/// A write that is dropped leaves the cursor where it was, and the next one waits until it is over: repeated, it lands in the
/// same place. Of a file that appends, the bytes may then be there twice. `flush` and `shutdown` do nothing, as nothing is
/// held back; what is written is durable after [`sync_data`](File::sync_data).
impl AsyncWrite for File {
    async fn write<B: IoBuf>(&mut self, buf: B) -> BufResult<usize, B> {
        let offset = match self.write_offset().await {
            Ok(offset) => offset,
            Err(error) => return BufResult(Err(error), buf),
        };
        let BufResult(result, buf) = self.write_part(buf, 0, offset).await;
        self.wrote(*result.as_ref().unwrap_or(&0));
        BufResult(result, buf)
    }

    async fn write_vectored<B: IoBuf>(&mut self, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        let offset = match self.write_offset().await {
            Ok(offset) => offset,
            Err(error) => return BufResult(Err(error), bufs),
        };
        if offset != NO_OFFSET {
            let BufResult(result, bufs) = self.write_vectored_at(bufs, offset).await;
            self.wrote(*result.as_ref().unwrap_or(&0));
            return BufResult(result, bufs);
        }
        let Some(first) = bufs.iter().position(|buf| buf.init_len() > 0) else { return BufResult(Ok(0), bufs) };
        let rest = bufs.split_off(first + 1);
        let Some(buf) = bufs.pop() else { return BufResult(Ok(0), bufs) };
        let BufResult(result, buf) = self.write_part(buf, 0, NO_OFFSET).await;
        bufs.push(buf);
        bufs.extend(rest);
        BufResult(result, bufs)
    }

    async fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl File {
    /// As `offset`, but without asking where the end is: who appends writes there anyway.
    async fn write_offset(&mut self) -> io::Result<u64> {
        if self.append && self.cursor != Cursor::Stream { Ok(0) } else { self.offset().await }
    }
}
