//! getdents64(2), for the blocking pool, and the form of what it returns.
//!
//! Owns nothing; knows nothing of who reads the entries.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// What one call is given; as much as the C library gives it.
const CALL_BYTES: usize = 32 << 10;
/// Number, offset, length and kind come before the name.
const HEAD_BYTES: usize = 19;

/// Reads the next entries of an open directory, `.` and `..` among them: number, kind (`DT_`, 0 where the file system does
/// not tell) and name. Says whether there were any; after the last ones there are none.
pub fn entries(dir: BorrowedFd<'_>, each: impl FnMut(u64, u8, &CStr)) -> io::Result<bool> {
    let mut memory: Vec<u8> = Vec::with_capacity(CALL_BYTES);
    // SAFETY: so much room to write to; the descriptor is open while borrowed.
    let n = unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), memory.as_mut_ptr(), CALL_BYTES) };
    let n = match check(n as isize) {
        // The directory was removed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        n => n?.min(CALL_BYTES),
    };
    // SAFETY: the kernel wrote so many bytes, within the capacity.
    unsafe { memory.set_len(n) };
    parse(&memory, each);
    Ok(n > 0)
}

/// Stops where an entry does not fit in what there is.
fn parse(mut memory: &[u8], mut each: impl FnMut(u64, u8, &CStr)) {
    while let Some((head, rest)) = memory.split_first_chunk::<HEAD_BYTES>() {
        let number = u64::from_ne_bytes(std::array::from_fn(|i| head[i]));
        let len = usize::from(u16::from_ne_bytes([head[16], head[17]]));
        let Some(name) = len.checked_sub(HEAD_BYTES).and_then(|len| rest.get(..len)) else { return };
        let Ok(name) = CStr::from_bytes_until_nul(name) else { return };
        each(number, head[18], name);
        memory = &memory[len..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_do_not_fit_end_the_list() {
        let entry = |len: u16, name: &[u8]| {
            let mut bytes = [&7_u64.to_ne_bytes()[..], &[0; 8], &len.to_ne_bytes(), &[8], name].concat();
            bytes.resize(bytes.len().max(24), 0);
            bytes
        };
        let names = |memory: &[u8]| {
            let mut names = Vec::new();
            parse(memory, |number, kind, name| names.push((number, kind, name.to_owned())));
            names
        };
        let good = entry(24, b"abc\0");
        assert_eq!(names(&good), [(7, 8, c"abc".to_owned())]);
        assert_eq!(names(&[&good[..], &good].concat()).len(), 2);
        for bad in
            [entry(0, b"abc\0"), entry(18, b"abc\0"), entry(2000, b"abc\0"), entry(24, b"abcde"), good[..18].to_vec()]
        {
            assert_eq!(names(&[&good[..], &bad].concat()).len(), 1, "{bad:?}");
        }
    }
}
