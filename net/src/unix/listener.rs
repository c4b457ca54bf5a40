//! [`UnixListener`].

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use runtime_core::foreign::Async;
use runtime_core::ladder::offload;
use runtime_core::op::Kind;

use super::stream::UnixStream;

/// A Unix socket that listens for connections.
///
/// It polls for connections and takes them with accept4(2): unlike [`TcpListener`](crate::TcpListener) it has no standing
/// accept, and takes nothing ahead of its program. Dropping it leaves the name in the file system, as std does.
///
/// # Examples
///
/// ```
/// use runtime_net::{UnixListener, UnixStream};
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// # let path = std::env::temp_dir().join(format!("runtime-unix-listener-{}", std::process::id()));
/// let listener = UnixListener::bind(&path).await?;
/// let client = UnixStream::connect(&path).await?;
/// let (server, _) = listener.accept().await?;
/// # std::fs::remove_file(&path)?;
/// client.write_all("ping").await.0?;
/// assert_eq!(&server.recv().await?[..], b"ping");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct UnixListener {
    inner: Async<std::os::unix::net::UnixListener>,
}

impl UnixListener {
    /// Makes a name in the file system and listens there, on the blocking pool. A backlog of std's size.
    ///
    /// # Errors
    ///
    /// `AddrInUse` when the name exists, also if nobody listens there any more; those of bind(2).
    ///
    /// # Cancel safety
    ///
    /// The name may have been made, without anybody listening there.
    pub async fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let listener = offload(Kind::Other, move || std::os::unix::net::UnixListener::bind(path)).await?;
        Self::from_std(listener)
    }

    /// Takes over a listening socket of std, and sets it to non-blocking mode.
    ///
    /// # Errors
    ///
    /// Those of fcntl(2); `Unsupported` for what cannot be polled.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { inner: Async::new(listener)? })
    }

    /// Gives the socket to std; it is in non-blocking mode.
    pub fn into_std(self) -> std::os::unix::net::UnixListener {
        self.inner.into_inner()
    }

    /// Waits for the next connection and returns it with the name of the other side, which most do not have. Several tasks
    /// may wait.
    ///
    /// # Errors
    ///
    /// Those of accept(2), such as `EMFILE`: the connection stays in the backlog then.
    ///
    /// # Cancel safety
    ///
    /// No connection is lost: one is taken as the future completes.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, addr) = self.inner.read_with(|listener| listener.accept()).await?;
        stream.set_nonblocking(true)?;
        Ok((UnixStream::from_std(stream)?, addr))
    }

    /// The name it listens at.
    ///
    /// # Errors
    ///
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.get_ref().local_addr()
    }
}

impl AsFd for UnixListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixListener").field("addr", &self.local_addr().ok()).finish()
    }
}
