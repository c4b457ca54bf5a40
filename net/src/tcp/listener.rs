//! [`TcpListener`]: connections from one standing multishot accept.
//!
//! The queue of accepted connections lives in the listener, so dropping a future that waits for one loses nothing.
//!
//! ```text
//!                 poll, nothing queued             queue above its bound: cancel
//!   disarmed ─────────────────────────▶ standing ────────────────────────────────▶ ending
//!      ▲                                   │ completion without MORE                 │
//!      └───────────────────────────────────┴─────────────────────────────────────────┘
//!          re-armed by the next poll once the queue is down to half its bound and a pause, if any, is over
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, Waker, ready};
use std::time::{Duration, Instant};

use futures_core::Stream;
use runtime_core::coop::{self, Proceed};
use runtime_core::op::accept::{AcceptMulti, AcceptSink};
use runtime_core::submit::{Standing, stand};
use runtime_core::time::{Sleep, sleep_until};
use runtime_core::wait::{Left, Ticket, WaitList};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::shards::{Place, Role, Shard};
use super::stream::{TcpStream, inet, lingers};
use crate::addr::{ToSocketAddrs, no_address, resolve};

/// Accepted connections that may wait for the program before the accept is taken back. Soft: what the kernel had
/// accepted by then comes on top, at most another backlog.
const QUEUE_BOUND: usize = 1024;
/// Connections that are accepted ahead while nobody waits for one: they take descriptors, which a program that serves a
/// bounded number of clients may need for other things.
const AHEAD_BOUND: usize = 64;
/// Transient errors in a row, each of which ended the accept, after which they are told like any other.
const TRANSIENT_BOUND: u32 = 16;
/// First and longest pause after an error like EMFILE, doubled from one to the next.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A listening TCP socket.
///
/// One multishot accept stands as long as somebody takes the connections: the kernel hands them over in batches, with
/// no further submission. When the program takes them more slowly than they come, the accept is taken back above a
/// bound, and the rest waits in the kernel's backlog.
///
/// What has been accepted and not taken yet has a descriptor of the process: up to 64 connections, or 1024 while somebody
/// waits for them, and on top of that at most one backlog, which the kernel may hand over in one go. Where descriptors are
/// scarce, ask for a small backlog.
///
/// Dropping the listener closes the port at once, and with it the connections that nobody has taken. A listener belongs
/// to the thread that first accepts on it.
///
/// # On several threads
///
/// Threads that run one body (`#[runtime::main(threads = …)]`, `Builder::run`) may each bind the same address: they listen
/// beside each other, and the kernel hands each connection to one of them, by a hash of the addresses. Port 0 becomes the
/// same port for all of them (for each time that a thread asks, if they ask more than once). On one thread the second
/// listener on an address gets `AddrInUse`, as anybody else does: the first of the group only gets a port that nobody has,
/// and another process gets it only if it runs as the same user and asks for `SO_REUSEPORT` itself. The port is free again
/// when the last listener is dropped. A thread that stops listening resets the connections in its own backlog, and the
/// others go on.
///
/// The hash is blind to how busy a thread is. [`dispatch`](Self::dispatch) accepts on one thread and hands each connection
/// to the one that has the fewest.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let listener = runtime_net::TcpListener::bind("127.0.0.1:0").await?;
/// let client = std::net::TcpStream::connect(listener.local_addr()?)?;
/// let (stream, peer) = listener.accept().await?;
/// assert_eq!(peer, client.local_addr()?);
/// # drop(stream);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "IORING_ACCEPT_MULTISHOT")]
pub struct TcpListener {
    shared: Rc<Shared>,
}

struct Shared {
    fd: Rc<OwnedFd>,
    queue: RefCell<Queue>,
    /// The listener is there; what comes after it is closed.
    open: Cell<bool>,
    /// Accepted sockets inherit from the listening one that their close waits for unsent data.
    lingers: Cell<bool>,
    /// Its part of an address on which other threads listen too; after the descriptor, which is closed by then.
    _shard: Option<Shard>,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<io::Result<OwnedFd>>,
    waiters: WaitList,
    standing: Option<Standing>,
    /// The accept was taken back because of the bound.
    taken_back: bool,
    pause: Option<Pause>,
    /// Transient errors since the last connection.
    transient: u32,
}

