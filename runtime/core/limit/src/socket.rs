//! Listeners for servers and connected or prepared sockets for the load; loopback only.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// Room for a whole burst: a listener of std has 128.
const BACKLOG: i32 = 4096;
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// A blocking listener on 127.0.0.1 whose connections inherit TCP_NODELAY, the same for every server measured.
///
/// # Errors
/// The port is taken, or a system call fails.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A connection to `to`.
///
/// # Errors
/// Nobody listens there, or not in time.
pub fn connect(to: SocketAddrV4) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to.into(), CONNECT_PATIENCE)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Takes up to `len` bytes off a connection without copying them anywhere, and returns the count; never waits.
///
/// # Errors
/// Those of recv(2), `WouldBlock` among them.
pub fn discard(stream: &TcpStream, len: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket writes nothing to the buffer, and it is none.
    let n = unsafe { libc::recv(stream.as_raw_fd(), ptr::null_mut(), len, libc::MSG_TRUNC | libc::MSG_DONTWAIT) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// How a prepared socket ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// With a FIN. If it is the first of the two, the connection waits out its TIME_WAIT on this side.
    Orderly,
    /// With a reset, which for a peer that has closed before only ends *its* TIME_WAIT: the kernel's table of these is
    /// bounded, and a run that fills it measures two different kernels, one before and one after.
    Reset,
}

/// Makes sockets that are ready to connect, each with a source address and port of its own.
///
/// Left to itself the kernel searches a port on every connect, and the longer the more connections wait out their
/// TIME_WAIT. So the sockets are bound before the clock starts, and the source address moves on through 127/8.
#[derive(Debug, Default)]
pub struct Dialer {
    made: u32,
}

impl Dialer {
    const PER_ADDRESS: u32 = 256;

    /// Makes one socket.
    ///
    /// # Errors
    /// A system call fails.
    pub fn socket(&mut self, close: Close) -> io::Result<OwnedFd> {
        let [_, high, middle, low] = (self.made / Self::PER_ADDRESS).to_be_bytes();
        self.made += 1;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        if close == Close::Reset {
            socket.set_linger(Some(Duration::ZERO))?;
        }
        // 127.0.0.0/16 is left to everybody else.
        socket.bind(&SocketAddrV4::new(Ipv4Addr::new(127, 1 + high % 128, middle, low), 0).into())?;
        Ok(socket.into())
    }
}
