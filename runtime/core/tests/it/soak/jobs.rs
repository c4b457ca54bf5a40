//! The things that jobs work on, and the jobs: one operation each, compared with the model where it ends.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use runtime::fs::File;
use runtime::io::{BufResult, IoBuf};
use runtime::net::{TcpListener, TcpStream};
use runtime::op::{Op, Submit, submit};
use runtime::pipe::{Receiver, Sender, pipe};
use runtime_core::fd::Origin;
use runtime_core::op::poll_add::PollAdd;
use runtime_core::op::read::{NO_OFFSET, Read};
use runtime_core::op::write::Write;

use super::model::{Buf, CELL, Link, byte};
use crate::support::Rng;

/// A future of one operation.
pub(super) struct Job {
    future: Pin<Box<dyn Future<Output = ()>>>,
    /// It may wait for what never comes, even when everything else is closed.
    pub(super) endless: bool,
}

impl Future for Job {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(task)
    }
}

fn job(future: impl Future<Output = ()> + 'static) -> Job {
    Job { future: Box::pin(future), endless: false }
}

#[derive(Clone)]
enum Tx {
    Pipe(Rc<Sender>),
    Tcp(Rc<TcpStream>),
}

#[derive(Clone)]
enum Rx {
    Pipe(Rc<Receiver>),
    Tcp(Rc<TcpStream>),
}

type Shared<T> = Rc<RefCell<T>>;

/// One direction: its ends, until they are closed, and its model.
struct Line {
    link: Shared<Link>,
    tx: Option<Tx>,
    rx: Option<Rx>,
}

/// What became of the bytes that one write to the file was about.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Region {
    Unsure,
    Written,
}

const REGION: u64 = 64;
const LINES: usize = 10;

pub(super) struct World {
    lines: Vec<Line>,
    listener: Rc<TcpListener>,
    addr: Rc<Cell<SocketAddr>>,
    /// Connected ends that wait for their other half, by the client's address.
    clients: Shared<HashMap<SocketAddr, TcpStream>>,
    servers: Shared<HashMap<SocketAddr, TcpStream>>,
    file: Rc<File>,
    regions: Shared<Vec<Region>>,
}

impl World {
    pub(super) async fn new() -> Self {
        let listener = Rc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let addr = Rc::new(Cell::new(listener.local_addr().unwrap()));
        let file = Rc::new(File::from(tempfile::tempfile().unwrap()));
        let mut world = Self {
            lines: Vec::new(),
            listener,
            addr,
            clients: Rc::default(),
            servers: Rc::default(),
            file,
            regions: Rc::default(),
        };
        for _ in 0..3 {
            world.add_pipe();
            let (client, accepted) = futures::join!(TcpStream::connect(world.addr.get()), world.listener.accept());
            world.clients.borrow_mut().insert(client.as_ref().unwrap().local_addr().unwrap(), client.unwrap());
            let (server, peer) = accepted.unwrap();
            world.servers.borrow_mut().insert(peer, server);
        }
        world.match_up();
        world
    }

    fn add_pipe(&mut self) {
        let (tx, rx) = pipe().unwrap();
        let (tx, rx) = (Some(Tx::Pipe(Rc::new(tx))), Some(Rx::Pipe(Rc::new(rx))));
        self.lines.push(Line { link: Rc::new(RefCell::new(Link::new())), tx, rx });
    }

    /// Makes two lines of each connection whose both ends are there.
    pub(super) fn match_up(&mut self) {
        let (mut clients, mut servers) = (self.clients.borrow_mut(), self.servers.borrow_mut());
        let matched: Vec<_> = clients.keys().filter(|addr| servers.contains_key(addr)).copied().collect();
        for addr in matched {
            let (Some(one), Some(other)) = (clients.remove(&addr), servers.remove(&addr)) else { continue };
            if self.lines.len() >= LINES {
                continue;
            }
            let (one, other) = (Rc::new(one), Rc::new(other));
            one.set_zc_threshold(1);
            other.set_zc_threshold(1);
            for (from, to) in [(&one, &other), (&other, &one)] {
                let (tx, rx) = (Some(Tx::Tcp(Rc::clone(from))), Some(Rx::Tcp(Rc::clone(to))));
                self.lines.push(Line { link: Rc::new(RefCell::new(Link::new())), tx, rx });
            }
        }
    }

