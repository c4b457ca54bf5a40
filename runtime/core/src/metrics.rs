//! What a runtime counts about itself: [`Metrics`], and the cells behind it.
//!
//! Owns the counters; knows nothing of who counts or why.

use std::cell::Cell;

use crate::op::{Kind, Rung};

/// A picture of one runtime's counters, from [`metrics`](crate::exec::metrics).
///
/// All counts are since the runtime was built; rates are differences of two pictures.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Calls of `io_uring_enter(2)`.
    pub enters: u64,
    /// Entries handed to the kernel, cancel requests and wake polls included.
    pub submissions: u64,
    /// Completions taken from the ring.
    pub completions: u64,
    /// Completions that belonged to no living operation.
    pub stale_completions: u64,
    /// Turns of the run loop.
    pub turns: u64,
    /// Polls of tasks and of the `block_on` future.
    pub polls: u64,
    /// Stretches of polls that took longer than [`Builder::long_poll`](crate::exec::Builder::long_poll) allows; zero if
    /// that is not set.
    ///
    /// A stretch is what lies between two looks at the clock: one poll of the `block_on` future, or 1 to 32 polls of
    /// tasks within one turn. So every poll longer than the limit is in a stretch that is counted, a stretch counts once
    /// however many of its polls are long, and polls that only together exceed the limit count as well. It is time on
    /// the wall: a thread that was not given a core is as late as one that computes.
    pub long_polls: u64,
    /// Times that the thread went to sleep in the kernel.
    pub parks: u64,
    /// Times that the thread looked for work for a moment before it would have gone to sleep.
    pub spins: u64,
    /// Times that this found some.
    pub spins_won: u64,
    /// Wakes that came from other threads.
    pub foreign_wakes: u64,
    /// Operations whose future was dropped before they were over.
    pub orphans: u64,
    /// Cancel requests sent.
    pub cancels: u64,
    /// Entries that had to wait for room in the submission queue.
    pub backlogged: u64,
    /// Connections that were gone before `accept` could hand them out.
    pub accept_skipped: u64,
    /// Receives that found the pool of receive buffers empty.
    pub pool_empty: u64,
    /// Receives into memory of their own, because the pool was empty and at its bound.
    pub pool_apart: u64,
    /// Pieces of the pool that were copied, because too much of it was held.
    pub pool_copied: u64,
    /// Bytes of the pool now, held, free and lent to the kernel.
    pub pool_bytes: u64,
    /// Blocks of the pool that are used up and kept by pieces that are held, now.
    pub pool_pinned: u64,
    /// Pieces of the pool that are held, by the program or in the queue of a stream, now.
    pub pool_pieces: u64,
    /// Zero-copy sends that the kernel said it was done with.
    pub zc_notices: u64,
    /// Those among them for which it had to copy the data after all, as always on loopback; known from 6.2 on.
    pub zc_copied: u64,
    /// Operations whose slot is in use now.
    pub in_flight: u64,
    /// Tasks that are spawned and not finished now.
    pub tasks: u64,
    /// Tasks that are ready to run now.
    pub ready: u64,
    /// Timers that are armed now.
    pub timers: u64,
    ops: Vec<u64>,
}

impl Metrics {
    /// How often operations of this kind took this rung.
    pub fn ops(&self, kind: Kind, rung: Rung) -> u64 {
        self.ops.get(cell_index(kind, rung)).copied().unwrap_or(0)
    }
}

fn cell_index(kind: Kind, rung: Rung) -> usize {
    kind as usize * Rung::ALL.len() + rung as usize
}

const CELLS: usize = Kind::ALL.len() * Rung::ALL.len();

#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) enters: Counter,
    pub(crate) submissions: Counter,
    pub(crate) completions: Counter,
    pub(crate) stale_completions: Counter,
    pub(crate) turns: Counter,
    pub(crate) polls: Counter,
    pub(crate) long_polls: Counter,
    pub(crate) parks: Counter,
    pub(crate) spins: Counter,
    pub(crate) spins_won: Counter,
    pub(crate) foreign_wakes: Counter,
    pub(crate) orphans: Counter,
    pub(crate) cancels: Counter,
    pub(crate) backlogged: Counter,
    pub(crate) accept_skipped: Counter,
    pub(crate) pool_empty: Counter,
    pub(crate) pool_apart: Counter,
    pub(crate) zc_notices: Counter,
    pub(crate) zc_copied: Counter,
    ops: [Counter; CELLS],
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            enters: Counter::default(),
            submissions: Counter::default(),
            completions: Counter::default(),
            stale_completions: Counter::default(),
            turns: Counter::default(),
            polls: Counter::default(),
            long_polls: Counter::default(),
            parks: Counter::default(),
            spins: Counter::default(),
            spins_won: Counter::default(),
            foreign_wakes: Counter::default(),
            orphans: Counter::default(),
            cancels: Counter::default(),
            backlogged: Counter::default(),
            accept_skipped: Counter::default(),
            pool_empty: Counter::default(),
            pool_apart: Counter::default(),
            zc_notices: Counter::default(),
            zc_copied: Counter::default(),
            ops: [const { Counter::new() }; CELLS],
        }
    }

    pub(crate) fn op(&self, kind: Kind, rung: Rung) {
        self.ops[cell_index(kind, rung)].add(1);
    }

    /// The counters; queue depths are the caller's to fill in.
    pub(crate) fn picture(&self) -> Metrics {
        Metrics {
            enters: self.enters.get(),
            submissions: self.submissions.get(),
            completions: self.completions.get(),
            stale_completions: self.stale_completions.get(),
            turns: self.turns.get(),
            polls: self.polls.get(),
            long_polls: self.long_polls.get(),
            parks: self.parks.get(),
            spins: self.spins.get(),
            spins_won: self.spins_won.get(),
            foreign_wakes: self.foreign_wakes.get(),
            orphans: self.orphans.get(),
            cancels: self.cancels.get(),
            backlogged: self.backlogged.get(),
            accept_skipped: self.accept_skipped.get(),
            pool_empty: self.pool_empty.get(),
            pool_apart: self.pool_apart.get(),
            zc_notices: self.zc_notices.get(),
            zc_copied: self.zc_copied.get(),
            ops: self.ops.iter().map(Counter::get).collect(),
            ..Metrics::default()
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    const fn new() -> Self {
        Self(Cell::new(0))
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}
