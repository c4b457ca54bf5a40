//! Moving bytes over a stream socket: what `TcpStream` and its halves share.
//!
//! Reads are one-shot RECVs into the caller's buffer. Writes are tried inline, without blocking, when the turn brought
//! at most one completion, and are SENDs of the batch otherwise. Vectors of one buffer are plain receives and sends.

mod receive;
mod transmit;
pub(crate) mod zero_copy;

use std::io;
use std::sync::Arc;

use runtime_core::buf::{self, BufResult, IoBuf, IoBufMut};
use runtime_core::coop;
use runtime_core::duplex::{Direction, Duplex, Held};
use runtime_core::fd::Origin;
use runtime_core::ladder::{readable, room};
use runtime_core::op::recv::RecvVectored;
use runtime_core::op::send::SendVectored;
use runtime_core::op::{Kind, Rung};
use runtime_core::receiver::{self, Served};
use runtime_core::submit::submit;

pub use receive::Receive;
pub use transmit::{Transmit, WriteAll};

const MSG_PEEK: i32 = 0x2;
const MSG_DONTWAIT: i32 = 0x40;

/// What the end of an operation means for the transfer that it is a part of.
enum Settled {
    Done(io::Result<usize>),
    /// Some of it, or a signal in between: the rest is issued.
    Again,
    /// It would block: a poll comes first.
    NotReady,
}

impl Settled {
    #[cold]
    fn failed(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::Interrupted => Self::Again,
            io::ErrorKind::WouldBlock => Self::NotReady,
            _ => Self::Done(Err(error)),
        }
    }
}

/// Reads once; the future is written by hand because it is the hottest there is.
pub(crate) fn read<B: IoBufMut>(duplex: &Arc<Duplex>, buf: B) -> Receive<'_, B> {
    Receive::new(duplex, buf, receive::Extent::Some)
}

pub(crate) fn peek<B: IoBufMut>(duplex: &Arc<Duplex>, buf: B) -> Receive<'_, B> {
    Receive::new(duplex, buf, receive::Extent::Peek)
}

pub(crate) async fn read_exact<B: IoBufMut>(duplex: &Arc<Duplex>, buf: B) -> BufResult<(), B> {
    Receive::new(duplex, buf, receive::Extent::Whole).await.map(drop)
}

pub(crate) fn write<B: IoBuf>(duplex: &Arc<Duplex>, buf: B) -> Transmit<'_, B> {
    Transmit::new(duplex, buf, transmit::Extent::Some)
}

pub(crate) fn write_all<B: IoBuf>(duplex: &Arc<Duplex>, buf: B) -> WriteAll<'_, B> {
    WriteAll::new(duplex, buf)
}

pub(crate) async fn read_vectored<B: IoBufMut>(duplex: &Arc<Duplex>, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
    if bufs.len() <= 1 {
        // The vector's memory is kept, so nothing is allocated.
        let Some(only) = bufs.pop() else {
            coop::nothing_to_do().await;
            return BufResult(Ok(0), bufs);
        };
        let BufResult(result, only) = read(duplex, only).await;
        bufs.push(only);
        return BufResult(result, bufs);
    }
    if bufs.iter().all(|buf| buf.capacity() == 0) {
        // A receive of no bytes would wait for some.
        coop::nothing_to_do().await;
        return BufResult(Ok(0), bufs);
    }
    let mut held = duplex.acquire(Direction::Read).await;
    loop {
        match serve_vectored(&mut held, &mut bufs) {
            Served::Done(result) => return BufResult(result, bufs),
            Served::Nothing => receiver::filled(&mut held).await,
            Served::Nobody => break,
        }
    }
    loop {
        let result;
        (result, bufs, held) = submit(RecvVectored::new(held, bufs)).await;
        match result {
            Ok(0) => return BufResult(held.take_end(false).map_or(Ok(0), Err), bufs),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = readable(held).await,
            result => return BufResult(result, bufs),
        }
    }
}

fn serve_vectored<B: IoBufMut>(held: &mut Held, bufs: &mut [B]) -> Served {
    let mut total = None;
    let mut done = false;
    for buf in bufs.iter_mut() {
        if buf.capacity() == 0 {
            continue;
        }
        if done {
            // Buffers behind the last bytes hold nothing of this read.
            buf::fill(buf, &[]);
            continue;
        }
        let served = match held.serve(buf, 0, false) {
            Some(result) => Served::Done(result),
            None => receiver::serve(held, buf, 0, false),
        };
        match (served, total) {
            // As is the end.
            (Served::Done(Ok(0)), Some(_)) => {
                held.keep_end();
                done = buf::fill(buf, &[]) == 0;
            }
            (Served::Done(Ok(n)), _) => {
                total = Some(total.unwrap_or(0) + n);
                // A buffer that is not full was the last that there were bytes for, and those behind it stay empty.
                done = n < buf.capacity();
            }
            // The error is told once: only as the first thing.
            (Served::Done(Err(error)), None) => return Served::Done(Err(error)),
            (Served::Done(Err(error)), Some(_)) => {
                held.keep_error(error.raw_os_error().unwrap_or(0));
                done = buf::fill(buf, &[]) == 0;
            }
            (Served::Nobody | Served::Nothing, Some(_)) => done = buf::fill(buf, &[]) == 0,
            (served, None) => return served,
        }
    }
    total.map_or(Served::Nobody, |n| Served::Done(Ok(n)))
}

pub(crate) async fn write_vectored<B: IoBuf>(duplex: &Arc<Duplex>, mut bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
    if bufs.len() <= 1 {
        let Some(only) = bufs.pop() else {
            coop::nothing_to_do().await;
            return BufResult(Ok(0), bufs);
        };
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
        let Some(only) = bufs.pop() else {
            coop::nothing_to_do().await;
            return BufResult(Ok(()), bufs);
        };
        let BufResult(result, only) = write_all(duplex, only).await;
        bufs.push(only);
        return BufResult(result, bufs);
    }
    let len: usize = bufs.iter().map(IoBuf::init_len).sum();
    let mut held = duplex.acquire(Direction::Write).await;
    if let Err(error) = held.check() {
        return BufResult(Err(error), bufs);
    }
    if len == 0 {
        coop::nothing_to_do().await;
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
        coop::nothing_to_do().await;
        return (Ok(0), bufs, held);
    }
    loop {
        let result;
        (result, bufs, held) = submit(SendVectored::new(held, bufs, skip)).await;
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = room(held).await,
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
    coop::assert_same_process();
    coop::proceed().await;
    coop::count(Kind::Shutdown, Rung::Inline);
    coop::spend(0);
    duplex.shutdown(how)
}
