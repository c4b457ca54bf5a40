//! Much data, one server after the other: through a relay, and from a file; and small messages through a relay.
//!
//! A relay accepts two connections, the client's first, and moves bytes between them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Instant;

use runtime_limit::args::Args;
use runtime_limit::histogram::Histogram;
use runtime_limit::leaked::message;
use runtime_limit::{Result, socket};

use crate::target::{Account, Target, targets, turns};
use crate::{MOST_CYCLES, PATIENCE};

const MOST_MIB: usize = 16 << 10;

/// `mib` in messages of `msg` bytes through each relay.
pub(crate) fn relay(mut args: Args) -> Result<()> {
    let targets = targets(&mut args)?;
    let message_len = args.at_most("msg", 64 << 10, 16 << 20)?.max(1);
    let bytes = args.at_most("mib", 256, MOST_MIB)?.max(1) << 20;
    let cycles = args.at_most("cycles", 9, MOST_CYCLES)?;
    args.finish()?;
    for_turns(&targets, cycles, |target, cycle| {
        let account = Account::open(target)?;
        let (mut client, mut upstream) = pair(target)?;
        let data = message(message_len);
        let writer = thread::spawn(move || -> std::io::Result<usize> {
            let mut left = bytes;
            while left > 0 {
                let part = left.min(data.len());
                client.write_all(&data[..part])?;
                left -= part;
            }
            client.shutdown(Shutdown::Write)?;
            client.read(&mut [0])
        });
        if cycle == 0 {
            verify(&mut upstream, data, bytes)?;
        } else {
            discard(&mut upstream, bytes)?;
        }
        if upstream.read(&mut [0])? != 0 {
            return Err("bytes follow the end".into());
        }
        upstream.shutdown(Shutdown::Write)?;
        let back = writer.join().map_err(|_| "the writer panicked")??;
        if back != 0 {
            return Err("bytes came back".into());
        }
        drop(upstream);
        account.close_bulk(target, cycle, bytes)
    })
}

/// Messages of `msg` bytes there and back through each relay, one at a time.
pub(crate) fn ping(mut args: Args) -> Result<()> {
    let targets = targets(&mut args)?;
    let message_len = args.at_most("msg", 64, 1 << 20)?.max(1);
    let n = args.at_most("n", 1000, 1_000_000)?.max(1);
    let cycles = args.at_most("cycles", 9, MOST_CYCLES)?;
    args.finish()?;
    let data = message(message_len);
    for_turns(&targets, cycles, |target, cycle| {
        let (mut client, mut upstream) = pair(target)?;
        let (mut there, mut back) = (vec![0; message_len], vec![0; message_len]);
        let mut latencies = Histogram::default();
        let account = Account::open(target)?;
        for _ in 0..n {
            let sent = Instant::now();
            client.write_all(data)?;
            upstream.read_exact(&mut there)?;
            upstream.write_all(&there)?;
            client.read_exact(&mut back)?;
            latencies.add(sent.elapsed());
            if back != data {
                return Err("it is not what was sent".into());
            }
        }
        account.close(target, cycle, "trips", &latencies, n)
    })
}

/// A file of `mib` from each server: a request of HTTP, and all that comes until the end.
pub(crate) fn fetch(mut args: Args) -> Result<()> {
    let targets = targets(&mut args)?;
    let bytes = args.at_most("mib", 256, MOST_MIB)?.max(1) << 20;
    let cycles = args.at_most("cycles", 9, MOST_CYCLES)?;
    args.finish()?;
    for_turns(&targets, cycles, |target, cycle| {
        let account = Account::open(target)?;
        let mut stream = connect(target)?;
        stream.write_all(b"GET /data HTTP/1.0\r\n\r\n")?;
        discard(&mut stream, bytes)?;
        // A head of HTTP is more than the file, and no other file is so little more.
        let more = std::io::copy(&mut stream, &mut std::io::sink())?;
        if more > 1024 {
            return Err(format!("{more} bytes too many").into());
        }
        drop(stream);
        account.close_bulk(target, cycle, bytes)
    })
}

fn for_turns(targets: &[Target], cycles: usize, turn: impl Fn(&Target, usize) -> Result<()>) -> Result<()> {
    for cycle in 0..=cycles {
        for which in turns(targets.len(), cycle) {
            let target = &targets[which];
            turn(target, cycle).map_err(|error| format!("{} in cycle {cycle}: {error}", target.name))?;
        }
    }
    Ok(())
}

fn pair(target: &Target) -> Result<(TcpStream, TcpStream)> {
    Ok((connect(target)?, connect(target)?))
}

fn connect(target: &Target) -> Result<TcpStream> {
    let stream = socket::connect(target.address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// It never sleeps: waking a reader costs the server more than sending to it, and would be in its account. A client at the
/// other end of a cable is woken by its own machine.
fn discard(stream: &mut TcpStream, mut left: usize) -> Result<()> {
    let mut last = Instant::now();
    while left > 0 {
        match socket::discard(stream, left.min(1 << 20)) {
            Ok(0) => return Err(format!("{left} bytes are missing").into()),
            Ok(n) => {
                left -= n;
                last = Instant::now();
            }
            // For the writer of the other end, which runs on the same core.
            Err(error) if error.kind() == ErrorKind::WouldBlock && last.elapsed() < PATIENCE => thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The message again and again.
fn verify(stream: &mut TcpStream, data: &[u8], bytes: usize) -> Result<()> {
    let (mut buffer, mut done) = (vec![0; data.len()], 0);
    while done < bytes {
        let part = data.len().min(bytes - done);
        stream.read_exact(&mut buffer[..part])?;
        if buffer[..part] != data[..part] {
            return Err(format!("from byte {done} on it is not what was sent").into());
        }
        done += part;
    }
    Ok(())
}
