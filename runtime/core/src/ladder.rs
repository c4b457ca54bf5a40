//! The rungs of the ladder that several kinds of I/O climb in the same way.
//!
//! Owns the arm rung: a poll of the descriptor, after which the operation is issued again. Knows nothing of what is
//! issued.

use std::io;

use crate::coop;
use crate::fd::Origin;
use crate::op::poll_add::PollAdd;
use crate::op::{Kind, Rung};
use crate::submit::submit;

/// Waits until the descriptor may be ready, because an operation said that it would block.
///
/// The result is the events that were seen. Who issues the operation again anyway need not look at it: an error of the
/// poll shows itself there.
///
/// # Cancel safety
///
/// The poll takes nothing from the descriptor; `origin` is dropped when the kernel has let go of it.
#[cold]
pub async fn ready<F: Origin>(origin: F, events: i16) -> (io::Result<u32>, F) {
    coop::count(Kind::PollAdd, Rung::Reissue);
    submit(PollAdd::new(origin, events)).await
}
