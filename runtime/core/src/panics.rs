//! Panics that are held back until whatever must go on has gone on.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A payload of a panic that was held back.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Of several panics the first goes on.
#[cold]
pub(crate) fn keep_first(first: &mut Option<Panic>, panic: Panic) {
    match first {
        None => *first = Some(panic),
        Some(_) => drop_quietly(panic),
    }
}

/// Drops a panic payload whose own drop may panic.
pub(crate) fn drop_quietly<T>(value: T) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // A payload that panics when it is dropped is not dropped twice.
        mem::forget(again);
    }
}
