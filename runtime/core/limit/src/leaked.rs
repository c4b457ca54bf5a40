//! Memory for the kernel to write into, which is never freed.
//!
//! A ring that is dropped leaves its operations to the kernel, which ends them when it likes. In a program that runs one
//! loop and ends, the short way to keep their memory valid is to never give it back.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr::NonNull;
use std::slice;

/// A piece of memory that stays valid until the process ends. Copies name the same bytes.
#[derive(Clone, Copy, Debug)]
pub struct Leaked {
    start: NonNull<u8>,
    len: usize,
}

impl Leaked {
    /// Allocates `len` zeroed bytes, aligned to `align`.
    ///
    /// # Panics
    /// `len` is zero or `align` is no power of two.
    #[must_use]
    pub fn new(len: usize, align: usize) -> Self {
        assert!(len > 0, "a leaked piece of memory holds at least a byte");
        let layout = Layout::from_size_align(len, align).expect("an alignment is a power of two");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, len }
    }

    /// Where it starts.
    #[must_use]
    pub fn as_ptr(self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its length in the kernel's type.
    #[must_use]
    pub fn len_u32(self) -> u32 {
        u32::try_from(self.len).expect("a piece for one operation is below 4 GiB")
    }

    /// The `len` bytes from `offset` on.
    ///
    /// # Panics
    /// They are not inside.
    #[must_use]
    pub fn part(self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len, "{len} bytes at {offset} of {}", self.len);
        // SAFETY: `offset` is inside the allocation.
        Self { start: unsafe { self.start.add(offset) }, len }
    }

    /// The bytes themselves.
    ///
    /// # Safety
    /// Nobody writes to them, the kernel included, while the slice is in use.
    #[must_use]
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the memory was allocated with this length, zeroed and never freed; the caller keeps writers away.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

/// A message of `len` bytes whose order and repetition an echo cannot change unseen.
#[must_use]
pub fn message(len: usize) -> &'static [u8] {
    let byte = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ (at >> 8) as u8;
    Box::leak((0..len).map(byte).collect())
}
