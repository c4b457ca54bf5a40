//! Free functions on paths, with std's names and meanings.
//!
//! What has an opcode goes through the ring, where a worker of the kernel on the same core does it; the rest, and all that
//! takes several system calls, is one job of the blocking pool.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime_core::coop;
use runtime_core::ladder::offload;
use runtime_core::op::names::{Link, Names, RemoveDir, Rename, Symlink, Unlink, Verb};
use runtime_core::op::statx::{self, Statx};
use runtime_core::op::{Kind, Op};
use runtime_core::open_file::OpenFile;
use runtime_core::submit::submit;

use crate::Permissions;
use crate::cached;
use crate::metadata::{MASK, Metadata};
use crate::place::{Place, StdPath};

/// What is known about what a path leads to; symbolic links are followed.
///
/// # Errors
///
/// Those of statx(2).
///
/// # Cancel safety
///
/// Changes nothing.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// assert!(runtime_fs::metadata("/proc").await?.is_dir());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "IORING_OP_STATX")]
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    status(&Place::here(path.as_ref()), true).await
}

/// As [`metadata`], but of a symbolic link itself.
///
/// # Errors
///
/// Those of statx(2).
///
/// # Cancel safety
///
/// Changes nothing.
#[doc(alias = "IORING_OP_STATX")]
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    status(&Place::here(path.as_ref()), false).await
}

pub(crate) async fn status(place: &Place<'_>, follow: bool) -> io::Result<Metadata> {
    let name = place.c_path()?;
    if let Some(result) = cached::of_path(&place.at, &name, follow).await {
        return result;
    }
    if coop::has_opcode(statx::CODE) {
        let statx = Statx::<Arc<OpenFile>>::of_path(place.at.clone(), name, follow, MASK);
        return submit(statx).await.map(|status| Metadata::new(&status));
    }
    let path = place.for_std();
    let job = move || if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
    offload(Kind::Stat, job).await.map(Metadata::from)
}

/// Whether a path leads to something; symbolic links are followed.
///
/// # Errors
///
/// Those of statx(2) but `NotFound`.
///
/// # Cancel safety
///
/// Changes nothing.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    is_there(metadata(path).await)
}

/// That there is nothing is no error here.
pub(crate) fn is_there(metadata: io::Result<Metadata>) -> io::Result<bool> {
    match metadata {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// As [`try_exists`]; std has both names.
///
/// # Errors
///
/// As [`try_exists`].
///
/// # Cancel safety
///
/// Changes nothing.
pub async fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    try_exists(path).await
}

/// Gives a file or directory another name, in place of what is there.
///
/// # Errors
///
/// Those of rename(2).
///
/// # Cancel safety
///
/// It may happen or not, and does at once or not at all.
#[doc(alias = "IORING_OP_RENAMEAT")]
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    two(Rename, Place::here(from.as_ref()), Place::here(to.as_ref()), std::fs::rename).await
}

/// Gives a file one more name. A symbolic link is not followed.
///
/// # Errors
///
/// Those of link(2).
///
/// # Cancel safety
///
/// As [`rename`].
#[doc(alias = "IORING_OP_LINKAT")]
pub async fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    two(Link, Place::here(original.as_ref()), Place::here(link.as_ref()), std::fs::hard_link).await
}

/// Makes a symbolic link that says `original`.
///
/// # Errors
///
/// Those of symlink(2).
///
/// # Cancel safety
///
/// As [`rename`].
#[doc(alias = "IORING_OP_SYMLINKAT")]
pub async fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    two(Symlink, Place::here(original.as_ref()), Place::here(link.as_ref()), std::os::unix::fs::symlink).await
}

/// Removes the name of a file; the file goes with its last name, and once nobody has it open.
///
/// # Errors
///
/// Those of unlink(2).
///
/// # Cancel safety
///
/// As [`rename`].
#[doc(alias = "IORING_OP_UNLINKAT")]
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    one(Unlink, Place::here(path.as_ref()), 0, std::fs::remove_file).await
}

/// Removes an empty directory.
///
/// # Errors
///
/// Those of rmdir(2).
///
/// # Cancel safety
///
/// As [`rename`].
#[doc(alias = "IORING_OP_UNLINKAT")]
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    one(RemoveDir, Place::here(path.as_ref()), 0, std::fs::remove_dir).await
}

/// Removes a directory and all that is in it, on the blocking pool. Symbolic links are removed, never followed, also when
/// somebody puts them there meanwhile: std's own function does it.
///
/// # Errors
///
/// Those of std's `remove_dir_all`.
///
/// # Cancel safety
///
/// It goes on.
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    offload(Kind::Unlink, move || std::fs::remove_dir_all(path)).await
}

/// What a symbolic link says, on the blocking pool.
///
/// # Errors
///
/// Those of readlink(2).
///
/// # Cancel safety
///
/// Changes nothing.
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    offload(Kind::Other, move || std::fs::read_link(path)).await
}

/// The absolute path without symbolic links, on the blocking pool.
///
/// # Errors
///
/// Those of realpath(3).
///
/// # Cancel safety
///
/// Changes nothing.
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    offload(Kind::Other, move || std::fs::canonicalize(path)).await
}

/// Changes the permissions of what a path leads to, on the blocking pool.
///
/// # Errors
///
/// Those of chmod(2).
///
/// # Cancel safety
///
/// It may happen or not.
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    offload(Kind::Other, move || std::fs::set_permissions(path, permissions)).await
}

pub(crate) async fn one<V: Verb>(
    verb: V,
    place: Place<'_>,
    mode: u32,
    std: impl FnOnce(StdPath) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let name = place.c_path()?;
    if coop::has_opcode(V::CODE) {
        return submit(Names::one(verb, place.at, name, mode)).await;
    }
    let path = place.for_std();
    offload(<Names<V> as Op>::KIND, move || std(path)).await
}

pub(crate) async fn two<V: Verb>(
    verb: V,
    place: Place<'_>,
    other: Place<'_>,
    std: impl FnOnce(StdPath, StdPath) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let (name, other_name) = (place.c_path()?, other.c_path()?);
    if coop::has_opcode(V::CODE) {
        return submit(Names::two(verb, (place.at, name), (other.at, other_name))).await;
    }
    let (path, other) = (place.for_std(), other.for_std());
    offload(<Names<V> as Op>::KIND, move || std(path, other)).await
}
