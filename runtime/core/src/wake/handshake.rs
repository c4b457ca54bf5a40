//! The sleep/wake handshake between a runtime's thread and everybody else.
//!
//! Owns one byte and its transitions. Knows nothing of queues or descriptors; the atomics come from the parent module,
//! so that a model checker can replace them.
//!
//! ```text
//!             notify                    notify (→ Kick::Sleeper)
//!   AWAKE ─────────────▶ NOTIFIED ◀───────────────────────────── PARKED
//!     ▲ ▲                   │                                      ▲ │
//!     │ └───────────────────┘ take / park (→ Park::Stay)           │ │ unpark
//!     └────────────────────────────── park (→ Park::Sleep) ────────┘ ▼ AWAKE
//! ```
//!
//! Who hands something in makes it visible *before* `notify`; the owner looks for it *after* `take`, `unpark` or a
//! `park` that says [`Park::Stay`]. All are read-modify-write operations on one byte with acquire and release order, so
//! one of the two always sees the other.

use super::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const PARKED: u8 = 1;
const NOTIFIED: u8 = 2;

/// What the notifier has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Kick {
    /// Nothing: the owner is awake, or somebody else has kicked it.
    Nobody,
    /// End the owner's sleep.
    Sleeper,
}

/// What the owner may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Park {
    /// Sleep; a kick will end it.
    Sleep,
    /// Look for arrivals instead.
    Stay,
}

#[derive(Debug)]
pub(crate) struct Handshake {
    state: AtomicU8,
}

impl Handshake {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(AWAKE) }
    }

    /// Called by anybody, after something was handed in.
    pub(crate) fn notify(&self) -> Kick {
        match self.state.swap(NOTIFIED, Ordering::AcqRel) {
            PARKED => Kick::Sleeper,
            _ => Kick::Nobody,
        }
    }

    /// Called by the owner: whether a [`take`](Self::take) would say yes.
    pub(crate) fn is_notified(&self) -> bool {
        self.state.load(Ordering::Relaxed) == NOTIFIED
    }

    /// Called by the owner: whether something was handed in since the last time.
    pub(crate) fn take(&self) -> bool {
        // A plain load first: the usual answer is no.
        self.is_notified() && self.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// Called by the owner before it sleeps.
    pub(crate) fn park(&self) -> Park {
        match self.state.compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Park::Sleep,
            // Left as it is: the next `take` says yes.
            Err(_) => Park::Stay,
        }
    }

    /// Called by the owner after it slept; a notification that came meanwhile stays for `take`.
    pub(crate) fn unpark(&self) {
        let _ = self.state.compare_exchange(PARKED, AWAKE, Ordering::AcqRel, Ordering::Acquire);
    }
}
