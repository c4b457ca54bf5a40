//! Private pipes that bytes pass through on their way between two ends of which neither is a pipe; and the pool of them.
//!
//! Owns the rule that a pipe goes back to the pool only when it is known to be empty. Knows nothing of what the ends are.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use runtime_core::coop;
use runtime_core::duplex::Held;
use runtime_core::fd::Origin;
use runtime_core::ladder::{read_inline, room};
use runtime_core::op::poll_add::POLLOUT;
use runtime_core::op::{Kind, Rung};
use runtime_core::sys::{self, pipes};
use runtime_core::time::sleep;

use crate::seen;

/// Bytes that a private pipe is asked to hold.
pub(crate) const PIPE_BYTES: usize = 256 << 10;
/// Pipes that a thread keeps for later.
const POOL_PIPES: usize = 16;
/// Tries without progress, although both sides are ready.
const STUCK_BOUND: u32 = 8;

/// Both ends of a private pipe.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) rx: OwnedFd,
    pub(crate) tx: OwnedFd,
}

thread_local! {
    /// Empty pipes. Of the thread rather than of a runtime: a pipe belongs to no ring.
    static POOL: RefCell<Vec<Ends>> = const { RefCell::new(Vec::new()) };
}

fn take() -> io::Result<Ends> {
    if let Some(ends) = POOL.try_with(|pool| pool.borrow_mut().pop()).ok().flatten() {
        return Ok(ends);
    }
    let (rx, tx) = sys::pipe()?;
    // The user may have too many pages in pipes (`pipe-user-pages-soft`): what it got serves as well.
    let _ = pipes::set_pipe_capacity(tx.as_fd(), PIPE_BYTES);
    Ok(Ends { rx, tx })
}

fn put_back(ends: Ends) {
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if pool.len() < POOL_PIPES {
            pool.push(ends);
        }
    });
}

/// A private pipe and what is in it.
#[derive(Debug)]
pub(crate) struct Transit {
    /// There until it is dropped. Shared with a job that fills it.
    ends: Option<Arc<Ends>>,
    /// Bytes in it; nobody knows while a job fills it.
    left: Option<usize>,
    /// Where they came from, to be given back to if this is dropped.
    from: Option<Held>,
}

/// How the way out of a private pipe ended.
pub(crate) enum Drained {
    /// It is empty.
    Empty,
    /// Both sides are ready, but nothing moves.
    Stuck,
}

impl Transit {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { ends: Some(Arc::new(take()?)), left: Some(0), from: None })
    }

    fn ends(&self) -> &Arc<Ends> {
        self.ends.as_ref().expect("there until it is dropped")
    }

    /// Where bytes come out.
    pub(crate) fn rx(&self) -> BorrowedFd<'_> {
        self.ends().rx.as_fd()
    }

    /// Where bytes go in.
    pub(crate) fn tx(&self) -> BorrowedFd<'_> {
        self.ends().tx.as_fd()
    }

    /// For a job that fills it; [`filled`](Self::filled) follows, or the pipe is thrown away.
    pub(crate) fn lend(&mut self) -> Arc<Ends> {
        self.left = None;
        Arc::clone(self.ends())
    }

    /// Bytes in it, as far as that is known.
    pub(crate) fn left(&self) -> usize {
        self.left.unwrap_or(0)
    }

    /// So many bytes are in it.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.left = Some(bytes);
    }

    /// Who gets them back.
    pub(crate) fn keep(&mut self, from: Held) {
        self.from = Some(from);
    }

    /// The same again; what is still in the pipe becomes what the next read returns.
    pub(crate) fn release(&mut self) -> Held {
        self.give_back();
        self.from.take().expect("kept before")
    }

    /// Moves everything out. `to` is there before and after.
    pub(crate) async fn drain(&mut self, to: &mut Option<Held>, moved: &Cell<u64>) -> io::Result<Drained> {
        let mut stuck = 0;
        while let Some(left) = self.left.filter(|left| *left > 0) {
            coop::proceed().await;
            coop::assert_same_process();
            let Some(held) = to.take() else { unreachable!("the caller brings it") };
            match pipes::splice(self.ends().rx.as_fd(), held.as_fd(), left) {
                Ok(n) => {
                    coop::done_inline(Kind::Splice, n);
                    self.left = Some(left - n.min(left));
                    moved.set(moved.get() + n as u64);
                    stuck = 0;
                    *to = Some(held);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => *to = Some(held),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_ready = sys::is_ready(held.as_fd().as_raw_fd(), POLLOUT);
                    if let Ok(false) = is_ready {
                        coop::count(Kind::Splice, Rung::Reissue);
                        // An error of the poll shows itself in the next try.
                        *to = Some(room(held).await);
                        continue;
                    }
                    *to = Some(held);
                    is_ready?;
                    stuck += 1;
                    if stuck >= STUCK_BOUND {
                        return Ok(Drained::Stuck);
                    }
                    if stuck > 1 {
                        sleep(Duration::from_micros(50 << stuck)).await;
                    }
                }
                Err(error) => {
                    *to = Some(held);
                    return Err(seen(error));
                }
            }
        }
        Ok(Drained::Empty)
    }

    fn give_back(&mut self) {
        let (Some(left), Some(from)) = (self.left, &mut self.from) else { return };
        let mut data = Vec::with_capacity(left);
        let rx = self.ends.as_ref().expect("there until it is dropped").rx.as_fd();
        while data.len() < left {
            let at = data.len();
            match read_inline(rx, &mut data, at) {
                Ok(n) if n > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What is said to be there is there: nobody else knows this pipe.
                _ => break,
            }
        }
        self.left = (data.len() == left).then_some(0);
        from.give_back(&data);
    }
}

impl Drop for Transit {
    fn drop(&mut self) {
        self.give_back();
        if self.left == Some(0)
            && let Some(ends) = self.ends.take().and_then(|ends| Arc::try_unwrap(ends).ok())
        {
            put_back(ends);
        }
    }
}
