//! [`Lines`] and [`Split`]: a source in parts.
//!
//! A part stays in the reader until all of it is there, so dropping the wait for it takes nothing; how far the reader has
//! been searched is kept here, so that starting again does not search again.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll};

use futures_core::Stream;

use super::AsyncBufRead;
use super::buf_read::{find, take_bytes, take_string};

/// The parts of a source between delimiters; from [`split`](super::AsyncBufReadExt::split).
#[derive(Debug)]
pub struct Split<R> {
    reader: R,
    delimiter: u8,
    max_len: usize,
    /// Bytes of the reader's buffer that are known to have no delimiter.
    seen: usize,
    /// A part that was too long is the end: what follows is the middle of it.
    ended: bool,
}

impl<R> Split<R> {
    pub(super) fn new(reader: R, delimiter: u8) -> Self {
        Self { reader, delimiter, max_len: usize::MAX, seen: 0, ended: false }
    }

    /// Bounds a part to `max_len` bytes without its delimiter. A longer one is the error `InvalidData` and then the end;
    /// its bytes are still in the reader.
    ///
    /// While it waits for the end of a part, a [`BufReader`](super::BufReader) holds at most `max_len` and its own
    /// capacity. The memory for that grows by doubling, so it is up to twice as much, and three times in the moment when
    /// it grows; in addition there are up to two capacities for the read in flight.
    #[must_use]
    pub fn max_len(mut self, max_len: usize) -> Self {
        self.max_len = max_len;
        self
    }

    /// The reader, with what is buffered in it.
    pub fn get_ref(&self) -> &R {
        &self.reader
    }

    /// The reader, with what is buffered in it.
    pub fn get_mut(&mut self) -> &mut R {
        self.seen = 0;
        &mut self.reader
    }

    /// The reader, with what is buffered in it: a part of which only some has come is among that.
    pub fn into_inner(self) -> R {
        self.reader
    }
}

impl<R: AsyncBufRead> Split<R> {
    /// The next part, without its delimiter; `None` at the end.
    ///
    /// # Errors
    ///
    /// As [`read_until_max`](super::AsyncBufReadExt::read_until_max). Further parts may follow, except after one that is
    /// too long.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing: a part of which only some has come stays in the reader.
    pub async fn next_segment(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(len) = self.find().await? else { return Ok(None) };
        let kept = len - usize::from(self.reader.buffer()[len - 1] == self.delimiter);
        take_bytes(&mut self.reader, len, kept).map(Some)
    }

    /// As [`next_segment`](Self::next_segment), in the order of an iterator.
    ///
    /// # Cancel safety
    ///
    /// As [`next_segment`](Self::next_segment).
    pub async fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        self.next_segment().await.transpose()
    }

    /// The length of the next part with its delimiter.
    async fn find(&mut self) -> io::Result<Option<usize>> {
        if self.ended {
            return Ok(None);
        }
        match find(&mut self.reader, self.delimiter, self.max_len, &mut self.seen).await {
            Ok(len) => {
                self.seen = 0;
                Ok((len > 0).then_some(len))
            }
            Err(error) => {
                // The source may have an `InvalidData` of its own.
                let too_long = self.reader.buffer().len() > self.max_len;
                self.ended = too_long && error.kind() == io::ErrorKind::InvalidData;
                Err(error)
            }
        }
    }
}

/// The lines of a source; from [`lines`](super::AsyncBufReadExt::lines).
///
/// # Examples
///
/// ```
/// use runtime_core::io::{AsyncBufReadExt, BufReader};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut lines = BufReader::new(&b"one\r\ntwo\nthree"[..]).lines();
/// while let Some(line) = lines.next().await {
///     println!("{}", line?);
/// }
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Lines<R> {
    split: Split<R>,
}

impl<R> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { split: Split::new(reader, b'\n') }
    }

    /// Bounds a line to `max_len` bytes without its `\n`. A longer one is the error `InvalidData` and then the end; its
    /// bytes are still in the reader. Without a bound a peer that sends no line ending makes the reader grow for as long
    /// as there is memory; with one to about twice the bound, as [`Split::max_len`] says.
    #[must_use]
    pub fn max_len(self, max_len: usize) -> Self {
        Self { split: self.split.max_len(max_len) }
    }

    /// The reader, with what is buffered in it.
    pub fn get_ref(&self) -> &R {
        self.split.get_ref()
    }

    /// The reader, with what is buffered in it.
    pub fn get_mut(&mut self) -> &mut R {
        self.split.get_mut()
    }

    /// The reader, with what is buffered in it: a line of which only some has come is among that.
    pub fn into_inner(self) -> R {
        self.split.into_inner()
    }
}

