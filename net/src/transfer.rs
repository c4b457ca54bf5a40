//! Moving bytes over a stream socket: what `TcpStream` and its halves share.
//!
//! Reads are one-shot RECVs into the caller's buffer. Writes are tried inline, without blocking, when the turn brought
//! at most one completion, and are SENDs of the batch otherwise. Vectors of one buffer are plain receives and sends.

use std::io;
use std::sync::Arc;

use runtime_core::buf::{self, BufResult, IoBuf, IoBufMut};
use runtime_core::coop;
use runtime_core::duplex::{Direction, Duplex, Held};
use runtime_core::fd::Origin;
use runtime_core::op::poll_add::PollAdd;
use runtime_core::op::recv::{Recv, RecvVectored};
use runtime_core::op::send::{Send, SendVectored};
use runtime_core::op::{Kind, Rung};
use runtime_core::submit::submit;
use runtime_core::sys;

const MSG_PEEK: i32 = 0x2;
const MSG_WAITALL: i32 = 0x100;
const POLLIN: i16 = 0x1;
const POLLOUT: i16 = 0x4;

pub(crate) async fn read<B: IoBufMut>(duplex: &Arc<Duplex>, buf: B) -> BufResult<usize, B> {
    if buf.capacity() == 0 {
        return BufResult(Ok(0), buf);
    }
    let held = duplex.acquire(Direction::Read).await;
    let (result, buf, _held) = receive(held, buf, 0, 0).await;
    BufResult(result, buf)
}

pub(crate) async fn peek<B: IoBufMut>(duplex: &Arc<Duplex>, buf: B) -> BufResult<usize, B> {
    if buf.capacity() == 0 {
        return BufResult(Ok(0), buf);
    }
    let held = duplex.acquire(Direction::Read).await;
    let (result, buf, _held) = receive(held, buf, 0, MSG_PEEK).await;
    BufResult(result, buf)
}

pub(crate) async fn read_exact<B: IoBufMut>(duplex: &Arc<Duplex>, mut buf: B) -> BufResult<(), B> {
    let mut held = duplex.acquire(Direction::Read).await;
    // The length counts from the start, whatever the buffer held before.
    let mut at = buf::fill(&mut buf, &[]);
    while at < buf.capacity() {
        let result;
        // One operation gathers all of it, so that a dropped future gives everything back as one residue.
        (result, buf, held) = receive(held, buf, at, MSG_WAITALL).await;
        match result {
            Ok(0) => return BufResult(Err(io::ErrorKind::UnexpectedEof.into()), buf),
            Ok(n) => at += n,
            Err(error) => return BufResult(Err(error), buf),
        }
    }
    BufResult(Ok(()), buf)
}

/// One receive behind the first `at` bytes of `buf`, from the residue if there is any.
async fn receive<B: IoBufMut>(mut held: Held, mut buf: B, mut at: usize, flags: i32) -> (io::Result<usize>, B, Held) {
    let before = at;
    loop {
        if let Some(result) = held.serve(&mut buf, at, flags & MSG_PEEK != 0) {
            coop::spend(*result.as_ref().unwrap_or(&0));
            return (result.map(|n| at + n - before), buf, held);
        }
        let result;
        (result, buf, held) = submit(Recv::new(held, buf, at, flags)).await;
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // A ring operation waits by itself; should one not, what is here already must survive a drop of the
                // wait below.
                held.keep_data(&buf::bytes(&buf)[..at]);
                at = buf::fill(&mut buf, &[]);
                held = ready(held, POLLIN).await;
            }
            result => return (result, buf, held),
        }
    }
}

/// Waits until the descriptor may be ready.
#[cold]
async fn ready(held: Held, events: i16) -> Held {
    coop::count(Kind::PollAdd, Rung::Reissue);
    let (_events, held) = submit(PollAdd::new(held, events)).await;
    // An error of the poll shows itself in the operation that is tried again.
    held
}

pub(crate) async fn read_vectored<B: IoBufMut>(duplex: &Arc<Duplex>, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
    if bufs.len() <= 1 {
        // The vector's memory is kept, so nothing is allocated.
        let Some(only) = bufs.pop() else { return BufResult(Ok(0), bufs) };
        let BufResult(result, only) = read(duplex, only).await;
        bufs.push(only);
        return BufResult(result, bufs);
    }
    let mut held = duplex.acquire(Direction::Read).await;
    if let Some(result) = serve_vectored(&mut held, &mut bufs) {
        return BufResult(result, bufs);
    }
    loop {
        let result;
        (result, bufs, held) = submit(RecvVectored::new(held, bufs)).await;
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = ready(held, POLLIN).await,
            result => return BufResult(result, bufs),
        }
    }
}

fn serve_vectored<B: IoBufMut>(held: &mut Held, bufs: &mut [B]) -> Option<io::Result<usize>> {
    let mut total = None;
    for buf in bufs.iter_mut() {
        if buf.capacity() == 0 {
            continue;
        }
        match (held.serve(buf, 0, false), total) {
            (Some(Ok(n)), _) => total = Some(total.unwrap_or(0) + n),
            // The error is told once: only as the first thing.
            (Some(Err(error)), None) => return Some(Err(error)),
            (Some(Err(error)), Some(_)) => {
                held.keep_error(error.raw_os_error().unwrap_or(0));
                break;
            }
            // Buffers behind the residue hold nothing of this read.
            (None, Some(_)) => {
                buf::fill(buf, &[]);
            }
            (None, None) => return None,
        }
    }
    total.map(Ok)
}

