//! [`send_file`]: from a file to a stream, past the program.
//!
//! Owns how the disk is waited for: by the blocking pool, on a private pipe, since a splice from a file holds the pipe's
//! lock while it reads; and when there is nothing to wait for. Knows nothing of files but their descriptor.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use runtime_core::coop;
use runtime_core::duplex::{Direction, Held};
use runtime_core::ends::{End, Sink, What};
use runtime_core::ladder::{mounts, offload, room};
use runtime_core::op::Kind;
use runtime_core::op::pass::Pass;
use runtime_core::op::read::Read;
use runtime_core::op::statx::{STATX_MNT_ID, STATX_SIZE, STATX_TYPE};
use runtime_core::submit::submit;
use runtime_core::sys::{files, pipes};

use crate::splice::{COPY_BYTES, blocks, write_inline};
use crate::transit::{Drained, PIPE_BYTES, Transit};
use crate::{is_ours, may_block, seen};

/// Up to here what is in the page cache is spliced inline: 1 KiB takes 0.45 × the CPU time of a job of the pool, 16 KiB
/// 0.75 ×, 32 KiB as much. Beyond that filling the private pipe beside the thread is better than before it.
const INLINE_BYTES: u64 = 32 << 10;

/// Sends `len` bytes of a file from `offset` on to a stream, and returns how many there were: fewer when the file ends
/// before. No other write of the stream comes in between. The file's own position is neither used nor changed.
///
/// The bytes go through a private pipe: a thread of the blocking pool fills it with up to 256 KiB by splice(2), and it
/// is emptied into the stream inline. The last 32 KiB, and files that are no larger, are spliced inline if the page
/// cache has them (cachestat(2), kernel 6.5, on ext4, xfs and btrfs). No thread waits for a slow reader. A file that
/// cannot be spliced, and a stream in blocking mode, are copied.
///
/// # Errors
///
/// Those of reading the file and of writing to the stream; `BrokenPipe` when nobody reads, never a SIGPIPE. How much was
/// sent before is not known then.
///
/// # Cancel safety
///
/// Any part may have been sent.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let (tx, rx) = runtime_pipe::pipe()?;
/// let file = std::fs::File::open("/proc/self/exe")?;
/// assert_eq!(runtime_pipe::send_file(&file, 1, 3, &tx).await?, 3);
/// assert_eq!(rx.read(Vec::with_capacity(9)).await.1, b"ELF");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "sendfile")]
pub async fn send_file<F: AsFd, O: Sink + ?Sized>(file: &F, offset: u64, len: u64, to: &O) -> io::Result<u64> {
    let sent = Cell::new(0);
    if len > 0 {
        // Jobs may outlive this future, and the caller's file.
        send(Arc::new(file.as_fd().try_clone_to_owned()?), offset, len, to.sink(), &sent).await?;
    }
    Ok(sent.get())
}

