//! What this kernel offers: [`probe`].
//!
//! Owns the report; knows nothing of running runtimes (it builds a small ring of its own and lets it go).

use std::fmt;

use io_uring::opcode;

use crate::ring::{self, Setup, StartError};
use crate::sys;

/// What [`probe`] found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Probe {
    /// The kernel's version, major and minor.
    pub kernel: (u32, u32),
    /// Whether a ring can be set up, and if not, why.
    pub ring: Result<Ring, StartError>,
    /// `kernel.io_uring_disabled`: 0 on, 1 for the privileged only, 2 off; `None` before 6.6.
    pub io_uring_disabled: Option<u32>,
    /// Soft and hard limit of locked memory in bytes, `u64::MAX` meaning none.
    pub memlock: Option<(u64, u64)>,
    /// Soft and hard limit of file descriptors.
    pub nofile: Option<(u64, u64)>,
}

/// What a ring of this kernel can do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Ring {
    /// Absolute timeouts of enters (6.12).
    pub abs_timer: bool,
    /// Waiting is not counted as waiting for a disk (6.15).
    pub no_iowait: bool,
    /// A receive may fill many buffers in one completion (6.10).
    pub bundles: bool,
    /// Completions are made by the thread that waits for them (6.1).
    pub defer_taskrun: bool,
    /// The opcodes that the runtime can use, and whether they are there.
    pub opcodes: Vec<(&'static str, bool)>,
}

const OPCODES: [(&str, u8); 24] = [
    ("ACCEPT", opcode::Accept::CODE),
    ("ASYNC_CANCEL", opcode::AsyncCancel::CODE),
    ("BIND", opcode::Bind::CODE),
    ("CLOSE", opcode::Close::CODE),
    ("CONNECT", opcode::Connect::CODE),
    ("FALLOCATE", opcode::Fallocate::CODE),
    ("FSYNC", opcode::Fsync::CODE),
    ("FTRUNCATE", opcode::Ftruncate::CODE),
    ("LISTEN", opcode::Listen::CODE),
    ("MKDIRAT", opcode::MkDirAt::CODE),
    ("MSG_RING", opcode::MsgRingData::CODE),
    ("NOP", opcode::Nop::CODE),
    ("OPENAT", opcode::OpenAt::CODE),
    ("POLL_ADD", opcode::PollAdd::CODE),
    ("READ", opcode::Read::CODE),
    ("RECV", opcode::Recv::CODE),
    ("RENAMEAT", opcode::RenameAt::CODE),
    ("SEND", opcode::Send::CODE),
    ("SEND_ZC", opcode::SendZc::CODE),
    ("SOCKET", opcode::Socket::CODE),
    ("SPLICE", opcode::Splice::CODE),
    ("STATX", opcode::Statx::CODE),
    ("UNLINKAT", opcode::UnlinkAt::CODE),
    ("WRITE", opcode::Write::CODE),
];

/// Asks the kernel what it offers, and why a runtime could not start if so. Blocks for well under a millisecond.
///
/// ```
/// let probe = runtime_core::probe::probe();
/// println!("{probe}");
/// assert!(probe.kernel >= (6, 1));
/// ```
pub fn probe() -> Probe {
    Probe {
        kernel: sys::kernel_version(),
        ring: ring(),
        io_uring_disabled: crate::ring::io_uring_disabled(),
        memlock: sys::rlimit(libc::RLIMIT_MEMLOCK),
        nofile: sys::rlimit(libc::RLIMIT_NOFILE),
    }
}

fn ring() -> Result<Ring, StartError> {
    let ring = ring::Ring::new(&Setup { entries: 8, ..Setup::default() })?;
    let features = ring.features();
    let has = ring.has_opcodes(OPCODES.iter().map(|&(_, code)| code));
    Ok(Ring {
        abs_timer: features.abs_timer,
        no_iowait: features.no_iowait,
        bundles: features.bundles,
        defer_taskrun: features.defer_taskrun,
        opcodes: OPCODES.iter().map(|&(name, _)| name).zip(has).collect(),
    })
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.kernel;
        writeln!(f, "kernel              {major}.{minor}")?;
        match self.io_uring_disabled {
            Some(value) => writeln!(f, "io_uring_disabled   {value}")?,
            None => writeln!(f, "io_uring_disabled   not known to this kernel")?,
        }
        writeln!(f, "locked memory       {} (bytes)", limits(self.memlock))?;
        writeln!(f, "file descriptors    {}", limits(self.nofile))?;
        match &self.ring {
            Err(error) => write!(f, "ring                {error}"),
            Ok(ring) => {
                writeln!(f, "ring                can be set up")?;
                writeln!(f, "absolute timeouts   {}", yes(ring.abs_timer))?;
                writeln!(f, "no iowait           {}", yes(ring.no_iowait))?;
                writeln!(f, "receive bundles     {}", yes(ring.bundles))?;
                writeln!(f, "deferred task work  {}", yes(ring.defer_taskrun))?;
                let missing: Vec<_> = ring.opcodes.iter().filter(|(_, there)| !there).map(|(name, _)| *name).collect();
                let missing = if missing.is_empty() { "none".to_owned() } else { missing.join(" ") };
                write!(f, "missing opcodes     {missing}")
            }
        }
    }
}

fn yes(there: bool) -> &'static str {
    if there { "yes" } else { "no" }
}

fn limits(limits: Option<(u64, u64)>) -> String {
    let show = |limit: u64| if limit == libc::RLIM_INFINITY { "unlimited".to_owned() } else { limit.to_string() };
    limits.map_or_else(|| "unknown".to_owned(), |(soft, hard)| format!("{} (hard limit {})", show(soft), show(hard)))
}
