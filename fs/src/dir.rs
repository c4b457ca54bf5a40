//! Directories: making them, and reading what is in them.
//!
//! The ring has no opcode for getdents(2), so entries are read by the blocking pool, many at a time.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use runtime_core::fd::At;
use runtime_core::ladder::offload;
use runtime_core::op::Kind;
use runtime_core::op::names::MakeDir;
use runtime_core::op::open::{O_DIRECTORY, O_RDONLY};
use runtime_core::sys::{dirs, files};

use crate::metadata::{FileType, Metadata};
use crate::names::{one, status};
use crate::place::Place;

/// Entries that one job of the pool reads: the wake of a thread costs as much as reading about that many.
const BATCH: usize = 256;

/// Makes a directory, with mode 0o777 less the umask.
///
/// # Errors
///
/// Those of mkdir(2).
///
/// # Cancel safety
///
/// It may happen or not.
#[doc(alias = "IORING_OP_MKDIRAT")]
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    DirBuilder::new().create(path).await
}

/// Makes a directory and those above it that are missing.
///
/// # Errors
///
/// Those of mkdir(2), but it is no error if the directory is there.
///
/// # Cancel safety
///
/// It goes on.
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path).await
}

/// How a directory is made; std's options with std's meanings.
#[derive(Debug, Clone)]
pub struct DirBuilder {
    recursive: bool,
    mode: u32,
}

impl Default for DirBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl DirBuilder {
    /// Mode 0o777 less the umask, and the directory above must be there.
    pub const fn new() -> Self {
        Self { recursive: false, mode: 0o777 }
    }

    /// Also makes the directories above that are missing, and it is no error if all are there.
    pub fn recursive(&mut self, recursive: bool) -> &mut Self {
        self.recursive = recursive;
        self
    }

    /// Permission bits of what is made, less the umask.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Makes the directory: one by the ring, several by the blocking pool.
    ///
    /// # Errors
    ///
    /// Those of mkdir(2).
    ///
    /// # Cancel safety
    ///
    /// It may happen or not.
    #[doc(alias = "IORING_OP_MKDIRAT")]
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut std = std::fs::DirBuilder::new();
        std.recursive(self.recursive).mode(self.mode);
        let place = Place::here(path.as_ref());
        if !self.recursive {
            return one(MakeDir, place, self.mode, move |path| std.create(path)).await;
        }
        let path = place.for_std();
        offload(Kind::MakeDir, move || std.create(path)).await
    }
}

/// Opens a directory to read its entries, without `.` and `..`, in no particular order.
///
/// # Errors
///
/// Those of open(2) and getdents(2).
///
/// # Cancel safety
///
/// Changes nothing.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let mut entries = runtime_fs::read_dir("/proc/self/fd").await?;
/// while let Some(entry) = entries.next_entry().await? {
///     assert!(entry.file_type().await?.is_symlink());
/// }
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    read_place(&Place::here(path.as_ref()), false).await
}

/// Entries of an open directory are `nameless`: nobody knows by which path they are reached.
pub(crate) async fn read_place(place: &Place<'_>, nameless: bool) -> io::Result<ReadDir> {
    let (at, name) = (place.at.clone(), place.c_path()?);
    let path = (!nameless).then(|| place.path().to_owned());
    let job = move || {
        let fd = files::open(at.raw_fd(), &name, O_RDONLY | O_DIRECTORY, 0, 0)?;
        Ok(batch(Arc::new(Listed { fd: Arc::new(fd), path })))
    };
    let (rest, ready) = offload(Kind::ReadDir, job).await?;
    Ok(ReadDir { ready, rest: Rest::Idle(rest) })
}

/// A directory whose entries are read.
#[derive(Debug)]
struct Listed {
    fd: Arc<OwnedFd>,
    /// As it was given; `None` when nobody knows.
    path: Option<PathBuf>,
}

