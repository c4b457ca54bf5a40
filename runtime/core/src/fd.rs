//! What an operation needs to know of its descriptor: [`Origin`].
//!
//! Owns the contract that keeps a descriptor open while an operation uses it, and the way in which the end of an
//! orphan comes back. Knows nothing of what kind of file it is.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

/// Owner, or part owner, of the descriptor that an operation works on.
///
/// The operation holds it from submission to completion, so the descriptor cannot be closed, and its number not be
/// reused, while the kernel works on it. When the operation's future is gone, what must not be lost is handed to it.
///
/// # Safety
///
/// The descriptor is open, and stays so until the value is dropped.
pub unsafe trait Origin: 'static {
    /// The descriptor; the same one at each call.
    fn raw_fd(&self) -> RawFd;

    /// Takes bytes that an orphaned read received.
    fn keep_data(&mut self, _data: &[u8]) {}

    /// Takes the error with which an orphan ended.
    fn keep_error(&mut self, _errno: i32) {}

    /// A dropped write that was to send everything has sent a part: an error may hide behind the count.
    fn keep_short_write(&mut self) {}

    /// A dropped read met the end of the stream.
    fn keep_end(&mut self) {}
}

// SAFETY: an owned descriptor is open until its owner is dropped.
unsafe impl Origin for OwnedFd {
    fn raw_fd(&self) -> RawFd {
        self.as_raw_fd()
    }
}

// SAFETY: an owned descriptor is open until its owner is dropped.
unsafe impl Origin for Arc<OwnedFd> {
    fn raw_fd(&self) -> RawFd {
        self.as_raw_fd()
    }
}

// SAFETY: an owned descriptor is open until its owner is dropped.
unsafe impl Origin for Rc<OwnedFd> {
    fn raw_fd(&self) -> RawFd {
        self.as_raw_fd()
    }
}
