//! [`splice`] and [`tee`]: bytes that go from one stream to another without the program seeing them.
//!
//! Owns the ladder of these two; knows nothing of which types there are at the ends.
//!
//! ```text
//!            would block                                  both ready           no progress, a number of times
//!   inline ─────────────▶ look at both ──▶ poll of the one ────────▶ timer ────────────────────────────────▶ copying
//!      ▲                        that is not ready      │               │
//!      └───────────────────────────────────────────────┴───────────────┘
//! ```
//!
//! The ring's own SPLICE and TEE are no rung: each of them occupies a kernel thread, and on a non-blocking descriptor they
//! do not even wait there.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use runtime_core::buf::IoBuf;
use runtime_core::coop;
use runtime_core::duplex::{Direction, Duplex, Held};
use runtime_core::ends::{End, Sink, Source, What};
use runtime_core::fd::{Carry, Origin};
use runtime_core::ladder::{readable, room};
use runtime_core::op::pass::Pass;
use runtime_core::op::poll_add::{POLLIN, POLLOUT};
use runtime_core::op::read::{NO_OFFSET, Read};
use runtime_core::op::recv::Recv;
use runtime_core::op::write::Write;
use runtime_core::op::{Kind, Rung};
use runtime_core::receiver;
use runtime_core::submit::submit;
use runtime_core::sys::{self, pipes};
use runtime_core::time::sleep;

use crate::transit::{Drained, PIPE_BYTES, Transit};
use crate::{is_ours, is_over, may_block, seen, serve};

/// Bytes that are copied at once.
pub(crate) const COPY_BYTES: usize = 64 << 10;
/// Tries without progress, although both sides are ready, before bytes are copied.
const STUCK_BOUND: u32 = 8;

/// Moves up to `len` bytes from one stream to another inside the kernel, and returns the count: at least one, or 0 at the
/// end of the input. One of the two must be a pipe. A length of 0 is 0 at once.
///
/// Fewer than `len` are normal, as with splice(2); [`splice_all`] goes on. What a dropped read or a
/// standing receive of the input has brought goes first, so reading a header and splicing the rest keeps every byte in
/// order.
///
/// | between | first | then |
/// |---|---|---|
/// | pipe and pipe, pipe and a socket in non-blocking mode (as the runtime's own are) | splice(2) on the thread itself, which does not block | a poll of the side that is not ready (`IORING_OP_POLL_ADD`), and again; without progress a timer, then copying |
/// | pipe and a socket in blocking mode, or a standard stream that is neither | copying: READ or RECV, then WRITE or SEND | |
/// | pipe and file | [`splice_from_file`](crate::splice_from_file()) and [`splice_to_file`](crate::splice_to_file()) | |
///
/// No kernel worker is involved in any of this, unlike in `IORING_OP_SPLICE`.
///
/// # Errors
///
/// Those of splice(2), at once: `InvalidInput` when neither is a pipe or both are ends of the same one. `BrokenPipe` when
/// nobody reads the output; never a SIGPIPE.
///
/// # Cancel safety
///
/// Every byte is either still in the input or in the output. Those that were being copied go back to the input.
///
/// # Examples
///
/// ```
/// use runtime_pipe::{pipe, splice};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let ((tx, from), (to, rx)) = (pipe()?, pipe()?);
/// tx.write_all("moved, not copied").await.0?;
/// assert_eq!(splice(&from, &to, 5).await?, 5);
/// assert_eq!(rx.read(Vec::with_capacity(64)).await.1, b"moved");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "SPLICE_F_NONBLOCK")]
#[doc(alias = "IORING_OP_SPLICE")]
pub async fn splice<I: Source + ?Sized, O: Sink + ?Sized>(input: &I, output: &O, len: usize) -> io::Result<usize> {
    if len == 0 {
        coop::nothing_to_do().await;
        return Ok(0);
    }
    let (from, to) = (input.source(), output.sink());
    refuse(from, to)?;
    if let Some(n) = at_once(from, to, Kind::Splice, |from, to| pipes::splice(from, to, len)) {
        return Ok(n);
    }
    let mut pair = Pair::acquire(from, to).await?;
    pair.step(len, &Cell::new(0)).await
}

