//! [`Pages`]: memory that is a mapping of its own, so that it can be given away as a whole.
//!
//! Owns the mapping; knows nothing of who it is given to.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::{IoBuf, IoBufMut};

/// A buffer of whole pages that nothing else lies in: an anonymous mapping (mmap(2)), unmapped when it is dropped.
///
/// As with a `Vec`, a read fills its capacity and sets its length. All of the capacity is initialised, with zeros at
/// first. `pipe::vmsplice` moves its pages into a pipe instead of copying them.
///
/// # Examples
///
/// ```
/// use runtime_core::buf::Pages;
///
/// let mut pages = Pages::new(100_000)?;
/// assert_eq!((pages.len(), pages.as_ptr() as usize % 4096), (0, 0));
/// pages.resize(5);
/// pages.copy_from_slice(b"hello");
/// # std::io::Result::Ok(())
/// ```
#[doc(alias = "mmap")]
pub struct Pages {
    start: NonNull<u8>,
    capacity: usize,
    len: usize,
}

// SAFETY: it owns its memory, as a `Vec` does.
unsafe impl Send for Pages {}
// SAFETY: shared references only read.
unsafe impl Sync for Pages {}

impl Pages {
    /// An empty buffer with room for so many bytes.
    ///
    /// # Errors
    ///
    /// Those of mmap(2): `OutOfMemory` when there is no memory, or the process has too many mappings.
    pub fn new(capacity: usize) -> io::Result<Self> {
        if capacity == 0 {
            // There is nothing to map.
            return Ok(Self { start: NonNull::dangling(), capacity, len: 0 });
        }
        if isize::try_from(capacity).is_err() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, wherever the kernel likes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), capacity, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, capacity, len: 0 })
    }

    /// Sets the length: cut, or grown by what the memory holds, zeros at first.
    ///
    /// # Panics
    ///
    /// When it is beyond the capacity.
    #[track_caller]
    pub fn resize(&mut self, len: usize) {
        assert!(len <= self.capacity, "a Pages of {} bytes cannot hold {len}", self.capacity);
        self.len = len;
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: mapped with this length, and nobody else's.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.capacity) };
        }
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` is at most the capacity, all of which is mapped and initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the memory is this value's alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

// SAFETY: a mapping does not move with the value; `len` bytes of it are initialised.
unsafe impl IoBuf for Pages {
    fn stable_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len
    }
}

// SAFETY: it owns its mapping uniquely.
unsafe impl IoBufMut for Pages {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    unsafe fn set_len(&mut self, len: usize) {
        self.len = len;
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("len", &self.len).field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_sizes_are_errors_and_an_empty_buffer_is_one() {
        assert_eq!(Pages::new(usize::MAX).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert!(Pages::new(isize::MAX as usize).is_err());
        let mut empty = Pages::new(0).unwrap();
        empty.resize(0);
        assert_eq!(&*empty, &[][..]);
        let mut pages = Pages::new(10_000).unwrap();
        pages.resize(10_000);
        assert!(pages.iter().all(|&byte| byte == 0));
        pages[9_999] = 1;
        assert_eq!((pages.init_len(), pages.as_ptr() as usize % 4096), (10_000, 0));
    }
}
