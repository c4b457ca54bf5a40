//! The driver's tools: starting the programs beside this one, reading what they print, and medians.
//!
//! It starts children, bounds them and ends them, and never touches another process.

mod child;
mod line;
mod stats;

pub use self::child::{Child, program, run, run_pinned, start, start_silent};
pub use self::line::Line;
pub use self::stats::Quartiles;
