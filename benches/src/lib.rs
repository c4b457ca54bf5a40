//! What the measuring programs share: the peers behind one trait, the executor tests, and the driver's tools.
//!
//! The programs are `ours` and `peer-*` (one server per runtime, the same commands in each), `duel` (times, in paired
//! slices) and `counts` (instructions, allocations and system calls, which do not depend on the machine's mood). The
//! README says what each figure means. Ring loops without a runtime, and the load, are in `runtime-limit`.

#![forbid(unsafe_code)]

pub mod driver;
pub mod exec;
pub mod files;
pub mod host;
pub mod pingpong;
pub mod serve;
pub mod splice;
pub mod timer;
