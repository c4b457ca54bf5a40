//! [`OpenOptions`]: how a file is opened.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use runtime_core::coop;
use runtime_core::op::Kind;
use runtime_core::op::open::{
    self, O_ACCMODE, O_APPEND, O_CREAT, O_DIRECT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, Open,
};
use runtime_core::submit::submit;

use crate::File;
use crate::offload::{c_path, offload};

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
    }

    /// Permission bits of a file that is created, less the umask: 0o666 unless set.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// More flags of open(2), as `O_DIRECT`, `O_DSYNC`, `O_NOFOLLOW` or `O_PATH`; those of the access mode are ignored.
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
    /// Those of open(2); `InvalidInput` for options that contradict each other and for a path with a NUL byte.
    ///
    /// # Cancel safety
    ///
    /// A file that was opened is closed; it may have been created or emptied.
    #[doc(alias = "IORING_OP_OPENAT")]
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let flags = self.access()? | self.creation()? | self.custom();
        let name = c_path(path)?;
        if coop::has_opcode(open::CODE) {
            let fd = submit(Open::new(name, flags, self.mode)).await?;
            return File::opened(fd, self.append, self.direct).await;
        }
        let (options, path) = (self.as_std(), path.to_owned());
        let file = offload(Kind::Open, move || options.open(path)).await?;
        File::opened(file.into(), self.append, self.direct).await
    }

    fn custom(&self) -> i32 {
        (self.custom_flags & !O_ACCMODE) | if self.direct { O_DIRECT } else { 0 }
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

    fn as_std(&self) -> std::fs::OpenOptions {
        let mut options = std::fs::OpenOptions::new();
        options.read(self.read).write(self.write).append(self.append).truncate(self.truncate);
        options.create(self.create).create_new(self.create_new).mode(self.mode).custom_flags(self.custom());
        options
    }
}
