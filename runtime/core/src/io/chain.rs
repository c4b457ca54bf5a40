//! [`Chain`]: one source behind another.

use std::io;

use super::{AsyncBufRead, AsyncRead, reserve};
use crate::buf::{self, BufResult, IoBufMut};

/// A source and then another; from [`chain`](super::AsyncReadExt::chain).
///
/// # Cancel safety
///
/// Reads are those of the sources. [`read_exact`](AsyncRead::read_exact) loses what earlier reads of the same call
/// brought.
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
#[derive(Debug)]
pub struct Chain<A, B> {
    first: A,
    second: B,
    first_ended: bool,
    /// What the first had buffered when it ended, followed by what the second had by then: somebody looks for something
    /// that crosses the seam.
    seam: Vec<u8>,
    /// Bytes of the seam that were consumed.
    at: usize,
}

impl<A, B> Chain<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second, first_ended: false, seam: Vec::new(), at: 0 }
    }

    /// The sources.
    pub fn get_ref(&self) -> (&A, &B) {
        (&self.first, &self.second)
    }

    /// The sources. What is read from them directly is missing here.
    pub fn get_mut(&mut self) -> (&mut A, &mut B) {
        (&mut self.first, &mut self.second)
    }

    /// The sources.
    pub fn into_inner(self) -> (A, B) {
        (self.first, self.second)
    }

    fn rest_of_seam(&self) -> &[u8] {
        &self.seam[self.at..]
    }

    fn consume_seam(&mut self, n: usize) {
        self.at += n.min(self.seam.len() - self.at);
        if self.at == self.seam.len() {
            // Needed once.
            (self.seam, self.at) = (Vec::new(), 0);
        }
    }
}

impl<A: AsyncRead, B: AsyncRead> AsyncRead for Chain<A, B> {
    async fn read<T: IoBufMut>(&mut self, mut buf: T) -> BufResult<usize, T> {
        if buf.capacity() == 0 {
            // Its count of 0 would not be the first one's end.
            return BufResult(Ok(0), buf);
        }
        if !self.first_ended {
            let BufResult(result, back) = self.first.read(buf).await;
            if !matches!(result, Ok(0)) {
                return BufResult(result, back);
            }
            buf = back;
            self.first_ended = true;
        }
        if !self.rest_of_seam().is_empty() {
            let n = buf::fill(&mut buf, self.rest_of_seam());
            self.consume_seam(n);
            return BufResult(Ok(n), buf);
        }
        self.second.read(buf).await
    }
}

impl<A: AsyncBufRead, B: AsyncBufRead> AsyncBufRead for Chain<A, B> {
    fn buffer(&self) -> &[u8] {
        if !self.first_ended {
            self.first.buffer()
        } else if self.rest_of_seam().is_empty() {
            self.second.buffer()
        } else {
            self.rest_of_seam()
        }
    }

    async fn fill_more(&mut self) -> io::Result<usize> {
        if !self.first_ended {
            let n = self.first.fill_more().await?;
            if n > 0 {
                return Ok(n);
            }
            let rest = self.first.buffer();
            reserve(&mut self.seam, rest.len())?;
            self.seam.extend_from_slice(rest);
            let len = rest.len();
            self.first.consume(len);
            self.first_ended = true;
            let ahead = self.second.buffer().len();
            if len == 0 && ahead > 0 {
                // It comes into view now.
                return Ok(ahead);
            }
        }
        if self.rest_of_seam().is_empty() {
            return self.second.fill_more().await;
        }
        if self.second.buffer().is_empty() {
            self.second.fill_more().await?;
        }
        let next = self.second.buffer();
        reserve(&mut self.seam, next.len())?;
        self.seam.extend_from_slice(next);
        let n = next.len();
        self.second.consume(n);
        Ok(n)
    }

    fn consume(&mut self, n: usize) {
        if !self.first_ended {
            self.first.consume(n);
        } else if self.rest_of_seam().is_empty() {
            self.second.consume(n);
        } else {
            self.consume_seam(n);
        }
    }
}
