//! The timer queue: deadlines in order, with removal.
//!
//! Owns the heap and the timers' wakers; knows no clock (time is an argument) and no futures.
//!
//! A 4-ary heap of (deadline, timer) with the position of each timer kept beside it, so that a timer that is cancelled
//! leaves at once. Deadlines are exact nanoseconds: nothing is rounded to ticks, so nothing fires early or a tick late.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::ops::{Deref, DerefMut};
use std::task::Waker;

use slab::Slab;

const ARITY: usize = 4;

/// Names a timer of one queue; generations keep a late key from hitting a reused place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerKey {
    index: u32,
    generation: u32,
}

impl TimerKey {
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.generation)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self { index: (bits >> 32) as u32, generation: bits as u32 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    deadline: u64,
    timer: u32,
}

#[derive(Debug)]
struct Timer {
    waker: Waker,
    generation: u32,
    /// Where its entry is in the heap.
    position: u32,
}

/// A timer queue in a cell, with its earliest deadline where a turn can see it without borrowing.
#[derive(Debug)]
pub(crate) struct Timers {
    queue: RefCell<TimerQueue>,
    earliest: Cell<u64>,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self { queue: RefCell::default(), earliest: Cell::new(u64::MAX) }
    }

    /// The earliest deadline, `u64::MAX` when there is no timer.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.earliest.get()
    }

    pub(crate) fn borrow(&self) -> Ref<'_, TimerQueue> {
        self.queue.borrow()
    }

    pub(crate) fn borrow_mut(&self) -> TimersMut<'_> {
        TimersMut { queue: self.queue.borrow_mut(), earliest: &self.earliest }
    }
}

/// A borrowed timer queue; says what the earliest deadline is when it is given back.
#[derive(Debug)]
pub(crate) struct TimersMut<'a> {
    queue: RefMut<'a, TimerQueue>,
    earliest: &'a Cell<u64>,
}

impl Deref for TimersMut<'_> {
    type Target = TimerQueue;

    fn deref(&self) -> &TimerQueue {
        &self.queue
    }
}

impl DerefMut for TimersMut<'_> {
    fn deref_mut(&mut self) -> &mut TimerQueue {
        &mut self.queue
    }
}

impl Drop for TimersMut<'_> {
    fn drop(&mut self) {
        self.earliest.set(self.queue.next_deadline().unwrap_or(u64::MAX));
    }
}

#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    heap: Vec<Entry>,
    timers: Slab<Timer>,
    next_generation: u32,
}

impl TimerQueue {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.deadline)
    }

    pub(crate) fn insert(&mut self, deadline: u64, waker: Waker) -> TimerKey {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let position = self.heap.len();
        let index = self.timers.insert(Timer { waker, generation, position: position as u32 }) as u32;
        self.heap.push(Entry { deadline, timer: index });
        self.sift_up(position);
        TimerKey { index, generation }
    }

    /// The waker of a timer that has neither fired nor been removed.
    pub(crate) fn waker_mut(&mut self, key: TimerKey) -> Option<&mut Waker> {
        self.timers.get_mut(key.index as usize).filter(|t| t.generation == key.generation).map(|t| &mut t.waker)
    }

    /// Removes a timer; its waker is handed out because dropping it is foreign code.
    pub(crate) fn remove(&mut self, key: TimerKey) -> Option<Waker> {
        let timer = self.timers.get(key.index as usize).filter(|t| t.generation == key.generation)?;
        let position = timer.position as usize;
        Some(self.remove_at(position))
    }

    /// Takes the earliest timer if it is due.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Waker> {
        if self.next_deadline()? > now {
            return None;
        }
        Some(self.remove_at(0))
    }

    fn remove_at(&mut self, position: usize) -> Waker {
        let entry = self.heap.swap_remove(position);
        if position < self.heap.len() {
            // The last entry took the place: it may have to go either way.
            self.place(position, self.heap[position]);
            self.sift_down(position);
            self.sift_up(position);
        }
        self.timers.remove(entry.timer as usize).waker
    }

    fn place(&mut self, position: usize, entry: Entry) {
        self.heap[position] = entry;
        self.timers[entry.timer as usize].position = position as u32;
    }

    fn sift_up(&mut self, mut position: usize) {
        let entry = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.heap[parent].deadline <= entry.deadline {
                break;
            }
            self.place(position, self.heap[parent]);
            position = parent;
        }
        self.place(position, entry);
    }

    fn sift_down(&mut self, mut position: usize) {
        let entry = self.heap[position];
        loop {
            let first = position * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(child) = children.min_by_key(|&child| self.heap[child].deadline) else { break };
            if entry.deadline <= self.heap[child].deadline {
                break;
            }
            self.place(position, self.heap[child]);
            position = child;
        }
        self.place(position, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    struct Id(u32, AtomicU32);

    impl Wake for Id {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64),
        Remove(usize),
        Advance(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..1000u64).prop_map(Step::Insert),
            2 => (0..64usize).prop_map(Step::Remove),
            1 => (0..200u64).prop_map(Step::Advance),
        ];
        prop::collection::vec(step, 0..400)
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_map(steps in steps()) {
            let mut queue = TimerQueue::new();
            let mut model: BTreeMap<(u64, u32), TimerKey> = BTreeMap::new();
            let mut ids = Vec::new();
            let mut now = 0;
            for (n, step) in steps.into_iter().enumerate() {
                let n = n as u32;
                match step {
                    Step::Insert(after) => {
                        let id = Arc::new(Id(n, AtomicU32::new(0)));
                        let key = queue.insert(now + after, id.clone().into());
                        ids.push(id);
                        model.insert((now + after, n), key);
                    }
                    Step::Remove(i) if !model.is_empty() => {
                        let at = *model.keys().nth(i % model.len()).unwrap();
                        let key = model.remove(&at).unwrap();
                        prop_assert!(queue.remove(key).is_some());
                        prop_assert!(queue.remove(key).is_none(), "a key works once");
                        prop_assert!(queue.waker_mut(key).is_none());
                    }
                    Step::Remove(_) => {}
                    Step::Advance(by) => {
                        now += by;
                        let mut due = Vec::new();
                        while let Some(waker) = queue.pop_due(now) {
                            waker.wake();
                        }
                        for id in &ids {
                            if id.1.swap(0, Ordering::Relaxed) > 0 {
                                due.push(id.0);
                            }
                        }
                        let later = model.split_off(&(now + 1, 0));
                        let mut expected: Vec<u32> = model.keys().map(|(_, n)| *n).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(due, expected);
                        model = later;
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.next_deadline(), model.keys().next().map(|(deadline, _)| *deadline));
            }
        }
    }
}
