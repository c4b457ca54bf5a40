//! Hooks for tests: small rings, failing set-up, faults in enters, the in-flight count. Not covered by semver.

use crate::exec::{Builder, Runtime};

/// A builder for a ring of exactly these sizes.
pub fn tiny(entries: u32, cq_entries: u32) -> Builder {
    let mut builder = Builder::new().entries(entries);
    builder.setup_mut().cq_entries = cq_entries;
    builder
}

/// Entries of the submission and completion queue that the kernel gave.
pub fn ring_sizes(runtime: &Runtime) -> (u32, u32) {
    runtime.context().driver.ring().borrow().sizes()
}

/// The most bounded and unbounded workers that the kernel may start for this thread.
pub fn io_workers(runtime: &Runtime) -> [u32; 2] {
    runtime.context().driver.ring().borrow().io_workers().expect("the kernel answers who asks")
}

/// Entries that wait for room in the submission queue.
pub fn backlog(runtime: &Runtime) -> usize {
    runtime.context().driver.ring().borrow().backlog_len()
}

/// The next enters of the running runtime fail with these errnos, once each, without entering.
pub fn inject_enter_faults(errnos: &[i32]) {
    crate::context::expect(|cx| cx.driver.ring().borrow_mut().inject_faults(errnos));
}

/// The next enter of the running runtime submits so many entries, as one for which the kernel is short of memory.
pub fn inject_cut(entries: i32) {
    crate::context::expect(|cx| cx.driver.ring().borrow_mut().inject_faults(&[-entries]));
}

/// Operations that are owned by slots of the running runtime now.
pub fn in_flight() -> u32 {
    crate::context::expect(|cx| cx.driver.in_flight())
}
