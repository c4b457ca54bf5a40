//! Reads and writes of several buffers.
//!
//! Owns nothing; one buffer is a plain read or write.

use std::io;

use runtime_core::buf::{BufResult, IoBuf, IoBufMut};
use runtime_core::coop;
use runtime_core::duplex::Direction;
use runtime_core::ends::What;
use runtime_core::ladder::{ready, room};
use runtime_core::op::poll_add::POLLIN;
use runtime_core::op::read::{NO_OFFSET, ReadVectored};
use runtime_core::op::write::WriteVectored;
use runtime_core::submit::submit;

use crate::{Receiver, Sender, is_over, may_block, seen, serve};

impl Sender {
    /// Writes some of several buffers, in order, and returns the count; at most 1024 are used.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// As [`write`](Self::write).
    #[doc(alias = "IORING_OP_WRITEV")]
    pub async fn write_vectored<B: IoBuf>(&self, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        if bufs.len() <= 1 {
            let Some(only) = bufs.pop() else {
                coop::nothing_to_do().await;
                return BufResult(Ok(0), bufs);
            };
            let BufResult(result, only) = self.write(only).await;
            bufs.push(only);
            return BufResult(result, bufs);
        }
        if bufs.iter().all(|buf| buf.init_len() == 0) {
            coop::nothing_to_do().await;
            return BufResult(Ok(0), bufs);
        }
        coop::block_sigpipe();
        let mut held = self.duplex.acquire(Direction::Write).await;
        if let Err(error) = held.check() {
            return BufResult(Err(error), bufs);
        }
        loop {
            let result;
            (result, bufs, held) = {
                let may_block = may_block(held.duplex());
                submit(WriteVectored::new(held, bufs, 0, NO_OFFSET).on_worker(may_block)).await
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = room(held).await,
                result => return BufResult(result.map_err(seen), bufs),
            }
        }
    }
}

impl Receiver {
    /// Reads into several buffers, in order, and returns the count, 0 at the end; at most 1024 are used. What a dropped
    /// read has left goes into the first one that has room, alone.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    #[doc(alias = "IORING_OP_READV")]
    pub async fn read_vectored<B: IoBufMut>(&self, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        if bufs.len() <= 1 {
            let Some(only) = bufs.pop() else {
                coop::nothing_to_do().await;
                return BufResult(Ok(0), bufs);
            };
            let BufResult(result, only) = self.read(only).await;
            bufs.push(only);
            return BufResult(result, bufs);
        }
        let Some(first) = bufs.iter().position(|buf| buf.capacity() > 0) else {
            coop::nothing_to_do().await;
            return BufResult(Ok(0), bufs);
        };
        let mut held = self.duplex.acquire(Direction::Read).await;
        if let Some(result) = serve(&mut held, &mut bufs[first], 0, false, self.what) {
            for buf in &mut bufs[first + 1..] {
                runtime_core::buf::fill(buf, &[]);
            }
            return BufResult(result, bufs);
        }
        loop {
            let result;
            (result, bufs, held) = submit(ReadVectored::new(held, bufs, NO_OFFSET)).await;
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = ready(held, POLLIN).await.1,
                Ok(0) if self.what == What::Pipe && !is_over(held.as_fd()) => held = ready(held, POLLIN).await.1,
                result => return BufResult(result, bufs),
            }
        }
    }
}
