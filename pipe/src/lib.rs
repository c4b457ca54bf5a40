//! Pipes for the `runtime` crate.
//!
//! [`pipe`] makes one, [`OpenOptions`] opens those that have a name. [`splice`] and [`tee`] move bytes from stream to stream
//! without copying them.
//!
//! Reads and writes are tried inline, without blocking, when the turn brought at most one completion, and are READs and
//! WRITEs of the batch otherwise.
#![forbid(unsafe_code)]

mod copy;
mod ends;
mod file;
mod open;
mod relay;
mod send_file;
mod splice;
mod stdio;
mod traits;
mod transit;
mod vectored;
mod vmsplice;

use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use runtime_core::buf::{self, BufResult, IoBuf, IoBufMut};
use runtime_core::coop;
use runtime_core::duplex::{Direction, Duplex, Held};
use runtime_core::ends::{End, What};
use runtime_core::fd::Carry;
use runtime_core::ladder::{read_inline, ready, room};
use runtime_core::op::Kind;
use runtime_core::op::poll_add::POLLIN;
use runtime_core::op::read::{NO_OFFSET, Read};
use runtime_core::op::recv::Recv;
use runtime_core::op::send::Send;
use runtime_core::op::write::Write;
use runtime_core::submit::submit;
use runtime_core::sys::{self, pipes};

pub use copy::copy;
pub use ends::Builder;
pub use file::{splice_from_file, splice_to_file};
pub use open::OpenOptions;
pub use relay::{Relay, RelayError, Relayed, relay};
pub use runtime_core::buf::Pages;
pub use runtime_core::ends::{Sink, Source};
pub use send_file::send_file;
pub use splice::{splice, splice_all, tee};
pub use stdio::{Stderr, Stdin, Stdout, stderr, stdin, stdout};
pub use vmsplice::vmsplice;

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
    Ok((Sender::new(tx, true), Receiver::new(rx, true)))
}

/// The writing end of a pipe.
///
/// Writes of several tasks are carried out one after the other. Dropping it ends the stream once what is in the pipe
/// has been read.
pub struct Sender {
    duplex: Arc<Duplex>,
    /// Always a pipe, but for what stands behind a standard stream.
    what: What,
    _not_sync: PhantomData<Cell<()>>,
}

/// The reading end of a pipe.
pub struct Receiver {
    duplex: Arc<Duplex>,
    /// As with the sender.
    what: What,
    _not_sync: PhantomData<Cell<()>>,
}

fn duplex(fd: OwnedFd, ours: bool) -> Arc<Duplex> {
    let duplex = Duplex::new(fd);
    duplex.note().store(if ours { OURS } else { 0 }, Ordering::Relaxed);
    duplex
}

impl Sender {
    fn new(fd: OwnedFd, ours: bool) -> Self {
        Self { duplex: duplex(fd, ours), what: What::Pipe, _not_sync: PhantomData }
    }

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
            coop::nothing_to_do().await;
            return BufResult(Ok(0), buf);
        }
        let tried = self.write_at_once(&buf);
        if let AtOnce::Done(n) = tried {
            return BufResult(Ok(n), buf);
        }
        let mut held = self.duplex.acquire(Direction::Write).await;
        if let Err(error) = held.check() {
            return BufResult(Err(error), buf);
        }
        let (result, buf, _held) = write_some(held, buf, 0, self.what, tried).await;
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
        if buf.init_len() == 0 {
            coop::nothing_to_do().await;
            return BufResult(Ok(()), buf);
        }
        let mut tried = AtOnce::NotTried;
        // So many bytes go as a whole or not at all: nothing of them could be left to a second write.
        if (1..=PIPE_BUF).contains(&buf.init_len()) {
            tried = self.write_at_once(&buf);
            if let AtOnce::Done(_) = tried {
                return BufResult(Ok(()), buf);
            }
        }
        let mut held = self.duplex.acquire(Direction::Write).await;
        if let Err(error) = held.check() {
            return BufResult(Err(error), buf);
        }
        let mut written = 0;
        while written < buf.init_len() {
            let result;
            (result, buf, held) = write_some(held, buf, written, self.what, std::mem::take(&mut tried)).await;
            match result {
                Ok(0) => return BufResult(Err(io::ErrorKind::WriteZero.into()), buf),
                Ok(n) => written += n,
                Err(error) => return BufResult(Err(error), buf),
            }
        }
        BufResult(Ok(()), buf)
    }

    /// The usual case, before anything is kept for a wait.
    fn write_at_once<B: IoBuf>(&self, buf: &B) -> AtOnce {
        if !coop::prefers_inline() || !is_ours(&self.duplex) {
            return AtOnce::NotTried;
        }
        let Some(_held) = self.duplex.try_hold(Direction::Write) else { return AtOnce::NotTried };
        coop::block_sigpipe();
        match pipes::write(self.as_fd(), buf::bytes(buf)) {
            Ok(n) => {
                coop::done_inline(Kind::Write, n);
                AtOnce::Done(n)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => AtOnce::WouldBlock,
            // It is told again.
            Err(_) => AtOnce::NotTried,
        }
    }
}

