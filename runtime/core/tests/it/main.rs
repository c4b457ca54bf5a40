//! The core as its users see it, on the real kernel. Tests that count what the process holds, or change its limits,
//! run in a process of their own (`support::in_child`).

mod alloc;
mod kit;
mod raw;
mod scene;
#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod driver;
mod driver_ops;
mod executor;
mod executor_handles;
mod executor_panics;
mod executor_two;
mod fork;
mod join_set;
mod regressions;
mod review;
mod shutdown;
mod shutdown_faults;
mod shutdown_process;
mod shutdown_threads;
mod soak;
mod spawn_on;
mod startup;
mod steady_state;
mod threads;
mod threads_end;
mod threads_place;
mod timer;
