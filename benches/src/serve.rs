//! The frame of every server: its arguments, its listener, and its end after a given number of requests.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::TcpListener;
use std::process;
use std::task::{Poll, Waker};

use runtime_limit::args::Args;
use runtime_limit::process::{exit_after, raise_open_files};
use runtime_limit::{Result, socket};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static LAST: Cell<u64> = const { Cell::new(u64::MAX) };
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

fn is_last() -> bool {
    let count = COUNT.get() + 1;
    COUNT.set(count);
    count == LAST.get()
}