/// How an attempt ended that keeps nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum AtOnce {
    /// So many bytes were moved.
    Done(usize),
    /// There is no need to try again.
    WouldBlock,
    /// Nothing is known.
    #[default]
    NotTried,
}

async fn write_some<B: IoBuf>(
    mut held: Held,
    mut buf: B,
    skip: usize,
    what: What,
    tried: AtOnce,
) -> (io::Result<usize>, B, Held) {
    // Unlike a SEND, a WRITE that the kernel tries inline raises SIGPIPE on this thread.
    coop::block_sigpipe();
    if tried == AtOnce::NotTried && coop::prefers_inline() && is_ours(held.duplex()) {
        match pipes::write(held.as_fd(), &buf::bytes(&buf)[skip..]) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            result => {
                coop::done_inline(Kind::Write, *result.as_ref().unwrap_or(&0));
                return (result.map_err(seen), buf, held);
            }
        }
    }
    loop {
        let result;
        (result, buf, held) = match what {
            What::Socket => submit(Send::new(held, buf, skip)).await,
            What::Pipe | What::Other => {
                let may_block = may_block(held.duplex());
                submit(Write::new(held, buf, skip, NO_OFFSET).on_worker(may_block)).await
            }
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = room(held).await,
            result => return (result.map_err(seen), buf, held),
        }
    }
}

impl Receiver {
    fn new(fd: OwnedFd, ours: bool) -> Self {
        Self { duplex: duplex(fd, ours), what: What::Pipe, _not_sync: PhantomData }
    }

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
    pub async fn read<B: IoBufMut>(&self, mut buf: B) -> BufResult<usize, B> {
        if buf.capacity() == 0 {
            coop::nothing_to_do().await;
            return BufResult(Ok(0), buf);
        }
        let tried = self.read_at_once(&mut buf);
        if let AtOnce::Done(n) = tried {
            return BufResult(Ok(n), buf);
        }
        let held = self.duplex.acquire(Direction::Read).await;
        let (result, buf, _held) = read_some(held, buf, 0, self.what, tried).await;
        BufResult(result, buf)
    }