/// Moves `len` bytes, or all until the end of the input when there are fewer, and returns the count. Nothing else comes in
/// between on either side. Use `u64::MAX` for everything.
///
/// # Errors
///
/// Those of [`splice`]; how many bytes were moved before is not known then.
///
/// # Cancel safety
///
/// As [`splice`]: nothing is lost, but the count is.
pub async fn splice_all<I: Source + ?Sized, O: Sink + ?Sized>(input: &I, output: &O, len: u64) -> io::Result<u64> {
    if len == 0 {
        coop::nothing_to_do().await;
        return Ok(0);
    }
    refuse(input.source(), output.sink())?;
    let mut pair = Pair::acquire(input.source(), output.sink()).await?;
    let mut moved = 0;
    while moved < len {
        let want = usize::try_from(len - moved).unwrap_or(usize::MAX);
        match pair.step(want, &Cell::new(0)).await? {
            0 => break,
            n => moved += n as u64,
        }
    }
    Ok(moved)
}

/// Copies up to `len` bytes from one pipe to another without taking them from the first, and returns the count: at least
/// one, or 0 at the end of the input. A length of 0 is 0 at once. The pages are shared, not copied.
///
/// Carried out like [`splice`]; it is tee(2) on the thread itself, and never `IORING_OP_TEE`. Without progress it is tried
/// again by a timer.
///
/// # Errors
///
/// Those of tee(2), at once: `InvalidInput` for two ends of one pipe, or when one is no pipe. `BrokenPipe` when nobody
/// reads the output.
///
/// # Cancel safety
///
/// The bytes stay in the input in any case; they may have been copied.
#[doc(alias = "IORING_OP_TEE")]
pub async fn tee<I: Source + ?Sized, O: Sink + ?Sized>(input: &I, output: &O, len: usize) -> io::Result<usize> {
    if len == 0 {
        coop::nothing_to_do().await;
        return Ok(0);
    }
    let (from, to) = (input.source(), output.sink());
    if from.what != What::Pipe || to.what != What::Pipe {
        // Asked for its error alone, which what a dropped read has left must not hide.
        return pipes::tee(from.duplex.as_fd(), to.duplex.as_fd(), len);
    }
    if let Some(n) = at_once(from, to, Kind::Tee, |from, to| pipes::tee(from, to, len)) {
        return Ok(n);
    }
    let mut pair = Pair::acquire(from, to).await?;
    pair.tee(len).await
}

/// The inline rung of a write, where the output does not block; `None` when there is nothing to be said yet.
pub(crate) fn write_inline(to: &Held, what: What, data: &[u8]) -> Option<io::Result<usize>> {
    let (kind, result) = match what {
        What::Socket => (Kind::Send, sys::send(to.as_fd(), data)),
        What::Pipe if is_ours(to.duplex()) => (Kind::Write, pipes::write(to.as_fd(), data)),
        What::Pipe | What::Other => return None,
    };
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
        result => {
            coop::done_inline(kind, *result.as_ref().unwrap_or(&0));
            Some(result)
        }
    }
}

/// The kernel's error of a splice without any pipe, which bytes that a dropped read has left, or copying, must not hide.
fn refuse(from: End<'_>, to: End<'_>) -> io::Result<()> {
    if from.what == What::Pipe || to.what == What::Pipe {
        return Ok(());
    }
    // Asked for its error alone.
    pipes::splice(from.duplex.as_fd(), to.duplex.as_fd(), 1).map(drop)
}

/// Counts bytes that have gone out.
fn add(moved: &Cell<u64>, n: usize) {
    moved.set(moved.get() + n as u64);
}

/// Both sides of a move, each held.
pub(crate) struct Pair {
    /// Always there between operations, until one fails.
    held: Option<(Held, Held)>,
    from: What,
    to: What,
    /// One of them is a socket in blocking mode, or something that is only copied.
    blocks: bool,
    /// Others may use the output while the input is waited for.
    shares: bool,
    /// Memory for copying, kept from one time to the next.
    spare: Vec<u8>,
}

/// The usual case between two pipes, tried before anything is kept for a wait: both directions are free and nothing was
/// left in them, there is something to move, and there is room for it. `None` otherwise, and for whatever else the kernel
/// has to say: it says so again.
#[inline]
fn at_once(
    from: End<'_>,
    to: End<'_>,
    kind: Kind,
    call: impl FnOnce(BorrowedFd<'_>, BorrowedFd<'_>) -> io::Result<usize>,
) -> Option<usize> {
    if from.what != What::Pipe || to.what != What::Pipe || !coop::has_budget() {
        return None;
    }
    coop::block_sigpipe();
    coop::assert_same_process();
    let _input = from.duplex.try_hold(Direction::Read)?;
    let _output = to.duplex.try_hold(Direction::Write)?;
    let n = call(from.duplex.as_fd(), to.duplex.as_fd()).ok().filter(|n| *n > 0)?;
    coop::done_inline(kind, n);
    Some(n)
}

