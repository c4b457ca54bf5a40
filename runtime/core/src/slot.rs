//! Slots: where an operation lives while the kernel may use it.
//!
//! Owns the memory of every operation in flight (I1, I2), and the generations that tell a late completion from a
//! current one. Knows nothing of the ring, of wakers' meaning or of tasks.
//!
//! A slot is a header of 56 bytes, written only through `Cell`s, and room for the operation, which no reference covers
//! while it is in flight (I8): 8 bytes in a *narrow* slot, which is what a standing receive of an idle connection needs,
//! 72 in a *wide* one. Larger operations are boxed. Chunks of slots never move and are freed only when no slot is in
//! use; a table that is dropped with slots in use leaks them as a whole (I6).
//!
//! ```text
//!          insert            settle (final completion)        take
//!   Free ──────────▶ Flying ───────────────────────▶ Settled ──────▶ Free, generation + 1
//!                      │ result with a notification       ▲
//!                      └──────────▶ Told or Noticed ──────┘ the other one of the two
//! ```

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, UnsafeCell};
use std::ptr::{self, NonNull};
use std::task::Waker;

use crate::op::{Cqe, Kind, Multi, Op};
use crate::pooled::Pooled;

/// Slots of a chunk, all of one width.
const CHUNK: usize = 64;

/// Names one use of one slot of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SlotKey {
    /// The form in which the key travels through the kernel.
    pub(crate) fn user_data(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.generation)
    }

    pub(crate) fn from_user_data(user_data: u64) -> Self {
        Self { index: (user_data >> 32) as u32, generation: user_data as u32 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Owned by the slot on behalf of the kernel.
    Flying,
    /// The result is stored, but the kernel uses the operation's memory until its notification.
    Told,
    /// The notification came first; the result is on its way.
    Noticed,
    /// The final completion is stored; the operation waits to be taken.
    Settled,
}

/// How many completions end an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Single,
    /// A result, and a notification if the result says so.
    Notified,
    Multi,
    /// As that, and its completions bring pieces of the pool.
    Pooled,
}

/// What [`Slot::advance`] did with a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Advance {
    /// The result is there: tell the operation.
    Told,
    /// The notification is there, ahead of the result.
    Noticed,
    /// Nothing more comes.
    Settled,
}

/// What a slot can do with the operation in it without knowing its type.
pub(crate) struct Behaviour {
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    /// Takes the operation out of a settled slot, frees the slot and completes the operation as an orphan; for a
    /// multishot operation, drops it.
    finish: unsafe fn(&Slots, &Slot, Cqe),
    /// Hands one completion to a multishot operation, or the result to one with a notification.
    item: unsafe fn(&Slot, Cqe),
    /// Hands a piece of the pool to a multishot operation.
    early: unsafe fn(&Slot, Pooled, &mut bool) -> Option<Waker>,
}

impl Behaviour {
    /// A close is not: whether one that was cancelled had run before cannot be told, and closing twice hits a stranger.
    pub(crate) fn is_cancellable(&self) -> bool {
        self.kind != Kind::Close
    }
}

impl std::fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Behaviour").field("kind", &self.kind).field("shape", &self.shape).finish_non_exhaustive()
    }
}

struct Single<O>(O);

impl<O: Op> Single<O> {
    const BEHAVIOUR: Behaviour = Behaviour {
        kind: O::KIND,
        shape: if O::TOLD.is_some() { Shape::Notified } else { Shape::Single },
        finish: |slots, slot, cqe| {
            // SAFETY: the caller vouches that the slot is settled and holds an `O`.
            let op: O = unsafe { slots.take(slot) };
            op.orphan(cqe);
        },
        early: |_, _, _| None,
        item: |slot, cqe| {
            let Some(told) = O::TOLD else { return };
            // SAFETY: the caller vouches that the slot holds an `O`.
            let op = unsafe { slot.body::<O>() };
            // SAFETY: the operation is in its slot, and acts are run one after the other.
            unsafe { told(op, cqe, slot.orphan.get()) };
        },
    };
}

struct Many<M>(M);

