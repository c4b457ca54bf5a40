//! [`OpenOptions`]: how a file is opened.

use std::io;
use std::ops::BitOr;
use std::os::fd::OwnedFd;
use std::path::Path;

use runtime_core::coop;
use runtime_core::ladder::offload;
use runtime_core::op::Kind;
use runtime_core::op::open::{
    self, O_ACCMODE, O_APPEND, O_CREAT, O_DIRECT, O_DSYNC, O_EXCL, O_PATH, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, Open,
};
use runtime_core::submit::submit;
use runtime_core::sys;

use crate::File;
use crate::place::Place;

/// How a file is opened; std's options with std's meanings.
///
/// # Examples
///
/// ```
/// use runtime_fs::OpenOptions;
///
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("log");
/// let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path).await?;
/// log.write_all_at("started\n", 0).await.0?;
/// log.write_all_at("stopped\n", 0).await.0?; // Behind what is there: a file that appends has no offsets.
/// assert_eq!(std::fs::read(&path)?, b"started\nstopped\n");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    direct: bool,
    dsync: bool,
    path_only: bool,
    resolve: Resolve,
    mode: u32,
    custom_flags: i32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, $name: bool) -> &mut Self {
            self.$name = $name;
            self
        }
    )*};
}

impl OpenOptions {
    /// Nothing is set; at least one of `read`, `write` and `append` has to be.
    pub const fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            direct: false,
            dsync: false,
            path_only: false,
            resolve: Resolve(0),
            mode: 0o666,
            custom_flags: 0,
        }
    }

    switches! {
        /// For reading.
        read
        /// For writing.
        write
        /// For writing at the end, wherever that is when the bytes arrive (`O_APPEND`): the kernel ignores offsets then.
        append
        /// Empties the file; needs `write`.
        truncate
        /// Creates the file if it is not there; needs `write` or `append`.
        create
        /// Creates the file, and fails with `AlreadyExists` if there is one (`O_EXCL`), a symbolic link included.
        create_new
        /// Past the page cache (`O_DIRECT`): buffers, lengths and offsets have to be aligned as
        /// [`File::direct_align`](crate::File::direct_align) says; [`AlignedBuf`](crate::AlignedBuf) is. Opening fails with
        /// `EINVAL` where the file system has no direct I/O.
        direct
        /// Each write ends with the sync of its bytes, and of what is needed to find them again (`O_DSYNC`).
        dsync
        /// Only names the file (`O_PATH`): nothing is asked of it, and it can be neither read nor written, but its
        /// metadata can be read, and [`Dir`](crate::Dir) takes a directory that was opened so. What else is set to
        /// read, write or create is ignored.
        path_only
    }

    /// How the path is walked; makes it openat2(2), which fails with `EINVAL` for flags that it does not know.
    #[doc(alias = "openat2")]
    pub fn resolve(&mut self, resolve: Resolve) -> &mut Self {
        self.resolve = resolve;
        self
    }

    /// Permission bits of a file that is created, less the umask: 0o666 unless set.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// More flags of open(2), as `O_NOFOLLOW`, `O_DIRECTORY` or `O_NOATIME`; those of the access mode are ignored.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.custom_flags = flags;
        self
    }

    /// Opens a file.
    ///
    /// FIFOs are for `runtime::pipe::OpenOptions`: whether this waits for the other side, as open(2) does, depends on the
    /// options and on what the kernel has in memory; to write without a reader is `ENXIO` where it does not wait.
    ///
    /// # Errors
    ///
    /// Those of open(2), and with [`resolve`](Self::resolve) those of openat2(2); `InvalidInput` for options that
    /// contradict each other and for a path with a NUL byte.
    ///
    /// # Cancel safety
    ///
    /// A file that was opened is closed; it may have been created or emptied.
    #[doc(alias = "IORING_OP_OPENAT")]
    #[doc(alias = "IORING_OP_OPENAT2")]
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_at(&Place::here(path.as_ref())).await
    }

    pub(crate) async fn open_at(&self, place: &Place<'_>) -> io::Result<File> {
        let flags = if self.path_only { O_PATH } else { self.access()? | self.creation()? };
        let fd = open_at(place, flags | self.custom(), self.mode, self.resolve).await?;
        if self.path_only {
            // It has no position, and nothing to be aligned.
            return Ok(File::from(fd));
        }
        File::opened(fd, self.append, self.direct, self.custom() & O_DIRECT != 0).await
    }

    fn custom(&self) -> i32 {
        let direct = if self.direct { O_DIRECT } else { 0 };
        let dsync = if self.dsync { O_DSYNC } else { 0 };
        (self.custom_flags & !O_ACCMODE) | direct | dsync
    }

    fn access(&self) -> io::Result<i32> {
        match (self.read, self.write, self.append) {
            (true, false, false) => Ok(O_RDONLY),
            (false, true, false) => Ok(O_WRONLY),
            (true, true, false) => Ok(O_RDWR),
            (false, _, true) => Ok(O_WRONLY | O_APPEND),
            (true, _, true) => Ok(O_RDWR | O_APPEND),
            (false, false, false) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "set `read`, `write` or `append` to open a file"))
            }
        }
    }

    fn creation(&self) -> io::Result<i32> {
        let changes = self.truncate || self.create || self.create_new;
        if changes && !self.write && !self.append {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "creating or truncating needs `write` or `append`",
            ));
        }
        if self.append && self.truncate && !self.create_new {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file cannot be truncated to append to it"));
        }
        Ok(match (self.create, self.truncate, self.create_new) {
            (_, _, true) => O_CREAT | O_EXCL,
            (create, truncate, false) => (if create { O_CREAT } else { 0 }) | (if truncate { O_TRUNC } else { 0 }),
        })
    }
}

