//! The system calls that std does not wrap, as safe functions.
//!
//! Owns errno handling; knows nothing of rings, operations or tasks.

pub mod copy;
pub mod dirs;
pub mod files;
pub mod pipes;
pub mod xattr;

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Turns the −1 of a system call into the thread's errno.
fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `send(2)` that neither blocks nor raises SIGPIPE.
pub fn send(fd: BorrowedFd<'_>, data: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `data` is valid for its length, the descriptor is open while borrowed.
    check(unsafe { libc::send(fd.as_raw_fd(), data.as_ptr().cast(), data.len(), flags) })
}

/// `shutdown(2)`, which never blocks.
pub fn shutdown(fd: BorrowedFd<'_>, how: std::net::Shutdown) -> io::Result<()> {
    let how = match how {
        std::net::Shutdown::Read => libc::SHUT_RD,
        std::net::Shutdown::Write => libc::SHUT_WR,
        std::net::Shutdown::Both => libc::SHUT_RDWR,
    };
    // SAFETY: plain integers; the descriptor is open while borrowed.
    check(unsafe { libc::shutdown(fd.as_raw_fd(), how) } as isize).map(drop)
}

/// A new non-blocking, close-on-exec event counter.
pub fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    check(fd as isize)?;
    // SAFETY: the kernel just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one to an event counter. A counter that is full wakes its poller just the same.
pub fn ring_eventfd(fd: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight valid bytes. The result says nothing new: EAGAIN means full, which is also a wake.
    let _ = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Resets an event counter; the error says `WouldBlock` when it is zero.
pub fn reset_eventfd(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut count = [0u8; 8];
    // SAFETY: eight bytes to write to; the counters made here are non-blocking.
    check(unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) }).map(drop)
}

/// Whether the open file description has `O_NONBLOCK`.
pub fn is_nonblocking(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: no pointers; the descriptor is open while borrowed.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) } as isize)?;
    Ok(flags & libc::O_NONBLOCK as usize != 0)
}

/// The flags of the open file description (`F_GETFL`).
pub fn open_flags(fd: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: no pointers; the descriptor is open while borrowed.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) } as isize).map(|flags| flags as i32)
}

/// `lseek(2)` from the start, or to where the position is when `offset` is `None`; returns the position.
pub fn seek(fd: BorrowedFd<'_>, offset: Option<u64>) -> io::Result<u64> {
    let (offset, whence) = offset.map_or((0, libc::SEEK_CUR), |offset| (offset as i64, libc::SEEK_SET));
    // SAFETY: no pointers; the descriptor is open while borrowed.
    check(unsafe { libc::lseek(fd.as_raw_fd(), offset, whence) } as isize).map(|at| at as u64)
}

/// `poll(2)` without waiting: whether any of the events, an error or a hang-up is there. True of a number that is no
/// open descriptor, since what is tried next will say so.
pub fn is_ready(fd: RawFd, events: i16) -> io::Result<bool> {
    events_now(fd, events).map(|events| events != 0)
}

/// `poll(2)` without waiting: whether nothing can be read, and nothing will come.
pub fn is_hung_up(fd: RawFd) -> io::Result<bool> {
    events_now(fd, libc::POLLIN).map(|events| events & libc::POLLIN == 0 && events != 0)
}

/// `poll(2)` without waiting: whether a poll for room would not wait for it, as the peer of a stream socket has ended its own
/// direction, or there is something in its error queue.
pub fn is_distracting(fd: BorrowedFd<'_>) -> bool {
    events_now(fd.as_raw_fd(), libc::POLLRDHUP).is_ok_and(|events| events & (libc::POLLRDHUP | libc::POLLERR) != 0)
}

/// Those of the events that are there, and errors and hang-ups.
fn events_now(fd: RawFd, events: i16) -> io::Result<i16> {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    loop {
        // SAFETY: one structure, as the call is told; it does not wait.
        match check(unsafe { libc::poll(&raw mut poll, 1, 0) } as isize) {
            // It does not wait, but a signal that is pending ends it all the same.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(|_| poll.revents),
        }
    }
}

/// Whether this is a TCP socket.
pub fn is_tcp(fd: RawFd) -> bool {
    let mut protocol: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: writes at most `len` bytes to an integer.
    let result =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL, (&raw mut protocol).cast(), &raw mut len) };
    result == 0 && protocol == libc::IPPROTO_TCP
}

/// What TCP says of a connection (`TCP_INFO`, the fields of 4.18).
struct TcpState {
    state: u8,
    /// Segments that were sent and are not acknowledged.
    unacked: u32,
    /// Bytes that are still to be sent.
    not_sent: u32,
    /// Numbers of bytes that were acknowledged beyond those that were written: one for an end of ours that has arrived, and
    /// one for the SYN of whoever has connected.
    extra: i64,
}

