//! Connections that are opened, used once and closed.
//!
//! Sockets are made and bound before the clock starts. Each then runs through one linked chain, of which only the last
//! entry completes; any other completion is an error and ends the run.
//!
//! ```text
//! connect   CONNECT → SEND → RECV (whole message) → CLOSE      `conc` of `total` at a time
//! burst     CONNECT → RECV (end of stream) → CLOSE             `burst` in one enter, the next when all are done
//! hold      CONNECT                                            `burst` in one enter, the next when the server sleeps
//! ```
//!
//! In `hold` both sides keep what they have until the slice is accounted for. Then one more connection, which the server
//! tells from the others by its number, makes it close all; the load follows with resets. Nothing tells the load when a
//! connection was accepted, so it waits until the server sleeps, and `rate` and latencies are those of the hand-shakes.

use std::io::Read;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::time::Instant;

use io_uring::{opcode, squeue, types};
use runtime_limit::args::Args;
use runtime_limit::histogram::Histogram;
use runtime_limit::leaked::{Leaked, message};
use runtime_limit::ring::{Ring, Waited, tag_and_index, user_data};
use runtime_limit::socket::{self, Close, Dialer};
use runtime_limit::{MOST_HELD, Result, process};

use crate::target::{Account, Target, targets, turns};
use crate::{MOST_CONNECTIONS, MOST_CYCLES, PATIENCE};

const SUBMISSIONS: u32 = 4096;
const COMPLETIONS: u32 = 16384;

const CONNECT: u8 = 1;
const SEND: u8 = 2;
const RECV: u8 = 3;
const CLOSE: u8 = 4;
const HELD: u8 = 5;

pub(crate) fn connect(mut args: Args) -> Result<()> {
    let targets = targets(&mut args)?;
    let total = args.at_most("total", 1000, MOST_CONNECTIONS)?;
    let at_once = args.at_most("conc", 64, total)?.max(1);
    let message_len = args.at_most("msg", 64, 16 << 10)?.max(1);
    let cycles = args.at_most("cycles", 25, MOST_CYCLES)?;
    args.finish()?;
    let mut dial = Dial::new(message_len, at_once)?;
    for cycle in 0..=cycles {
        for which in turns(targets.len(), cycle) {
            let target = &targets[which];
            dial.requests(target, total, cycle)
                .map_err(|error| format!("{} in cycle {cycle}: {error}", target.name))?;
        }
    }
    Ok(())
}

pub(crate) fn burst(args: Args) -> Result<()> {
    in_bursts(args, MOST_CONNECTIONS, Dial::bursts)
}

pub(crate) fn hold(args: Args) -> Result<()> {
    in_bursts(args, MOST_HELD, Dial::held)
}

fn in_bursts(
    mut args: Args,
    most: usize,
    slice: impl Fn(&mut Dial, &Target, usize, usize) -> Result<()>,
) -> Result<()> {
    let targets = targets(&mut args)?;
    let burst = args.at_most("burst", 64, SUBMISSIONS as usize / 4)?.max(1);
    let rounds = args.at_most("rounds", 16, most / burst)?;
    let cycles = args.at_most("cycles", 25, MOST_CYCLES)?;
    args.finish()?;
    // Either wakes the other from within a system call, and may be on its core.
    process::never_preempt(0)?;
    targets.iter().try_for_each(Target::never_preempt)?;
    let mut dial = Dial::new(1, burst)?;
    for cycle in 0..=cycles {
        for which in turns(targets.len(), cycle) {
            let target = &targets[which];
            slice(&mut dial, target, rounds, cycle)
                .map_err(|error| format!("{} in cycle {cycle}: {error}", target.name))?;
        }
    }
    Ok(())
}

/// A place that one connection at a time has.
struct Slot {
    answer: Leaked,
    since: Instant,
}

struct Dial {
    ring: Ring,
    dialer: Dialer,
    message: &'static [u8],
    slots: Vec<Slot>,
    batch: Vec<io_uring::cqueue::Entry>,
}

impl Dial {
    fn new(message_len: usize, at_once: usize) -> Result<Self> {
        let now = Instant::now();
        let slot = |_| Slot { answer: Leaked::new(message_len, 16), since: now };
        Ok(Self {
            ring: Ring::new(SUBMISSIONS, COMPLETIONS)?,
            dialer: Dialer::default(),
            message: message(message_len),
            slots: (0..at_once).map(slot).collect(),
            batch: Vec::with_capacity(COMPLETIONS as usize),
        })
    }

    /// `total` connections, each with a request of its own.
    fn requests(&mut self, target: &Target, total: usize, cycle: usize) -> Result<()> {
        let mut sockets = self.sockets(total, Close::Orderly)?;
        let mut latencies = Histogram::default();
        let account = Account::open(target)?;
        let start = Instant::now();
        let mut turns = 0;
        for slot in 0..self.slots.len() {
            let socket = sockets.pop().ok_or("more slots than sockets")?;
            self.request(slot, socket, target, start)?;
        }
        while latencies.count() < total as u64 {
            let now = self.wait()?;
            turns += 1;
            for slot in self.take_ended()? {
                self.check_answer(slot)?;
                latencies.add(now - self.slots[slot].since);
                if let Some(socket) = sockets.pop() {
                    self.request(slot, socket, target, now)?;
                }
            }
        }
        account.close(target, cycle, "connections", &latencies, turns)
    }

