//! Two threads that wake one another out of their rings, in the two ways that there are, by turns.
//!
//! `eventfd`: a write(2) to a descriptor that the sleeper's ring watches with one multishot poll and that nobody reads.
//! `ring`: `MSG_RING` (5.18) puts a completion into the sleeper's ring, in the very enter that the waker sleeps in.
//!
//! ```text
//!   one    kick ──▶ sleep ─────────────────▶ awake      one round trip, timed here
//!   other           awake ──▶ kick ──▶ sleep
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use io_uring::{cqueue, opcode, squeue, types};
use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::process::pin_thread;
use runtime_limit::ring::Ring;

/// Round trips before the ways change places.
const SLICE: usize = 500;
const POLL: u64 = 1;
const KICK: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    EventFd,
    Ring,
}

struct Side {
    ring: Ring,
    /// Never read, so that each write wakes the poll.
    _event: File,
    other_event: File,
    other_ring: RawFd,
    batch: Vec<cqueue::Entry>,
}

pub(crate) fn run(mut args: Args) -> Result<()> {
    let slices = args.at_most::<usize>("n", 20_000, 10_000_000)?.div_ceil(2 * SLICE).max(1);
    let other_core = args.at_most("core", 1, 1 << 10)?;
    args.finish()?;
    let events = [eventfd()?, eventfd()?];
    let copies = [events[0].try_clone()?, events[1].try_clone()?];
    let [(to_one, at_one), (to_other, at_other)] = [mpsc::channel(), mpsc::channel()];
    let ([mine, theirs], [my_copy, their_copy]) = (events, copies);
    let other = thread::spawn(move || -> std::result::Result<(), String> {
        pin_thread(other_core);
        let mut side = Side::new(theirs, my_copy, &to_one, &at_other).map_err(|error| error.to_string())?;
        for slice in 0..2 * slices {
            for _ in 0..SLICE {
                side.sleep().and_then(|()| side.kick(way(slice))).map_err(|error| error.to_string())?;
            }
        }
        side.flush().map_err(|error| error.to_string())
    });
    pin_thread(0);
    let mut side = Side::new(mine, their_copy, &to_other, &at_one)?;
    let mut times = [Vec::new(), Vec::new()];
    for slice in 0..2 * slices {
        let times = &mut times[way(slice) as usize];
        for _ in 0..SLICE {
            let start = Instant::now();
            side.kick(way(slice))?;
            side.sleep()?;
            times.push(start.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    other.join().map_err(|_| "the other thread panicked")??;
    let [event, ring] = times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!(
        "RESULT test=wake core={other_core} eventfd_us={event:.2} msg_ring_us={ring:.2} ratio={:.2}",
        event / ring
    );
    Ok(())
}

/// Slices alternate.
fn way(slice: usize) -> Way {
    if slice.is_multiple_of(2) { Way::EventFd } else { Way::Ring }
}

impl Side {
    fn new(event: File, other_event: File, tell: &mpsc::Sender<RawFd>, hear: &mpsc::Receiver<RawFd>) -> Result<Self> {
        let mut ring = Ring::new(8, 32)?;
        let poll = opcode::PollAdd::new(types::Fd(event.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
        // SAFETY: the entry names no memory.
        unsafe { ring.push(&poll.user_data(POLL)) }?;
        ring.submit()?;
        tell.send(ring.as_raw_fd()).map_err(|_| "the other thread is gone")?;
        let other_ring = hear.recv()?;
        Ok(Self { ring, _event: event, other_event, other_ring, batch: Vec::with_capacity(32) })
    }

    fn kick(&mut self, way: Way) -> io::Result<()> {
        match way {
            Way::EventFd => self.other_event.write_all(&1u64.to_ne_bytes()),
            Way::Ring => {
                let message = opcode::MsgRingData::new(types::Fd(self.other_ring), 0, KICK, None).build();
                // SAFETY: the entry names no memory.
                unsafe { self.ring.push(&message.flags(squeue::Flags::SKIP_SUCCESS)) }
            }
        }
    }

    /// Until the other one kicks.
    fn sleep(&mut self) -> io::Result<()> {
        loop {
            self.ring.wait()?;
            self.ring.take(&mut self.batch);
            let mut kicked = false;
            for completion in self.batch.drain(..) {
                if completion.result() < 0 {
                    return Err(io::Error::from_raw_os_error(-completion.result()));
                }
                kicked |= matches!(completion.user_data(), POLL | KICK);
            }
            if kicked {
                return Ok(());
            }
        }
    }

    /// The last kick goes out although nobody sleeps afterwards.
    fn flush(&mut self) -> io::Result<()> {
        self.ring.submit()
    }
}

fn eventfd() -> io::Result<File> {
    // SAFETY: no preconditions.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which is ours.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}
