//! Files for the `runtime` crate: what `std::fs` has, under the same names, without blocking the thread.
//!
//! What the ring has an opcode for goes through the ring; the rest, and on old kernels what they lack, is done by the
//! blocking pool with std's own functions. [`metrics`](runtime_core::metrics::Metrics::ops) tell which it was.
//!
//! | file | what |
//! |---|---|
//! | `file` | [`File`]: opening, closing, conversions |
//! | `file/at` | reading and writing at offsets |
//! | `file/cursor` | reading and writing where the cursor is, as a source and a sink of `runtime::io` |
//! | `file/state` | syncing, length, metadata, locks, room |
//! | `way` | how a file is read and closed, by its file system |
//! | `cached` | metadata of what the kernel has in memory |
//! | `options` | [`OpenOptions`], and how paths are walked: [`Resolve`] |
//! | `metadata` | [`Metadata`] and [`FileType`] |
//! | `names` | free functions on paths |
//! | `whole` | free functions on whole files |
//! | `copy` | [`copy`] |
//! | `xattr` | extended attributes |
//! | `dir` | directories: [`read_dir`], [`DirBuilder`] |
//! | `at_dir` | [`Dir`], and names relative to it |
//! | `place` | a path and what it is relative to |
//! | `offload` | the blocking pool |
#![forbid(unsafe_code)]

mod at_dir;
mod cached;
mod copy;
mod dir;
mod file;
mod metadata;
mod names;
mod options;
mod place;
mod way;
mod whole;
mod xattr;

pub use at_dir::Dir;
pub use copy::copy;
pub use dir::{DirBuilder, DirEntry, ReadDir, create_dir, create_dir_all, read_dir};
pub use file::{DirectAlign, File};
pub use metadata::{FileType, Metadata};
pub use names::{
    canonicalize, exists, hard_link, metadata, read_link, remove_dir, remove_dir_all, remove_file, rename,
    set_permissions, symlink, symlink_metadata, try_exists,
};
pub use options::{OpenOptions, Resolve};
pub use runtime_core::buf::AlignedBuf;
pub use runtime_core::op::fadvise::Advice;
pub use std::fs::{FileTimes, Permissions};
pub use whole::{read, read_to_string, write};
pub use xattr::{remove_xattr, set_xattr, xattr, xattrs};
