//! What both ends of a pipe can do beside reading and writing: attempts, readiness, sizes, conversions; and [`Builder`].
//!
//! Owns nothing; knows nothing of files that have a name.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

use runtime_core::buf::{self, BufResult, IoBuf, IoBufMut};
use runtime_core::coop;
use runtime_core::duplex::{Direction, Duplex};
use runtime_core::ladder::{read_inline, ready};
use runtime_core::op::Kind;
use runtime_core::op::poll_add::{POLLIN, POLLOUT};
use runtime_core::sys::{self, pipes};

use crate::{PIPE_BUF, Receiver, Sender, is_ours, is_over, seen, serve};

/// Makes pipes of a size or kind of its own.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let (tx, rx) = runtime_pipe::Builder::new().capacity(256 << 10).packets(true).build()?;
/// assert!(tx.capacity()? >= 256 << 10);
/// tx.write("one").await.0?;
/// tx.write("two").await.0?;
/// assert_eq!(rx.read(Vec::with_capacity(64)).await.1, b"one");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Builder {
    capacity: Option<usize>,
    packets: bool,
}

impl Builder {
    /// A pipe as [`pipe`](crate::pipe()) makes it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that the pipe holds, in whole pages (`F_SETPIPE_SZ`); the kernel rounds up. 64 KiB by default, on most
    /// machines.
    pub fn capacity(mut self, bytes: usize) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Packet mode (`O_DIRECT`): each write of up to 4096 bytes is a packet, and a read returns one. What of a packet does
    /// not fit into the reader's buffer is lost.
    pub fn packets(mut self, packets: bool) -> Self {
        self.packets = packets;
        self
    }

    /// Makes the pipe.
    ///
    /// # Errors
    ///
    /// Those of pipe2(2); `PermissionDenied` for a capacity above `/proc/sys/fs/pipe-max-size`, or when the user has too
    /// many large pipes.
    pub fn build(&self) -> io::Result<(Sender, Receiver)> {
        let (rx, tx) = if self.packets { pipes::packet_pipe()? } else { sys::pipe()? };
        if let Some(bytes) = self.capacity {
            pipes::set_pipe_capacity(tx.as_fd(), bytes)?;
        }
        Ok((Sender::new(tx, true), Receiver::new(rx, true)))
    }
}

impl Sender {
    /// Writes what fits now, and returns the count.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the pipe is full or another write is under way; `BrokenPipe` when nobody reads.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub fn try_write<B: IoBuf>(&self, buf: B) -> BufResult<usize, B> {
        coop::block_sigpipe();
        coop::assert_same_process();
        let result = self.attempt(buf::bytes(&buf));
        BufResult(result, buf)
    }

    fn attempt(&self, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        let mut held = self.duplex.try_acquire(Direction::Write).ok_or(io::ErrorKind::WouldBlock)?;
        held.check()?;
        let data = if is_ours(&self.duplex) {
            data
        } else if sys::is_ready(held.as_fd().as_raw_fd(), POLLOUT)? {
            &data[..data.len().min(PIPE_BUF)]
        } else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let written = pipes::write(held.as_fd(), data).map_err(seen)?;
        coop::done_inline(Kind::Write, written);
        Ok(written)
    }

    /// Waits until there is room, or nobody reads any more. A hint: somebody else may use the room.
    ///
    /// # Errors
    ///
    /// `ECANCELED` when the runtime is closing.
    ///
    /// # Cancel safety
    ///
    /// Writes nothing.
    #[doc(alias = "IORING_OP_POLL_ADD")]
    pub async fn writable(&self) -> io::Result<()> {
        ready(Arc::clone(&self.duplex), POLLOUT).await.0.map(drop)
    }
}

