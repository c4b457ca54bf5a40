//! System calls that tests of other packages need, where `unsafe` has no place.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of this")]

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Gives SIGPIPE its default action, as in programs that are not std's. For a process that has this one test.
pub fn default_sigpipe() {
    // SAFETY: the default action runs no code of ours.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    assert_ne!(before, libc::SIG_ERR);
}

/// Closes the standard input. For a process that has this one test, which does not use it otherwise.
pub fn close_stdin() {
    // SAFETY: nobody else in such a process uses it; std never closes it.
    drop(unsafe { OwnedFd::from_raw_fd(0) });
}

/// Has poll(2) see an error on this socket from its next send on: the kernel reports when that was, and nobody asks.
pub fn report_times_of_sends(socket: &impl AsFd) {
    let what = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    let len = size_of_val(&what) as libc::socklen_t;
    let (fd, value) = (socket.as_fd().as_raw_fd(), (&raw const what).cast());
    // SAFETY: an integer of that size; the descriptor is open while borrowed.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, value, len) };
    assert_eq!(result, 0);
}

/// Both sides of a terminal, the one of the program second.
pub fn terminal() -> (File, File) {
    let ours = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/ptmx").unwrap();
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::unlockpt(ours.as_raw_fd()) }, 0);
    let mut name = [0_u8; 64];
    // SAFETY: room for a name of this length.
    assert_eq!(unsafe { libc::ptsname_r(ours.as_raw_fd(), name.as_mut_ptr().cast(), name.len()) }, 0);
    let name = CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
    let theirs = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).unwrap();
    (ours, theirs)
}

/// No echo, no signals, no translation of ends of lines; lines still come as a whole.
pub fn plain_lines(terminal: &File) {
    // SAFETY: plain data that the call below fills.
    let mut settings = unsafe { std::mem::zeroed::<libc::termios>() };
    // SAFETY: writes one structure.
    assert_eq!(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings) }, 0);
    settings.c_lflag &= !(libc::ECHO | libc::ISIG);
    settings.c_oflag &= !libc::OPOST;
    // SAFETY: reads one structure.
    assert_eq!(unsafe { libc::tcsetattr(terminal.as_raw_fd(), libc::TCSANOW, &raw const settings) }, 0);
}
