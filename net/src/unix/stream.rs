//! [`UnixStream`].

use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use runtime_core::buf::{BufResult, IoBuf, IoBufMut};
use runtime_core::duplex::{Duplex, Reader};
use runtime_core::ends::{End, Sink, Source, What};
use runtime_core::ladder::offload;
use runtime_core::op::Kind;
use runtime_core::receiver::{self, Recv, RecvStream};
use socket2::{Domain, SockRef, Socket, Type};

use crate::InUseError;
use crate::transfer::{self, Receive, Transmit, WriteAll};

/// A connection between two processes of one machine.
///
/// What [`TcpStream`](crate::TcpStream) says of sharing, order, dropped operations and threads holds here too.
///
/// # Examples
///
/// ```
/// use runtime_net::UnixStream;
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let (a, b) = UnixStream::pair()?;
/// a.write_all("ping").await.0?;
/// assert_eq!(b.read(Vec::with_capacity(64)).await.1, b"ping");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct UnixStream {
    duplex: Reader,
    /// As in [`TcpStream`](crate::TcpStream).
    _not_sync: PhantomData<Cell<()>>,
}

impl UnixStream {
    /// Two streams that are connected to each other.
    ///
    /// # Errors
    ///
    /// Those of socketpair(2).
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = Socket::pair(Domain::UNIX, Type::STREAM.cloexec().nonblocking(), None)?;
        Ok((Self::from(OwnedFd::from(a)), Self::from(OwnedFd::from(b))))
    }

    /// Connects to whoever listens at a name in the file system, on the blocking pool: the kernel looks the name up, and
    /// waits while the backlog of the other side is full.
    ///
    /// # Errors
    ///
    /// Those of connect(2): `ConnectionRefused` when nobody listens there, `NotFound` when there is no such name.
    ///
    /// # Cancel safety
    ///
    /// The other side may see a connection that ends at once.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let stream = offload(Kind::Connect, move || std::os::unix::net::UnixStream::connect(path)).await?;
        stream.set_nonblocking(true)?;
        Self::from_std(stream)
    }

    /// Takes over a connected socket of std, in blocking or non-blocking mode; the mode is left as it is.
    ///
    /// # Errors
    ///
    /// None today; fallible like std's and tokio's conversions.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        Ok(Self::from(OwnedFd::from(stream)))
    }

    /// Gives the socket to std. A socket that the runtime made is in non-blocking mode.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::into_std`](crate::TcpStream::into_std).
    pub fn into_std(self) -> Result<std::os::unix::net::UnixStream, InUseError<Self>> {
        match receiver::into_fd(self.duplex) {
            Ok(fd) => Ok(fd.into()),
            Err(duplex) => Err(InUseError::new(Self { duplex: Reader::new(duplex), _not_sync: PhantomData })),
        }
    }

    /// See [`TcpStream::read`](crate::TcpStream::read).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn read<B: IoBufMut>(&self, buf: B) -> Receive<'_, B> {
        transfer::read(&self.duplex, buf)
    }

    /// See [`TcpStream::recv`](crate::TcpStream::recv).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn recv(&self) -> Recv<'_> {
        receiver::recv(&self.duplex)
    }

    /// See [`TcpStream::recv_stream`](crate::TcpStream::recv_stream).
    pub fn recv_stream(&self) -> RecvStream<'_> {
        receiver::recv_stream(&self.duplex)
    }

    /// See [`TcpStream::read_exact`](crate::TcpStream::read_exact).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn read_exact<B: IoBufMut>(&self, buf: B) -> BufResult<(), B> {
        transfer::read_exact(&self.duplex, buf).await
    }

    /// See [`TcpStream::read_vectored`](crate::TcpStream::read_vectored).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn read_vectored<B: IoBufMut>(&self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        transfer::read_vectored(&self.duplex, bufs).await
    }

    /// See [`TcpStream::peek`](crate::TcpStream::peek).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn peek<B: IoBufMut>(&self, buf: B) -> Receive<'_, B> {
        transfer::peek(&self.duplex, buf)
    }

    /// See [`TcpStream::write`](crate::TcpStream::write).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn write<B: IoBuf>(&self, buf: B) -> Transmit<'_, B> {
        transfer::write(&self.duplex, buf)
    }

    /// See [`TcpStream::write_all`](crate::TcpStream::write_all).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn write_all<B: IoBuf>(&self, buf: B) -> WriteAll<'_, B> {
        transfer::write_all(&self.duplex, buf)
    }

    /// See [`TcpStream::write_vectored`](crate::TcpStream::write_vectored).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn write_vectored<B: IoBuf>(&self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        transfer::write_vectored(&self.duplex, bufs).await
    }

    /// See [`TcpStream::write_all_vectored`](crate::TcpStream::write_all_vectored).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn write_all_vectored<B: IoBuf>(&self, bufs: Vec<B>) -> BufResult<(), Vec<B>> {
        transfer::write_all_vectored(&self.duplex, bufs).await
    }

    /// Ends one direction or both, inline; the writing side once the writes before it are over.
    ///
    /// # Errors
    ///
    /// Those of shutdown(2). Calling it twice is harmless.
    ///
    /// # Cancel safety
    ///
    /// Either done or not.
    pub async fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        transfer::shutdown(&self.duplex, how).await
    }

    /// The name of this side; most streams have none.
    ///
    /// # Errors
    ///
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix(SockRef::from(&**self.duplex).local_addr()?)
    }

    /// The name of the other side; most streams have none.
    ///
    /// # Errors
    ///
    /// Those of getpeername(2).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        unix(SockRef::from(&**self.duplex).peer_addr()?)
    }

    /// Takes the socket's pending error (`SO_ERROR`).
    ///
    /// # Errors
    ///
    /// Those of getsockopt(2).
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        SockRef::from(&**self.duplex).take_error()
    }
}

fn unix(addr: socket2::SockAddr) -> io::Result<SocketAddr> {
    if addr.is_unnamed() {
        return SocketAddr::from_pathname("");
    }
    addr.as_unix().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "this is not a Unix socket"))
}

impl Source for UnixStream {
    fn source(&self) -> End<'_> {
        End { duplex: &self.duplex, what: What::Socket }
    }
}

impl Sink for UnixStream {
    fn sink(&self) -> End<'_> {
        End { duplex: &self.duplex, what: What::Socket }
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixStream").field("fd", &self.as_raw_fd()).finish()
    }
}

impl AsFd for UnixStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.duplex.as_fd()
    }
}

impl AsRawFd for UnixStream {
    fn as_raw_fd(&self) -> RawFd {
        self.duplex.as_fd().as_raw_fd()
    }
}

/// Takes over a connected socket.
impl From<OwnedFd> for UnixStream {
    fn from(fd: OwnedFd) -> Self {
        Self { duplex: Reader::new(Duplex::new(fd)), _not_sync: PhantomData }
    }
}
