//! What an operation is: [`Op`] for one completion, [`Notified`] for one and a notification, [`Multi`] for many.
//!
//! Owns the contract between an operation and the slot that holds it, and the names ([`Kind`], [`Rung`]) under which
//! operations are counted. Knows nothing of rings, slots or futures. Each opcode has a file of its own below.
//!
//! ```text
//!            entry()                       final completion                complete(self, cqe) -> Output
//!  created ──────────▶ owned by the slot ─────────────────▶ settled ──┬──▶ the future is polled
//!                      (kernel may use it)                            └──▶ the future is gone: orphan(self, cqe)
//! ```

pub mod accept;
pub mod close;
pub mod connect;
pub mod fadvise;
pub mod fallocate;
pub mod fsync;
pub mod ftruncate;
pub mod names;
pub mod nop;
pub mod open;
pub mod pass;
pub mod poll_add;
pub mod read;
pub mod recv;
pub(crate) mod recv_multi;
pub mod send;
pub mod send_zc;
pub mod statx;
pub mod sync_range;
pub mod vectored;
pub mod write;
pub mod xattr;

use std::io;
use std::task::Waker;

use crate::pooled::Pooled;

pub use io_uring::{opcode, squeue, types};

/// One request to the kernel that ends with one completion.
///
/// Implement it to give the runtime a verb of your own and await it with [`submit`](crate::submit::submit). The slot
/// owns the operation from the first poll of its future to its completion; the future only holds a key, so it may be
/// dropped at any time.
///
/// # Safety
///
/// Every pointer in the entry stays valid, and unaliased where the kernel writes, from
/// [`entry`](Op::entry) to the completion, provided that `self` is neither moved nor dropped in between. The entry
/// leads to exactly one completion (no multishot, no zero-copy notification, no `SKIP_SUCCESS`) and is not linked: that
/// is [`chain`](crate::submit::chain)'s to do.
///
/// # Examples
///
/// ```
/// use runtime_core::op::{opcode, squeue, Cqe, Kind, Op};
///
/// struct Nop;
///
/// // SAFETY: the entry holds no pointers and completes once.
/// unsafe impl Op for Nop {
///     type Output = std::io::Result<u32>;
///     const KIND: Kind = Kind::Other;
///     fn entry(&mut self) -> squeue::Entry {
///         opcode::Nop::new().build()
///     }
///     fn complete(self, cqe: Cqe) -> Self::Output {
///         cqe.result()
///     }
/// }
///
/// let rt = runtime_core::exec::Builder::new().build().unwrap();
/// assert_eq!(rt.block_on(runtime_core::submit::submit(Nop)).unwrap(), 0);
/// ```
pub unsafe trait Op: 'static {
    /// What the user gets.
    type Output;

    /// The name under which the operation is counted.
    const KIND: Kind;

    /// Builds the ring entry; called at most once, when `self` already sits where it stays. The `user_data` is set by
    /// the runtime.
    fn entry(&mut self) -> squeue::Entry;

    /// Turns the completion into the output; called exactly once unless [`orphan`](Op::orphan) is. An operation that
    /// never reached the kernel, because its runtime is closing, completes with `ECANCELED` without an entry.
    fn complete(self, cqe: Cqe) -> Self::Output;

    /// Called instead of [`complete`](Op::complete) when the future is gone: keeps what must not be lost. By default
    /// the output is made and dropped, which closes a descriptor that the kernel made.
    fn orphan(self, cqe: Cqe)
    where
        Self: Sized,
    {
        drop(self.complete(cqe));
    }

    /// The rung that its entry takes, after it was built. An `Op` of one's own leaves it alone.
    #[doc(hidden)]
    #[inline]
    fn rung(&self) -> Rung {
        Rung::Ring
    }

    /// What [`WithNotice`] makes of an operation: how it is told its result while the kernel still uses its memory. An
    /// `Op` of one's own leaves it alone.
    #[doc(hidden)]
    const TOLD: Option<unsafe fn(*mut Self, Cqe, bool)> = None;
}

