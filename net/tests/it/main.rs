//! TCP as its users see it, on the real kernel; the other side is always plain std.

#[path = "../../../runtime/core/tests/support/calls.rs"]
mod calls;
#[path = "../../../runtime/core/tests/support/mod.rs"]
mod support;

mod peer;

mod accept;
mod backlog;
mod cancel;
mod dispatch;
mod end;
mod half_closed;
mod handover;
mod handover_walk;
mod io_cancel;
mod io_copy;
mod limits;
mod moves;
mod names;
mod options;
mod order;
mod recv;
mod recv_moves;
mod recv_soak;
mod regressions;
mod resets;
mod shards;
mod stream;
mod unix;
mod vectored;
