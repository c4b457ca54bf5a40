//! Bytes from pipe to pipe: `via=sys` with splice(2) and tee(2), `via=ring` with the ring's operations of these names.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use io_uring::{cqueue, opcode, types};
use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::late_writer::LateWriter;
use runtime_limit::meter::{Meter, print_times};
use runtime_limit::pipes::{CAPACITY, pipe, splice, tee};
use runtime_limit::ring::Ring;

/// Messages that are passed between two looks at the clock.
const TOGETHER: usize = 64;

enum Via {
    Sys,
    Ring(Box<Ring>, Vec<cqueue::Entry>),
}

/// `tx ══ from`, moved to `to ══ rx`.
struct Line {
    via: Via,
    is_tee: bool,
    tx: File,
    from: File,
    to: File,
    rx: File,
}

/// `pass size=64 via=sys`: write, splice, read.
pub(crate) fn pass(mut args: Args) -> Result<()> {
    let (mut line, size) = (Line::new(&mut args)?, size(&mut args)?);
    let mut meter = Meter::new(&mut args)?;
    args.finish()?;
    let mut message = vec![7; size];
    while meter.goes_on() {
        meter.begin()?;
        for _ in 0..TOGETHER {
            line.tx.write_all(&message)?;
            line.step(size, false)?;
            line.rx.read_exact(&mut message)?;
        }
        meter.end(TOGETHER as u64)?;
    }
    meter.print("pass");
    Ok(())
}

/// `splice t=ready|cold|wait size=64 via=sys`, and `tee`: the move alone.
pub(crate) fn step(mut args: Args) -> Result<()> {
    let name = args.value("t", "ready".to_owned())?;
    match name.as_str() {
        "ready" => ready(args),
        "cold" => cold(args),
        "wait" => wait(args),
        _ => Err("t= is ready, cold or wait".into()),
    }
}

fn ready(mut args: Args) -> Result<()> {
    let (mut line, size) = (Line::new(&mut args)?, size(&mut args)?);
    let mut meter = Meter::new(&mut args)?;
    args.finish()?;
    let together = TOGETHER.min(CAPACITY / size);
    let mut message = vec![7; size];
    while meter.goes_on() {
        for _ in 0..together {
            line.tx.write_all(&message)?;
        }
        meter.begin()?;
        for _ in 0..together {
            line.step(size, false)?;
        }
        meter.end(together as u64)?;
        for _ in 0..together {
            line.rx.read_exact(&mut message)?;
            if line.is_tee {
                line.from.read_exact(&mut message)?;
            }
        }
    }
    meter.print("ready");
    Ok(())
}

/// The first one of a thread, `n=` times: a ring and the kernel's workers are a thread's.
fn cold(mut args: Args) -> Result<()> {
    let size = size(&mut args)?;
    let n: u32 = args.at_most("n", 12, 1000)?;
    // What else there is belongs to the line, of which every thread makes one.
    let is_tee = args.command() == "tee";
    let via = args.value("via", "sys".to_owned())?;
    args.finish()?;
    let one = move || -> std::result::Result<Duration, String> {
        let mut line = Line::of(is_tee, &via).map_err(|error| error.to_string())?;
        line.tx.write_all(&vec![7; size]).map_err(|error| error.to_string())?;
        let began = Instant::now();
        line.step(size, false).map_err(|error| error.to_string())?;
        Ok(began.elapsed())
    };
    let mut times = Vec::new();
    for _ in 0..n {
        times.push(thread::spawn(one.clone()).join().map_err(|_| "a thread panicked")??);
    }
    print_times("cold", times);
    Ok(())
}

fn wait(mut args: Args) -> Result<()> {
    let (mut line, size) = (Line::new(&mut args)?, size(&mut args)?);
    let n: u32 = args.at_most("n", 500, 1_000_000)?;
    runtime_limit::process::pin_thread(0);
    let writer = LateWriter::start(&mut args, line.tx.try_clone()?, size)?;
    args.finish()?;
    let (mut message, mut times) = (vec![0; size], Vec::new());
    for _ in 0..n {
        writer.ask();
        line.step(size, true)?;
        times.push(writer.since_write());
        line.rx.read_exact(&mut message)?;
        if line.is_tee {
            line.from.read_exact(&mut message)?;
        }
    }
    print_times("wait", times);
    Ok(())
}

/// Takes `size=`.
fn size(args: &mut Args) -> Result<usize> {
    Ok(args.at_most("size", 64, CAPACITY)?.max(1))
}

impl Line {
    /// Takes `via=`.
    fn new(args: &mut Args) -> Result<Self> {
        let via = args.value("via", "sys".to_owned())?;
        Self::of(args.command() == "tee", &via)
    }

    fn of(is_tee: bool, via: &str) -> Result<Self> {
        let via = match via {
            "sys" => Via::Sys,
            "ring" => Via::Ring(Box::new(Ring::new(8, 16)?), Vec::with_capacity(16)),
            _ => return Err(format!("via={via}: it is sys or ring").into()),
        };
        let ((from, tx), (rx, to)) = (pipe()?, pipe()?);
        Ok(Self { via, is_tee, tx, from, to, rx })
    }

    /// All `len` bytes in one go: anything else is no measurement.
    #[inline]
    fn step(&mut self, len: usize, waits: bool) -> Result<()> {
        let Self { via, from, to, is_tee, .. } = self;
        let moved = match via {
            Via::Sys if *is_tee => tee(from, to, len, waits)?,
            Via::Sys => splice(from, to, len, waits)?,
            Via::Ring(ring, batch) => {
                let (from, to) = (types::Fd(from.as_raw_fd()), types::Fd(to.as_raw_fd()));
                let entry = match is_tee {
                    true => opcode::Tee::new(from, to, len as u32).build(),
                    false => opcode::Splice::new(from, -1, to, -1, len as u32).build(),
                };
                // SAFETY: the entry names no memory.
                unsafe { ring.push(&entry) }?;
                while batch.is_empty() {
                    ring.wait()?;
                    ring.take(batch);
                }
                batch.drain(..).map(|completion| completion.result()).sum::<i32>() as usize
            }
        };
        if moved == len { Ok(()) } else { Err(format!("{moved} bytes of {len} were moved").into()) }
    }
}
