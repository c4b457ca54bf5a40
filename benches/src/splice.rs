//! The pipe tests: write, splice and read in one thread, and the splice or the tee alone, the same code on every runtime.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Write};
use std::thread;
use std::time::Instant;

use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::late_writer::LateWriter;
use runtime_limit::meter::{Meter, print_times};
use runtime_limit::pipes::CAPACITY;
use runtime_limit::process::pin_thread;

use crate::host::Host;

/// Messages that are passed between two looks at the clock.
const TOGETHER: usize = 64;

/// A runtime that moves bytes from pipe to pipe.
pub trait Splices: Host {
    /// The two ends between which bytes move.
    type Middle;

    /// Two pipes of [`CAPACITY`]: where bytes go in, what moves them, and where they come out.
    ///
    /// # Errors
    /// There are no descriptors left.
    fn line() -> Result<(File, Self::Middle, File)>;

    /// Moves some bytes, all of a message that is there.
    fn splice(middle: &mut Self::Middle, len: usize) -> impl Future<Output = io::Result<usize>>;

    /// Copies some bytes, if the runtime can; they stay in the first pipe.
    fn tee(_middle: &mut Self::Middle, _len: usize) -> impl Future<Output = io::Result<usize>> {
        async { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// Takes a message out of the first pipe again.
    fn drain(middle: &mut Self::Middle, message: Vec<u8>) -> impl Future<Output = io::Result<Vec<u8>>>;
}

/// The command `pass size=64`: write, splice, read. Outer ends are written and read by plain system calls, which is the
/// least that a runtime could do for itself.
///
/// # Errors
/// The arguments are wrong, the runtime does not start, or bytes are missing.
pub fn pass<H: Splices>(mut args: Args) -> Result<()> {
    let (size, mut meter) = (size(&mut args)?, Meter::new(&mut args)?);
    args.finish()?;
    H::new()?.block_on(async {
        let (mut tx, mut middle, mut rx) = H::line()?;
        let mut message = vec![7; size];
        while meter.goes_on() {
            meter.begin()?;
            for _ in 0..TOGETHER {
                tx.write_all(&message)?;
                whole(H::splice(&mut middle, size).await?, size)?;
                rx.read_exact(&mut message)?;
            }
            meter.end(TOGETHER as u64)?;
        }
        meter.print("pass");
        Ok(())
    })
}

/// The commands `splice t=ready|cold|wait size=64` and `tee`: the move alone.
///
/// * `ready`: there are bytes, and there is room for them.
/// * `cold`: the first one of a thread and its runtime, `n` times.
/// * `wait`: from the write of another thread, which comes `later_us` later, to the end of the move.
///
/// # Errors
/// The arguments are wrong, the runtime does not start or cannot do it, or bytes are missing.
pub fn command<H: Splices + 'static>(mut args: Args, make: fn() -> Result<H>) -> Result<()> {
    let is_tee = args.command() == "tee";
    let name = args.value("t", "ready".to_owned())?;
    let size = size(&mut args)?;
    match name.as_str() {
        "ready" => {
            let meter = Meter::new(&mut args)?;
            args.finish()?;
            make()?.block_on(ready::<H>(is_tee, size, meter))
        }
        "cold" => {
            let n: u32 = args.at_most("n", 12, 1000)?;
            args.finish()?;
            cold(is_tee, size, n, make)
        }
        "wait" => {
            let n: u32 = args.at_most("n", 500, 1_000_000)?;
            pin_thread(0);
            make()?.block_on(wait::<H>(is_tee, size, n, args))
        }
        _ => Err("t= is ready, cold or wait".into()),
    }
}

async fn ready<H: Splices>(is_tee: bool, size: usize, mut meter: Meter) -> Result<()> {
    let (mut tx, mut middle, mut rx) = H::line()?;
    let together = TOGETHER.min(CAPACITY / size);
    let mut message = vec![7; size];
    while meter.goes_on() {
        for _ in 0..together {
            tx.write_all(&message)?;
        }
        meter.begin()?;
        for _ in 0..together {
            step::<H>(&mut middle, is_tee, size).await?;
        }
        meter.end(together as u64)?;
        for _ in 0..together {
            rx.read_exact(&mut message)?;
            if is_tee {
                message = H::drain(&mut middle, message).await?;
            }
        }
    }
    meter.print("ready");
    Ok(())
}

fn cold<H: Splices + 'static>(is_tee: bool, size: usize, n: u32, make: fn() -> Result<H>) -> Result<()> {
    let one = move || {
        make()?.block_on(async {
            let (mut tx, mut middle, _rx) = H::line()?;
            tx.write_all(&vec![7; size])?;
            let began = Instant::now();
            step::<H>(&mut middle, is_tee, size).await?;
            Result::Ok(began.elapsed())
        })
    };
    let mut times = Vec::new();
    for _ in 0..n {
        let thread = thread::spawn(move || one().map_err(|error| error.to_string()));
        times.push(thread.join().map_err(|_| "a thread panicked")??);
    }
    print_times("cold", times);
    Ok(())
}

async fn wait<H: Splices>(is_tee: bool, size: usize, n: u32, mut args: Args) -> Result<()> {
    let (tx, mut middle, mut rx) = H::line()?;
    let writer = LateWriter::start(&mut args, tx, size)?;
    args.finish()?;
    let (mut message, mut times) = (vec![0; size], Vec::new());
    for _ in 0..n {
        writer.ask();
        step::<H>(&mut middle, is_tee, size).await?;
        times.push(writer.since_write());
        rx.read_exact(&mut message)?;
        if is_tee {
            message = H::drain(&mut middle, message).await?;
        }
    }
    print_times("wait", times);
    Ok(())
}

/// Takes `size=`.
///
/// # Errors
/// It is no size that a pipe can hold.
pub fn size(args: &mut Args) -> Result<usize> {
    Ok(args.at_most("size", 64, CAPACITY)?.max(1))
}

async fn step<H: Splices>(middle: &mut H::Middle, is_tee: bool, size: usize) -> Result<()> {
    let moved = if is_tee { H::tee(middle, size).await? } else { H::splice(middle, size).await? };
    whole(moved, size)
}

/// A part of a message is no measurement.
///
/// # Errors
/// It was not moved as a whole.
pub fn whole(moved: usize, size: usize) -> Result<()> {
    if moved == size { Ok(()) } else { Err(format!("{moved} bytes of {size} were moved").into()) }
}