impl<M: Multi> Many<M> {
    const BEHAVIOUR: Behaviour = Behaviour {
        kind: M::KIND,
        shape: if M::POOLED { Shape::Pooled } else { Shape::Multi },
        finish: |slots, slot, _| {
            // SAFETY: the caller vouches that the slot is settled and holds an `M`.
            drop(unsafe { slots.take::<M>(slot) });
        },
        item: |slot, cqe| {
            // SAFETY: the caller vouches that the slot holds an `M`.
            let op = unsafe { slot.body::<M>() };
            // SAFETY: the kernel has no pointer into it (the contract of `Multi`), and items are handed over one after
            // the other, never nested (see `Driver::act`).
            let op = unsafe { &mut *op };
            op.item(cqe);
        },
        early: |slot, data, enough| {
            // SAFETY: the caller vouches that the slot holds an `M`.
            let op = unsafe { slot.body::<M>() };
            // SAFETY: as above. An item of a pooled operation is only handed over after its last completion, and this runs no
            // foreign code, so there is no other reference.
            let op = unsafe { &*op };
            op.early(data, enough)
        },
    };
}

/// The header of a slot.
#[repr(C)]
pub(crate) struct Slot {
    generation: Cell<u32>,
    state: Cell<State>,
    orphan: Cell<bool>,
    result: Cell<i32>,
    flags: Cell<u32>,
    behaviour: Cell<Option<&'static Behaviour>>,
    waker: Cell<Option<Waker>>,
    index: u32,
    /// Behind this header; the chunk's pointer, because a reference to the header does not reach so far.
    body: *mut (),
}

/// How much room a slot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Narrow,
    Wide,
}

impl Width {
    const COUNT: usize = Self::Wide as usize + 1;

    /// Of a slot; header and operation share its first cache line.
    const fn bytes(self) -> usize {
        64 << self as usize
    }

    /// Of the operation.
    const fn room(self) -> usize {
        self.bytes() - size_of::<Slot>()
    }

    const fn fits<T>(self) -> bool {
        size_of::<T>() <= self.room() && align_of::<T>() <= align_of::<Slot>()
    }

    /// The one for a `T`, or for its box.
    const fn of<T>() -> Self {
        if Self::Wide.fits::<T>() && !Self::Narrow.fits::<T>() { Self::Wide } else { Self::Narrow }
    }

    const fn chunk(self) -> Layout {
        match Layout::from_size_align(CHUNK * self.bytes(), 64) {
            Ok(layout) => layout,
            Err(_) => panic!("a chunk has a layout"),
        }
    }
}

const _: () = assert!(Width::Narrow.room() >= size_of::<*const Slot>(), "a free slot holds the next free one");

const fn is_inline<T>() -> bool {
    Width::Wide.fits::<T>()
}

