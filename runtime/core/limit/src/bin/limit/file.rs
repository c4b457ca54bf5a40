//! A file for whoever connects and asks: sendfile(2) on a blocking socket.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::ptr;

use runtime_limit::args::Args;
use runtime_limit::{Result, socket};

pub(crate) fn run(mut args: Args) -> Result<()> {
    let listener = socket::listen(args.value("port", 0)?)?;
    let path: String = args.optional("path")?.ok_or("path= is missing")?;
    args.finish()?;
    println!("READY port={}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let mut stream = stream?;
        // Whatever it asks for.
        let _ = stream.read(&mut [0; 1024])?;
        let file = File::open(&path)?;
        let mut left = usize::try_from(file.metadata()?.len())?;
        while left > 0 {
            // SAFETY: the offset is the file's own.
            let sent = unsafe { libc::sendfile(stream.as_raw_fd(), file.as_raw_fd(), ptr::null_mut(), left) };
            match usize::try_from(sent) {
                Ok(0) => break,
                Ok(sent) => left -= sent,
                Err(_) => return Err(io::Error::last_os_error().into()),
            }
        }
    }
    Ok(())
}
