//! The home of a reading direction: the thread whose ring receives ahead for it.
//!
//! Owns who is asked to give it up and how that ends; see the diagram in [`duplex`](super). Knows nothing of what is there.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Direction, Duplex, Side};
use crate::context;
use crate::sys;
use crate::wait::Ticket;
use crate::wake::{self, Errand, RingId};

/// What a direction knows of what is at its home: the head of it. It lives until the direction has no home any more.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) ring: RingId,
    /// Where the context of that ring keeps it.
    pub(crate) place: Cell<u32>,
}

impl Duplex {
    /// The ring and the place of the home.
    fn whereabouts(&self, side: &Side) -> Option<(RingId, u32)> {
        if !side.homed {
            return None;
        }
        // SAFETY: it lives while there is a home, which changes under the lock only, and the caller has that. Neither field
        // changes once it is a home.
        let home = unsafe { &*self.home.load(Ordering::Relaxed) };
        Some((home.ring, home.place.get()))
    }

    /// When it is the caller's turn, but the direction has its home elsewhere: holds it on behalf of that home, which the
    /// caller has to call then.
    pub(super) fn ask_home(&self, side: &mut Side, here: RingId, ticket: Option<Ticket>) -> Option<RingId> {
        if side.held {
            return None;
        }
        let (home, _) = self.whereabouts(side).filter(|(home, _)| *home != here)?;
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

    /// Asks the home of the reading direction to give it up, unless that is the ring `here`, or somebody uses it.
    pub(crate) fn send_home(self: &Arc<Self>, here: Option<RingId>) {
        let home = {
            let mut side = self.side(Direction::Read);
            let home = self.whereabouts(&side).filter(|&(home, _)| Some(home) != here && !side.held);
            if home.is_some() {
                (side.held, side.asked) = (true, true);
            }
            home
        };
        if let Some((home, _)) = home {
            self.call_home(home);
        }
    }

    /// Takes the reading direction when nobody uses or awaits it, there is no residue, and its home is this ring; what is
    /// there.
    #[inline]
    pub(crate) fn try_hold_home(&self, here: RingId) -> Option<*const Home> {
        let mut side = self.side(Direction::Read);
        if side.held || side.busy || !side.homed {
            return None;
        }
        let home = self.home.load(Ordering::Relaxed).cast_const();
        // SAFETY: as in `whereabouts`.
        let ring = unsafe { (*home).ring };
        if ring != here {
            return None;
        }
        side.held = true;
        Some(home)
    }

    /// What is at the home of the reading direction, if that is this ring.
    pub(crate) fn home(&self, here: RingId) -> Option<*const Home> {
        let side = self.side(Direction::Read);
        let (ring, _) = self.whereabouts(&side)?;
        (ring == here).then(|| self.home.load(Ordering::Relaxed).cast_const())
    }

    /// Whether the reading direction has a home, wherever.
    pub(crate) fn is_homed(&self) -> bool {
        self.side(Direction::Read).homed
    }

    /// Gives the reading direction, which the caller holds, a home.
    ///
    /// # Safety
    ///
    /// `home` lives until [`move_out`](Self::move_out).
    pub(crate) unsafe fn settle_in(&self, home: *const Home) {
        let mut side = self.side(Direction::Read);
        self.home.store(home.cast_mut(), Ordering::Relaxed);
        side.homed = true;
    }

    /// The home begins to give up the reading direction, unless somebody holds it: holds it meanwhile. Who has asked the home
    /// for that, and may not get through to it any more, holds it for the home.
    pub(crate) fn begin_move(&self) -> bool {
        let mut side = self.side(Direction::Read);
        if side.held {
            return side.asked;
        }
        (side.held, side.asked) = (true, true);
        true
    }

    /// The home has given up the reading direction and leaves this behind.
    pub(crate) fn move_out(&self, data: &[u8], errno: Option<i32>) {
        let mut side = self.side(Direction::Read);
        side.homed = false;
        self.home.store(std::ptr::null_mut(), Ordering::Relaxed);
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
        let home = {
            let side = self.side(Direction::Read);
            self.whereabouts(&side)
        };
        if let Some((ring, _)) = home {
            self.abandoned.store(true, Ordering::Relaxed);
            self.call_home(ring);
        }
    }
}

impl Errand for Duplex {
    /// At its home, asked by [`call_home`](Duplex::call_home).
    fn run(self: Arc<Self>) {
        let resident = context::with(|cx| {
            let side = self.side(Direction::Read);
            let (_, place) = self.whereabouts(&side).filter(|(ring, _)| *ring == cx.id())?;
            cx.resident(place)
        });
        if let Some(resident) = resident.flatten() {
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