impl Receiver {
    /// Reads what there is now, and returns the count, 0 at the end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the pipe is empty or another read is under way.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub fn try_read<B: IoBufMut>(&self, mut buf: B) -> BufResult<usize, B> {
        coop::assert_same_process();
        let result = self.attempt(&mut buf);
        BufResult(result, buf)
    }

    fn attempt<B: IoBufMut>(&self, buf: &mut B) -> io::Result<usize> {
        if buf.capacity() == 0 {
            return Ok(0);
        }
        let mut held = self.duplex.try_acquire(Direction::Read).ok_or(io::ErrorKind::WouldBlock)?;
        if let Some(result) = serve(&mut held, buf, 0, false, self.what) {
            return result;
        }
        if !is_ours(&self.duplex) && !sys::is_ready(held.as_fd().as_raw_fd(), POLLIN)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let read = read_inline(held.as_fd(), buf, 0)?;
        if read == 0 && !is_over(held.as_fd()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        coop::done_inline(Kind::Read, read);
        Ok(read)
    }

    /// Waits until there is something to read, or no writer any more. A hint: somebody else may take it.
    ///
    /// # Errors
    ///
    /// `ECANCELED` when the runtime is closing.
    ///
    /// # Cancel safety
    ///
    /// Takes nothing.
    #[doc(alias = "IORING_OP_POLL_ADD")]
    pub async fn readable(&self) -> io::Result<()> {
        // That a dropped read met the end is asked of the pipe again.
        if self.duplex.has_residue(Direction::Read)
            && (self.duplex.has_more_than_the_end(Direction::Read) || is_over(self.as_fd()))
        {
            return Ok(());
        }
        ready(Arc::clone(&self.duplex), POLLIN).await.0.map(drop)
    }

    /// Bytes in the pipe (`FIONREAD`), without what a dropped read has left for the next one.
    ///
    /// # Errors
    ///
    /// Those of ioctl(2).
    #[doc(alias = "FIONREAD")]
    pub fn available(&self) -> io::Result<usize> {
        pipes::available(self.as_fd())
    }
}

macro_rules! both {
    ($($end:ident, $direction:literal;)*) => {$(
        impl $end {
            /// Bytes that the pipe holds when they come in whole pages (`F_GETPIPE_SZ`).
            ///
            /// # Errors
            ///
            /// Those of fcntl(2).
            #[doc(alias = "F_GETPIPE_SZ")]
            pub fn capacity(&self) -> io::Result<usize> {
                pipes::pipe_capacity(self.as_fd())
            }

            /// Has the pipe hold so many bytes, and returns what the kernel made of it, which rounds up.
            ///
            /// # Errors
            ///
            /// `PermissionDenied` above `/proc/sys/fs/pipe-max-size`, or when the user has too many large pipes;
            /// `ResourceBusy` when more is in it now.
            #[doc(alias = "F_SETPIPE_SZ")]
            pub fn set_capacity(&self, bytes: usize) -> io::Result<usize> {
                pipes::set_pipe_capacity(self.as_fd(), bytes)
            }

            #[doc = concat!("Takes over the ", $direction, " end of a pipe, whoever made it.")]
            ///
            /// One in blocking mode is opened again for a mode of its own, so that other holders see no difference.
            /// Where that fails, operations go through the ring, which waits in either mode.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for what is no pipe.
            pub fn from_owned_fd(fd: OwnedFd) -> io::Result<Self> {
                let file = std::fs::File::from(fd);
                if !file.metadata()?.file_type().is_fifo() {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a pipe"));
                }
                let fd = OwnedFd::from(file);
                Ok(match pipes::reopen(fd.as_fd()) {
                    Ok(own) => Self::new(own, true),
                    Err(_) => Self::from(fd),
                })
            }

            /// Gives the descriptor away, in blocking mode as std and child processes expect it.
            ///
            /// # Errors
            ///
            /// `ResourceBusy` while an operation that was dropped is not settled, or when one has left something that only
            /// this end can return; the end is closed then.
            pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
                let ours = is_ours(&self.duplex);
                let fd = Duplex::into_fd(self.duplex).map_err(|_| io::ErrorKind::ResourceBusy)?;
                if ours {
                    pipes::set_nonblocking(fd.as_fd(), false)?;
                }
                Ok(fd)
            }
        }

        /// Takes a pipe over as it is: nothing is checked, and the mode stays. See `from_owned_fd`.
        impl From<OwnedFd> for $end {
            fn from(fd: OwnedFd) -> Self {
                Self::new(fd, false)
            }
        }
    )*};
}

both! {
    Sender, "writing";
    Receiver, "reading";
}
