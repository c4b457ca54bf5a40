//! Signals of the process: [`ctrl_c`], [`signal`], [`SignalKind`].
//!
//! Owns one event counter per listener. The signal handler, which `signal-hook-registry` shares among everybody who has
//! an action, only adds to the counters; the ring of each listener's runtime watches its counter ([`Async`]). So no
//! thread is needed, wakers run in the run loop and never in the handler, and any number of threads and runtimes may
//! listen. Knows nothing of what a signal means.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

use futures_core::Stream;
use signal_hook_registry::SigId;

use crate::context::Proceed;
use crate::coop;
use crate::foreign::Async;
use crate::sys;

/// Which signal; from a name or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SignalKind(i32);

impl SignalKind {
    /// The signal of this number, real-time signals included. Whether it can be listened to is said by [`signal`].
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn as_raw_value(&self) -> i32 {
        self.0
    }

    /// `SIGALRM`: a timer of `alarm(2)` or `setitimer(2)` has expired.
    pub const fn alarm() -> Self {
        Self(libc::SIGALRM)
    }

    /// `SIGCHLD`: a child has ended or stopped.
    pub const fn child() -> Self {
        Self(libc::SIGCHLD)
    }

    /// `SIGHUP`: the terminal was closed, or a daemon is asked to read its configuration again.
    pub const fn hangup() -> Self {
        Self(libc::SIGHUP)
    }

    /// `SIGINT`: Ctrl-C.
    pub const fn interrupt() -> Self {
        Self(libc::SIGINT)
    }

    /// `SIGIO`: a descriptor is ready.
    pub const fn io() -> Self {
        Self(libc::SIGIO)
    }

    /// `SIGPIPE`: a write to a pipe that nobody reads.
    pub const fn pipe() -> Self {
        Self(libc::SIGPIPE)
    }

    /// `SIGQUIT`: Ctrl-\.
    pub const fn quit() -> Self {
        Self(libc::SIGQUIT)
    }

    /// `SIGTERM`: a request to end, from `kill` or a service manager.
    pub const fn terminate() -> Self {
        Self(libc::SIGTERM)
    }

    /// `SIGUSR1`.
    pub const fn user_defined1() -> Self {
        Self(libc::SIGUSR1)
    }

    /// `SIGUSR2`.
    pub const fn user_defined2() -> Self {
        Self(libc::SIGUSR2)
    }

    /// `SIGWINCH`: the terminal has another size.
    pub const fn window_change() -> Self {
        Self(libc::SIGWINCH)
    }
}

impl From<i32> for SignalKind {
    fn from(number: i32) -> Self {
        Self(number)
    }
}

impl From<SignalKind> for i32 {
    fn from(kind: SignalKind) -> Self {
        kind.0
    }
}

/// Listens to a signal from now on.
///
/// The first listener of the process installs a handler (`sigaction(2)`) **that stays**: the default action, ending the
/// process for most signals, does not come back when the last listener is dropped. Actions that other code has
/// registered go on being run. Needs no runtime; [`recv`](Signal::recv) does. Each listener holds one descriptor.
///
/// Signals of one kind that come before they are received are received as one, as the kernel itself does it. None is
/// lost between this call and the first `recv`. Each listener receives each signal, in whatever thread or runtime it is.
///
/// A child of fork(2) inherits the handler, which does nothing there; a program that it executes does not.
///
/// # Errors
///
/// `InvalidInput` for what cannot be caught (`SIGKILL`, `SIGSTOP`), must not be because the fault would only be repeated
/// (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`), or is no signal; otherwise that of `eventfd(2)`.
///
/// # Panics
///
/// In a child of fork(2).
///
/// # Examples
///
/// ```
/// use runtime_core::signal::{SignalKind, signal};
///
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut changes = signal(SignalKind::window_change())?;
/// # unsafe extern "C" { safe fn raise(signal: i32) -> i32; }
/// # raise(28);
/// changes.recv().await;
/// println!("the terminal has another size");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "sigaction")]
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    let SignalKind(number) = kind;
    if number == libc::SIGBUS || signal_hook_registry::FORBIDDEN.contains(&number) {
        let text = format!("signal {number} cannot be listened to: it cannot be caught, or would come again at once");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    assert!(sys::same_process(), "this is a child of fork(2): listen to signals in its parent, or in a new process");
    let counter = Arc::new(sys::eventfd()?);
    let bell = Arc::clone(&counter);
    let process = sys::process_word();
    let action = move || {
        // In a child of fork(2) the counter is its parent's as well.
        if sys::is_same_process(process) {
            sys::ring_eventfd(bell.as_fd());
        }
    };
    let counter = Async::new(counter)?;
    // SAFETY: the action is safe in a signal handler: a load and a write(2), whose errno the registry restores. It does
    // not panic, allocate or lock.
    let id = unsafe { signal_hook_registry::register(number, action) };
    let id = id.map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{number} is no signal that can be listened to"))
        }
        _ => error,
    })?;
    Ok(Signal { counter, proceed: Proceed::default(), kind, id })
}

/// A listener, from [`signal`]; also a `futures` `Stream`. It is `Send`.
pub struct Signal {
    counter: Async<Arc<OwnedFd>>,
    proceed: Proceed,
    kind: SignalKind,
    id: SigId,
}

impl Signal {
    /// Waits for the signal. `None` only while the runtime is closing.
    ///
    /// # Cancel safety
    ///
    /// A signal that has come is received by the next call.
    pub async fn recv(&mut self) -> Option<()> {
        poll_fn(|task| self.poll_recv(task)).await
    }

    /// Polls for the signal; for futures written by hand.
    pub fn poll_recv(&mut self, task: &mut Task<'_>) -> Poll<Option<()>> {
        coop::assert_same_process();
        loop {
            ready!(self.proceed.poll(task));
            match sys::reset_eventfd(self.counter.as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    coop::spend(0);
                    return Poll::Ready(result.ok());
                }
            }
            if ready!(self.counter.poll_readable(task)).is_err() {
                return Poll::Ready(None);
            }
        }
    }
}

impl Stream for Signal {
    type Item = ();

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<()>> {
        self.poll_recv(task)
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        // In a child of fork(2) another thread of the parent may hold the registry's lock for ever.
        if sys::same_process() {
            // Returns when no handler uses the counter any more.
            signal_hook_registry::unregister(self.id);
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Completes when Ctrl-C (`SIGINT`) comes after the first poll.
///
/// From the first poll on Ctrl-C no longer ends the process; see [`signal`]. What comes between two calls is not seen:
/// to receive several use `signal(SignalKind::interrupt())`.
///
/// # Errors
///
/// As [`signal`]; `ECANCELED` when the runtime is closing.
///
/// # Cancel safety
///
/// A signal that comes after the future was dropped is lost; keep a [`Signal`] to lose none.
///
/// # Examples
///
/// ```no_run
/// # async fn f() -> std::io::Result<()> {
/// runtime_core::signal::ctrl_c().await?;
/// println!("good bye");
/// # Ok(())
/// # }
/// ```
pub async fn ctrl_c() -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    interrupt.recv().await.ok_or_else(|| io::Error::from_raw_os_error(libc::ECANCELED))
}
