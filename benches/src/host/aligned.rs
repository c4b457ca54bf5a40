//! A page-aligned place in a vector, for the runtimes that take vectors and have no aligned memory of their own.

const PAGE: usize = 4096;

/// A vector with room for `len` bytes from a multiple of a page on, all of it initialised; and where that is.
pub(super) fn vector(len: usize) -> (Vec<u8>, usize) {
    let vector = vec![7; len + PAGE];
    let start = vector.as_ptr().align_offset(PAGE);
    (vector, start)
}
