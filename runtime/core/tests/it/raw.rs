//! What the tests need of the kernel that std does not offer: fork, limits, filters, a page that shows who wrote to it,
//! and a page fault that lasts.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runtime::io::{IoBuf, IoBufMut};

fn check(result: i64) -> i64 {
    assert!(result >= 0, "a system call of the test failed: {}", io::Error::last_os_error());
    result
}

/// A child made by fork(2).
#[derive(Debug)]
pub(crate) struct Forked(libc::pid_t);

/// Forks; the child runs `body`, exits with its result (99 if it panics) and is killed after a while.
pub(crate) fn fork(body: impl FnOnce() -> i32) -> Forked {
    if let Some(child) = fork_here() {
        return child;
    }
    let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(99);
    exit_at_once(code);
}

/// Forks and goes on in both processes; `None` in the child, which is killed after a while.
pub(crate) fn fork_here() -> Option<Forked> {
    // SAFETY: the child runs on a copy of this thread only; that Rust code works there is what is tested.
    let pid = unsafe { libc::fork() };
    check(pid.into());
    if pid > 0 {
        return Some(Forked(pid));
    }
    // The watchdog's thread does not exist here.
    let seconds = super::support::scaled(Duration::from_secs(20)).as_secs();
    // SAFETY: no pointers; the default action ends the process.
    unsafe { libc::alarm(seconds as u32) };
    None
}

/// Ends the process without destructors or exit handlers.
pub(crate) fn exit_at_once(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

impl Forked {
    /// The exit code, or 1000 and the signal that killed it.
    pub(crate) fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: writes one integer.
        check(unsafe { libc::waitpid(self.0, &raw mut status, 0) }.into());
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1000 + libc::WTERMSIG(status) }
    }
}

/// Sets soft and hard limit of a resource.
pub(crate) fn set_limit(resource: libc::__rlimit_resource_t, limit: u64) {
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: reads one structure.
    check(unsafe { libc::setrlimit(resource, &raw const limit) }.into());
}

/// Sets the soft limit of descriptors; the hard one stays.
pub(crate) fn set_soft_nofile(soft: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one structure.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }.into());
    limit.rlim_cur = soft;
    // SAFETY: reads one structure.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }.into());
}

/// Raises the soft limit of descriptors for this process; false when it cannot be.
pub(crate) fn raise_descriptors(to: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the write.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    limit.rlim_cur = limit.rlim_cur.max(to).min(limit.rlim_max);
    // SAFETY: `limit` is valid for the read.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    set == 0 && limit.rlim_cur >= to
}

pub(crate) fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// The whole process becomes this user for good, and loses its capabilities.
pub(crate) fn become_user(uid: u32) {
    // SAFETY: no pointers.
    check(unsafe { libc::setresuid(uid, uid, uid) }.into());
}

/// Only this thread's effective user changes.
pub(crate) fn set_thread_euid(uid: u32) {
    let keep = -1i32;
    // SAFETY: no pointers; the raw call is about the calling thread.
    check(unsafe { libc::syscall(libc::SYS_setresuid, keep, uid, keep) });
}

/// From now on this system call fails with `errno` on this thread and on those that it starts.
pub(crate) fn forbid(call: i64, errno: i32) {
    const LOAD_NR: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut program = [
        libc::sock_filter { code: LOAD_NR, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: IF_EQUAL, jt: 0, jf: 1, k: call as u32 },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | errno as u32 },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    filter(&mut program);
}

fn filter(program: &mut [libc::sock_filter]) {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into());
    // SAFETY: the filter and the program behind it live until the call returns.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) }.into());
}

/// From now on each system call of this thread but these is not made: it raises SIGSYS.
pub(crate) fn trap_calls(but: &[i64]) {
    const LOAD_NR: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut program = vec![libc::sock_filter { code: LOAD_NR, jt: 0, jf: 0, k: 0 }];
    for (at, &call) in but.iter().enumerate() {
        // To the last line of the program.
        let jt = (but.len() - at) as u8;
        program.push(libc::sock_filter { code: IF_EQUAL, jt, jf: 0, k: call as u32 });
    }
    program.push(libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_TRAP });
    program.push(libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW });
    filter(&mut program);
}

/// Fresh pages that stay mapped for the rest of the process.
pub(crate) fn map(len: usize) -> *mut u8 {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping that touches no other memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    at.cast()
}

