//! A thread-per-core async runtime for Linux, on io_uring.
//!
//! One ring, one run queue and one timer queue per thread. Futures may be dropped at any moment without losing a byte,
//! a connection or a file descriptor. The names are those of std and tokio.
//!
//! ```no_run
//! use runtime::net::{TcpListener, TcpStream};
//!
//! #[runtime::main(threads = "auto")] // the body runs once per thread, each with its own ring
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
//! # Sources and sinks
//!
//! Code that is to work with any stream takes [`AsyncRead`](io::AsyncRead) and [`AsyncWrite`](io::AsyncWrite), which
//! sockets, pipes and memory implement; `use runtime::io::prelude::*` brings all their methods. [`BufReader`](io::BufReader)
//! reads ahead and finds lines, [`BufWriter`](io::BufWriter) gathers small writes, [`copy`](io::copy) moves everything.
//! The streams' own methods take `&self`, the traits' take `&mut self`; `&TcpStream` has the traits too, so one stream can
//! be read in one place and written in another.
//!
//! ```
//! use runtime::io::{AsyncBufReadExt, AsyncWrite, BufReader};
//! use runtime::net::{TcpListener, TcpStream};
//!
//! # fn main() -> std::io::Result<()> {
//! # runtime::Runtime::new()?.block_on(async {
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let mut client = TcpStream::connect(listener.local_addr()?).await?;
//! let (server, _) = listener.accept().await?;
//! AsyncWrite::write_all(&mut client, "one\r\ntwo\n").await.0?;
//! drop(client);
//! let mut lines = BufReader::new(&server).lines().max_len(1000); // an endless line is an error, not all memory
//! while let Some(line) = lines.next().await {
//!     println!("{}", line?);
//! }
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Dropping a future
//!
//! is always safe, and loses nothing that belongs to a resource:
//!
//! | dropped | what happens |
//! |---|---|
//! | `accept`, `Incoming::next`, `Dispatch::next` | the connection stays in the listener's queue |
//! | `recv`, `RecvStream::next` | the bytes stay with the stream, also when it moves to another thread |
//! | `read`, `read_exact`, `peek` | bytes that had arrived are what the next read returns, in order |
//! | `read_until`, `read_line`, `Lines::next` | a line of which only some has come stays in the reader |
//! | `write`, `write_all` | any part may have been sent; later writes never overtake it |
//! | `BufWriter::flush` | any part of what was held back may have been sent; the next write says so |
//! | `io::copy` | nothing between sockets, pipes and from files; else up to 64 KiB that were read, which `copy_buf` keeps |
//! | `splice`, `splice_all`, `Relay` | every byte is still in the input or already in the output |
//! | `write_zc`, `write_all_zc` | the same; the buffer is kept until the kernel says that it is done with it |
//! | `connect`, `File::open` | the socket or file is closed |
//! | `sleep`, `timeout` | the timer is removed |
//! | waiting on an [`Async`](io::Async) | the next one that waits is told instead |
//! | [`Signal::recv`](signal::Signal::recv) | a signal that came is received by the next call |
//! | a [`JoinHandle`](task::JoinHandle) | the task goes on, detached |
//!
//! So `timeout(limit, stream.read(buf))` and `select!` are as safe as on tokio. A future that is *forgotten*
//! (`mem::forget`) keeps its direction of the stream busy; the memory is reclaimed when the runtime ends.
//!
//! # Threads
//!
//! `#[runtime::main]` runs its body once, on the thread that calls it. With `threads = N` or `threads = "auto"` the body runs
//! once on each of so many threads, and nothing is shared between them but what the program shares: each has its ring, its
//! tasks and its timers, and a task stays where it was spawned, so it need not be `Send`. [`Builder::run`] is the same
//! without the macro. `pin = true` keeps each thread on a CPU of its own.
//!
//! ```
//! use runtime::{Builder, Handle};
//!
//! let squares = Builder::new().threads(3).run(async |here: Handle| {
//!     std::io::Result::Ok(here.index() * here.index())
//! });
//! assert_eq!(squares.unwrap(), [0, 1, 4]);
//! ```
//!
//! **Listening.** All of them may bind the same address, as in the example at the top; the kernel hands each connection to
//! one of them by a hash. [`TcpListener::dispatch`](net::TcpListener::dispatch) accepts on one thread and hands each to the
//! thread with the fewest, which is better where some connections are much more work than others.
//!
//! **Reaching the others.** [`spawn_on`] sends a closure to a thread, which makes a future of it and runs that; the
//! [`JoinHandle`](task::JoinHandle) can be awaited anywhere. A [`Handle`] does the same from threads that run no runtime. A
//! [`TcpStream`](net::TcpStream) or a file can be moved along, between two operations. Channels and locks of other crates
//! work between threads, since wakers do. Without `threads` the others are started when they are first used.
//!
//! **Stopping.** A body that returns ends its thread and no other. One that panics or returns an error stops the others:
//! [`Handle::stopped`] completes everywhere, and whoever has not returned half a second later is dropped where it next
//! suspends; then the program gets the first error or panic. [`Handle::stop`] asks all of them to come to their end, and
//! forces none:
//!
//! ```
//! # use runtime::{Builder, Handle};
//! # Builder::new().threads(2).run(async |here: Handle| {
//! let serve = std::future::pending::<()>();
//! # if here.index() == 0 { here.stop() }
//! let here = Handle::current();
//! futures::future::select(std::pin::pin!(serve), here.stopped()).await;
//! // … finish what is under way …
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```
//!
//! # Time
//!
//! Timers follow the monotonic clock: they do not count time that the machine was suspended, and changes of the wall
//! clock have no effect.
//!
//! # Blocking
//!
//! A task that blocks holds up every task of its thread: use [`spawn_blocking`]. Name look-ups do so by themselves.
//! [`Builder::long_poll`] counts the polls that take too long.
//!
//! # Processes
//!
//! A child of fork(2) cannot use its parent's runtime: operations panic there, and drops touch nothing but descriptors.
//! Every descriptor that the runtime makes is close-on-exec. Operations run with the credentials that the thread has
//! when they are submitted. The ring does not use a kernel polling thread (`SQPOLL`): such a thread would use up the
//! CPU quota of a container, and keep the credentials of the moment it was started.
//!
//! A process that ends without dropping its runtime (`exit`, a signal) leaves its ring to the kernel, which takes it apart a
//! few milliseconds after the process is gone; a port that it listened on is free only then.
//!
//! A thread that waits in the ring is not counted as waiting for a disk where the kernel offers that (6.15); on older
//! kernels an idle program may show up as *iowait* or I/O pressure, which means nothing.
#![forbid(unsafe_code)]

pub use runtime_core::exec::{Builder, Handle, Runtime, Threads, metrics, spawn_on};
pub use runtime_core::metrics::Metrics;
pub use runtime_core::probe::{Probe, probe};
pub use runtime_core::ring::StartError;
pub use runtime_core::task::{spawn, spawn_blocking};
pub use runtime_core::task_local;
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
    pub use runtime_pipe::{
        Builder, OpenOptions, Pages, Receiver, Relay, RelayError, Relayed, Sender, Sink, Source, pipe, relay,
        send_file, splice, splice_all, splice_from_file, splice_to_file, tee, vmsplice,
    };
}

/// Owned buffers and their results, and reading and writing whatever the source.
pub mod io {
    pub use runtime_core::buf::{BufResult, IoBuf, IoBufMut, Slice};
    pub use runtime_core::fixed::{FixedBuf, FixedBufs, Lease};
    pub use runtime_core::foreign::{Async, Ready};
    pub use runtime_core::io::*;
    pub use runtime_core::pooled::Pooled;
    // This `copy` knows of streams and files; it goes before the one above.
    pub use runtime_pipe::{Stderr, Stdin, Stdout, copy, stderr, stdin, stdout};
}

/// Signals of the process.
pub mod signal {
    pub use runtime_core::signal::{Signal, SignalKind, ctrl_c, signal};
}

/// Tasks.
pub mod task {
    pub use runtime_core::exec::{NoRuntimeError, Stopped, spawn_on};
    pub use runtime_core::local::{Local, leaked_locals, local};
    pub use runtime_core::local_key::{AccessError, LocalKey, TaskLocalFuture};
    pub use runtime_core::task::{
        AbortHandle, JoinError, JoinHandle, JoinSet, YieldNow, spawn, spawn_blocking, yield_now,
    };
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
    pub use runtime_core::op::{Cqe, Kind, Multi, Notified, Op, Rung, WithNotice, opcode, squeue, types};
    pub use runtime_core::submit::{Chain, Chained, Standing, Submit, chain, stand, submit};
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
    use std::io;
    use std::process::ExitCode;

    use crate::{Builder, Handle};

    /// Runs `body` on a new runtime; a runtime that cannot start is one line on standard error and exit code 1.
    pub fn run_main<F: Future>(builder: Builder, body: F) -> F::Output {
        match builder.build() {
            Ok(runtime) => runtime.block_on(body),
            Err(error) => cannot_start(&error),
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

    /// As [`run_main`], once on each of several threads.
    #[track_caller]
    pub fn run_main_on_threads<T: Outcome>(builder: Builder, body: impl AsyncFn() -> T + Send + Sync + 'static) -> T {
        run_on_threads(&builder, body).unwrap_or_else(|error| cannot_start(&error))
    }

    /// As [`run_test`], once on each of several threads.
    #[track_caller]
    pub fn run_test_on_threads<T: Outcome>(builder: Builder, body: impl AsyncFn() -> T + Send + Sync + 'static) -> T {
        match run_on_threads(&builder, body) {
            Ok(output) => output,
            Err(error) => panic!("the runtime of this test cannot start: {error}"),
        }
    }

    #[track_caller]
    fn run_on_threads<T: Outcome>(
        builder: &Builder,
        body: impl AsyncFn() -> T + Send + Sync + 'static,
    ) -> io::Result<T> {
        let outputs = builder.run_until_failure(async move |_: Handle| body().await, Outcome::is_failure)?;
        Ok(match outputs {
            // All of them say that it went well, the first one as well as any.
            Ok(outputs) => outputs.into_iter().next().expect("there is at least one thread"),
            Err(failure) => failure,
        })
    }

    fn cannot_start(error: &io::Error) -> ! {
        eprintln!("error: {error}");
        std::process::exit(1);
    }

    /// What the body may return when it runs on several threads.
    #[diagnostic::on_unimplemented(
        message = "a body on several threads cannot return `{Self}`",
        label = "with `threads` the return type is `()`, a `Result` or an `ExitCode`, and `Send`",
        note = "each thread returns one: a failure stops the others and is what the function returns"
    )]
    pub trait Outcome: Send + 'static {
        /// Whether the other threads are to be stopped.
        fn is_failure(&self) -> bool;
    }

    impl Outcome for () {
        fn is_failure(&self) -> bool {
            false
        }
    }

    impl<T: Send + 'static, E: Send + 'static> Outcome for Result<T, E> {
        fn is_failure(&self) -> bool {
            self.is_err()
        }
    }

    impl Outcome for ExitCode {
        fn is_failure(&self) -> bool {
            *self != Self::SUCCESS
        }
    }
}
