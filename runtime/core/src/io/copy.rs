//! [`copy`] and [`copy_buf`].

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use super::{AsyncBufRead, AsyncRead, AsyncWrite, CHUNK_BYTES, allocate, is_interrupted, reserve};
use crate::buf::{BufResult, IoBuf};

/// Copies everything from `reader` to `writer`, up to the end of the source, and returns the count. The writer is
/// flushed whenever the source lets it wait, and at the end; it is not shut down.
///
/// One buffer of 64 KiB: with 16 KiB the CPU time doubles.
///
/// # Errors
///
/// Those of reading and writing; `WriteZero`. Interrupted reads are tried again.
///
/// # Cancel safety
///
/// Up to 64 KiB that were read and not written are lost, and how much was copied is not told. [`copy_buf`] from a
/// [`BufReader`](super::BufReader) keeps what is not written in the reader.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let (mut source, mut sink) = (&b"everything"[..], Vec::new());
/// assert_eq!(runtime_core::io::copy(&mut source, &mut sink).await?, 10);
/// assert_eq!(sink, b"everything");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub async fn copy<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: AsyncRead + ?Sized,
    W: AsyncWrite + ?Sized,
{
    let mut buf = allocate(CHUNK_BYTES)?;
    let (mut copied, mut unflushed) = (0, false);
    loop {
        let result;
        BufResult(result, buf) = flush_while_waiting(pin!(reader.read(buf)), writer, &mut unflushed).await?;
        match result.map(|n| n.min(buf.len())) {
            Ok(0) => break,
            Ok(n) => buf.truncate(n),
            Err(error) if is_interrupted(&error) => continue,
            Err(error) => return Err(error),
        }
        let len = buf.len() as u64;
        unflushed = true;
        (_, buf) = writer.write_all(buf).await.into_result()?;
        copied += len;
    }
    writer.flush().await?;
    Ok(copied)
}

/// As [`copy`], from a source that reads ahead, in pieces of at most 64 KiB. What is not written yet is still in the
/// reader.
///
/// # Errors
///
/// As [`copy`]; the reader then still has what was not written.
///
/// # Cancel safety
///
/// Nothing is lost: what is not written, or whose write was not over, is still in the reader. So what was being written
/// may be written twice when the copying starts again. How much was copied is not told.
///
/// # Examples
///
/// ```
/// use runtime_core::io::{BufReader, copy_buf};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let (mut source, mut sink) = (BufReader::new(&b"everything"[..]), Vec::new());
/// assert_eq!(copy_buf(&mut source, &mut sink).await?, 10);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub async fn copy_buf<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: AsyncBufRead + ?Sized,
    W: AsyncWrite + ?Sized,
{
    // The reader's memory is not ours to lend to the kernel.
    let mut piece = Vec::new();
    let (mut copied, mut unflushed) = (0, false);
    loop {
        if reader.buffer().is_empty() {
            flush_while_waiting(pin!(reader.fill_more()), writer, &mut unflushed).await??;
            if reader.buffer().is_empty() {
                break;
            }
        }
        piece.clear();
        // A source in memory has all of itself buffered.
        let next = reader.buffer();
        let next = &next[..next.len().min(CHUNK_BYTES)];
        reserve(&mut piece, next.len())?;
        piece.extend_from_slice(next);
        let mut written = 0;
        unflushed = true;
        while written < piece.len() {
            let BufResult(result, part) = writer.write(piece.slice(written..)).await;
            let rest = part.len();
            piece = part.into_inner();
            let n = match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => n.min(rest),
                Err(error) if is_interrupted(&error) => 0,
                Err(error) => return Err(error),
            };
            reader.consume(n);
            written += n;
            copied += n as u64;
        }
    }
    writer.flush().await?;
    Ok(copied)
}

/// Awaits a read. When it does not complete at once the writer is flushed meanwhile, so that nothing is held back while
/// there is nothing to add to it.
async fn flush_while_waiting<F: Future, W: AsyncWrite + ?Sized>(
    mut read: Pin<&mut F>,
    writer: &mut W,
    unflushed: &mut bool,
) -> io::Result<F::Output> {
    let at_once = poll_fn(|task| {
        Poll::Ready(match read.as_mut().poll(task) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    });
    if let Some(output) = at_once.await {
        return Ok(output);
    }
    if std::mem::take(unflushed) {
        writer.flush().await?;
    }
    Ok(read.await)
}
