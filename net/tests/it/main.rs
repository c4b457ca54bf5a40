//! TCP as its users see it, on the real kernel; the other side is always plain std.

#[path = "../../../runtime/core/tests/support/mod.rs"]
mod support;

mod accept;
mod cancel;
mod limits;
mod names;
mod options;
mod order;
mod stream;
