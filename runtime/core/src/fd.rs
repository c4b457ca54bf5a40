//! What an operation needs to know of its descriptor: [`Origin`].
//!
//! Owns the contract that keeps a descriptor open while an operation uses it, the way in which the end of an orphan
//! comes back, and what paths are relative to ([`At`]). Knows nothing of what kind of file it is.

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

    /// Takes back bytes that were read and could not be passed on: they come before everything else.
    fn give_back(&mut self, _data: &[u8]) {}

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

/// What a relative path is relative to: a directory that is kept open, or by default the working directory.
#[derive(Debug, Clone, Default)]
pub struct At(Option<Arc<OwnedFd>>);

impl At {
    /// The working directory.
    pub const HERE: Self = Self(None);

    /// An open directory.
    pub fn dir(fd: Arc<OwnedFd>) -> Self {
        Self(Some(fd))
    }

    /// As the kernel takes it.
    pub fn raw_fd(&self) -> RawFd {
        self.0.as_ref().map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd)
    }
}

/// A descriptor together with bytes that were read from it and are not used yet: dropping it gives them back.
#[derive(Debug)]
pub struct Carry<F: Origin> {
    /// There until it is taken apart.
    parts: Option<(F, Vec<u8>)>,
}

impl<F: Origin> Carry<F> {
    /// Keeps both.
    pub fn new(origin: F, data: Vec<u8>) -> Self {
        Self { parts: Some((origin, data)) }
    }

    /// Both again; nothing is given back.
    pub fn into_parts(mut self) -> (F, Vec<u8>) {
        self.parts.take().expect("taken here only")
    }
}

// SAFETY: the origin in it is dropped with it.
unsafe impl<F: Origin> Origin for Carry<F> {
    fn raw_fd(&self) -> RawFd {
        self.parts.as_ref().expect("there until it is taken apart").0.raw_fd()
    }
}

impl<F: Origin> Drop for Carry<F> {
    fn drop(&mut self) {
        if let Some((origin, data)) = &mut self.parts {
            origin.give_back(data);
        }
    }
}
