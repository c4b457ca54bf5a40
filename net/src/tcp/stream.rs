//! [`TcpStream`].

use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use runtime_core::buf::{BufResult, IoBuf, IoBufMut};
use runtime_core::duplex::{Duplex, Reader};
use runtime_core::ends::{End, Sink, Source, What};
use runtime_core::ladder::ready;
use runtime_core::op::connect::Connect;
use runtime_core::op::poll_add::POLLOUT;
use runtime_core::receiver::{self, Recv, RecvStream};
use runtime_core::submit::submit;
use runtime_core::sys;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::split::{OwnedReadHalf, OwnedWriteHalf};
use crate::addr::{ToSocketAddrs, no_address, resolve};
use crate::transfer::{self, Receive, Transmit, WriteAll, zero_copy};

/// A TCP connection.
///
/// All operations take `&self`: share a stream between the tasks of a thread by reference or in an `Rc`. Reads and
/// writes are independent of each other; within one direction operations are carried out one after the other, in the
/// order in which they were first polled, and whole: two `write_all`s never mix. The handle is `Send`, so a stream may
/// move to another thread between operations.
///
/// Dropping the stream closes it, once operations whose futures were dropped before have settled (in the next turn);
/// what was written reaches the peer.
///
/// # Examples
///
/// ```
/// use runtime_net::{TcpListener, TcpStream};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let client = TcpStream::connect(listener.local_addr()?).await?;
/// let (server, _) = listener.accept().await?;
/// client.write_all("ping").await.0?;
/// let (n, data) = server.read(Vec::with_capacity(64)).await.into_result()?;
/// assert_eq!((n, &data[..]), (4, &b"ping"[..]));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct TcpStream {
    duplex: Reader,
    /// `Send` but not `Sync`: operations belong to the thread that the handle is on.
    _not_sync: PhantomData<Cell<()>>,
}