/// One request to the kernel that has a result and, when that comes with `IORING_CQE_F_MORE`, later a notification
/// (`IORING_CQE_F_NOTIF`) that the kernel no longer uses its memory: a zero-copy send.
///
/// It is submitted as [`WithNotice`]. The slot owns it until both have come, in whichever order, and whatever becomes of
/// its future in between.
///
/// ```text
///             result with MORE: told(), cqe kept         notification
///  in flight ───────────────────────────────────▶ told ──────────────▶ settled ──▶ complete or orphan
///      └─────────────── result without MORE ───────────────────────────▲
/// ```
///
/// # Safety
///
/// As for [`Op`], but for a result and, if that says so, a notification: pointers stay valid until the latter.
pub unsafe trait Notified: 'static {
    /// What the user gets.
    type Output;

    /// The name under which the operation is counted.
    const KIND: Kind;

    /// Builds the ring entry; called at most once.
    fn entry(&mut self) -> squeue::Entry;

    /// Tells the result while the kernel still uses the operation's memory: what the rest of the world need not be kept
    /// from until the notification can be let go here. Not called when the result comes alone, or after the notification;
    /// called again if the future goes in between. `gone` says that it has, so that nobody goes on with what is left.
    ///
    /// # Safety
    ///
    /// `this` is in its slot, and only this call reaches it. No reference may cover memory that the entry points at (I8),
    /// and nothing of `this` is touched after foreign code was run, which may have ended the operation.
    unsafe fn told(this: *mut Self, cqe: Cqe, gone: bool);

    /// Turns the result into the output, once the kernel is done; [`Cqe::was_copied`] says what the notification did.
    fn complete(self, cqe: Cqe) -> Self::Output;

    /// As [`Op::orphan`].
    fn orphan(self, cqe: Cqe)
    where
        Self: Sized,
    {
        drop(self.complete(cqe));
    }
}

/// An operation with a notification, in the form in which it is submitted.
#[derive(Debug)]
#[repr(transparent)]
pub struct WithNotice<N>(pub N);

// SAFETY: the contract of `Notified`; `TOLD` makes the slot wait for the notification.
unsafe impl<N: Notified> Op for WithNotice<N> {
    type Output = N::Output;
    const KIND: Kind = N::KIND;
    // SAFETY: a transparent wrapper, so the pointer is as good for what is inside; the rest is the caller's promise.
    const TOLD: Option<unsafe fn(*mut Self, Cqe, bool)> =
        Some(|this, cqe, gone| unsafe { N::told(this.cast(), cqe, gone) });

    fn entry(&mut self) -> squeue::Entry {
        self.0.entry()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        self.0.complete(cqe)
    }

    fn orphan(self, cqe: Cqe) {
        self.0.orphan(cqe);
    }
}

/// One request to the kernel that ends after any number of completions (multishot).
///
/// # Safety
///
/// As for [`Op`], but for any number of completions, all but the last with `IORING_CQE_F_MORE`; and the kernel keeps
/// no pointer into `self` at all, since [`item`](Multi::item) borrows it while the request is in flight. The entry selects
/// no provided buffer: the runtime's pool would not notice that one is taken.
pub unsafe trait Multi: 'static {
    /// The name under which the operation is counted.
    const KIND: Kind;

    /// The runtime's own: completions bring pieces of the pool, which go to [`early`](Multi::early), and [`item`](Multi::item)
    /// only hears of the end.
    #[doc(hidden)]
    const POOLED: bool = false;

    /// Builds the ring entry; called at most once.
    fn entry(&mut self) -> squeue::Entry;

    /// Takes one completion, in the kernel's order, the last one included ([`Cqe::more`] tells).
    fn item(&mut self, cqe: Cqe);

    /// Takes a piece while completions are being reaped: runs no foreign code, and touches no ring. Who waits for it is to
    /// be woken; `enough` is set when the operation is to be cancelled.
    #[doc(hidden)]
    fn early(&self, data: Pooled, _enough: &mut bool) -> Option<Waker> {
        drop(data);
        None
    }
}

/// The result and flags of one completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cqe {
    result: i32,
    flags: u32,
}

impl Cqe {
    /// A completion with the kernel's `res` and `flags`.
    pub const fn new(result: i32, flags: u32) -> Self {
        Self { result, flags }
    }

    /// The completion of an operation that never reached the kernel: `ECANCELED`, with a flag that no kernel sets.
    pub const CANCELED: Self = Self::new(-libc::ECANCELED, Self::NEVER_SENT);

    const NEVER_SENT: u32 = 1 << 31;
    /// Of a stored result: what its notification reported. No kernel sets it, as no buffer has such a number.
    const COPIED: u32 = 1 << 30;

    /// Whether the operation never reached the kernel.
    pub fn never_sent(self) -> bool {
        self.flags & Self::NEVER_SENT != 0
    }

    /// Whether the notification of this result said that the data was copied after all.
    pub fn was_copied(self) -> bool {
        self.flags & Self::COPIED != 0
    }

