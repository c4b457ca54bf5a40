//! The least around `async-task`: a queue of runnable tasks and a loop. No I/O, no timers, no wakes from other threads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use async_task::{Runnable, Task};
use runtime_limit::Result;

use super::Host;

thread_local! {
    static QUEUE: RefCell<VecDeque<Runnable>> = const { RefCell::new(VecDeque::new()) };
}

/// The queue of this thread.
#[derive(Debug)]
pub struct Bare;

impl Host for Bare {
    type Handle<T: 'static> = Task<T>;

    fn new() -> Result<Self> {
        Ok(Self)
    }

    fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if woken.take()
                && let Poll::Ready(output) = future.as_mut().poll(&mut context)
            {
                return output;
            }
            run_queued();
        }
    }

    fn spawn<F>(future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let (runnable, task) = async_task::spawn(future, queue);
        runnable.schedule();
        task
    }
}

/// One turn: what is queued now, so that the main future is looked at between turns.
fn run_queued() {
    let queued = QUEUE.with_borrow(VecDeque::len);
    for _ in 0..queued {
        let Some(runnable) = QUEUE.with_borrow_mut(VecDeque::pop_front) else { return };
        runnable.run();
    }
}

fn queue(runnable: Runnable) {
    QUEUE.with_borrow_mut(|queue| queue.push_back(runnable));
}

struct Woken(AtomicBool);

impl Woken {
    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}
