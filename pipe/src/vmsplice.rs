//! [`vmsplice`]: the program's own pages into a pipe, without a copy.
//!
//! Owns the waiting for room; why the pages may be given away is in core (`gift`).

use std::io;

use runtime_core::buf::{IoBuf, Pages};
use runtime_core::coop;
use runtime_core::duplex::Direction;
use runtime_core::gift::Gift;
use runtime_core::ladder::room;
use runtime_core::op::{Kind, Rung};

use crate::{Sender, seen};

/// Moves all bytes of `pages` into a pipe, and returns how many that were. No other write of the sender comes in
/// between. A length of 0 is 0 at once.
///
/// The pipe refers to the pages themselves, so they cannot come back: the buffer is consumed and its memory unmapped.
/// That costs two system calls and a fault for each page that was filled, which a copy does not: it pays where the
/// reader does not copy either but splices the pages on, to a socket or a file. Whole pages are given for good
/// (`SPLICE_F_GIFT`); the rest of a last page is only lent, which makes no difference to anybody once it is unmapped.
///
/// It is a vmsplice(2) on the thread itself that does not wait for room; without room the pipe is polled
/// (`IORING_OP_POLL_ADD`). In a pipe each page takes a slot, also one that is partly filled.
///
/// # Errors
///
/// Those of vmsplice(2); `BrokenPipe` when nobody reads, never a SIGPIPE. How much was moved before is not known then.
///
/// # Cancel safety
///
/// Any part may have been moved; what was not is dropped with the buffer. A later write starts only once this one is
/// over.
///
/// # Examples
///
/// ```
/// use runtime_core::buf::Pages;
/// use runtime_pipe::{pipe, vmsplice};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let (tx, rx) = pipe()?;
/// let mut pages = Pages::new(4096)?;
/// pages.resize(5);
/// pages.copy_from_slice(b"moved");
/// assert_eq!(vmsplice(pages, &tx).await?, 5);
/// assert_eq!(rx.read(Vec::with_capacity(64)).await.1, b"moved");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "SPLICE_F_GIFT")]
pub async fn vmsplice(pages: Pages, output: &Sender) -> io::Result<usize> {
    let len = pages.init_len();
    if len == 0 {
        coop::nothing_to_do().await;
        return Ok(0);
    }
    coop::block_sigpipe();
    let mut held = output.duplex.acquire(Direction::Write).await;
    held.check()?;
    let mut gift = Gift::new(pages);
    while gift.left() > 0 {
        coop::proceed().await;
        coop::assert_same_process();
        match gift.give(held.as_fd()) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => coop::done_inline(Kind::Write, n),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                coop::count(Kind::Write, Rung::Reissue);
                // An error of the poll shows itself in the next try.
                held = room(held).await;
            }
            Err(error) => return Err(seen(error)),
        }
    }
    Ok(len)
}
