//! Accepts and closes, nothing else: what a connection costs before anyone has read from it.
//!
//! `mode=multi` arms one multishot accept for all; `mode=single` arms one accept after another, which is what
//! multishot is measured against. Both close through the ring, with the enter that they make anyway.
//!
//! With `hold=N` connections are kept, so that accepting is measured without closing: the next one after N is the load's
//! word that its slice is accounted for, and all are closed then.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{cqueue, opcode, squeue, types};
use runtime_limit::args::Args;
use runtime_limit::ring::{Ring, tag_and_index, user_data};
use runtime_limit::{MOST_HELD, Result, socket};

use crate::{COMPLETIONS, SUBMISSIONS, close};

const ACCEPT: u8 = 1;
const CLOSE: u8 = 2;

struct Acceptor {
    ring: Ring,
    /// What is armed, and armed again when it has ended.
    accept: squeue::Entry,
    accepted: u64,
    hold: usize,
    held: Vec<u32>,
    /// Enters when the first of those held had come.
    enters_at_first: u64,
    /// Enters that held connections took, closing not among them.
    accepting: u64,
}

pub(crate) fn run(mut args: Args) -> Result<()> {
    let listener = socket::listen(args.value("port", 0)?)?;
    let fd = types::Fd(listener.as_raw_fd());
    let mode = args.value("mode", "multi".to_owned())?;
    let connections = args.value("conns", u64::MAX)?;
    let hold = args.at_most("hold", 0, MOST_HELD)?;
    args.finish()?;
    let accept = match mode.as_str() {
        "multi" => opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build(),
        "single" => {
            opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut()).flags(libc::SOCK_CLOEXEC).build()
        }
        _ => return Err(format!("mode={mode}: it is multi or single").into()),
    };
    println!("READY port={}", listener.local_addr()?.port());
    let mut acceptor = Acceptor {
        ring: Ring::new(SUBMISSIONS, COMPLETIONS)?,
        accept: accept.user_data(user_data(ACCEPT, 0)),
        accepted: 0,
        hold,
        held: Vec::with_capacity(hold + 1),
        enters_at_first: 0,
        accepting: 0,
    };
    acceptor.serve(connections)?;
    let Acceptor { ring, accepted, accepting, .. } = acceptor;
    println!("COUNTS accepted={accepted} enters={} accepting={accepting}", ring.enters());
    Ok(())
}

impl Acceptor {
    fn serve(&mut self, connections: u64) -> Result<()> {
        let mut batch = Vec::with_capacity(COMPLETIONS as usize);
        self.arm()?;
        while self.accepted < connections {
            self.ring.wait()?;
            self.ring.take(&mut batch);
            for completion in batch.drain(..) {
                let (tag, _) = tag_and_index(completion.user_data());
                let fd = u32::try_from(completion.result())
                    .map_err(|_| format!("tag {tag}: {}", io::Error::from_raw_os_error(-completion.result())))?;
                self.accepted += 1;
                match self.hold {
                    0 => self.close(fd)?,
                    _ => self.keep(fd)?,
                }
                if !cqueue::more(completion.flags()) {
                    self.arm()?;
                }
            }
        }
        Ok(self.ring.submit()?)
    }

    fn arm(&mut self) -> Result<()> {
        // SAFETY: neither form of the entry names memory: the peer's address is not asked for.
        Ok(unsafe { self.ring.push(&self.accept) }?)
    }

    fn keep(&mut self, fd: u32) -> Result<()> {
        if self.held.is_empty() {
            self.enters_at_first = self.ring.enters();
        }
        self.held.push(fd);
        if self.held.len() <= self.hold {
            return Ok(());
        }
        // The enter that brought the first is not in the difference; the one that brought the last, which is no part of
        // the slice, is.
        self.accepting += self.ring.enters() - self.enters_at_first;
        for fd in std::mem::take(&mut self.held) {
            self.close(fd)?;
        }
        self.held.reserve(self.hold + 1);
        Ok(())
    }

    fn close(&mut self, fd: u32) -> Result<()> {
        // SAFETY: the entry names no memory.
        Ok(unsafe { self.ring.push(&close(fd, user_data(CLOSE, fd))) }?)
    }
}
