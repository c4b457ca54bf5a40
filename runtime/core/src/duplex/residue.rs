//! What dropped operations leave behind in a direction: bytes, then an error or the end.

/// In place of an errno: the end of the stream. The kernel would tell it again, but a reader whose patience is always
/// shorter than an operation would never get to hear it.
pub(super) const END: i32 = 0;

/// What dropped operations left behind.
#[derive(Debug, Default)]
pub(super) struct Residue {
    pub(super) data: Vec<u8>,
    /// How much of `data` has been returned already.
    pub(super) taken: usize,
    /// [`END`] when that was no error.
    pub(super) errno: Option<i32>,
    /// An error of the whole connection that a dropped write was told, and the kernel tells nobody again: it comes in
    /// place of the end of the stream, behind what the kernel still has.
    pub(super) end: Option<i32>,
}

impl Residue {
    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.errno.is_none()
    }

    /// Whether it is something that the kernel does not tell again.
    pub(super) fn is_more_than_the_end(&self) -> bool {
        !self.data.is_empty() || self.errno.is_some_and(|errno| errno != END) || self.end.is_some()
    }

    pub(super) fn rest(&self) -> &[u8] {
        &self.data[self.taken..]
    }

    pub(super) fn advance(&mut self, n: usize) {
        self.taken += n;
        if self.taken == self.data.len() {
            // Freed rather than kept: residue is rare and may be large.
            self.data = Vec::new();
            self.taken = 0;
        }
    }
}