    /// A random job.
    pub(super) fn job(&mut self, rng: &mut Rng) -> Job {
        if self.lines.is_empty() {
            self.add_pipe();
        }
        let n = self.lines.len() as u64;
        let line = &self.lines[rng.below(n) as usize];
        let len = 1 + rng.below(CELL as u64) as usize;
        match rng.below(20) {
            0..=5 => match &line.tx {
                Some(tx) => write_job(tx.clone(), Rc::clone(&line.link), len, rng.below(3) > 0, rng.below(3) == 0),
                None => sleep_job(rng),
            },
            6..=11 => match &line.rx {
                Some(rx) => read_job(rx.clone(), Rc::clone(&line.link), len, rng.below(4)),
                None => sleep_job(rng),
            },
            12 => connect_job(Rc::clone(&self.addr), Rc::clone(&self.clients)),
            13 => accept_job(Rc::clone(&self.listener), Rc::clone(&self.servers), rng.below(2) == 0),
            14..=15 => file_write_job(Rc::clone(&self.file), Rc::clone(&self.regions)),
            16 => file_read_job(Rc::clone(&self.file), Rc::clone(&self.regions), rng),
            17 => open_job(rng.below(2) == 0),
            18 => {
                let (limit, within) = (Duration::from_micros(rng.below(2_000)), self.job(rng));
                job(async move {
                    let start = Instant::now();
                    if runtime::time::timeout(limit, within).await.is_err() {
                        assert!(start.elapsed() >= limit, "a timeout came early");
                    }
                })
            }
            _ => sleep_job(rng),
        }
    }

    /// Closes an end, or a connection with both of its directions, or the listener.
    pub(super) fn close_something(&mut self, rng: &mut Rng) {
        if rng.below(8) == 0 {
            // Who is connected to the old one and was not accepted is cut off.
            self.clients.borrow_mut().clear();
            self.servers.borrow_mut().clear();
            let new = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            self.addr.set(new.local_addr().unwrap());
            self.listener = Rc::new(TcpListener::from_std(new).unwrap());
            return;
        }
        if self.lines.len() < LINES && rng.below(2) == 0 {
            return self.add_pipe();
        }
        let n = self.lines.len() as u64;
        if n == 0 {
            return;
        }
        let i = rng.below(n) as usize;
        let line = &mut self.lines[i];
        let mut link = line.link.borrow_mut();
        match (&line.tx, &line.rx, rng.below(2)) {
            (Some(Tx::Tcp(_)), _, _) | (_, Some(Rx::Tcp(_)), _) => {
                drop(link);
                self.retire(i);
            }
            (Some(_), _, 0) => {
                link.ending = true;
                line.tx = None;
            }
            (_, Some(_), 1) => {
                link.unread = true;
                line.rx = None;
            }
            _ => {
                drop(link);
                self.retire(i);
            }
        }
    }

    /// Lets go of a line, and of the other direction of its connection.
    fn retire(&mut self, i: usize) {
        let line = self.lines.swap_remove(i);
        let mut gone = vec![line];
        if let Some(Tx::Tcp(stream)) = &gone[0].tx {
            let stream = Rc::clone(stream);
            let is_other = |line: &Line| matches!(&line.rx, Some(Rx::Tcp(other)) if Rc::ptr_eq(other, &stream));
            while let Some(i) = self.lines.iter().position(is_other) {
                gone.push(self.lines.swap_remove(i));
            }
        }
        for line in &gone {
            // Jobs that have it, at both ends, would keep each other waiting.
            if let Some(Tx::Tcp(stream)) = &line.tx
                && Rc::strong_count(stream) > 2
            {
                shut(stream, Shutdown::Both);
            }
            let mut link = line.link.borrow_mut();
            (link.ending, link.unread) = (true, true);
            // Unread bytes make a close a reset.
            link.lossy |= matches!(line.tx, Some(Tx::Tcp(_)));
        }
    }

    /// Starts an operation and forgets its future, which is only a key by then: what the operation holds comes back when
    /// the runtime ends.
    pub(super) async fn forget(&self, rng: &mut Rng) {
        let (rx, tx) = std::io::pipe().unwrap();
        let (rx, tx) = (OwnedFd::from(rx), OwnedFd::from(tx));
        match rng.below(4) {
            // Completes, but nobody takes it.
            0 => {
                drop(tx);
                forget_polled(submit(Read::new(rx, Buf::new(100), 0, NO_OFFSET))).await;
            }
            1 => forget_polled(submit(Write::new(tx, Buf::of(0..100), 0, NO_OFFSET))).await,
            // Nothing ever comes: the ends keep each other open.
            2 => forget_polled(submit(Read::new(Both(rx, tx), Buf::new(100), 0, NO_OFFSET))).await,
            _ => forget_polled(submit(PollAdd::new(Both(rx, tx), 1))).await,
        }
    }

