//! Files for the `runtime` crate.
//!
//! The first operations: opening, reading and writing at offsets, closing.
#![forbid(unsafe_code)]

mod file;

pub use file::File;
