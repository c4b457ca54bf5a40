//! The door: the one way in from other threads.
//!
//! Owns the queue of things that arrive from elsewhere, the eventfd that ends a sleep, and the registry that finds a
//! runtime's door by its ring. Knows nothing of what the arrivals mean.

pub(crate) mod handshake;

/// The atomics of the handshake; model checks replace them.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU8, Ordering};
}

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Wake;

use handshake::{Handshake, Kick};

use crate::sys;

/// Names a ring; never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RingId(NonZeroU64);

impl RingId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroU64::new(next).expect("2^64 rings are more than a process can build"))
    }

    /// The id as a plain number, for those below who know no rings.
    pub(crate) fn number(self) -> u64 {
        self.0.get()
    }
}

/// What can arrive from elsewhere.
#[derive(Debug)]
pub(crate) enum Arrival<R> {
    /// A task that was woken, or made elsewhere.
    Task(R),
    /// An operation (its `user_data`) whose future was dropped while its runtime was not the current one.
    Orphan(u64),
    /// A timer whose future was dropped, or set anew, likewise.
    Timer(u64),
    /// Something to be done on the runtime's own thread.
    Errand(Arc<dyn Errand>),
    /// To be dropped.
    Stray(Stray),
}

/// Something that another thread asks this runtime's thread to do.
pub(crate) trait Errand: Send + Sync + std::fmt::Debug {
    /// Does it; the runtime is the current one.
    fn run(self: Arc<Self>);
}

/// A value that belongs to another thread and is on its way home, to be dropped there.
pub(crate) struct Stray {
    _value: Box<dyn Anything>,
}

trait Anything {}

impl<T> Anything for T {}

// SAFETY: nothing can be done with it but to drop it, which its runtime does, at home, or to leak it (ruling 14).
unsafe impl Send for Stray {}

impl Stray {
    pub(crate) fn new<T: 'static>(value: T) -> Self {
        Self { _value: Box::new(value) }
    }

    /// Forgets it where it must not be dropped.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

impl std::fmt::Debug for Stray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stray")
    }
}

/// A runtime's door. `R` is a reference to a task.
pub(crate) struct Door<R> {
    id: RingId,
    handshake: Handshake,
    /// `None` once the runtime is gone.
    arrivals: Mutex<Option<Vec<Arrival<R>>>>,
    /// `None` once the runtime is gone: wakers that outlive it hold no descriptor.
    eventfd: Mutex<Option<OwnedFd>>,
    /// The `block_on` future is to be polled.
    root: AtomicBool,
    /// Says whether the calling thread is running the runtime of this ring.
    is_home: fn(RingId) -> bool,
}

impl<R> std::fmt::Debug for Door<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<R> Door<R> {
    pub(crate) fn new(is_home: fn(RingId) -> bool) -> std::io::Result<Self> {
        Ok(Self {
            id: RingId::next(),
            handshake: Handshake::new(),
            arrivals: Mutex::new(Some(Vec::new())),
            eventfd: Mutex::new(Some(sys::eventfd()?)),
            root: AtomicBool::new(true),
            is_home,
        })
    }

    pub(crate) fn id(&self) -> RingId {
        self.id
    }

