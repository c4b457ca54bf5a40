//! The core as its users see it, on the real kernel. Tests that count what the process holds, or change its limits,
//! run in a process of their own (`support::in_child`).

mod alloc;
mod raw;
#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod driver;
mod executor;
mod fork;
mod shutdown;
mod soak;
mod startup;
mod steady_state;
mod timer;
