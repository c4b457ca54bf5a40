//! The ring: set-up with its flag ladder, the submission backlog and `io_uring_enter(2)`.
//!
//! Owns the file descriptor and the two mapped queues. Knows nothing of slots, tasks or timers: entries go in,
//! completions come out.

mod buffers;
mod enter;
mod start;
#[cfg(test)]
mod wrap;

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use io_uring::{EnterFlags, IoUring, Probe, cqueue, squeue};

use crate::cpus::Cpus;
use crate::op::send_zc::ZeroCopy;
use crate::sys;
use enter::Entrance;

pub(crate) use buffers::REGIONS;
pub(crate) use start::io_uring_disabled;
pub use start::{Setup, StartError};

/// What this kernel's ring can do beyond the floor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    /// Timeouts of an enter may be absolute (6.12).
    pub(crate) abs_timer: bool,
    /// A waiting thread need not count as waiting for a disk (6.15).
    pub(crate) no_iowait: bool,
    /// The kernel says in shared memory that completions wait to be made (5.19).
    taskrun_flag: bool,
    /// Completions are only made inside an enter (6.1).
    pub(crate) defer_taskrun: bool,
    /// A receive may fill many buffers in one completion (6.10).
    pub(crate) bundles: bool,
    /// What there is of zero-copy sends (6.0).
    pub(crate) zero_copy: ZeroCopy,
    /// The opcodes below 64 that are there, by their bits.
    pub(crate) opcodes: u64,
}

/// How long an enter may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// For one completion.
    One,
    /// For one completion, at most until this time of the monotonic clock, in nanoseconds; `now` is read by the
    /// caller, who has seen that it lies before.
    Until { deadline_ns: u64, now_ns: u64 },
}

pub(crate) struct Ring {
    io: ManuallyDrop<IoUring>,
    entrance: Entrance,
    regions: buffers::Table,
    features: Features,
    /// Entries that found no room, in their order. Nothing is pushed past it.
    backlog: VecDeque<Queued>,
    /// How often the kernel took some of the entries and left others.
    cuts: u64,
    /// Errnos that the next enters return instead of entering, or below zero how many entries they submit at most:
    /// fault injection for tests.
    faults: VecDeque<i32>,
    /// Enters in a row that failed for want of resources.
    starved: u32,
}

/// What waits in the backlog.
#[derive(Debug)]
enum Queued {
    One(squeue::Entry),
    /// Linked: both go into one submission.
    Pair(Box<[squeue::Entry; 2]>),
}

impl Queued {
    fn entries(&self) -> &[squeue::Entry] {
        match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Pair(pair) => &pair[..],
        }
    }
}

/// What [`Ring::look`] saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Something to submit, or completions that only an enter brings out.
    Enter,
    /// Completions that lie in the queue.
    Fetch,
    Nothing,
}

/// Whether a push had room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    Queued,
    Backlogged,
}

/// What `IORING_ENTER_EXT_ARG` points at (`struct io_uring_getevents_arg`).
#[repr(C)]
struct ExtArg {
    sigmask: u64,
    sigmask_sz: u32,
    min_wait_usec: u32,
    timespec: u64,
}

#[repr(C)]
struct Timespec {
    sec: i64,
    nsec: i64,
}

impl Ring {
    pub(crate) fn new(setup: &Setup) -> Result<Self, StartError> {
        let (io, entrance, features) = start::build(setup)?;
        let (backlog, faults) = (VecDeque::new(), VecDeque::new());
        let regions = buffers::Table::default();
        Ok(Self { io: ManuallyDrop::new(io), entrance, regions, features, backlog, cuts: 0, faults, starved: 0 })
    }

    pub(crate) fn features(&self) -> Features {
        self.features
    }

    /// Which of these opcodes the kernel has.
    pub(crate) fn has_opcodes(&self, codes: impl Iterator<Item = u8>) -> Vec<bool> {
        let mut probe = Probe::new();
        // A ring that was built has answered this call before.
        let answered = self.io.submitter().register_probe(&mut probe).is_ok();
        codes.map(|code| answered && probe.is_supported(code)).collect()
    }

    /// Entries of the submission and of the completion queue, as the kernel gave them.
    pub(crate) fn sizes(&self) -> (u32, u32) {
        (self.io.params().sq_entries(), self.io.params().cq_entries())
    }