impl TcpStream {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self::from_duplex(Duplex::new(fd))
    }

    pub(crate) fn accepted(fd: OwnedFd, lingers: bool) -> Self {
        let stream = Self::new(fd);
        if lingers {
            stream.duplex.set_slow_close(true);
        }
        stream
    }

    fn connected(fd: OwnedFd) -> Self {
        let stream = Self::new(fd);
        stream.duplex.set_connected();
        stream
    }

    pub(crate) fn from_duplex(duplex: Arc<Duplex>) -> Self {
        Self { duplex: Reader::new(duplex), _not_sync: PhantomData }
    }

    pub(crate) fn into_reader(self) -> Reader {
        self.duplex
    }

    pub(crate) fn from_reader(duplex: Reader) -> Self {
        Self { duplex, _not_sync: PhantomData }
    }

    fn socket(&self) -> SockRef<'_> {
        SockRef::from(&**self.duplex)
    }

    /// Connects to the first of the addresses that accepts.
    ///
    /// # Errors
    ///
    /// That of the last address that was tried; those of the resolver; `InvalidInput` for what is no address.
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes the socket.
    #[doc(alias = "IORING_OP_CONNECT")]
    pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let mut last = None;
        for addr in resolve(&addr).await? {
            match connect_to(addr).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(no_address(last))
    }

    /// Takes over a connected socket of std, in blocking or non-blocking mode; the mode is left as it is, since other
    /// holders of the same socket see it too.
    ///
    /// # Errors
    ///
    /// None today; fallible like std's and tokio's conversions.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        Ok(Self::from(OwnedFd::from(stream)))
    }

    /// Gives the socket to std. A socket that the runtime made is in non-blocking mode; see
    /// `std::net::TcpStream::set_nonblocking`.
    ///
    /// # Errors
    ///
    /// [`InUseError`], which has the stream, while an operation that was dropped is not settled yet, and when one, or a
    /// standing receive of [`recv`](Self::recv), has brought bytes that only this stream can return: read first. A standing
    /// receive of another thread is asked to let go: try again a moment later.
    pub fn into_std(self) -> Result<std::net::TcpStream, InUseError> {
        match receiver::into_fd(self.duplex) {
            Ok(fd) => Ok(fd.into()),
            Err(duplex) => Err(InUseError::new(Self::from_duplex(duplex))),
        }
    }

    /// Reads up to the buffer's capacity and returns the count, 0 at the end of the stream. A buffer without capacity
    /// returns 0 at once.
    ///
    /// # Errors
    ///
    /// The socket's own, such as `ConnectionReset`.
    ///
    /// # Cancel safety
    ///
    /// Bytes that had arrived go back to the stream and are what the next read returns; the buffer is dropped.
    ///
    /// # Panics
    ///
    /// When polled outside a runtime.
    #[doc(alias = "IORING_OP_RECV")]
    pub fn read<B: IoBufMut>(&self, buf: B) -> Receive<'_, B> {
        transfer::read(&self.duplex, buf)
    }

    /// Receives what there is, or waits for it, in memory of the runtime's pool; empty at the end of the stream.
    ///
    /// The first call leaves a receive standing: from then on the kernel receives ahead, without a submission per call, into
    /// memory that is packed densely and shared by all connections of the thread. When the program takes the bytes more
    /// slowly than they come, the receive is taken back above a bound (1 MiB, plus what one visit to the kernel brings), and
    /// the peer is held up. A pool that is used up delays nobody: it grows to a bound (64 MiB), beyond which bytes come in
    /// memory of their own.
    ///
    /// Mixes with [`read`](Self::read), [`peek`](Self::peek) and the others in any order; those copy out of what was
    /// received ahead then.
    ///
    /// Needs Linux 6.0 for standing receives; before 6.12 the pool has blocks of 16 KiB, each filled once.
    ///
    /// # Errors
    ///
    /// The socket's own, such as `ConnectionReset`, after the bytes that came before.
    ///
    /// # Cancel safety
    ///
    /// Bytes that arrived stay with the stream.
    ///
    /// # Panics
    ///
    /// When polled outside a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # use runtime_net::{TcpListener, TcpStream};
    /// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (server, _) = listener.accept().await?;
    /// client.write_all("ping").await.0?;
    /// let data = server.recv().await?;
    /// assert_eq!(&data[..], b"ping");
    /// server.write_all(data).await.0?; // as it is; the memory goes back to the pool afterwards
    /// # drop(server);
    /// assert_eq!(&client.recv().await?[..], b"ping");
    /// assert!(client.recv().await?.is_empty());
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    #[doc(alias = "IORING_RECV_MULTISHOT")]
    pub fn recv(&self) -> Recv<'_> {
        receiver::recv(&self.duplex)
    }

    /// What [`recv`](Self::recv) returns, as a stream that ends with the connection.
    ///
    /// ```
    /// # use runtime_net::{TcpListener, TcpStream};
    /// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (server, _) = listener.accept().await?;
    /// # client.write_all("ping").await.0?;
    /// # drop(client);
    /// let mut total = 0;
    /// let mut incoming = server.recv_stream();
    /// while let Some(data) = incoming.next().await {
    ///     total += data?.len();
    /// }
    /// assert_eq!(total, 4);
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    pub fn recv_stream(&self) -> RecvStream<'_> {
        receiver::recv_stream(&self.duplex)
    }

    /// Reads until the buffer's whole capacity is filled.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the stream ends before; the buffer comes back with what came.
    ///
    /// # Cancel safety
    ///
    /// Everything that had arrived goes back to the stream and is what the next read returns. That copies it: a large
    /// message that is to come within many short time limits is better gathered with [`read`](Self::read).
    pub async fn read_exact<B: IoBufMut>(&self, buf: B) -> BufResult<(), B> {
        transfer::read_exact(&self.duplex, buf).await
    }

    /// Reads into several buffers, each filled before the next; at most 1024 are used. No buffer at all returns 0.
    /// One buffer is a plain [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn read_vectored<B: IoBufMut>(&self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        transfer::read_vectored(&self.duplex, bufs).await
    }

    /// Reads without taking: the next read returns the same bytes.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// Takes nothing, so nothing can be lost.
    pub fn peek<B: IoBufMut>(&self, buf: B) -> Receive<'_, B> {
        transfer::peek(&self.duplex, buf)
    }

    /// Writes some of the buffer and returns the count.
    ///
    /// # Errors
    ///
    /// The socket's own, such as `BrokenPipe`; also the error of an earlier write that was dropped. Never a SIGPIPE.
    ///
    /// # Cancel safety
    ///
    /// Any part may have been sent. A later write starts only once this one is over.
    #[doc(alias = "IORING_OP_SEND")]
    pub fn write<B: IoBuf>(&self, buf: B) -> Transmit<'_, B> {
        transfer::write(&self.duplex, buf)
    }

    /// Writes the whole buffer; no other write comes in between.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); some of the buffer may have been sent then.
    ///
    /// # Cancel safety
    ///
    /// Any part may have been sent. A later write starts only once this one is over.
    pub fn write_all<B: IoBuf>(&self, buf: B) -> WriteAll<'_, B> {
        transfer::write_all(&self.duplex, buf)
    }

    /// Writes some of the buffer from where it is, without copying it into the socket, and returns the count. The buffer
    /// comes back when the kernel no longer uses it, which with most devices is when the other side has acknowledged the
    /// data; the next write of the stream need not wait for that, so two buffers in turn keep a connection busy.
    ///
    /// A peer that does not acknowledge keeps the buffer, even when the stream is dropped; one that was dropped with
    /// `set_linger(Some(Duration::ZERO))` gives it back at once.
    ///
    /// It is a plain [`write`](Self::write) below 64 KiB (see [`set_zc_threshold`](Self::set_zc_threshold)), on sockets and
    /// kernels that do not offer it, when the user may not lock more memory (`RLIMIT_MEMLOCK`), and once the kernel has
    /// reported eight times in a row that it had to copy, as it always does on loopback (from 6.2 on).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// Any part may have been sent. A later write starts only once this one is sent; the buffer is dropped when the kernel
    /// no longer uses it. A runtime that ends before waits for that as for any operation, and leaks the buffer if the other
    /// side does not acknowledge in time.
    #[doc(alias = "IORING_OP_SEND_ZC")]
    pub async fn write_zc<B: IoBuf>(&self, buf: B) -> BufResult<usize, B> {
        zero_copy::write(&self.duplex, buf).await
    }

    /// Writes the whole buffer as [`write_zc`](Self::write_zc) does; no other write comes in between.
    ///
    /// # Errors
    ///
    /// As [`write_all`](Self::write_all).
    ///
    /// # Cancel safety
    ///
    /// As [`write_zc`](Self::write_zc).
    ///
    /// # Examples
    ///
    /// ```
    /// # use runtime_net::{TcpListener, TcpStream};
    /// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (peer, _) = listener.accept().await?;
    /// let page = vec![7; 128 * 1024];
    /// let (wrote, read) = futures::join!(stream.write_all_zc(page), peer.read_exact(vec![0; 128 * 1024]));
    /// let (_, page) = wrote.into_result()?; // nobody reads it any more
    /// assert_eq!(read.1, page);
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    #[doc(alias = "IORING_OP_SEND_ZC")]
    pub async fn write_all_zc<B: IoBuf>(&self, buf: B) -> BufResult<(), B> {
        zero_copy::write_all(&self.duplex, buf).await
    }

    /// Sets from how many bytes on [`write_zc`](Self::write_zc) and [`write_all_zc`](Self::write_all_zc) go without a copy
    /// on this stream, whatever the kernel reports about it; `usize::MAX` means never. Where that pays depends on the
    /// device: it saves a copy, and costs pinning the pages, unless they are registered
    /// ([`FixedBufs`](runtime_core::fixed::FixedBufs)), and a second completion. On one that takes all there is, the two are
    /// even between 16 and 32 KiB.
    pub fn set_zc_threshold(&self, bytes: usize) {
        zero_copy::set_threshold(&self.duplex, bytes);
    }

    /// Writes some of several buffers, in order, and returns the count; at most 1024 are used. One buffer is a plain
    /// [`write`](Self::write).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// As [`write`](Self::write).
    pub async fn write_vectored<B: IoBuf>(&self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        transfer::write_vectored(&self.duplex, bufs).await
    }

    /// Writes all of several buffers, in order, however many there are; no other write comes in between.
    ///
    /// # Errors
    ///
    /// As [`write_all`](Self::write_all).
    ///
    /// # Cancel safety
    ///
    /// As [`write_all`](Self::write_all).
    pub async fn write_all_vectored<B: IoBuf>(&self, bufs: Vec<B>) -> BufResult<(), Vec<B>> {
        transfer::write_all_vectored(&self.duplex, bufs).await
    }

    /// Ends one direction or both, inline; the writing side once the writes before it are over.
    ///
    /// # Errors
    ///
    /// `NotConnected` when the connection is gone already, as in std. Calling it twice is harmless.
    ///
    /// # Cancel safety
    ///
    /// Either done or not.
    pub async fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        transfer::shutdown(&self.duplex, how).await
    }

    /// Splits the stream into halves that may go to different tasks. Dropping the writing half ends that direction.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        super::split::split(self)
    }

    /// Address of this side.
    ///
    /// # Errors
    ///
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(self.socket().local_addr()?)
    }

    /// Address of the other side.
    ///
    /// # Errors
    ///
    /// `NotConnected` when it is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        inet(self.socket().peer_addr()?)
    }

    /// Sends small writes at once rather than collecting them (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket().set_tcp_nodelay(nodelay)
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket().tcp_nodelay()
    }

    /// What closing does with unsent data (`SO_LINGER`): `None` sends it in the background, zero resets the connection.
    /// With more than zero, rounded up to whole seconds, a close takes up to that long, so a thread beside does it.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.socket().set_linger(linger.map(whole_seconds))?;
        self.duplex.set_slow_close(linger.is_some_and(|linger| !linger.is_zero()));
        Ok(())
    }

    /// What closing does with unsent data.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.socket().linger()
    }

    /// Has the kernel check the connection once it was idle for so long, rounded up to whole seconds (`SO_KEEPALIVE`,
    /// `TCP_KEEPIDLE`); `None` turns the checks off.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        match idle {
            Some(idle) => self.socket().set_tcp_keepalive(&TcpKeepalive::new().with_time(whole_seconds(idle))),
            None => self.socket().set_keepalive(false),
        }
    }

    /// Whether the kernel checks an idle connection.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn keepalive(&self) -> io::Result<bool> {
        self.socket().keepalive()
    }

    /// Sets the time to live of sent IPv4 packets, in hops, as in std.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.socket().set_ttl_v4(ttl)
    }

    /// Time to live of sent IPv4 packets, in hops.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn ttl(&self) -> io::Result<u32> {
        self.socket().ttl_v4()
    }

    /// Sets the kernel's receive buffer in bytes; the kernel doubles and bounds it.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.socket().set_recv_buffer_size(bytes)
    }

    /// The kernel's receive buffer in bytes.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        self.socket().recv_buffer_size()
    }

    /// Sets the kernel's send buffer in bytes; the kernel doubles and bounds it.
    ///
    /// # Errors
    ///
    /// Those of setsockopt(2).
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.socket().set_send_buffer_size(bytes)
    }

    /// The kernel's send buffer in bytes.
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        self.socket().send_buffer_size()
    }

    /// Takes the socket's pending error (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket().take_error()
    }
}

