//! A ring as a hand-written loop sets it up, which counts how often it enters the kernel.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, Submitter, cqueue, squeue, types};

/// What a wait came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There is at least one completion, or a signal ended the wait.
    Woken,
    /// Nothing came in time.
    TimedOut,
}

/// One ring of one thread.
pub struct Ring {
    uring: IoUring,
    enters: u64,
}

impl Ring {
    /// Sets up a ring of `entries` submissions and `completions` completions.
    ///
    /// The flags are the cheapest that one thread can ask for: completions are worked off where it waits
    /// (SINGLE_ISSUER, DEFER_TASKRUN), a bad entry does not stop a batch (SUBMIT_ALL), there is no index array
    /// (NO_SQARRAY), and the ring's descriptor is registered so that an enter does not look it up.
    ///
    /// # Errors
    /// The kernel refuses it: it is older than 6.6, or rings are disabled.
    pub fn new(entries: u32, completions: u32) -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_no_sqarray()
            .setup_cqsize(completions)
            .build(entries)?;
        uring.submitter().register_ring_fd()?;
        Ok(Self { uring, enters: 0 })
    }

    /// Queues one entry; a full queue is handed to the kernel first.
    ///
    /// # Errors
    /// That enter fails.
    ///
    /// # Safety
    /// Memory that the entry names stays valid until its final completion, and is not otherwise touched if the kernel
    /// writes to it.
    #[inline]
    pub unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the caller's promise, for a chain of one.
        unsafe { self.push_chain(std::slice::from_ref(entry)) }
    }

    /// Queues entries that belong together, so that no enter comes between them.
    ///
    /// # Errors
    /// The enter that makes room fails, or the chain is longer than the queue.
    ///
    /// # Safety
    /// As for [`Ring::push`], for each of them.
    #[inline]
    pub unsafe fn push_chain(&mut self, chain: &[squeue::Entry]) -> io::Result<()> {
        // SAFETY: the caller's promise.
        if unsafe { self.uring.submission().push_multiple(chain) }.is_ok() {
            return Ok(());
        }
        self.submit()?;
        // SAFETY: the caller's promise.
        unsafe { self.uring.submission().push_multiple(chain) }.map_err(io::Error::other)
    }

    /// Hands what is queued to the kernel without waiting.
    ///
    /// # Errors
    /// The enter fails.
    pub fn submit(&mut self) -> io::Result<()> {
        self.enters += 1;
        self.uring.submit().map(drop)
    }

    /// Hands what is queued to the kernel and waits for one completion.
    ///
    /// # Errors
    /// The enter fails otherwise than by a signal.
    #[inline]
    pub fn wait(&mut self) -> io::Result<Waited> {
        self.enters += 1;
        woken(self.uring.submit_and_wait(1))
    }

    /// Like [`Ring::wait`], for at most `patience`.
    ///
    /// # Errors
    /// The enter fails otherwise than by a signal or the end of time.
    pub fn wait_at_most(&mut self, patience: Duration) -> io::Result<Waited> {
        self.enters += 1;
        let patience = types::Timespec::from(patience);
        let args = types::SubmitArgs::new().timespec(&patience);
        woken(self.uring.submitter().submit_with_args(1, &args))
    }

    /// Moves all completions there are into `batch`.
    #[inline]
    pub fn take(&mut self, batch: &mut Vec<cqueue::Entry>) {
        batch.extend(self.uring.completion());
    }

    /// How often the kernel was entered for this ring.
    #[must_use]
    pub fn enters(&self) -> u64 {
        self.enters
    }

    /// For registrations.
    #[must_use]
    pub fn submitter(&self) -> Submitter<'_> {
        self.uring.submitter()
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.uring.as_raw_fd()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("enters", &self.enters).finish_non_exhaustive()
    }
}

#[inline]
fn woken(entered: io::Result<usize>) -> io::Result<Waited> {
    match entered {
        Ok(_) => Ok(Waited::Woken),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINTR) => Ok(Waited::Woken),
            Some(libc::ETIME) => Ok(Waited::TimedOut),
            _ => Err(error),
        },
    }
}

/// Completions are told apart by a tag in the top byte and an index below.
#[inline]
#[must_use]
pub fn user_data(tag: u8, index: u32) -> u64 {
    u64::from(tag) << 56 | u64::from(index)
}

/// The inverse of [`user_data`].
#[inline]
#[must_use]
pub fn tag_and_index(user_data: u64) -> (u8, u32) {
    ((user_data >> 56) as u8, user_data as u32)
}