impl Slot {
    pub(crate) fn key(&self) -> SlotKey {
        SlotKey { index: self.index, generation: self.generation.get() }
    }

    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.get()
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan.get()
    }

    pub(crate) fn behaviour(&self) -> &'static Behaviour {
        self.behaviour.get().expect("a slot in use has a behaviour")
    }

    pub(crate) fn cqe(&self) -> Cqe {
        Cqe::new(self.result.get(), self.flags.get())
    }

    /// Stores the final completion.
    pub(crate) fn settle(&self, cqe: io_uring::cqueue::Entry) {
        self.result.set(cqe.result());
        self.flags.set(cqe.flags());
        self.state.set(State::Settled);
    }

    /// Stores one of the two completions of an operation with a notification. The kernel promises no order.
    pub(crate) fn advance(&self, cqe: Cqe) -> Advance {
        let (next, stored) = match (self.state(), cqe.is_notice()) {
            (State::Told, true) => (State::Settled, self.cqe().noticed(cqe.says_copied())),
            (State::Noticed, false) => (State::Settled, cqe.noticed(self.cqe().says_copied())),
            (_, true) => (State::Noticed, cqe),
            (_, false) if cqe.more() => (State::Told, cqe),
            (_, false) => (State::Settled, cqe),
        };
        let (result, flags) = stored.parts();
        self.result.set(result);
        self.flags.set(flags);
        self.state.set(next);
        match next {
            State::Told => Advance::Told,
            State::Noticed => Advance::Noticed,
            _ => Advance::Settled,
        }
    }

    /// Settles an operation whose final completion needs no storing or never came from the kernel.
    pub(crate) fn settle_unsent(&self) {
        let (result, flags) = Cqe::CANCELED.parts();
        self.result.set(result);
        self.flags.set(flags);
        self.state.set(State::Settled);
    }

    /// The future is gone; its waker is handed out because dropping it is foreign code (I4).
    #[must_use]
    pub(crate) fn disown(&self) -> Option<Waker> {
        self.orphan.set(true);
        self.waker.take()
    }

    #[inline]
    fn has_waker(&self) -> bool {
        // SAFETY: a short read of a cell that only this thread uses.
        unsafe { (*self.waker.as_ptr()).is_some() }
    }

    /// Takes the waker of the future.
    pub(crate) fn take_waker(&self) -> Option<Waker> {
        self.waker.take()
    }

    /// Stores the first waker of the future.
    #[inline]
    pub(crate) fn put_waker(&self, waker: Waker) {
        let none = self.waker.replace(Some(waker));
        debug_assert!(none.is_none(), "a slot that was just filled has no waker");
        std::mem::forget(none);
    }

    /// Stores the waker of the future in place of the one that is there.
    pub(crate) fn set_waker(&self, waker: Waker) {
        // Dropping wakers is foreign code; nothing is borrowed here (I4).
        drop(self.waker.replace(Some(waker)));
    }

    /// Where the operation is.
    ///
    /// # Safety
    ///
    /// The slot is in use and holds a `T`.
    unsafe fn body<T>(&self) -> *mut T {
        if is_inline::<T>() {
            self.body.cast()
        } else {
            // SAFETY: `put` put the pointer of a boxed `T` here.
            unsafe { self.body.cast::<*mut T>().read() }
        }
    }

    /// Runs [`Multi::early`].
    ///
    /// # Safety
    ///
    /// The slot is in use with a pooled operation whose last completion was not handed over.
    #[inline]
    pub(crate) unsafe fn hand_early(&self, data: Pooled, enough: &mut bool) -> Option<Waker> {
        let early = self.behaviour().early;
        // SAFETY: the behaviour was stored together with the operation, so the types agree.
        unsafe { early(self, data, enough) }
    }

    /// Runs [`Multi::item`], or tells the result to an operation with a notification.
    ///
    /// # Safety
    ///
    /// The slot is in use with such an operation and no item of it is being handed over.
    pub(crate) unsafe fn hand_over(&self, cqe: Cqe) {
        let item = self.behaviour().item;
        // SAFETY: the behaviour was stored together with the operation, so the types agree.
        unsafe { item(self, cqe) };
    }
}

/// Slots of one width, side by side.
#[derive(Clone, Copy)]
struct Chunk {
    first: NonNull<Slot>,
    width: Width,
}

impl Chunk {
    /// A slot of this chunk; its header may not have been written yet.
    fn slot(self, index: usize) -> *mut Slot {
        // SAFETY: `index % CHUNK` slots of this width lie before it in the allocation.
        unsafe { self.first.byte_add(index % CHUNK * self.width.bytes()) }.as_ptr()
    }
}

