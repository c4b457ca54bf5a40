//! Memory that is registered with the ring, so that the kernel need not look its pages up in each operation.
//!
//! Owns the table of the places that are taken; knows nothing of what the memory is for. The ring has one table, which
//! is made empty when the first region comes (`IORING_REGISTER_BUFFERS2` with `RSRC_REGISTER_SPARSE`, 5.19).

use std::io;

use io_uring::IoUring;

/// Regions that a ring may have at once.
pub(crate) const REGIONS: u32 = 64;

/// Which places are taken, by bit; `None` until there is a table.
#[derive(Debug, Default)]
pub(super) struct Table(Option<u64>);

impl Table {
    /// # Safety
    ///
    /// The memory stays mapped until it is removed, or the ring is gone.
    pub(super) unsafe fn add(&mut self, io: &IoUring, start: *mut u8, len: usize) -> io::Result<u16> {
        let taken = match self.0 {
            Some(taken) => taken,
            None => {
                io.submitter().register_buffers_sparse(REGIONS)?;
                *self.0.insert(0)
            }
        };
        let index = taken.trailing_ones();
        if index == REGIONS {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        update(io, index, libc::iovec { iov_base: start.cast(), iov_len: len })?;
        self.0 = Some(taken | 1 << index);
        Ok(index as u16)
    }

    /// Requests in flight keep what they use of it.
    pub(super) fn remove(&mut self, io: &IoUring, index: u16) {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // Should the kernel not let go of it, the place is not used again.
        if update(io, index.into(), nothing).is_ok()
            && let Some(taken) = &mut self.0
        {
            *taken &= !(1 << index);
        }
    }
}

fn update(io: &IoUring, index: u32, region: libc::iovec) -> io::Result<()> {
    // SAFETY: memory that stays mapped until it is removed (see `add`), or none.
    unsafe { io.submitter().register_buffers_update(index, &[region], None) }
}
