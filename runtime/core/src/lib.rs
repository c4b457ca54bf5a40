//! The machine inside the `runtime` crate: ring, slots, executor, timers, and one file per operation.
//!
//! Use the `runtime` crate; this one is its implementation and follows its version.
//!
//! # Layers
//!
//! A file imports only from lower layers; a test keeps it so.
//!
//! | layer | files | what |
//! |---|---|---|
//! | L0 | `buf` `cpus` `fd` `lock` `sys` | memory, CPUs, descriptors, system calls |
//! | L1 | `pooled` `gift` | received bytes in memory that the kernel picks; pages that a pipe keeps |
//! | L2 | `op` | one file per operation |
//! | L3 | `ring` `slot` `wake` `wait` `spin` `time_queue` `metrics` `pool` | the parts, none of which knows another |
//! | L4 | `driver` `run_queue` | ring and slots together; tasks as the loop sees them |
//! | L5 | `crew` | the threads that belong together, and their stop token |
//! | L6 | `context` | one of each, and the thread's pointer to it |
//! | L7 | `cell` | tasks: a future, its output and who waits for it |
//! | L8 | `submit` `duplex` `open_file` `task` `time` `coop` `local` `local_key` `fixed` | futures |
//! | L9 | `receiver` `ends` | standing receives; what can be spliced |
//! | L10 | `exec` `ladder` `probe` `io` `foreign` | the run loop, threads, shutdown, reports; the arm rung; traits and what is built on them; descriptors of others |
//! | L11 | `signal` `testing` | signals; hooks for tests |
//!
//! # Invariants
//!
//! Cited by number in `SAFETY` comments.
//!
//! - **I1 Pinned.** An op does not move between `entry` and its final completion.
//! - **I2 Owned.** In that time the slot owns the op: buffer, descriptor, addresses. A future holds a key only.
//! - **I3 Pushed is pushed.** What can fail comes first; after the push only a completion frees the slot.
//! - **I4 No foreign code under a borrow.** Wakers, `complete`, buffer methods and drops run when nothing is borrowed.
//! - **I5 Complete always runs**, for orphans too; a descriptor made by the kernel is an owned value at once.
//! - **I6 Shutdown drains.** Tasks drop first, then everything in flight is cancelled and reaped, then the ring goes.
//!   What does not end within the limit is leaked, never freed.
//! - **I7 One `thread_local`**, one door between threads.
//! - **I8 No reference covers bytes in flight.** They lie behind raw pointers in slots.

#[cfg(not(target_os = "linux"))]
compile_error!("the runtime crate is built on io_uring, which only Linux has");

#[cfg(all(target_os = "linux", not(target_pointer_width = "64")))]
compile_error!("the runtime crate supports 64-bit Linux only");

pub mod buf;
mod cpus;
pub mod fd;
mod lock;
mod panics;
#[doc(hidden)]
pub mod sys;

pub mod gift;
pub mod pooled;

pub mod op;

pub mod metrics;
mod pool;
pub mod ring;
mod slot;
mod spin;
mod time_queue;
pub mod wait;
mod wake;

mod driver;
mod run_queue;

mod crew;

mod context;

mod cell;

pub mod coop;
pub mod duplex;
pub mod fixed;
pub mod local;
pub mod local_key;
pub mod open_file;
pub mod submit;
pub mod task;
pub mod time;

pub mod ends;
pub mod receiver;

pub mod exec;
pub mod foreign;
pub mod io;
pub mod ladder;
pub mod probe;
pub mod signal;
#[doc(hidden)]
pub mod testing;
