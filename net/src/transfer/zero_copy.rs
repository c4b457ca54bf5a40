//! Zero-copy writes: when they are worth it, and what is done where they are not.
//!
//! ```text
//!  small, or copied every time ──▶ a plain write
//!
//!  large ──▶ SEND_ZC ──▶ all of it ──▶ the direction is free ──▶ notification ──▶ done, the buffer comes back
//!              ▲  │ a part
//!              └──┘
//!                 │ not here, or no memory for it
//!                 ▼
//!               SEND, the rest
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use runtime_core::buf::{BufResult, IoBuf};
use runtime_core::coop;
use runtime_core::duplex::{Direction, Duplex, Held};
use runtime_core::ladder::room;
use runtime_core::op::WithNotice;
use runtime_core::op::send::Send;
use runtime_core::op::send_zc::{SendZc, Sent, ZeroCopy};
use runtime_core::submit::submit;
use runtime_core::sys;

use super::Settled;
use super::transmit::{Extent, Transmit};

/// From how many bytes on a write goes without a copy, unless the stream was told otherwise.
///
/// CPU of a send that is not copied, divided by that of one that is, on a device that takes all there is (benches,
/// `zero_copy udp`; Linux 6.18): 1.4 to 1.6 up to 16 KiB, 0.91 at 32 KiB, 0.66 at 60 KiB; from registered memory 0.77 and
/// 0.49. Where the kernel copies after all, because the receiver is on the same machine, it is 2.3 at 32 KiB, 1.9 at 64 KiB
/// and about the same as a plain one from 256 KiB on. Above the crossing, since an acknowledgement that comes later costs a
/// turn of its own, which these figures do not have.
const THRESHOLD_BYTES: usize = 64 << 10;
/// After so many sends in a row that were copied after all the stream is not tried again.
const MAX_COPIED: u64 = 8;

/// What is known of one stream, in the [`note`](Duplex::note) of its duplex.
#[derive(Debug, Clone, Copy)]
struct Policy<'a>(&'a AtomicU64);

impl Policy<'_> {
    const COPIED: u64 = 0xff;
    const REFUSED: u64 = 0x100;
    /// The threshold that was set, plus one, is above these bits; 0 means none was.
    const THRESHOLD_SHIFT: u32 = 9;

    fn of(duplex: &Duplex) -> Policy<'_> {
        Policy(duplex.note())
    }

    fn set_threshold(self, bytes: usize) {
        let bytes = (bytes as u64).min(u64::MAX >> (Self::THRESHOLD_SHIFT + 1));
        // What was learned is forgotten: whoever sets it wants to see it tried.
        self.0.store((bytes + 1) << Self::THRESHOLD_SHIFT, Ordering::Relaxed);
    }

    fn wants(self, len: usize) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        if word & Self::REFUSED != 0 {
            return false;
        }
        match word >> Self::THRESHOLD_SHIFT {
            0 => len >= THRESHOLD_BYTES && word & Self::COPIED < MAX_COPIED,
            set => len as u64 >= set - 1,
        }
    }

    fn learn(self, copied: bool) {
        // Directions are used one after the other, and a lost count does no harm.
        let word = self.0.load(Ordering::Relaxed);
        let count = word & Self::COPIED;
        let now = if copied { (count + 1).min(MAX_COPIED) } else { 0 };
        if now != count {
            self.0.store(word & !Self::COPIED | now, Ordering::Relaxed);
        }
    }

    fn refused(self) {
        self.0.fetch_or(Self::REFUSED, Ordering::Relaxed);
    }
}

pub(crate) fn set_threshold(duplex: &Duplex, bytes: usize) {
    Policy::of(duplex).set_threshold(bytes);
}

pub(crate) async fn write<B: IoBuf>(duplex: &Arc<Duplex>, buf: B) -> BufResult<usize, B> {
    send(duplex, buf, Extent::Some).await
}

pub(crate) async fn write_all<B: IoBuf>(duplex: &Arc<Duplex>, buf: B) -> BufResult<(), B> {
    send(duplex, buf, Extent::Whole).await.map(drop)
}