/// Rounded up, and no more than the kernel's 32 bits hold: rounding down to nothing would mean something else.
fn whole_seconds(time: Duration) -> Duration {
    const MAX: u64 = i16::MAX as u64;
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    Duration::from_secs(seconds.min(MAX))
}

pub(crate) fn inet(addr: socket2::SockAddr) -> io::Result<SocketAddr> {
    addr.as_socket().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "this is not an internet socket"))
}

async fn connect_to(addr: SocketAddr) -> io::Result<TcpStream> {
    let kind = Type::STREAM.cloexec().nonblocking();
    let socket = Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP))?;
    let (result, fd) = submit(Connect::new(socket.into(), addr)).await;
    match result {
        Ok(()) => Ok(TcpStream::connected(fd)),
        // The ring waits for the connection by itself; should a kernel not, the socket says when it is there.
        Err(error) if is_under_way(&error) => {
            let (events, fd) = ready(fd, POLLOUT).await;
            events?;
            match SockRef::from(&fd).take_error()? {
                Some(error) => Err(error),
                None => Ok(TcpStream::connected(fd)),
            }
        }
        Err(error) => Err(error),
    }
}

fn is_under_way(error: &io::Error) -> bool {
    const EALREADY: i32 = 114;
    const EINPROGRESS: i32 = 115;
    matches!(error.raw_os_error(), Some(EALREADY | EINPROGRESS))
}