pub(crate) async fn write<B: IoBuf>(duplex: &Arc<Duplex>, mut buf: B) -> BufResult<usize, B> {
    let len = buf.init_len();
    if len == 0 {
        return BufResult(Ok(0), buf);
    }
    let mut held = duplex.acquire(Direction::Write).await;
    if let Err(error) = held.check() {
        return BufResult(Err(error), buf);
    }
    if let Some(result) = send_inline(&held, buf::bytes(&buf)) {
        return BufResult(result, buf);
    }
    loop {
        let result;
        (result, buf, held) = submit(Send::new(held, buf, 0, 0)).await;
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = ready(held, POLLOUT).await,
            result => return BufResult(result, buf),
        }
    }
}

pub(crate) async fn write_all<B: IoBuf>(duplex: &Arc<Duplex>, mut buf: B) -> BufResult<(), B> {
    let len = buf.init_len();
    if len == 0 {
        return BufResult(Ok(()), buf);
    }
    // Held until the end, so that the frames of two writers never mix.
    let mut held = duplex.acquire(Direction::Write).await;
    if let Err(error) = held.check() {
        return BufResult(Err(error), buf);
    }
    let mut sent = match send_inline(&held, buf::bytes(&buf)) {
        Some(Ok(n)) => n,
        Some(Err(error)) => return BufResult(Err(error), buf),
        None => 0,
    };
    while sent < len {
        let result;
        (result, buf, held) = submit(Send::new(held, buf, sent, MSG_WAITALL)).await;
        match result {
            Ok(0) => return BufResult(Err(io::ErrorKind::WriteZero.into()), buf),
            Ok(n) => sent += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = ready(held, POLLOUT).await,
            Err(error) => return BufResult(Err(error), buf),
        }
    }
    BufResult(Ok(()), buf)
}

/// The inline rung: a send that cannot block, when that is the better way now. `None` means: through the ring.
fn send_inline(held: &Held, bytes: &[u8]) -> Option<io::Result<usize>> {
    if !coop::prefers_inline() {
        return None;
    }
    match sys::send(held.as_fd(), bytes) {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
        result => {
            coop::count(Kind::Send, Rung::Inline);
            coop::spend(*result.as_ref().unwrap_or(&0));
            Some(result)
        }
    }
}

pub(crate) async fn write_vectored<B: IoBuf>(duplex: &Arc<Duplex>, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
    if bufs.len() <= 1 {
        let Some(only) = bufs.pop() else { return BufResult(Ok(0), bufs) };
        let BufResult(result, only) = write(duplex, only).await;
        bufs.push(only);
        return BufResult(result, bufs);
    }
    let mut held = duplex.acquire(Direction::Write).await;
    if let Err(error) = held.check() {
        return BufResult(Err(error), bufs);
    }
    let (result, bufs, _held) = send_vectored(held, bufs, 0).await;
    BufResult(result, bufs)
}

pub(crate) async fn write_all_vectored<B: IoBuf>(duplex: &Arc<Duplex>, mut bufs: Vec<B>) -> BufResult<(), Vec<B>> {
    if bufs.len() <= 1 {
        let Some(only) = bufs.pop() else { return BufResult(Ok(()), bufs) };
        let BufResult(result, only) = write_all(duplex, only).await;
        bufs.push(only);
        return BufResult(result, bufs);
    }
    let len: usize = bufs.iter().map(IoBuf::init_len).sum();
    let mut held = duplex.acquire(Direction::Write).await;
    if let Err(error) = held.check() {
        return BufResult(Err(error), bufs);
    }
    let mut sent = 0;
    while sent < len {
        let result;
        (result, bufs, held) = send_vectored(held, bufs, sent).await;
        match result {
            Ok(0) => return BufResult(Err(io::ErrorKind::WriteZero.into()), bufs),
            Ok(n) => sent += n,
            Err(error) => return BufResult(Err(error), bufs),
        }
    }
    BufResult(Ok(()), bufs)
}

async fn send_vectored<B: IoBuf>(mut held: Held, mut bufs: Vec<B>, skip: usize) -> (io::Result<usize>, Vec<B>, Held) {
    if bufs.iter().all(|buf| buf.init_len() == 0) {
        return (Ok(0), bufs, held);
    }
    loop {
        let result;
        (result, bufs, held) = submit(SendVectored::new(held, bufs, skip)).await;
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = ready(held, POLLOUT).await,
            result => return (result, bufs, held),
        }
    }
}

/// shutdown(2), inline, for the writing side once the writes before it are over.
pub(crate) async fn shutdown(duplex: &Arc<Duplex>, how: std::net::Shutdown) -> io::Result<()> {
    let _held = match how {
        std::net::Shutdown::Read => None,
        std::net::Shutdown::Write | std::net::Shutdown::Both => Some(duplex.acquire(Direction::Write).await),
    };
    coop::count(Kind::Shutdown, Rung::Inline);
    coop::spend(0);
    use std::os::fd::AsFd;
    sys::shutdown(duplex.as_fd(), how)
}
