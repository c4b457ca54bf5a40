//! [`Dir`]: an open directory, and what is done to the names in it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime_core::coop;
use runtime_core::fd::At;
use runtime_core::ladder::offload;
use runtime_core::op::Kind;
use runtime_core::op::fsync::{self, Fsync};
use runtime_core::op::names::{Link, MakeDir, RemoveDir, Rename, Symlink, Unlink};
use runtime_core::op::open::{O_DIRECTORY, O_RDONLY};
use runtime_core::submit::submit;

use crate::dir::{ReadDir, read_place};
use crate::metadata::Metadata;
use crate::names::{is_there, one, status, two};
use crate::options::open_at;
use crate::place::Place;
use crate::{File, OpenOptions, Permissions, Resolve};

/// An open directory. Paths given to its methods are relative to it, wherever it is moved meanwhile; an absolute path
/// is what it always is, and `..` leads out unless [`OpenOptions::resolve`] says otherwise.
///
/// Clones share the descriptor. What is dropped in flight keeps the directory open until it is over.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// # let tmp = tempfile::tempdir()?;
/// let dir = runtime_fs::Dir::open(tmp.path()).await?;
/// dir.create_dir("logs").await?;
/// let logs = dir.open_dir("logs").await?;
/// dir.rename("logs", &dir, "old logs").await?;
/// let mut create = runtime_fs::OpenOptions::new();
/// create.write(true).create_new(true);
/// logs.open_file_with("today", &create).await?; // In "old logs" by now.
/// assert!(dir.metadata("old logs/today").await?.is_file());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Dir {
    fd: Arc<OwnedFd>,
}

