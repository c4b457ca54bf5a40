//! The file tests, the same code on every runtime: reads anywhere, metadata, and writes with a sync.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::str::FromStr;

use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::files::{Access, BLOCK, GROUP, Offsets, RECORD};
use runtime_limit::meter::Meter;

use crate::host::Host;

/// Reads of each task between two looks at the clock.
const EACH: u64 = 32;
const MIB: usize = 1 << 20;

/// How a runtime reads, where it has several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The one that its documentation shows first.
    Plain,
    /// Into registered buffers.
    Fixed,
    /// A vectored read of one buffer.
    Vectored,
}

impl FromStr for Way {
    type Err = &'static str;

    fn from_str(name: &str) -> std::result::Result<Self, Self::Err> {
        match name {
            "plain" => Ok(Self::Plain),
            "fixed" => Ok(Self::Fixed),
            "readv" => Ok(Self::Vectored),
            _ => Err("it is plain, fixed or readv"),
        }
    }
}

/// A runtime that has files.
pub trait Files: Host + 'static {
    /// An open file, shared by tasks.
    type File: 'static;
    /// Page-aligned memory that is read into and written from.
    type Buf: 'static;

    /// Runs a future that spawns tasks which stay on this thread.
    fn run_local<F: Future>(&mut self, future: F) -> F::Output {
        self.block_on(future)
    }

    /// Spawns such a task, and waits for it.
    fn spawn_local<F: Future<Output: 'static> + 'static>(future: F) -> impl Future<Output = F::Output>;

    /// Opens a file.
    fn open(path: &str, access: Access) -> impl Future<Output = io::Result<Self::File>>;

    /// So many buffers of `len` bytes, filled.
    ///
    /// # Errors
    /// The runtime has no such way.
    fn buffers(count: usize, len: usize, way: Way) -> io::Result<Vec<Self::Buf>>;

    /// Reads a whole buffer.
    fn read(file: &Self::File, buf: Self::Buf, offset: u64, way: Way) -> impl Future<Output = io::Result<Self::Buf>>;

    /// Writes a whole buffer.
    fn write(file: &Self::File, buf: Self::Buf, offset: u64) -> impl Future<Output = io::Result<Self::Buf>>;

    /// Waits until what was written is on the disk.
    fn sync(file: &Self::File) -> impl Future<Output = io::Result<()>>;

    /// The length of an open file, by its metadata.
    fn len(file: &Self::File) -> impl Future<Output = io::Result<u64>>;

    /// The length of a file, by its path.
    fn stat(path: &str) -> impl Future<Output = io::Result<u64>>;

    /// Closes it.
    fn close(file: Self::File) -> impl Future<Output = io::Result<()>>;
}

/// What was not read or written as a whole is no measurement.
///
/// # Errors
/// It was not.
pub fn whole(done: usize, len: usize) -> io::Result<()> {
    if done == len { Ok(()) } else { Err(io::Error::other(format!("{done} bytes of {len}"))) }
}

/// The commands `reads`, `meta` and `writes`.
///
/// * `reads inflight=1 direct=false way=plain`: 4 KiB anywhere in a file.
/// * `meta t=stat|open|head`: metadata of a path; open, metadata, close; open, read 4 KiB, close.
/// * `writes t=seq|group`: 1 MiB after the other and a sync; 100 small writes and a sync, again and again.
///
/// # Errors
/// The arguments are wrong, the runtime does not start, or an operation fails.
pub fn command<H: Files>(mut args: Args, mut host: H) -> Result<()> {
    let path: String = args.optional("path")?.ok_or("path= is missing")?;
    match args.command() {
        "reads" => host.run_local(reads::<H>(args, path)),
        "meta" => host.run_local(meta::<H>(args, path)),
        _ => host.run_local(writes::<H>(args, path)),
    }
}

