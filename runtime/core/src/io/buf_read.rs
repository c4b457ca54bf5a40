//! [`AsyncBufRead`]: a source that keeps bytes ahead of its reader, and what can be found in them.

use std::future::Future;
use std::io;

use super::lines::{Lines, Split};
use super::{AsyncRead, reserve, spend};

/// A source that reads ahead into a buffer of its own.
///
/// Unlike std's trait it can read *more* behind what is buffered already. So whoever looks for something in the stream
/// leaves the bytes in the reader until it is there, and a search that is dropped half-way has taken nothing.
pub trait AsyncBufRead: AsyncRead {
    /// What is buffered and not consumed; no more is read for it.
    fn buffer(&self) -> &[u8];

    /// Reads more behind what is buffered and returns how many bytes that brought, 0 at the end of the source. The
    /// buffer grows beyond its usual size while nothing is consumed, so bound what you wait for. Interrupted reads are
    /// tried again.
    ///
    /// # Errors
    ///
    /// The source's own; `OutOfMemory`. What is buffered stays.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing: what is buffered stays, and the rest is still to be read.
    fn fill_more(&mut self) -> impl Future<Output = io::Result<usize>>;

    /// Takes the first `n` bytes out of the buffer; all of it, if it holds fewer.
    fn consume(&mut self, n: usize);

    /// What is buffered, after a read if that is nothing; empty at the end of the source.
    ///
    /// # Errors
    ///
    /// As [`fill_more`](Self::fill_more).
    ///
    /// # Cancel safety
    ///
    /// Loses nothing, as [`fill_more`](Self::fill_more).
    fn fill_buf(&mut self) -> impl Future<Output = io::Result<&[u8]>> {
        fill_buf(self)
    }
}

/// What can be done with any [`AsyncBufRead`].
///
/// # Examples
///
/// ```
/// use runtime_core::io::{AsyncBufReadExt, BufReader};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut reader = BufReader::new(&b"GET /\r\nHost: here\r\n\r\n"[..]);
/// let mut request = String::new();
/// reader.read_line(&mut request).await?;
/// assert_eq!(request, "GET /\r\n");
/// let mut headers = reader.lines().max_len(1000);
/// assert_eq!(headers.next_line().await?.as_deref(), Some("Host: here"));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub trait AsyncBufReadExt: AsyncBufRead {
    /// Appends everything up to and including the next `delimiter` to `buf`, or the rest of the source if there is none,
    /// and returns the count: 0 at the end. The reader grows until the delimiter comes, however far that is: of a peer
    /// that is not trusted use [`read_until_max`](Self::read_until_max).
    ///
    /// # Errors
    ///
    /// The source's own; `OutOfMemory`. What came before the error stays in the reader.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing: all bytes stay in the reader until the delimiter is there. `buf` is changed only at the end.
    fn read_until(&mut self, delimiter: u8, buf: &mut Vec<u8>) -> impl Future<Output = io::Result<usize>> {
        read_until(self, delimiter, usize::MAX, buf)
    }

    /// As [`read_until`](Self::read_until), with at most `max_len` bytes before the delimiter.
    ///
    /// # Errors
    ///
    /// `InvalidData` when there are more; all of them stay in the reader, which has read no further than that and its
    /// own capacity. Otherwise as [`read_until`](Self::read_until).
    ///
    /// # Cancel safety
    ///
    /// As [`read_until`](Self::read_until).
    fn read_until_max(
        &mut self,
        delimiter: u8,
        max_len: usize,
        buf: &mut Vec<u8>,
    ) -> impl Future<Output = io::Result<usize>> {
        read_until(self, delimiter, max_len, buf)
    }

    /// Appends the next line with its ending to `buf` and returns its length in bytes, 0 at the end. See
    /// [`read_until`](Self::read_until) about endless lines.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a line that is not UTF-8. As in std the line is gone from the reader then; the error has it: its
    /// inner error is a [`FromUtf8Error`](std::string::FromUtf8Error). Otherwise as [`read_until`](Self::read_until).
    ///
    /// # Cancel safety
    ///
    /// As [`read_until`](Self::read_until).
    fn read_line(&mut self, buf: &mut String) -> impl Future<Output = io::Result<usize>> {
        read_line(self, usize::MAX, buf)
    }

    /// As [`read_line`](Self::read_line), with at most `max_len` bytes before the `\n`.
    ///
    /// # Errors
    ///
    /// `InvalidData` when there are more, as [`read_until_max`](Self::read_until_max). Otherwise as
    /// [`read_line`](Self::read_line).
    ///
    /// # Cancel safety
    ///
    /// As [`read_until`](Self::read_until).
    fn read_line_max(&mut self, max_len: usize, buf: &mut String) -> impl Future<Output = io::Result<usize>> {
        read_line(self, max_len, buf)
    }

    /// Throws away everything up to and including the next `delimiter`, or the rest of the source, and returns the
    /// count. Needs no more memory than the reader's buffer.
    ///
    /// # Errors
    ///
    /// The source's own.
    ///
    /// # Cancel safety
    ///
    /// What was thrown away is gone; the rest is still to be read.
    fn skip_until(&mut self, delimiter: u8) -> impl Future<Output = io::Result<usize>> {
        skip_until(self, delimiter)
    }

    /// The lines of the source, without their `\n` or `\r\n`.
    fn lines(self) -> Lines<Self>
    where
        Self: Sized,
    {
        Lines::new(self)
    }

    /// The parts of the source between the `delimiter`s.
    fn split(self, delimiter: u8) -> Split<Self>
    where
        Self: Sized,
    {
        Split::new(self, delimiter)
    }
}