/// As [`send_file`]; how many bytes the stream has is told at every moment.
pub(crate) async fn send(file: Arc<OwnedFd>, offset: u64, len: u64, end: End<'_>, sent: &Cell<u64>) -> io::Result<()> {
    coop::block_sigpipe();
    let blocks = blocks(end)?;
    let mut held = end.duplex.acquire(Direction::Write).await;
    held.check()?;
    let mut held = Some(held);
    let mut transit = if blocks { None } else { Some(Transit::new()?) };
    while sent.get() < len {
        // The kernel's offsets have a sign; the largest number means something else to the ring.
        let at = offset.checked_add(sent.get()).filter(|at| i64::try_from(*at).is_ok());
        let at = at.ok_or(io::ErrorKind::InvalidInput)?;
        let left = usize::try_from(len - sent.get()).unwrap_or(usize::MAX);
        let Some(pipe) = &mut transit else {
            let data = read(Arc::clone(&file), at, left.min(COPY_BYTES)).await?;
            if data.is_empty() {
                break;
            }
            write(&file, &mut held, data, end.what, sent).await?;
            continue;
        };
        match fill(&file, at, pipe, left.min(PIPE_BYTES)).await {
            Ok(0) => {
                pipe.filled(0);
                break;
            }
            Ok(n) => {
                pipe.filled(n);
                // Stuck or not, it is tried again, by a timer.
                while let Drained::Stuck = pipe.drain(&mut held, sent).await? {}
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Not every file can be spliced from.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
                transit = None;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes of the file into an empty private pipe: inline if they are in memory.
async fn fill(file: &Arc<OwnedFd>, at: u64, pipe: &mut Transit, len: usize) -> io::Result<usize> {
    if is_cached(file, at, len as u64).await {
        coop::proceed().await;
        coop::assert_same_process();
        let result = pipes::splice_file(file.as_fd(), at, pipe.tx(), len);
        coop::done_inline(Kind::Splice, *result.as_ref().unwrap_or(&0));
        return result;
    }
    let (ends, from) = (pipe.lend(), Arc::clone(file));
    offload(Kind::Splice, move || pipes::splice_file(from.as_fd(), at, ends.tx.as_fd(), len)).await
}

/// Whether reading this stretch waits for nobody, up to the end of the file if that comes before.
async fn is_cached(file: &Arc<OwnedFd>, at: u64, len: u64) -> bool {
    let Ok(status) = files::status_cached(file.as_fd(), STATX_TYPE | STATX_SIZE | STATX_MNT_ID) else { return false };
    if !matches!(
        mounts::find(&status, || Arc::clone(file)).await,
        Some(files::FileSystem::Disk | files::FileSystem::Memory)
    ) {
        return false;
    }
    let Some(size) = files::regular_size(&status) else { return false };
    let len = len.min(size.saturating_sub(at));
    len <= INLINE_BYTES && files::is_cached(file.as_fd(), at, len)
}

/// Bytes of the file, into `data`'s memory.
async fn read(file: Arc<OwnedFd>, at: u64, len: usize) -> io::Result<Vec<u8>> {
    loop {
        match submit(Read::new(Arc::clone(&file), Vec::with_capacity(len), 0, at)).await {
            (Ok(_), data, _) => return Ok(data),
            (Err(error), ..) if error.kind() == io::ErrorKind::Interrupted => {}
            (Err(error), ..) => return Err(error),
        }
    }
}

/// Writes all of it; `to` is there before and after. Nothing is given back: a file can be read again.
async fn write(
    file: &Arc<OwnedFd>,
    to: &mut Option<Held>,
    mut data: Vec<u8>,
    what: What,
    sent: &Cell<u64>,
) -> io::Result<()> {
    let mut skip = 0;
    while skip < data.len() {
        if let Some(held) = to.as_ref().filter(|held| what == What::Socket || is_ours(held.duplex())) {
            // On the thread itself: of what an operation of the ring sends after it was dropped nobody would know, and it
            // would be sent again.
            match write_inline(held, what, &data[skip..]) {
                Some(Ok(n)) => {
                    skip += n;
                    sent.set(sent.get() + n as u64);
                }
                Some(Err(error)) => return Err(seen(error)),
                None => {
                    if let Some(held) = to.take() {
                        *to = Some(room(held).await);
                    }
                }
            }
            coop::proceed().await;
            continue;
        }
        let Some(mut held) = to.take() else { unreachable!("the caller brings it") };
        let result;
        let may_block = may_block(held.duplex());
        let pass = Pass::new(Arc::clone(file), held, data, skip, what == What::Socket).on_worker(may_block);
        (result, data, _, held) = submit(pass).await;
        match result {
            Ok(n) => {
                skip += n;
                sent.set(sent.get() + n as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => held = room(held).await,
            Err(error) => return Err(seen(error)),
        }
        *to = Some(held);
    }
    Ok(())
}
