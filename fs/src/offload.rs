//! The rung below the ring: std's own functions on the blocking pool. And paths as the kernel takes them.
//!
//! Owns nothing; knows nothing of what the jobs do.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) use runtime_core::ladder::offload;

/// A path as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path must not contain a NUL byte"))
}
