//! What the tests on files have in common: how files are opened, and where in them is read.

/// Bytes of a read.
pub const BLOCK: usize = 4096;
/// Bytes of a small write.
pub const RECORD: usize = 256;
/// Small writes before a sync.
pub const GROUP: usize = 100;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading through the page cache.
    Read,
    /// Reading past it.
    Direct,
    /// Writing; it is made if it is not there.
    Write,
}

impl Access {
    /// What open(2) is told beside the mode.
    #[must_use]
    pub fn flags(self) -> i32 {
        if self == Self::Direct { libc::O_DIRECT } else { 0 }
    }
}

/// Offsets of blocks in no order, the same in every run.
#[derive(Clone, Debug)]
pub struct Offsets {
    state: u64,
    blocks: u64,
}

impl Offsets {
    /// In a file of `len` bytes.
    #[must_use]
    pub fn new(len: u64) -> Self {
        Self { state: 88_172_645_463_325_252, blocks: (len / BLOCK as u64).max(1) }
    }

    /// The next one.
    #[expect(clippy::should_implement_trait, reason = "there is no end, and no Option in the way")]
    pub fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % self.blocks * BLOCK as u64
    }

    /// Others, for another thread.
    #[must_use]
    pub fn split(&mut self) -> Self {
        self.next();
        Self { state: self.state.rotate_left(17) | 1, blocks: self.blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_blocks_inside_the_file() {
        let mut offsets = Offsets::new(10 * BLOCK as u64 + 1);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let offset = offsets.next();
            assert!(offset.is_multiple_of(BLOCK as u64) && offset < 10 * BLOCK as u64);
            seen.insert(offset);
        }
        assert_eq!(seen.len(), 10);
        let (mut one, mut other) = (offsets.split(), offsets.split());
        assert!((0..10).any(|_| one.next() != other.next()));
    }
}
