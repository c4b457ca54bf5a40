//! What does a splice of the runtime cost beside the bare system call, and what does a relay save that does not copy?
//!
//! `pass` writes a message into one pipe, splices it into another and reads it there, in one thread: once with the three bare
//! system calls and once with the runtime. `relay` moves a stream of bytes between two loopback connections, copying and
//! splicing; the threads at the ends write and read blocks of 64 KiB, and their CPU is not counted.
//!
//! ```text
//! cargo bench -p benches --bench splice -- [cycles=N] [count=N] [mib=N]
//! ```
//!
//! The variants take turns, and the ratio is that of the same cycle.

#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpListener};
use std::os::fd::AsFd;
use std::time::Instant;

use benches::driver::Quartiles;
use runtime::net::TcpStream;
use runtime::pipe::{Builder, Relay, splice};
use runtime_core::sys::{self, pipes};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let (mut cycles, mut count, mut mib) = (21, 2000, 64);
    for arg in std::env::args().skip(1) {
        match arg.split_once('=') {
            Some(("cycles", n)) => cycles = n.parse()?,
            Some(("count", n)) => count = n.parse()?,
            Some(("mib", n)) => mib = n.parse()?,
            None if arg == "--bench" => {}
            _ => return Err(format!("what is {arg}?").into()),
        }
    }
    println!("pass: µs per message of the bare calls, ours divided by it; median (quartiles) of {cycles} cycles");
    for size in [64, 4 << 10, 64 << 10] {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for cycle in 0..=cycles {
            let pair = (pass_bare(size, count)?, runtime::Runtime::new()?.block_on(pass(size, count))?);
            // The first cycle warms up.
            if cycle > 0 {
                bare.push(pair.0);
                ours.push(pair.1);
            }
        }
        let ratio = Quartiles::of_ratios(&ours, &bare).ok_or("no cycles")?;
        println!("{size:>8}  {:<22.2}{ratio:<22.2}", Quartiles::of(bare.iter().copied()).ok_or("no cycles")?);
    }
    println!("relay: CPU of the relaying thread in ms per GiB, copied; spliced divided by it");
    let (mut copied, mut spliced) = (Vec::new(), Vec::new());
    for _ in 0..cycles.min(7) {
        copied.push(relay(Relay::new().copy(), mib)?);
        spliced.push(relay(Relay::new().splice(), mib)?);
    }
    let ratio = Quartiles::of_ratios(&spliced, &copied).ok_or("no cycles")?;
    println!("{mib:>4} MiB  {:<22.2}{ratio:<22.2}", Quartiles::of(copied.iter().copied()).ok_or("no cycles")?);
    Ok(())
}

fn pass_bare(size: usize, count: usize) -> Result<f64> {
    let ((from, tx), (rx, to)) = (sys::pipe()?, sys::pipe()?);
    let data = vec![7; size];
    let mut buf = vec![MaybeUninit::uninit(); size];
    let start = Instant::now();
    for _ in 0..count {
        pipes::write(tx.as_fd(), &data)?;
        pipes::splice(from.as_fd(), to.as_fd(), size)?;
        pipes::read(rx.as_fd(), &mut buf)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
}

async fn pass(size: usize, count: usize) -> Result<f64> {
    let ((tx, from), (to, rx)) = (Builder::new().build()?, Builder::new().build()?);
    let (mut data, mut buf) = (vec![7; size], Vec::with_capacity(size));
    let start = Instant::now();
    for _ in 0..count {
        data = tx.write(data).await.into_result()?.1;
        splice(&from, &to, size).await?;
        buf = rx.read(buf).await.into_result()?.1;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
}

/// CPU of this thread, as the scheduler counts it.
fn thread_cpu_ns() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().ok_or("an empty schedstat")?.parse()?)
}

fn relay(way: Relay, mib: usize) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    runtime::Runtime::new()?.block_on(async {
        let (a, mut client) = (TcpStream::connect(addr).await?, listener.accept()?.0);
        let (b, mut server) = (TcpStream::connect(addr).await?, listener.accept()?.0);
        let writer = std::thread::spawn(move || {
            let block = vec![7; 64 << 10];
            for _ in 0..mib * 16 {
                client.write_all(&block)?;
            }
            client.shutdown(Shutdown::Write)?;
            client.read(&mut [0])
        });
        let reader = std::thread::spawn(move || {
            let mut block = vec![0; 64 << 10];
            while server.read(&mut block)? > 0 {}
            std::io::Result::Ok(())
        });
        let before = thread_cpu_ns()?;
        let relayed = way.run(&a, &b).await?;
        let took = thread_cpu_ns()? - before;
        if relayed.there != (mib << 20) as u64 {
            return Err("bytes are missing".into());
        }
        drop((a, b));
        writer.join().map_err(|_| "the writer panicked")??;
        reader.join().map_err(|_| "the reader panicked")??;
        Ok(took / 1e6 / mib as f64 * 1024.0)
    })
}
