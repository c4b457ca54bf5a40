//! The allocator of this test binary: the system's, with a count of calls and of living bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

struct Counting;

thread_local! {
    /// Of this thread only: the harness's own thread allocates when it likes.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}
static LIVE: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Allocations of this thread since it began.
pub(crate) fn calls() -> u64 {
    CALLS.get()
}

/// Bytes that are allocated now.
pub(crate) fn live() -> i64 {
    LIVE.load(Ordering::Relaxed)
}
