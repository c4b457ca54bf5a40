//! `IORING_OP_SEND_ZC` (6.0): sending on a socket from the caller's memory, without a copy where the device can.
//!
//! The kernel completes it twice: the result, and, once neither device nor peer can need the data again, a notification.
//! The buffer is in use until the latter, which a peer that does not read puts off for ever. So the descriptor's
//! [`Origin`] is not kept that long: it is let go with a result that leaves nothing to send, or to nobody.

use io_uring::{opcode, squeue, types};
use std::io;

use super::read::MAX_BYTES;
use super::send::keep_failure;
use super::{Cqe, Kind, Notified};
use crate::buf::{self, IoBuf};
use crate::fd::Origin;

/// `IORING_SEND_ZC_REPORT_USAGE`
const REPORT_USAGE: u16 = 1 << 3;

/// What the kernel offers of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ZeroCopy {
    /// Nothing.
    #[default]
    Missing,
    /// Zero-copy sends that do not say whether they copied (before 6.2).
    Silent,
    /// Zero-copy sends that do.
    Reporting,
}

/// Sends the bytes of one buffer behind `skip`.
#[derive(Debug)]
pub struct SendZc<B, F> {
    buf: B,
    /// `None` once it was let go.
    origin: Option<F>,
    skip: usize,
    flags: i32,
    /// With so many bytes sent nothing is left to do.
    enough: u32,
    index: Option<u16>,
    report: bool,
}

/// How a zero-copy send ended.
#[derive(Debug)]
pub struct Sent<B, F> {
    /// How much was sent.
    pub result: io::Result<usize>,
    /// Nobody else uses it any more.
    pub buf: B,
    /// Still there unless everything was sent.
    pub origin: Option<F>,
    /// The kernel said that it had to copy.
    pub copied: bool,
}

impl<B: IoBuf, F: Origin> SendZc<B, F> {
    /// With `whole` the kernel goes on until everything is sent or it fails. `index` is that of the registered memory
    /// that the buffer lies in.
    pub fn new(origin: F, buf: B, skip: usize, whole: bool, zero_copy: ZeroCopy, index: Option<u16>) -> Self {
        let flags = libc::MSG_NOSIGNAL | if whole { libc::MSG_WAITALL } else { 0 };
        let report = zero_copy == ZeroCopy::Reporting;
        Self { buf, origin: Some(origin), skip, flags, enough: 0, index, report }
    }
}

// SAFETY: the buffer's memory is stable while it sits in the slot (the contract of `IoBuf`); a result, and a
// notification if the result says so.
unsafe impl<B: IoBuf, F: Origin> Notified for SendZc<B, F> {
    type Output = Sent<B, F>;
    const KIND: Kind = Kind::SendZc;

    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.origin.as_ref().expect("let go by a result only").raw_fd());
        let bytes = &buf::bytes(&self.buf)[self.skip..];
        let len = bytes.len().min(MAX_BYTES) as u32;
        let whole = self.flags & libc::MSG_WAITALL != 0;
        // Of more than one entry can take there is a rest.
        self.enough = match u32::try_from(bytes.len()) {
            _ if !whole => 0,
            Ok(all) if all == len => all,
            _ => u32::MAX,
        };
        let zc_flags = if self.report { REPORT_USAGE } else { 0 };
        let entry = opcode::SendZc::new(fd, bytes.as_ptr(), len).flags(self.flags).zc_flags(zc_flags);
        entry.buf_index(self.index).build()
    }

    unsafe fn told(this: *mut Self, cqe: Cqe, gone: bool) {
        // SAFETY: the caller's promise; a field that the kernel knows nothing of.
        let enough = unsafe { (*this).enough };
        let result = cqe.result().map(|n| n as usize);
        if !gone && result.as_ref().map_or(true, |&n| n < enough as usize) {
            // The future goes on with the rest, or returns the error.
            return;
        }
        // SAFETY: as above.
        let origin = unsafe { &raw mut (*this).origin };
        // SAFETY: as above; the reference ends with the call and covers this field only.
        let origin = unsafe { &mut *origin }.take();
        // Wakes whoever waits for the direction, and comes last: that may end this very operation.
        if let Some(mut origin) = origin {
            keep_zc_failure(&mut origin, result, enough);
        }
    }

    fn complete(self, cqe: Cqe) -> Sent<B, F> {
        let result = cqe.result().map(|n| n as usize);
        Sent { result, buf: self.buf, origin: self.origin, copied: cqe.was_copied() }
    }

    fn orphan(self, cqe: Cqe) {
        let enough = self.enough;
        if let Sent { result, origin: Some(mut origin), .. } = self.complete(cqe) {
            keep_zc_failure(&mut origin, result, enough);
        }
    }
}

/// Keeps what an orphan of `enough` bytes has ended with. When a reset ends it with `MSG_WAITALL` the
/// kernel returns the count of what was sent, and says EPIPE to the next one: it tells the reset to nobody. That zero-copy is
/// not to be had here is nothing that a later write has to hear of, since a plain one may do.
fn keep_zc_failure<F: Origin>(origin: &mut F, result: io::Result<usize>, enough: u32) {
    let is_about_zero_copy = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP));
    if result.as_ref().is_err_and(is_about_zero_copy) {
        return;
    }
    let may_hide = result.as_ref().is_ok_and(|&n| n < enough as usize);
    keep_failure(origin, result);
    if may_hide {
        origin.keep_short_write();
    }
}
