//! Memory for receives whose buffer the kernel picks: [`Pooled`], and the pool behind it.
//!
//! Owns the slabs, what lies in them, and who still uses a part. Knows nothing of sockets, rings or futures: the driver
//! registers the pool's table with the kernel and tells it each completion.
//!
//! # Rules
//!
//! 1. The kernel fills a slab from its start. Where a piece begins is not said: it is the sum of the pieces before it,
//!    in the order of completions. So pieces are cut when completions are *reaped*, all of them in their order, and not
//!    when somebody takes them.
//! 2. A slab is lent to the kernel until a completion says that there is no more of it (`IORING_CQE_F_BUF_MORE` clear).
//! 3. It is lent again once rule 2 holds *and* its last piece was dropped.
//! 4. A piece covers bytes that the kernel is done with; the bytes behind `filled` are the kernel's, and no reference ever
//!    covers them (I8).
//! 5. A slab outlives its pool while a piece of it is held (ruling 31): the pool lets go of it, the last piece frees it.
//!
//! ```text
//!            lend                     no more of it             last piece dropped
//!  new ─────────────▶ stocked ─────────────────────▶ pinned ─────────────────────▶ stocked
//!                      ▲  │ filled, cut into pieces     │ the pool closes: freed with its last piece
//! ```

pub(crate) mod pool;

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::buf::IoBuf;
use pool::Slab;

/// Received bytes in memory of the runtime's pool, which takes it back when this is dropped.
///
/// It derefs to the bytes and can be written out again as it is, without a copy. Empty means the end of the stream.
///
/// What is held for long keeps more memory than it has bytes, since it is a part of a larger block. Keep
/// [`into_vec`](Self::into_vec) of it instead. While much of the pool is held, the runtime copies on delivery, so that
/// other connections go on.
///
/// It belongs to the thread that received it; it may outlive its stream and its runtime.
///
/// ```
/// # use runtime_core::pooled::Pooled;
/// let data = Pooled::from(b"abc".to_vec());
/// assert_eq!(&data[..], b"abc");
/// assert_eq!(data.into_vec(), b"abc");
/// ```
#[doc(alias = "IOU_PBUF_RING_INC")]
pub struct Pooled {
    start: NonNull<u8>,
    len: usize,
    /// What the bytes lie in; `None` when they are a boxed slice of their own.
    slab: Option<NonNull<Slab>>,
}

impl Pooled {
    /// No bytes: what a receive returns at the end of the stream.
    pub const fn empty() -> Self {
        Self { start: NonNull::dangling(), len: 0, slab: None }
    }

    /// The bytes as a vector of their own; copies unless they have memory of their own already.
    pub fn into_vec(self) -> Vec<u8> {
        if self.slab.is_some() {
            return self.to_vec();
        }
        let this = std::mem::ManuallyDrop::new(self);
        let bytes = std::ptr::slice_from_raw_parts_mut(this.start.as_ptr(), this.len);
        // SAFETY: without a slab the bytes are a boxed slice (see `from`), which is taken once: `this` is not dropped.
        unsafe { Box::from_raw(bytes) }.into_vec()
    }

    /// Whether the bytes lie in the pool.
    #[inline]
    pub(crate) fn is_piece(&self) -> bool {
        self.slab.is_some()
    }

    /// Gives up the first `n` bytes.
    pub(crate) fn advance(&mut self, n: usize) {
        let n = n.min(self.len);
        if self.slab.is_none() {
            // A boxed slice cannot be cut.
            *self = Self::from(self[n..].to_vec());
            return;
        }
        // SAFETY: inside the piece, or at its end.
        self.start = unsafe { self.start.add(n) };
        self.len -= n;
    }

    #[cold]
    fn free(&mut self) {
        drop(std::mem::replace(self, Self::empty()).into_vec());
    }
}

impl Drop for Pooled {
    #[inline]
    fn drop(&mut self) {
        match self.slab {
            Some(slab) => Slab::release(slab),
            None if self.len > 0 => self.free(),
            None => {}
        }
    }
}

/// Bytes with memory of their own, in the shape of received ones.
impl From<Vec<u8>> for Pooled {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        let start = NonNull::from(Box::leak(bytes.into_boxed_slice())).cast();
        Self { start, len, slab: None }
    }
}

impl From<Pooled> for Vec<u8> {
    fn from(data: Pooled) -> Self {
        data.into_vec()
    }
}

impl Deref for Pooled {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialised, stay where they are, and nobody writes to them before this is dropped: rules 3
        // and 4 for a piece, and a boxed slice is owned.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled").field("len", &self.len()).field("copied", &!self.is_piece()).finish()
    }
}

// SAFETY: a piece's bytes stay where they are, and unchanged, until it is dropped (rules 3 and 4); a vector's do too.
unsafe impl IoBuf for Pooled {
    #[inline]
    fn stable_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    #[inline]
    fn init_len(&self) -> usize {
        self.len
    }
}
