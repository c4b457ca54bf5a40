//! Listening on one address from each thread of a group.
//!
//! Owns the register of who listens where. Knows nothing of accepting.
//!
//! A port that several sockets share by `SO_REUSEPORT` can be joined by any process of the same user, so the first socket of
//! a group binds and listens *without* it: the kernel says then whether anybody else has the port, listening or about to.
//! Only afterwards it is opened to others, which are the group's, since everybody else's first comes without too. The
//! kernel takes a socket that was opened late into the set among which it spreads connections when the second one listens.
//!
//! ```text
//!   first:  bind, listen, SO_REUSEPORT          others:  SO_REUSEPORT, bind, listen
//! ```

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use runtime_core::exec::Handle;
use runtime_core::sys::same_process;

/// An address on which threads of a group listen.
#[derive(Debug)]
struct Entry {
    key: Key,
    /// With the port that the kernel chose.
    bound: SocketAddr,
    threads: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    group: NonZeroU64,
    asked: SocketAddr,
    only_v6: Option<bool>,
}

/// In a group few addresses are listened on, so a list will do.
static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<Entry>> {
    // Only system calls that do not block happen under the lock; a list is whole at every moment.
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a socket of the group has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Bind and listen without `SO_REUSEPORT`, then set it.
    First,
    /// Set `SO_REUSEPORT`, then bind and listen.
    Other,
}

/// A thread of a group of several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    group: NonZeroU64,
    thread: usize,
}

impl Place {
    /// That of the calling thread, if it has one.
    pub(super) fn current() -> Option<Self> {
        // In a child of fork(2) another thread of the parent may hold the lock for ever.
        let handle = Handle::try_current().ok().filter(|_| same_process())?;
        let group = handle.group()?;
        (handle.threads() > 1).then(|| Self { group, thread: handle.index() })
    }

    /// Listens beside the other threads of the group. `open` makes the socket, given the address and what it has to do,
    /// and returns it with the address that it got.
    pub(super) fn listen<S>(
        self,
        asked: SocketAddr,
        only_v6: Option<bool>,
        open: impl FnOnce(SocketAddr, Role) -> io::Result<(S, SocketAddr)>,
    ) -> io::Result<(S, Shard)> {
        let key = Key { group: self.group, asked, only_v6 };
        let mut entries = lock();
        // By the address that was asked for or, since a program may hand the port that one thread got to the others, the
        // one that came of it.
        let is_same = |entry: &Entry| {
            entry.key == key || entry.key == Key { asked: entry.key.asked, ..key } && entry.bound == asked
        };
        // Port 0 means another one each time that a thread asks.
        let fits = |entry: &Entry| is_same(entry) && (asked.port() != 0 || !entry.threads.contains(&self.thread));
        let found = entries.iter().position(fits);
        let Some(at) = found else {
            let (socket, bound) = open(asked, Role::First)?;
            entries.push(Entry { key, bound, threads: vec![self.thread] });
            return Ok((socket, Shard { key, bound, thread: self.thread }));
        };
        let entry = &mut entries[at];
        if entry.threads.contains(&self.thread) {
            const EADDRINUSE: i32 = 98;
            return Err(io::Error::from_raw_os_error(EADDRINUSE));
        }
        let (socket, _) = open(entry.bound, Role::Other)?;
        entry.threads.push(self.thread);
        Ok((socket, Shard { key: entry.key, bound: entry.bound, thread: self.thread }))
    }
}

/// One thread's part of a listening address. Dropped after its socket.
#[derive(Debug)]
pub(super) struct Shard {
    key: Key,
    bound: SocketAddr,
    thread: usize,
}

impl Drop for Shard {
    fn drop(&mut self) {
        if !same_process() {
            return;
        }
        let mut entries = lock();
        let is_mine = |entry: &Entry| entry.key == self.key && entry.bound == self.bound;
        let Some(at) = entries.iter().position(is_mine) else { return };
        entries[at].threads.retain(|&thread| thread != self.thread);
        if entries[at].threads.is_empty() {
            // In the order in which they came: ports that the kernel chose are found by it.
            entries.remove(at);
        }
    }
}