/// Opens a place by the ring, or by the pool if the kernel lacks the opcode.
pub(crate) async fn open_at(place: &Place<'_>, flags: i32, mode: u32, resolve: Resolve) -> io::Result<OwnedFd> {
    let (name, at) = (place.c_path()?, place.at.clone());
    let resolve = resolve.0;
    if coop::has_opcode(if resolve == 0 { open::CODE } else { open::CODE_2 }) {
        return submit(Open::new(at, name, flags, mode).resolve(resolve)).await;
    }
    offload(Kind::Open, move || sys::files::open(at.raw_fd(), &name, flags, mode, resolve)).await
}

/// How the kernel walks a path when it opens a file (`RESOLVE_` flags of openat2(2)); combined with `|`. By default
/// none.
///
/// # Examples
///
/// ```
/// use runtime_fs::{Dir, OpenOptions, Resolve};
///
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// # let root = tempfile::tempdir()?;
/// let dir = Dir::open(root.path()).await?;
/// let mut options = OpenOptions::new();
/// options.read(true).resolve(Resolve::BENEATH | Resolve::NO_SYMLINKS);
/// let error = dir.open_file_with("../../etc/passwd", &options).await.unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::CrossesDevices, "it leads out");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resolve(u64);

impl Resolve {
    /// The path must not leave the directory that it is relative to; `EXDEV` if it does.
    pub const BENEATH: Self = Self(open::RESOLVE_BENEATH);
    /// The directory that the path is relative to is its root: absolute paths and `..` do not leave it.
    pub const IN_ROOT: Self = Self(open::RESOLVE_IN_ROOT);
    /// No symbolic link on the way, nor at the end; `ELOOP` otherwise.
    pub const NO_SYMLINKS: Self = Self(open::RESOLVE_NO_SYMLINKS);
    /// None of the links that lead anywhere, as those in /proc/self/fd; `ELOOP` otherwise.
    pub const NO_MAGICLINKS: Self = Self(open::RESOLVE_NO_MAGICLINKS);
    /// The path must stay on one mount; `EXDEV` otherwise.
    pub const NO_XDEV: Self = Self(open::RESOLVE_NO_XDEV);
    /// Only what is in memory already; `EAGAIN` otherwise, and for whatever creates or truncates (5.12).
    pub const CACHED: Self = Self(open::RESOLVE_CACHED);
}

impl BitOr for Resolve {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
