//! [`relay`]: both directions between two streams, until both have ended.
//!
//! Owns when bytes are copied and when they are spliced, how ends and resets are passed on, and the idle limit. Knows nothing
//! of how a single move is done.
//!
//! ```text
//!             full reads, several in a row
//!   copying ───────────────────────────────▶ splicing, through a private pipe
//!      ▲                                         │
//!      └─────────────────────────────────────────┘
//!        small moves, several in a row; nothing moves
//! ```

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use runtime_core::ends::{End, Sink, Source, What};
use runtime_core::sys::pipes;
use runtime_core::task::yield_now;
use runtime_core::time::sleep;

use crate::splice::{COPY_BYTES, Pair};
use crate::transit::Transit;

/// The first buffer; it grows with what comes, so that many quiet connections need little.
const FIRST_BYTES: usize = 4 << 10;
/// Full reads in a row after which a direction splices.
const FULL_READS: u32 = 4;
/// A splice of less than this would have been better copied.
const SMALL_BYTES: usize = 16 << 10;
/// Small splices in a row after which a direction copies.
const SMALL_SPLICES: u32 = 8;

/// Moves bytes both ways between two streams until both have ended, and returns the counts.
///
/// With the defaults of [`Relay`]; see there.
///
/// # Errors
///
/// As [`Relay::run`].
///
/// # Cancel safety
///
/// As [`Relay::run`].
pub async fn relay<A, B>(a: &A, b: &B) -> Result<Relayed, RelayError>
where
    A: Source + Sink + ?Sized,
    B: Source + Sink + ?Sized,
{
    Relay::new().run(a, b).await
}

/// How many bytes went which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Relayed {
    /// From the first to the second.
    pub there: u64,
    /// From the second to the first.
    pub back: u64,
}

/// Why a relay ended early, and what it had moved.
#[derive(Debug)]
#[non_exhaustive]
pub struct RelayError {
    /// What happened; `TimedOut` for the idle limit.
    pub error: io::Error,
    /// What had been moved, each byte written to the other side.
    pub relayed: Relayed,
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Relayed { there, back } = self.relayed;
        write!(f, "the relay ended after {there} bytes there and {back} back: {}", self.error)
    }
}

impl std::error::Error for RelayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<RelayError> for io::Error {
    fn from(error: RelayError) -> Self {
        error.error
    }
}

/// Settings of a relay between two streams, which may be sockets and pipes.
///
/// A direction starts by copying through a buffer that grows from 4 to 64 KiB. When reads keep filling that, it changes to
/// splice(2) through a private pipe, and the program does not touch the bytes any more; when moves become small it changes
/// back. Where one side is a pipe, there is a splice from the start and no other pipe. Private pipes come from a pool of the
/// thread.
///
/// When one side ends, the other is told so once everything has been passed on, and the opposite direction goes on. A
/// connection that is reset ends both, and the other side is reset too.
#[derive(Debug, Clone, Default)]
pub struct Relay {
    idle: Option<Duration>,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Adaptive,
    Copy,
    Splice,
}

/// Bytes that went each way so far.
#[derive(Debug, Default)]
struct Counts {
    there: Cell<u64>,
    back: Cell<u64>,
}

impl Counts {
    fn relayed(&self) -> Relayed {
        Relayed { there: self.there.get(), back: self.back.get() }
    }
}