    /// The descriptor that ends a sleep, −1 once the door is closed.
    pub(crate) fn event_fd(&self) -> RawFd {
        self.lock_eventfd().as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    fn lock_eventfd(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        // Nothing panics while the lock is held.
        self.eventfd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn handshake(&self) -> &Handshake {
        &self.handshake
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Arrival<R>>>> {
        // Nothing panics while the lock is held, and a vector is whole at every moment anyway.
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands something in; gives it back when the runtime is gone.
    pub(crate) fn send(&self, arrival: Arrival<R>) -> Result<(), Arrival<R>> {
        // In a child of fork(2) another thread of the parent may hold the lock for ever (ruling 12).
        if !sys::same_process() {
            return Err(arrival);
        }
        match &mut *self.lock() {
            Some(arrivals) => arrivals.push(arrival),
            None => return Err(arrival),
        }
        self.notify();
        Ok(())
    }

    /// Wakes the owner without handing anything in.
    fn notify(&self) {
        if self.handshake.notify() == Kick::Sleeper
            && sys::same_process()
            && let Some(eventfd) = &*self.lock_eventfd()
        {
            sys::ring_eventfd(eventfd.as_fd());
        }
    }

    /// Takes everything that arrived.
    pub(crate) fn take(&self, into: &mut Vec<Arrival<R>>) {
        if let Some(arrivals) = &mut *self.lock() {
            // Swapped, so that both vectors keep their memory.
            std::mem::swap(arrivals, into);
        }
    }

    /// Whether the runtime is gone, so that nothing can be handed in any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_none()
    }

    /// Closes the door and returns what came last.
    pub(crate) fn close(&self) -> Vec<Arrival<R>> {
        drop(self.lock_eventfd().take());
        self.lock().take().unwrap_or_default()
    }

    /// In a child of fork(2): closes the descriptor, unless another thread of the parent was using it.
    pub(crate) fn forsake(&self) {
        if let Ok(mut eventfd) = self.eventfd.try_lock() {
            drop(eventfd.take());
        }
    }

    /// Whether the `block_on` future was woken since the last call.
    pub(crate) fn take_root(&self) -> bool {
        // A plain load first: the usual answer is no, and a swap costs a locked bus cycle.
        self.root.load(Ordering::Relaxed) && self.root.swap(false, Ordering::AcqRel)
    }

    /// Whether the `block_on` future is to be polled.
    pub(crate) fn root_is_woken(&self) -> bool {
        self.root.load(Ordering::Acquire)
    }

    /// Has the `block_on` future polled in the next turn.
    pub(crate) fn wake_root(&self) {
        self.root.store(true, Ordering::Release);
        if !(self.is_home)(self.id) {
            self.notify();
        }
    }
}

/// The door as a waker: the waker of the `block_on` future.
impl<R: Send + Sync + 'static> Wake for Door<R> {
    fn wake(self: Arc<Self>) {
        self.wake_root();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_root();
    }
}

/// Finds a door by its ring: for futures that are dropped where their runtime is not the current one.
pub(crate) trait OrphanSink: Send + Sync {
    /// Tells the runtime that the future of this operation is gone.
    fn orphan(&self, key: u64);
    /// Tells the runtime that the future of this timer is gone.
    fn timer(&self, key: u64);
    /// Has it done on the runtime's thread; a runtime that is gone does nothing.
    fn errand(&self, errand: Arc<dyn Errand>);
    /// Has the runtime drop something of its own; gives it back when the runtime is gone.
    fn stray(&self, stray: Stray) -> Result<(), Stray>;
}

impl<R: Send> OrphanSink for Door<R> {
    fn orphan(&self, key: u64) {
        // A runtime that is gone has drained its operations already.
        let _ = self.send(Arrival::Orphan(key));
    }

    fn timer(&self, key: u64) {
        let _ = self.send(Arrival::Timer(key));
    }

    fn errand(&self, errand: Arc<dyn Errand>) {
        let _ = self.send(Arrival::Errand(errand));
    }

    fn stray(&self, stray: Stray) -> Result<(), Stray> {
        match self.send(Arrival::Stray(stray)) {
            Err(Arrival::Stray(stray)) => Err(stray),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn registry() -> MutexGuard<'static, HashMap<RingId, Arc<dyn OrphanSink>>> {
    static DOORS: OnceLock<Mutex<HashMap<RingId, Arc<dyn OrphanSink>>>> = OnceLock::new();
    DOORS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a runtime findable.
pub(crate) fn register(id: RingId, door: Arc<dyn OrphanSink>) {
    registry().insert(id, door);
}

/// Makes a runtime unfindable.
pub(crate) fn unregister(id: RingId) {
    // In a child of fork(2) another thread of the parent may hold the lock for ever (ruling 12).
    if sys::same_process() {
        registry().remove(&id);
    }
}

/// The door of a ring whose runtime still exists; none in a child of fork(2), for the same reason.
pub(crate) fn find(id: RingId) -> Option<Arc<dyn OrphanSink>> {
    if sys::same_process() { registry().get(&id).cloned() } else { None }
}
