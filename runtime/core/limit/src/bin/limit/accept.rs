//! Accepts and closes, nothing else: what a connection costs before anyone has read from it.
//!
//! `mode=multi` arms one multishot accept for all; `mode=single` arms one accept after another, which is what
//! multishot is measured against. Both close through the ring, with the enter that they make anyway.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{cqueue, opcode, squeue, types};
use runtime_limit::args::Args;
use runtime_limit::ring::{Ring, tag_and_index, user_data};
use runtime_limit::{Result, socket};

use crate::{COMPLETIONS, SUBMISSIONS, close};

const ACCEPT: u8 = 1;
const CLOSE: u8 = 2;

pub(crate) fn run(mut args: Args) -> Result<()> {
    let listener = socket::listen(args.value("port", 0)?)?;
    let fd = types::Fd(listener.as_raw_fd());
    let mode = args.value("mode", "multi".to_owned())?;
    let connections = args.value("conns", u64::MAX)?;
    args.finish()?;
    let accept = match mode.as_str() {
        "multi" => opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build(),
        "single" => {
            opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut()).flags(libc::SOCK_CLOEXEC).build()
        }
        _ => return Err(format!("mode={mode}: it is multi or single").into()),
    };
    println!("READY port={}", listener.local_addr()?.port());
    let mut ring = Ring::new(SUBMISSIONS, COMPLETIONS)?;
    let accepted = serve(&mut ring, &accept.user_data(user_data(ACCEPT, 0)), connections)?;
    println!("COUNTS accepted={accepted} enters={}", ring.enters());
    Ok(())
}

fn serve(ring: &mut Ring, accept: &squeue::Entry, connections: u64) -> Result<u64> {
    let mut batch = Vec::with_capacity(COMPLETIONS as usize);
    let mut accepted = 0;
    // SAFETY: neither form of the entry names memory: the peer's address is not asked for.
    unsafe { ring.push(accept)? };
    while accepted < connections {
        ring.wait()?;
        ring.take(&mut batch);
        for completion in batch.drain(..) {
            let (tag, _) = tag_and_index(completion.user_data());
            let fd = u32::try_from(completion.result())
                .map_err(|_| format!("tag {tag}: {}", io::Error::from_raw_os_error(-completion.result())))?;
            accepted += 1;
            // SAFETY: the entry names no memory.
            unsafe { ring.push(&close(fd, user_data(CLOSE, fd)))? };
            if !cqueue::more(completion.flags()) {
                // SAFETY: as for the first one.
                unsafe { ring.push(accept)? };
            }
        }
    }
    ring.submit()?;
    Ok(accepted)
}
