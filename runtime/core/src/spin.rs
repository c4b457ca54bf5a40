//! Whether to look for work for a moment before the thread sleeps.
//!
//! Owns the record of recent sleeps and the decision that follows from it (ruling 20). Knows nothing of rings or system
//! calls: times, and what the looking found, are arguments.
//!
//! A sleep costs tens of microseconds on each side, so whoever is answered sooner than that is better off waiting awake.
//! Only the thread's own record says so:
//!
//! ```text
//!            most of the last eight sleeps were short            found soon: the bound doubles, up to the limit
//!   sleeps ──────────────────────────────────────────▶ spins ◀──────────────────────────────────────────────┐
//!     ▲                                                 │ └──────────────────────────────────────────────────┘
//!     │ 100 ms later, with a new record                 │ not found, or late: the bound is halved
//!     └───────────────── off ◀──────────────────────────┘ three of these in a row, or others need the core
//! ```

use std::cell::Cell;
use std::time::Duration;

/// The longest bound that makes sense: beyond it a sleep costs less than the spin.
pub(crate) const MAX: Duration = Duration::from_micros(100);
/// How long nothing is tried after it failed.
const OFF_NS: u64 = 100_000_000;
/// Failures in a row after which it is off.
const FAILURES: u8 = 3;
/// How many of the last eight sleeps have to have been short.
const MOST: u32 = 5;
/// How often the core's other users are looked at.
const WATCH_NS: u64 = 10_000_000;
/// Preemptions between two such looks that say the core is wanted.
const CROWDED: u64 = 2;

#[derive(Debug)]
pub(crate) struct Spin {
    /// 0 when it is switched off.
    limit_ns: u64,
    bound_ns: Cell<u64>,
    /// A bit for each of the last sleeps and spins, the newest lowest: it ended soon.
    record: Cell<u8>,
    failures: Cell<u8>,
    off_until_ns: Cell<u64>,
    watch_at_ns: Cell<u64>,
    preemptions: Cell<u64>,
    /// What had gone out the last time.
    answers: Cell<u64>,
}

/// What to do instead of falling asleep at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing.
    Sleep,
    /// Nothing, but [`slept`](Spin::slept) is to be told how long the sleep was.
    Measure,
    /// Look for work until this time.
    SpinUntil(u64),
}

