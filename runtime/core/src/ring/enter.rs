//! `io_uring_enter(2)`, by the ring's place in the thread's table of registered rings where it has one.
//!
//! Owns that place; knows nothing of what an enter is for. A registered ring saves the kernel the look-up of the
//! descriptor in each enter (`IORING_REGISTER_RING_FDS`, 5.18). The place is the thread's and holds the ring alive, so it
//! is given back when the ring goes, on the same thread; a thread has sixteen of them, and a ring without one serves just
//! as well.

use std::io;
use std::os::fd::RawFd;
use std::ptr;

use io_uring::EnterFlags;

const REGISTER_RING_FDS: usize = 20;
const UNREGISTER_RING_FDS: usize = 21;

/// How to enter one ring.
#[derive(Debug)]
pub(super) struct Entrance {
    ring: RawFd,
    /// The place in the thread's table, or the descriptor.
    fd: usize,
    flags: u32,
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct RsrcUpdate {
    offset: u32,
    resv: u32,
    data: u64,
}

impl Entrance {
    /// Takes a place for the ring if the thread has one left.
    pub(super) fn new(ring: RawFd) -> Self {
        let mut update = RsrcUpdate { offset: u32::MAX, resv: 0, data: ring as u64 };
        if register(ring, REGISTER_RING_FDS, &mut update) {
            Self { ring, fd: update.offset as usize, flags: EnterFlags::REGISTERED_RING.bits() }
        } else {
            Self { ring, fd: ring as usize, flags: 0 }
        }
    }

    /// Gives the place back.
    pub(super) fn close(&mut self) {
        if self.flags != 0 {
            let mut update = RsrcUpdate { offset: self.fd as u32, resv: 0, data: 0 };
            register(self.ring, UNREGISTER_RING_FDS, &mut update);
            *self = Self { ring: self.ring, fd: self.ring as usize, flags: 0 };
        }
    }

    /// Enters the ring.
    ///
    /// # Safety
    ///
    /// What the queued entries point at stays valid until their completions (I1, I2). With
    /// `IORING_ENTER_EXT_ARG` among the flags `arg` is what the kernel expects there, else null.
    #[inline(always)]
    pub(super) unsafe fn enter<T>(&self, to_submit: u32, wait: u32, flags: u32, arg: *const T) -> io::Result<u32> {
        let size = if arg.is_null() { 0 } else { size_of::<T>() };
        // Each argument has the width of a register: the call is variadic and would leave garbage above a narrower one.
        // SAFETY: the caller's promise; the numbers are plain.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.fd,
                to_submit as usize,
                wait as usize,
                (flags | self.flags) as usize,
                arg,
                size,
            )
        };
        u32::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// An enter that does nothing, to learn whether the call is allowed.
    pub(super) fn test(&self) -> io::Result<()> {
        // SAFETY: hands in nothing that anybody relies on, waits for nothing, passes no argument.
        unsafe { self.enter(0, 0, 0, ptr::null::<u8>()) }.map(drop)
    }
}

fn register(ring: RawFd, operation: usize, update: &mut RsrcUpdate) -> bool {
    // SAFETY: one structure of the kind that both operations read and the first one writes.
    let result =
        unsafe { libc::syscall(libc::SYS_io_uring_register, ring as usize, operation, ptr::from_mut(update), 1usize) };
    result == 1
}
