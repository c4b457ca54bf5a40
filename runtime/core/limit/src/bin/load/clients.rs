//! Connections that send a message, wait until it has come back whole, and send the next.
//!
//! Each has a standing multishot receive on one shared ring of buffers, and sends without a completion of its own: the
//! generator should cost less than the cheapest server, or it would be what is measured.

use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{cqueue, opcode, squeue, types};
use runtime_limit::leaked::message;
use runtime_limit::provided::Provided;
use runtime_limit::ring::{Ring, Waited, tag_and_index, user_data};
use runtime_limit::{Result, socket};

use crate::PATIENCE;

const SUBMISSIONS: u32 = 2048;
const COMPLETIONS: u32 = 16384;
const BUFFERS: u16 = 1024;
const SMALL: usize = 1 << 10;
const LARGE: usize = 16 << 10;

const RECV: u8 = 1;
const SEND: u8 = 2;

/// Whether what comes back is compared with what was sent. It costs, so measured slices only count bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Verified,
    Counted,
}

/// What a connection does after its echo is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Again,
    Rest,
}

struct Client {
    /// An echo is due; what happens to a connection at rest is not of interest.
    waits: bool,
    received: usize,
    sent_at: Instant,
}

pub(crate) struct Clients {
    ring: Ring,
    buffers: Provided,
    message: &'static [u8],
    clients: Vec<Client>,
    /// Out on a request.
    busy: usize,
    batch: Vec<cqueue::Entry>,
    turns: u64,
    /// Closed when the clients are dropped; the ring knows them by index.
    _streams: Vec<TcpStream>,
}

impl Clients {
    /// Connects `each` clients to every address: those of the first address have the lowest indices.
    pub(crate) fn connect(addresses: &[SocketAddrV4], each: usize, message_len: usize) -> Result<Self> {
        let ring = Ring::new(SUBMISSIONS, COMPLETIONS)?;
        let mut streams = Vec::with_capacity(addresses.len() * each);
        for &address in addresses {
            for _ in 0..each {
                streams.push(socket::connect(address).map_err(|error| format!("connect {address}: {error}"))?);
            }
        }
        let fds: Vec<_> = streams.iter().map(AsRawFd::as_raw_fd).collect();
        ring.submitter().register_files(&fds)?;
        let buffers = Provided::new(&ring, BUFFERS, if message_len <= SMALL { SMALL } else { LARGE })?;
        let now = Instant::now();
        let clients = streams.iter().map(|_| Client { waits: false, received: 0, sent_at: now }).collect();
        let batch = Vec::with_capacity(COMPLETIONS as usize);
        let message = message(message_len);
        let mut new = Self { ring, buffers, message, clients, busy: 0, batch, turns: 0, _streams: streams };
        for index in 0..new.clients.len() {
            new.recv(index as u32)?;
        }
        Ok(new)
    }

    /// Sends a request on the connection `index`, which rests.
    pub(crate) fn start(&mut self, index: usize, now: Instant) -> Result<()> {
        self.busy += 1;
        self.clients[index].waits = true;
        self.send(index, now)
    }

    /// How many connections wait for their echo.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// How often the generator came back from a wait since this was last asked.
    pub(crate) fn take_turns(&mut self) -> u64 {
        std::mem::take(&mut self.turns)
    }

    /// Waits once and works off what has come. `echoed` is told the time of each complete echo and the moment of the
    /// batch, and says what the connection does next.
    pub(crate) fn turn(&mut self, content: Content, mut echoed: impl FnMut(Duration, Instant) -> Next) -> Result<()> {
        if self.ring.wait_at_most(PATIENCE)? == Waited::TimedOut {
            return Err(format!("{} echoes are missing after {PATIENCE:?}", self.busy).into());
        }
        self.turns += 1;
        let now = Instant::now();
        let mut batch = std::mem::take(&mut self.batch);
        self.ring.take(&mut batch);
        for completion in batch.drain(..) {
            self.complete(&completion, content, now, &mut echoed)?;
        }
        self.batch = batch;
        Ok(())
    }

    fn complete(
        &mut self,
        completion: &cqueue::Entry,
        content: Content,
        now: Instant,
        echoed: &mut impl FnMut(Duration, Instant) -> Next,
    ) -> Result<()> {
        let (tag, index) = tag_and_index(completion.user_data());
        let result = completion.result();
        if tag != RECV {
            return Err(format!("connection {index}: SEND came back with {result}").into());
        }
        if result <= 0 && !self.clients[index as usize].waits {
            return Ok(());
        }
        // Without buffers the receive ends; those of this batch are given back before the next enter.
        if result <= 0 && result != -libc::ENOBUFS {
            return Err(format!("connection {index}: RECV came back with {result}").into());
        }
        if result > 0 {
            let id = cqueue::buffer_select(completion.flags()).ok_or("a receive without a buffer")?;
            self.received(index, id, result as usize, content)?;
        }
        if !cqueue::more(completion.flags()) {
            self.recv(index)?;
        }
        self.finish(index as usize, now, echoed)
    }

    fn received(&mut self, index: u32, id: u16, len: usize, content: Content) -> Result<()> {
        let client = &mut self.clients[index as usize];
        let due = self.message.get(client.received..client.received + len);
        let due = due.ok_or_else(|| format!("connection {index}: more came back than was sent"))?;
        if content == Content::Verified {
            let filled = self.buffers.filled(id, len);
            // SAFETY: the kernel has filled the buffer, and does not own it before it is given back below.
            if unsafe { filled.bytes() } != due {
                return Err(format!("connection {index}: what came back is not what was sent").into());
            }
        }
        client.received += len;
        self.buffers.give(id);
        Ok(())
    }

    fn finish(&mut self, index: usize, now: Instant, echoed: &mut impl FnMut(Duration, Instant) -> Next) -> Result<()> {
        let client = &mut self.clients[index];
        if client.received < self.message.len() {
            return Ok(());
        }
        client.received = 0;
        match echoed(now - client.sent_at, now) {
            Next::Again => self.send(index, now),
            Next::Rest => {
                client.waits = false;
                self.busy -= 1;
                Ok(())
            }
        }
    }

    fn recv(&mut self, index: u32) -> Result<()> {
        let entry = opcode::RecvMulti::new(types::Fixed(index), Provided::GROUP).build();
        // SAFETY: it names no memory but that of the registered buffers.
        Ok(unsafe { self.ring.push(&entry.user_data(user_data(RECV, index))) }?)
    }

    fn send(&mut self, index: usize, now: Instant) -> Result<()> {
        self.clients[index].sent_at = now;
        let index = index as u32;
        let entry = opcode::Send::new(types::Fixed(index), self.message.as_ptr(), self.message.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS);
        // SAFETY: the message is never freed and never written to.
        Ok(unsafe { self.ring.push(&entry.user_data(user_data(SEND, index))) }?)
    }
}
