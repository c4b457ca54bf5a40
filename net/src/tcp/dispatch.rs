//! [`Dispatch`]: one thread accepts and hands each connection to the thread that has the fewest.
//!
//! Owns the counts of connections and the choice. Knows nothing of how a task gets to its thread.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use runtime_core::exec::Handle;

use super::listener::TcpListener;
use super::stream::TcpStream;

/// Hands the connections of one listener to the threads of the runtime; from [`TcpListener::dispatch`].
///
/// Each goes to the thread with the fewest live ones, where it is served by a task of its own. That is how connections are
/// spread evenly: where each thread listens by itself, the kernel picks one by a hash of the addresses, whatever the
/// threads are doing. It costs a task's way between threads per connection, and the accepting thread is the bound of how
/// many connections are made per second.
///
/// Connections are live until the future that serves them has ended or was dropped.
#[must_use = "nothing is accepted until it runs"]
pub struct Dispatch<F> {
    listener: TcpListener,
    handle: Handle,
    serve: Arc<F>,
    /// Live connections by thread.
    live: Arc<[AtomicUsize]>,
    /// The threads that get connections; those that have ended leave.
    targets: Vec<Target>,
    /// Where the search for the fewest begins, so that equal ones take turns.
    turn: usize,
}

impl TcpListener {
    /// Has the connections served by all threads of this runtime, each by the one that has the fewest.
    ///
    /// `serve` makes the future that serves a connection, on the thread that got it, so the future need not be `Send`.
    /// What the future returns is dropped.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use runtime_net::{TcpListener, TcpStream};
    ///
    /// async fn greet(stream: TcpStream) {
    ///     let here = runtime_core::exec::Handle::current().index();
    ///     let _ = stream.write_all(format!("thread {here}")).await;
    /// }
    ///
    /// # let runtime = runtime_core::exec::Builder::new().threads(2).build().unwrap();
    /// # runtime.block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let addr = listener.local_addr()?;
    /// let mut dispatch = listener.dispatch(greet);
    /// # let clients = [std::net::TcpStream::connect(addr)?, std::net::TcpStream::connect(addr)?];
    /// let first = dispatch.next().await?;
    /// let second = dispatch.next().await?;
    /// assert_ne!(first, second);
    /// // A server would go on with `dispatch.run().await`.
    /// # drop(clients);
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn dispatch<F, Fut>(self, serve: F) -> Dispatch<F>
    where
        F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
        Fut: Future + 'static,
    {
        let handle = Handle::current();
        let live = (0..handle.threads()).map(|_| AtomicUsize::new(0)).collect();
        let targets = (0..handle.threads()).map(Target::new).collect();
        Dispatch { listener: self, handle, serve: Arc::new(serve), live, targets, turn: 0 }
    }
}

