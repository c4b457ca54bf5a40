//! A relay without a runtime: a poll(2) loop around splice(2) and a pipe (`via=splice`), or around read(2), write(2) and a
//! buffer (`via=copy`). One pair of connections at a time; the client's comes first.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use runtime_limit::args::Args;
use runtime_limit::pipes::{pipe, splice};
use runtime_limit::{Result, socket};

/// Bytes that are moved at once.
const SPLICED: usize = 256 << 10;
const COPIED: usize = 64 << 10;

enum Through {
    Pipe(File, File),
    Buffer(Vec<u8>),
}

/// One direction.
struct Way<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    through: Through,
    /// Bytes that have left `from`, and of these the ones that have reached `to`.
    taken: usize,
    given: usize,
    over: bool,
}

pub(crate) fn run(mut args: Args) -> Result<()> {
    let listener: TcpListener = socket::listen(args.value("port", 0)?)?;
    let splices = match args.value("via", "splice".to_owned())?.as_str() {
        "splice" => true,
        "copy" => false,
        _ => return Err("via= is splice or copy".into()),
    };
    args.finish()?;
    println!("READY port={}", listener.local_addr()?.port());
    loop {
        let (a, b) = (listener.accept()?.0, listener.accept()?.0);
        a.set_nonblocking(true)?;
        b.set_nonblocking(true)?;
        let mut ways = [Way::new(&a, &b, splices)?, Way::new(&b, &a, splices)?];
        while !ways.iter().all(|way| way.over) {
            wait(&ways)?;
            for way in &mut ways {
                way.go()?;
            }
        }
    }
}

impl<'a> Way<'a> {
    fn new(from: &'a TcpStream, to: &'a TcpStream, splices: bool) -> Result<Self> {
        let through = if splices {
            let (rx, tx) = pipe()?;
            Through::Pipe(rx, tx)
        } else {
            Through::Buffer(vec![0; COPIED])
        };
        Ok(Self { from, to, through, taken: 0, given: 0, over: false })
    }

    /// Moves what can be moved now.
    fn go(&mut self) -> Result<()> {
        while !self.over {
            let moved = if self.taken == self.given { self.take() } else { self.give() };
            match moved {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                result => result?,
            }
        }
        Ok(())
    }

    fn take(&mut self) -> io::Result<()> {
        self.given = 0;
        self.taken = 0;
        self.taken = match &mut self.through {
            Through::Pipe(_, tx) => splice(self.from, tx, SPLICED, false)?,
            Through::Buffer(buffer) => self.from.read(buffer)?,
        };
        if self.taken == 0 {
            self.over = true;
            self.to.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    fn give(&mut self) -> io::Result<()> {
        self.given += match &mut self.through {
            Through::Pipe(rx, _) => splice(rx, self.to, self.taken - self.given, false)?,
            Through::Buffer(buffer) => self.to.write(&buffer[self.given..self.taken])?,
        };
        Ok(())
    }
}

/// Until one of them can go on.
fn wait(ways: &[Way<'_>; 2]) -> Result<()> {
    let mut polls = [libc::pollfd { fd: -1, events: 0, revents: 0 }; 2];
    for (poll, way) in polls.iter_mut().zip(ways).filter(|(_, way)| !way.over) {
        let takes = way.taken == way.given;
        poll.fd = if takes { way.from.as_raw_fd() } else { way.to.as_raw_fd() };
        poll.events = if takes { libc::POLLIN } else { libc::POLLOUT };
    }
    // SAFETY: an array of two.
    match unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) } {
        -1 => Err(io::Error::last_os_error().into()),
        _ => Ok(()),
    }
}
