//! The module tree that the runtime's sources expect around them, with loom's atomics in it.

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU8, Ordering};
}

#[path = "../../src/wake/handshake.rs"]
pub(crate) mod handshake;