/// The output, while the input is waited for.
enum Lent {
    Kept(Held),
    Away(Arc<Duplex>),
}

/// Whether a splice would be held up by this end's own mode, or by what it is.
pub(crate) fn blocks(end: End<'_>) -> io::Result<bool> {
    match end.what {
        What::Pipe => Ok(false),
        What::Socket => sys::is_nonblocking(end.duplex.as_fd()).map(|nonblocking| !nonblocking),
        What::Other => Ok(true),
    }
}

/// Takes a direction; the usual case needs neither a waker nor a place in a queue.
pub(crate) async fn take(end: End<'_>, direction: Direction) -> Held {
    match end.duplex.try_hold(direction) {
        Some(hold) if coop::has_budget() => hold.keep(),
        hold => {
            drop(hold);
            end.duplex.acquire(direction).await
        }
    }
}

impl Pair {
    /// Takes both directions, the input first, and tells what a dropped write has left.
    pub(crate) async fn acquire(from: End<'_>, to: End<'_>) -> io::Result<Self> {
        // Neither a splice nor a WRITE that the kernel tries inline spares this thread a SIGPIPE.
        coop::block_sigpipe();
        let blocks = blocks(from)? || blocks(to)?;
        let input = take(from, Direction::Read).await;
        let mut output = take(to, Direction::Write).await;
        output.check()?;
        let held = Some((input, output));
        Ok(Self { held, from: from.what, to: to.what, blocks, shares: false, spare: Vec::new() })
    }

    /// From now on neither direction is kept from others for longer than a move takes: they may read in between, and
    /// write in between also while this one waits for its input, as with a read and a write of one's own.
    pub(crate) fn share(&mut self) {
        self.shares = true;
    }

    /// Lets those go first who wait for one of the directions, if this one shares them.
    pub(crate) async fn take_turns(&mut self) -> io::Result<()> {
        if !self.shares {
            return Ok(());
        }
        let (from, to) = self.held.take().expect("between operations both are here");
        let (input, output) = (Arc::clone(from.duplex()), Arc::clone(to.duplex()));
        drop((from, to));
        let from = input.acquire(Direction::Read).await;
        let mut to = output.acquire(Direction::Write).await;
        let told = to.check();
        self.held = Some((from, to));
        told
    }

    /// Both directions, for an operation on the input: the output is let go where it is shared.
    fn part(&mut self) -> (Held, Lent) {
        let (from, to) = self.held.take().expect("between operations both are here");
        (from, if self.shares { Lent::Away(Arc::clone(to.duplex())) } else { Lent::Kept(to) })
    }

    /// Undoes [`part`](Self::part); what was read meanwhile is carried, since others may be writing.
    async fn join(&mut self, from: Held, to: Lent, data: Vec<u8>) -> io::Result<Vec<u8>> {
        let duplex = match to {
            Lent::Kept(to) => {
                self.held = Some((from, to));
                return Ok(data);
            }
            Lent::Away(duplex) => duplex,
        };
        let carry = Carry::new(from, data);
        let mut to = duplex.acquire(Direction::Write).await;
        let (mut from, data) = carry.into_parts();
        let told = to.check();
        if told.is_err() {
            from.give_back(&data);
        }
        self.held = Some((from, to));
        told.map(|()| data)
    }

    fn held(&mut self) -> &mut (Held, Held) {
        self.held.as_mut().expect("between operations both are here")
    }

    /// Two ends of one pipe: the kernel's error, which what a dropped read has left must not hide.
    fn check_pipes(&mut self) -> io::Result<()> {
        let are_pipes = self.from == What::Pipe && self.to == What::Pipe;
        let (from, to) = self.held();
        if are_pipes && !from.is_clean() { pipes::check_ends(from.as_fd(), to.as_fd()) } else { Ok(()) }
    }

    /// Whether one of the two is a pipe, so that a splice needs no other.
    pub(crate) fn is_direct(&self) -> bool {
        self.from == What::Pipe || self.to == What::Pipe
    }

    /// Whether only copying does not block.
    pub(crate) fn only_copies(&self) -> bool {
        self.blocks
    }

