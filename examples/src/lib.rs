//! The examples are the files beside this folder: `cargo run --release --example NAME`.
#![forbid(unsafe_code)]
