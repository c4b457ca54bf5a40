//! Says what this kernel offers, and if the runtime cannot start here, why and what helps.
//!
//! ```text
//! cargo run --release --example doctor
//! ```

fn main() -> std::process::ExitCode {
    let probe = runtime::probe();
    println!("{probe}");
    if probe.ring.is_ok() { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