    /// Reads every line to its end, and takes every connection that was made; then everything is closed.
    pub(super) async fn finish(mut self) {
        let deadline = Duration::from_secs(10);
        let all = runtime::time::timeout(crate::support::scaled(deadline), async {
            loop {
                self.match_up();
                if self.clients.borrow().is_empty() {
                    break;
                }
                let (stream, peer) = self.listener.accept().await.unwrap();
                self.servers.borrow_mut().insert(peer, stream);
            }
        });
        all.await.expect("every connection that was made is accepted");
        self.servers.borrow_mut().clear();
        for line in self.lines.drain(..) {
            line.link.borrow_mut().ending = true;
            let Some(rx) = line.rx else { continue };
            if let Some(Tx::Tcp(stream)) = &line.tx {
                // In either order: after what tasks still write, or now.
                let _ = runtime::time::timeout(Duration::from_millis(5), stream.shutdown(Shutdown::Write)).await;
                shut(stream, Shutdown::Write);
            }
            drop(line.tx);
            let to_the_end = async { while read_once(&rx, &line.link, 1_000, 0).await > 0 {} };
            let read = runtime::time::timeout(crate::support::scaled(deadline), to_the_end).await;
            read.unwrap_or_else(|_| panic!("a stream has no end: {:?}", line.link));
            line.link.borrow_mut().unread = true;
        }
    }
}

/// shutdown(2) whatever the stream is busy with.
fn shut(stream: &TcpStream, how: Shutdown) {
    let other = std::net::TcpStream::from(stream.as_fd().try_clone_to_owned().unwrap());
    let _ = other.shutdown(how);
}

async fn forget_polled<O: Op>(mut future: Submit<O>) {
    assert!(crate::kit::poll_once(&mut future).await.is_pending(), "it goes through the ring");
    std::mem::forget(future);
}

/// Both ends of a pipe, of which the reading one is meant.
struct Both(OwnedFd, #[expect(dead_code, reason = "only kept open")] OwnedFd);

// SAFETY: it owns its descriptors.
unsafe impl Origin for Both {
    fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Tells the model of a write whose future is dropped.
struct Writing {
    link: Shared<Link>,
    positions: Range<u64>,
    over: bool,
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.over {
            self.link.borrow_mut().gave_up(self.positions.clone());
        }
    }
}

fn write_job(tx: Tx, link: Shared<Link>, len: usize, whole: bool, zero_copy: bool) -> Job {
    job(async move {
        // At the first poll, so that the order of the positions is the order in which the writes queue up.
        let positions = link.borrow_mut().take(len);
        let buf = Buf::of(positions.clone());
        let mut writing = Writing { link: Rc::clone(&link), positions: positions.clone(), over: false };
        let BufResult(result, buf) = match (&tx, whole) {
            (Tx::Pipe(tx), true) => tx.write_all(buf).await.map(|()| len),
            (Tx::Pipe(tx), false) => tx.write(buf).await,
            (Tx::Tcp(tx), true) if zero_copy => tx.write_all_zc(buf).await.map(|()| len),
            (Tx::Tcp(tx), false) if zero_copy => tx.write_zc(buf).await,
            (Tx::Tcp(tx), true) => tx.write_all(buf).await.map(|()| len),
            (Tx::Tcp(tx), false) => tx.write(buf).await,
        };
        assert!(buf.bytes().iter().copied().eq(positions.clone().map(byte)), "a write leaves its buffer alone");
        match result {
            Ok(n) => {
                writing.over = true;
                link.borrow_mut().sent_only(positions, n as u64);
            }
            Err(error) => link.borrow().refused(&error),
        }
    })
}

fn read_job(rx: Rx, link: Shared<Link>, len: usize, how: u64) -> Job {
    job(async move {
        read_once(&rx, &link, len, how).await;
    })
}

/// One read, compared with the model in the poll that completes it; the count.
async fn read_once(rx: &Rx, link: &Shared<Link>, len: usize, how: u64) -> usize {
    let buf = Buf::new(len);
    let mut peek = false;
    let BufResult(result, buf) = match (rx, how) {
        (Rx::Pipe(rx), _) => rx.read(buf).await,
        (Rx::Tcp(rx), 1) => {
            peek = true;
            rx.peek(buf).await
        }
        (Rx::Tcp(rx), 2) => {
            let BufResult(result, buf) = rx.read_exact(buf).await;
            let n = buf.bytes().len();
            match result {
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    link.borrow_mut().received(buf.bytes());
                    BufResult(Ok(0), Buf::new(0))
                }
                result => BufResult(result.map(|()| n), buf),
            }
        }
        (Rx::Tcp(rx), 3) => {
            let half = len.div_ceil(2);
            let BufResult(result, bufs) = rx.read_vectored(vec![buf.slice(..half), Buf::new(half).slice(..)]).await;
            let bytes: Vec<u8> = bufs.iter().flat_map(|part| part.to_vec()).collect();
            let mut buf = Buf::new(bytes.len());
            runtime_core::buf::fill(&mut buf, &bytes);
            BufResult(result, buf)
        }
        (Rx::Tcp(rx), _) => rx.read(buf).await,
    };
    let mut link = link.borrow_mut();
    match result {
        Ok(0) => link.ended(),
        Ok(n) => {
            assert_eq!(n, buf.bytes().len(), "the buffer's length is what was read");
            if peek {
                link.peeked(buf.bytes())
            } else {
                link.received(buf.bytes())
            }
            return n;
        }
        Err(error) => link.failed(&error),
    }
    0
}