fn tcp_state(fd: RawFd) -> Option<TcpState> {
    const UNACKED_AT: usize = 24;
    const ACKED_AT: usize = 120;
    const NOT_SENT_AT: usize = 144;
    const SENT_AT: usize = 200;
    const SENT_AGAIN_AT: usize = 208;
    let mut info = [0_u8; 216];
    let mut len = info.len() as libc::socklen_t;
    let start = info.as_mut_ptr().cast();
    // SAFETY: writes at most `len` bytes.
    let result = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, start, &raw mut len) };
    if result != 0 || (len as usize) < info.len() {
        return None;
    }
    let int = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| info[at + i]));
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| info[at + i])) as i64;
    let extra = long(ACKED_AT) - (long(SENT_AT) - long(SENT_AGAIN_AT));
    Some(TcpState { state: info[0], unacked: int(UNACKED_AT), not_sent: int(NOT_SENT_AT), extra })
}

/// Whether this is a TCP connection that is over, and not because both sides have ended it and our end has arrived: it was
/// reset, or timed out. `connected` says that it was this side that connected.
pub fn was_reset(fd: RawFd, connected: bool) -> bool {
    const CLOSED: u8 = 7;
    is_tcp(fd)
        && tcp_state(fd).is_some_and(|tcp| {
            let has_ended = tcp.not_sent == 0 && tcp.extra > i64::from(connected);
            tcp.state == CLOSED && !has_ended
        })
}

/// Whether this side has connected a TCP connection that is open on it, as far as the kernel's counts tell.
pub fn has_connected(fd: RawFd) -> bool {
    const ESTABLISHED: u8 = 1;
    const PEER_ENDED: u8 = 8;
    is_tcp(fd)
        && tcp_state(fd).is_some_and(|tcp| {
            let is_open = matches!(tcp.state, ESTABLISHED | PEER_ENDED);
            is_open && (tcp.unacked, tcp.not_sent, tcp.extra) == (0, 0, 1)
        })
}

/// An epoll instance that is readable once a socket gets room (`POLLOUT`) or data (`POLLIN`), or something else becomes of
/// it; `None` when it has, or is over. Unlike a poll of the ring it takes neither a peer that has ended its own direction for
/// room, nor, as it only tells of changes, an error queue that nobody empties for anything.
pub fn watch(fd: RawFd, events: i16) -> io::Result<Option<OwnedFd>> {
    // SAFETY: no pointers.
    let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } as isize)?;
    // SAFETY: a fresh descriptor that nobody else knows.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll as RawFd) };
    // The events of both have the same numbers.
    let events = events as u32;
    let mut event = libc::epoll_event { events: events | libc::EPOLLET as u32, u64: 0 };
    // SAFETY: one event to read.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) } as isize)?;
    // SAFETY: room for one event; it does not wait.
    let told = check(unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, 0) } as isize)?;
    let is_over = told > 0 && event.events & (events | libc::EPOLLHUP as u32) != 0;
    Ok((!is_over).then_some(epoll))
}

/// In a child of fork(2) that was made by a thread of the runtime, and cannot go on there: ends it with the status of a
/// panic. Its thread is its only one, and would end it with success by returning.
pub fn end_child_of_fork() {
    if !same_process() {
        // SAFETY: runs nothing of the parent's.
        unsafe { libc::_exit(101) }
    }
}

/// `pipe2(2)`: the reading and the writing end, close-on-exec and O_NONBLOCK.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: an array of two integers, as the call wants.
    check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } as isize)?;
    // SAFETY: a fresh descriptor that nobody else knows.
    let rx = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: as above.
    let tx = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((rx, tx))
}

/// Bytes of a page of memory.
pub fn page_size() -> usize {
    // SAFETY: no pointers; every Linux answers this.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// The monotonic clock in nanoseconds: the clock of the ring's absolute timeouts.
pub fn monotonic_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// Whether the process has a CPU quota (cgroup v2 `cpu.max`, v1 `cpu.cfs_quota_us`), as it was when this was first asked.
pub fn has_cpu_quota() -> bool {
    static QUOTA: OnceLock<bool> = OnceLock::new();
    *QUOTA.get_or_init(|| {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let is_limited = |file: std::path::PathBuf| std::fs::read_to_string(file).is_ok_and(|text| is_cpu_quota(&text));
        groups.lines().any(|line| {
            let Some((controllers, path)) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':')) else {
                return false;
            };
            let (root, file) = match controllers {
                "" => ("/sys/fs/cgroup", "cpu.max"),
                cpu if cpu.split(',').any(|name| name == "cpu") => ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"),
                _ => return false,
            };
            // A limit holds for everything below the group that has it. In a container the path may be the host's, and
            // the root what is its own.
            let path = std::path::Path::new(path.trim_start_matches('/'));
            path.ancestors().any(|group| is_limited(std::path::Path::new(root).join(group).join(file)))
        })
    })
}

fn is_cpu_quota(text: &str) -> bool {
    text.split_ascii_whitespace().next().is_some_and(|quota| quota.parse::<u64>().is_ok())
}

/// How often this thread was taken off its core for others (`getrusage(2)`).
pub fn preemptions() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes one structure.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: zeroes are a valid value of it.
    let usage = unsafe { usage.assume_init() };
    if result == 0 { usage.ru_nivcsw as u64 } else { 0 }
}

