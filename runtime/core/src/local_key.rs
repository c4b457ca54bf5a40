//! Values that belong to a task: [`LocalKey`], [`task_local!`](macro@crate::task_local).
//!
//! Owns the exchange of a value between a future and the place where [`LocalKey::with`] finds it: there while the future
//! is polled or dropped, with the future otherwise. Knows nothing of tasks or the runtime; the place is a thread-local
//! that the macro makes in the user's crate.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context as Task, Poll};
use std::thread;

use pin_project_lite::pin_project;

/// Declares keys of task-local values: statics of the type [`LocalKey`](crate::local_key::LocalKey).
///
/// ```
/// runtime_core::task_local! {
///     /// Who asked.
///     pub static USER: String;
///     static REQUEST: u64;
/// }
///
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let text = USER.scope("ada".to_owned(), REQUEST.scope(7, async {
///     format!("request {} of {}", REQUEST.get(), USER.with(|user| user.to_uppercase()))
/// }));
/// assert_eq!(text.await, "request 7 of ADA");
/// # });
/// ```
#[macro_export]
macro_rules! task_local {
    ($($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty);* $(;)?) => {
        $(
            $(#[$attr])*
            $vis static $name: $crate::local_key::LocalKey<$t> = {
                ::std::thread_local! {
                    static PLACE: ::std::cell::RefCell<::std::option::Option<$t>> =
                        const { ::std::cell::RefCell::new(::std::option::Option::None) };
                }
                $crate::local_key::LocalKey::__new(&PLACE)
            };
        )*
    };
}

/// The key of a task-local value, made by [`task_local!`](macro@crate::task_local).
///
/// A value is set for a future with [`scope`](Self::scope) and read in it with [`with`](Self::with). Tasks that the
/// future spawns do not inherit it.
pub struct LocalKey<T: 'static> {
    place: &'static thread::LocalKey<RefCell<Option<T>>>,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn __new(place: &'static thread::LocalKey<RefCell<Option<T>>>) -> Self {
        Self { place }
    }

    /// Runs a future with the key set to `value`. In a scope of the same key it hides the outer value.
    ///
    /// # Cancel safety
    ///
    /// That of the future. The value is there while the future is dropped, and is dropped after it.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> TaskLocalFuture<T, F> {
        TaskLocalFuture { key: self, value: Some(value), future: Some(future) }
    }

    /// Runs a closure with the key set to `value`.
    ///
    /// # Panics
    ///
    /// When called inside of [`with`](Self::with) of the same key; while the thread ends.
    #[track_caller]
    pub fn sync_scope<R>(&'static self, value: T, f: impl FnOnce() -> R) -> R {
        let mut value = Some(value);
        match self.exchange(&mut value, f) {
            Ok(result) => result,
            Err(refused) => refused.panic(),
        }
    }

    /// Runs a closure with the value.
    ///
    /// # Panics
    ///
    /// When the key is not set here; see [`try_with`](Self::try_with).
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        match self.try_with(f) {
            Ok(result) => result,
            Err(AccessError { .. }) => {
                panic!("this task-local value is not set here: run the future inside `KEY.scope(value, future)`")
            }
        }
    }

    /// Runs a closure with the value.
    ///
    /// # Errors
    ///
    /// When the key is not set here, or the thread ends.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let found = self.place.try_with(|place| Some(f(place.try_borrow().ok()?.as_ref()?)));
        found.ok().flatten().ok_or(AccessError { _private: () })
    }

    /// A clone of the value.
    ///
    /// # Panics
    ///
    /// When the key is not set here.
    #[track_caller]
    pub fn get(&'static self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// A clone of the value.
    ///
    /// # Errors
    ///
    /// When the key is not set here, or the thread ends.
    pub fn try_get(&'static self) -> Result<T, AccessError>
    where
        T: Clone,
    {
        self.try_with(T::clone)
    }

    /// Runs a closure while `value` and what lies in the place are exchanged; they are put back whatever happens.
    fn exchange<R>(&'static self, value: &mut Option<T>, f: impl FnOnce() -> R) -> Result<R, Refused> {
        self.swap(value)?;
        let _back = PutBack { key: self, value };
        Ok(f())
    }

    fn swap(&'static self, value: &mut Option<T>) -> Result<(), Refused> {
        let swapped = self.place.try_with(|place| match place.try_borrow_mut() {
            Ok(mut there) => {
                mem::swap(&mut *there, value);
                Ok(())
            }
            Err(_) => Err(Refused::Borrowed),
        });
        swapped.unwrap_or(Err(Refused::ThreadEnds))
    }
}

impl<T: 'static> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalKey")
    }
}

/// Why a value cannot be set.
enum Refused {
    Borrowed,
    ThreadEnds,
}

impl Refused {
    #[cold]
    #[track_caller]
    fn panic(self) -> ! {
        match self {
            Self::Borrowed => panic!("a task-local value cannot be set inside of `with` of the same key"),
            Self::ThreadEnds => panic!("a task-local value cannot be set while its thread ends"),
        }
    }
}

struct PutBack<'a, T: 'static> {
    key: &'static LocalKey<T>,
    value: &'a mut Option<T>,
}

impl<T: 'static> Drop for PutBack<'_, T> {
    fn drop(&mut self) {
        // Cannot be refused: whoever borrows the place inside has given it back by now.
        let _ = self.key.swap(self.value);
    }
}

pin_project! {
    /// A future with a task-local value; from [`LocalKey::scope`].
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct TaskLocalFuture<T: 'static, F> {
        key: &'static LocalKey<T>,
        value: Option<T>,
        // Dropped before the value, with the value in its place.
        #[pin]
        future: Option<F>,
    }

    impl<T: 'static, F> PinnedDrop for TaskLocalFuture<T, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.future.is_none() {
                return;
            }
            // Where the value cannot be set the future is dropped all the same, a moment later.
            let _ = this.key.exchange(this.value, || this.future.set(None));
        }
    }
}

impl<T: 'static, F> TaskLocalFuture<T, F> {
    /// Takes the value out, which the future then does without; `None` when it was taken.
    pub fn take_value(self: Pin<&mut Self>) -> Option<T> {
        self.project().value.take()
    }
}

impl<T: 'static, F: Future> Future for TaskLocalFuture<T, F> {
    type Output = F::Output;

    #[track_caller]
    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let polled = this.key.exchange(this.value, || {
            let future = this.future.as_mut().as_pin_mut();
            let polled = future.expect("a future must not be polled after it completed").poll(task);
            if polled.is_ready() {
                // Now, while the value is there for its destructors.
                this.future.set(None);
            }
            polled
        });
        match polled {
            Ok(polled) => polled,
            Err(refused) => refused.panic(),
        }
    }
}

impl<T: fmt::Debug, F> fmt::Debug for TaskLocalFuture<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskLocalFuture").field("value", &self.value).finish_non_exhaustive()
    }
}

/// The key is not set where it was asked for; from [`LocalKey::try_with`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessError {
    _private: (),
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task-local value is not set here")
    }
}

impl Error for AccessError {}
