//! What the soak knows: buffers that notice a late write of the kernel, and streams whose bytes are a sequence.

use std::cell::RefCell;
use std::collections::VecDeque;

use runtime::io::{IoBuf, IoBufMut};

use crate::raw;

/// Bytes that a buffer has at most.
pub(super) const CELL: usize = 2048;
const CELLS: usize = 1024;

thread_local! {
    static ARENA: RefCell<Arena> = RefCell::new(Arena::new());
}

/// Memory that is mapped for ever, in cells. A cell that no buffer uses is full of poison; the free list is a queue, so
/// that a cell stays there for long.
struct Arena {
    base: *mut u8,
    free: VecDeque<usize>,
}

impl Arena {
    fn new() -> Self {
        let base = raw::map(CELL * CELLS);
        // SAFETY: the mapping above.
        unsafe { base.write_bytes(raw::POISON, CELL * CELLS) };
        Self { base, free: (0..CELLS).collect() }
    }

    fn at(&self, cell: usize) -> *mut u8 {
        assert!(cell < CELLS);
        // SAFETY: inside the mapping.
        unsafe { self.base.add(cell * CELL) }
    }

    /// Fails when somebody has written to a cell since its buffer was dropped.
    fn check(&self, cell: usize) {
        let words = self.at(cell).cast::<u64>();
        for i in 0..CELL / 8 {
            // SAFETY: inside the cell, which is aligned.
            let word = unsafe { words.add(i) };
            // SAFETY: mapped for ever; volatile because the kernel may write.
            let word = unsafe { word.read_volatile() };
            let poison = u64::from_ne_bytes([raw::POISON; 8]);
            assert_eq!(word, poison, "the kernel wrote to cell {cell} at {} after its buffer was dropped", i * 8);
        }
    }
}

/// Fails when a dropped buffer was written to, or when more than `out` buffers are alive.
pub(super) fn check_quarantine(out: usize) {
    ARENA.with_borrow(|arena| {
        arena.free.iter().for_each(|&cell| arena.check(cell));
        assert!(CELLS - arena.free.len() <= out, "{} buffers are alive, not {out}", CELLS - arena.free.len());
    });
}

/// A buffer in the arena.
#[derive(Debug)]
pub(super) struct Buf {
    at: *mut u8,
    cell: usize,
    len: usize,
    capacity: usize,
}

impl Buf {
    pub(super) fn new(capacity: usize) -> Self {
        assert!(capacity <= CELL);
        let (cell, at) = ARENA.with_borrow_mut(|arena| {
            let cell = arena.free.pop_front().expect("the soak keeps fewer buffers");
            arena.check(cell);
            (cell, arena.at(cell))
        });
        Self { at, cell, len: 0, capacity }
    }

    /// A buffer with these bytes of a sequence.
    pub(super) fn of(positions: std::ops::Range<u64>) -> Self {
        let bytes: Vec<u8> = positions.map(byte).collect();
        let mut buf = Self::new(bytes.len());
        runtime_core::buf::fill(&mut buf, &bytes);
        buf
    }

    pub(super) fn bytes(&self) -> &[u8] {
        runtime_core::buf::bytes(self)
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        // SAFETY: the buffer owns its cell until here.
        unsafe { self.at.write_bytes(raw::POISON, CELL) };
        ARENA.with_borrow_mut(|arena| arena.free.push_back(self.cell));
    }
}

// SAFETY: a cell is mapped for ever and does not move with the value; `len` bytes are initialised.
unsafe impl IoBuf for Buf {
    fn stable_ptr(&self) -> *const u8 {
        self.at
    }

    fn init_len(&self) -> usize {
        self.len
    }
}

// SAFETY: the buffer owns its cell, of which `capacity` bytes are used.
unsafe impl IoBufMut for Buf {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.at
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    unsafe fn set_len(&mut self, len: usize) {
        self.len = len;
    }
}

/// The byte at a position of every sequence.
pub(super) fn byte(position: u64) -> u8 {
    (position.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Bytes that need not arrive: who has read up to somewhere from `from.0` to `from.1` may find `to` next.
#[derive(Debug, Clone, Copy)]
struct Gap {
    from: (u64, u64),
    to: u64,
}

/// One direction of a stream: what was written, and how far it was read.
#[derive(Debug)]
pub(super) struct Link {
    /// Position of the next byte that a write will take.
    pub(super) next: u64,
    gaps: Vec<Gap>,
    /// Where the reader may be. More than one position only while gaps look like what follows them.
    at: Vec<u64>,
    /// The writing end may be closed: the end of the stream is no surprise.
    pub(super) ending: bool,
    /// The reading end may be closed: a write may fail.
    pub(super) unread: bool,
    /// The connection may be reset: what is on the way may not arrive.
    pub(super) lossy: bool,
}

impl Link {
    pub(super) fn new() -> Self {
        Self { next: 0, gaps: Vec::new(), at: vec![0], ending: false, unread: false, lossy: false }
    }

    /// Takes positions for a write of `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> std::ops::Range<u64> {
        let from = self.next;
        self.next += len as u64;
        from..self.next
    }

    /// Of a write's positions only the first `n` were sent.
    pub(super) fn sent_only(&mut self, positions: std::ops::Range<u64>, n: u64) {
        let from = positions.start + n;
        assert!(from <= positions.end, "a write of {positions:?} cannot have sent {n} bytes");
        self.gaps.push(Gap { from: (from, from), to: positions.end });
    }

    /// A write was dropped: any part of it may have been sent.
    pub(super) fn gave_up(&mut self, positions: std::ops::Range<u64>) {
        self.gaps.push(Gap { from: (positions.start, positions.end), to: positions.end });
    }

    /// The reader got these bytes next.
    pub(super) fn received(&mut self, data: &[u8]) {
        let started = (self.at.clone(), self.gaps.clone());
        for (i, &got) in data.iter().enumerate() {
            self.cross_gaps();
            let next = self.next;
            self.at.retain(|&p| p < next && byte(p) == got);
            self.at.iter_mut().for_each(|p| *p += 1);
            assert!(!self.at.is_empty(), "byte {i} of {data:?} is not what follows {started:?}; written {next}");
        }
        let first = *self.at.iter().min().expect("checked above");
        self.gaps.retain(|gap| gap.to > first);
    }

    /// What a peek saw.
    pub(super) fn peeked(&self, data: &[u8]) {
        let Self { next, ending, unread, lossy, .. } = *self;
        Self { next, gaps: self.gaps.clone(), at: self.at.clone(), ending, unread, lossy }.received(data);
    }

    /// The reader saw the end.
    pub(super) fn ended(&mut self) {
        assert!(self.ending || self.lossy, "the end of a stream that nobody closed: {self:?}");
        self.cross_gaps();
        assert!(self.lossy || self.at.contains(&self.next), "bytes are missing at the end: {self:?}");
    }

    /// The reader got an error.
    pub(super) fn failed(&self, error: &std::io::Error) {
        assert!(self.lossy, "{error} on {self:?}");
    }

    /// A write failed.
    pub(super) fn refused(&self, error: &std::io::Error) {
        assert!(self.unread || self.ending || self.lossy, "{error} on {self:?}");
    }

    fn cross_gaps(&mut self) {
        let mut i = 0;
        while i < self.at.len() {
            let p = self.at[i];
            for gap in &self.gaps {
                if (gap.from.0..=gap.from.1).contains(&p) && !self.at.contains(&gap.to) {
                    self.at.push(gap.to);
                }
            }
            i += 1;
        }
    }
}
