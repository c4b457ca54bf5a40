//! Free functions on whole files, with std's names and meanings.

use std::io;
use std::path::Path;

use runtime_core::buf::{BufResult, IoBuf};

use crate::{File, OpenOptions};

/// The contents of a file, whatever it says about its length: it is read until it says that it ends, as files in /proc
/// and files that grow or shrink need.
///
/// A file that fits into the first 8 KiB is opened and read, without asking for its length.
///
/// # Errors
///
/// Those of open(2) and read(2); `OutOfMemory`.
///
/// # Cancel safety
///
/// Changes nothing.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// assert!(runtime_fs::read_to_string("/proc/self/status").await?.contains("VmSize"));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = File::open(path).await?;
    Ok(file.read_to_end_at(Vec::new(), 0).await.into_result()?.1)
}

/// The contents of a file as text.
///
/// # Errors
///
/// As [`read`]; `InvalidData` when it is not UTF-8.
///
/// # Cancel safety
///
/// Changes nothing.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path).await?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Makes the buffer the contents of a file, which is created or emptied first. The buffer comes back.
///
/// # Errors
///
/// Those of open(2) and write(2); the file may hold a part by then.
///
/// # Cancel safety
///
/// The file may be empty or hold any part. It is not closed before what was dropped is over.
pub async fn write<B: IoBuf>(path: impl AsRef<Path>, contents: B) -> BufResult<(), B> {
    match OpenOptions::new().write(true).create(true).truncate(true).open(path).await {
        Ok(file) => file.write_all_at(contents, 0).await,
        Err(error) => BufResult(Err(error), contents),
    }
}
