//! The standard streams: [`stdin`], [`stdout`], [`stderr`].
//!
//! Owns what they are found to be, and the one state of each that a process has. Knows nothing of how pipes are read
//! and written: they are used as the ends of one, whatever they are.
//!
//! | it is | how it is used |
//! |---|---|
//! | a pipe | opened again for a non-blocking description of our own; where that fails, and of a FIFO with a name, the ring waits |
//! | a socket | RECV and SEND on the ring, which wait in either mode |
//! | a terminal | as a pipe; where it cannot be opened again a kernel worker writes |
//! | a file, a device | READ and WRITE on the ring, where the shared position is |

use std::fmt;
use std::future::Future;
use std::io::{self, IsTerminal};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use runtime_core::buf::{BufResult, IoBuf, IoBufMut};
use runtime_core::duplex::Duplex;
use runtime_core::ends::{End, Sink, Source, View, What};
use runtime_core::io::{AsyncRead, AsyncWrite};
use runtime_core::sys::pipes;

use crate::{MAY_BLOCK, OURS, Receiver, Sender};

/// A stream of the process: what a dropped read has left of it is the next one's, wherever that is.
struct Standard(OnceLock<(Arc<Duplex>, What)>);

static STDIN: Standard = Standard(OnceLock::new());
static STDOUT: Standard = Standard(OnceLock::new());
static STDERR: Standard = Standard(OnceLock::new());

impl Standard {
    fn open(&self, fd: BorrowedFd<'_>) -> io::Result<(Arc<Duplex>, What)> {
        if let Some((duplex, what)) = self.0.get() {
            return Ok((Arc::clone(duplex), *what));
        }
        let (fd, what, note) = look_at(fd)?;
        let duplex = Duplex::new(fd);
        duplex.note().store(note, Ordering::Relaxed);
        // Another thread may have been faster.
        let (duplex, what) = self.0.get_or_init(|| (duplex, what));
        Ok((Arc::clone(duplex), *what))
    }
}

/// A descriptor for it, never with another mode for those who share it (ruling 7).
fn look_at(fd: BorrowedFd<'_>) -> io::Result<(OwnedFd, What, u64)> {
    let copy = std::fs::File::from(fd.try_clone_to_owned()?);
    let kind = copy.metadata()?.file_type();
    if kind.is_fifo() {
        return Ok(match pipes::reopen(fd) {
            Ok(own) => (own, What::Pipe, OURS),
            Err(_) => (copy.into(), What::Pipe, 0),
        });
    }
    if kind.is_socket() {
        return Ok((copy.into(), What::Socket, 0));
    }
    if copy.is_terminal() {
        return Ok(match pipes::reopen(fd) {
            Ok(own) => (own, What::Other, 0),
            Err(_) => (copy.into(), What::Other, MAY_BLOCK),
        });
    }
    Ok((copy.into(), What::Other, 0))
}

/// The standard input, whatever it is.
///
/// Nothing is buffered beside what a dropped read has left, so it mixes with a child process that reads the same input,
/// and not with [`std::io::stdin`], which reads ahead. All handles of the process are one: reads are carried out one
/// after the other, and a dropped one leaves its bytes to the next. It is what it was when it was first asked for here;
/// a later `dup2` onto the descriptor is not noticed.
///
/// # Errors
///
/// `EBADF` when it was closed (std opens `/dev/null` in the place of one that was closed at the start of the program);
/// `EMFILE`, as it takes a descriptor of its own.
///
/// # Examples
///
/// ```no_run
/// use runtime::io::{AsyncBufReadExt, BufReader, stdin, stdout};
///
/// # async fn f() -> std::io::Result<()> {
/// let out = stdout()?;
/// let mut lines = BufReader::new(stdin()?).lines();
/// while let Some(line) = lines.next_line().await? {
///     out.write_all(line.to_uppercase() + "\n").await.0?;
/// }
/// # Ok(())
/// # }
/// ```
pub fn stdin() -> io::Result<Stdin> {
    let (duplex, what) = STDIN.open(std::io::stdin().as_fd())?;
    Ok(Stdin(Receiver { duplex, what, _not_sync: PhantomData }))
}

/// The standard output, whatever it is.
///
/// Nothing is held back: a write that is over is in the pipe, the file or the terminal. What `print!` holds back until
/// the end of the line is apart from it. All handles of the process are one: a whole write of one does not mix with
/// another's.
///
/// # Errors
///
/// As [`stdin`].
pub fn stdout() -> io::Result<Stdout> {
    let (duplex, what) = STDOUT.open(std::io::stdout().as_fd())?;
    Ok(Stdout(Sender { duplex, what, _not_sync: PhantomData }))
}

