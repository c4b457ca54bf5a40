//! `IORING_OP_RENAMEAT`, `UNLINKAT`, `MKDIRAT`, `LINKAT` and `SYMLINKAT`: what is done to the names of files.
//!
//! All are carried out by a worker of the kernel, which has copied the paths when the entry is taken. Dropped in flight
//! they may have been done or not.

use io_uring::{opcode, squeue, types};
use std::ffi::CString;
use std::io;

use super::{Cqe, Kind, Op};

const HERE: types::Fd = types::Fd(libc::AT_FDCWD);

/// Does one thing to one or two names.
#[derive(Debug)]
pub struct Names<V> {
    _verb: V,
    path: CString,
    other: CString,
    mode: libc::mode_t,
}

/// What is done to the names, and its opcode.
pub trait Verb: 'static {
    /// The opcode's number.
    const CODE: u8;
    /// The name under which it is counted.
    const KIND: Kind;
    #[doc(hidden)]
    fn build(path: *const libc::c_char, other: *const libc::c_char, mode: libc::mode_t) -> squeue::Entry;
}

impl<V: Verb> Names<V> {
    /// On one path; `mode` matters to [`MakeDir`].
    pub fn one(verb: V, path: CString, mode: libc::mode_t) -> Self {
        Self { _verb: verb, path, other: CString::default(), mode }
    }

    /// On two paths, in the order of the system call.
    pub fn two(verb: V, path: CString, other: CString) -> Self {
        Self { _verb: verb, path, other, mode: 0 }
    }
}

// SAFETY: the paths are heap memory that this operation owns; one completion.
unsafe impl<V: Verb> Op for Names<V> {
    type Output = io::Result<()>;
    const KIND: Kind = V::KIND;

    fn entry(&mut self) -> squeue::Entry {
        V::build(self.path.as_ptr(), self.other.as_ptr(), self.mode)
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        cqe.result().map(drop)
    }
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $verb:ident: $opcode:ident, $kind:ident, |$path:ident, $other:ident, $mode:ident| $build:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $verb;

        impl Verb for $verb {
            const CODE: u8 = opcode::$opcode::CODE;
            const KIND: Kind = Kind::$kind;

            fn build($path: *const libc::c_char, $other: *const libc::c_char, $mode: libc::mode_t) -> squeue::Entry {
                $build.build()
            }
        }
    )*};
}

verbs! {
    /// rename(2): from, to.
    Rename: RenameAt, Rename, |path, other, _mode| opcode::RenameAt::new(HERE, path, HERE, other);
    /// unlink(2).
    Unlink: UnlinkAt, Unlink, |path, _other, _mode| opcode::UnlinkAt::new(HERE, path);
    /// rmdir(2).
    RemoveDir: UnlinkAt, Unlink, |path, _other, _mode| opcode::UnlinkAt::new(HERE, path).flags(libc::AT_REMOVEDIR);
    /// mkdir(2).
    MakeDir: MkDirAt, MakeDir, |path, _other, mode| opcode::MkDirAt::new(HERE, path).mode(mode);
    /// link(2): the file, its new name. A symbolic link is not followed.
    Link: LinkAt, Link, |path, other, _mode| opcode::LinkAt::new(HERE, path, HERE, other);
    /// symlink(2): what it says, its name.
    Symlink: SymlinkAt, Symlink, |path, other, _mode| opcode::SymlinkAt::new(HERE, path, other);
}
