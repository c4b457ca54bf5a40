//! Pipes for the `runtime` crate.
//!
//! The first operations: making a pipe, reading and writing.
#![forbid(unsafe_code)]

mod splice;
mod traits;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use runtime_core::buf::{self, BufResult, IoBuf, IoBufMut};
use runtime_core::coop;
use runtime_core::duplex::{Direction, Duplex, Held};
use runtime_core::ends::{End, What};
use runtime_core::fd::Carry;
use runtime_core::ladder::ready;
use runtime_core::op::poll_add::{POLLIN, POLLOUT};
use runtime_core::op::read::{NO_OFFSET, Read};
use runtime_core::op::write::Write;
use runtime_core::submit::submit;
use runtime_core::sys;

pub use runtime_core::ends::{Sink, Source};
pub use splice::{splice, splice_all, tee};

/// Makes a pipe: what is written to the [`Sender`] is read from the [`Receiver`].
///
/// # Errors
///
/// Those of pipe2(2), such as `EMFILE`.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let (tx, rx) = runtime_pipe::pipe()?;
/// tx.write_all("through").await.0?;
/// drop(tx);
/// let (n, data) = rx.read(Vec::with_capacity(64)).await.into_result()?;
/// assert_eq!((n, &data[..]), (7, &b"through"[..]));
/// assert_eq!(rx.read(data).await.0?, 0);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "pipe2")]
pub fn pipe() -> io::Result<(Sender, Receiver)> {
    let (rx, tx) = sys::pipe()?;
    let sender = Sender { duplex: Duplex::new(tx), _not_sync: PhantomData };
    Ok((sender, Receiver { duplex: Duplex::new(rx), _not_sync: PhantomData }))
}

/// The writing end of a pipe.
///
/// Writes of several tasks are carried out one after the other. Dropping it ends the stream once what is in the pipe
/// has been read.
pub struct Sender {
    duplex: Arc<Duplex>,
    _not_sync: PhantomData<Cell<()>>,
}

/// The reading end of a pipe.
pub struct Receiver {
    duplex: Arc<Duplex>,
    _not_sync: PhantomData<Cell<()>>,
}

impl Sender {
    /// Writes some of the buffer and returns the count.
    ///
    /// # Errors
    ///
    /// `BrokenPipe` when there is no reader; never a SIGPIPE.
    ///
    /// # Cancel safety
    ///
    /// Any part may have been written. A later write starts only once this one is over.
    #[doc(alias = "IORING_OP_WRITE")]
    pub async fn write<B: IoBuf>(&self, buf: B) -> BufResult<usize, B> {
        if buf.init_len() == 0 {
            return BufResult(Ok(0), buf);
        }
        let mut held = self.duplex.acquire(Direction::Write).await;
        if let Err(error) = held.check() {
            return BufResult(Err(error), buf);
        }
        let (result, buf, _held) = write_some(held, buf, 0).await;
        BufResult(result, buf)
    }

    /// Writes the whole buffer; no other write comes in between.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); some of the buffer may have been written then.
    ///
    /// # Cancel safety
    ///
    /// Any part may have been written. A later write starts only once this one is over.
    pub async fn write_all<B: IoBuf>(&self, mut buf: B) -> BufResult<(), B> {
        let mut held = self.duplex.acquire(Direction::Write).await;
        if let Err(error) = held.check() {
            return BufResult(Err(error), buf);
        }
        let mut written = 0;
        while written < buf.init_len() {
            let result;
            (result, buf, held) = write_some(held, buf, written).await;
            match result {
                Ok(0) => return BufResult(Err(io::ErrorKind::WriteZero.into()), buf),
                Ok(n) => written += n,
                Err(error) => return BufResult(Err(error), buf),
            }
        }
        BufResult(Ok(()), buf)
    }
}

async fn write_some<B: IoBuf>(mut held: Held, mut buf: B, skip: usize) -> (io::Result<usize>, B, Held) {
    // Unlike a SEND, a WRITE that the kernel tries inline raises SIGPIPE on this thread.
    coop::block_sigpipe();
    loop {
        let result;
        (result, buf, held) = submit(Write::new(held, buf, skip, NO_OFFSET)).await;
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = ready(held, POLLOUT).await.1,
            result => {
                if matches!(&result, Err(error) if error.kind() == io::ErrorKind::BrokenPipe) {
                    sys::consume_sigpipe();
                }
                return (result, buf, held);
            }
        }
    }
}

impl Receiver {
    /// Reads up to the buffer's capacity and returns the count, 0 when the last writer is gone and the pipe is empty.
    ///
    /// # Errors
    ///
    /// Those of read(2).
    ///
    /// # Cancel safety
    ///
    /// Bytes that were taken from the pipe are what the next read returns.
    #[doc(alias = "IORING_OP_READ")]
    pub async fn read<B: IoBufMut>(&self, buf: B) -> BufResult<usize, B> {
        if buf.capacity() == 0 {
            return BufResult(Ok(0), buf);
        }
        let held = self.duplex.acquire(Direction::Read).await;
        let (result, buf, _held) = read_some(held, buf, 0).await;
        BufResult(result, buf)
    }

    /// Reads until the buffer's whole capacity is filled; no other read comes in between.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the stream ends before; the buffer comes back with what came.
    ///
    /// # Cancel safety
    ///
    /// Everything that was taken from the pipe is what the next read returns.
    pub async fn read_exact<B: IoBufMut>(&self, mut buf: B) -> BufResult<(), B> {
        let mut held = self.duplex.acquire(Direction::Read).await;
        // The length counts from the start, whatever the buffer held before.
        let mut at = buf::fill(&mut buf, &[]);
        while at < buf.capacity() {
            let result;
            (result, buf, held) = read_some(held, buf, at).await;
            match result {
                Ok(0) => return BufResult(Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(n) => at += n,
                Err(error) => return BufResult(Err(error), buf),
            }
        }
        BufResult(Ok(()), buf)
    }
}

/// One read behind the first `at` bytes of the buffer, which an orphan gives back together with its own.
async fn read_some<B: IoBufMut>(mut held: Held, mut buf: B, at: usize) -> (io::Result<usize>, B, Held) {
    if let Some(result) = held.serve(&mut buf, at, false) {
        coop::spend(*result.as_ref().unwrap_or(&0));
        return (result, buf, held);
    }
    loop {
        let result;
        (result, buf, held) = submit(Read::new(held, buf, at, NO_OFFSET)).await;
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A ring operation waits by itself, but not on a non-blocking pipe that was once spliced.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && at == 0 => held = ready(held, POLLIN).await.1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let carry = Carry::new(held, buf::bytes(&buf)[..at].to_vec());
                (held, _) = ready(carry, POLLIN).await.1.into_parts();
            }
            result => return (result, buf, held),
        }
    }
}

impl Source for Receiver {
    fn source(&self) -> End<'_> {
        End { duplex: &self.duplex, what: What::Pipe }
    }
}

impl Sink for Sender {
    fn sink(&self) -> End<'_> {
        End { duplex: &self.duplex, what: What::Pipe }
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.duplex.as_fd()
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.duplex.as_fd()
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