impl Dir {
    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// Those of open(2), `NotADirectory` among them; `InvalidInput` for a path with a NUL byte.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(alias = "IORING_OP_OPENAT")]
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::open_place(&Place::here(path.as_ref())).await
    }

    /// Opens a directory below this one.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(alias = "IORING_OP_OPENAT")]
    pub async fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        Self::open_place(&self.place(path.as_ref())).await
    }

    async fn open_place(place: &Place<'_>) -> io::Result<Self> {
        let fd = open_at(place, O_RDONLY | O_DIRECTORY, 0, Resolve::default()).await?;
        Ok(Self { fd: Arc::new(fd) })
    }

    fn place<'a>(&self, path: &'a Path) -> Place<'a> {
        Place::below(At::dir(Arc::clone(&self.fd)), path)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// As [`File::open`].
    ///
    /// # Cancel safety
    ///
    /// A file that was opened is closed.
    #[doc(alias = "IORING_OP_OPENAT")]
    pub async fn open_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open_at(&self.place(path.as_ref())).await
    }

    /// Opens a file as the options say.
    ///
    /// # Errors
    ///
    /// As [`OpenOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// A file that was opened is closed; it may have been created or emptied.
    #[doc(alias = "IORING_OP_OPENAT2")]
    pub async fn open_file_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        options.open_at(&self.place(path.as_ref())).await
    }

    /// Makes a directory, with mode 0o777 less the umask.
    ///
    /// # Errors
    ///
    /// Those of mkdir(2).
    ///
    /// # Cancel safety
    ///
    /// It may happen or not.
    #[doc(alias = "IORING_OP_MKDIRAT")]
    pub async fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        one(MakeDir, self.place(path.as_ref()), 0o777, std::fs::create_dir).await
    }

    /// Removes the name of a file.
    ///
    /// # Errors
    ///
    /// Those of unlink(2).
    ///
    /// # Cancel safety
    ///
    /// It may happen or not.
    #[doc(alias = "IORING_OP_UNLINKAT")]
    pub async fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        one(Unlink, self.place(path.as_ref()), 0, std::fs::remove_file).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// Those of rmdir(2).
    ///
    /// # Cancel safety
    ///
    /// It may happen or not.
    #[doc(alias = "IORING_OP_UNLINKAT")]
    pub async fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        one(RemoveDir, self.place(path.as_ref()), 0, std::fs::remove_dir).await
    }

    /// Removes a directory and all that is in it; as [`remove_dir_all`](crate::remove_dir_all).
    ///
    /// # Errors
    ///
    /// Those of std's `remove_dir_all`.
    ///
    /// # Cancel safety
    ///
    /// It goes on.
    pub async fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = self.place(path.as_ref()).for_std();
        offload(Kind::Unlink, move || std::fs::remove_dir_all(path)).await
    }

    /// Gives what is here another name in `to_dir`, which may be this one, in place of what is there.
    ///
    /// # Errors
    ///
    /// Those of rename(2).
    ///
    /// # Cancel safety
    ///
    /// It may happen or not, and does at once or not at all.
    #[doc(alias = "IORING_OP_RENAMEAT")]
    pub async fn rename(&self, from: impl AsRef<Path>, to_dir: &Self, to: impl AsRef<Path>) -> io::Result<()> {
        two(Rename, self.place(from.as_ref()), to_dir.place(to.as_ref()), std::fs::rename).await
    }

    /// Gives a file one more name, in `link_dir`. A symbolic link is not followed.
    ///
    /// # Errors
    ///
    /// Those of link(2).
    ///
    /// # Cancel safety
    ///
    /// It may happen or not.
    #[doc(alias = "IORING_OP_LINKAT")]
    pub async fn hard_link(
        &self,
        original: impl AsRef<Path>,
        link_dir: &Self,
        link: impl AsRef<Path>,
    ) -> io::Result<()> {
        two(Link, self.place(original.as_ref()), link_dir.place(link.as_ref()), std::fs::hard_link).await
    }

    /// Makes a symbolic link that says `original`.
    ///
    /// # Errors
    ///
    /// Those of symlink(2).
    ///
    /// # Cancel safety
    ///
    /// It may happen or not.
    #[doc(alias = "IORING_OP_SYMLINKAT")]
    pub async fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        let says = Place::here(original.as_ref());
        two(Symlink, says, self.place(link.as_ref()), std::os::unix::fs::symlink).await
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
    pub async fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = self.place(path.as_ref()).for_std();
        offload(Kind::Other, move || std::fs::read_link(path)).await
    }

    /// What is known about what a path leads to; symbolic links are followed.
    ///
    /// # Errors
    ///
    /// Those of statx(2).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(alias = "IORING_OP_STATX")]
    pub async fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        status(&self.place(path.as_ref()), true).await
    }

    /// As [`metadata`](Self::metadata), but of a symbolic link itself.
    ///
    /// # Errors
    ///
    /// Those of statx(2).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(alias = "IORING_OP_STATX")]
    pub async fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        status(&self.place(path.as_ref()), false).await
    }

    /// What is known about the directory itself.
    ///
    /// # Errors
    ///
    /// Those of statx(2).
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    #[doc(alias = "IORING_OP_STATX")]
    pub async fn dir_metadata(&self) -> io::Result<Metadata> {
        status(&self.place(Path::new(".")), false).await
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
    pub async fn try_exists(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        is_there(self.metadata(path).await)
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
    pub async fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
        let path = self.place(path.as_ref()).for_std();
        offload(Kind::Other, move || std::fs::set_permissions(path, permissions)).await
    }

    /// The entries of this directory, from the start; each call has a position of its own. Their
    /// [`path`](crate::DirEntry::path) is the name alone.
    ///
    /// # Errors
    ///
    /// Those of openat(2): `PermissionDenied` when the directory may not be read.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn read_dir(&self) -> io::Result<ReadDir> {
        read_place(&self.place(Path::new(".")), true).await
    }

    /// Writes the names in this directory to the medium (fsync(2)): after it, what was created, renamed or removed here
    /// is so after a crash as well. What is *in* a file needs the file's own sync.
    ///
    /// # Errors
    ///
    /// Those of fsync(2).
    ///
    /// # Cancel safety
    ///
    /// It may happen or not.
    #[doc(alias = "IORING_OP_FSYNC")]
    pub async fn sync_all(&self) -> io::Result<()> {
        let fd = Arc::clone(&self.fd);
        if coop::has_opcode(fsync::CODE) {
            return submit(Fsync::new(fd, false)).await.0;
        }
        offload(Kind::Sync, move || std::fs::File::from(fd.try_clone()?).sync_all()).await
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Dir {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Takes over an open directory, also one that was opened with `O_PATH`; of anything else every operation says
/// `NotADirectory`.
impl From<OwnedFd> for Dir {
    fn from(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd) }
    }
}
