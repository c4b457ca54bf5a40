//! The pool: slabs, the table in which they are lent to the kernel, and the accounting of pieces.
//!
//! Owns memory and counts; see the rules in [`pooled`](super). Registers nothing itself.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, UnsafeCell};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::cqueue;
use io_uring::types::BufRingEntry;

use super::Pooled;

/// Places of the table: an upper bound on slabs.
const ENTRIES: u16 = 1024;
/// Larger pages than this have no kernel that we run on.
const TABLE_ALIGN: usize = 64 << 10;
/// Keeps the starts of neighbouring slabs off the same cache sets.
const PAD: usize = 64;
/// Pieces up to this many bytes are copied as soon as a good part of the first slabs is held.
const SMALL: usize = 4096;
/// `IOU_PBUF_RING_INC` (6.12).
const INCREMENTAL: u16 = 2;

/// How the pool is cut; all zero means the defaults. For tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// Bytes of a slab.
    pub slab_bytes: u32,
    /// Slabs that are lent at first.
    pub first: u16,
    /// Slabs that there may be, at most 1024.
    pub most: u16,
    /// Bytes that may wait in a stream's queue before the kernel is told to stop.
    pub queue_bytes: u32,
    /// The kernel is treated as if it could only fill a buffer once.
    pub classic: bool,
    /// The kernel is treated as if a completion could only bring one buffer.
    pub single: bool,
    /// The kernel is treated as if it could not pick buffers at all.
    pub none: bool,
}

/// What the kernel knows of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody has received anything yet.
    Untried,
    /// It fills slabs bit by bit.
    Incremental,
    /// It fills a slab once.
    Classic,
    /// It refuses, or the runtime is gone.
    Closed,
}

/// A picture of the pool for the metrics.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Picture {
    pub(crate) bytes: u64,
    pub(crate) pinned: u64,
    pub(crate) pieces: u64,
}

pub(crate) struct Pool {
    shape: Shape,
    stage: Cell<Stage>,
    table: Cell<*mut BufRingEntry>,
    tail: Cell<u16>,
    /// By buffer id; only grows until the pool closes.
    slabs: UnsafeCell<Vec<NonNull<Slab>>>,
    stocked: Cell<u32>,
    /// Slabs that may be pinned before small pieces, and before any, are copied.
    small_from: Cell<u32>,
    /// That many are.
    tight: Cell<bool>,
    all_from: Cell<u32>,
    most: Cell<u16>,
    bundles: Cell<bool>,
    pub(crate) copied: Cell<u64>,
}

/// What a completion brought behind its first piece.
pub(crate) struct Rest {
    /// Of the piece before.
    place: u16,
    /// Nothing was lent from here on.
    tail: u16,
    left: u32,
}

pub(super) struct Slab {
    start: NonNull<u8>,
    bytes: u32,
    id: u16,
    /// Its place in the table, while it is stocked.
    place: Cell<u16>,
    /// The kernel may write behind `filled`.
    stocked: Cell<bool>,
    filled: Cell<u32>,
    pieces: Cell<u32>,
    /// Null once the pool is closed.
    pool: Cell<*const Pool>,
}