/// The standard error, whatever it is; otherwise like [`stdout`].
///
/// # Errors
///
/// As [`stdin`].
pub fn stderr() -> io::Result<Stderr> {
    let (duplex, what) = STDERR.open(std::io::stderr().as_fd())?;
    Ok(Stderr(Sender { duplex, what, _not_sync: PhantomData }))
}

/// The standard input of the process; from [`stdin`].
pub struct Stdin(Receiver);

/// The standard output of the process; from [`stdout`].
pub struct Stdout(Sender);

/// The standard error of the process; from [`stderr`].
pub struct Stderr(Sender);

impl Stdin {
    /// Reads up to the buffer's capacity and returns the count, 0 at the end. A terminal gives a line at a time.
    ///
    /// # Errors
    ///
    /// Those of read(2).
    ///
    /// # Cancel safety
    ///
    /// Bytes that were taken are what the next read returns, on whichever handle.
    #[doc(alias = "IORING_OP_READ")]
    pub async fn read<B: IoBufMut>(&self, buf: B) -> BufResult<usize, B> {
        self.0.read(buf).await
    }

    /// Reads into several buffers, in order, and returns the count, 0 at the end; at most 1024 are used.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn read_vectored<B: IoBufMut>(&self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        self.0.read_vectored(bufs).await
    }

    /// Reads until the buffer's whole capacity is filled; no other read comes in between.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the input ends before; the buffer comes back with what came.
    ///
    /// # Cancel safety
    ///
    /// What was taken is what the next read returns.
    pub async fn read_exact<B: IoBufMut>(&self, buf: B) -> BufResult<(), B> {
        self.0.read_exact(buf).await
    }
}

impl AsyncRead for Stdin {
    fn read<B: IoBufMut>(&mut self, buf: B) -> impl Future<Output = BufResult<usize, B>> {
        self.0.read(buf)
    }

    fn read_vectored<B: IoBufMut>(&mut self, bufs: Vec<B>) -> impl Future<Output = BufResult<usize, Vec<B>>> {
        self.0.read_vectored(bufs)
    }

    fn read_exact<B: IoBufMut>(&mut self, buf: B) -> impl Future<Output = BufResult<(), B>> {
        self.0.read_exact(buf)
    }

    fn read_view(&mut self) -> View<'_> {
        View::Stream(self.source())
    }
}

impl Source for Stdin {
    fn source(&self) -> End<'_> {
        self.0.source()
    }
}

impl AsFd for Stdin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdin").field("what", &self.0.what).finish_non_exhaustive()
    }
}

macro_rules! outputs {
    ($($name:ident)*) => {$(
        impl $name {
            /// Writes some of the buffer and returns the count.
            ///
            /// # Errors
            ///
            /// Those of write(2); `BrokenPipe` when nobody reads, never a SIGPIPE.
            ///
            /// # Cancel safety
            ///
            /// Any part may have been written. A later write starts only once this one is over.
            #[doc(alias = "IORING_OP_WRITE")]
            pub async fn write<B: IoBuf>(&self, buf: B) -> BufResult<usize, B> {
                self.0.write(buf).await
            }

            /// Writes some of several buffers, in order, and returns the count; at most 1024 are used.
            ///
            /// # Errors
            ///
            /// As [`write`](Self::write).
            ///
            /// # Cancel safety
            ///
            /// As [`write`](Self::write).
            pub async fn write_vectored<B: IoBuf>(&self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
                self.0.write_vectored(bufs).await
            }

            /// Writes the whole buffer; no other write of this process's handles comes in between.
            ///
            /// # Errors
            ///
            /// As [`write`](Self::write); some of the buffer may have been written then.
            ///
            /// # Cancel safety
            ///
            /// As [`write`](Self::write).
            pub async fn write_all<B: IoBuf>(&self, buf: B) -> BufResult<(), B> {
                self.0.write_all(buf).await
            }
        }

        /// Nothing is held back, so `flush` has nothing to do. Nor has `shutdown`: others may have the stream as well.
        impl AsyncWrite for $name {
            fn write<B: IoBuf>(&mut self, buf: B) -> impl Future<Output = BufResult<usize, B>> {
                self.0.write(buf)
            }

            fn write_vectored<B: IoBuf>(&mut self, bufs: Vec<B>) -> impl Future<Output = BufResult<usize, Vec<B>>> {
                self.0.write_vectored(bufs)
            }

            fn write_all<B: IoBuf>(&mut self, buf: B) -> impl Future<Output = BufResult<(), B>> {
                self.0.write_all(buf)
            }

            async fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }

            async fn shutdown(&mut self) -> io::Result<()> {
                Ok(())
            }

            fn write_view(&mut self) -> Option<End<'_>> {
                Some(self.sink())
            }
        }

        impl Sink for $name {
            fn sink(&self) -> End<'_> {
                self.0.sink()
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("what", &self.0.what).finish_non_exhaustive()
            }
        }
    )*};
}

outputs!(Stdout Stderr);