impl<F, Fut> Dispatch<F>
where
    F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
    Fut: Future + 'static,
{
    /// Restricts it to some of the threads, for example to all but the one that accepts.
    ///
    /// # Panics
    ///
    /// When one of them does not exist, or there are none.
    #[track_caller]
    pub fn among(mut self, threads: impl IntoIterator<Item = usize>) -> Self {
        self.targets = threads.into_iter().map(Target::new).collect();
        let last = self.targets.iter().map(|target| target.thread).max().expect("connections need at least one thread");
        let count = self.live.len();
        assert!(last < count, "there is no thread {last}: this runtime has {count}, counted from 0");
        self.turn = 0;
        self
    }

    /// Accepts until the threads are told to stop ([`Handle::stop`], or a body that failed).
    ///
    /// # Errors
    ///
    /// When all threads that get connections have ended, and what makes accepting impossible. For want of descriptors or
    /// memory it pauses, as [`TcpListener::accept`] does, and goes on.
    ///
    /// # Cancel safety
    ///
    /// Closes the listener; connections that were handed over are served on.
    pub async fn run(mut self) -> io::Result<()> {
        let mut stopped = pin!(self.handle.stopped());
        loop {
            let mut next = pin!(self.next());
            let result = poll_fn(|task| match stopped.as_mut().poll(task) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => next.as_mut().poll(task).map(Some),
            });
            match result.await {
                None => return Ok(()),
                Some(Err(error)) if !is_shortage(&error) => return Err(error),
                Some(_) => {}
            }
        }
    }

    /// Takes one connection, hands it over, and returns the index of the thread that got it. A connection that is on its
    /// way to a thread as that ends is closed.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::accept`]; `NotConnected` when all threads that get connections have ended; why they cannot be
    /// started when none of the others runs, in which case the connection is closed.
    ///
    /// # Cancel safety
    ///
    /// The connection stays in the listener's queue.
    ///
    /// # Panics
    ///
    /// As [`TcpListener::accept`].
    pub async fn next(&mut self) -> io::Result<usize> {
        // No address is asked for, which `accept` would do.
        let accepted = self.listener.incoming().next().await;
        let stream = accepted.expect("the connections of a listener have no end")?;
        let thread = self.choose()?;
        let live = Live::new(&self.live, thread);
        let serve = Arc::clone(&self.serve);
        // Detached: what becomes of it is its own affair.
        drop(self.handle.spawn_on(thread, move || async move {
            let _live = live;
            let served = serve(stream);
            drop(serve);
            drop(served.await);
        }));
        Ok(thread)
    }

    /// How many live connections each thread has from this listener, by index.
    pub fn live(&self) -> Vec<usize> {
        self.live.iter().map(|live| live.load(Ordering::Relaxed)).collect()
    }

    /// The address it listens on.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The thread with the fewest connections that has not ended and could be started.
    fn choose(&mut self) -> io::Result<usize> {
        let mut why_not = None;
        loop {
            let count = self.targets.len();
            let in_turn = (0..count).map(|step| (self.turn + step) % count);
            let willing = in_turn.filter(|&at| self.targets[at].not_before.is_none_or(|at| at <= Instant::now()));
            let fewest = willing.min_by_key(|&at| self.live[self.targets[at].thread].load(Ordering::Relaxed));
            let Some(at) = fewest else { return Err(why_not.unwrap_or_else(no_thread)) };
            let target = &mut self.targets[at];
            match self.handle.start(target.thread) {
                Ok(()) => {
                    target.not_before = None;
                    self.turn = (at + 1) % count;
                    return Ok(target.thread);
                }
                Err(error) if error.kind() == io::ErrorKind::NotConnected => drop(self.targets.remove(at)),
                // Or it would have the fewest for ever, and all connections with it.
                Err(error) => {
                    target.not_before = Some(Instant::now() + START_PAUSE);
                    why_not = Some(error);
                }
            }
        }
    }
}

/// A thread that gets connections.
#[derive(Debug)]
struct Target {
    thread: usize,
    /// It could not be started.
    not_before: Option<Instant>,
}

impl Target {
    fn new(thread: usize) -> Self {
        Self { thread, not_before: None }
    }
}

impl<F> fmt::Debug for Dispatch<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch").field("listener", &self.listener).field("live", &self.live).finish_non_exhaustive()
    }
}

/// How long a thread that could not be started is left alone.
const START_PAUSE: Duration = Duration::from_secs(1);

/// Counts a connection until it is dropped.
struct Live {
    live: Arc<[AtomicUsize]>,
    thread: usize,
}

impl Live {
    fn new(live: &Arc<[AtomicUsize]>, thread: usize) -> Self {
        live[thread].fetch_add(1, Ordering::Relaxed);
        Self { live: Arc::clone(live), thread }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.live[self.thread].fetch_sub(1, Ordering::Relaxed);
    }
}

fn no_thread() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "all threads that get connections have ended")
}

/// Whether the listener goes on by itself once there is more of what it lacked.
fn is_shortage(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE | ENOBUFS))
}