impl Pool {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            shape,
            stage: Cell::new(if shape.none { Stage::Closed } else { Stage::Untried }),
            table: Cell::new(ptr::null_mut()),
            tail: Cell::new(0),
            slabs: UnsafeCell::new(Vec::new()),
            stocked: Cell::new(0),
            small_from: Cell::new(u32::MAX),
            tight: Cell::new(false),
            all_from: Cell::new(u32::MAX),
            most: Cell::new(0),
            bundles: Cell::new(false),
            copied: Cell::new(0),
        }
    }

    /// Bytes that may wait in a stream's queue before the kernel is told to stop.
    pub(crate) fn queue_bytes(&self) -> u32 {
        match self.shape.queue_bytes {
            0 => 1 << 20,
            bytes => bytes,
        }
    }

    /// Whether it is to be set up.
    #[inline]
    pub(crate) fn is_untried(&self) -> bool {
        self.stage.get() == Stage::Untried
    }

    /// Whether the kernel has anything to fill, as far as completions have said.
    #[inline]
    pub(crate) fn has_stock(&self) -> bool {
        self.stocked.get() > 0
    }

    /// Whether receives are to ask for bundles: many buffers in one completion. A buffer that is filled bit by bit takes as
    /// much by itself, so there it would gain nothing.
    #[inline]
    pub(crate) fn has_bundles(&self) -> bool {
        self.bundles.get()
    }

    /// Makes the table, has it registered (by address, entries and flags) and lends the first slabs. A kernel that
    /// refuses leaves a pool without stock.
    #[cold]
    pub(crate) fn set_up(&self, bundles: bool, mut register: impl FnMut(u64, u16, u16) -> bool) {
        let layout = table_layout();
        // SAFETY: the layout has a size.
        let table = unsafe { alloc_zeroed(layout) }.cast::<BufRingEntry>();
        if table.is_null() {
            handle_alloc_error(layout);
        }
        self.table.set(table);
        let mut register = |flags| register(table as u64, ENTRIES, flags);
        let stage = if !self.shape.classic && register(INCREMENTAL) {
            Stage::Incremental
        } else if register(0) {
            Stage::Classic
        } else {
            Stage::Closed
        };
        self.stage.set(stage);
        if stage == Stage::Closed {
            return self.free_table();
        }
        let or = |value: u16, default: u16| if value == 0 { default } else { value };
        let most = or(self.shape.most, if stage == Stage::Classic { ENTRIES } else { 256 }).min(ENTRIES);
        let first = or(self.shape.first, if stage == Stage::Classic { 64 } else { 16 }).min(most);
        let small_from = match stage {
            // Each piece has a small slab of its own: what is merely on its way is no pressure yet.
            Stage::Classic => first.div_ceil(2).max(most.div_ceil(4)),
            _ => first.div_ceil(2),
        };
        self.small_from.set(u32::from(small_from));
        self.all_from.set(u32::from(most).div_ceil(2));
        self.most.set(most);
        self.bundles.set(bundles && !self.shape.single && stage == Stage::Classic);
        self.add(first);
    }

    fn slab_bytes(&self) -> u32 {
        match (self.shape.slab_bytes, self.stage.get()) {
            (0, Stage::Classic) => 16 << 10,
            (0, _) => 256 << 10,
            (bytes, _) => bytes,
        }
    }

    /// The kernel has found nothing to fill: doubles the pool, unless something came back meanwhile. Says whether there is
    /// something now.
    #[cold]
    pub(crate) fn replenish(&self) -> bool {
        let len = self.slabs().len() as u16;
        if !self.has_stock() && self.is_registered() {
            self.add(len.min(self.most.get() - len));
        }
        self.has_stock()
    }

    fn add(&self, count: u16) {
        for _ in 0..count {
            let id = self.slabs().len() as u16;
            let slab = Slab::new(self.slab_bytes(), id, self);
            // SAFETY: no reference into the vector lives across this call (each is dropped before its function returns).
            unsafe { &mut *self.slabs.get() }.push(slab);
            // SAFETY: just made.
            self.lend(unsafe { slab.as_ref() });
        }
    }

    fn slabs(&self) -> &[NonNull<Slab>] {
        // SAFETY: only `add` and `close` change the vector, on this thread and while no such reference is used.
        unsafe { &*self.slabs.get() }
    }

    /// Puts a slab that nobody uses at the end of the table.
    fn lend(&self, slab: &Slab) {
        slab.filled.set(0);
        slab.stocked.set(true);
        self.stocked.set(self.stocked.get() + 1);
        let table = self.table.get();
        let tail = self.tail.get();
        slab.place.set(tail);
        let place = self.place(tail);
        // SAFETY: there are no more slabs than places, so the kernel is done with this one, and looks at it again only
        // behind the store of the tail.
        let entry = unsafe { &mut *place };
        entry.set_addr(slab.start.as_ptr() as u64);
        entry.set_len(slab.bytes);
        entry.set_bid(slab.id);
        let tail = tail.wrapping_add(1);
        self.tail.set(tail);
        // SAFETY: the table's first entry, initialised, at an address that is a multiple of the page size.
        let at = unsafe { BufRingEntry::tail(table) };
        // SAFETY: an aligned u16 inside the table, which the kernel, too, only touches as a whole.
        let at = unsafe { AtomicU16::from_ptr(at.cast_mut()) };
        at.store(tail, Ordering::Release);
    }

    fn place(&self, position: u16) -> *mut BufRingEntry {
        // SAFETY: inside the table, which has a power of two of places.
        unsafe { self.table.get().add(usize::from(position & (ENTRIES - 1))) }
    }

    /// Cuts the first piece of a completion that is being reaped, and says what else it brought; all completions and all of
    /// their pieces, in their order (rule 1).
    #[inline]
    pub(crate) fn cut(&self, result: i32, flags: u32) -> Option<(Pooled, Option<Rest>)> {
        let at = *self.slabs().get(usize::from(cqueue::buffer_select(flags)?))?;
        // SAFETY: slabs in the vector live; only shared references to them are made.
        let slab = unsafe { at.as_ref() };
        let room = slab.bytes - slab.filled.get();
        if result <= 0 || room == 0 || !slab.stocked.get() {
            self.cut_nothing(slab, flags);
            return None;
        }
        let len = (result as u32).min(room);
        let is_bundle = result as u32 > len && self.has_bundles();
        let rest =
            is_bundle.then(|| Rest { place: slab.place.get(), tail: self.tail.get(), left: result as u32 - len });
        Some((self.piece(at, len, cqueue::buffer_more(flags)), rest))
    }

    /// The next piece of a bundle: it lies in the slab of the next place, up to what was lent when it was reaped.
    pub(crate) fn cut_next(&self, rest: &mut Rest) -> Option<Pooled> {
        rest.place = rest.place.wrapping_add(1);
        if rest.left == 0 || rest.place == rest.tail {
            return None;
        }
        // SAFETY: the kernel writes nothing there, and we only in `lend`.
        let id = unsafe { (*self.place(rest.place)).bid() };
        let at = *self.slabs().get(usize::from(id))?;
        // SAFETY: slabs in the vector live; only shared references to them are made.
        let slab = unsafe { at.as_ref() };
        if !slab.stocked.get() || slab.place.get() != rest.place {
            return None;
        }
        let len = rest.left.min(slab.bytes);
        rest.left -= len;
        Some(self.piece(at, len, false))
    }

    /// The next `len` bytes of a slab, of which there are as many.
    #[inline]
    fn piece(&self, at: NonNull<Slab>, len: u32, more: bool) -> Pooled {
        // SAFETY: slabs in the vector live; only shared references to them are made.
        let slab = unsafe { at.as_ref() };
        let offset = slab.filled.get();
        slab.filled.set(offset + len);
        slab.pieces.set(slab.pieces.get() + 1);
        // SAFETY: inside the slab.
        let start = unsafe { slab.start.add(offset as usize) };
        let mut piece = Pooled { start, len: len as usize, slab: Some(at) };
        if !more {
            self.used_up(slab);
        }
        self.relieve(&mut piece);
        piece
    }

    /// A completion names a buffer and brings nothing. A kernel that takes nothing from an incremental buffer keeps it,
    /// whatever the flags say.
    #[cold]
    fn cut_nothing(&self, slab: &Slab, flags: u32) {
        if self.stage.get() == Stage::Classic && slab.stocked.get() && !cqueue::buffer_more(flags) {
            self.used_up(slab);
        }
    }

    #[cold]
    fn used_up(&self, slab: &Slab) {
        slab.stocked.set(false);
        self.stocked.set(self.stocked.get() - 1);
        if slab.pieces.get() == 0 {
            self.lend(slab);
        }
        self.look();
    }

    /// Notes whether so much is held that pieces are to be copied.
    fn look(&self) {
        self.tight.set(self.pinned() >= self.small_from.get());
    }

    fn pinned(&self) -> u32 {
        self.slabs().len() as u32 - self.stocked.get()
    }

    /// Copies a piece where too much of the pool is held for it to be handed out or kept in a queue.
    #[inline]
    pub(crate) fn relieve(&self, data: &mut Pooled) {
        if self.tight.get() {
            self.relieve_now(data);
        }
    }

    #[cold]
    fn relieve_now(&self, data: &mut Pooled) {
        if data.is_piece() && (data.len() <= SMALL || self.pinned() >= self.all_from.get()) {
            self.copied.set(self.copied.get() + 1);
            *data = Pooled::from(data.to_vec());
        }
    }

    pub(crate) fn picture(&self) -> Picture {
        let mut picture = Picture { pinned: u64::from(self.pinned()), ..Picture::default() };
        for slab in self.slabs() {
            // SAFETY: slabs in the vector live.
            let slab = unsafe { slab.as_ref() };
            picture.bytes += u64::from(slab.bytes);
            picture.pieces += u64::from(slab.pieces.get());
        }
        picture
    }

    /// Whether there is a table that is registered.
    pub(crate) fn is_registered(&self) -> bool {
        matches!(self.stage.get(), Stage::Classic | Stage::Incremental)
    }

    /// Lets go of everything: what is still held frees itself with its last piece. Only when the kernel fills nothing any
    /// more and has forgotten the table.
    pub(crate) fn close(&self) {
        self.stage.set(Stage::Closed);
        self.stocked.set(0);
        // SAFETY: no reference into the vector lives here.
        let slabs = std::mem::take(unsafe { &mut *self.slabs.get() });
        for at in slabs {
            // SAFETY: it lives until the line below, or until its last piece is dropped.
            let slab = unsafe { at.as_ref() };
            slab.pool.set(ptr::null());
            slab.stocked.set(false);
            if slab.pieces.get() == 0 {
                // SAFETY: no piece is left, and the pool has forgotten it.
                unsafe { Slab::free(at) };
            }
        }
        self.free_table();
    }

    fn free_table(&self) {
        let table = self.table.replace(ptr::null_mut());
        if !table.is_null() {
            // SAFETY: allocated in `set_up` with this layout, and forgotten by the line above.
            unsafe { dealloc(table.cast(), table_layout()) };
        }
    }
}