fn connect_job(addr: Rc<Cell<SocketAddr>>, clients: Shared<HashMap<SocketAddr, TcpStream>>) -> Job {
    job(async move {
        // The listener may have been closed meanwhile.
        let to = addr.get();
        let Ok(stream) = TcpStream::connect(to).await else { return };
        let mine = stream.local_addr().unwrap();
        if stream.peer_addr().is_ok() && addr.get() == to && clients.borrow().len() < 8 {
            clients.borrow_mut().insert(mine, stream);
        }
    })
}

fn accept_job(listener: Rc<TcpListener>, servers: Shared<HashMap<SocketAddr, TcpStream>>, one: bool) -> Job {
    let accept = async move {
        if one {
            let (stream, peer) = listener.accept().await.unwrap();
            servers.borrow_mut().insert(peer, stream);
            return;
        }
        let stream = listener.incoming().next().await.unwrap().unwrap();
        if let Ok(peer) = stream.peer_addr() {
            servers.borrow_mut().insert(peer, stream);
        }
    };
    Job { endless: true, ..job(accept) }
}

fn file_write_job(file: Rc<File>, regions: Shared<Vec<Region>>) -> Job {
    job(async move {
        let region = regions.borrow().len() as u64;
        regions.borrow_mut().push(Region::Unsure);
        let at = region * REGION;
        let BufResult(result, _buf) = file.write_at(Buf::of(at..at + REGION), at).await;
        assert_eq!(result.unwrap(), REGION as usize);
        regions.borrow_mut()[region as usize] = Region::Written;
    })
}

fn file_read_job(file: Rc<File>, regions: Shared<Vec<Region>>, rng: &mut Rng) -> Job {
    let pick = rng.next();
    job(async move {
        let known = regions.borrow().len() as u64;
        let Some(region) = pick.checked_rem(known) else { return };
        let before = regions.borrow()[region as usize];
        let at = region * REGION;
        let BufResult(result, buf) = file.read_at(Buf::new(REGION as usize), at).await;
        let n = result.unwrap();
        assert_eq!(n, buf.bytes().len());
        for (position, &got) in (at..).zip(buf.bytes()) {
            assert!(
                got == byte(position) || (got == 0 && before == Region::Unsure),
                "the file has {got} at {position}"
            );
        }
        assert!(n == REGION as usize || before == Region::Unsure, "only {n} bytes of a region that was written");
    })
}

fn open_job(close: bool) -> Job {
    job(async move {
        let file = File::open("/proc/self/stat").await.unwrap();
        if close {
            file.close().await.unwrap();
        }
    })
}

fn sleep_job(rng: &mut Rng) -> Job {
    let time = Duration::from_micros(rng.below(3_000));
    job(async move {
        let start = Instant::now();
        runtime::time::sleep(time).await;
        assert!(start.elapsed() >= time, "a timer came early");
    })
}