impl<R: AsyncBufRead> Lines<R> {
    /// The next line, without its `\n` or `\r\n`; `None` at the end. A last line needs no ending.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a line that is not UTF-8: it is skipped, and its bytes are in the error, whose inner error is a
    /// [`FromUtf8Error`](std::string::FromUtf8Error). `InvalidData` for a line that is longer than
    /// [`max_len`](Self::max_len), and then nothing more. Otherwise the source's own; what came stays in the reader.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing: a line of which only some has come stays in the reader.
    pub async fn next_line(&mut self) -> io::Result<Option<String>> {
        let Some(len) = self.split.find().await? else { return Ok(None) };
        let reader = &mut self.split.reader;
        let kept = match &reader.buffer()[..len] {
            [line @ .., b'\r', b'\n'] | [line @ .., b'\n'] | line => line.len(),
        };
        take_string(reader, len, kept).map(Some)
    }

    /// As [`next_line`](Self::next_line), in the order of an iterator.
    ///
    /// # Cancel safety
    ///
    /// As [`next_line`](Self::next_line).
    pub async fn next(&mut self) -> Option<io::Result<String>> {
        self.next_line().await.transpose()
    }

    /// The lines as a `Stream` of the futures ecosystem, which keeps what is in flight when a `next` of it is dropped.
    pub fn into_stream<'r>(self) -> LinesStream<'r, R>
    where
        R: 'r,
    {
        LinesStream::new(self)
    }
}

/// [`Lines`] as a futures `Stream`; from [`Lines::into_stream`].
///
/// It allocates when it is made, and for each line, but not for each read.
pub struct LinesStream<'r, R> {
    /// Reads line by line and puts each into its place; ends with the lines.
    reading: Option<Pin<Box<dyn Future<Output = ()> + 'r>>>,
    place: Rc<Place<R>>,
}

/// What the stream and its reading hand to each other.
struct Place<R> {
    line: Cell<Option<io::Result<String>>>,
    /// Once the reading is gone.
    lines: Cell<Option<Lines<R>>>,
}

/// Has the lines while they are read, and leaves them behind when the reading ends or is dropped.
struct Reading<R> {
    /// There until the end.
    lines: Option<Lines<R>>,
    place: Rc<Place<R>>,
}

impl<R: AsyncBufRead> Reading<R> {
    async fn run(mut self) {
        let Some(lines) = &mut self.lines else { return };
        while let Some(line) = lines.next().await {
            let mut line = Some(line);
            // Pending once per line: the stream takes it from its place.
            poll_fn(|_| match line.take() {
                Some(line) => {
                    self.place.line.set(Some(line));
                    Poll::Pending
                }
                None => Poll::Ready(()),
            })
            .await;
        }
    }
}

impl<R> Drop for Reading<R> {
    fn drop(&mut self) {
        self.place.lines.set(self.lines.take());
    }
}

impl<'r, R: AsyncBufRead + 'r> LinesStream<'r, R> {
    fn new(lines: Lines<R>) -> Self {
        let place = Rc::new(Place { line: Cell::new(None), lines: Cell::new(None) });
        let reading = Reading { lines: Some(lines), place: Rc::clone(&place) };
        Self { reading: Some(Box::pin(reading.run())), place }
    }
}

impl<R> LinesStream<'_, R> {
    /// The lines, with the reader. A read in flight is dropped as by [`Lines::next_line`], so nothing is lost: the next
    /// line is the one that this stream would have given.
    pub fn into_lines(mut self) -> Lines<R> {
        self.reading = None;
        self.place.lines.take().expect("the reading leaves the lines behind")
    }
}

impl<R> Stream for LinesStream<'_, R> {
    type Item = io::Result<String>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Self::Item>> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        if reading.as_mut().poll(task).is_ready() {
            self.reading = None;
            return Poll::Ready(None);
        }
        match self.place.line.take() {
            Some(line) => Poll::Ready(Some(line)),
            None => Poll::Pending,
        }
    }
}

impl<R> fmt::Debug for LinesStream<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinesStream").field("ended", &self.reading.is_none()).finish_non_exhaustive()
    }
}
