//! An echo server: one multishot accept, and per connection a one-shot RECV and SEND in turn.
//!
//! ```text
//!             ┌────────────── SEND done ─────────────┐
//!             ▼                                      │
//! ACCEPT → RECV armed ── bytes ──► SEND of the same bytes
//!             │
//!             └── end or error ──► CLOSE
//! ```
//!
//! A connection is its descriptor: the number indexes the table of buffers, and the buffer stays for the next
//! connection that gets the number. With `direct=true` it is a place in the ring's own table of files instead.

use std::net::TcpListener;
use std::os::fd::AsRawFd;

use io_uring::{cqueue, opcode, squeue, types};
use runtime_limit::args::Args;
use runtime_limit::leaked::Leaked;
use runtime_limit::ring::{Ring, tag_and_index, user_data};
use runtime_limit::{MOST_HELD, Result, socket};

use crate::{COMPLETIONS, SUBMISSIONS, close};

const ACCEPT: u8 = 1;
const RECV: u8 = 2;
const SEND: u8 = 3;
const CLOSE: u8 = 4;

struct Echo {
    ring: Ring,
    listener: TcpListener,
    /// By descriptor; at most one operation at a time uses a buffer.
    buffers: Vec<Option<Leaked>>,
    buffer_len: usize,
    direct: bool,
    echoed: u64,
}

pub(crate) fn run(mut args: Args) -> Result<()> {
    let listener = socket::listen(args.value("port", 0)?)?;
    let buffer_len = args.at_most("buf", 16 << 10, 16 << 20)?;
    let requests = args.value("requests", u64::MAX)?;
    let direct = args.value("direct", false)?;
    args.finish()?;
    println!("READY port={}", listener.local_addr()?.port());
    let ring = Ring::new(SUBMISSIONS, COMPLETIONS)?;
    if direct {
        ring.submitter().register_files_sparse(MOST_HELD as u32)?;
    }
    let mut echo = Echo { ring, listener, buffers: Vec::new(), buffer_len, direct, echoed: 0 };
    echo.serve(requests)?;
    println!("COUNTS requests={} enters={}", echo.echoed, echo.ring.enters());
    Ok(())
}

impl Echo {
    fn serve(&mut self, requests: u64) -> Result<()> {
        let mut batch = Vec::with_capacity(COMPLETIONS as usize);
        self.accept()?;
        while self.echoed < requests {
            self.ring.wait()?;
            self.ring.take(&mut batch);
            for completion in batch.drain(..) {
                self.complete(&completion)?;
            }
        }
        Ok(())
    }

    fn complete(&mut self, completion: &cqueue::Entry) -> Result<()> {
        let (tag, fd) = tag_and_index(completion.user_data());
        match (tag, completion.result()) {
            (ACCEPT, result) => self.accepted(result, cqueue::more(completion.flags())),
            (RECV, 1..) => self.send(fd, completion.result() as u32),
            (SEND, 1..) => self.sent(fd),
            (RECV | SEND, _) => self.close(fd),
            (_, result) => Err(unexpected("CLOSE", result)),
        }
    }

    fn accepted(&mut self, result: i32, more: bool) -> Result<()> {
        // Out of descriptors, say: a measurement is worth nothing then, and re-arming would spin.
        let fd = u32::try_from(result).map_err(|_| unexpected("ACCEPT", result))?;
        if !more {
            self.accept()?;
        }
        let index = fd as usize;
        if self.buffers.len() <= index {
            self.buffers.resize(index + 1, None);
        }
        self.buffers[index].get_or_insert_with(|| Leaked::new(self.buffer_len, 16));
        self.recv(fd)
    }

    fn sent(&mut self, fd: u32) -> Result<()> {
        self.echoed += 1;
        self.recv(fd)
    }

    fn accept(&mut self) -> Result<()> {
        let fd = types::Fd(self.listener.as_raw_fd());
        let entry = if self.direct {
            opcode::AcceptMulti::new(fd).allocate_file_index(true).build()
        } else {
            opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build()
        };
        // SAFETY: the entry names no memory.
        Ok(unsafe { self.ring.push(&entry.user_data(user_data(ACCEPT, 0))) }?)
    }

    fn recv(&mut self, fd: u32) -> Result<()> {
        let buffer = self.buffer(fd);
        let entry = opcode::Recv::new(types::Fd(fd as i32), buffer.as_ptr(), buffer.len_u32()).build();
        let entry = entry.flags(self.descriptor());
        // SAFETY: the buffer is leaked, and this connection's only operation is the one that writes to it.
        Ok(unsafe { self.ring.push(&entry.user_data(user_data(RECV, fd))) }?)
    }

    /// MSG_WAITALL: the kernel sends it to the end by itself, so a success is a whole echo.
    fn send(&mut self, fd: u32, len: u32) -> Result<()> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = opcode::Send::new(types::Fd(fd as i32), self.buffer(fd).as_ptr(), len).flags(flags).build();
        let entry = entry.flags(self.descriptor());
        // SAFETY: the buffer is leaked, `len` of its bytes were received, and nothing writes to it before SEND is done.
        Ok(unsafe { self.ring.push(&entry.user_data(user_data(SEND, fd))) }?)
    }

    fn close(&mut self, fd: u32) -> Result<()> {
        let entry = if self.direct {
            let entry = opcode::Close::new(types::Fixed(fd)).build();
            entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(user_data(CLOSE, fd))
        } else {
            close(fd, user_data(CLOSE, fd))
        };
        // SAFETY: the entry names no memory.
        Ok(unsafe { self.ring.push(&entry) }?)
    }

    /// What an entry's descriptor is.
    fn descriptor(&self) -> squeue::Flags {
        if self.direct { squeue::Flags::FIXED_FILE } else { squeue::Flags::empty() }
    }

    #[inline]
    fn buffer(&self, fd: u32) -> Leaked {
        self.buffers[fd as usize].expect("a buffer is made on accept and stays")
    }
}

fn unexpected(operation: &str, result: i32) -> Box<dyn std::error::Error> {
    format!("{operation}: {}", std::io::Error::from_raw_os_error(-result)).into()
}
