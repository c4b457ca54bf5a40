//! An exact number of verified echoes, for counts: instructions, system calls, allocations.

use std::net::SocketAddrV4;
use std::time::Instant;

use runtime_limit::Result;
use runtime_limit::args::Args;

use crate::MOST_CONNECTIONS;
use crate::clients::{Clients, Content, Next};
use crate::target::host;

pub(crate) fn run(mut args: Args) -> Result<()> {
    let port = args.optional("port")?.ok_or("port= is missing")?;
    let address = SocketAddrV4::new(host(&mut args)?, port);
    let connections = args.at_most("conns", 1, MOST_CONNECTIONS)?;
    let message_len = args.at_most("msg", 64, 1 << 20)?.max(1);
    let requests: usize = args.at_most("n", 1000, 100_000_000)?;
    args.finish()?;

    let mut clients = Clients::connect(&[address], connections, message_len)?;
    let mut to_start = requests;
    for index in 0..connections.min(requests) {
        clients.start(index, Instant::now())?;
        to_start -= 1;
    }
    let mut echoed = 0;
    while clients.busy() > 0 {
        clients.turn(Content::Verified, |_, _| {
            echoed += 1;
            if to_start == 0 {
                return Next::Rest;
            }
            to_start -= 1;
            Next::Again
        })?;
    }
    println!("RESULT echoed={echoed} batch={:.2}", echoed as f64 / clients.take_turns() as f64);
    Ok(())
}
