//! The wait list: FIFO waiting on shared state, where a wake that was given to somebody who left is passed on.
//!
//! Owns tickets and wakers; knows nothing of what is waited for. The caller keeps it beside the state, behind the same
//! lock, and wakes the wakers that it hands out after the lock is released (I4).
//!
//! ```text
//!            notify_one                 take
//!  waiting ─────────────▶ chosen ─────────────────▶ gone
//!     │ leave                │ leave
//!     ▼                      ▼
//!   gone                   gone, and the wake goes to the next (Left::PassOn)
//! ```

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::task::Waker;

/// A place in a wait list.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
pub struct Ticket(NonZeroU64);

/// What became of somebody who left.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
#[must_use]
pub enum Left {
    /// Nothing was given to them.
    Quietly,
    /// They had been chosen: call [`WaitList::notify_one`] for the next.
    PassOn,
}

/// A FIFO of waiters.
#[derive(Debug, Default)]
pub struct WaitList {
    next: u64,
    /// In the order of tickets, which is the order of arrival.
    waiting: VecDeque<(Ticket, Waker)>,
    chosen: Vec<Ticket>,
}

impl WaitList {
    /// An empty list; allocates nothing.
    pub const fn new() -> Self {
        Self { next: 0, waiting: VecDeque::new(), chosen: Vec::new() }
    }

    /// Whether nobody waits and nobody was chosen who has not come yet: only then may a newcomer skip the queue.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.chosen.is_empty()
    }

    /// How many wait and were not chosen.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Joins at the end.
    pub fn join(&mut self, waker: Waker) -> Ticket {
        self.next += 1;
        let ticket = Ticket(NonZeroU64::new(self.next).expect("just incremented"));
        self.waiting.push_back((ticket, waker));
        ticket
    }

    /// Replaces the waker of somebody who still waits; gives back the one that is not needed.
    pub fn update(&mut self, ticket: Ticket, waker: Waker) -> Option<Waker> {
        match self.position(ticket) {
            Some(at) => Some(std::mem::replace(&mut self.waiting[at].1, waker)),
            None => Some(waker),
        }
    }

    /// Whether this waiter was chosen.
    pub fn is_chosen(&self, ticket: Ticket) -> bool {
        self.chosen.contains(&ticket)
    }

    /// Chooses the first; the caller wakes the waker once nothing is borrowed.
    #[must_use]
    pub fn notify_one(&mut self) -> Option<Waker> {
        let (ticket, waker) = self.waiting.pop_front()?;
        self.chosen.push(ticket);
        Some(waker)
    }

    /// A chosen waiter comes for what it waited for. False when it was not chosen.
    pub fn take(&mut self, ticket: Ticket) -> bool {
        let at = self.chosen.iter().position(|&t| t == ticket);
        at.map(|at| self.chosen.remove(at)).is_some()
    }

    /// A waiter that may have been chosen has to wait on: back to where it was in the line. Gives back the waker that is not
    /// needed.
    pub fn put_back(&mut self, ticket: Ticket, waker: Waker) -> Option<Waker> {
        if !self.take(ticket) {
            return self.update(ticket, waker);
        }
        let at = self.waiting.partition_point(|(other, _)| *other < ticket);
        self.waiting.insert(at, (ticket, waker));
        None
    }

    /// A waiter gives up; its waker, if it still has one, is handed out because dropping it is foreign code.
    pub fn leave(&mut self, ticket: Ticket) -> (Left, Option<Waker>) {
        if self.take(ticket) {
            return (Left::PassOn, None);
        }
        let waker = self.position(ticket).and_then(|at| self.waiting.remove(at)).map(|(_, waker)| waker);
        (Left::Quietly, waker)
    }

    fn position(&self, ticket: Ticket) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |(t, _)| *t).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A resource with one permit, guarded by a wait list, against a model that is a plain queue.
    #[derive(Debug, Clone)]
    enum Step {
        Join,
        Release,
        Leave(usize),
        Come(usize),
        PutBack(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            Just(Step::Join),
            Just(Step::Release),
            (0..8usize).prop_map(Step::Leave),
            (0..8usize).prop_map(Step::Come),
            (0..8usize).prop_map(Step::PutBack),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn permits_are_neither_lost_nor_doubled_and_go_in_order(steps in steps()) {
            let mut list = WaitList::new();
            let mut tickets: Vec<Ticket> = Vec::new();
            // Tickets in order of arrival; the first `chosen` of the model's queue hold a permit.
            let mut model: Vec<(Ticket, bool)> = Vec::new();
            for step in steps {
                match step {
                    Step::Join => {
                        let ticket = list.join(Waker::noop().clone());
                        tickets.push(ticket);
                        model.push((ticket, false));
                    }
                    Step::Release => {
                        let expected = model.iter_mut().find(|(_, chosen)| !chosen);
                        prop_assert_eq!(list.notify_one().is_some(), expected.is_some());
                        if let Some((_, chosen)) = expected {
                            *chosen = true;
                        }
                    }
                    Step::Leave(i) if !tickets.is_empty() => {
                        let ticket = tickets.remove(i % tickets.len());
                        let at = model.iter().position(|(t, _)| *t == ticket).unwrap();
                        let (_, chosen) = model.remove(at);
                        let (left, _) = list.leave(ticket);
                        prop_assert_eq!(left, if chosen { Left::PassOn } else { Left::Quietly });
                        if left == Left::PassOn {
                            let next = model.iter_mut().find(|(_, chosen)| !chosen);
                            prop_assert_eq!(list.notify_one().is_some(), next.is_some());
                            if let Some((_, chosen)) = next {
                                *chosen = true;
                            }
                        }
                    }
                    Step::Come(i) if !tickets.is_empty() => {
                        let at = i % tickets.len();
                        let ticket = tickets[at];
                        let position = model.iter().position(|(t, _)| *t == ticket).unwrap();
                        let chosen = model[position].1;
                        prop_assert_eq!(list.is_chosen(ticket), chosen);
                        prop_assert_eq!(list.take(ticket), chosen);
                        if chosen {
                            tickets.remove(at);
                            model.remove(position);
                        }
                    }
                    Step::PutBack(i) if !tickets.is_empty() => {
                        let ticket = tickets[i % tickets.len()];
                        let _unused = list.put_back(ticket, Waker::noop().clone());
                        let position = model.iter().position(|(t, _)| *t == ticket).unwrap();
                        // It waits where it arrived, before everybody who came later.
                        model[position].1 = false;
                    }
                    Step::Leave(_) | Step::Come(_) | Step::PutBack(_) => {}
                }
                prop_assert_eq!(list.is_empty(), model.is_empty());
            }
        }
    }
}
