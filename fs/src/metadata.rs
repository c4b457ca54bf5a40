//! [`Metadata`] and [`FileType`]: what is known about a file.
//!
//! Owns how the kernel's answer becomes std's fields. Not std's own type, which nobody can make but std; it has the same
//! methods.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use runtime_core::op::statx::{STATX_BASIC_STATS, STATX_BTIME, STATX_MNT_ID, Status};

use crate::Permissions;

/// What is asked for.
pub(crate) const MASK: u32 = STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID;

const S_IFMT: u32 = 0o170_000;

/// What is known about a file: its kind, length, owner, permissions and times.
#[derive(Clone)]
pub struct Metadata {
    dev: u64,
    ino: u64,
    mode: u32,
    nlink: u64,
    uid: u32,
    gid: u32,
    rdev: u64,
    size: u64,
    blksize: u64,
    blocks: u64,
    atime: Stamp,
    mtime: Stamp,
    ctime: Stamp,
    btime: Option<SystemTime>,
}

/// Seconds since 1970, which may be before, and nanoseconds on top.
type Stamp = (i64, i64);

/// As makedev(3).
fn device(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff
}

fn time((secs, nanos): Stamp) -> SystemTime {
    let nanos = Duration::from_nanos(nanos as u64);
    let whole = Duration::from_secs(secs.unsigned_abs());
    if secs < 0 { SystemTime::UNIX_EPOCH - whole + nanos } else { SystemTime::UNIX_EPOCH + whole + nanos }
}

impl Metadata {
    pub(crate) fn new(status: &Status) -> Self {
        let stamp = |secs: i64, nanos: u32| (secs, i64::from(nanos));
        let born = stamp(status.stx_btime.tv_sec, status.stx_btime.tv_nsec);
        Self {
            dev: device(status.stx_dev_major, status.stx_dev_minor),
            ino: status.stx_ino,
            mode: status.stx_mode.into(),
            nlink: status.stx_nlink.into(),
            uid: status.stx_uid,
            gid: status.stx_gid,
            rdev: device(status.stx_rdev_major, status.stx_rdev_minor),
            size: status.stx_size,
            blksize: status.stx_blksize.into(),
            blocks: status.stx_blocks,
            atime: stamp(status.stx_atime.tv_sec, status.stx_atime.tv_nsec),
            mtime: stamp(status.stx_mtime.tv_sec, status.stx_mtime.tv_nsec),
            ctime: stamp(status.stx_ctime.tv_sec, status.stx_ctime.tv_nsec),
            btime: (status.stx_mask & STATX_BTIME != 0).then(|| time(born)),
        }
    }

    /// The kind of file.
    pub fn file_type(&self) -> FileType {
        FileType { mode: self.mode & S_IFMT }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link; only [`symlink_metadata`](crate::symlink_metadata) can tell.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// The length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "as std's: a file's length is no container's")]
    pub fn len(&self) -> u64 {
        self.size
    }

    /// The permissions; the mode with the bits of the kind, as std's.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode)
    }

    /// When its contents were last changed.
    ///
    /// # Errors
    ///
    /// None on Linux; the signature is std's.
    pub fn modified(&self) -> io::Result<SystemTime> {
        Ok(time(self.mtime))
    }

    /// When it was last read, as far as the file system keeps count.
    ///
    /// # Errors
    ///
    /// None on Linux; the signature is std's.
    pub fn accessed(&self) -> io::Result<SystemTime> {
        Ok(time(self.atime))
    }

    /// When it was made.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the file system does not say.
    pub fn created(&self) -> io::Result<SystemTime> {
        self.btime.ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "this file system does not keep when files were made")
        })
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $self:ident $value:expr;)*) => {
        impl Metadata {$(
            $(#[$doc])*
            pub fn $name(&$self) -> $type {
                $value
            }
        )*}
    };
}

fields! {
    /// The device that it is on.
    dev: u64 = self self.dev;
    /// Its number there.
    ino: u64 = self self.ino;
    /// Kind and permissions.
    mode: u32 = self self.mode;
    /// How many names it has.
    nlink: u64 = self self.nlink;
    /// Who owns it.
    uid: u32 = self self.uid;
    /// The group that owns it.
    gid: u32 = self self.gid;
    /// The device that it is, if it is one.
    rdev: u64 = self self.rdev;
    /// The length in bytes.
    size: u64 = self self.size;
    /// Last read: seconds since 1970.
    atime: i64 = self self.atime.0;
    /// Last read: nanoseconds on top.
    atime_nsec: i64 = self self.atime.1;
    /// Contents last changed: seconds since 1970.
    mtime: i64 = self self.mtime.0;
    /// Contents last changed: nanoseconds on top.
    mtime_nsec: i64 = self self.mtime.1;
    /// Anything about it last changed: seconds since 1970.
    ctime: i64 = self self.ctime.0;
    /// Anything about it last changed: nanoseconds on top.
    ctime_nsec: i64 = self self.ctime.1;
    /// The size of requests that suits the file system.
    blksize: u64 = self self.blksize;
    /// The room that it takes, in units of 512 bytes.
    blocks: u64 = self self.blocks;
}

impl From<std::fs::Metadata> for Metadata {
    fn from(std: std::fs::Metadata) -> Self {
        Self {
            dev: std.dev(),
            ino: std.ino(),
            mode: std.mode(),
            nlink: std.nlink(),
            uid: std.uid(),
            gid: std.gid(),
            rdev: std.rdev(),
            size: std.size(),
            blksize: std.blksize(),
            blocks: std.blocks(),
            atime: (std.atime(), std.atime_nsec()),
            mtime: (std.mtime(), std.mtime_nsec()),
            ctime: (std.ctime(), std.ctime_nsec()),
            btime: std.created().ok(),
        }
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("file_type", &self.file_type())
            .field("mode", &format_args!("{:o}", self.mode))
            .field("len", &self.size)
            .field("ino", &self.ino)
            .field("modified", &time(self.mtime))
            .finish_non_exhaustive()
    }
}

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileType {
    mode: u32,
}

impl FileType {
    /// What an entry of a directory says of its file (`DT_`), if it does.
    pub(crate) fn of_entry(kind: u8) -> Option<Self> {
        let known = Self { mode: u32::from(kind) << 12 };
        matches!(kind, 1 | 2 | 4 | 6 | 8 | 10 | 12).then_some(known)
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $bits:literal;)*) => {
        impl FileType {$(
            $(#[$doc])*
            pub fn $name(&self) -> bool {
                self.mode == $bits
            }
        )*}

        impl From<std::fs::FileType> for FileType {
            fn from(std: std::fs::FileType) -> Self {
                $(if std.$name() { return Self { mode: $bits } })*
                Self { mode: 0 }
            }
        }

        impl fmt::Debug for FileType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(if self.$name() { return f.write_str(stringify!($name)) })*
                f.write_str("unknown")
            }
        }
    };
}

kinds! {
    /// A regular file.
    is_file = 0o100_000;
    /// A directory.
    is_dir = 0o040_000;
    /// A symbolic link.
    is_symlink = 0o120_000;
    /// A block device.
    is_block_device = 0o060_000;
    /// A character device.
    is_char_device = 0o020_000;
    /// A FIFO.
    is_fifo = 0o010_000;
    /// A socket.
    is_socket = 0o140_000;
}
