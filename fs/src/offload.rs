//! The rung below the ring: std's own functions on the blocking pool. And paths as the kernel takes them.
//!
//! Owns how the end of a job becomes an `io::Result`; knows nothing of what the jobs do.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use runtime_core::coop;
use runtime_core::op::{Cqe, Kind, Rung};
use runtime_core::task::spawn_blocking;

/// Runs a job on the blocking pool, and counts it.
///
/// # Cancel safety
///
/// A job that was started is finished; its output is dropped.
pub(crate) async fn offload<T, F>(kind: Kind, job: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    coop::count(kind, Rung::Offload);
    match spawn_blocking(job).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // No thread could be started, or the runtime is closing: what an operation of the ring would say.
            Err(_cancelled) => Err(canceled()),
        },
    }
}

fn canceled() -> io::Error {
    match Cqe::CANCELED.result() {
        Err(error) => error,
        Ok(_) => io::ErrorKind::Other.into(),
    }
}

/// A path as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path must not contain a NUL byte"))
}
