//! Buffers that can be lent to the kernel: [`IoBuf`], [`IoBufMut`], [`Slice`] and [`BufResult`].
//!
//! Owns the rules about pointers and lengths; knows nothing of rings, operations or sockets.
//!
//! # One rule about lengths
//!
//! A read writes from the *start* of the buffer into its whole capacity, and afterwards the buffer's length is
//! what was read: a `Vec<u8>` comes back with `len() == n`, whatever it held before. Buffers of fixed size
//! (arrays, boxed slices, slices of buffers) keep their size; there the count alone says how much is new.

mod aligned;
mod pages;

use std::io;
use std::ops::{Bound, RangeBounds};

pub use aligned::AlignedBuf;
pub use pages::Pages;

/// Memory whose bytes the kernel may read.
///
/// # Safety
///
/// [`stable_ptr`](IoBuf::stable_ptr) must point at [`init_len`](IoBuf::init_len) initialised bytes and stay valid,
/// and the bytes unchanged, for as long as the value is neither moved, mutated nor dropped. Both functions return
/// the same answer until then. They must not call back into the runtime.
pub unsafe trait IoBuf: 'static {
    /// Start of the memory. The runtime asks for it only once the value sits where it stays.
    fn stable_ptr(&self) -> *const u8;

    /// Number of initialised bytes, counted from the start.
    fn init_len(&self) -> usize;

    /// Where the memory is registered with a ring, if it is.
    #[doc(hidden)]
    fn registered(&self) -> Option<Registered> {
        None
    }

    /// Restricts an operation to `range` of this buffer; [`Slice::into_inner`] gives the buffer back.
    ///
    /// # Panics
    ///
    /// When the range starts behind the initialised bytes or is inverted.
    ///
    /// ```
    /// use runtime_core::buf::IoBuf;
    /// let part = b"header:body".slice(7..);
    /// assert_eq!(&*part, b"body");
    /// ```
    #[track_caller]
    fn slice(self, range: impl RangeBounds<usize>) -> Slice<Self>
    where
        Self: Sized,
    {
        let begin = match range.start_bound() {
            Bound::Included(&n) => n,
            Bound::Excluded(&n) => n.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&n) => n.saturating_add(1),
            Bound::Excluded(&n) => n,
            Bound::Unbounded => usize::MAX,
        };
        assert!(begin <= end, "a slice of a buffer must not end ({end}) before it begins ({begin})");
        let init = self.init_len();
        assert!(begin <= init, "a slice must begin ({begin}) inside the {init} initialised bytes of its buffer");
        Slice { buf: self, begin, end }
    }
}

/// Memory that one ring knows: the ring's number, and the index of the region there.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    pub(crate) ring: u64,
    pub(crate) index: u16,
}

/// Memory that the kernel may write into.
///
/// # Safety
///
/// As for [`IoBuf`]; in addition [`stable_mut_ptr`](IoBufMut::stable_mut_ptr) points at the same memory, of which
/// [`capacity`](IoBufMut::capacity) bytes may be written, and no other reference reaches that memory.
pub unsafe trait IoBufMut: IoBuf {
    /// Start of the memory, for writing.
    fn stable_mut_ptr(&mut self) -> *mut u8;

    /// Number of bytes that may be written, counted from the start.
    fn capacity(&self) -> usize;

    /// Says that the first `len` bytes hold the data of a finished read.
    ///
    /// # Safety
    ///
    /// `len` is at most [`capacity`](IoBufMut::capacity) and the first `len` bytes are initialised.
    unsafe fn set_len(&mut self, len: usize);
}

/// The initialised bytes of a buffer.
pub fn bytes<B: IoBuf + ?Sized>(buf: &B) -> &[u8] {
    let (ptr, len) = (buf.stable_ptr(), buf.init_len());
    if len == 0 {
        return &[];
    }
    // SAFETY: the trait's contract: `len` initialised bytes at `ptr`, unchanged while `buf` is borrowed.
    unsafe { std::slice::from_raw_parts(ptr, len) }
}

/// Copies as much of `data` into `buf` as fits, sets its length and returns the count.
pub fn fill<B: IoBufMut>(buf: &mut B, data: &[u8]) -> usize {
    fill_at(buf, 0, data)
}

