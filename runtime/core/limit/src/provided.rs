//! A ring of buffers that the kernel takes from for multishot receives.

use std::io;
use std::mem::size_of;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use crate::leaked::Leaked;
use crate::ring::Ring;

const PAGE: usize = 4096;
/// Keeps the starts of neighbouring buffers off the same cache sets.
const PAD: usize = 64;

/// Buffers of one size, registered with a ring as group 0. Its memory is leaked.
#[derive(Debug)]
pub struct Provided {
    entries: Leaked,
    data: Leaked,
    count: u16,
    size: usize,
    tail: u16,
}

impl Provided {
    /// The only group there is.
    pub const GROUP: u16 = 0;

    /// Registers `count` (a power of two) buffers of `size` bytes each and gives them all to the kernel.
    ///
    /// # Errors
    /// The kernel refuses the registration.
    ///
    /// # Panics
    /// `count` is no power of two.
    pub fn new(ring: &Ring, count: u16, size: usize) -> io::Result<Self> {
        assert!(count.is_power_of_two(), "a buffer ring's length is a power of two");
        let entries = Leaked::new(usize::from(count) * size_of::<BufRingEntry>(), PAGE);
        let data = Leaked::new(usize::from(count) * (size + PAD), PAGE);
        // SAFETY: the entries are page-aligned, as many as said, and never freed.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries.as_ptr() as u64, count, Self::GROUP, 0)? };
        let mut provided = Self { entries, data, count, size, tail: 0 };
        (0..count).for_each(|id| provided.give(id));
        Ok(provided)
    }

    /// The first `len` bytes of the buffer `id`, which the kernel has filled and not been given again.
    ///
    /// # Panics
    /// There is no such buffer, or it is shorter.
    #[must_use]
    pub fn filled(&self, id: u16, len: usize) -> Leaked {
        self.buffer(id).part(0, len)
    }

    /// Gives a buffer (back) to the kernel.
    ///
    /// # Panics
    /// There is no such buffer.
    pub fn give(&mut self, id: u16) {
        let buffer = self.buffer(id);
        let slot = usize::from(self.tail & (self.count - 1));
        let entries = self.entries.as_ptr().cast::<BufRingEntry>();
        // SAFETY: `slot` is below the number of entries.
        let entry = unsafe { entries.add(slot) };
        // SAFETY: the kernel reads entries before the published tail only, and this one is not before it.
        let entry = unsafe { &mut *entry };
        entry.set_addr(buffer.as_ptr() as u64);
        entry.set_len(buffer.len_u32());
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        self.publish();
    }

    fn publish(&self) {
        // SAFETY: `entries` is the start of the registered ring.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr().cast()) };
        // SAFETY: the tail is an aligned u16 inside the leaked entries, and shared with the kernel as an atomic.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    fn buffer(&self, id: u16) -> Leaked {
        self.data.part(usize::from(id) * (self.size + PAD), self.size)
    }
}