impl Source for TcpStream {
    fn source(&self) -> End<'_> {
        End { duplex: &self.duplex, what: What::Socket }
    }
}

impl Sink for TcpStream {
    fn sink(&self) -> End<'_> {
        End { duplex: &self.duplex, what: What::Socket }
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream").field("fd", &self.as_raw_fd()).finish()
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.duplex.as_fd()
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.duplex.as_fd().as_raw_fd()
    }
}

/// Takes over a connected socket.
impl From<OwnedFd> for TcpStream {
    fn from(fd: OwnedFd) -> Self {
        let (lingers, connected) = (lingers(&fd), sys::has_connected(fd.as_raw_fd()));
        let stream = Self::accepted(fd, lingers);
        if connected {
            stream.duplex.set_connected();
        }
        stream
    }
}

/// Whether closing this socket waits for unsent data.
pub(crate) fn lingers(fd: &OwnedFd) -> bool {
    matches!(SockRef::from(fd).linger(), Ok(Some(time)) if !time.is_zero())
}

/// The stream is still in use; see [`TcpStream::into_std`].
#[derive(Debug)]
pub struct InUseError<S = TcpStream> {
    stream: S,
}

impl<S> InUseError<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream }
    }

    /// The stream, unchanged.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S> fmt::Display for InUseError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stream is in use by an operation, or holds what one has left: bytes or an error that the next read or write returns")
    }
}

impl<S: fmt::Debug> std::error::Error for InUseError<S> {}

impl<S> From<InUseError<S>> for io::Error {
    fn from(error: InUseError<S>) -> Self {
        // The stream is not `Sync`, so it cannot travel inside.
        Self::new(io::ErrorKind::ResourceBusy, error.to_string())
    }
}
