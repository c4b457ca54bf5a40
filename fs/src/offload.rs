//! The rung below the ring: std's own functions on the blocking pool.

pub(crate) use runtime_core::ladder::offload;
