//! A thread-per-core async runtime for Linux, on io_uring.
//!
//! One ring, one run queue and one timer queue per thread. Futures may be dropped at any moment without losing a byte,
//! a connection or a file descriptor. The names are those of std and tokio.
//!
//! ```no_run
//! use runtime::net::{TcpListener, TcpStream};
//!
//! #[runtime::main]
//! async fn main() -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:8080").await?;
//!     let mut incoming = listener.incoming(); // multishot accept: one submission, many connections
//!     while let Some(stream) = incoming.next().await {
//!         runtime::spawn(echo(stream?));
//!     }
//!     Ok(())
//! }
//!
//! async fn echo(stream: TcpStream) -> std::io::Result<()> {
//!     loop {
//!         let data = stream.recv().await?; // a pooled buffer; goes back when dropped
//!         if data.is_empty() {
//!             return Ok(());
//!         }
//!         stream.write_all(data).await.0?; // buffers move in and come back in `.1`
//!     }
//! }
//! ```
//!
//! # Buffers are owned
//!
//! The kernel reads and writes buffers while the program does other things, so an operation takes its buffer by value
//! and gives it back with the result, as a [`BufResult`](io::BufResult). Anything that is an [`IoBuf`](io::IoBuf) can
//! be written, anything that is an [`IoBufMut`](io::IoBufMut) can be read into; [`slice`](io::IoBuf::slice) restricts
//! an operation to a part.
//!
//! [`recv`](net::TcpStream::recv) needs no buffer: it returns a [`Pooled`](io::Pooled), a piece of memory that the kernel
//! has picked from the runtime's pool. A thousand idle connections need no thousand buffers then.
//!
//! # Dropping a future
//!
//! is always safe, and loses nothing that belongs to a resource:
//!
//! | dropped | what happens |
//! |---|---|
//! | `accept`, `Incoming::next` | the connection stays in the listener's queue |
//! | `recv`, `RecvStream::next` | the bytes stay with the stream, also when it moves to another thread |
//! | `read`, `read_exact`, `peek` | bytes that had arrived are what the next read returns, in order |
//! | `write`, `write_all` | any part may have been sent; later writes never overtake it |
//! | `connect`, `File::open` | the socket or file is closed |
//! | `sleep`, `timeout` | the timer is removed |
//! | a [`JoinHandle`](task::JoinHandle) | the task goes on, detached |
//!
//! So `timeout(limit, stream.read(buf))` and `select!` are as safe as on tokio. A future that is *forgotten*
//! (`mem::forget`) keeps its direction of the stream busy; the memory is reclaimed when the runtime ends.
//!
//! # Time
//!
//! Timers follow the monotonic clock: they do not count time that the machine was suspended, and changes of the wall
//! clock have no effect.
//!
//! # Blocking
//!
//! A task that blocks holds up every task of its thread: use [`spawn_blocking`]. Name look-ups do so by themselves.
//!
//! # Processes
//!
//! A child of fork(2) cannot use its parent's runtime: operations panic there, and drops touch nothing but descriptors.
//! Every descriptor that the runtime makes is close-on-exec. Operations run with the credentials that the thread has
//! when they are submitted. The ring does not use a kernel polling thread (`SQPOLL`): such a thread would use up the
//! CPU quota of a container, and keep the credentials of the moment it was started.
//!
//! A thread that waits in the ring is not counted as waiting for a disk where the kernel offers that (6.15); on older
//! kernels an idle program may show up as *iowait* or I/O pressure, which means nothing.
#![forbid(unsafe_code)]

pub use runtime_core::exec::{Builder, Runtime, metrics};
pub use runtime_core::metrics::Metrics;
pub use runtime_core::probe::{Probe, probe};
pub use runtime_core::ring::StartError;
pub use runtime_core::task::{spawn, spawn_blocking};
pub use runtime_macros::{main, test};

/// TCP.
pub mod net {
    pub use runtime_net::*;
}

/// Files.
pub mod fs {
    pub use runtime_fs::*;
}

/// Pipes.
pub mod pipe {
    pub use runtime_pipe::*;
}

/// Owned buffers and their results.
pub mod io {
    pub use runtime_core::buf::{BufResult, IoBuf, IoBufMut, Slice};
    pub use runtime_core::pooled::Pooled;
}

/// Tasks.
pub mod task {
    pub use runtime_core::task::{JoinError, JoinHandle, JoinSet, YieldNow, spawn, spawn_blocking, yield_now};
}

/// Timers.
pub mod time {
    pub use runtime_core::time::{
        Elapsed, Interval, MissedTickBehavior, Sleep, Timeout, interval, interval_at, sleep, sleep_until, timeout,
        timeout_at,
    };
}

/// Operations of your own: implement [`Op`](op::Op) and [`submit`](op::submit) it.
pub mod op {
    pub use runtime_core::op::{Cqe, Kind, Multi, Op, Rung, opcode, squeue, types};
    pub use runtime_core::submit::{Standing, Submit, stand, submit};
}

#[doc(hidden)]
pub mod testing {
    pub use runtime_core::testing::*;
    pub use runtime_net::testing::*;
}

/// What the macros expand to.
#[doc(hidden)]
pub mod __private {
    use std::future::Future;

    use crate::Builder;

    /// Runs `body` on a new runtime; a runtime that cannot start is one line on standard error and exit code 1.
    pub fn run_main<F: Future>(builder: Builder, body: F) -> F::Output {
        match builder.build() {
            Ok(runtime) => runtime.block_on(body),
            Err(error) => {
                eprintln!("error: {error}");
                std::process::exit(1);
            }
        }
    }

    /// Runs `body` on a new runtime; a runtime that cannot start fails the test.
    #[track_caller]
    pub fn run_test<F: Future>(builder: Builder, body: F) -> F::Output {
        match builder.build() {
            Ok(runtime) => runtime.block_on(body),
            Err(error) => panic!("the runtime of this test cannot start: {error}"),
        }
    }
}