    /// Whether this is a notification rather than a result.
    pub(crate) fn is_notice(self) -> bool {
        io_uring::cqueue::notif(self.flags)
    }

    /// Whether this notification says that the data was copied (`IORING_NOTIF_USAGE_ZC_COPIED`).
    pub(crate) fn says_copied(self) -> bool {
        self.result as u32 & 1 << 31 != 0
    }

    /// A result together with its notification.
    pub(crate) fn noticed(self, copied: bool) -> Self {
        Self { flags: self.flags | if copied { Self::COPIED } else { 0 }, ..self }
    }

    /// The count or descriptor of a success, or the errno.
    ///
    /// The codes −512 … −516 of a worker that was interrupted are not for users; they read as `ECANCELED`.
    pub fn result(self) -> io::Result<u32> {
        match self.result {
            0.. => Ok(self.result as u32),
            -516..=-512 => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
            errno => Err(io::Error::from_raw_os_error(-errno)),
        }
    }

    /// Whether the result is this errno.
    pub fn is_errno(self, errno: i32) -> bool {
        self.result == -errno
    }

    pub(crate) const fn parts(self) -> (i32, u32) {
        (self.result, self.flags)
    }

    /// The flags (`IORING_CQE_F_*`).
    pub fn flags(self) -> u32 {
        self.flags
    }

    /// Whether further completions of the same request follow (`IORING_CQE_F_MORE`).
    pub fn more(self) -> bool {
        io_uring::cqueue::more(self.flags)
    }
}

/// Names under which operations are counted in [`metrics`](crate::metrics::Metrics).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the kernel's opcodes, or what the system calls do")]
pub enum Kind {
    Accept,
    Advise,
    Allocate,
    Close,
    Connect,
    Copy,
    Link,
    MakeDir,
    Nop,
    Open,
    PollAdd,
    Read,
    ReadDir,
    Recv,
    Rename,
    Send,
    SendZc,
    Shutdown,
    Splice,
    Stat,
    Symlink,
    Sync,
    Tee,
    Truncate,
    Unlink,
    Write,
    Xattr,
    /// Operations that users define.
    Other,
}

impl Kind {
    /// Every kind, in the order of the counters.
    pub const ALL: [Self; 28] = [
        Self::Accept,
        Self::Advise,
        Self::Allocate,
        Self::Close,
        Self::Connect,
        Self::Copy,
        Self::Link,
        Self::MakeDir,
        Self::Nop,
        Self::Open,
        Self::PollAdd,
        Self::Read,
        Self::ReadDir,
        Self::Recv,
        Self::Rename,
        Self::Send,
        Self::SendZc,
        Self::Shutdown,
        Self::Splice,
        Self::Stat,
        Self::Symlink,
        Self::Sync,
        Self::Tee,
        Self::Truncate,
        Self::Unlink,
        Self::Write,
        Self::Xattr,
        Self::Other,
    ];
}

/// The rungs of the ladder: how an operation was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Rung {
    /// A system call on the runtime's thread that could not block.
    Inline,
    /// An entry of the ring; the kernel tries, arms its own poll and tries again.
    Ring,
    /// A poll request on the descriptor that was not ready, and then another try.
    Reissue,
    /// A worker: the blocking pool, or a kernel worker that was asked for.
    Offload,
}

impl Rung {
    /// Every rung, in the order of the counters.
    pub const ALL: [Self; 4] = [Self::Inline, Self::Ring, Self::Reissue, Self::Offload];
}

/// The flags of an entry that a worker of the kernel is to carry out, or not.
fn placed(on_worker: bool) -> squeue::Flags {
    if on_worker { squeue::Flags::ASYNC } else { squeue::Flags::empty() }
}

/// The rung of such an entry.
fn rung(on_worker: bool) -> Rung {
    if on_worker { Rung::Offload } else { Rung::Ring }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_rungs_are_listed_in_their_order() {
        assert!(Kind::ALL.iter().enumerate().all(|(i, &kind)| kind as usize == i));
        assert!(Rung::ALL.iter().enumerate().all(|(i, &rung)| rung as usize == i));
    }

    #[test]
    fn codes_of_interrupted_workers_never_reach_users() {
        for code in -516..=-512 {
            assert_eq!(Cqe::new(code, 0).result().unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        }
        assert_eq!(Cqe::new(-libc::EPIPE, 0).result().unwrap_err().raw_os_error(), Some(libc::EPIPE));
        assert_eq!(Cqe::new(i32::MAX, 0).result().unwrap(), i32::MAX as u32);
    }
}
