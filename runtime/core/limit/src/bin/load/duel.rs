//! Echo requests on connections that stay open, all servers in the same run.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::histogram::Histogram;

use crate::clients::{Clients, Content, Next};
use crate::target::{Account, Target, targets, turns};
use crate::{MOST_CONNECTIONS, MOST_CYCLES};

pub(crate) fn run(mut args: Args) -> Result<()> {
    let targets = targets(&mut args)?;
    let each = args.at_most("conns", 64, MOST_CONNECTIONS / targets.len())?;
    let message_len = args.at_most("msg", 64, 1 << 20)?.max(1);
    let slice = Duration::from_millis(args.at_most("slice", 100, 5000)?);
    let cycles = args.at_most("cycles", 25, MOST_CYCLES)?;
    args.finish()?;

    let addresses: Vec<SocketAddrV4> = targets.iter().map(|target| target.address).collect();
    let mut clients = Clients::connect(&addresses, each, message_len)?;
    for cycle in 0..=cycles {
        for which in turns(targets.len(), cycle) {
            let target = &targets[which];
            let connections = which * each..(which + 1) * each;
            run_slice(&mut clients, connections, target, slice, cycle)
                .map_err(|error| format!("{} in cycle {cycle}: {error}", target.name))?;
        }
    }
    Ok(())
}

fn run_slice(
    clients: &mut Clients,
    connections: std::ops::Range<usize>,
    target: &Target,
    slice: Duration,
    cycle: usize,
) -> Result<()> {
    let content = if cycle == 0 { Content::Verified } else { Content::Counted };
    let mut latencies = Histogram::default();
    clients.take_turns();
    let account = Account::open(target)?;
    let start = Instant::now();
    for index in connections {
        clients.start(index, start)?;
    }
    while clients.busy() > 0 {
        clients.turn(content, |latency, now| {
            latencies.add(latency);
            if now - start < slice { Next::Again } else { Next::Rest }
        })?;
    }
    account.close(target, cycle, "requests", &latencies, clients.take_turns())
}