async fn reads<H: Files>(mut args: Args, path: String) -> Result<()> {
    let inflight: usize = args.at_most("inflight", 1, 1024)?.max(1);
    let access = if args.value("direct", false)? { Access::Direct } else { Access::Read };
    let way: Way = args.value("way", Way::Plain)?;
    let mut meter = Meter::new(&mut args)?;
    args.finish()?;
    let mut bufs = H::buffers(inflight, BLOCK, way)?;
    let reading = Rc::new(Reading::<H> {
        file: H::open(&path, access).await?,
        offsets: RefCell::new(Offsets::new(std::fs::metadata(&path)?.len())),
        left: Cell::new(0),
        way,
    });
    while meter.goes_on() {
        let n = EACH * inflight as u64;
        reading.left.set(n);
        meter.begin()?;
        if inflight == 1 {
            let buf = bufs.pop().ok_or("a buffer is missing")?;
            bufs.push(Rc::clone(&reading).go_on(buf).await?);
        } else {
            let tasks: Vec<_> = bufs.drain(..).map(|buf| H::spawn_local(Rc::clone(&reading).go_on(buf))).collect();
            for task in tasks {
                bufs.push(task.await?);
            }
        }
        meter.end(n)?;
    }
    meter.print("reads");
    Ok(())
}

/// What the tasks share.
struct Reading<H: Files> {
    file: H::File,
    offsets: RefCell<Offsets>,
    left: Cell<u64>,
    way: Way,
}

impl<H: Files> Reading<H> {
    async fn go_on(self: Rc<Self>, mut buf: H::Buf) -> io::Result<H::Buf> {
        while self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            let offset = self.offsets.borrow_mut().next();
            buf = H::read(&self.file, buf, offset, self.way).await?;
        }
        Ok(buf)
    }
}

async fn meta<H: Files>(mut args: Args, path: String) -> Result<()> {
    let test = args.value("t", "stat".to_owned())?;
    let mut meter = Meter::new(&mut args)?;
    args.finish()?;
    let mut buf = H::buffers(1, BLOCK, Way::Plain)?.pop().ok_or("a buffer is missing")?;
    let len = std::fs::metadata(&path)?.len();
    while meter.goes_on() {
        meter.begin()?;
        for _ in 0..EACH {
            let found = match test.as_str() {
                "stat" => H::stat(&path).await?,
                "open" => {
                    let file = H::open(&path, Access::Read).await?;
                    let found = H::len(&file).await?;
                    H::close(file).await?;
                    found
                }
                "head" => {
                    let file = H::open(&path, Access::Read).await?;
                    buf = H::read(&file, buf, 0, Way::Plain).await?;
                    H::close(file).await?;
                    len
                }
                _ => return Err("t= is stat, open or head".into()),
            };
            if found != len {
                return Err("it is another file".into());
            }
        }
        meter.end(EACH)?;
    }
    meter.print(&test);
    Ok(())
}

async fn writes<H: Files>(mut args: Args, path: String) -> Result<()> {
    let test = args.value("t", "seq".to_owned())?;
    let mib: usize = args.at_most("mib", 64, 1 << 14)?.max(1);
    let n: usize = args.at_most("n", 20, 100_000)?;
    let mut meter = Meter::new(&mut args)?;
    args.finish()?;
    let file = H::open(&path, Access::Write).await?;
    let len = if test == "group" { RECORD } else { MIB };
    let mut buf = H::buffers(1, len, Way::Plain)?.pop().ok_or("a buffer is missing")?;
    // The part that warms up, and one that counts.
    for _ in 0..2 {
        meter.begin()?;
        match test.as_str() {
            "seq" => {
                for at in 0..mib {
                    buf = H::write(&file, buf, (at * MIB) as u64).await?;
                }
                H::sync(&file).await?;
                meter.end(mib as u64)?;
            }
            "group" => {
                for at in 0..n * GROUP {
                    buf = H::write(&file, buf, (at * RECORD) as u64).await?;
                    if (at + 1).is_multiple_of(GROUP) {
                        H::sync(&file).await?;
                    }
                }
                meter.end(n as u64)?;
            }
            _ => return Err("t= is seq or group".into()),
        }
    }
    meter.print(&test);
    Ok(())
}
