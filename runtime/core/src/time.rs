//! Timers as users see them: [`sleep`], [`timeout`], [`interval`].
//!
//! Owns the futures; the queue behind them knows no futures. Times are those of the monotonic clock, which does not
//! count time spent suspended and does not follow changes of the wall clock. A timer never fires early; it is exact to
//! the nanosecond in the queue, and in practice late by the time the kernel needs to wake the thread (some tens of
//! microseconds). No system call and no kernel timer is spent on a timer: the earliest deadline is the timeout of the
//! enter that the thread sleeps in.

mod interval;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as Task, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use crate::cell;
use crate::context::{self, Proceed};
use crate::time_queue::TimerKey;
use crate::wake::{self, RingId};

pub use interval::{Interval, MissedTickBehavior, interval, interval_at};

/// Completes once `duration` has passed since the call (not since the first poll).
///
/// A duration that reaches beyond the clock's range never completes.
///
/// # Cancel safety
///
/// Dropping it removes the timer at once.
///
/// # Panics
///
/// When polled outside a runtime, or in another runtime than before.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let start = Instant::now();
/// runtime_core::time::sleep(Duration::from_millis(5)).await;
/// assert!(start.elapsed() >= Duration::from_millis(5));
/// # });
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(after(duration))
}

/// Completes once `deadline` is reached.
///
/// # Cancel safety
///
/// Dropping it removes the timer at once.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, armed: None, proceed: Proceed::default() }
}

/// `now + duration`, saturating about thirty years ahead: the clock has no largest value to use instead.
pub(crate) fn after(duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(duration).unwrap_or(now + FAR)
}

/// The future of [`sleep`] and [`sleep_until`]. Not `Send`: its timer belongs to the thread that polled it first.
pub struct Sleep {
    deadline: Instant,
    armed: Option<Armed>,
    proceed: Proceed,
}

#[derive(Debug, Clone, Copy)]
struct Armed {
    ring: RingId,
    key: TimerKey,
    _not_send: PhantomData<*const ()>,
}

impl Sleep {
    /// When it completes.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the deadline is reached.
    pub fn is_elapsed(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Changes the deadline; also of a sleep that has completed. Who waits for it goes on waiting, for the new one.
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.deadline = deadline;
        self.proceed = Proceed::default();
        let Some(armed) = self.armed else { return };
        let moved = context::with(|cx| {
            let mut timers = cx.timers.borrow_mut();
            let waker = if cx.id() == armed.ring { timers.remove(armed.key) } else { None };
            waker.map(|waker| timers.insert(cx.clock.ns(deadline), waker))
        });
        match moved.flatten() {
            Some(key) => self.armed = Some(Armed { key, ..armed }),
            None => self.disarm(),
        }
    }

    fn disarm(&mut self) {
        let Some(armed) = self.armed.take() else { return };
        let at_home = context::with(|cx| {
            if cx.id() != armed.ring {
                return false;
            }
            let waker = cx.timers.borrow_mut().remove(armed.key);
            // Dropped with nothing borrowed (I4).
            drop(waker);
            true
        });
        if at_home != Some(true)
            && let Some(door) = wake::find(armed.ring)
        {
            door.timer(armed.key.to_bits());
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<()> {
        context::expect(|cx| {
            if let Some(armed) = self.armed {
                assert!(
                    armed.ring == cx.id(),
                    "this timer was armed in one runtime and is polled in another: await it in the `block_on` of the \
                     runtime it was first polled in"
                );
            }
            if Instant::now() >= self.deadline {
                self.disarm();
                // A loop over deadlines that have passed must let others run too.
                return self.proceed.poll(task).map(|()| cx.spend(0));
            }
            let waker = cell::home_waker(cx, task.waker());
            let mut unused = None;
            let mut timers = cx.timers.borrow_mut();
            match self.armed.and_then(|armed| timers.waker_mut(armed.key)) {
                Some(stored) => unused = Some(std::mem::replace(stored, waker)),
                None => {
                    let key = timers.insert(cx.clock.ns(self.deadline), waker);
                    self.armed = Some(Armed { ring: cx.id(), key, _not_send: PhantomData });
                }
            }
            drop(timers);
            drop(unused);
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).field("armed", &self.armed.is_some()).finish()
    }
}

/// Gives `future` at most `duration`, counted from the call.
///
/// The future is polled before the clock is asked, so one that is ready completes even when no time is left.
///
/// # Errors
///
/// [`Elapsed`] when the time is over; the future is dropped with the `Timeout`.
///
/// # Cancel safety
///
/// That of `future`: the operations of this runtime lose nothing when they are dropped.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let never = std::future::pending::<()>();
/// assert!(runtime_core::time::timeout(Duration::from_millis(1), never).await.is_err());
/// # });
/// ```
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    timeout_at(after(duration), future)
}

/// Gives `future` until `deadline`; see [`timeout`].
///
/// # Cancel safety
///
/// That of `future`.
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: sleep_until(deadline) }
}

pin_project! {
    /// The future of [`timeout`] and [`timeout_at`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        #[pin]
        sleep: Sleep,
    }
}

impl<F> Timeout<F> {
    /// The future inside.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// The future inside, without the limit.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(task) {
            return Poll::Ready(Ok(output));
        }
        this.sleep.poll(task).map(|()| Err(Elapsed(())))
    }
}

/// The time of a [`timeout`] is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(std::io::ErrorKind::TimedOut, elapsed)
    }
}