impl Drop for Pool {
    /// A pool that was not closed may be in the kernel's use: its slabs and its table are leaked as a whole (I6). Pieces
    /// that are held must not reach for it.
    fn drop(&mut self) {
        for slab in self.slabs() {
            // SAFETY: slabs in the vector live, and are leaked here.
            let slab = unsafe { slab.as_ref() };
            // One more than there are, so that the last drop does not free what the kernel may write to.
            slab.pieces.set(slab.pieces.get() + 1);
            slab.pool.set(ptr::null());
        }
    }
}

fn table_layout() -> Layout {
    let bytes = usize::from(ENTRIES) * size_of::<BufRingEntry>();
    Layout::from_size_align(bytes, TABLE_ALIGN).expect("a power of two and a small size")
}

impl Slab {
    fn layout(bytes: u32) -> Layout {
        Layout::from_size_align(bytes as usize + PAD, PAD).expect("a power of two and a 32-bit size")
    }

    /// Its memory is not touched before the kernel fills it.
    fn new(bytes: u32, id: u16, pool: &Pool) -> NonNull<Self> {
        let layout = Self::layout(bytes);
        // SAFETY: the layout has a size.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        let slab = Self {
            start,
            bytes,
            id,
            place: Cell::new(0),
            stocked: Cell::new(false),
            filled: Cell::new(0),
            pieces: Cell::new(0),
            pool: Cell::new(pool),
        };
        NonNull::from(Box::leak(Box::new(slab)))
    }

    /// # Safety
    ///
    /// Nobody uses the slab, in the kernel or here, and nobody will.
    unsafe fn free(at: NonNull<Self>) {
        // SAFETY: leaked from a box in `new`; the caller vouches that this is the last use.
        let slab = unsafe { Box::from_raw(at.as_ptr()) };
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(slab.start.as_ptr(), Self::layout(slab.bytes)) };
    }

    /// One of its pieces is dropped.
    #[inline]
    pub(super) fn release(at: NonNull<Self>) {
        // SAFETY: it lives while it has pieces.
        let slab = unsafe { at.as_ref() };
        let left = slab.pieces.get() - 1;
        slab.pieces.set(left);
        if left == 0 && !slab.stocked.get() {
            Self::is_unused(at);
        }
    }

    /// Its last piece is gone, and the kernel does not have it.
    #[cold]
    fn is_unused(at: NonNull<Self>) {
        // SAFETY: it lives until the line below.
        let slab = unsafe { at.as_ref() };
        // SAFETY: the pool clears the pointer before it goes.
        match unsafe { slab.pool.get().as_ref() } {
            Some(pool) => {
                pool.lend(slab);
                pool.look();
            }
            // SAFETY: without a pool the last piece is the last user.
            None => unsafe { Self::free(at) },
        }
    }
}

/// The group under which the table is registered.
pub(crate) const GROUP: u16 = 0;

#[cfg(test)]
mod tests;
