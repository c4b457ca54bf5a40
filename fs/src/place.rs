//! [`Place`]: a path and the directory that it is relative to, as the ring takes it and as std's functions do.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use runtime_core::fd::At;

/// Where something is, or is to be.
#[derive(Debug, Clone)]
pub(crate) struct Place<'a> {
    pub(crate) at: At,
    path: &'a Path,
}

impl<'a> Place<'a> {
    /// Relative to the working directory.
    pub(crate) fn here(path: &'a Path) -> Self {
        Self { at: At::HERE, path }
    }

    pub(crate) fn below(at: At, path: &'a Path) -> Self {
        Self { at, path }
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// The path as the kernel takes it.
    pub(crate) fn c_path(&self) -> io::Result<CString> {
        c_path(self.path)
    }

    /// The place as std's functions take it: a directory that is open has a name in /proc for as long as it is.
    pub(crate) fn for_std(&self) -> StdPath {
        let path = match self.at.raw_fd() {
            // An empty path is an error, and has to stay one.
            dir @ 0.. if !self.path.as_os_str().is_empty() => {
                Path::new("/proc/self/fd").join(dir.to_string()).join(self.path)
            }
            _ => self.path.to_owned(),
        };
        StdPath { path, _at: self.at.clone() }
    }
}

/// A path for std that keeps the directory open which it is relative to.
#[derive(Debug)]
pub(crate) struct StdPath {
    path: PathBuf,
    _at: At,
}

impl AsRef<Path> for StdPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// A path as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path must not contain a NUL byte"))
}