impl<R: AsyncBufRead + ?Sized> AsyncBufReadExt for R {}

async fn fill_buf<R: AsyncBufRead + ?Sized>(reader: &mut R) -> io::Result<&[u8]> {
    if reader.buffer().is_empty() {
        reader.fill_more().await?;
    }
    // Not by a dot: that would find the method of `&mut R`, and borrow the argument.
    Ok(R::buffer(reader))
}

async fn read_until<R: AsyncBufRead + ?Sized>(
    reader: &mut R,
    delimiter: u8,
    max_len: usize,
    buf: &mut Vec<u8>,
) -> io::Result<usize> {
    let len = find(reader, delimiter, max_len, &mut 0).await?;
    reserve(buf, len)?;
    buf.extend_from_slice(&reader.buffer()[..len]);
    reader.consume(len);
    Ok(len)
}

async fn read_line<R: AsyncBufRead + ?Sized>(reader: &mut R, max_len: usize, buf: &mut String) -> io::Result<usize> {
    let len = find(reader, b'\n', max_len, &mut 0).await?;
    buf.try_reserve(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    match std::str::from_utf8(&reader.buffer()[..len]) {
        Ok(line) => buf.push_str(line),
        // Takes the line out and says what is wrong with it.
        Err(_) => buf.push_str(&take_string(reader, len, len)?),
    }
    reader.consume(len);
    Ok(len)
}

async fn skip_until<R: AsyncBufRead + ?Sized>(reader: &mut R, delimiter: u8) -> io::Result<usize> {
    let mut skipped = 0;
    loop {
        let (len, found) = match position(delimiter, reader.fill_buf().await?) {
            Some(at) => (at + 1, true),
            None => (reader.buffer().len(), false),
        };
        reader.consume(len);
        skipped += len;
        if found || len == 0 {
            return Ok(skipped);
        }
    }
}

/// Waits until the buffer has a `delimiter`, or the source has ended, and returns the length of what ends there. `seen`
/// says how much of the buffer is known to have none; it is kept up to date at every await.
pub(super) async fn find<R: AsyncBufRead + ?Sized>(
    reader: &mut R,
    delimiter: u8,
    max_len: usize,
    seen: &mut usize,
) -> io::Result<usize> {
    let mut waited = false;
    loop {
        let buffered = reader.buffer();
        let found = buffered.get(*seen..).and_then(|new| position(delimiter, new)).map(|at| *seen + at);
        if found.unwrap_or(buffered.len()) > max_len {
            return Err(too_long(max_len));
        }
        if let Some(at) = found {
            if !waited {
                spend(at).await;
            }
            return Ok(at + 1);
        }
        *seen = buffered.len();
        waited = true;
        reader.fill_more().await?;
        // Not its count: that of a foreign reader may promise what never comes.
        if reader.buffer().len() <= *seen {
            return Ok(reader.buffer().len());
        }
    }
}

#[cold]
fn too_long(max_len: usize) -> io::Error {
    let text = format!("no delimiter within {max_len} bytes, which is the limit");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Takes the first `len` bytes out of the reader and returns the first `kept` of them as text.
pub(super) fn take_string<R: AsyncBufRead + ?Sized>(reader: &mut R, len: usize, kept: usize) -> io::Result<String> {
    let line = take_bytes(reader, len, kept)?;
    String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

pub(super) fn take_bytes<R: AsyncBufRead + ?Sized>(reader: &mut R, len: usize, kept: usize) -> io::Result<Vec<u8>> {
    let mut line = super::allocate(kept)?;
    line.extend_from_slice(&reader.buffer()[..kept]);
    reader.consume(len);
    Ok(line)
}

/// The first place of `byte`. std's own search for it is reachable through `BufRead` only.
fn position(byte: u8, bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    let passed = io::BufRead::skip_until(&mut rest, byte).ok()?;
    let last = passed.checked_sub(1)?;
    (bytes[last] == byte).then_some(last)
}

/// The methods of [`AsyncBufRead`], done by what `$inner` says.
macro_rules! pass_buffer_on {
    ($self:ident => $inner:expr) => {
        fn buffer(&$self) -> &[u8] {
            $inner.buffer()
        }

        fn fill_more(&mut $self) -> impl Future<Output = io::Result<usize>> {
            $inner.fill_more()
        }

        fn consume(&mut $self, n: usize) {
            $inner.consume(n);
        }
    };
}

pub(super) use pass_buffer_on;

impl<R: AsyncBufRead + ?Sized> AsyncBufRead for &mut R {
    pass_buffer_on!(self => (**self));
}

impl<R: AsyncBufRead + ?Sized> AsyncBufRead for Box<R> {
    pass_buffer_on!(self => (**self));
}

#[cfg(test)]
mod tests {
    use super::position;

    #[test]
    fn the_first_place_of_a_byte() {
        assert_eq!(position(b'x', b""), None);
        assert_eq!(position(b'x', b"abc"), None);
        assert_eq!(position(b'x', b"x"), Some(0));
        assert_eq!(position(b'x', b"abxcx"), Some(2));
        for at in 0..100 {
            let mut bytes = [0; 100];
            bytes[at] = 1;
            assert_eq!(position(1, &bytes), Some(at));
        }
    }
}
