//! Bounds of a measuring process: when it ends at the latest, and how many descriptors it may hold.

use std::io;
use std::mem::MaybeUninit;

/// Ends this process after `secs` seconds, whatever it is doing then.
///
/// It is an `alarm(2)` and not a thread: one more thread would show in the CPU time, and make the allocator of a
/// single-threaded server take its slower paths. A program that comes to its end in time never notices.
pub fn exit_after(secs: u32) {
    // SAFETY: alarm has no preconditions; SIGALRM has its default action, which ends the process.
    unsafe { libc::alarm(secs) };
}

/// Raises the soft limit of open files to the hard one.
///
/// # Errors
/// The system call fails.
pub fn raise_open_files() -> io::Result<()> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: `limit` is a valid place for one rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) })?;
    // SAFETY: getrlimit succeeded and wrote it.
    let mut limit = unsafe { limit.assume_init() };
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid rlimit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })
}

/// Keeps the process `pid`, or this one for 0, from preempting whoever wakes it (SCHED_BATCH); it runs when that one sleeps.
///
/// For two processes on one core. If a wake-up decides to preempt while the waker is inside a system call, the kernel
/// skips the next update of its run queue's clock: what the waker does until that call returns is then charged to the
/// one that it woke. A burst of connections that is opened in one enter would be in the account of the server.
///
/// # Errors
/// There is no such process, or it is not ours.
pub fn never_preempt(pid: i32) -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: `priority` is a valid sched_param.
    check(unsafe { libc::sched_setscheduler(pid, libc::SCHED_BATCH, &raw const priority) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the calling thread run on one core only; without effect where there is no such core.
pub fn pin_thread(core: usize) {
    // SAFETY: a plain array of integers, for which all bits zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if core < libc::CPU_SETSIZE as usize {
        // SAFETY: below the bound.
        unsafe { libc::CPU_SET(core, &mut set) };
        // SAFETY: reads a set of the given size.
        let _ = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    }
}
