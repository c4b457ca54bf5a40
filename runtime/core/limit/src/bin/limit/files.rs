//! Files without a runtime: `reads`, `meta`, `writes` and `tree`, by system calls, by a ring, or by threads that call pread.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use io_uring::{cqueue, opcode, squeue, types};
use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::files::{Access, BLOCK, GROUP, Offsets, RECORD};
use runtime_limit::leaked::Leaked;
use runtime_limit::meter::Meter;
use runtime_limit::ring::Ring;

/// Reads of each of those in flight between two looks at the clock.
const EACH: usize = 32;
/// More would wait for each other on two cores.
const MOST_THREADS: usize = 32;
const MIB: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Via {
    Ring,
    /// READ_FIXED with a registered buffer.
    Fixed,
    /// READV of one buffer.
    Vectored,
    /// One pread(2) after the other.
    Pread,
    /// pread(2) on threads.
    Pool,
}

pub(crate) fn reads(mut args: Args) -> Result<()> {
    let path: String = args.optional("path")?.ok_or("path= is missing")?;
    let inflight: usize = args.at_most("inflight", 1, 1024)?.max(1);
    let access = if args.value("direct", false)? { Access::Direct } else { Access::Read };
    let via = match args.value("via", "ring".to_owned())?.as_str() {
        "ring" => Via::Ring,
        "fixed" => Via::Fixed,
        "readv" => Via::Vectored,
        "sys" => Via::Pread,
        "pool" => Via::Pool,
        _ => return Err("via= is ring, fixed, readv, sys or pool".into()),
    };
    let meter = Meter::new(&mut args)?;
    args.finish()?;
    let file = OpenOptions::new().read(true).custom_flags(access.flags()).open(&path)?;
    let offsets = Offsets::new(file.metadata()?.len());
    match via {
        Via::Pread | Via::Pool => by_calls(&file, via, inflight, offsets, meter),
        _ => by_ring(&file, via, inflight, offsets, meter),
    }
}

fn by_calls(file: &File, via: Via, inflight: usize, mut offsets: Offsets, mut meter: Meter) -> Result<()> {
    let threads = if via == Via::Pool { inflight.min(MOST_THREADS) } else { 1 };
    let each = EACH * inflight / threads;
    let buffers: Vec<Buffer> = (0..threads).map(|_| Buffer::new()).collect();
    // Threads of one part last as long as that: long enough for their start to be of no weight.
    let each = if via == Via::Pool { each * 16 } else { each };
    while meter.goes_on() {
        meter.begin()?;
        let all_read = |buffer: &Buffer, mut offsets: Offsets| -> std::io::Result<()> {
            for _ in 0..each {
                buffer.pread(file, offsets.next())?;
            }
            Ok(())
        };
        if threads == 1 {
            all_read(&buffers[0], offsets.split())?;
        } else {
            thread::scope(|scope| {
                let read = |buffer| {
                    let offsets = offsets.split();
                    scope.spawn(move || all_read(buffer, offsets))
                };
                let readers: Vec<_> = buffers.iter().map(read).collect();
                readers.into_iter().try_for_each(|reader| reader.join().expect("a reader does not panic"))
            })?;
        }
        meter.end((each * threads) as u64)?;
    }
    meter.print("reads");
    Ok(())
}

/// Aligned memory that one thread reads into.
struct Buffer(Leaked);