/// Copies as much of `data` into `buf` behind its first `at` bytes as fits, sets its length and returns the count.
///
/// # Panics
///
/// When `at` lies beyond the initialised bytes.
pub fn fill_at<B: IoBufMut>(buf: &mut B, at: usize, data: &[u8]) -> usize {
    assert!(at <= buf.init_len() && at <= buf.capacity(), "a buffer can only be filled behind initialised bytes");
    let n = data.len().min(buf.capacity() - at);
    let start = buf.stable_mut_ptr().wrapping_add(at);
    // SAFETY: both ranges are valid for `n` bytes (the trait's contract) and a unique buffer cannot overlap `data`.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), start, n) };
    // SAFETY: the bytes before `at` were initialised, the line above initialised `n` more, within the capacity.
    unsafe { buf.set_len(at + n) };
    n
}

/// The result of an operation together with the buffer that was lent to it.
///
/// The buffer comes back on success and on failure alike.
///
/// ```
/// use runtime_core::buf::BufResult;
/// let BufResult(result, buf) = BufResult(Ok(3), b"abc".to_vec());
/// assert_eq!((result.unwrap(), buf.len()), (3, 3));
/// ```
#[derive(Debug)]
pub struct BufResult<T, B>(pub io::Result<T>, pub B);

impl<T, B> BufResult<T, B> {
    /// Applies `f` to the value of a success.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> BufResult<U, B> {
        BufResult(self.0.map(f), self.1)
    }

    /// Applies `f` to the buffer.
    pub fn map_buf<C>(self, f: impl FnOnce(B) -> C) -> BufResult<T, C> {
        BufResult(self.0, f(self.1))
    }

    /// Trades the pair for a `Result` that holds both on success; the buffer of a failure is dropped.
    pub fn into_result(self) -> io::Result<(T, B)> {
        self.0.map(|value| (value, self.1))
    }
}

/// A part of a buffer, from [`IoBuf::slice`].
#[derive(Debug, Clone)]
pub struct Slice<B> {
    buf: B,
    begin: usize,
    end: usize,
}

impl<B> Slice<B> {
    /// Offset of the first byte in the whole buffer.
    pub fn begin(&self) -> usize {
        self.begin
    }

    /// The whole buffer.
    pub fn get_ref(&self) -> &B {
        &self.buf
    }

    /// Gives the whole buffer back.
    pub fn into_inner(self) -> B {
        self.buf
    }
}

impl<B: IoBuf> std::ops::Deref for Slice<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        bytes(self)
    }
}

// SAFETY: the memory is the inner buffer's; `slice` checked that `begin` lies inside its initialised bytes, and a
// buffer whose length shrank afterwards answers 0 here.
unsafe impl<B: IoBuf> IoBuf for Slice<B> {
    fn stable_ptr(&self) -> *const u8 {
        self.buf.stable_ptr().wrapping_add(self.begin)
    }

    fn init_len(&self) -> usize {
        self.buf.init_len().min(self.end).saturating_sub(self.begin)
    }

    fn registered(&self) -> Option<Registered> {
        self.buf.registered()
    }
}

// SAFETY: as above, within the inner buffer's capacity.
unsafe impl<B: IoBufMut> IoBufMut for Slice<B> {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.buf.stable_mut_ptr().wrapping_add(self.begin)
    }

    fn capacity(&self) -> usize {
        self.buf.capacity().min(self.end).saturating_sub(self.begin)
    }

    unsafe fn set_len(&mut self, len: usize) {
        let end = self.begin + len;
        // A slice never cuts its parent: bytes behind it stay valid.
        if self.buf.init_len() < end {
            // SAFETY: bytes before `begin` were initialised when the slice was made, the caller vouches for the rest.
            unsafe { self.buf.set_len(end) };
        }
    }
}

// SAFETY: a Vec's heap memory does not move with the value; `len` bytes of it are initialised.
unsafe impl IoBuf for Vec<u8> {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len()
    }
}

// SAFETY: a Vec owns `capacity` bytes uniquely.
unsafe impl IoBufMut for Vec<u8> {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn capacity(&self) -> usize {
        Vec::capacity(self)
    }

    unsafe fn set_len(&mut self, len: usize) {
        // SAFETY: the caller's promise is `Vec::set_len`'s.
        unsafe { Vec::set_len(self, len) };
    }
}

// SAFETY: a String's heap memory does not move with the value.
unsafe impl IoBuf for String {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len()
    }
}

