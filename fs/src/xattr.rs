//! Extended attributes, of paths and of open files.
//!
//! The ring reads and writes values (5.19); to list and to remove them, and before, it is the blocking pool.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use runtime_core::coop;
use runtime_core::ladder::offload;
use runtime_core::op::Kind;
use runtime_core::op::xattr::{self, ReadXattr, Subject, WriteXattr};
use runtime_core::submit::submit;
use runtime_core::sys::xattr as calls;

use crate::File;
use crate::place::c_path;
use crate::way::Way;

/// Room for a value at first; most are smaller.
const FIRST_BYTES: usize = 256;
const ENODATA: i32 = 61;
const ERANGE: i32 = 34;

/// The value of an extended attribute of what a path leads to, as `user.mime_type`; `None` if it has no such attribute.
/// Symbolic links are followed.
///
/// # Errors
///
/// Those of getxattr(2): `EOPNOTSUPP` where the file system has none.
///
/// # Cancel safety
///
/// Changes nothing.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// # let file = tempfile::NamedTempFile::new()?;
/// # let path = file.path();
/// match runtime_fs::set_xattr(path, "user.origin", "a scan").await {
///     Ok(()) => assert_eq!(runtime_fs::xattr(path, "user.origin").await?.as_deref(), Some(&b"a scan"[..])),
///     Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported),
/// }
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "IORING_OP_GETXATTR")]
pub async fn xattr(path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> io::Result<Option<Vec<u8>>> {
    let (path, name) = (c_path(path.as_ref())?, c_name(name.as_ref())?);
    let result = if coop::has_opcode(xattr::CODE) {
        read(path, name).await
    } else {
        offload(Kind::Xattr, move || calls::read(calls::Subject::Path(&path), &name)).await
    };
    if_there(result)
}

/// Gives an extended attribute of what a path leads to a value, whether it had one or not. Symbolic links are followed.
///
/// # Errors
///
/// Those of setxattr(2): `EOPNOTSUPP` where the file system has none, `E2BIG` above 64 KiB, `ENOSPC` where less fits.
///
/// # Cancel safety
///
/// It may happen or not.
#[doc(alias = "IORING_OP_SETXATTR")]
pub async fn set_xattr(path: impl AsRef<Path>, name: impl AsRef<OsStr>, value: impl AsRef<[u8]>) -> io::Result<()> {
    let (path, name) = (c_path(path.as_ref())?, c_name(name.as_ref())?);
    let value = value.as_ref().to_vec();
    if coop::has_opcode(xattr::CODE) {
        return submit(WriteXattr::new(path, name, value)).await.0;
    }
    offload(Kind::Xattr, move || calls::write(calls::Subject::Path(&path), &name, &value)).await
}

/// The names of the extended attributes of what a path leads to, on the blocking pool. Symbolic links are followed.
///
/// # Errors
///
/// Those of listxattr(2).
///
/// # Cancel safety
///
/// Changes nothing.
pub async fn xattrs(path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
    let path = c_path(path.as_ref())?;
    offload(Kind::Xattr, move || calls::list(calls::Subject::Path(&path))).await.map(|list| names(&list))
}

/// Removes an extended attribute of what a path leads to, on the blocking pool. Symbolic links are followed.
///
/// # Errors
///
/// Those of removexattr(2): `ENODATA` if there is none of this name.
///
/// # Cancel safety
///
/// It may happen or not.
pub async fn remove_xattr(path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> io::Result<()> {
    let (path, name) = (c_path(path.as_ref())?, c_name(name.as_ref())?);
    offload(Kind::Xattr, move || calls::remove(calls::Subject::Path(&path), &name)).await
}

impl File {
    /// The value of an extended attribute of this file; `None` if it has no such attribute.
    ///
    /// # Errors
    ///
    /// Those of fgetxattr(2).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(alias = "IORING_OP_FGETXATTR")]
    pub async fn xattr(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Vec<u8>>> {
        let name = c_name(name.as_ref())?;
        self.open.settled().await;
        let file = Arc::clone(&self.open);
        let result = if coop::has_opcode(xattr::CODE) {
            Way::goes_to_ring(&file);
            read(file, name).await
        } else {
            offload(Kind::Xattr, move || calls::read(calls::Subject::File(file.as_fd()), &name)).await
        };
        if_there(result)
    }

    /// Gives an extended attribute of this file a value, whether it had one or not.
    ///
    /// # Errors
    ///
    /// Those of fsetxattr(2); see [`set_xattr`](crate::set_xattr).
    ///
    /// # Cancel safety
    ///
    /// As [`set_len`](Self::set_len).
    #[doc(alias = "IORING_OP_FSETXATTR")]
    pub async fn set_xattr(&self, name: impl AsRef<OsStr>, value: impl AsRef<[u8]>) -> io::Result<()> {
        let (name, value) = (c_name(name.as_ref())?, value.as_ref().to_vec());
        if coop::has_opcode(xattr::CODE) {
            return self.change(|change| WriteXattr::new(change, name, value)).await;
        }
        let write = move |file: &std::fs::File| calls::write(calls::Subject::File(file.as_fd()), &name, &value);
        self.change_offloaded(Kind::Xattr, write).await
    }

    /// The names of this file's extended attributes, on the blocking pool.
    ///
    /// # Errors
    ///
    /// Those of flistxattr(2).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn xattrs(&self) -> io::Result<Vec<OsString>> {
        self.open.settled().await;
        let file = Arc::clone(&self.open);
        offload(Kind::Xattr, move || calls::list(calls::Subject::File(file.as_fd()))).await.map(|list| names(&list))
    }

    /// Removes an extended attribute of this file, on the blocking pool.
    ///
    /// # Errors
    ///
    /// Those of fremovexattr(2): `ENODATA` if there is none of this name.
    ///
    /// # Cancel safety
    ///
    /// As [`set_len`](Self::set_len).
    pub async fn remove_xattr(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = c_name(name.as_ref())?;
        let remove = move |file: &std::fs::File| calls::remove(calls::Subject::File(file.as_fd()), &name);
        self.change_offloaded(Kind::Xattr, remove).await
    }
}

async fn read<S: Subject>(of: S, name: CString) -> io::Result<Vec<u8>> {
    match submit(ReadXattr::new(of, name, FIRST_BYTES)).await {
        (Err(error), of, name) if error.raw_os_error() == Some(ERANGE) => {
            submit(ReadXattr::new(of, name, calls::MAX_BYTES)).await.0
        }
        (result, ..) => result,
    }
}

fn if_there(result: io::Result<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
    match result {
        Err(error) if error.raw_os_error() == Some(ENODATA) => Ok(None),
        result => result.map(Some),
    }
}

fn names(list: &[u8]) -> Vec<OsString> {
    let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names.map(|name| OsString::from_vec(name.to_vec())).collect()
}

fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, "the name of an attribute must not contain a NUL byte")
    })
}