impl Spin {
    /// `limit` is at most [`MAX`]; zero switches it off.
    pub(crate) fn new(limit: Duration) -> Self {
        let limit_ns = limit.min(MAX).as_nanos() as u64;
        Self {
            limit_ns,
            bound_ns: Cell::new(limit_ns),
            record: Cell::new(0),
            failures: Cell::new(0),
            off_until_ns: Cell::new(0),
            watch_at_ns: Cell::new(0),
            preemptions: Cell::new(0),
            answers: Cell::new(0),
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.limit_ns == 0
    }

    pub(crate) fn plan(&self, now_ns: u64) -> Plan {
        if self.is_off() || now_ns < self.off_until_ns.get() {
            Plan::Sleep
        } else if self.record.get().count_ones() >= MOST {
            Plan::SpinUntil(now_ns + self.bound_ns.get())
        } else {
            Plan::Measure
        }
    }

    /// Whether it is time to [`watch`](Self::watch).
    pub(crate) fn wants_to_watch(&self, now_ns: u64) -> bool {
        now_ns >= self.watch_at_ns.get()
    }

    /// `preemptions` is how often the thread has lost its core to others since it began; says whether the core is free
    /// enough to spin on.
    pub(crate) fn watch(&self, now_ns: u64, preemptions: u64) -> bool {
        let since = preemptions.saturating_sub(self.preemptions.replace(preemptions));
        // The first look only sets the mark, and so does one after a long time without spins.
        let due_ns = self.watch_at_ns.replace(now_ns + WATCH_NS);
        let is_current = due_ns > 0 && now_ns < due_ns + WATCH_NS;
        let is_free = !is_current || since < CROWDED;
        if !is_free {
            self.switch_off(now_ns);
        }
        is_free
    }

    /// A sleep lasted this long.
    pub(crate) fn slept(&self, lasted_ns: u64) {
        self.note(lasted_ns <= self.limit_ns);
    }

    /// Whether anything went out since the last time; `answers` changes whenever something does. What comes without having
    /// been answered waits for nobody: a sleep gathers more of it, connections of a burst for example.
    pub(crate) fn has_answered(&self, answers: u64) -> bool {
        self.answers.replace(answers) != answers
    }

    /// Work came after this time of looking for it.
    pub(crate) fn found(&self, after_ns: u64, now_ns: u64) {
        // Beyond half of the limit a sleep would have cost less.
        if after_ns > self.limit_ns / 2 {
            return self.failed(now_ns);
        }
        self.note(true);
        self.failures.set(0);
        self.bound_ns.set((self.bound_ns.get() * 2).min(self.limit_ns));
    }

    /// Nothing came.
    pub(crate) fn failed(&self, now_ns: u64) {
        self.note(false);
        self.bound_ns.set((self.bound_ns.get() / 2).max(1));
        self.failures.set(self.failures.get() + 1);
        if self.failures.get() >= FAILURES {
            self.switch_off(now_ns);
        }
    }

    fn switch_off(&self, now_ns: u64) {
        self.off_until_ns.set(now_ns + OFF_NS);
        self.bound_ns.set(self.limit_ns);
        self.record.set(0);
        self.failures.set(0);
    }

    fn note(&self, soon: bool) {
        self.record.set(self.record.get() << 1 | u8::from(soon));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: u64 = 40_000;
    const LONG: u64 = 400_000;

    fn ready() -> Spin {
        let spin = Spin::new(MAX);
        (0..MOST).for_each(|_| spin.slept(SHORT));
        spin
    }

    #[test]
    fn it_begins_when_most_sleeps_were_short_and_not_before() {
        let spin = Spin::new(MAX);
        for _ in 0..MOST {
            assert_eq!(spin.plan(1), Plan::Measure);
            spin.slept(SHORT);
        }
        assert_eq!(spin.plan(1), Plan::SpinUntil(100_001));
        (0..4).for_each(|_| spin.slept(LONG));
        assert_eq!(spin.plan(1), Plan::Measure);
    }

    #[test]
    fn long_sleeps_alone_never_start_it() {
        let spin = Spin::new(MAX);
        for now in 0..1000 {
            assert_eq!(spin.plan(now), Plan::Measure);
            spin.slept(LONG);
        }
    }

    #[test]
    fn three_failures_switch_it_off_for_a_while_and_cost_less_each() {
        let spin = ready();
        let mut spent = 0;
        let mut now = 1;
        while let Plan::SpinUntil(until) = spin.plan(now) {
            spent += until - now;
            now = until;
            spin.failed(now);
        }
        assert_eq!(spent, 100_000 + 50_000 + 25_000);
        assert_eq!(spin.plan(now), Plan::Sleep);
        assert_eq!(spin.plan(now + OFF_NS), Plan::Measure, "with a new record");
    }

    #[test]
    fn a_late_find_is_a_failure_and_a_soon_one_restores_the_bound() {
        let spin = ready();
        spin.found(60_000, 1);
        assert_eq!(spin.plan(1), Plan::SpinUntil(50_001));
        spin.found(20_000, 1);
        assert_eq!(spin.plan(1), Plan::SpinUntil(100_001));
        for _ in 0..100 {
            spin.found(20_000, 1);
            spin.found(60_000, 1);
        }
        assert_ne!(spin.plan(1), Plan::Sleep, "never three in a row");
    }

    #[test]
    fn answers_are_told_apart_from_silence() {
        let spin = ready();
        assert_eq!([1, 1, 2, 2, 0].map(|answers| spin.has_answered(answers)), [true, false, true, false, true]);
    }

    #[test]
    fn preemptions_switch_it_off() {
        let spin = ready();
        assert!(spin.wants_to_watch(1) && spin.watch(1, 500), "the first look knows no difference");
        assert!(!spin.wants_to_watch(2));
        assert!(spin.watch(WATCH_NS + 1, 501));
        assert!(!spin.watch(2 * WATCH_NS + 1, 509));
        assert_eq!(spin.plan(2 * WATCH_NS + 2), Plan::Sleep);
        assert!(spin.watch(90 * WATCH_NS, 900), "what happened while it was off says nothing");
    }

    #[test]
    fn a_limit_of_zero_is_off() {
        let spin = Spin::new(Duration::ZERO);
        (0..8).for_each(|_| spin.slept(0));
        assert_eq!(spin.plan(1), Plan::Sleep);
        assert_eq!(Spin::new(Duration::from_secs(1)).limit_ns, 100_000);
    }
}
