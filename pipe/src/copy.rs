//! [`copy`]: from any reader to any writer, past the program where nobody looks at the bytes.
//!
//! Owns the choice of the way; knows nothing of how each of them goes.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use runtime_core::ends::{End, View};
use runtime_core::io::{AsyncRead, AsyncWrite};

use crate::relay::Relay;
use crate::send_file::send;
use crate::splice::Pair;

/// Copies everything from `reader` to `writer`, up to the end of the source, and returns the count. The writer is
/// flushed whenever the source lets it wait, and at the end; it is not shut down.
///
/// The way is chosen by what the two say they are, also behind references and boxes:
///
/// | from | to | how |
/// |---|---|---|
/// | a socket | a socket | as in [`Relay`](crate::Relay), through a buffer or, when much flows, by splice(2) through a private pipe |
/// | a pipe, a socket | a pipe, a socket | where one is a pipe, by splice(2), as [`splice`](crate::splice()) does it |
/// | a file | a socket, a pipe | as [`send_file`](crate::send_file()), from the file's cursor, which moves along |
/// | anything else | | through one buffer of 64 KiB |
///
/// Buffered readers and writers and those of your own are something else, as bytes have to pass through them. In each
/// case others who use the same stream may read and write between two pieces.
///
/// # Errors
///
/// Those of reading and writing; `WriteZero`. Interrupted reads are tried again.
///
/// # Cancel safety
///
/// How much was copied is not told. Between streams nothing is lost, and a file's cursor is behind what was written.
/// With anything else up to 64 KiB that were read and not written are lost; `copy_buf` from a `BufReader` keeps what is
/// not written in the reader.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let ((tx, mut from), (mut to, rx)) = (runtime_pipe::pipe()?, runtime_pipe::pipe()?);
/// tx.write_all("everything").await.0?;
/// drop(tx);
/// assert_eq!(runtime_pipe::copy(&mut from, &mut to).await?, 10); // the program has not seen the bytes
/// assert_eq!(rx.read(Vec::with_capacity(64)).await.1, b"everything");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub async fn copy<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: AsyncRead + ?Sized,
    W: AsyncWrite + ?Sized,
{
    if let Some(result) = directly(reader.read_view(), writer.write_view()).await {
        return result;
    }
    runtime_core::io::copy(reader, writer).await
}

async fn directly(from: View<'_>, to: Option<End<'_>>) -> Option<io::Result<u64>> {
    let to = to?;
    let moved = Cell::new(0);
    let result = match from {
        View::Opaque => return None,
        View::Stream(from) => stream(from, to, &moved).await,
        View::File { open, at } => {
            open.settled().await;
            let from = *at;
            let cursor = Advance { at, moved: &moved };
            match open.as_fd().try_clone_to_owned() {
                Ok(file) => send(Arc::new(file), from, u64::MAX, to, cursor.moved).await,
                Err(error) => Err(error),
            }
        }
    };
    Some(result.map(|()| moved.get()))
}

async fn stream(from: End<'_>, to: End<'_>, moved: &Cell<u64>) -> io::Result<()> {
    let mut pair = Pair::acquire(from, to).await?;
    pair.share();
    Relay::new().stream(&mut pair, moved).await
}

/// The cursor follows what was sent, also when the copying is dropped.
struct Advance<'a> {
    at: &'a mut u64,
    moved: &'a Cell<u64>,
}

impl Drop for Advance<'_> {
    fn drop(&mut self) {
        *self.at = self.at.saturating_add(self.moved.get());
    }
}
