//! TCP and Unix sockets for the `runtime` crate.
//!
//! Owns sockets, their options and names; the machine behind them is `runtime-core`.
#![forbid(unsafe_code)]

mod addr;
mod tcp;
mod traits;
mod transfer;
mod unix;

pub use runtime_core::receiver::{Recv, RecvStream};

pub use addr::{ToSocketAddrs, lookup_host};
pub use tcp::dispatch::Dispatch;
pub use tcp::listener::{Accept, Incoming, ListenerOptions, TcpListener};
pub use tcp::split::{OwnedReadHalf, OwnedWriteHalf, ReuniteError};
pub use tcp::stream::{InUseError, TcpStream};
pub use transfer::{Receive, Transmit, WriteAll};
pub use unix::listener::UnixListener;
pub use unix::stream::UnixStream;

#[doc(hidden)]
pub mod testing {
    pub use crate::addr::set_resolver;
}