/// A table of slots.
pub(crate) struct Slots {
    /// Only grows, so a slot that was found once is there until the table is dropped.
    chunks: UnsafeCell<Vec<Chunk>>,
    /// The first free slot by width; each free slot's body holds the next one.
    free: [Cell<*const Slot>; Width::COUNT],
    in_use: Cell<u32>,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { chunks: UnsafeCell::new(Vec::new()), free: [const { Cell::new(ptr::null()) }; 2], in_use: Cell::new(0) }
    }

    /// Number of operations that are owned by slots.
    pub(crate) fn in_use(&self) -> u32 {
        self.in_use.get()
    }

    /// Number of slots that exist.
    pub(crate) fn len(&self) -> u32 {
        // SAFETY: a short read of a vector that only this thread and only `grow` changes.
        let chunks = unsafe { &*self.chunks.get() };
        (chunks.len() * CHUNK) as u32
    }

    /// Puts a one-shot operation, made in place, into a free slot.
    #[inline(always)]
    pub(crate) fn insert_with<O: Op>(&self, make: impl FnOnce() -> O) -> (&Slot, *mut O) {
        self.put(make, &Single::<O>::BEHAVIOUR)
    }

    /// Puts a multishot operation into a free slot.
    pub(crate) fn insert_multi<M: Multi>(&self, op: M) -> (&Slot, *mut M) {
        self.put(|| op, &Many::<M>::BEHAVIOUR)
    }

    #[inline(always)]
    fn put<T>(&self, make: impl FnOnce() -> T, behaviour: &'static Behaviour) -> (&Slot, *mut T) {
        let free = &self.free[Width::of::<T>() as usize];
        if free.get().is_null() {
            self.grow(Width::of::<T>());
        }
        // SAFETY: the free list names slots of this table, which live as long as it.
        let slot = unsafe { &*free.get() };
        let body = slot.body;
        // SAFETY: the slot is free, so its body holds the rest of the free list.
        let rest = unsafe { body.cast::<*const Slot>().read() };
        // Taken before `make` runs: that is the caller's code, and may submit or panic.
        free.set(rest);
        let reserved = Reserved { slots: self, slot, width: Width::of::<T>() };
        let at: *mut T = if is_inline::<T>() {
            // SAFETY: the slot is ours, with room for a `T`: its width checked size and alignment.
            unsafe { body.cast::<T>().write(make()) };
            body.cast()
        } else {
            let boxed = Box::into_raw(Box::new(make()));
            // SAFETY: the slot is ours, with room for a pointer.
            unsafe { body.cast::<*mut T>().write(boxed) };
            boxed
        };
        std::mem::forget(reserved);
        self.in_use.set(self.in_use.get() + 1);
        slot.behaviour.set(Some(behaviour));
        slot.orphan.set(false);
        slot.state.set(State::Flying);
        (slot, at)
    }

    /// The slot of a key, unless it was freed since.
    pub(crate) fn get(&self, key: SlotKey) -> Option<&Slot> {
        self.at(key.index).filter(|slot| slot.generation.get() == key.generation && slot.state.get() != State::Free)
    }

    fn at(&self, index: u32) -> Option<&Slot> {
        // SAFETY: a short read of a vector that only this thread and only `grow` changes.
        let chunks = unsafe { &*self.chunks.get() };
        let chunk = *chunks.get(index as usize / CHUNK)?;
        // SAFETY: chunks live as long as the table, and only shared references to slots are ever made.
        Some(unsafe { &*chunk.slot(index as usize) })
    }

    /// Takes the operation out and frees the slot.
    ///
    /// # Safety
    ///
    /// The slot is settled, or its entry was never pushed, and holds a `T`.
    pub(crate) unsafe fn take<T>(&self, slot: &Slot) -> T {
        // SAFETY: the caller's promise.
        let at = unsafe { slot.body::<T>() };
        let op = if is_inline::<T>() {
            // SAFETY: the slot holds a `T` and is free after this, so it is read once.
            unsafe { at.read() }
        } else {
            // SAFETY: the box that `put` made; the slot is free after this, so it is taken once.
            *unsafe { Box::from_raw(at) }
        };
        slot.generation.set(slot.generation.get().wrapping_add(1));
        slot.state.set(State::Free);
        slot.behaviour.set(None);
        self.push_free(slot, Width::of::<T>());
        self.in_use.set(self.in_use.get() - 1);
        // Gone already where the completion was acted on; else dropped last, because that is foreign code (I4).
        if slot.has_waker() {
            drop(slot.waker.take());
        }
        op
    }

    /// Finishes a settled operation that nobody waits for: frees the slot, then runs the operation's own code.
    ///
    /// # Safety
    ///
    /// The slot is settled.
    pub(crate) unsafe fn finish(&self, slot: &Slot) {
        let finish = slot.behaviour().finish;
        // SAFETY: the behaviour was stored together with the operation, so the types agree.
        unsafe { finish(self, slot, slot.cqe()) };
    }

    /// Calls `f` for each slot that is in use.
    pub(crate) fn for_each_in_use(&self, mut f: impl FnMut(&Slot)) {
        for index in 0..self.len() {
            if let Some(slot) = self.at(index).filter(|slot| slot.state.get() != State::Free) {
                f(slot);
            }
        }
    }

    fn push_free(&self, slot: &Slot, width: Width) {
        let rest = self.free[width as usize].replace(slot);
        // SAFETY: the body of a free slot is ours and has room for a pointer.
        unsafe { slot.body.cast::<*const Slot>().write(rest) };
    }

    #[cold]
    fn grow(&self, width: Width) {
        // SAFETY: the layout has a size.
        let memory = unsafe { alloc(width.chunk()) };
        let Some(first) = NonNull::new(memory.cast::<Slot>()) else { handle_alloc_error(width.chunk()) };
        let chunk = Chunk { first, width };
        let index = self.len();
        // From last to first, so that the free list hands them out from first to last.
        for i in (0..CHUNK).rev() {
            let at = chunk.slot(i);
            // SAFETY: behind the header lies the room for the operation, in the same slot.
            let body = unsafe { at.add(1) }.cast();
            // SAFETY: inside the fresh allocation, to which nobody else has a pointer yet.
            unsafe { at.write(Slot::empty(index + i as u32, body)) };
            // SAFETY: written by the line above.
            self.push_free(unsafe { &*at }, width);
        }
        // SAFETY: no reference into the vector lives across this call (each is dropped before its function returns).
        unsafe { &mut *self.chunks.get() }.push(chunk);
    }
}

