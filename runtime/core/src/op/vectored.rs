//! Vectors of buffers: the `iovec`s and the `msghdr` that several buffers need, and how a count spreads over them.

use std::ptr;

use crate::buf::{IoBuf, IoBufMut};

/// What the kernel takes at most; more buffers make a short transfer.
pub(crate) const IOV_MAX: usize = 1024;

/// Buffers with their `iovec`s and message header, at stable addresses once boxed.
pub struct Message<B> {
    bufs: Vec<B>,
    vector: Vec<libc::iovec>,
    header: libc::msghdr,
}

impl<B> std::fmt::Debug for Message<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("bufs", &self.bufs.len()).finish_non_exhaustive()
    }
}

impl<B: IoBuf> Message<B> {
    pub(super) fn new(bufs: Vec<B>) -> Box<Self> {
        let header = libc::msghdr {
            msg_name: ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: ptr::null_mut(),
            msg_iovlen: 0,
            msg_control: ptr::null_mut(),
            msg_controllen: 0,
            msg_flags: 0,
        };
        Box::new(Self { bufs, vector: Vec::new(), header })
    }

    pub(super) fn into_bufs(self) -> Vec<B> {
        self.bufs
    }

    /// The `iovec`s for reading from memory, without the first `skip` bytes.
    pub(super) fn vector_for_writing(&mut self, mut skip: usize) -> (*const libc::iovec, u32) {
        self.vector.clear();
        for buf in &self.bufs {
            let len = buf.init_len();
            let skipped = skip.min(len);
            skip -= skipped;
            if len > skipped && self.vector.len() < IOV_MAX {
                let start = buf.stable_ptr().wrapping_add(skipped).cast_mut();
                self.vector.push(libc::iovec { iov_base: start.cast(), iov_len: len - skipped });
            }
        }
        (self.vector.as_ptr(), self.vector.len() as u32)
    }

    pub(super) fn header_for_writing(&mut self, skip: usize) -> *const libc::msghdr {
        self.vector_for_writing(skip);
        self.header.msg_iov = self.vector.as_mut_ptr();
        self.header.msg_iovlen = self.vector.len();
        &raw const self.header
    }
}

impl<B: IoBufMut> Message<B> {
    /// The `iovec`s for writing to memory.
    pub(super) fn vector_for_reading(&mut self) -> (*const libc::iovec, u32) {
        self.vector.clear();
        // Without the empty ones, which would use up the places of others and read as an end.
        for buf in self.bufs.iter_mut().filter(|buf| buf.capacity() > 0).take(IOV_MAX) {
            let len = buf.capacity();
            self.vector.push(libc::iovec { iov_base: buf.stable_mut_ptr().cast(), iov_len: len });
        }
        (self.vector.as_ptr(), self.vector.len() as u32)
    }

    pub(super) fn header_for_reading(&mut self) -> *mut libc::msghdr {
        self.vector_for_reading();
        self.header.msg_iov = self.vector.as_mut_ptr();
        self.header.msg_iovlen = self.vector.len();
        &raw mut self.header
    }
}

/// Spreads the count of a finished vectored read over the buffers' lengths and returns it.
///
/// # Safety
///
/// The kernel has written `n` bytes into the buffers, each filled before the next.
pub(super) unsafe fn scatter<B: IoBufMut>(bufs: &mut [B], n: usize) -> usize {
    let mut left = n;
    for buf in bufs.iter_mut() {
        let part = left.min(buf.capacity());
        // SAFETY: the first `part` bytes of this buffer were written by the kernel; none of those it did not get to.
        unsafe { buf.set_len(part) };
        left -= part;
    }
    n - left
}