pub(crate) const PAGE: usize = 4096;
/// What a dropped buffer leaves in its page.
pub(crate) const POISON: u8 = 0xAA;

/// A page that is mapped for ever, and the buffer in it: dropping the buffer poisons the page, so that a write of the
/// kernel that comes later can be seen.
#[derive(Debug)]
pub(crate) struct PageBuf {
    at: *mut u8,
    len: usize,
    dropped: Arc<AtomicBool>,
}

/// The view of a test on a [`PageBuf`]'s page.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    at: *mut u8,
    dropped: Arc<AtomicBool>,
}

// SAFETY: the page is mapped for ever; its bytes are read volatile.
unsafe impl Send for Page {}

impl Page {
    pub(crate) fn new() -> Self {
        Self { at: map(PAGE), dropped: Arc::new(AtomicBool::new(false)) }
    }

    /// The buffer of this page, once it has none.
    pub(crate) fn buf(&self) -> PageBuf {
        self.dropped.store(false, Ordering::SeqCst);
        // SAFETY: a page of ours that no buffer uses.
        unsafe { self.at.write_bytes(0, PAGE) };
        PageBuf { at: self.at, len: 0, dropped: Arc::clone(&self.dropped) }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        assert!(at < PAGE);
        // SAFETY: inside the page.
        let at = unsafe { self.at.add(at) };
        // SAFETY: mapped for ever; volatile because the kernel may write.
        unsafe { at.read_volatile() }
    }

    /// Whether the buffer was dropped and nobody has written to the page since.
    pub(crate) fn is_untouched_since_drop(&self) -> bool {
        self.is_dropped() && (0..PAGE).all(|at| self.byte(at) == POISON)
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        // SAFETY: the buffer owns its page until here.
        unsafe { self.at.write_bytes(POISON, PAGE) };
        self.dropped.store(true, Ordering::SeqCst);
    }
}

// SAFETY: the page is mapped for ever and does not move with the value; `len` bytes are initialised.
unsafe impl IoBuf for PageBuf {
    fn stable_ptr(&self) -> *const u8 {
        self.at
    }

    fn init_len(&self) -> usize {
        self.len
    }
}

// SAFETY: the buffer owns its page, of which there is one buffer at a time.
unsafe impl IoBufMut for PageBuf {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.at
    }

    fn capacity(&self) -> usize {
        PAGE
    }

    unsafe fn set_len(&mut self, len: usize) {
        self.len = len;
    }
}

/// A page whose first touch hangs until it is resolved (userfaultfd): what a disk that does not answer is to the
/// kernel, since a worker that fills the page cannot be cancelled.
#[derive(Debug)]
pub(crate) struct StuckPage {
    at: *mut u8,
    fd: OwnedFd,
}

#[repr(C)]
struct UffdApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdRange {
    start: u64,
    len: u64,
}

#[repr(C)]
struct UffdRegister {
    range: UffdRange,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdZeroPage {
    range: UffdRange,
    mode: u64,
    zeropage: i64,
}

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;

impl StuckPage {
    /// `None` where this process may not have such pages.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        if fd < 0 {
            return None;
        }
        // SAFETY: a fresh descriptor that nobody else knows.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let mut api = UffdApi { api: 0xAA, features: 0, ioctls: 0 };
        // SAFETY: the structure that this request takes.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) }.into());
        let at = map(PAGE);
        let range = UffdRange { start: at as u64, len: PAGE as u64 };
        let mut register = UffdRegister { range, mode: 1, ioctls: 0 };
        // SAFETY: as above; the range is a mapping of ours.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_REGISTER, &raw mut register) }.into());
        Some(Self { at, fd })
    }

    /// The only buffer of this page.
    pub(crate) fn buf(&self) -> PageBuf {
        PageBuf { at: self.at, len: 0, dropped: Arc::new(AtomicBool::new(false)) }
    }

    /// Whoever waits for the page goes on.
    pub(crate) fn resolve(&self) {
        let range = UffdRange { start: self.at as u64, len: PAGE as u64 };
        let mut zero = UffdZeroPage { range, mode: 0, zeropage: 0 };
        // SAFETY: the structure that this request takes; the range is the registered one.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), UFFDIO_ZEROPAGE, &raw mut zero) }.into());
    }
}
