//! [`Chain`]: one source behind another.
//!
//! Somebody may look for something that crosses the seam, and wants to see both sides in one piece:
//!
//! ```text
//!  first.buffer()  │ consumed │ the tail │             second.buffer()  │ shown │ more │
//!                             └────┬─────┘                              └───┬───┘
//!  seam                       │ the tail │ what is shown of the second │      copies, until the tail is consumed
//! ```
//!
//! The bytes stay in their sources until they are consumed, and the seam is gone with the tail. So a chain holds as much
//! as is waited for, however long the second source is, and the sources can be had back at any time.

use std::fmt;
use std::io;

use super::read::believable;
use super::{AsyncBufRead, AsyncRead, reserve};
use crate::buf::{BufResult, IoBufMut};

/// A source and then another; from [`chain`](super::AsyncReadExt::chain).
///
/// # Cancel safety
///
/// Reads are those of the sources. [`read_exact`](AsyncRead::read_exact) loses what earlier reads of the same call
/// brought.
///
/// # Memory
///
/// While something is looked for that crosses from the first source into the second, what both have buffered is there
/// twice; what is bounded ([`max_len`](super::Lines::max_len)) stays bounded.
///
/// # Examples
///
/// ```
/// use runtime_core::io::AsyncReadExt;
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut text = String::new();
/// (&b"read before, "[..]).chain(&b"still to come"[..]).read_to_string(&mut text).await?;
/// assert_eq!(text, "read before, still to come");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Chain<A, B> {
    first: A,
    second: B,
    first_ended: bool,
    /// Copies of what the first still has buffered after its end and of what the second has buffered. Never without a
    /// tail: empty once all of the first is consumed.
    seam: Vec<u8>,
    /// Bytes of the seam that were consumed; less than `tail`, unless the seam is empty.
    at: usize,
    /// Where the part of the second begins in the seam.
    tail: usize,
}

impl<A, B> Chain<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second, first_ended: false, seam: Vec::new(), at: 0, tail: 0 }
    }

    /// The sources.
    pub fn get_ref(&self) -> (&A, &B) {
        (&self.first, &self.second)
    }

    /// The sources. What is read from them directly is missing here.
    pub fn get_mut(&mut self) -> (&mut A, &mut B) {
        if !self.seam.is_empty() {
            // Its copies may become untrue. The first has bytes left, so it is asked once more for its end.
            self.first_ended = false;
            self.close_seam();
        }
        (&mut self.first, &mut self.second)
    }

    /// The sources, which have everything that was not consumed.
    pub fn into_inner(self) -> (A, B) {
        (self.first, self.second)
    }

    fn close_seam(&mut self) {
        // Needed once, so the memory goes too.
        (self.seam, self.at, self.tail) = (Vec::new(), 0, 0);
    }

    /// Counts `n` bytes of the seam as consumed, and returns how many of them are the second one's.
    fn pass_seam(&mut self, n: usize) -> usize {
        self.at += n.min(self.seam.len() - self.at);
        let beyond = self.at.saturating_sub(self.tail);
        if self.at >= self.tail {
            self.close_seam();
        }
        beyond
    }
}

impl<A: AsyncRead, B: AsyncRead> AsyncRead for Chain<A, B> {
    async fn read<T: IoBufMut>(&mut self, mut buf: T) -> BufResult<usize, T> {
        if buf.capacity() == 0 {
            // Its count of 0 would not be the first one's end.
            return BufResult(Ok(0), buf);
        }
        if !self.first_ended || !self.seam.is_empty() {
            let BufResult(result, back) = believable(self.first.read(buf).await);
            match result {
                Ok(0) => buf = back,
                Ok(n) => {
                    self.pass_seam(n.min(self.tail - self.at));
                    return BufResult(Ok(n), back);
                }
                Err(error) => return BufResult(Err(error), back),
            }
            self.first_ended = true;
            self.close_seam();
        }
        believable(self.second.read(buf).await)
    }
}

impl<A: AsyncBufRead, B: AsyncBufRead> AsyncBufRead for Chain<A, B> {
    fn buffer(&self) -> &[u8] {
        if !self.first_ended {
            self.first.buffer()
        } else if self.seam.is_empty() {
            self.second.buffer()
        } else {
            &self.seam[self.at..]
        }
    }

    async fn fill_more(&mut self) -> io::Result<usize> {
        if !self.first_ended {
            let n = self.first.fill_more().await?;
            if n > 0 {
                return Ok(n);
            }
            let tail = self.first.buffer();
            reserve(&mut self.seam, tail.len())?;
            self.seam.extend_from_slice(tail);
            self.tail = tail.len();
            self.first_ended = true;
            let ahead = self.second.buffer().len();
            if self.tail == 0 && ahead > 0 {
                // It comes into view now.
                return Ok(ahead);
            }
        }
        if self.seam.is_empty() {
            return self.second.fill_more().await;
        }
        let shown = self.seam.len() - self.tail;
        if self.second.buffer().len() <= shown {
            self.second.fill_more().await?;
        }
        let more = self.second.buffer().get(shown..).unwrap_or_default();
        reserve(&mut self.seam, more.len())?;
        self.seam.extend_from_slice(more);
        Ok(more.len())
    }

    fn consume(&mut self, n: usize) {
        if !self.first_ended {
            self.first.consume(n);
        } else if self.seam.is_empty() {
            self.second.consume(n);
        } else {
            self.first.consume(n.min(self.tail - self.at));
            let beyond = self.pass_seam(n);
            self.second.consume(beyond);
        }
    }
}

impl<A: fmt::Debug, B: fmt::Debug> fmt::Debug for Chain<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain")
            .field("first", &self.first)
            .field("second", &self.second)
            .field("first_ended", &self.first_ended)
            .finish_non_exhaustive()
    }
}
