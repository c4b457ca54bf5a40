//! `IORING_OP_GETXATTR`, `FGETXATTR`, `SETXATTR` and `FSETXATTR` (5.19): extended attributes.
//!
//! The kernel has no opcodes to list and to remove them; the system calls are in `sys::xattr`.

use io_uring::{opcode, squeue, types};
use std::ffi::{CStr, CString};
use std::io;

use super::{Cqe, Kind, Op};
use crate::fd::Origin;

/// The opcodes' numbers, of which a kernel has all or none.
pub const CODE: u8 = opcode::FSetXattr::CODE;

/// What has attributes: the file that a path leads to, or an open one.
pub trait Subject: 'static {
    #[doc(hidden)]
    fn read(&self, name: &CStr, value: *mut u8, len: u32) -> squeue::Entry;
    #[doc(hidden)]
    fn write(&self, name: &CStr, value: *const u8, len: u32) -> squeue::Entry;
    #[doc(hidden)]
    fn keep_failure(&mut self, _result: io::Result<()>) {}
}

impl Subject for CString {
    fn read(&self, name: &CStr, value: *mut u8, len: u32) -> squeue::Entry {
        opcode::GetXattr::new(name.as_ptr(), value.cast(), self.as_ptr(), len).build()
    }

    fn write(&self, name: &CStr, value: *const u8, len: u32) -> squeue::Entry {
        opcode::SetXattr::new(name.as_ptr(), value.cast(), self.as_ptr(), len).build()
    }
}

impl<F: Origin> Subject for F {
    fn read(&self, name: &CStr, value: *mut u8, len: u32) -> squeue::Entry {
        opcode::FGetXattr::new(types::Fd(self.raw_fd()), name.as_ptr(), value.cast(), len).build()
    }

    fn write(&self, name: &CStr, value: *const u8, len: u32) -> squeue::Entry {
        opcode::FSetXattr::new(types::Fd(self.raw_fd()), name.as_ptr(), value.cast(), len).build()
    }

    fn keep_failure(&mut self, result: io::Result<()>) {
        super::send::keep_failure(self, result.map(|()| 0));
    }
}

/// Asks for the value of one attribute.
#[derive(Debug)]
pub struct ReadXattr<S> {
    of: S,
    name: CString,
    value: Vec<u8>,
}

impl<S: Subject> ReadXattr<S> {
    /// A value of more than `room` bytes is `ERANGE`.
    pub fn new(of: S, name: CString, room: usize) -> Self {
        Self { of, name, value: vec![0; room] }
    }
}

// SAFETY: path, name and value are heap memory that this operation owns, only the kernel reaches the latter in flight;
// one completion.
unsafe impl<S: Subject> Op for ReadXattr<S> {
    type Output = (io::Result<Vec<u8>>, S, CString);
    const KIND: Kind = Kind::Xattr;

    fn entry(&mut self) -> squeue::Entry {
        self.of.read(&self.name, self.value.as_mut_ptr(), self.value.len() as u32)
    }

    fn complete(mut self, cqe: Cqe) -> Self::Output {
        let result = cqe.result().map(|len| {
            self.value.truncate(len as usize);
            self.value
        });
        (result, self.of, self.name)
    }
}

/// Gives an attribute a value, or makes it.
#[derive(Debug)]
pub struct WriteXattr<S> {
    of: S,
    name: CString,
    value: Vec<u8>,
}

impl<S: Subject> WriteXattr<S> {
    /// The kernel takes values of up to 64 KiB.
    pub fn new(of: S, name: CString, value: Vec<u8>) -> Self {
        Self { of, name, value }
    }
}

// SAFETY: path, name and value are heap memory that this operation owns; one completion.
unsafe impl<S: Subject> Op for WriteXattr<S> {
    type Output = (io::Result<()>, S);
    const KIND: Kind = Kind::Xattr;

    fn entry(&mut self) -> squeue::Entry {
        self.of.write(&self.name, self.value.as_ptr(), u32::try_from(self.value.len()).unwrap_or(u32::MAX))
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (cqe.result().map(drop), self.of)
    }

    fn orphan(self, cqe: Cqe) {
        let (result, mut of) = self.complete(cqe);
        of.keep_failure(result);
    }
}