type Batch = (Option<Arc<Listed>>, VecDeque<io::Result<DirEntry>>);

/// Reads some entries; without the directory it was the last batch.
fn batch(dir: Arc<Listed>) -> Batch {
    let mut ready = VecDeque::new();
    while ready.len() < BATCH {
        let more = dirs::entries(dir.fd.as_fd(), |ino, kind, name| {
            if name != c"." && name != c".." {
                let file_type = FileType::of_entry(kind);
                ready.push_back(Ok(DirEntry { dir: Arc::clone(&dir), name: name.to_owned(), ino, file_type }));
            }
        });
        match more {
            Ok(true) => {}
            Ok(false) => return (None, ready),
            Err(error) => {
                ready.push_back(Err(error));
                return (None, ready);
            }
        }
    }
    (Some(dir), ready)
}

/// The entries of a directory, from [`read_dir`]: a stream, or one by one.
pub struct ReadDir {
    ready: VecDeque<io::Result<DirEntry>>,
    rest: Rest,
}

enum Rest {
    /// `None` at the end.
    Idle(Option<Arc<Listed>>),
    Reading(Pin<Box<dyn Future<Output = io::Result<Batch>>>>),
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("ready", &self.ready.len()).finish_non_exhaustive()
    }
}

impl ReadDir {
    /// The next entry, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Those of getdents(2); after one comes the end.
    ///
    /// # Cancel safety
    ///
    /// No entry is lost.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        poll_fn(|task| self.poll(task)).await.transpose()
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Option<io::Result<DirEntry>>> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Poll::Ready(Some(entry));
            }
            match &mut self.rest {
                Rest::Idle(dir) => {
                    let Some(dir) = dir.take() else { return Poll::Ready(None) };
                    self.rest = Rest::Reading(Box::pin(offload(Kind::ReadDir, move || Ok(batch(dir)))));
                }
                Rest::Reading(job) => {
                    let result = std::task::ready!(job.as_mut().poll(task));
                    self.rest = Rest::Idle(None);
                    let (rest, ready) = match result {
                        Ok(batch) => batch,
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    };
                    self.ready = ready;
                    self.rest = Rest::Idle(rest);
                }
            }
        }
    }
}

impl Stream for ReadDir {
    type Item = io::Result<DirEntry>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(task)
    }
}

/// An entry of a directory, which it keeps open.
#[derive(Clone)]
pub struct DirEntry {
    dir: Arc<Listed>,
    name: CString,
    ino: u64,
    /// What the directory itself says, which is all that most need; `None` where it does not.
    file_type: Option<FileType>,
}

impl DirEntry {
    fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.name.to_bytes())
    }

    /// The path: that of the directory as it was given, and the name; of an open [`Dir`](crate::Dir) the name alone,
    /// which is relative to it.
    pub fn path(&self) -> PathBuf {
        match &self.dir.path {
            Some(path) => path.join(self.name()),
            None => self.name().into(),
        }
    }

    /// The name.
    pub fn file_name(&self) -> OsString {
        self.name().to_owned()
    }

    /// The number of the file on its device; where something is mounted, that of what lies below.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// The kind, of a symbolic link itself. It came with the entry, where the file system tells.
    ///
    /// # Errors
    ///
    /// Those of statx(2), if it has to be asked.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn file_type(&self) -> io::Result<FileType> {
        match self.file_type {
            Some(file_type) => Ok(file_type),
            None => Ok(self.metadata().await?.file_type()),
        }
    }

    /// What is known about it, of a symbolic link itself: asked as [`symlink_metadata`](crate::symlink_metadata) is, but
    /// relative to the open directory, wherever that is by now.
    ///
    /// # Errors
    ///
    /// Those of statx(2).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(alias = "IORING_OP_STATX")]
    pub async fn metadata(&self) -> io::Result<Metadata> {
        status(&Place::below(At::dir(Arc::clone(&self.dir.fd)), Path::new(self.name())), false).await
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}
