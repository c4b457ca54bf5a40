//! Copies a file: eight pieces at a time, each read and written at its own offset, with the progress on a terminal.
//!
//! ```text
//! cargo run --release --example cp -- FROM TO     # as cp(1): contents and permissions
//! ```
//!
//! It shows operations on one file that run side by side through `&File`, and that the end of a file is where reading says
//! so: the length is asked for the progress only, so files in /proc come out whole.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::rc::Rc;

use runtime::fs::{File, OpenOptions};
use runtime::io::{BufResult, IoBuf};

const PIECE_BYTES: usize = 512 * 1024;
const AT_ONCE: usize = 8;

/// What the pieces share; they are tasks of one thread.
struct Copy {
    from: File,
    to: File,
    /// Where the next piece starts.
    next: Cell<u64>,
    /// Where the file ended, as far as is known.
    end: Cell<u64>,
    done: Cell<u64>,
    total: u64,
}

#[runtime::main]
async fn main() -> io::Result<()> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, to] = &args[..] else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: cp FROM TO"));
    };
    let from = File::open(from).await?;
    let source = from.metadata().await?;
    if source.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // Not emptied before it is known to be another file.
    let to = OpenOptions::new().write(true).create(true).open(to).await?;
    let target = to.metadata().await?;
    if (source.dev(), source.ino()) == (target.dev(), target.ino()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "FROM and TO are the same file"));
    }
    if target.is_file() {
        to.set_len(0).await?;
    }
    let (next, end, done) = (Cell::new(0), Cell::new(u64::MAX), Cell::new(0));
    let copy = Rc::new(Copy { from, to, next, end, done, total: source.len() });
    let pieces: Vec<_> = (0..AT_ONCE).map(|_| runtime::spawn(pieces(Rc::clone(&copy)))).collect();
    for piece in pieces {
        piece.await.map_err(io::Error::other)??;
    }
    let Ok(copy) = Rc::try_unwrap(copy) else { return Err(io::Error::other("a piece is still being copied")) };
    if target.is_file() {
        // The file may have grown behind a piece that met its end.
        copy.to.set_len(copy.end.get()).await?;
        copy.to.set_permissions(source.permissions()).await?;
    }
    copy.to.close().await?;
    if io::stderr().is_terminal() {
        eprintln!();
    }
    Ok(())
}

/// Copies one piece after another until the file ends.
async fn pieces(copy: Rc<Copy>) -> io::Result<()> {
    let mut buf = Vec::with_capacity(PIECE_BYTES);
    loop {
        let start = copy.next.get();
        copy.next.set(start + PIECE_BYTES as u64);
        if start >= copy.end.get() {
            return Ok(());
        }
        let mut len = 0;
        while len < PIECE_BYTES {
            let BufResult(result, part) = copy.from.read_at(buf.slice(len..PIECE_BYTES), start + len as u64).await;
            buf = part.into_inner();
            match result? {
                0 => break,
                n => len += n,
            }
        }
        let at_end = len < PIECE_BYTES;
        buf.truncate(len);
        let BufResult(result, back) = copy.to.write_all_at(buf, start).await;
        buf = back;
        result?;
        buf.clear();
        copy.done.set(copy.done.get() + len as u64);
        progress(&copy);
        if at_end {
            copy.end.set(copy.end.get().min(start + len as u64));
            return Ok(());
        }
    }
}

fn progress(copy: &Copy) {
    if copy.total > 0 && io::stderr().is_terminal() {
        let (done, total) = (copy.done.get(), copy.total);
        let _ = write!(io::stderr(), "\r{:3} %  {} of {} KiB", done.min(total) * 100 / total, done >> 10, total >> 10);
    }
}
