//! Model checks: the runtime's own sources, compiled against loom's atomics and run through every interleaving.
//!
//! Nothing here is used by the runtime; `cargo test -p runtime-loom` runs the checks.
#![forbid(unsafe_code)]
#![cfg(test)]

mod task;
mod wake;

use std::collections::VecDeque;

use loom::sync::{Arc, Condvar, Mutex};
use wake::handshake::{Handshake, Kick, Park};

/// A door with loom's primitives: the handshake is the real one; the eventfd is a counter under a condition variable.
struct Door {
    handshake: Handshake,
    arrivals: Mutex<VecDeque<u32>>,
    eventfd: Mutex<u32>,
    rung: Condvar,
}

impl Door {
    fn new() -> Self {
        Self {
            handshake: Handshake::new(),
            arrivals: Mutex::new(VecDeque::new()),
            eventfd: Mutex::new(0),
            rung: Condvar::new(),
        }
    }

    fn send(&self, value: u32) {
        self.arrivals.lock().unwrap().push_back(value);
        if self.handshake.notify() == Kick::Sleeper {
            *self.eventfd.lock().unwrap() += 1;
            self.rung.notify_one();
        }
    }

    /// The owner: takes arrivals and sleeps in between, until `count` have come. Loom reports a deadlock if a wake is
    /// ever lost.
    fn receive(&self, count: usize) -> usize {
        let (mut got, mut seen, mut kicks) = (0, 0, 0);
        while got < count {
            if self.handshake.take() {
                got += self.arrivals.lock().unwrap().drain(..).count();
                continue;
            }
            if self.handshake.park() == Park::Stay {
                continue;
            }
            let mut counter = self.eventfd.lock().unwrap();
            while *counter == seen {
                counter = self.rung.wait(counter).unwrap();
            }
            seen = *counter;
            kicks += 1;
            drop(counter);
            self.handshake.unpark();
        }
        kicks
    }
}

#[test]
fn no_wake_is_lost_with_one_sender() {
    loom::model(|| {
        let door = Arc::new(Door::new());
        let sender = {
            let door = Arc::clone(&door);
            loom::thread::spawn(move || {
                door.send(1);
                door.send(2);
            })
        };
        let kicks = door.receive(2);
        sender.join().unwrap();
        assert!(kicks <= 2, "a sleeper is kicked at most once per arrival");
    });
}

#[test]
fn no_wake_is_lost_with_two_senders() {
    loom::model(|| {
        let door = Arc::new(Door::new());
        let senders: Vec<_> = (0..2)
            .map(|value| {
                let door = Arc::clone(&door);
                loom::thread::spawn(move || door.send(value))
            })
            .collect();
        door.receive(2);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn an_awake_owner_is_never_kicked() {
    loom::model(|| {
        let door = Arc::new(Door::new());
        let sender = {
            let door = Arc::clone(&door);
            loom::thread::spawn(move || door.send(1))
        };
        sender.join().unwrap();
        assert_eq!(door.receive(1), 0);
        assert_eq!(*door.eventfd.lock().unwrap(), 0);
    });
}
