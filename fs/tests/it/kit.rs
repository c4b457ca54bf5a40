//! What the files' tests share.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use runtime::Builder;
use runtime_core::op::opcode;

use crate::support::watchdog;

/// Every way in which the same calls have to have the same results: as usual, with the smallest rings, and on a kernel that
/// lacks what the ladder has a pool for.
pub(crate) fn everywhere<F: Future<Output = ()>>(body: impl Fn() -> F) {
    let _watchdog = watchdog(Duration::from_secs(60));
    Builder::new().build().unwrap().block_on(body());
    let mut tiny = Builder::new().entries(8);
    tiny.setup_mut().cq_entries = 16;
    tiny.build().unwrap().block_on(body());
    let mut lacking = Builder::new();
    lacking.setup_mut().missing_opcodes = missing();
    lacking.build().unwrap().block_on(body());
}

/// The opcodes that the ladder has another rung for.
pub(crate) fn missing() -> Vec<u8> {
    vec![
        opcode::OpenAt::CODE,
        opcode::OpenAt2::CODE,
        opcode::Statx::CODE,
        opcode::Fsync::CODE,
        opcode::Ftruncate::CODE,
        opcode::RenameAt::CODE,
        opcode::UnlinkAt::CODE,
        opcode::MkDirAt::CODE,
        opcode::LinkAt::CODE,
        opcode::SymlinkAt::CODE,
        opcode::FSetXattr::CODE,
    ]
}

/// Polls a future once and drops it; says whether it was over.
pub(crate) async fn start_and_drop<F: Future>(future: F) -> bool {
    dropped_after(1, future).await
}

/// Drops a future when it was polled `polls` times and is not over.
pub(crate) async fn dropped_after<F: Future>(polls: usize, future: F) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|task| {
        left -= 1;
        match future.as_mut().poll(task) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The same error as std's: number and kind.
#[track_caller]
pub(crate) fn same_error<T: std::fmt::Debug, U: std::fmt::Debug>(ours: std::io::Result<T>, theirs: std::io::Result<U>) {
    let (ours, theirs) = (ours.unwrap_err(), theirs.unwrap_err());
    assert_eq!((ours.raw_os_error(), ours.kind()), (theirs.raw_os_error(), theirs.kind()));
}