    /// Registers a table of buffers; says whether the kernel took it.
    ///
    /// # Safety
    ///
    /// The table has so many entries, begins a page and lives, and what is lent in it lives and is used by nobody else,
    /// until it is unregistered and nothing that was submitted before is in flight.
    pub(crate) unsafe fn register_buffers(&self, table: u64, entries: u16, group: u16, flags: u16) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.io.submitter().register_buf_ring_with_flags(table, entries, group, flags) }.is_ok()
    }

    /// Has the kernel forget a table of buffers; says whether it has.
    pub(crate) fn unregister_buffers(&self, group: u16) -> bool {
        self.io.submitter().unregister_buf_ring(group).is_ok()
    }

    /// The most bounded and unbounded workers of the kernel for the thread; of its owner only.
    pub(crate) fn io_workers(&self) -> io::Result<[u32; 2]> {
        // Zeros change nothing and are overwritten with what there is.
        let mut workers = [0, 0];
        self.io.submitter().register_iowq_max_workers(&mut workers)?;
        Ok(workers)
    }

    /// Has the kernel's worker threads of this ring run on these CPUs only (5.14).
    pub(crate) fn confine_workers(&self, cpus: &Cpus) -> io::Result<()> {
        self.io.submitter().register_iowq_aff(cpus.raw())
    }

    pub(crate) fn inject_faults(&mut self, errnos: &[i32]) {
        self.faults.extend(errnos);
    }

    /// Registers memory and says under which index.
    ///
    /// # Safety
    ///
    /// The memory stays mapped until [`unregister`](Self::unregister), or the ring is gone.
    pub(crate) unsafe fn register(&mut self, start: *mut u8, len: usize) -> io::Result<u16> {
        // SAFETY: the caller's promise.
        unsafe { self.regions.add(&self.io, start, len) }
    }

    /// Ends a registration.
    pub(crate) fn unregister(&mut self, index: u16) {
        self.regions.remove(&self.io, index);
    }

    /// Queues an entry; without room it waits in the backlog, so it is never lost.
    ///
    /// # Safety
    ///
    /// What the entry points at stays valid until its completion (I1, I2).
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry) -> Pushed {
        if self.backlog.is_empty() {
            // SAFETY: the caller's promise.
            if unsafe { self.io.submission().push(&entry) }.is_ok() {
                return Pushed::Queued;
            }
        }
        self.backlog.push_back(Queued::One(entry));
        Pushed::Backlogged
    }

    /// Queues two entries of which the kernel starts the second when the first has succeeded, and cancels it otherwise
    /// (`IOSQE_IO_LINK`). A link holds within one submission only, so they have room together or wait together; whether
    /// the kernel took them together is told by [`cuts`](Self::cuts).
    ///
    /// # Safety
    ///
    /// As for [`push`](Self::push), of both.
    pub(crate) unsafe fn push_pair(&mut self, first: squeue::Entry, second: squeue::Entry) -> Pushed {
        let pair = [first.flags(squeue::Flags::IO_LINK), second];
        if self.backlog.is_empty() {
            // SAFETY: the caller's promise. All of them are pushed or none.
            if unsafe { self.io.submission().push_multiple(&pair) }.is_ok() {
                return Pushed::Queued;
            }
        }
        self.backlog.push_back(Queued::Pair(Box::new(pair)));
        Pushed::Backlogged
    }

    /// A number that changes whenever the kernel takes a part of what is queued, for want of memory: a pair of which it
    /// took one is linked no more.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Moves as much of the backlog as fits into the submission queue and says whether all of it did.
    fn refill(&mut self) -> bool {
        let mut queue = self.io.submission();
        while let Some(queued) = self.backlog.front() {
            // SAFETY: whoever called `push` promised that the pointers are valid until the completion.
            if unsafe { queue.push_multiple(queued.entries()) }.is_err() {
                return false;
            }
            self.backlog.pop_front();
        }
        true
    }

    /// Number of entries in the backlog.
    pub(crate) fn backlog_len(&self) -> usize {
        self.backlog.iter().map(|queued| queued.entries().len()).sum()
    }

    /// Takes the backlog away: entries that never reached the kernel, for the drain of a closing runtime.
    pub(crate) fn take_backlog(&mut self) -> Vec<u64> {
        let of = |queued: Queued| queued.entries().iter().map(squeue::Entry::get_user_data).collect::<Vec<_>>();
        self.backlog.drain(..).flat_map(of).collect()
    }

    /// Whether [`look`](Self::look) can tell that completions came.
    pub(crate) fn shows_completions(&self) -> bool {
        self.features.taskrun_flag || !self.features.defer_taskrun
    }

    /// What there is to do with the kernel, seen without a system call.
    #[inline(always)]
    pub(crate) fn look(&mut self) -> Look {
        let queue = self.io.submission();
        let features = self.features;
        // Without the flag there is no telling whether completions only wait to be put into the queue.
        let hidden = if features.taskrun_flag { queue.taskrun() } else { features.defer_taskrun };
        if hidden || !queue.is_empty() || queue.cq_overflow() || !self.backlog.is_empty() {
            return Look::Enter;
        }
        drop(queue);
        // A ring that defers puts nothing there by itself.
        if !features.defer_taskrun && !self.io.completion().is_empty() {
            return Look::Fetch;
        }
        Look::Nothing
    }

    /// Hands everything queued to the kernel with as few system calls as the queue's size allows (one, unless there
    /// is a backlog) and waits as told. Returns the number of entries submitted and of system calls made.
    ///
    /// Interruptions and shortages of the kernel (`EINTR`, `EAGAIN`, `EBUSY`, `ENOMEM`) are not errors: whatever was
    /// not taken stays queued for the next enter.
    #[inline(always)]
    pub(crate) fn enter(&mut self, wait: Wait) -> io::Result<(u64, u64)> {
        let (mut submitted, mut calls) = (0, 0);
        while !self.backlog.is_empty() && !self.refill() {
            calls += 1;
            match self.enter_once(Wait::No)? {
                // The queue is full and the kernel takes nothing: completions must be reaped first.
                0 => return Ok((submitted, calls)),
                n => submitted += u64::from(n),
            }
        }
        calls += 1;
        submitted += u64::from(self.enter_once(wait)?);
        Ok((submitted, calls))
    }

    #[inline(always)]
    fn enter_once(&mut self, wait: Wait) -> io::Result<u32> {
        let queued = self.io.submission().len() as u32;
        let mut to_submit = queued;
        if !self.faults.is_empty()
            && let Some(fault) = self.faults.pop_front()
        {
            if fault > 0 {
                return self.after_enter(Err(io::Error::from_raw_os_error(fault)));
            }
            to_submit = to_submit.min(fault.unsigned_abs());
        }
        let mut flags = EnterFlags::GETEVENTS;
        if self.features.no_iowait {
            flags |= EnterFlags::NO_IOWAIT;
        }
        let result = match wait {
            Wait::No | Wait::One => {
                let min_complete = u32::from(wait == Wait::One);
                // SAFETY: no argument is passed; the entries are valid (see `push`).
                unsafe { self.entrance.enter(to_submit, min_complete, flags.bits(), ptr::null::<ExtArg>()) }
            }
            Wait::Until { deadline_ns, now_ns } => {
                let ns = if self.features.abs_timer {
                    flags |= EnterFlags::ABS_TIMER;
                    deadline_ns
                } else {
                    deadline_ns.saturating_sub(now_ns).max(1)
                };
                let timespec = Timespec { sec: (ns / 1_000_000_000) as i64, nsec: (ns % 1_000_000_000) as i64 };
                let arg =
                    ExtArg { sigmask: 0, sigmask_sz: 0, min_wait_usec: 0, timespec: (&raw const timespec) as u64 };
                let flags = flags | EnterFlags::EXT_ARG;
                // SAFETY: `arg` and the timespec behind it live until the call returns.
                unsafe { self.entrance.enter(to_submit, 1, flags.bits(), &raw const arg) }
            }
        };
        match result {
            Ok(submitted) => {
                self.starved = 0;
                self.cuts += u64::from(submitted > 0 && submitted < queued);
                Ok(submitted)
            }
            failed => self.after_enter(failed),
        }
    }

    #[cold]
    fn after_enter(&mut self, result: io::Result<u32>) -> io::Result<u32> {
        let error = match result {
            Ok(submitted) => {
                self.starved = 0;
                return Ok(submitted);
            }
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME) => Ok(0),
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                self.starved += 1;
                if self.starved > 16 {
                    // The kernel is short of memory: trying again at once would only burn the core.
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                Ok(0)
            }
            _ => Err(error),
        }
    }

    /// The completions that lie in the queue now.
    pub(crate) fn completions(&mut self) -> cqueue::CompletionQueue<'_> {
        self.io.completion()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if sys::same_process() {
            self.entrance.close();
            // SAFETY: dropped once, here, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.io) };
            return;
        }
        // In a child of fork(2) the queues are not mapped (MADV_DONTFORK), and what lies at their addresses now is the
        // child's own memory: it must not be unmapped. Only the descriptor is the child's to close.
        // SAFETY: the ring's own descriptor, which is not used again.
        drop(unsafe { OwnedFd::from_raw_fd(self.io.as_raw_fd()) });
    }
}
