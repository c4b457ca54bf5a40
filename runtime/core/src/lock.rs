//! A lock for state that one thread uses and that now and then changes hands.
//!
//! Owns one flag. Sections under it are a few instructions and never run foreign code or system calls, so whoever finds
//! it taken spins; std's mutex costs about twenty instructions more for each pair of lock and unlock (it looks for
//! poison), four times per request.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Spins before the thread gives its turn away: the owner may have been preempted.
const SPINS: u32 = 64;

#[derive(Default)]
pub(crate) struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, of which there is one at a time; so sharing the lock is sending the
// value back and forth.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        if self.taken.swap(true, Ordering::Acquire) {
            self.spin();
        }
        LockGuard { lock: self, _value: PhantomData }
    }

    #[cold]
    fn spin(&self) {
        let mut spins = 0;
        while self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            spins += 1;
            if spins % SPINS == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl<T> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
    }
}

#[derive(Debug)]
pub(crate) struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
    /// Shared between threads only if the value may be.
    _value: PhantomData<&'a mut T>,
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so nobody writes.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_count_without_losing_any() {
        let lock = Lock::<u64>::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 20_000);
    }
}
