//! The frame of every server: its arguments, its listener, and its end after a given number of requests.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::TcpListener;
use std::process;
use std::task::{Poll, Waker};

use runtime_limit::args::Args;
use runtime_limit::process::{exit_after, raise_open_files};
use runtime_limit::{MOST_HELD, Result, socket};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static LAST: Cell<u64> = const { Cell::new(u64::MAX) };
    static ACCEPTING: Cell<u64> = const { Cell::new(0) };
    static WAITING: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// Takes `port=` and listens there; says so once it does.
///
/// # Errors
/// The port is taken.
pub fn listen(args: &mut Args) -> Result<TcpListener> {
    let listener = socket::listen(args.value("port", 0)?)?;
    ready(listener.local_addr()?.port());
    Ok(listener)
}

/// Tells the driver where the server listens.
pub fn ready(port: u16) {
    println!("READY port={port}");
}

/// Takes `secs=`, the bound on the life of this process.
///
/// # Errors
/// The value cannot be parsed, or the limits of the process cannot be set.
pub fn bounds(args: &mut Args) -> Result<()> {
    exit_after(args.value("secs", 600)?);
    Ok(raise_open_files()?)
}

/// Takes `requests=` or `conns=`: what this thread counts until it ends.
///
/// # Errors
/// The value cannot be parsed.
pub fn expect(args: &mut Args, unit: &str) -> Result<()> {
    LAST.set(args.value(unit, u64::MAX)?);
    Ok(())
}

/// Counts one request or connection; ends the process after the last one. For peers.
#[inline]
pub fn count_or_exit(unit: &str) {
    if is_last() {
        println!("COUNTS {unit}={}", COUNT.get());
        process::exit(0);
    }
}

/// Counts one request or connection; wakes [`last_counted`] after the last one.
#[inline]
pub fn count() {
    if is_last()
        && let Some(waker) = WAITING.take()
    {
        waker.wake();
    }
}

/// Waits until all were counted, for a server that comes to an orderly end, and returns their number.
pub async fn last_counted() -> u64 {
    poll_fn(|cx| {
        if COUNT.get() >= LAST.get() {
            return Poll::Ready(COUNT.get());
        }
        WAITING.replace(Some(cx.waker().clone()));
        Poll::Pending
    })
    .await
}

/// Accepted connections: closed at once, or kept with `hold=N`, so that accepting is measured without closing.
///
/// The next one after N is the load's word that its slice is accounted for, and all are closed then.
#[derive(Debug)]
pub struct Held<T> {
    sockets: Vec<T>,
    most: usize,
    enters_at_first: u64,
}

impl<T> Held<T> {
    /// Takes `hold=`.
    ///
    /// # Errors
    /// The value cannot be parsed, or is more than a process should hold.
    pub fn new(args: &mut Args) -> Result<Self> {
        let most = args.at_most("hold", 0, MOST_HELD)?;
        Ok(Self { sockets: Vec::with_capacity(most + 1), most, enters_at_first: 0 })
    }

    /// Keeps or drops it, and drops all when they are more than `hold=`.
    #[inline]
    pub fn keep(&mut self, socket: T) {
        self.keep_counting(socket, || 0);
    }

    /// The same, and adds to [`accepting_enters`] what `enters` says that has come between the first and the last.
    #[inline]
    pub fn keep_counting(&mut self, socket: T, enters: impl Fn() -> u64) {
        if self.most == 0 {
            return drop(socket);
        }
        if self.sockets.is_empty() {
            self.enters_at_first = enters();
        }
        self.sockets.push(socket);
        if self.sockets.len() > self.most {
            // Without the enter that brought the first, and with the one for the last, which is no part of the slice.
            ACCEPTING.set(ACCEPTING.get() + enters() - self.enters_at_first);
            self.sockets.clear();
        }
    }
}

/// Enters for all connections that were held, closing not among them.
#[must_use]
pub fn accepting_enters() -> u64 {
    ACCEPTING.get()
}

fn is_last() -> bool {
    let count = COUNT.get() + 1;
    COUNT.set(count);
    count == LAST.get()
}
