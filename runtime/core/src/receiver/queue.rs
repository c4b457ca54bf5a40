//! What a stream has received and nobody has taken.
//!
//! Owns pieces in their order. The first one lies inside, since a request that is answered at once is the only one.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::pooled::Pooled;

/// No piece in it is empty.
#[derive(Default)]
pub(super) struct Queue {
    first: Cell<Option<Pooled>>,
    /// Kept for its memory once there was a second.
    #[allow(clippy::box_collection, reason = "most streams never have it, and there may be many of them")]
    rest: Cell<Option<Box<VecDeque<Pooled>>>>,
    /// A bound on what is received ahead keeps it small.
    bytes: Cell<u32>,
}

impl Queue {
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get() as usize
    }

    #[inline]
    pub(super) fn push(&self, data: Pooled) {
        let bytes = self.bytes.get();
        self.bytes.set(bytes + data.len() as u32);
        if bytes == 0 {
            let none = self.first.replace(Some(data));
            debug_assert!(none.is_none(), "there were no bytes");
            std::mem::forget(none);
        } else {
            self.push_behind(data);
        }
    }

    #[cold]
    fn push_behind(&self, data: Pooled) {
        let mut rest = self.rest.take().unwrap_or_default();
        rest.push_back(data);
        self.rest.set(Some(rest));
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<Pooled> {
        let data = self.first.take()?;
        let left = self.bytes.get() - data.len() as u32;
        self.bytes.set(left);
        if left > 0 {
            self.move_up();
        }
        Some(data)
    }

    #[cold]
    fn move_up(&self) {
        let mut rest = self.rest.take();
        self.first.set(rest.as_mut().and_then(|rest| rest.pop_front()));
        self.rest.set(rest);
    }

    /// Puts what is left of the first piece back to the front.
    pub(super) fn put_back(&self, data: Pooled) {
        if data.is_empty() {
            return;
        }
        self.bytes.set(self.bytes.get() + data.len() as u32);
        if let Some(second) = self.first.replace(Some(data)) {
            let mut rest = self.rest.take().unwrap_or_default();
            rest.push_front(second);
            self.rest.set(Some(rest));
        }
    }

    /// The bytes behind the first `skip` ones, as far as one piece goes, copied: for a look that takes nothing.
    pub(super) fn peek(&self, mut skip: usize) -> Option<Vec<u8>> {
        let first = self.first.take();
        let rest = self.rest.take();
        let pieces = first.iter().chain(rest.iter().flat_map(|rest| rest.iter()));
        let mut found = None;
        for piece in pieces {
            if skip < piece.len() {
                found = Some(piece[skip..].to_vec());
                break;
            }
            skip -= piece.len();
        }
        self.first.set(first);
        self.rest.set(rest);
        found
    }

    /// Everything, in one.
    pub(super) fn drain(&self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(data) = self.pop() {
            if all.is_empty() && self.bytes() == 0 {
                return data.into_vec();
            }
            all.extend_from_slice(&data);
        }
        all
    }

    /// Gives everything back to the pool.
    pub(super) fn clear(&self) {
        self.bytes.set(0);
        drop(self.first.take());
        drop(self.rest.take());
    }
}