    /// The usual case, before anything is kept for a wait.
    fn read_at_once<B: IoBufMut>(&self, buf: &mut B) -> AtOnce {
        if !coop::prefers_inline() || !is_ours(&self.duplex) {
            return AtOnce::NotTried;
        }
        let Some(_held) = self.duplex.try_hold(Direction::Read) else { return AtOnce::NotTried };
        match read_inline(self.as_fd(), buf, 0) {
            Ok(n @ 1..) => {
                coop::done_inline(Kind::Read, n);
                AtOnce::Done(n)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => AtOnce::WouldBlock,
            // What it says of the end is asked again, and an error is told again.
            _ => AtOnce::NotTried,
        }
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
        if buf.capacity() == 0 {
            coop::nothing_to_do().await;
            return BufResult(Ok(()), buf);
        }
        let mut held = self.duplex.acquire(Direction::Read).await;
        // The length counts from the start, whatever the buffer held before.
        let mut at = buf::fill(&mut buf, &[]);
        while at < buf.capacity() {
            let result;
            (result, buf, held) = read_some(held, buf, at, self.what, AtOnce::NotTried).await;
            match result {
                Ok(0) => return BufResult(Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(n) => at += n,
                Err(error) => return BufResult(Err(error), buf),
            }
        }
        BufResult(Ok(()), buf)
    }
}

/// Whether a pipe that had no data has lost its writers, rather than not having had one. Not if there is data by now.
pub(crate) fn is_over(fd: BorrowedFd<'_>) -> bool {
    sys::is_hung_up(fd.as_raw_fd()).unwrap_or(true)
}

/// What dropped operations have left, behind the first `at` bytes of the buffer. The end that one of them met of a FIFO
/// without a first writer is none.
pub(crate) fn serve<B: IoBufMut>(
    held: &mut Held,
    buf: &mut B,
    at: usize,
    peek: bool,
    what: What,
) -> Option<io::Result<usize>> {
    match held.serve(buf, at, peek) {
        Some(Ok(0)) if what == What::Pipe && !is_over(held.as_fd()) => None,
        result => result,
    }
}

/// Bytes that a write moves as a whole or not at all.
pub(crate) const PIPE_BUF: usize = 4096;

/// Of a duplex's note: the description is known to be in non-blocking mode, and nobody else's.
const OURS: u64 = 1;
/// The same: a write may block although a poll says that there is room. A terminal in blocking mode.
const MAY_BLOCK: u64 = 2;

fn is_ours(duplex: &Duplex) -> bool {
    duplex.note().load(Ordering::Relaxed) & OURS != 0
}

/// Whether writes are for a worker of the kernel.
pub(crate) fn may_block(duplex: &Duplex) -> bool {
    duplex.note().load(Ordering::Relaxed) & MAY_BLOCK != 0
}

/// An error as the user gets it; the signal that came with a broken pipe is taken away.
pub(crate) fn seen(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        sys::consume_sigpipe();
    }
    error
}

/// One read behind the first `at` bytes of the buffer, which an orphan gives back together with its own.
async fn read_some<B: IoBufMut>(
    mut held: Held,
    mut buf: B,
    at: usize,
    what: What,
    tried: AtOnce,
) -> (io::Result<usize>, B, Held) {
    if let Some(result) = serve(&mut held, &mut buf, at, false, what) {
        coop::spend(*result.as_ref().unwrap_or(&0));
        return (result, buf, held);
    }
    if tried == AtOnce::NotTried && coop::prefers_inline() && is_ours(held.duplex()) {
        match read_inline(held.as_fd(), &mut buf, at) {
            // What it says of the end is asked again below.
            Err(_) | Ok(0) => {}
            Ok(n) => {
                coop::done_inline(Kind::Read, n);
                return (Ok(n), buf, held);
            }
        }
    }
    loop {
        let result;
        (result, buf, held) = match what {
            What::Socket => submit(Recv::new(held, buf, at, 0)).await,
            What::Pipe | What::Other => submit(Read::new(held, buf, at, NO_OFFSET)).await,
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A ring operation waits by itself, but not on a non-blocking pipe that was once spliced.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && at == 0 => held = ready(held, POLLIN).await.1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let carry = Carry::new(held, buf::bytes(&buf)[..at].to_vec());
                (held, _) = ready(carry, POLLIN).await.1.into_parts();
            }
            // Of a FIFO that had no writer yet: that is no end, and a poll waits for the first one.
            Ok(0) if what == What::Pipe && at == 0 && !is_over(held.as_fd()) => held = ready(held, POLLIN).await.1,
            result => return (result, buf, held),
        }
    }
}

impl Source for Receiver {
    fn source(&self) -> End<'_> {
        End { duplex: &self.duplex, what: self.what }
    }
}

impl Sink for Sender {
    fn sink(&self) -> End<'_> {
        End { duplex: &self.duplex, what: self.what }
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