// SAFETY: only the thread that it is lent to uses the memory.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn new() -> Self {
        Self(Leaked::new(BLOCK, BLOCK))
    }

    fn pread(&self, file: &File, offset: u64) -> std::io::Result<()> {
        // SAFETY: leaked memory of this length, which no other thread uses.
        let n = unsafe { libc::pread(file.as_raw_fd(), self.0.as_ptr().cast(), BLOCK, offset as i64) };
        if n == BLOCK as isize { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

fn by_ring(file: &File, via: Via, inflight: usize, mut offsets: Offsets, mut meter: Meter) -> Result<()> {
    let mut ring = Ring::new(1024, 2048)?;
    let all = Leaked::new(BLOCK * inflight, BLOCK);
    let vectors: Vec<libc::iovec> = (0..inflight)
        .map(|at| libc::iovec { iov_base: all.part(at * BLOCK, BLOCK).as_ptr().cast(), iov_len: BLOCK })
        .collect();
    // Named by READV, and by what is registered.
    let vectors: &'static [libc::iovec] = Vec::leak(vectors);
    if via == Via::Fixed {
        // SAFETY: leaked memory.
        unsafe { ring.submitter().register_buffers(vectors) }?;
    }
    let fd = types::Fd(file.as_raw_fd());
    let entry = |at: usize, offset: u64| -> squeue::Entry {
        let buffer = all.part(at * BLOCK, BLOCK);
        let entry = match via {
            Via::Fixed => {
                opcode::ReadFixed::new(fd, buffer.as_ptr(), buffer.len_u32(), at as u16).offset(offset).build()
            }
            Via::Vectored => opcode::Readv::new(fd, &raw const vectors[at], 1).offset(offset).build(),
            _ => opcode::Read::new(fd, buffer.as_ptr(), buffer.len_u32()).offset(offset).build(),
        };
        entry.user_data(at as u64)
    };
    let mut batch: Vec<cqueue::Entry> = Vec::with_capacity(2048);
    while meter.goes_on() {
        meter.begin()?;
        let n = EACH * inflight;
        let (mut started, mut done) = (inflight, 0);
        for at in 0..inflight {
            // SAFETY: leaked memory, of this operation alone until it is complete.
            unsafe { ring.push(&entry(at, offsets.next())) }?;
        }
        while done < n {
            ring.wait()?;
            ring.take(&mut batch);
            for completion in batch.drain(..) {
                if completion.result() != BLOCK as i32 {
                    return Err(format!("a read of {BLOCK} bytes: {}", completion.result()).into());
                }
                done += 1;
                if started < n {
                    started += 1;
                    // SAFETY: as above; the operation before it is complete.
                    unsafe { ring.push(&entry(completion.user_data() as usize, offsets.next())) }?;
                }
            }
        }
        meter.end(n as u64)?;
    }
    meter.print("reads");
    Ok(())
}

/// `meta t=stat|open|head via=sys|ring`: metadata of a path; open, metadata, close; open, read 4 KiB, close.
pub(crate) fn meta(mut args: Args) -> Result<()> {
    let path: String = args.optional("path")?.ok_or("path= is missing")?;
    let test = args.value("t", "stat".to_owned())?;
    let is_ring = match args.value("via", "sys".to_owned())?.as_str() {
        "sys" => false,
        "ring" => true,
        _ => return Err("via= is sys or ring".into()),
    };
    let mut meter = Meter::new(&mut args)?;
    args.finish()?;
    let mut ring = One { ring: Ring::new(8, 16)?, batch: Vec::with_capacity(16), memory: Leaked::new(BLOCK, BLOCK) };
    let name = CString::new(path.as_str())?;
    let mut buffer = vec![0; BLOCK];
    while meter.goes_on() {
        meter.begin()?;
        for _ in 0..EACH {
            match (test.as_str(), is_ring) {
                ("stat", false) => _ = fs::metadata(&path)?,
                ("open", false) => _ = File::open(&path)?.metadata()?,
                ("head", false) => File::open(&path)?.read_exact_at(&mut buffer, 0)?,
                ("stat", true) => ring.stat(libc::AT_FDCWD, &name, 0)?,
                ("open", true) => ring.with_open(&name, |ring, fd| ring.stat(fd, c"", libc::AT_EMPTY_PATH))?,
                ("head", true) => ring.with_open(&name, One::read)?,
                _ => return Err("t= is stat, open or head".into()),
            }
        }
        meter.end(EACH as u64)?;
    }
    meter.print(&test);
    Ok(())
}

/// A ring with one operation at a time.
struct One {
    ring: Ring,
    batch: Vec<cqueue::Entry>,
    memory: Leaked,
}

impl One {
    /// # Safety
    /// What the entry names stays valid until it is complete, which it is afterwards, if there is no error.
    unsafe fn run(&mut self, entry: &squeue::Entry) -> Result<u32> {
        // SAFETY: the caller's promise.
        unsafe { self.ring.push(entry) }?;
        while self.batch.is_empty() {
            self.ring.wait()?;
            self.ring.take(&mut self.batch);
        }
        let result: i32 = self.batch.drain(..).map(|completion| completion.result()).sum();
        u32::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(-result).into())
    }

    fn stat(&mut self, dir: RawFd, name: &std::ffi::CStr, flags: i32) -> Result<()> {
        let entry = opcode::Statx::new(types::Fd(dir), name.as_ptr(), self.memory.as_ptr().cast())
            .flags(flags)
            .mask(libc::STATX_BASIC_STATS | libc::STATX_BTIME)
            .build();
        // SAFETY: the name outlives the call and the memory is leaked.
        unsafe { self.run(&entry) }.map(drop)
    }

    fn with_open(&mut self, name: &CString, what: impl Fn(&mut Self, RawFd) -> Result<()>) -> Result<()> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), name.as_ptr()).flags(flags).build();
        // SAFETY: the name outlives the call.
        let fd = unsafe { self.run(&open) }? as RawFd;
        what(self, fd)?;
        // SAFETY: the entry names no memory.
        unsafe { self.run(&opcode::Close::new(types::Fd(fd)).build()) }.map(drop)
    }

    fn read(&mut self, fd: RawFd) -> Result<()> {
        let entry = opcode::Read::new(types::Fd(fd), self.memory.as_ptr(), self.memory.len_u32()).build();
        // SAFETY: leaked memory.
        unsafe { self.run(&entry) }.map(drop)
    }
}