/// The kernel's release as (major, minor), (0, 0) when it cannot be read.
pub fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Soft and hard limit of a resource (`RLIMIT_*`); `None` when unknown.
pub fn rlimit(resource: libc::__rlimit_resource_t) -> Option<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit structure.
    let result = unsafe { libc::getrlimit(resource, &raw mut limit) };
    (result == 0).then_some((limit.rlim_cur, limit.rlim_max))
}

/// Blocks SIGPIPE on this thread and says whether that changed anything.
pub fn block_sigpipe() -> bool {
    let set = sigpipe_set();
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both pointers are valid for the call.
    if unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, old.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call succeeded, so it wrote `old`.
    let old = unsafe { old.assume_init() };
    // SAFETY: a valid signal set and a valid signal number.
    unsafe { libc::sigismember(&raw const old, libc::SIGPIPE) == 0 }
}

/// Takes a pending SIGPIPE away and unblocks the signal: the reverse of [`block_sigpipe`].
pub fn unblock_sigpipe() {
    consume_sigpipe();
    let set = sigpipe_set();
    // SAFETY: a valid set, no old mask asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Takes a pending SIGPIPE of this thread away, if there is one.
pub fn consume_sigpipe() {
    let set = sigpipe_set();
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: valid set and timespec; no siginfo asked for.
    unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const zero) };
}

fn sigpipe_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: initialises the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was just initialised.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE) };
    // SAFETY: initialised above.
    unsafe { set.assume_init() }
}

/// Has close(2) of a socket return at once. What is not sent then is sent afterwards, as without `SO_LINGER`.
pub fn stop_lingering(fd: BorrowedFd<'_>) {
    let linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let len = size_of_val(&linger) as libc::socklen_t;
    let value = (&raw const linger).cast();
    // SAFETY: reads one structure; the descriptor is open while borrowed. Where it fails the close waits.
    unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, len) };
}

/// The kernel's number of the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::gettid() }
}

/// Whether a thread of this process exists, for the kernel: it does until after its thread-local destructors.
pub fn has_thread(id: i32) -> bool {
    let process = std::process::id() as libc::pid_t;
    // SAFETY: no pointers; no signal is sent, only asked about.
    unsafe { libc::syscall(libc::SYS_tgkill, process, id, 0) == 0 }
}

/// Says whether this process is the one that first asked: false in a child of `fork(2)`.
///
/// A word in a page that the kernel clears on fork (`MADV_WIPEONFORK`), read without a system call. A process that
/// cannot have such a page gets a word that is always set; it then has no guard, which only matters if it forks.
pub fn same_process() -> bool {
    is_same_process(process_word())
}

/// The word behind [`same_process`], for those who ask often.
pub fn process_word() -> &'static AtomicU32 {
    static WORD: OnceLock<&'static AtomicU32> = OnceLock::new();
    WORD.get_or_init(wiped_on_fork)
}

/// What the word says.
#[inline]
pub fn is_same_process(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) == 1
}

fn wiped_on_fork() -> &'static AtomicU32 {
    static ALWAYS: AtomicU32 = AtomicU32::new(1);
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping that touches no other memory.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return &ALWAYS;
    }
    // SAFETY: the mapping above; it is never unmapped.
    if unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } != 0 {
        return &ALWAYS;
    }
    // SAFETY: page-aligned zeroed memory is a valid AtomicU32, mapped for the rest of the process.
    let word = unsafe { &*page.cast::<AtomicU32>() };
    word.store(1, Ordering::Relaxed);
    word
}

/// A socket address in the kernel's own form, small enough to live inside an operation.
#[derive(Clone, Copy)]
#[repr(C)]
pub union RawAddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl std::fmt::Debug for RawAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RawAddr")
    }
}

impl RawAddr {
    /// The address and its length in bytes.
    pub fn new(addr: SocketAddr) -> (Self, u32) {
        match addr {
            SocketAddr::V4(v4) => (Self { v4: raw_v4(v4) }, size_of::<libc::sockaddr_in>() as u32),
            SocketAddr::V6(v6) => (Self { v6: raw_v6(v6) }, size_of::<libc::sockaddr_in6>() as u32),
        }
    }

    /// Pointer for a ring entry.
    pub fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const *self).cast()
    }
}

fn raw_v4(addr: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: addr.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
        sin_zero: [0; 8],
    }
}

fn raw_v6(addr: SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as u16,
        sin6_port: addr.port().to_be(),
        sin6_flowinfo: addr.flowinfo(),
        sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
        sin6_scope_id: addr.scope_id(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_version_is_readable() {
        assert!(kernel_version() >= (6, 1));
    }

    #[test]
    fn a_quota_is_a_number_and_its_absence_is_not() {
        assert!(is_cpu_quota("50000 100000\n") && is_cpu_quota("200000\n"));
        assert!(!is_cpu_quota("max 100000\n") && !is_cpu_quota("-1\n") && !is_cpu_quota(""));
    }

    #[test]
    fn sigpipe_is_blocked_once_and_restored() {
        let changed = block_sigpipe();
        assert!(!block_sigpipe());
        if changed {
            unblock_sigpipe();
            assert!(block_sigpipe());
            unblock_sigpipe();
        }
    }
}