    /// `rounds` bursts of as many connections as there are slots.
    fn bursts(&mut self, target: &Target, rounds: usize, cycle: usize) -> Result<()> {
        let mut sockets = self.sockets(rounds * self.slots.len(), Close::Reset)?;
        let mut latencies = Histogram::default();
        let account = Account::open(target)?;
        let mut turns = 0;
        for _ in 0..rounds {
            let start = Instant::now();
            let round = sockets.split_off(sockets.len() - self.slots.len());
            for (slot, socket) in round.into_iter().enumerate() {
                self.until_closed(slot, socket, target, start)?;
            }
            let mut open = self.slots.len();
            while open > 0 {
                let now = self.wait()?;
                turns += 1;
                for slot in self.take_ended()? {
                    latencies.add(now - self.slots[slot].since);
                    open -= 1;
                }
            }
        }
        account.close(target, cycle, "connections", &latencies, turns)
    }

    /// `rounds` bursts of connections that both sides keep until the account is closed.
    fn held(&mut self, target: &Target, rounds: usize, cycle: usize) -> Result<()> {
        let burst = self.slots.len();
        let sockets = self.sockets(rounds * burst, Close::Reset)?;
        let mut latencies = Histogram::default();
        let mut account = Account::open(target)?;
        let mut turns = 0;
        for round in sockets.chunks(burst) {
            let start = Instant::now();
            for socket in round {
                let connect = connect_entry(types::Fd(socket.as_raw_fd()), target).user_data(user_data(HELD, 0));
                // SAFETY: the address is leaked.
                unsafe { self.ring.push(&connect)? };
            }
            let mut to_come = burst;
            while to_come > 0 {
                let now = self.wait()?;
                turns += 1;
                for _ in self.take_ended()? {
                    latencies.add(now - start);
                    to_come -= 1;
                }
            }
            account.rest(target)?;
        }
        account.close(target, cycle, "connections", &latencies, turns)?;
        let mut last = socket::connect(target.address)?;
        last.set_read_timeout(Some(PATIENCE))?;
        if last.read(&mut [0])? > 0 {
            return Err("the server does not only accept".into());
        }
        // It has closed the last one; by now it may not be through with the others.
        target.settle()
    }

    fn sockets(&mut self, count: usize, close: Close) -> Result<Vec<OwnedFd>> {
        Ok((0..count).map(|_| self.dialer.socket(close)).collect::<std::io::Result<_>>()?)
    }

    fn request(&mut self, slot: usize, socket: OwnedFd, target: &Target, now: Instant) -> Result<()> {
        let fd = types::Fd(socket.into_raw_fd());
        let answer = self.slots[slot].answer;
        let send = opcode::Send::new(fd, self.message.as_ptr(), self.message.len() as u32);
        let recv = opcode::Recv::new(fd, answer.as_ptr(), answer.len_u32()).flags(libc::MSG_WAITALL);
        let chain = [
            linked(connect_entry(fd, target), CONNECT, slot),
            linked(send.flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build(), SEND, slot),
            linked(recv.build(), RECV, slot),
            opcode::Close::new(fd).build().user_data(user_data(CLOSE, slot as u32)),
        ];
        self.start(slot, &chain, now)
    }

    fn until_closed(&mut self, slot: usize, socket: OwnedFd, target: &Target, now: Instant) -> Result<()> {
        let fd = types::Fd(socket.into_raw_fd());
        let answer = self.slots[slot].answer;
        let chain = [
            linked(connect_entry(fd, target), CONNECT, slot),
            linked(opcode::Recv::new(fd, answer.as_ptr(), answer.len_u32()).build(), RECV, slot),
            opcode::Close::new(fd).build().user_data(user_data(CLOSE, slot as u32)),
        ];
        self.start(slot, &chain, now)
    }

    fn start(&mut self, slot: usize, chain: &[squeue::Entry], now: Instant) -> Result<()> {
        self.slots[slot].since = now;
        // SAFETY: addresses, message and answers are leaked; an answer belongs to the one chain in its slot.
        Ok(unsafe { self.ring.push_chain(chain) }?)
    }

    fn wait(&mut self) -> Result<Instant> {
        match self.ring.wait_at_most(PATIENCE)? {
            Waited::Woken => Ok(Instant::now()),
            Waited::TimedOut => Err(format!("connections do not end within {PATIENCE:?}").into()),
        }
    }

    /// The slots whose chain came to its end.
    fn take_ended(&mut self) -> Result<Vec<usize>> {
        self.ring.take(&mut self.batch);
        self.batch.drain(..).map(|completion| ended_slot(completion.user_data(), completion.result())).collect()
    }

    fn check_answer(&self, slot: usize) -> Result<()> {
        // SAFETY: the slot's chain has ended, so the kernel writes no more.
        let answer = unsafe { self.slots[slot].answer.bytes() };
        if answer == self.message { Ok(()) } else { Err("what came back is not what was sent".into()) }
    }
}

fn connect_entry(fd: types::Fd, target: &Target) -> squeue::Entry {
    opcode::Connect::new(fd, target.sockaddr.as_ptr().cast(), target.sockaddr.len()).build()
}

/// The next entry waits for this one; if it fails, only its own completion comes.
fn linked(entry: squeue::Entry, tag: u8, slot: usize) -> squeue::Entry {
    let flags = squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS;
    entry.flags(flags).user_data(user_data(tag, slot as u32))
}

fn ended_slot(user_data: u64, result: i32) -> Result<usize> {
    let (tag, slot) = tag_and_index(user_data);
    let operation = match tag {
        CONNECT => "CONNECT",
        SEND => "SEND",
        RECV => "RECV",
        HELD if result < 0 => "CONNECT",
        _ if result < 0 => "CLOSE",
        _ => return Ok(slot as usize),
    };
    Err(format!("{operation} came back with {result}").into())
}
