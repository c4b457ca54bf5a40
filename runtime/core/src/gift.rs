//! [`Gift`]: pages that go into a pipe by vmsplice(2) and are nobody else's from then on.
//!
//! Owns why that is sound: a pipe refers to the pages themselves, so whoever could still write to them would change
//! what is in the pipe, and whoever put them back into an allocator would show its next contents to the reader. From
//! the first byte on there is therefore no way to the memory but the pipe's, and in the end it is unmapped (ruling 33).
//! Knows nothing of waiting.

use std::io;
use std::os::fd::BorrowedFd;

use crate::buf::{IoBuf, Pages};
use crate::sys::{self, pipes};

/// Pages on their way into a pipe. Dropping it unmaps all of them; the pipe keeps what it was given.
#[derive(Debug)]
pub struct Gift {
    pages: Pages,
    given: usize,
}

impl Gift {
    /// Takes the memory out of everybody's reach.
    pub fn new(pages: Pages) -> Self {
        Self { pages, given: 0 }
    }

    /// Bytes that the pipe does not have yet.
    pub fn left(&self) -> usize {
        self.pages.init_len() - self.given
    }

    /// Gives a pipe what it has room for now, without waiting, and returns the count.
    ///
    /// Whole pages are given for good (`SPLICE_F_GIFT`), so that who takes them out may keep them. The rest of a last
    /// page is not, as the contract of that flag asks for whole ones.
    ///
    /// # Errors
    ///
    /// Those of vmsplice(2), `WouldBlock` among them: nothing was given then.
    pub fn give(&mut self, pipe: BorrowedFd<'_>) -> io::Result<usize> {
        let left = self.left();
        let whole = left - left % sys::page_size();
        let aligned = self.given.is_multiple_of(sys::page_size());
        let (len, gift) = if aligned && whole > 0 { (whole, true) } else { (left, false) };
        let start = self.pages.stable_ptr().wrapping_add(self.given);
        // SAFETY: `len` initialised bytes of a mapping that this value owns, which nobody writes to (there is no way to
        // it) and which is unmapped, not used again.
        let n = unsafe { pipes::vmsplice(start, len, pipe, gift) }?.min(len);
        self.given += n;
        Ok(n)
    }
}
