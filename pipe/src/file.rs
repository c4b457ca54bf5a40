//! [`splice_from_file`] and [`splice_to_file`]: between a file, at an offset or where its position is, and a stream.
//!
//! Owns what becomes of the file's position and of bytes that the file does not take; the way from a file to a stream
//! is that of `send_file`.
//!
//! ```text
//!                 inline                       a job of the blocking pool
//!   stream ──────────────────▶ private pipe ─────────────────────────────▶ file
//!      ▲                            │ what the file does not take
//!      └────────────────────────────┘
//! ```

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use runtime_core::coop;
use runtime_core::duplex::{Direction, Held};
use runtime_core::ends::{Sink, Source, What};
use runtime_core::fd::Origin;
use runtime_core::ladder::{offload, readable};
use runtime_core::op::poll_add::POLLIN;
use runtime_core::op::read::{NO_OFFSET, Read};
use runtime_core::op::recv::Recv;
use runtime_core::op::{Kind, Rung};
use runtime_core::receiver;
use runtime_core::submit::submit;
use runtime_core::sys::{self, pipes};

use crate::send_file::send;
use crate::splice::{COPY_BYTES, blocks, take};
use crate::transit::{PIPE_BYTES, Transit};
use crate::{is_over, serve};

/// Moves up to `len` bytes of a file into a stream, from `offset` on or, without one, from the file's own position,
/// which moves along. Returns the count: 0 at the end of the file, or for a length of 0, at once.
///
/// At most 256 KiB, and fewer are normal; [`send_file`](crate::send_file()) goes on, and says how it is done: a
/// splice(2) on a private pipe, where the disk is waited for by the blocking pool. The stream has all of the bytes when
/// this returns.
///
/// # Errors
///
/// Those of splice(2): `NotSeekable` (`ESPIPE`) at once for what has no positions, as a pipe or a terminal.
/// `BrokenPipe` when nobody reads the stream; never a SIGPIPE.
///
/// # Cancel safety
///
/// Any part may have been moved; without an offset the position is behind exactly that part.
///
/// # Examples
///
/// ```
/// use runtime_pipe::{pipe, splice_from_file, splice_to_file};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// # let path = std::env::temp_dir().join(format!("runtime-splice-{}", std::process::id()));
/// let (tx, rx) = pipe()?;
/// let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
/// # std::fs::remove_file(&path)?;
/// tx.write_all("from a pipe to a file").await.0?;
/// assert_eq!(splice_to_file(&rx, &file, None, 1000).await?, 21);
/// assert_eq!(splice_from_file(&file, Some(12), &tx, 1000).await?, 9);
/// assert_eq!(rx.read(Vec::with_capacity(64)).await.1, b"to a file");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "splice")]
pub async fn splice_from_file<F: AsFd, O: Sink + ?Sized>(
    file: &F,
    offset: Option<u64>,
    output: &O,
    len: usize,
) -> io::Result<usize> {
    if len == 0 {
        coop::nothing_to_do().await;
        return Ok(0);
    }
    let file = Arc::new(file.as_fd().try_clone_to_owned()?);
    let here = sys::seek(file.as_fd(), None)?;
    let position = Position { file: Arc::clone(&file), from: offset.is_none().then_some(here), moved: Cell::new(0) };
    send(file, offset.unwrap_or(here), len.min(PIPE_BYTES) as u64, output.sink(), &position.moved).await?;
    Ok(position.moved.get() as usize)
}

/// The position of a file follows what was moved, also when the move is dropped.
struct Position {
    file: Arc<OwnedFd>,
    /// `None` when the position is not used.
    from: Option<u64>,
    moved: Cell<u64>,
}

impl Drop for Position {
    fn drop(&mut self) {
        if let Some(from) = self.from
            && self.moved.get() > 0
        {
            // It could be sought before.
            let _ = sys::seek(self.file.as_fd(), Some(from.saturating_add(self.moved.get())));
        }
    }
}

