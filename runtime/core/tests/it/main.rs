//! The core as its users see it, on the real kernel. Tests that count what the process holds, or change its limits,
//! run in a process of their own (`support::in_child`).

mod alloc;
#[path = "../support/calls.rs"]
mod calls;
mod io_script;
mod kit;
mod raw;
mod scene;
#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod chain;
mod channels;
mod driver;
mod driver_ops;
mod executor;
mod executor_handles;
mod executor_panics;
mod executor_two;
mod fixed;
mod foreign;
mod fork;
mod io_model;
mod io_read;
mod io_steady;
mod io_wrappers;
mod io_write;
mod join_set;
mod local;
mod long_polls;
mod pipe_pages;
mod races;
mod regressions;
mod shutdown;
mod shutdown_faults;
mod shutdown_process;
mod shutdown_threads;
mod signal;
mod sigpipe;
mod soak;
mod spawn_on;
mod spin;
mod startup;
mod steady_state;
mod task_cell;
mod task_local;
mod threads;
mod threads_end;
mod threads_place;
mod timer;
mod wakes;
mod workers;
mod zero_copy;