async fn send<B: IoBuf>(duplex: &Arc<Duplex>, mut buf: B, extent: Extent) -> BufResult<usize, B> {
    let policy = Policy::of(duplex);
    let (len, zero_copy) = (buf.init_len(), coop::zero_copy());
    if len == 0 || zero_copy == ZeroCopy::Missing || !policy.wants(len) {
        return Transmit::new(duplex, buf, extent).await;
    }
    let mut held = duplex.acquire(Direction::Write).await;
    if let Err(error) = held.check() {
        return BufResult(Err(error), buf);
    }
    let index = coop::registered(&buf);
    let mut sent = 0;
    loop {
        if sys::is_distracting(held.as_fd()) {
            // The kernel cannot wait for room there, other than on a worker; see `Arm`.
            return send_plain(held, buf, sent, extent).await;
        }
        let op = SendZc::new(held, buf, sent, extent == Extent::Whole, zero_copy, index);
        let Sent { result, buf: back, origin, copied } = submit(WithNotice(op)).await;
        buf = back;
        if result.is_ok() && zero_copy == ZeroCopy::Reporting {
            policy.learn(copied);
        }
        let error = match (result, origin) {
            (Ok(n), origin) => {
                sent += n;
                match origin {
                    Some(rest) if extent == Extent::Whole && sent < len && n > 0 => {
                        if rest.duplex().was_reset() {
                            // Hidden behind the count of what was sent before; from now on it is told as EPIPE.
                            return BufResult(Err(io::ErrorKind::ConnectionReset.into()), buf);
                        }
                        held = rest;
                    }
                    _ if extent == Extent::Whole && sent < len => {
                        return BufResult(Err(io::ErrorKind::WriteZero.into()), buf);
                    }
                    _ => return BufResult(Ok(sent), buf),
                }
                continue;
            }
            (Err(error), Some(origin)) => {
                held = origin;
                error
            }
            (Err(error), None) => return BufResult(Err(error), buf),
        };
        if !is_about_zero_copy(&error) && !is_given_up(&error) {
            match Settled::failed(error) {
                Settled::Again => {}
                Settled::NotReady => held = room(held).await,
                Settled::Done(result) => return BufResult(result, buf),
            }
            continue;
        }
        if !is_short_of_memory(&error) && !is_given_up(&error) {
            policy.refused();
        }
        return send_plain(held, buf, sent, extent).await;
    }
}

/// Whether a plain send may do what this one could not: sockets that cannot, kernels that do not know a flag, and what a
/// user may lock.
fn is_about_zero_copy(error: &io::Error) -> bool {
    const EINVAL: i32 = 22;
    const EOPNOTSUPP: i32 = 95;
    is_short_of_memory(error) || matches!(error.raw_os_error(), Some(EINVAL | EOPNOTSUPP))
}

/// Nobody has cancelled it but the kernel, which had no worker for it.
fn is_given_up(error: &io::Error) -> bool {
    const ECANCELED: i32 = 125;
    error.raw_os_error() == Some(ECANCELED)
}

fn is_short_of_memory(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENOBUFS: i32 = 105;
    matches!(error.raw_os_error(), Some(ENOMEM | ENOBUFS))
}

/// Sends what is behind the `sent` bytes, with the direction in hand.
async fn send_plain<B: IoBuf>(mut held: Held, mut buf: B, mut sent: usize, extent: Extent) -> BufResult<usize, B> {
    loop {
        let result;
        (result, buf, held) = submit(Send::new(held, buf, sent)).await;
        match result {
            Ok(0) if extent == Extent::Whole => return BufResult(Err(io::ErrorKind::WriteZero.into()), buf),
            Ok(n) => {
                sent += n;
                if extent == Extent::Some || sent >= buf.init_len() {
                    return BufResult(Ok(sent), buf);
                }
            }
            Err(error) => match Settled::failed(error) {
                Settled::Again => {}
                Settled::NotReady => held = room(held).await,
                Settled::Done(result) => return BufResult(result, buf),
            },
        }
    }
}