impl Slot {
    fn empty(index: u32, body: *mut ()) -> Self {
        Self {
            generation: Cell::new(0),
            state: Cell::new(State::Free),
            orphan: Cell::new(false),
            result: Cell::new(0),
            flags: Cell::new(0),
            behaviour: Cell::new(None),
            waker: Cell::new(None),
            index,
            body,
        }
    }
}

/// A free slot that goes back when its operation could not be made.
struct Reserved<'a> {
    slots: &'a Slots,
    slot: &'a Slot,
    width: Width,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.slots.push_free(self.slot, self.width);
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if self.in_use.get() > 0 {
            // The kernel may still write into these: leaked as a whole (I6).
            return;
        }
        for chunk in self.chunks.get_mut().drain(..) {
            // SAFETY: allocated in `grow` with this layout; free slots hold neither operations nor wakers.
            unsafe { dealloc(chunk.first.as_ptr().cast(), chunk.width.chunk()) };
        }
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Notified, WithNotice, opcode, squeue};

    const MORE: u32 = 1 << 1;
    const NOTIF: u32 = 1 << 3;
    const COPIED: i32 = i32::MIN;

    struct Zc;

    // SAFETY: no pointers.
    unsafe impl Notified for Zc {
        type Output = Cqe;
        const KIND: Kind = Kind::Other;

        fn entry(&mut self) -> squeue::Entry {
            opcode::Nop::new().build()
        }

        unsafe fn told(_: *mut Self, _: Cqe, _: bool) {}

        fn complete(self, cqe: Cqe) -> Cqe {
            cqe
        }
    }

    /// What the slot says to each completion, and what it has in the end.
    fn run(cqes: &[(i32, u32)]) -> (Vec<Advance>, Cqe) {
        let slots = Slots::new();
        let (slot, _) = slots.insert_with(|| WithNotice(Zc));
        let said = cqes.iter().map(|&(result, flags)| slot.advance(Cqe::new(result, flags))).collect();
        let cqe = slot.cqe();
        // SAFETY: settled, or never pushed at all.
        let _ = unsafe { slots.take::<WithNotice<Zc>>(slot) };
        (said, cqe)
    }

    #[test]
    fn a_notification_is_awaited_only_where_the_result_announces_it() {
        use Advance::{Noticed, Settled, Told};
        for errno in [0, -libc::EPIPE] {
            let (said, cqe) = run(&[(errno, 0)]);
            assert_eq!(said, [Settled]);
            assert_eq!(cqe, Cqe::new(errno, 0));
            let (said, cqe) = run(&[(errno, MORE), (0, NOTIF)]);
            assert_eq!(said, [Told, Settled]);
            assert!(cqe.parts().0 == errno && !cqe.was_copied());
        }
        for cqes in [[(9, MORE), (COPIED, NOTIF)], [(COPIED, NOTIF), (9, MORE)]] {
            let (said, cqe) = run(&cqes);
            assert_eq!(said, [if cqes[0].0 == 9 { Told } else { Noticed }, Settled]);
            assert!(cqe.result().unwrap() == 9 && cqe.was_copied(), "whatever the order");
        }
    }
}
