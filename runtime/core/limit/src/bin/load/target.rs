//! The servers under load, the order of their turns, and the account of one slice.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use runtime_limit::args::Args;
use runtime_limit::cpu::{self, CpuClock};
use runtime_limit::histogram::Histogram;
use runtime_limit::{Result, process};
use socket2::SockAddr;

const TO_GIVE_WAY: Duration = Duration::from_secs(1);
/// Longer than any server spins before it parks.
const TO_SLEEP: Duration = Duration::from_micros(1500);

pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) address: SocketAddrV4,
    /// The address as the kernel reads it; leaked, so that an entry may name it.
    pub(crate) sockaddr: &'static SockAddr,
    pid: i32,
}

impl Target {
    /// For a load on the server's core: see [`process::never_preempt`].
    pub(crate) fn never_preempt(&self) -> Result<()> {
        Ok(process::never_preempt(self.pid)?)
    }

    /// Waits until the server sleeps.
    pub(crate) fn settle(&self) -> Result<()> {
        Ok(cpu::settle(self.pid, TO_SLEEP)?)
    }
}

/// Takes `addr=`, which has to be a loopback address.
pub(crate) fn host(args: &mut Args) -> Result<Ipv4Addr> {
    let host = args.value("addr", Ipv4Addr::LOCALHOST)?;
    if !host.is_loopback() {
        return Err(format!("addr={host}: load is only ever sent to this machine").into());
    }
    Ok(host)
}

/// Takes `servers=name:port:pid,…` and `addr=`.
pub(crate) fn targets(args: &mut Args) -> Result<Vec<Target>> {
    let host = host(args)?;
    let list = args.optional::<String>("servers")?.ok_or("servers=name:port:pid,… is missing")?;
    list.split(',').map(|entry| target(host, entry)).collect()
}

fn target(host: Ipv4Addr, entry: &str) -> Result<Target> {
    let mut fields = entry.split(':');
    let mut field = || fields.next().ok_or_else(|| format!("servers: `{entry}` is not name:port:pid"));
    let name = field()?.to_owned();
    let address = SocketAddrV4::new(host, field()?.parse()?);
    let pid = field()?.parse()?;
    Ok(Target { name, address, sockaddr: Box::leak(Box::new(address.into())), pid })
}

/// Whose turn it is: every cycle starts one further.
pub(crate) fn turns(targets: usize, cycle: usize) -> impl Iterator<Item = usize> {
    (0..targets).map(move |turn| (turn + cycle) % targets)
}

/// What one slice starts from: both CPU clocks and the time.
pub(crate) struct Account {
    server: CpuClock,
    server_before: Duration,
    own_before: Duration,
    /// Of our CPU time, what was no load.
    own_apart: Duration,
    since: Instant,
}

impl Account {
    pub(crate) fn open(target: &Target) -> Result<Self> {
        let server = CpuClock::of(target.pid)?;
        let server_before = server.read()?;
        let own_before = CpuClock::own().read()?;
        Ok(Self { server, server_before, own_before, own_apart: Duration::ZERO, since: Instant::now() })
    }

    /// Waits until the server has done what there is to do. What it costs us to look for that is not charged to the load.
    pub(crate) fn rest(&mut self, target: &Target) -> Result<()> {
        let before = CpuClock::own().read()?;
        cpu::give_way(target.pid, TO_GIVE_WAY)?;
        self.own_apart += CpuClock::own().read()? - before;
        Ok(())
    }

    /// Prints the slice, once the server has gone to sleep. `unit` is what was counted.
    pub(crate) fn close(
        self,
        target: &Target,
        cycle: usize,
        unit: &str,
        latencies: &Histogram,
        turns: u64,
    ) -> Result<()> {
        let elapsed = self.since.elapsed();
        let own = CpuClock::own().read()? - self.own_before - self.own_apart;
        target.settle()?;
        let server = self.server.read()? - self.server_before;
        if cycle == 0 {
            return Ok(());
        }
        let count = latencies.count() as f64;
        let us = |quantile| latencies.quantile(quantile).as_nanos() as f64 / 1e3;
        println!(
            "RESULT server={} cycle={cycle} {unit}={} cpu_ns={:.1} rate={:.0} p50_us={:.2} p99_us={:.2} batch={:.2} own_ns={:.1} \
             both_ns={:.1}",
            target.name,
            latencies.count(),
            server.as_nanos() as f64 / count,
            count / elapsed.as_secs_f64(),
            us(0.5),
            us(0.99),
            count / turns as f64,
            own.as_nanos() as f64 / count,
            (server + own).as_nanos() as f64 / count,
        );
        Ok(())
    }
}

impl Account {
    /// Prints a slice of so many bytes: CPU per GiB, and GiB per second.
    pub(crate) fn close_bulk(self, target: &Target, cycle: usize, bytes: usize) -> Result<()> {
        let elapsed = self.since.elapsed();
        target.settle()?;
        let server = self.server.read()? - self.server_before;
        if cycle > 0 {
            let gib = bytes as f64 / (1u64 << 30) as f64;
            println!(
                "RESULT server={} cycle={cycle} bytes={bytes} cpu_ns={:.0} rate={:.3}",
                target.name,
                server.as_nanos() as f64 / gib,
                gib / elapsed.as_secs_f64(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_loaded() {
        let mut args = Args::parse(["duel", "addr=192.0.2.1", "servers=a:1:2"].map(str::to_owned));
        assert!(targets(&mut args).is_err());
    }

    #[test]
    fn every_target_has_every_turn_once() {
        let order: Vec<Vec<usize>> = (0..3).map(|cycle| turns(3, cycle).collect()).collect();
        assert_eq!(order, [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
    }

    #[test]
    fn entries_have_three_fields() {
        let found = target(Ipv4Addr::LOCALHOST, "limit:7:8").unwrap();
        assert_eq!((found.name.as_str(), found.address.port(), found.pid), ("limit", 7, 8));
        assert!(target(Ipv4Addr::LOCALHOST, "limit:7").is_err());
    }
}