/// `writes t=seq|group mib=64 n=20`, with std's functions.
pub(crate) fn writes(mut args: Args) -> Result<()> {
    let path: String = args.optional("path")?.ok_or("path= is missing")?;
    let test = args.value("t", "seq".to_owned())?;
    let mib: usize = args.at_most("mib", 64, 1 << 14)?.max(1);
    let n: usize = args.at_most("n", 20, 100_000)?;
    let mut meter = Meter::new(&mut args)?;
    args.finish()?;
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
    let (block, record) = (vec![7; MIB], [7; RECORD]);
    // The part that warms up, and one that counts.
    for _ in 0..2 {
        meter.begin()?;
        match test.as_str() {
            "seq" => {
                (0..mib).try_for_each(|at| file.write_all_at(&block, (at * MIB) as u64))?;
                file.sync_data()?;
                meter.end(mib as u64)?;
            }
            "group" => {
                for at in 0..n {
                    (0..GROUP).try_for_each(|of| file.write_all_at(&record, ((at * GROUP + of) * RECORD) as u64))?;
                    file.sync_data()?;
                }
                meter.end(n as u64)?;
            }
            _ => return Err("t= is seq or group".into()),
        }
    }
    meter.print(&test);
    Ok(())
}

/// `tree path=DIR`: walks it and asks for the metadata of everything, with std's functions.
pub(crate) fn tree(mut args: Args) -> Result<()> {
    let path: String = args.optional("path")?.ok_or("path= is missing")?;
    let mut meter = Meter::new(&mut args)?;
    args.finish()?;
    for _ in 0..2 {
        meter.begin()?;
        let entries = walk(Path::new(&path))?;
        meter.end(entries)?;
    }
    meter.print("tree");
    Ok(())
}

fn walk(dir: &Path) -> std::io::Result<u64> {
    let mut entries = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        entries += 1;
        if entry.metadata()?.is_dir() {
            entries += walk(&entry.path())?;
        }
    }
    Ok(entries)
}
