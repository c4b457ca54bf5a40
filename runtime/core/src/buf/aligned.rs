//! [`AlignedBuf`]: memory for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::io;
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::{IoBuf, IoBufMut};

/// A buffer of fixed capacity that starts at a multiple of its alignment, as `O_DIRECT` asks for.
///
/// As with a `Vec`, a read fills its capacity and sets its length. All of the capacity is initialised, so the length may be
/// set to anything up to it: a direct write has to be of whole blocks.
///
/// # Examples
///
/// ```
/// use runtime_core::buf::AlignedBuf;
///
/// let mut buf = AlignedBuf::new(8192, 4096)?;
/// assert_eq!((buf.len(), buf.as_ptr() as usize % 4096), (0, 0));
/// buf.resize(4096);
/// buf[..5].copy_from_slice(b"hello");
/// # std::io::Result::Ok(())
/// ```
pub struct AlignedBuf {
    start: NonNull<u8>,
    layout: Layout,
    len: usize,
}

// SAFETY: it owns its memory, as a `Vec` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// An empty buffer.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the alignment is no power of two or the capacity is beyond what there can be; `OutOfMemory`.
    pub fn new(capacity: usize, align: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(capacity, align)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "no such alignment or capacity"))?;
        if capacity == 0 {
            // There is nothing to allocate; any address will do that is aligned.
            let align = NonZero::new(align).ok_or(io::ErrorKind::InvalidInput)?;
            return Ok(Self { start: NonNull::without_provenance(align), layout, len: 0 });
        }
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, layout, len: 0 })
    }

    /// Sets the length: cut, or grown by what the memory holds, zeros at first.
    ///
    /// # Panics
    ///
    /// When it is beyond the capacity.
    #[track_caller]
    pub fn resize(&mut self, len: usize) {
        assert!(len <= self.layout.size(), "an AlignedBuf of {} bytes cannot hold {len}", self.layout.size());
        self.len = len;
    }

    /// What its start is a multiple of.
    pub fn align(&self) -> usize {
        self.layout.align()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: allocated with this very layout.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` is at most the capacity, all of which is initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the memory is this value's alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

// SAFETY: heap memory that does not move with the value; `len` bytes of it are initialised.
unsafe impl IoBuf for AlignedBuf {
    fn stable_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len
    }
}

// SAFETY: it owns its capacity uniquely.
unsafe impl IoBufMut for AlignedBuf {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn capacity(&self) -> usize {
        self.layout.size()
    }

    unsafe fn set_len(&mut self, len: usize) {
        self.len = len;
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).field("layout", &self.layout).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_wishes_are_errors_and_an_empty_buffer_is_one() {
        for (capacity, align) in [(8, 0), (8, 3), (usize::MAX, 4096), (isize::MAX as usize, 4096)] {
            assert_eq!(AlignedBuf::new(capacity, align).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let mut empty = AlignedBuf::new(0, 4096).unwrap();
        assert_eq!((empty.as_ptr() as usize % 4096, &*empty), (0, &[][..]));
        empty.resize(0);
        let mut buf = AlignedBuf::new(1 << 16, 1 << 16).unwrap();
        assert_eq!(buf.as_ptr() as usize % (1 << 16), 0);
        buf.resize(1 << 16);
        assert!(buf.iter().all(|&byte| byte == 0));
    }
}
