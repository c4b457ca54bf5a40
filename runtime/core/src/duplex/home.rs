//! The home of a reading direction: the thread whose ring receives ahead for it.
//!
//! Owns who is asked to give it up and how that ends; see the diagram in [`duplex`](super). Knows nothing of what is there.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Direction, Duplex, Side};
use crate::context;
use crate::sys;
use crate::wait::Ticket;
use crate::wake::{self, Errand, RingId};

impl Duplex {
    /// When it is the caller's turn, but the direction has its home elsewhere: holds it on behalf of that home, which the
    /// caller has to call then.
    pub(super) fn ask_home(&self, side: &mut Side, here: RingId, ticket: Option<Ticket>) -> Option<RingId> {
        if !side.homed || side.held {
            return None;
        }
        let home = RingId::from_bits(self.home_ring.load(Ordering::Relaxed)).filter(|home| *home != here)?;
        let is_next = match ticket {
            None => side.nobody_waits(),
            Some(ticket) => side.rare().waiters.is_chosen(ticket),
        };
        if !is_next {
            return None;
        }
        (side.held, side.asked) = (true, true);
        Some(home)
    }

    /// Asks the thread of this ring to give up what it has received ahead. One that is gone has done so already.
    #[cold]
    pub(super) fn call_home(self: &Arc<Self>, home: RingId) {
        if !sys::same_process() {
            return;
        }
        let errand = Arc::clone(self);
        if context::is_current(home) {
            errand.run();
        } else if let Some(door) = wake::find(home) {
            door.errand(errand);
        }
    }

    /// Takes the reading direction when nobody uses or awaits it, there is no residue, and its home is this ring; what is
    /// there.
    #[inline]
    pub(crate) fn try_hold_home(&self, here: RingId) -> Option<*const ()> {
        let mut side = self.side(Direction::Read);
        if side.held || side.busy || !side.homed || self.home_ring.load(Ordering::Relaxed) != here.bits() {
            return None;
        }
        side.held = true;
        Some(self.home_at.load(Ordering::Relaxed))
    }

    /// What is at the home of the reading direction, if that is this ring.
    pub(crate) fn home(&self, here: RingId) -> Option<*const ()> {
        let side = self.side(Direction::Read);
        let is_here = side.homed && self.home_ring.load(Ordering::Relaxed) == here.bits();
        is_here.then(|| self.home_at.load(Ordering::Relaxed).cast_const())
    }

    /// Gives the reading direction, which the caller holds, a home.
    pub(crate) fn settle_in(&self, home: RingId, place: u32, at: *const ()) {
        let mut side = self.side(Direction::Read);
        self.home_place.store(place, Ordering::Relaxed);
        self.home_ring.store(home.bits(), Ordering::Relaxed);
        self.home_at.store(at.cast_mut(), Ordering::Relaxed);
        side.homed = true;
    }

    /// The home begins to give up the reading direction, unless somebody holds it: holds it meanwhile.
    pub(crate) fn begin_move(&self) -> bool {
        let mut side = self.side(Direction::Read);
        if side.held {
            return false;
        }
        (side.held, side.asked) = (true, true);
        true
    }

    /// The home has given up the reading direction and leaves this behind.
    pub(crate) fn move_out(&self, data: &[u8], errno: Option<i32>) {
        let mut side = self.side(Direction::Read);
        side.homed = false;
        self.home_ring.store(0, Ordering::Relaxed);
        if !data.is_empty() || errno.is_some() {
            side.busy = true;
            let residue = &mut side.rare().residue;
            residue.data.extend_from_slice(data);
            residue.errno = residue.errno.or(errno);
        }
        let asked = std::mem::take(&mut side.asked);
        drop(side);
        if asked {
            self.release(Direction::Read);
        }
    }

    /// Whether nobody can read any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// The last handle that can read is gone: its home, if it has one, lets go of the descriptor.
    #[inline]
    fn abandon(self: &Arc<Self>) {
        let side = self.side(Direction::Read);
        if side.homed {
            let home = RingId::from_bits(self.home_ring.load(Ordering::Relaxed));
            drop(side);
            self.abandoned.store(true, Ordering::Relaxed);
            if let Some(home) = home {
                self.call_home(home);
            }
        }
    }
}

impl Errand for Duplex {
    /// At its home, asked by [`call_home`](Duplex::call_home).
    fn run(self: Arc<Self>) {
        let resident = context::with(|cx| {
            let side = self.side(Direction::Read);
            let is_here = side.homed && self.home_ring.load(Ordering::Relaxed) == cx.id().bits();
            is_here.then(|| cx.resident(self.home_place.load(Ordering::Relaxed)))
        });
        if let Some(resident) = resident.flatten().flatten() {
            resident.leave();
        }
    }
}

/// The one handle of a [`Duplex`] through which it can be read. Dropping it ends what receives ahead for it.
#[derive(Debug)]
pub struct Reader(Arc<Duplex>);

impl Reader {
    /// There must be no other.
    pub fn new(duplex: Arc<Duplex>) -> Self {
        Self(duplex)
    }

    /// For another handle that can read.
    pub fn into_inner(self) -> Arc<Duplex> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: read once, from a value that is neither used nor dropped afterwards.
        unsafe { std::ptr::read(&raw const this.0) }
    }
}

impl Deref for Reader {
    type Target = Arc<Duplex>;

    #[inline]
    fn deref(&self) -> &Arc<Duplex> {
        &self.0
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
