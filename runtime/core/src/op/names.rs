//! `IORING_OP_RENAMEAT`, `UNLINKAT`, `MKDIRAT`, `LINKAT` and `SYMLINKAT`: what is done to the names of files.
//!
//! All are carried out by a worker of the kernel, which has copied the paths when the entry is taken. Dropped in flight
//! they may have been done or not.

use io_uring::{opcode, squeue, types};
use std::ffi::CString;
use std::io;

use super::{Cqe, Kind, Op};
use crate::fd::At;

/// Does one thing to one or two names.
#[derive(Debug)]
pub struct Names<V> {
    _verb: V,
    at: At,
    path: CString,
    other_at: At,
    other: CString,
    mode: libc::mode_t,
}

/// Where a name is: the directory that it is relative to, and the path.
#[doc(hidden)]
pub type Place = (types::Fd, *const libc::c_char);

/// What is done to the names, and its opcode.
pub trait Verb: 'static {
    /// The opcode's number.
    const CODE: u8;
    /// The name under which it is counted.
    const KIND: Kind;
    #[doc(hidden)]
    fn build(name: Place, other: Place, mode: libc::mode_t) -> squeue::Entry;
}

impl<V: Verb> Names<V> {
    /// On one path; `mode` matters to [`MakeDir`].
    pub fn one(verb: V, at: At, path: CString, mode: libc::mode_t) -> Self {
        Self { _verb: verb, at, path, other_at: At::HERE, other: CString::default(), mode }
    }

    /// On two paths, in the order of the system call.
    pub fn two(verb: V, (at, path): (At, CString), (other_at, other): (At, CString)) -> Self {
        Self { _verb: verb, at, path, other_at, other, mode: 0 }
    }
}

// SAFETY: the paths are heap memory that this operation owns; one completion.
unsafe impl<V: Verb> Op for Names<V> {
    type Output = io::Result<()>;
    const KIND: Kind = V::KIND;

    fn entry(&mut self) -> squeue::Entry {
        let name = (types::Fd(self.at.raw_fd()), self.path.as_ptr());
        let other = (types::Fd(self.other_at.raw_fd()), self.other.as_ptr());
        V::build(name, other, self.mode)
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        cqe.result().map(drop)
    }
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $verb:ident: $opcode:ident, $kind:ident, |$name:pat, $other:pat, $mode:ident| $build:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $verb;

        impl Verb for $verb {
            const CODE: u8 = opcode::$opcode::CODE;
            const KIND: Kind = Kind::$kind;

            fn build($name: Place, $other: Place, $mode: libc::mode_t) -> squeue::Entry {
                $build.build()
            }
        }
    )*};
}

verbs! {
    /// rename(2): from, to.
    Rename: RenameAt, Rename, |(at, path), (to, other), _mode| opcode::RenameAt::new(at, path, to, other);
    /// unlink(2).
    Unlink: UnlinkAt, Unlink, |(at, path), _, _mode| opcode::UnlinkAt::new(at, path);
    /// rmdir(2).
    RemoveDir: UnlinkAt, Unlink, |(at, path), _, _mode| opcode::UnlinkAt::new(at, path).flags(libc::AT_REMOVEDIR);
    /// mkdir(2).
    MakeDir: MkDirAt, MakeDir, |(at, path), _, mode| opcode::MkDirAt::new(at, path).mode(mode);
    /// link(2): the file, its new name. A symbolic link is not followed.
    Link: LinkAt, Link, |(at, path), (to, other), _mode| opcode::LinkAt::new(at, path, to, other);
    /// symlink(2): what it says, which is relative to nothing, and its name.
    Symlink: SymlinkAt, Symlink, |(_, path), (to, other), _mode| opcode::SymlinkAt::new(to, path, other);
}