// SAFETY: static memory.
unsafe impl IoBuf for &'static [u8] {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len()
    }
}

// SAFETY: static memory.
unsafe impl<const N: usize> IoBuf for &'static [u8; N] {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        N
    }
}

// SAFETY: static memory.
unsafe impl IoBuf for &'static str {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len()
    }
}

macro_rules! fixed_size {
    ($($(#[$why:meta])* [$($generics:tt)*] $type:ty;)*) => {$(
        // SAFETY: always wholly initialised; inline arrays are asked for their address only where they stay.
        unsafe impl<$($generics)*> IoBuf for $type {
            fn stable_ptr(&self) -> *const u8 {
                self.as_ptr()
            }

            fn init_len(&self) -> usize {
                self.len()
            }
        }

        // SAFETY: owned and unique.
        unsafe impl<$($generics)*> IoBufMut for $type {
            fn stable_mut_ptr(&mut self) -> *mut u8 {
                self.as_mut_ptr()
            }

            fn capacity(&self) -> usize {
                self.len()
            }

            unsafe fn set_len(&mut self, _len: usize) {}
        }
    )*};
}

fixed_size! {
    [] Box<[u8]>;
    [const N: usize] Box<[u8; N]>;
    [const N: usize] [u8; N];
}

#[cfg(feature = "bytes")]
mod bytes_crate {
    use super::{IoBuf, IoBufMut};

    // SAFETY: shared memory that nobody may change while a `Bytes` exists; it does not move with the value.
    unsafe impl IoBuf for bytes::Bytes {
        fn stable_ptr(&self) -> *const u8 {
            self.as_ptr()
        }

        fn init_len(&self) -> usize {
            self.len()
        }
    }

    // SAFETY: heap memory of which `len` bytes are initialised.
    unsafe impl IoBuf for bytes::BytesMut {
        fn stable_ptr(&self) -> *const u8 {
            self.as_ptr()
        }

        fn init_len(&self) -> usize {
            self.len()
        }
    }

    // SAFETY: a `BytesMut` owns its `capacity` bytes uniquely.
    unsafe impl IoBufMut for bytes::BytesMut {
        fn stable_mut_ptr(&mut self) -> *mut u8 {
            self.as_mut_ptr()
        }

        fn capacity(&self) -> usize {
            bytes::BytesMut::capacity(self)
        }

        unsafe fn set_len(&mut self, len: usize) {
            // SAFETY: the caller's promise is `BytesMut::set_len`'s.
            unsafe { bytes::BytesMut::set_len(self, len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_sets_the_length_of_a_vec_and_leaves_fixed_buffers_whole() {
        let mut vec = vec![7; 10];
        assert_eq!(fill(&mut vec, b"abc"), 3);
        assert_eq!(vec, b"abc");
        let mut array = [7; 4];
        assert_eq!(fill(&mut array, b"abcdefgh"), 4);
        assert_eq!(&array, b"abcd");
        let mut boxed: Box<[u8]> = vec![7; 4].into();
        assert_eq!(fill(&mut boxed, b"ab"), 2);
        assert_eq!(&*boxed, &[b'a', b'b', 7, 7]);
    }

    #[test]
    fn a_slice_reads_and_writes_its_range_only() {
        let mut part = vec![7; 10].slice(3..6);
        assert_eq!((part.len(), part.capacity()), (3, 3));
        assert_eq!(fill(&mut part, b"abcd"), 3);
        assert_eq!(part.into_inner(), [7, 7, 7, b'a', b'b', b'c', 7, 7, 7, 7]);

        let mut tail = Vec::with_capacity(8);
        tail.extend_from_slice(b"ab");
        let mut tail = tail.slice(2..5);
        assert_eq!((tail.len(), tail.capacity()), (0, 3));
        assert_eq!(fill(&mut tail, b"xyz"), 3);
        assert_eq!(tail.into_inner(), b"abxyz");
    }

    #[test]
    #[should_panic(expected = "initialised")]
    fn a_slice_cannot_begin_in_uninitialised_memory() {
        let _ = Vec::<u8>::with_capacity(8).slice(1..);
    }

    #[test]
    fn empty_buffers_are_empty_slices() {
        assert_eq!(bytes(&Vec::<u8>::new()), b"");
        assert_eq!(bytes(&""), b"");
        assert_eq!(bytes(&[0u8; 0]), b"");
    }
}
