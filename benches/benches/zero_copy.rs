//! From how many bytes on does a zero-copy send cost less CPU than one that copies?
//!
//! One connection, one message at a time: `plain` is `write_all`, `zc` is `write_all_zc` with a vector, `fixed` with a
//! registered buffer, and `two` keeps two registered buffers on the way. All send the same number of messages in turns, in
//! an order that rotates, and their CPU time is divided by that of `plain` in the same cycle.
//!
//! ```text
//! cargo bench -p benches --bench zero_copy -- [cycles=N] [mib=N] [to=ADDR] [udp] [sink=ADDR]
//! ```
//!
//! Without `to` a child process reads at the other end of a loopback connection. **Loopback and veth always copy what is
//! sent without a copy** (`copied` says so), at the latest when the receiver's stack takes it, so there the ratios say what
//! the attempt costs. What it saves shows on a device that takes the data for good: run it with `to` on such a machine and
//! with `sink` on the other, or with `udp` into a device that drops, in a network namespace:
//!
//! ```text
//! ip netns add a; ip -n a link add b0 mtu 65535 type bridge; ip -n a addr add 10.9.0.1/24 dev b0; ip -n a link set b0 up
//! ip -n a neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev b0
//! ip netns exec a target/release/deps/zero_copy-… udp to=10.9.0.2:7000
//! ```

#![forbid(unsafe_code)]

use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use benches::driver::Quartiles;
use runtime::io::FixedBufs;
use runtime::net::TcpStream;
use runtime_limit::cpu::CpuClock;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const VARIANTS: [&str; 4] = ["plain", "zc", "fixed", "two"];

fn main() -> Result<()> {
    let (mut cycles, mut bytes, mut to, mut udp) = (15, 8 << 20, None, false);
    for arg in std::env::args().skip(1) {
        match arg.split_once('=') {
            Some(("cycles", n)) => cycles = n.parse()?,
            Some(("mib", n)) => bytes = n.parse::<usize>()? << 20,
            Some(("to", addr)) => to = Some(addr.parse()?),
            Some(("sink", addr)) => return sink(addr.parse()?),
            None if arg == "udp" => udp = true,
            // What cargo adds.
            None if arg == "--bench" => {}
            _ => return Err(format!("what is {arg}?").into()),
        }
    }
    let mut child = None;
    let to = match to {
        Some(to) => to,
        None => {
            let (sink, addr) = Sink::start()?;
            child = Some(sink);
            addr
        }
    };
    runtime::Runtime::new()?.block_on(measure(cycles, bytes, to, udp))?;
    drop(child);
    Ok(())
}

async fn measure(cycles: usize, bytes: usize, to: SocketAddr, udp: bool) -> Result<()> {
    println!("CPU per message: plain in µs, the others divided by it; median (quartiles) of {cycles} cycles");
    println!("{:>8}  {:22}{:22}{:22}{:22}copied", "bytes", "plain", "zc", "fixed", "two");
    for shift in 12..=20 {
        // A datagram has 65507 bytes at most.
        let size = if udp && shift == 16 { 60 << 10 } else { 1 << shift };
        if udp && shift > 16 {
            break;
        }
        let count = (bytes / size).max(4);
        let mut took = [const { Vec::new() }; VARIANTS.len()];
        let before = runtime::metrics();
        for cycle in 0..=cycles {
            for turn in 0..VARIANTS.len() {
                let which = (turn + cycle) % VARIANTS.len();
                let stream = connect(to, udp).await?;
                let cpu = slice(VARIANTS[which], &stream, size, count).await?;
                // The first cycle warms up.
                if cycle > 0 {
                    took[which].push(cpu);
                }
            }
        }
        let done = runtime::metrics();
        print!("{size:>8}  {:<22.2}", Quartiles::of(took[0].iter().copied()).ok_or("no cycles")?);
        for other in &took[1..] {
            print!("{:<22.2}", Quartiles::of_ratios(other, &took[0]).ok_or("no cycles")?);
        }
        println!("{} of {}", done.zc_copied - before.zc_copied, done.zc_notices - before.zc_notices);
    }
    Ok(())
}

async fn connect(to: SocketAddr, udp: bool) -> Result<TcpStream> {
    let stream = if udp {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(to)?;
        // Sends are the same to both kinds.
        TcpStream::from(OwnedFd::from(socket))
    } else {
        TcpStream::connect(to).await?
    };
    stream.set_zc_threshold(1);
    Ok(stream)
}

/// CPU per message in µs.
async fn slice(variant: &str, stream: &TcpStream, size: usize, count: usize) -> Result<f64> {
    let bufs = FixedBufs::new(2, size)?;
    let lease = || async {
        let mut buf = bufs.lease().await;
        buf.resize(size);
        buf
    };
    let (mut vec, mut fixed, clock) = (vec![7; size], lease().await, CpuClock::own());
    let before = clock.read()?;
    match variant {
        "plain" => {
            for _ in 0..count {
                vec = stream.write_all(vec).await.into_result()?.1;
            }
        }
        "zc" => {
            for _ in 0..count {
                vec = stream.write_all_zc(vec).await.into_result()?.1;
            }
        }
        "fixed" => {
            for _ in 0..count {
                fixed = stream.write_all_zc(fixed).await.into_result()?.1;
            }
        }
        _ => {
            let run = |mut buf| async move {
                for _ in 0..count / 2 {
                    buf = stream.write_all_zc(buf).await.into_result()?.1;
                }
                std::io::Result::Ok(())
            };
            let (one, other) = futures_lite::future::zip(run(fixed), run(lease().await)).await;
            one.and(other)?;
        }
    }
    Ok((clock.read()? - before).as_secs_f64() * 1e6 / count as f64)
}

/// Reads what anybody sends, connection after connection.
fn sink(addr: SocketAddr) -> Result<()> {
    let listener = std::net::TcpListener::bind(addr)?;
    println!("{}", listener.local_addr()?);
    let mut buf = vec![0; 256 << 10];
    for stream in listener.incoming() {
        let mut stream = stream?;
        while stream.read(&mut buf)? > 0 {}
    }
    Ok(())
}

/// A sink in a process of its own, so that its CPU is not counted.
struct Sink(Child);

impl Sink {
    fn start() -> Result<(Self, SocketAddr)> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("sink=127.0.0.1:0").stdout(Stdio::piped()).spawn()?;
        let mut output = child.stdout.take().ok_or("no output")?;
        let sink = Self(child);
        let mut line = Vec::new();
        let mut byte = [0];
        while output.read(&mut byte)? > 0 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        Ok((sink, String::from_utf8(line)?.parse()?))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
