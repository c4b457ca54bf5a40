//! Periodic timers: [`Interval`] and what it does about missed ticks.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context as Task, Poll};
use std::time::{Duration, Instant};

use super::{Sleep, sleep_until};

/// Ticks at once and then every `period`.
///
/// # Panics
///
/// When `period` is zero.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let start = Instant::now();
/// let mut interval = runtime_core::time::interval(Duration::from_millis(2));
/// for _ in 0..4 {
///     interval.tick().await;
/// }
/// assert!(start.elapsed() >= Duration::from_millis(6));
/// # });
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Ticks at `start` and then every `period`.
///
/// # Panics
///
/// When `period` is zero.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "the period of an interval must not be zero");
    Interval { sleep: sleep_until(start), period, missed: MissedTickBehavior::default() }
}

/// What an [`Interval`] does when a tick is taken later than a period after it was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedTickBehavior {
    /// Ticks as fast as they are taken until it has caught up; the phase is kept.
    #[default]
    Burst,
    /// The next tick comes a period after the late one was taken.
    Delay,
    /// Missed ticks are left out; the next one comes at the next multiple of the period.
    Skip,
}

impl MissedTickBehavior {
    fn next(self, due: Instant, now: Instant, period: Duration) -> Instant {
        match self {
            Self::Burst => add(due, period),
            Self::Delay => add(now, period),
            Self::Skip => {
                let late = now.saturating_duration_since(due).as_nanos() % period.as_nanos();
                // `late` is below `period`, and a period that does not fit 64 bits is longer than any uptime.
                let into = Duration::from_nanos(u64::try_from(late).unwrap_or(0));
                add(now, period - into)
            }
        }
    }
}

fn add(at: Instant, period: Duration) -> Instant {
    at.checked_add(period).unwrap_or_else(|| super::after(period))
}

/// A timer that ticks again and again, from [`interval`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Waits for the next tick and returns when it was due.
    ///
    /// # Cancel safety
    ///
    /// A tick that was not returned is not used up.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|task| self.poll_tick(task)).await
    }

    /// Polls for the next tick.
    pub fn poll_tick(&mut self, task: &mut Task<'_>) -> Poll<Instant> {
        if Pin::new(&mut self.sleep).poll(task).is_pending() {
            return Poll::Pending;
        }
        let (due, now) = (self.sleep.deadline(), Instant::now());
        // A tick that is a little late, as every tick is, keeps the phase.
        let missed = now > due + Duration::from_millis(5).min(self.period);
        let next = if missed { self.missed.next(due, now, self.period) } else { add(due, self.period) };
        Pin::new(&mut self.sleep).reset(next);
        Poll::Ready(due)
    }

    /// Has the next tick come one period from now.
    pub fn reset(&mut self) {
        let next = add(Instant::now(), self.period);
        Pin::new(&mut self.sleep).reset(next);
    }

    /// Time between ticks.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// What happens to missed ticks.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets what happens to missed ticks.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks_follow_the_behaviour() {
        let due = Instant::now();
        let period = Duration::from_millis(10);
        let now = due + Duration::from_millis(34);
        let ms = |at: Instant| (at - due).as_millis();
        assert_eq!(ms(MissedTickBehavior::Burst.next(due, now, period)), 10);
        assert_eq!(ms(MissedTickBehavior::Delay.next(due, now, period)), 44);
        assert_eq!(ms(MissedTickBehavior::Skip.next(due, now, period)), 40);
    }

    #[test]
    #[should_panic(expected = "period")]
    fn a_zero_period_is_refused() {
        let _ = interval(Duration::ZERO);
    }
}