/// Moves up to `len` bytes of a stream into a file, at `offset` or, without one, at the file's own position, which
/// moves along. Returns the count: 0 at the end of the stream, or for a length of 0, at once.
///
/// At most 256 KiB, and fewer are normal. What a dropped read or a standing receive of the stream has brought goes
/// first. The bytes go into a private pipe inline, as with [`splice`](crate::splice()), and from there to the file by a
/// splice(2) of the blocking pool: it may wait for the disk, and would hold the lock of the stream's own pipe
/// meanwhile. No kernel worker is involved.
///
/// # Errors
///
/// Those of splice(2), at once: `InvalidInput` (`EINVAL`) for a file that is open to append or cannot be spliced to,
/// `NotSeekable` (`ESPIPE`) for what has no positions, `EBADF` for one that is not open for writing. What the file did
/// not take, as when the disk is full, is what the next read of the stream returns.
///
/// # Cancel safety
///
/// No byte is lost: what had left the stream is written to the file all the same, or comes back. A later read of the
/// stream waits until that is decided.
#[doc(alias = "splice")]
pub async fn splice_to_file<I: Source + ?Sized, F: AsFd>(
    input: &I,
    file: &F,
    offset: Option<u64>,
    len: usize,
) -> io::Result<usize> {
    if len == 0 {
        coop::nothing_to_do().await;
        return Ok(0);
    }
    let file = file.as_fd().try_clone_to_owned()?;
    pipes::check_target(file.as_fd(), offset)?;
    let end = input.source();
    let copies = blocks(end)?;
    let mut transit = Transit::new()?;
    let mut held = take(end, Direction::Read).await;
    receiver::settle(&mut held).await;
    let (taken, held) = fill(held, end.what, copies, &transit, len.min(PIPE_BYTES)).await;
    match taken? {
        0 => return Ok(0),
        n => transit.filled(n),
    }
    transit.keep(held);
    let (written, result) = offload(Kind::Splice, move || Ok(empty(transit, &file, offset))).await?;
    if written > 0 { Ok(written) } else { result.map(|()| 0) }
}

/// Some bytes of the stream, 0 at the end, into an empty private pipe.
async fn fill(
    mut held: Held,
    what: What,
    mut copies: bool,
    transit: &Transit,
    len: usize,
) -> (io::Result<usize>, Held) {
    let (mut data, mut stuck) = (Vec::new(), 0);
    if !held.is_clean() {
        data.reserve_exact(len.min(COPY_BYTES));
        match serve(&mut held, &mut data, 0, false, what) {
            Some(Ok(n)) if n > 0 => return put(held, transit, &data),
            Some(result) => return (result, held),
            None => {}
        }
    }
    loop {
        let result = if copies {
            data.clear();
            data.reserve_exact(len.min(COPY_BYTES));
            let result;
            (result, data, held) = match what {
                What::Socket => submit(Recv::new(held, data, 0, 0)).await,
                What::Pipe | What::Other => submit(Read::new(held, data, 0, NO_OFFSET)).await,
            };
            result
        } else {
            coop::proceed().await;
            coop::assert_same_process();
            pipes::splice(held.as_fd(), transit.tx(), len)
        };
        match result {
            // A FIFO that had no writer yet.
            Ok(0) if what == What::Pipe && !is_over(held.as_fd()) => held = readable(held).await,
            // Something is there that only a read gets past.
            Ok(0) if !copies && what == What::Socket && !pipes::is_at_end(held.as_fd()) => copies = true,
            Ok(0) => return (held.take_end(false).map_or(Ok(0), Err), held),
            Ok(_) if copies => return put(held, transit, &data),
            Ok(n) => {
                coop::done_inline(Kind::Splice, n);
                return (Ok(n), held);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The private pipe is empty, so it is the input; or that has become ready in between.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if sys::is_ready(held.as_fd().as_raw_fd(), POLLIN).unwrap_or(false) {
                    // Or there is something in front that only a read gets past.
                    stuck += 1;
                    copies |= stuck > 2;
                } else {
                    coop::count(Kind::Splice, Rung::Reissue);
                    held = readable(held).await;
                }
            }
            Err(error) => return (Err(error), held),
        }
    }
}

/// Puts bytes that had to be read into an empty private pipe; what it has no room for goes back.
fn put(mut held: Held, transit: &Transit, data: &[u8]) -> (io::Result<usize>, Held) {
    let result = pipes::write(transit.tx(), data);
    held.give_back(&data[*result.as_ref().unwrap_or(&0)..]);
    (result, held)
}

/// On a thread of the pool: everything in the private pipe into the file. What is left goes back as it is dropped here.
fn empty(mut transit: Transit, file: &OwnedFd, offset: Option<u64>) -> (usize, io::Result<()>) {
    let mut written = 0;
    while transit.left() > 0 {
        let at = offset.map(|offset| offset.saturating_add(written as u64));
        match pipes::splice_to_file(transit.rx(), file.as_fd(), at, transit.left()) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => {
                written += n;
                transit.filled(transit.left().saturating_sub(n));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