impl Queue {
    /// How many connections may be ready before the accept is taken back.
    fn bound(&self) -> usize {
        if self.waiters.is_empty() { AHEAD_BOUND } else { QUEUE_BOUND }
    }
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl TcpListener {
    fn new(fd: OwnedFd, shard: Option<Shard>) -> Self {
        let shared = Shared {
            fd: Rc::new(fd),
            queue: RefCell::default(),
            open: Cell::new(true),
            lingers: Cell::new(false),
            _shard: shard,
        };
        Self { shared: Rc::new(shared) }
    }

    /// Listens on the first of the addresses that can be bound, with the defaults of [`ListenerOptions`].
    ///
    /// # Errors
    ///
    /// Those of socket(2), bind(2) and listen(2), such as `AddrInUse`; those of the resolver.
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes the socket.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        ListenerOptions::new().bind(addr).await
    }

    /// Sets options before binding.
    pub fn options() -> ListenerOptions {
        ListenerOptions::new()
    }

    /// Takes over a listening socket of std, in blocking or non-blocking mode; the mode is left as it is.
    ///
    /// # Errors
    ///
    /// None today; fallible like std's and tokio's conversions.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self::from(OwnedFd::from(listener)))
    }

    /// Takes the next connection and asks for the address of its peer. A connection whose peer is gone already is left
    /// out (and counted in the metrics).
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOBUFS` and `ENOMEM`, each told once per attempt; accepting pauses then (5 ms to 500 ms)
    /// and goes on by itself, with the limits that hold at that time. Connections wait in the backlog meanwhile.
    ///
    /// # Cancel safety
    ///
    /// The connection stays in the queue.
    ///
    /// # Panics
    ///
    /// When polled outside a runtime, or in another runtime than the one it accepts in.
    #[doc(alias = "IORING_OP_ACCEPT")]
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let stream = self.next().await?;
            match stream.peer_addr() {
                Ok(peer) => return Ok((stream, peer)),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => coop::count_accept_skipped(),
                Err(error) => return Err(error),
            }
        }
    }

    fn next(&self) -> Accept<'_> {
        Accept { shared: &self.shared, ticket: None, pause: None, proceed: Proceed::default() }
    }

    /// The connections as a stream that never ends. No address is asked for; a connection that was reset before it was
    /// taken is delivered, and its first read says so.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { accept: self.next() }
    }

    /// The address it listens on, with the port that the kernel chose if it was bound to port 0.
    ///
    /// # Errors
    ///
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(SockRef::from(&*self.shared.fd).local_addr()?)
    }

    /// Sets the time to live of IPv4 packets of connections accepted from now on, in hops.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        SockRef::from(&*self.shared.fd).set_ttl_v4(ttl)
    }

    /// Time to live of IPv4 packets of accepted connections, in hops.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn ttl(&self) -> io::Result<u32> {
        SockRef::from(&*self.shared.fd).ttl_v4()
    }
}

impl Shared {
    /// Has an accept standing if one is wanted. Returns until when it may not be, if so.
    fn arm(self: &Rc<Self>) -> Option<Instant> {
        let mut queue = self.queue.borrow_mut();
        // Left behind by a runtime that could not be drained.
        queue.standing.take_if(|standing| standing.is_gone());
        if let Some(standing) = &queue.standing {
            assert!(
                standing.is_here(),
                "this listener accepts in one runtime and is polled in another: a listener belongs to one thread"
            );
            return None;
        }
        if queue.ready.len() > queue.bound() / 2 {
            return None;
        }
        if let Some(pause) = queue.pause
            && pause.until > Instant::now()
        {
            return Some(pause.until);
        }
        drop(queue);
        self.lingers.set(lingers(&self.fd));
        let accept = AcceptMulti::new(Rc::clone(&self.fd), Sink(Rc::clone(self)));
        // A runtime that is closing takes no more; whoever waits is about to be dropped.
        if let Ok(standing) = stand(accept) {
            queue = self.queue.borrow_mut();
            queue.standing = Some(standing);
            queue.taken_back = false;
        }
        None
    }

    /// After one waiter was served: what is left, connections or the end of a pause, is the next one's to see to.
    fn pass_on(&self, paused: bool) {
        let mut queue = self.queue.borrow_mut();
        let next = if paused || !queue.ready.is_empty() { queue.waiters.notify_one() } else { None };
        drop(queue);
        if let Some(next) = next {
            coop::wake(next);
        }
    }
}

/// What the multishot accept delivers to.
struct Sink(Rc<Shared>);

impl AcceptSink for Sink {
    fn accepted(&mut self, result: io::Result<OwnedFd>, more: bool) {
        if !self.0.open.get() {
            // Dropping the result closes it.
            return;
        }
        let mut queue = self.0.queue.borrow_mut();
        if !more {
            queue.standing = None;
        }
        let was_empty = queue.ready.is_empty();
        match result {
            Ok(fd) => {
                queue.pause = None;
                queue.transient = 0;
                queue.ready.push_back(Ok(fd));
            }
            // Ours, at the end of the runtime or because of the bound: no word about the listener.
            Err(error) if is_canceled(&error) && (queue.taken_back || coop::is_closing()) => {}
            Err(error) if is_transient(&error) && queue.transient < TRANSIENT_BOUND => queue.transient += 1,
            Err(error) => {
                let length = queue.pause.map_or(PAUSE_MIN, |pause| (pause.length * 2).min(PAUSE_MAX));
                queue.pause = Some(Pause { until: Instant::now() + length, length });
                queue.ready.push_back(Err(error));
            }
        }
        if queue.ready.len() >= queue.bound()
            && !queue.taken_back
            && let Some(standing) = &queue.standing
        {
            standing.cancel();
            queue.taken_back = true;
        }
        // One waiter is chosen at a time: with more in the queue somebody is already, and passes on what it leaves.
        let next = if was_empty { queue.waiters.notify_one() } else { None };
        drop(queue);
        if let Some(next) = next {
            next.wake();
        }
    }
}

const ECANCELED: i32 = 125;

fn is_canceled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ECANCELED)
}

/// Errors that belong to one connection, or to the request, and say nothing about the listener (accept(2)).
fn is_transient(error: &io::Error) -> bool {
    const EINTR: i32 = 4;
    const EAGAIN: i32 = 11;
    const EPROTO: i32 = 71;
    const ENOPROTOOPT: i32 = 92;
    const ENETDOWN: i32 = 100;
    const ENETUNREACH: i32 = 101;
    const ECONNABORTED: i32 = 103;
    const EHOSTDOWN: i32 = 112;
    const EHOSTUNREACH: i32 = 113;
    const ENONET: i32 = 64;
    matches!(
        error.raw_os_error(),
        Some(
            EINTR
                | EAGAIN
                | EPROTO
                | ENOPROTOOPT
                | ENETDOWN
                | ENETUNREACH
                | ECONNABORTED
                | EHOSTDOWN
                | EHOSTUNREACH
                | ECANCELED
                | ENONET
        )
    )
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.shared.open.set(false);
        let mut queue = self.shared.queue.borrow_mut();
        let standing = queue.standing.take();
        let unaccepted = std::mem::take(&mut queue.ready);
        drop(queue);
        drop(unaccepted);
        if let Some(standing) = standing {
            // The one eager path: as long as the accept stands, the port stays taken and clients still get through.
            // Never shutdown(2): other processes may have the same socket.
            standing.cancel_now();
        }
    }
}

/// Waits for a connection; see [`TcpListener::accept`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Accept<'a> {
    shared: &'a Rc<Shared>,
    ticket: Option<Ticket>,
    pause: Option<Sleep>,
    proceed: Proceed,
}

impl Accept<'_> {
    fn poll_next(&mut self, task: &mut Task<'_>) -> Poll<io::Result<TcpStream>> {
        // Outside a runtime it panics, before anything is taken.
        coop::assert_same_process();
        ready!(self.proceed.poll(task));
        let mut queue = self.shared.queue.borrow_mut();
        let my_turn = match self.ticket {
            None => queue.waiters.is_empty(),
            Some(ticket) => queue.waiters.is_chosen(ticket),
        };
        if my_turn && let Some(item) = queue.ready.pop_front() {
            if let Some(ticket) = self.ticket.take() {
                queue.waiters.take(ticket);
            }
            let disarmed = queue.standing.is_none();
            drop(queue);
            self.pause = None;
            coop::spend(0);
            let paused = disarmed && self.shared.arm().is_some();
            self.shared.pass_on(paused);
            let lingers = self.shared.lingers.get();
            return Poll::Ready(item.map(|fd| TcpStream::accepted(fd, lingers)));
        }
        if my_turn && let Some(ticket) = self.ticket.take() {
            // Chosen for something that is gone, or because the accept ended: back in line.
            queue.waiters.take(ticket);
        }
        drop(queue);
        self.wait(task)
    }

    fn wait(&mut self, task: &mut Task<'_>) -> Poll<io::Result<TcpStream>> {
        if let Some(until) = self.shared.arm() {
            // Anew each time: the one before may be of a runtime that has ended.
            let pause = self.pause.insert(sleep_until(until));
            if Pin::new(pause).poll(task).is_ready() {
                self.pause = None;
                task.waker().wake_by_ref();
            }
        }
        let waker = task.waker().clone();
        let mut queue = self.shared.queue.borrow_mut();
        let unused = match self.ticket {
            None => {
                self.ticket = Some(queue.waiters.join(waker));
                None
            }
            Some(ticket) => queue.waiters.update(ticket, waker),
        };
        drop(queue);
        drop(unused);
        Poll::Pending
    }
}

impl Future for Accept<'_> {
    type Output = io::Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        self.poll_next(task)
    }
}

impl Drop for Accept<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Accept<'_> {
    fn leave(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        // Dropped at the end, with nothing borrowed: its waker is foreign code.
        let pause = self.pause.take();
        let mut queue = self.shared.queue.borrow_mut();
        let (left, unused): (Left, Option<Waker>) = queue.waiters.leave(ticket);
        // Who waits out a pause leaves that to the next one too.
        let pass_on = left == Left::PassOn || pause.is_some();
        let next = if pass_on { queue.waiters.notify_one() } else { None };
        drop(queue);
        drop(unused);
        if let Some(next) = next {
            coop::wake(next);
        }
    }
}

impl fmt::Debug for Accept<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accept").field("waits", &self.ticket.is_some()).finish_non_exhaustive()
    }
}

/// The connections of a listener as a stream, from [`TcpListener::incoming`].
///
/// # Cancel safety
///
/// Nothing is lost when a `next` or the whole stream is dropped: connections stay in the listener's queue. Polled as a
/// [`Stream`] it keeps its place in line from one poll to the next: whoever waits behind it on the same listener waits until
/// it is polled again or dropped. The inherent [`next`](Self::next) leaves the line when it is dropped.
#[derive(Debug)]
#[must_use = "streams do nothing unless they are polled"]
pub struct Incoming<'a> {
    accept: Accept<'a>,
}

impl Incoming<'_> {
    /// The next connection. Never `None`: errors are items, and the stream goes on after them.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::accept`].
    ///
    /// # Cancel safety
    ///
    /// The connection stays in the listener's queue.
    pub async fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(Next(&mut self.accept).await)
    }
}

