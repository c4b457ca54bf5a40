//! Reading and writing with owned buffers, whatever the source: the traits, what is built on them, and the sources that
//! need no kernel.
//!
//! Owns the traits [`AsyncRead`], [`AsyncBufRead`] and [`AsyncWrite`] with their extensions, the buffered wrappers and
//! the copying loops. Knows nothing of sockets, pipes or rings: those implement the traits where they are at home.
//!
//! # Rules
//!
//! 1. **Buffers move in and come back.** What the kernel may touch is taken by value and returned with the result.
//!    What only this code touches (`read_until`, `read_to_end`) is borrowed, as in std.
//! 2. **A dropped read takes nothing.** Every `read` here, dropped at any await, leaves its bytes where the next read
//!    finds them. Whatever needs several reads either gathers inside a reader that keeps them ([`AsyncBufRead`]), or
//!    says in its `# Cancel safety` what it loses.
//! 3. **Counts of foreign code are hints.** A stream of the user's may lie; a count is used only up to what the buffer
//!    itself says, so that no lie ends in a panic or in a loop without end.
//! 4. **Memory that a peer decides on is asked for**, never assumed: growing fails with `OutOfMemory`.

mod buf_read;
mod buf_reader;
mod buf_stream;
mod buf_writer;
mod chain;
mod copy;
mod copy_bidirectional;
mod lines;
mod memory;
mod numbers;
mod read;
mod read_ext;
mod take;
mod trivial;
mod write;

use std::future::poll_fn;
use std::io;

use crate::context::{self, Proceed};

pub use buf_read::{AsyncBufRead, AsyncBufReadExt};
pub use buf_reader::BufReader;
pub use buf_stream::BufStream;
pub use buf_writer::{BufWriter, IntoInnerError};
pub use chain::Chain;
pub use copy::{copy, copy_buf};
pub use copy_bidirectional::copy_bidirectional;
pub use lines::{Lines, LinesStream, Split};
pub use numbers::AsyncWriteExt;
pub use read::AsyncRead;
pub use read_ext::AsyncReadExt;
pub use take::Take;
pub use trivial::{Empty, Repeat, Sink, empty, repeat, sink};
pub use write::AsyncWrite;

/// All traits of this module, for `use …::prelude::*`.
pub mod prelude {
    pub use super::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
}

/// Bytes that buffered readers and writers and the copying loops move at a time: with 16 KiB the CPU time of bulk
/// transfers doubles, with 256 KiB it grows again.
const CHUNK_BYTES: usize = 64 * 1024;

/// Makes room for `more` bytes behind what is in `buf`; growing is amortised.
fn reserve(buf: &mut Vec<u8>, more: usize) -> io::Result<()> {
    buf.try_reserve(more).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// An empty buffer of `len` bytes.
fn allocate(len: usize) -> io::Result<Vec<u8>> {
    let mut buf = Vec::new();
    match buf.try_reserve_exact(len) {
        Ok(()) => Ok(buf),
        Err(_) => Err(io::ErrorKind::OutOfMemory.into()),
    }
}

/// Spends an operation of `bytes` that needs no kernel, once the task has budget for one. What is read out of a buffer
/// counts too: a peer that sends 64 KiB of short requests would otherwise have them all answered in one poll.
async fn spend(bytes: usize) {
    let mut proceed = Proceed::default();
    poll_fn(|task| proceed.poll(task)).await;
    context::with(|cx| cx.spend(bytes));
}

fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}
