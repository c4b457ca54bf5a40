//! The stop token: said once, heard by everybody who waits for it.
//!
//! Owns one flag and who waits for it. Knows nothing of threads or of what stopping means.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::panics::keep_first;
use crate::wait::{Ticket, WaitList};

/// A token that is stopped once and for all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    stopped: AtomicBool,
    /// Looked at by nobody once `stopped` is set, which happens under the lock.
    waiters: Mutex<WaitList>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, WaitList> {
        // Wakers are cloned, woken and dropped outside of the lock, so nothing panics under it.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

impl Stop {
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    /// Wakes everybody who waits. A waker that panics keeps no other from being woken (ruling 15).
    pub(crate) fn stop(&self) {
        let mut waiters = self.0.lock();
        if self.0.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        let wakers: Vec<Waker> = std::iter::from_fn(|| waiters.notify_one()).collect();
        drop(waiters);
        let mut first = None;
        for waker in wakers {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                keep_first(&mut first, panic);
            }
        }
        if let Some(panic) = first {
            resume_unwind(panic);
        }
    }

    pub(crate) fn stopped(&self) -> Stopped {
        Stopped { state: Arc::clone(&self.0), ticket: None }
    }
}

/// Completes once the threads of a group were told to stop; from `Handle::stopped`.
///
/// It belongs to no thread: it may be awaited anywhere, on other executors too.
///
/// # Cancel safety
///
/// Holds nothing.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Stopped {
    state: Arc<State>,
    ticket: Option<Ticket>,
}

impl Future for Stopped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.state.is_stopped() {
            return Poll::Ready(());
        }
        // Cloned before the lock is taken and dropped after it is released: wakers are foreign code (I4).
        let waker = task.waker().clone();
        let mut waiters = this.state.lock();
        if this.state.is_stopped() {
            drop(waiters);
            return Poll::Ready(());
        }
        let unused = match this.ticket {
            None => {
                this.ticket = Some(waiters.join(waker));
                None
            }
            Some(ticket) => waiters.update(ticket, waker),
        };
        drop(waiters);
        drop(unused);
        Poll::Pending
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        if self.state.is_stopped() {
            return;
        }
        let mut waiters = self.state.lock();
        // Everybody is chosen when the token stops, so there is nobody to pass a wake on to.
        let (_, unused) = waiters.leave(ticket);
        drop(waiters);
        drop(unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll(future: &mut Stopped, waker: &Waker) -> bool {
        Pin::new(future).poll(&mut Context::from_waker(waker)).is_ready()
    }

    #[test]
    fn everybody_who_waits_is_woken_once() {
        let stop = Stop::default();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut waiting: Vec<_> = (0..5).map(|_| stop.stopped()).collect();
        for future in &mut waiting {
            assert!(!poll(future, &waker));
            assert!(!poll(future, &waker));
        }
        drop(waiting.remove(2));
        stop.stop();
        stop.stop();
        assert_eq!(count.0.load(Ordering::SeqCst), 4);
        assert!(waiting.iter_mut().all(|future| poll(future, &waker)));
        assert!(poll(&mut stop.stopped(), &waker));
        drop(waiting);
        drop(waker);
        assert_eq!(Arc::strong_count(&count), 1, "no waker is kept");
    }

    #[test]
    fn one_that_comes_while_it_stops_is_not_left_behind() {
        for _ in 0..200 {
            let stop = Stop::default();
            let (late, gate) = (stop.clone(), Arc::new(std::sync::Barrier::new(2)));
            let other = Arc::clone(&gate);
            let waits = std::thread::spawn(move || {
                other.wait();
                futures::executor::block_on(late.stopped());
            });
            gate.wait();
            stop.stop();
            waits.join().unwrap();
        }
    }
}