/// One wait of an [`Incoming`]: it leaves the queue when it is given up, so that nobody waits behind it.
struct Next<'a, 'b>(&'a mut Accept<'b>);

impl Future for Next<'_, '_> {
    type Output = io::Result<TcpStream>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        self.0.poll_next(task)
    }
}

impl Drop for Next<'_, '_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Self::Item>> {
        self.accept.poll_next(task).map(Some)
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("fd", &self.as_raw_fd()).finish()
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }
}

impl AsRawFd for TcpListener {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.fd.as_raw_fd()
    }
}

/// Takes over a listening socket.
impl From<OwnedFd> for TcpListener {
    fn from(fd: OwnedFd) -> Self {
        Self::new(fd, None)
    }
}

/// How to listen; from [`TcpListener::options`].
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let listener = runtime_net::TcpListener::options().backlog(64).reuse_port(true).bind("127.0.0.1:0").await?;
/// # drop(listener);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing until something is bound"]
pub struct ListenerOptions {
    backlog: u32,
    reuse_address: bool,
    reuse_port: bool,
    only_v6: Option<bool>,
    ttl: Option<u32>,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ListenerOptions {
    /// Backlog 1024, `SO_REUSEADDR` on as in std, everything else as the system has it.
    pub fn new() -> Self {
        Self { backlog: 1024, reuse_address: true, reuse_port: false, only_v6: None, ttl: None }
    }

    /// Connections that may wait in the kernel; bounded by `net.core.somaxconn`.
    pub fn backlog(mut self, backlog: u32) -> Self {
        self.backlog = backlog;
        self
    }

    /// Whether a port may be bound while old connections of it linger (`SO_REUSEADDR`).
    pub fn reuse_address(mut self, on: bool) -> Self {
        self.reuse_address = on;
        self
    }

    /// Whether several sockets may listen on the port, among which the kernel spreads connections (`SO_REUSEPORT`): with
    /// other processes of the same user, say. The threads of a group listen beside each other without it.
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// Whether an IPv6 socket leaves IPv4 alone (`IPV6_V6ONLY`); unset means the system's default, as in std.
    pub fn only_v6(mut self, on: bool) -> Self {
        self.only_v6 = Some(on);
        self
    }

    /// Time to live of sent IPv4 packets, in hops.
    pub fn ttl(mut self, ttl: u32) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Listens on the first of the addresses that can be bound.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::bind`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes the socket.
    pub async fn bind<A: ToSocketAddrs>(&self, addr: A) -> io::Result<TcpListener> {
        let mut last = None;
        for addr in resolve(&addr).await? {
            match self.listen(addr) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        Err(no_address(last))
    }

    /// Inline: none of these calls can block.
    fn listen(&self, addr: SocketAddr) -> io::Result<TcpListener> {
        // Who asks for `SO_REUSEPORT` shares the port in a way of their own.
        match Place::current().filter(|_| !self.reuse_port) {
            None => Ok(TcpListener::from(OwnedFd::from(self.open(addr, self.reuse_port)?))),
            Some(place) => {
                let (socket, shard) = place.listen(addr, self.only_v6, |addr, role| {
                    let socket = self.open(addr, role == Role::Other)?;
                    socket.set_reuse_port(true)?;
                    let bound = inet(socket.local_addr()?)?;
                    Ok((socket, bound))
                })?;
                Ok(TcpListener::new(OwnedFd::from(socket), Some(shard)))
            }
        }
    }

    fn open(&self, addr: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
        let kind = Type::STREAM.cloexec().nonblocking();
        let socket = Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP))?;
        socket.set_reuse_address(self.reuse_address)?;
        socket.set_reuse_port(reuse_port)?;
        if let Some(on) = self.only_v6.filter(|_| addr.is_ipv6()) {
            // Must precede the bind.
            socket.set_only_v6(on)?;
        }
        if let Some(ttl) = self.ttl {
            socket.set_ttl_v4(ttl)?;
        }
        socket.bind(&addr.into())?;
        socket.listen(i32::try_from(self.backlog).unwrap_or(i32::MAX))?;
        Ok(socket)
    }
}
