//! monoio on its ring.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::time::Duration;

use io_uring_of_monoio::IoUring;
use monoio::buf::{IoBuf, IoBufMut};
use monoio::fs::OpenOptions;
use monoio::io::AsyncReadRentExt;
use monoio::io::splice::SpliceSource;
use monoio::net::UnixStream;
use monoio::net::unix::{Pipe, new_pipe};
use monoio::task::JoinHandle;
use monoio::time::TimeDriver;
use monoio::{IoUringDriver, Runtime, RuntimeBuilder};
use runtime_limit::Result;
use runtime_limit::files::Access;
use runtime_limit::pipes;

use super::aligned::vector;
use super::{Host, RingSetup, Timers};
use crate::files::{Files, Way, whole};
use crate::splice::Splices;

/// A runtime with timers, 1024 entries.
pub struct Monoio(Runtime<TimeDriver<IoUringDriver>>);

impl Monoio {
    /// Starts it on a ring with or without our flags.
    ///
    /// # Errors
    /// It does not start.
    pub fn with(setup: RingSetup) -> Result<Self> {
        let mut ring = IoUring::builder();
        if setup == RingSetup::Defer {
            ring.setup_single_issuer().setup_defer_taskrun();
        }
        let builder = RuntimeBuilder::<IoUringDriver>::new().uring_builder(ring).with_entries(1024);
        Ok(Self(builder.enable_timer().build()?))
    }
}

impl fmt::Debug for Monoio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monoio").finish_non_exhaustive()
    }
}

impl Host for Monoio {
    type Handle<T: 'static> = JoinHandle<T>;

    fn new() -> Result<Self> {
        Self::with(RingSetup::Default)
    }

    fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        monoio::spawn(future)
    }
}

impl Timers for Monoio {
    type Sleep = monoio::time::Sleep;

    fn sleep(duration: Duration) -> Self::Sleep {
        monoio::time::sleep(duration)
    }
}

/// It splices between a stream and a pipe of its own. A pipe's end does for a stream; how its own pipe is read is its secret.
impl Splices for Monoio {
    type Middle = (UnixStream, Pipe);

    fn line() -> Result<(File, Self::Middle, File)> {
        let (from, tx) = pipes::pipe()?;
        let from = UnixStream::from_std(StdStream::from(OwnedFd::from(from)))?;
        let before = descriptors()?;
        // Both leaked: the reading end has to stay, and is not ours to close.
        let (its, to) = new_pipe()?;
        std::mem::forget(its);
        let after = descriptors()?;
        let end = after.difference(&before).filter_map(|path| File::open(path).ok()).next();
        let rx = end.ok_or("a new pipe has no descriptors")?;
        pipes::enlarge(&rx)?;
        Ok((tx, (from, to), rx))
    }

    async fn splice((from, to): &mut Self::Middle, len: usize) -> io::Result<usize> {
        Ok(from.splice_to_pipe(to, len as u32).await? as usize)
    }

    async fn drain((from, _): &mut Self::Middle, message: Vec<u8>) -> io::Result<Vec<u8>> {
        let (read, message) = from.read_exact(message).await;
        read.map(|_| message)
    }
}

/// Descriptors of this process that are pipes, as paths.
fn descriptors() -> io::Result<HashSet<PathBuf>> {
    let is_pipe = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    fs::read_dir("/proc/self/fd")?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()
        .map(|paths| paths.into_iter().filter(is_pipe).collect())
}

impl Files for Monoio {
    type File = monoio::fs::File;
    type Buf = (Vec<u8>, usize);

    fn spawn_local<F: Future<Output: 'static> + 'static>(future: F) -> impl Future<Output = F::Output> {
        monoio::spawn(future)
    }

    async fn open(path: &str, access: Access) -> io::Result<Self::File> {
        let mut options = OpenOptions::new();
        match access {
            Access::Read | Access::Direct => options.read(true).custom_flags(access.flags()),
            Access::Write => options.write(true).create(true),
        };
        options.open(path).await
    }

    fn buffers(count: usize, len: usize, way: Way) -> io::Result<Vec<Self::Buf>> {
        match way {
            Way::Plain => Ok((0..count).map(|_| vector(len)).collect()),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    async fn read(file: &Self::File, (buf, start): Self::Buf, offset: u64, _: Way) -> io::Result<Self::Buf> {
        let (all, len) = (buf.len(), buf.len() - 4096);
        let (read, part) = file.read_at(buf.slice_mut(start..start + len), offset).await;
        let mut buf = part.into_inner();
        // It takes what was read for the vector's length.
        buf.resize(all, 0);
        whole(read?, len)?;
        Ok((buf, start))
    }

    async fn write(file: &Self::File, (buf, start): Self::Buf, offset: u64) -> io::Result<Self::Buf> {
        let len = buf.len() - 4096;
        let (written, part) = file.write_at(buf.slice(start..start + len), offset).await;
        whole(written?, len)?;
        Ok((part.into_inner(), start))
    }

    async fn sync(file: &Self::File) -> io::Result<()> {
        file.sync_data().await
    }

    async fn len(file: &Self::File) -> io::Result<u64> {
        Ok(file.metadata().await?.len())
    }

    async fn stat(path: &str) -> io::Result<u64> {
        Ok(monoio::fs::metadata(path).await?.len())
    }

    async fn close(file: Self::File) -> io::Result<()> {
        file.close().await
    }
}
