//! The measuring equipment: hand-written loops on one ring, and the load that drives any server.
//!
//! What the runtime is compared with must not be built from the runtime, so this crate knows nothing of it. Two
//! programs come from here:
//!
//! * `limit` holds servers without futures, tasks or allocation: the least that the kernel's side of a request costs.
//! * `load` is the other end of every socket: bounded in count and in time, and only ever to a loopback address.
//!
//! The library is what the two share, and what the package `benches` may use without `unsafe` of its own.

pub mod args;
pub mod cpu;
pub mod files;
pub mod histogram;
pub mod late_writer;
pub mod leaked;
pub mod meter;
pub mod pipes;
pub mod process;
pub mod provided;
pub mod ring;
pub mod socket;

use std::error::Error;
use std::process::ExitCode;

/// Connections that an accepting server keeps at most, and the load with it: a process has the descriptors of one slice.
pub const MOST_HELD: usize = 4096;

/// What the programs return: an error here is only ever printed.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs a program's body and prints its error as one line.
pub fn main(body: impl FnOnce(args::Args) -> Result<()>) -> ExitCode {
    match body(args::Args::from_env()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
