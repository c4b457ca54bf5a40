//! The word that a task's home, its handle and its wakers share, against every interleaving.
//!
//! What the word guards (the place of the handle's waker, the output, the cell itself) is a `loom` cell that nobody may
//! touch at the same time as somebody else; loom reports it when two do.

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicUsize, Ordering, fence};
}

#[path = "../../src/run_queue/state.rs"]
mod state;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use state::{Dropped, Outcome, State};

/// A task cell without a task.
struct Task {
    state: State,
    awaiter: UnsafeCell<Option<u32>>,
    output: UnsafeCell<Option<u32>>,
    /// Touched by whoever frees the cell.
    memory: UnsafeCell<()>,
    frees: AtomicUsize,
    wakes: AtomicUsize,
    drops: AtomicUsize,
}

impl Task {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: State::new(),
            awaiter: UnsafeCell::new(None),
            output: UnsafeCell::new(None),
            memory: UnsafeCell::new(()),
            frees: AtomicUsize::new(0),
            wakes: AtomicUsize::new(0),
            drops: AtomicUsize::new(0),
        })
    }

    fn touch(&self) {
        self.memory.with(|_| ());
    }

    fn drop_reference(&self) {
        self.touch();
        if self.state.drop_reference() == Dropped::Last {
            self.memory.with_mut(|_| ());
            self.frees.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Home: the future completes.
    fn finish(&self) {
        self.output.with_mut(|_| ());
        let found = self.state.finish(false);
        if !found.handle {
            self.drop_output();
        }
        if found.waits {
            self.awaiter.with_mut(|_| ());
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }
        self.drop_reference();
    }

    fn drop_output(&self) {
        self.output.with_mut(|_| ());
        self.drops.fetch_add(1, Ordering::Relaxed);
    }

    /// The handle's poll; says whether the output was taken.
    fn poll(&self) -> bool {
        self.touch();
        if self.state.take_place_back() != Outcome::Lives {
            self.drop_output();
            return true;
        }
        self.awaiter.with_mut(|_| ());
        if self.state.wait() != Outcome::Lives {
            self.awaiter.with_mut(|_| ());
            self.drop_output();
            return true;
        }
        false
    }

    /// The handle goes without the output.
    fn leave(&self) {
        match self.state.leave() {
            Outcome::Lives => self.awaiter.with_mut(|_| ()),
            Outcome::Output => self.drop_output(),
            Outcome::Cancelled => unreachable!("nobody cancels"),
        }
        self.drop_reference();
    }

    fn assert_over(&self) {
        assert_eq!(self.frees.load(Ordering::Relaxed), 1, "the cell is freed once");
        assert_eq!(self.drops.load(Ordering::Relaxed), 1, "the output is taken or dropped once");
    }
}

#[test]
fn a_handle_that_polls_gets_the_output_or_a_wake() {
    loom::model(|| {
        let task = Task::new();
        let home = {
            let task = Arc::clone(&task);
            thread::spawn(move || task.finish())
        };
        let mut taken = task.poll();
        let polled_again = !taken && task.poll();
        taken |= polled_again;
        home.join().unwrap();
        assert_eq!(task.state.outcome(), Outcome::Output);
        if !taken {
            assert_eq!(task.wakes.load(Ordering::Relaxed), 1, "whoever waits is woken");
            assert!(task.poll());
        }
        task.drop_reference();
        task.assert_over();
    });
}

#[test]
fn a_handle_may_go_at_any_moment() {
    for polls in 0..2 {
        loom::model(move || {
            let task = Task::new();
            let home = {
                let task = Arc::clone(&task);
                thread::spawn(move || task.finish())
            };
            let taken = (0..polls).any(|_| task.poll());
            if taken {
                task.drop_reference()
            } else {
                task.leave()
            }
            home.join().unwrap();
            task.assert_over();
        });
    }
}

#[test]
fn a_poll_sees_what_every_foreign_waker_wrote() {
    // Every interleaving of three threads with up to two preemptions; without a bound it takes hours.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let task = Task::new();
        // The handle is not part of this.
        task.leave();
        let (written, arrivals) = (Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]), Arc::new(Mutex::new(0)));
        let wakers: Vec<_> = (0..2)
            .map(|n| {
                task.state.add_reference();
                let (task, written, arrivals) = (Arc::clone(&task), Arc::clone(&written), Arc::clone(&arrivals));
                thread::spawn(move || {
                    written[n].store(1, Ordering::Relaxed);
                    if task.state.begin_arrival() {
                        *arrivals.lock().unwrap() += 1;
                    }
                    task.drop_reference();
                })
            })
            .collect();
        let mut seen = [0; 2];
        let mut turn = || {
            let came = std::mem::take(&mut *arrivals.lock().unwrap());
            for _ in 0..came {
                task.state.arrived();
                // The poll.
                seen = [0, 1].map(|n| written[n].load(Ordering::Relaxed));
                task.drop_reference();
            }
        };
        turn();
        for waker in wakers {
            waker.join().unwrap();
        }
        turn();
        assert_eq!(seen, [1, 1], "the last poll sees both");
        task.finish();
        task.assert_over();
    });
}

#[test]
fn an_abort_is_told_once_and_never_after_the_end() {
    loom::model(|| {
        let task = Task::new();
        task.state.add_reference();
        let stopper = {
            let task = Arc::clone(&task);
            thread::spawn(move || {
                task.state.abort();
                assert!(!task.state.abort(), "told once");
                task.drop_reference();
            })
        };
        task.finish();
        assert!(task.poll());
        task.drop_reference();
        stopper.join().unwrap();
        assert!(task.state.is_aborted());
        task.assert_over();
    });
}