impl Relay {
    /// Without an idle limit, and adaptive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the relay with `TimedOut` when neither direction has moved a byte for so long; it may notice up to once more
    /// that time later.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle = Some(limit);
        self
    }

    /// Only copies.
    pub fn copy(mut self) -> Self {
        self.mode = Mode::Copy;
        self
    }

    /// Splices from the start.
    pub fn splice(mut self) -> Self {
        self.mode = Mode::Splice;
        self
    }

    /// Runs between two streams that are both read and written. Both stay open; their writing directions have ended.
    ///
    /// # Errors
    ///
    /// Those of reading and writing either side, with the counts. After a reset or a broken pipe both are reset.
    ///
    /// # Cancel safety
    ///
    /// No byte is lost: what was read and not written becomes what the next read returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use runtime::net::TcpStream;
    /// use runtime::pipe::Relay;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # runtime::Runtime::new()?.block_on(async {
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let (a, mut client) = (TcpStream::connect(listener.local_addr()?).await?, listener.accept()?.0);
    /// let (b, mut server) = (TcpStream::connect(listener.local_addr()?).await?, listener.accept()?.0);
    /// client.write_all(b"hello")?;
    /// client.shutdown(std::net::Shutdown::Write)?;
    /// server.shutdown(std::net::Shutdown::Write)?;
    /// let relayed = Relay::new().run(&a, &b).await?;
    /// assert_eq!((relayed.there, relayed.back), (5, 0));
    /// # drop((a, b));
    /// let mut said = String::new();
    /// server.read_to_string(&mut said)?;
    /// assert_eq!(said, "hello");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn run<A, B>(&self, a: &A, b: &B) -> Result<Relayed, RelayError>
    where
        A: Source + Sink + ?Sized,
        B: Source + Sink + ?Sized,
    {
        let counts = Counts::default();
        let (there, back) = (self.pass_on(a, b, &counts.there), self.pass_on(b, a, &counts.back));
        let result = self.both(there, back, &counts).await;
        result.map_err(|error| {
            if is_gone(&error) {
                for end in [a.sink(), b.sink()] {
                    reset(end);
                }
            }
            RelayError { error, relayed: counts.relayed() }
        })
    }

    /// Runs between two pairs of halves, each a reading and a writing one: pipes, or the halves of a socket. A writing half
    /// is dropped when its direction has ended, which is how a pipe is told.
    ///
    /// # Errors
    ///
    /// Those of reading and writing either side, with the counts; a socket is reset only by [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// What was read and not written is what the next read would return, but the halves are gone: use references to the
    /// reading halves (`&rx`) to keep them.
    pub async fn run_halves<R1: Source, W1: Sink, R2: Source, W2: Sink>(
        &self,
        a: (R1, W1),
        b: (R2, W2),
    ) -> Result<Relayed, RelayError> {
        let counts = Counts::default();
        let there = self.pass_on(a.0, b.1, &counts.there);
        let back = self.pass_on(b.0, a.1, &counts.back);
        let result = self.both(there, back, &counts).await;
        result.map_err(|error| RelayError { error, relayed: counts.relayed() })
    }

    async fn both(
        &self,
        there: impl Future<Output = io::Result<()>>,
        back: impl Future<Output = io::Result<()>>,
        counts: &Counts,
    ) -> io::Result<Relayed> {
        let (mut there, mut back) = (pin!(there), pin!(back));
        let mut idle = self.idle.map(|limit| Box::pin(sleep(limit)));
        let mut before = counts.relayed();
        let (mut there_done, mut back_done) = (false, false);
        poll_fn(|task| {
            if !there_done && let Poll::Ready(result) = there.as_mut().poll(task) {
                if result.is_err() && !back_done {
                    // A write of the other direction may be over, too: then it counts. Whatever else happens there is
                    // not what ended the relay.
                    let _ = back.as_mut().poll(task);
                }
                result?;
                there_done = true;
            }
            if !back_done && let Poll::Ready(result) = back.as_mut().poll(task) {
                result?;
                back_done = true;
            }
            if there_done && back_done {
                return Poll::Ready(Ok(counts.relayed()));
            }
            while let (Some(pause), Some(limit)) = (&mut idle, self.idle)
                && pause.as_mut().poll(task).is_ready()
            {
                let now = counts.relayed();
                if now == before {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                before = now;
                pause.set(sleep(limit));
            }
            Poll::Pending
        })
        .await
    }

    /// One direction, and its end.
    async fn pass_on<R: Source, W: Sink>(&self, from: R, to: W, moved: &Cell<u64>) -> io::Result<()> {
        let mut pair = Pair::acquire(from.source(), to.sink()).await?;
        self.stream(&mut pair, moved).await?;
        // The kernel tells a reset once, perhaps to a write of the other direction, and says then that the stream has ended:
        // passed on as that, what was cut off would look whole. So the other direction has its say before.
        yield_now().await;
        if to.sink().what == What::Socket {
            match to.sink().duplex.shutdown(Shutdown::Write) {
                // It is gone already, and everything was taken from it.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
                result => result?,
            }
        }
        // The direction is held until here: nobody else's write is cut in the middle.
        drop(pair);
        drop(to);
        Ok(())
    }

    /// Everything up to the end of the input.
    pub(crate) async fn stream(&self, pair: &mut Pair, moved: &Cell<u64>) -> io::Result<()> {
        if !pair.is_direct() || self.mode == Mode::Copy {
            return self.move_all(pair, moved).await;
        }
        loop {
            if pair.step(usize::MAX, moved).await? == 0 {
                return Ok(());
            }
            pair.take_turns().await?;
        }
    }

    async fn move_all(&self, pair: &mut Pair, moved: &Cell<u64>) -> io::Result<()> {
        let mut room = FIRST_BYTES;
        let (mut full, mut small) = (0, 0);
        let may_splice = self.mode != Mode::Copy && !pair.only_copies();
        let mut transit = None;
        if self.mode == Mode::Splice && may_splice {
            transit = Some(Transit::new()?);
        }
        loop {
            pair.take_turns().await?;
            if let Some(pipe) = &mut transit {
                match pair.through(pipe, moved).await? {
                    Some(0) => return Ok(()),
                    Some(n) if n >= SMALL_BYTES => small = 0,
                    Some(_) => small += 1,
                    // A ring operation waits for whatever it is that is missing.
                    None if pair.copy(COPY_BYTES, moved).await? == 0 => return Ok(()),
                    None => small = SMALL_SPLICES,
                }
                if small >= SMALL_SPLICES && self.mode == Mode::Adaptive {
                    transit = None;
                    (full, small) = (0, 0);
                }
                continue;
            }
            let n = pair.copy(room, moved).await?;
            if n == 0 {
                return Ok(());
            }
            if n < room {
                full = 0;
            } else if room < COPY_BYTES {
                room *= 2;
            } else {
                full += 1;
            }
            if full >= FULL_READS && may_splice {
                // Out of descriptors, perhaps: copying needs none.
                transit = Transit::new().ok();
                full = 0;
            }
        }
    }
}

/// Whether an error says that a connection is gone, so that the other one is to hear of it.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
    matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
        || error.kind() == TimedOut && error.raw_os_error().is_some()
}

fn reset(end: End<'_>) {
    if end.what == What::Socket {
        // One that is gone already has nobody to tell.
        let _ = pipes::reset(end.duplex.as_fd());
    }
}