    /// Some bytes by way of a private pipe, which is empty before; 0 at the end. `None` when nothing moves.
    pub(crate) async fn through(&mut self, transit: &mut Transit, moved: &Cell<u64>) -> io::Result<Option<usize>> {
        if let Some(result) = self.serve(COPY_BYTES, moved).await {
            return result.map(Some);
        }
        let mut stuck = 0;
        let n = loop {
            coop::proceed().await;
            coop::assert_same_process();
            let (from, _) = self.held();
            match pipes::splice(from.as_fd(), transit.tx(), PIPE_BYTES) {
                // Something is there that only a read gets past.
                Ok(0) if !pipes::is_at_end(from.as_fd()) => return Ok(None),
                Ok(0) => return from.take_end(false).map_or(Ok(Some(0)), Err),
                Ok(n) => break n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The private pipe is empty, so it is the input; or it has become ready in between.
                    if !sys::is_ready(from.as_fd().as_raw_fd(), POLLIN)? {
                        coop::count(Kind::Splice, Rung::Reissue);
                        self.wait_for_input().await?;
                        continue;
                    }
                    stuck += 1;
                    if stuck > 2 {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        };
        coop::done_inline(Kind::Splice, n);
        let (from, to) = self.held.take().expect("between operations both are here");
        transit.filled(n);
        transit.keep(from);
        let mut to = Some(to);
        let result = transit.drain(&mut to, moved).await;
        let from = transit.release();
        self.held = to.map(|to| (from, to));
        match result? {
            Drained::Empty => Ok(Some(n)),
            Drained::Stuck => Ok(None),
        }
    }

    /// Some bytes, 0 at the end; `moved` counts them as they go.
    pub(crate) async fn step(&mut self, len: usize, moved: &Cell<u64>) -> io::Result<usize> {
        let mut stuck = 0;
        self.check_pipes()?;
        if let Some(result) = self.serve(len, moved).await {
            return result;
        }
        let is_pipe = self.from == What::Pipe;
        while stuck < STUCK_BOUND && !self.blocks {
            coop::proceed().await;
            coop::assert_same_process();
            let (from, to) = self.held();
            match pipes::splice(from.as_fd(), to.as_fd(), len) {
                // A FIFO that had no writer yet.
                Ok(0) if is_pipe && !is_over(from.as_fd()) => self.wait_for_input().await?,
                // Something is there that only a read gets past.
                Ok(0) if !is_pipe && !pipes::is_at_end(from.as_fd()) => break,
                Ok(0) => {
                    coop::done_inline(Kind::Splice, 0);
                    return from.take_end(false).map_or(Ok(0), Err);
                }
                Ok(n) => {
                    coop::done_inline(Kind::Splice, n);
                    add(moved, n);
                    return Ok(n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(Kind::Splice, &mut stuck).await?;
                }
                Err(error) => return Err(seen(error)),
            }
        }
        self.copy(len, moved).await
    }

    async fn tee(&mut self, len: usize) -> io::Result<usize> {
        let mut stuck = 0;
        self.check_pipes()?;
        let (from, _) = self.held();
        if !from.is_clean() {
            // What was given back comes first, and is left where it is.
            let mut data = Vec::with_capacity(len.min(COPY_BYTES));
            match serve(from, &mut data, 0, true, What::Pipe) {
                Some(Ok(n)) if n > 0 => return self.write_copy(data).await,
                Some(result) => return result,
                None => {}
            }
        }
        loop {
            coop::proceed().await;
            coop::assert_same_process();
            let (from, to) = self.held();
            match pipes::tee(from.as_fd(), to.as_fd(), len) {
                // A FIFO that had no writer yet.
                Ok(0) if !is_over(from.as_fd()) => self.wait_for_input().await?,
                Ok(n) => {
                    coop::done_inline(Kind::Tee, n);
                    return Ok(n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(Kind::Tee, &mut stuck).await?,
                Err(error) => return Err(seen(error)),
            }
        }
    }

    /// Writes what stays in the input as well.
    async fn write_copy(&mut self, mut data: Vec<u8>) -> io::Result<usize> {
        loop {
            let (from, mut to) = self.held.take().expect("between operations both are here");
            let result;
            (result, data, to) = submit(Write::new(to, data, 0, NO_OFFSET)).await;
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => to = room(to).await,
                result => {
                    self.held = Some((from, to));
                    return result.map_err(seen);
                }
            }
            self.held = Some((from, to));
        }
    }

    /// EAGAIN does not say which side: asks both, and waits for the one that is not ready, the input first.
    async fn wait(&mut self, kind: Kind, stuck: &mut u32) -> io::Result<()> {
        let (from, to) = self.held();
        let from_ready = sys::is_ready(from.as_fd().as_raw_fd(), POLLIN)?;
        let to_ready = sys::is_ready(to.as_fd().as_raw_fd(), POLLOUT)?;
        if from_ready && to_ready {
            *stuck += 1;
            // It may have become ready in between: one more try, and then less and less often.
            if *stuck > 1 {
                sleep(Duration::from_micros(50 << (*stuck).min(11))).await;
            }
            return Ok(());
        }
        coop::count(kind, Rung::Reissue);
        if !from_ready {
            return self.wait_for_input().await;
        }
        let (from, to) = self.held.take().expect("between operations both are here");
        let to = room(to).await;
        self.held = Some((from, to));
        Ok(())
    }

    /// The error that followed the last bytes, then what the runtime has in its own memory for the input, go first.
    async fn serve(&mut self, len: usize, moved: &Cell<u64>) -> Option<io::Result<usize>> {
        let what = self.from;
        let (from, to) = self.held();
        if let Err(error) = to.check() {
            return Some(Err(error));
        }
        receiver::settle(from).await;
        if from.is_clean() {
            return None;
        }
        let mut data = Vec::with_capacity(len.min(COPY_BYTES));
        match serve(from, &mut data, 0, false, what)? {
            Ok(0) => Some(Ok(0)),
            Ok(_) => Some(self.pass(data, moved).await),
            Err(error) => Some(Err(error)),
        }
    }

    /// The last rung: READ or RECV, then WRITE or SEND.
    pub(crate) async fn copy(&mut self, len: usize, moved: &Cell<u64>) -> io::Result<usize> {
        if let Some(result) = self.serve(len, moved).await {
            return result;
        }
        loop {
            let (from, to) = self.part();
            let mut data = std::mem::take(&mut self.spare);
            let want = len.min(COPY_BYTES);
            data.clear();
            data.reserve_exact(want);
            // It may have more room than that.
            let data = data.slice(..want);
            let (result, data, from) = match self.from {
                What::Socket => submit(Recv::new(from, data, 0, 0)).await,
                What::Pipe | What::Other => submit(Read::new(from, data, 0, NO_OFFSET)).await,
            };
            if let Err(error) = &result
                && !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
            {
                // At once: who is dropped while it waits for the output would have told nobody.
                return result.map(|_| 0);
            }
            let data = self.join(from, to, data.into_inner()).await?;
            match result {
                // A FIFO that had no writer yet.
                Ok(0) if self.from == What::Pipe && !is_over(self.held().0.as_fd()) => self.wait_for_input().await?,
                Ok(0) => return self.held().0.take_end(false).map_or(Ok(0), Err),
                Ok(_) => return self.pass(data, moved).await,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_input().await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn wait_for_input(&mut self) -> io::Result<()> {
        let (from, to) = self.part();
        // An error of the poll shows itself in what is tried next.
        let from = readable(from).await;
        self.join(from, to, Vec::new()).await.map(drop)
    }

    /// Writes all of what was taken from the input; an error gives the rest back.
    async fn pass(&mut self, mut data: Vec<u8>, moved: &Cell<u64>) -> io::Result<usize> {
        let (mut skip, before) = (0, moved.get());
        if coop::prefers_inline() {
            let what = self.to;
            let (from, to) = self.held();
            match write_inline(to, what, &data) {
                Some(Ok(n)) => {
                    skip = n;
                    add(moved, n);
                }
                Some(Err(error)) => {
                    from.give_back(&data);
                    return Err(seen(error));
                }
                None => {}
            }
        }
        while skip < data.len() {
            let (mut from, mut to) = self.held.take().expect("between operations both are here");
            let result;
            let may_block = may_block(to.duplex());
            let pass = Pass::new(from, to, data, skip, self.to == What::Socket).on_worker(may_block);
            (result, data, from, to) = submit(pass).await;
            self.held = Some((from, to));
            match result {
                Ok(n) => {
                    skip += n;
                    add(moved, n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    data = self.wait_for_output(data.split_off(skip)).await;
                    skip = 0;
                }
                Err(error) => {
                    let (from, to) = self.held();
                    from.give_back(&data[skip..]);
                    if moved.get() == before {
                        return Err(seen(error));
                    }
                    // After what was moved: the next write is told.
                    to.keep_error(seen(error).raw_os_error().unwrap_or(0));
                    return Ok((moved.get() - before) as usize);
                }
            }
        }
        self.spare = data;
        Ok((moved.get() - before) as usize)
    }

    async fn wait_for_output(&mut self, data: Vec<u8>) -> Vec<u8> {
        let (from, to) = self.held.take().expect("between operations both are here");
        let carry = Carry::new(from, data);
        // An error of the poll shows itself in the write.
        let to = room(to).await;
        let (from, data) = carry.into_parts();
        self.held = Some((from, to));
        data
    }
}
