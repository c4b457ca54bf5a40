//! Building a ring: which flags, which size, and what to say when the kernel refuses.
//!
//! Owns the ladder of set-up flags and the sentences of [`StartError`]; knows nothing of how a ring is used.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::thread::available_parallelism;

use io_uring::{IoUring, Probe, opcode};

use super::Features;
use super::enter::Entrance;
use crate::op::send_zc::ZeroCopy;
use crate::pooled::pool::Shape;
use crate::sys;

/// The oldest kernel that the runtime supports.
const KERNEL_FLOOR: (u32, u32) = (6, 1);
const MIN_ENTRIES: u32 = 8;
/// The kernel's bound on the completion queue (`IORING_MAX_CQ_ENTRIES`).
const MAX_CQ_ENTRIES: u32 = 65536;
const WORKERS_PER_CPU: u32 = 4;
/// How often, and how long apart, the smallest ring is tried while the locked memory of rings that are gone comes back.
const ENOMEM_TRIES: u32 = 20;
const ENOMEM_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// How a ring is to be built.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Entries of the submission queue; rounded up to a power of two by the kernel.
    pub entries: u32,
    /// Entries of the completion queue; 0 means four times `entries`, at most 65536.
    pub cq_entries: u32,
    /// The most bounded and unbounded workers of the kernel for this thread, 0 meaning the default; `None` leaves the
    /// thread as it is.
    pub io_workers: Option<[u32; 2]>,
    /// Test hook: set-up calls fail with `EINVAL` while they ask for one of these flags (`IORING_SETUP_*`).
    pub refuse_flags: u32,
    /// Test hook: every set-up call fails with this errno.
    pub fail_with: Option<i32>,
    /// Test hook: opcodes that are treated as missing.
    pub missing_opcodes: Vec<u8>,
    /// Test hook: how the pool of receive buffers is cut.
    pub pool: Shape,
}

/// One step of the ladder: what to ask for. Each step drops the youngest flag of the one before.
#[derive(Debug, Clone, Copy)]
struct Flags {
    no_sqarray: bool,
    defer_taskrun: bool,
    single_issuer: bool,
    coop_taskrun: bool,
    taskrun_flag: bool,
    submit_all: bool,
}

const LADDER: [Flags; 6] = {
    let all = Flags {
        no_sqarray: true,
        defer_taskrun: true,
        single_issuer: true,
        coop_taskrun: false,
        taskrun_flag: true,
        submit_all: true,
    };
    let no_array = Flags { no_sqarray: false, ..all };
    let coop = Flags { defer_taskrun: false, coop_taskrun: true, ..no_array };
    let shared = Flags { single_issuer: false, ..coop };
    let plain = Flags { coop_taskrun: false, taskrun_flag: false, ..shared };
    [all, no_array, coop, shared, plain, Flags { submit_all: false, ..plain }]
};

const SETUP_SUBMIT_ALL: u32 = 1 << 7;
const SETUP_COOP_TASKRUN: u32 = 1 << 8;
const SETUP_TASKRUN_FLAG: u32 = 1 << 9;
const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const SETUP_NO_SQARRAY: u32 = 1 << 16;

impl Flags {
    fn bits(self) -> u32 {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        bit(self.no_sqarray, SETUP_NO_SQARRAY)
            | bit(self.defer_taskrun, SETUP_DEFER_TASKRUN)
            | bit(self.single_issuer, SETUP_SINGLE_ISSUER)
            | bit(self.coop_taskrun, SETUP_COOP_TASKRUN)
            | bit(self.taskrun_flag, SETUP_TASKRUN_FLAG)
            | bit(self.submit_all, SETUP_SUBMIT_ALL)
    }

    fn build(self, entries: u32, setup: &Setup) -> io::Result<IoUring> {
        if let Some(errno) = setup.fail_with {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if self.bits() & setup.refuse_flags != 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut builder = IoUring::builder();
        // The queues are not for children: a forked process must not reach the parent's ring (ruling on fork).
        builder.dontfork();
        let cq_entries = if setup.cq_entries == 0 { entries.saturating_mul(4) } else { setup.cq_entries.max(entries) };
        builder.setup_cqsize(cq_entries.min(MAX_CQ_ENTRIES));
        if self.no_sqarray {
            builder.setup_no_sqarray();
        }
        if self.defer_taskrun {
            builder.setup_defer_taskrun();
        }
        if self.single_issuer {
            builder.setup_single_issuer();
        }
        if self.coop_taskrun {
            builder.setup_coop_taskrun();
        }
        if self.taskrun_flag {
            builder.setup_taskrun_flag();
        }
        if self.submit_all {
            builder.setup_submit_all();
        }
        builder.build(entries)
    }
}

pub(crate) fn build(setup: &Setup) -> Result<(IoUring, Entrance, Features), StartError> {
    // Two, since a linked pair has to be in the queue as a whole.
    let mut entries = setup.entries.max(2);
    let (mut step, mut tries) = (0, 0);
    loop {
        let flags = LADDER[step];
        let error = match flags.build(entries, setup) {
            Ok(ring) => return finish(ring, flags, setup),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EINVAL) if step + 1 < LADDER.len() => step += 1,
            // Rings count against the locked memory of the user, and what others gave back comes late.
            Some(libc::ENOMEM) if entries > MIN_ENTRIES => entries = (entries / 2).max(MIN_ENTRIES),
            Some(libc::ENOMEM) if tries < ENOMEM_TRIES && setup.fail_with.is_none() => {
                tries += 1;
                std::thread::sleep(ENOMEM_PAUSE);
            }
            errno => return Err(StartError::setup(errno.unwrap_or(libc::EIO), entries)),
        }
    }
}

fn finish(ring: IoUring, flags: Flags, setup: &Setup) -> Result<(IoUring, Entrance, Features), StartError> {
    let params = ring.params();
    let features = Features {
        abs_timer: params.is_feature_min_timeout(),
        no_iowait: params.is_feature_no_iowait(),
        taskrun_flag: flags.taskrun_flag,
        defer_taskrun: flags.defer_taskrun,
        bundles: params.is_feature_recvsend_bundle(),
        zero_copy: ZeroCopy::Missing,
        opcodes: 0,
    };
    if !(params.is_feature_ext_arg() && params.is_feature_nodrop()) {
        return Err(StartError::too_old("timeouts of io_uring_enter or lossless completions"));
    }
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|error| StartError::unusable("io_uring_register", &error))?;
    for (code, name) in REQUIRED {
        if !probe.is_supported(code) || setup.missing_opcodes.contains(&code) {
            return Err(StartError::too_old(name));
        }
    }
    let has = |code: &u8| probe.is_supported(*code) && !setup.missing_opcodes.contains(code);
    let opcodes = (0..64).filter(has).fold(0, |mask, code| mask | 1 << code);
    let features = Features { zero_copy: zero_copy(&probe, setup), opcodes, ..features };
    let mut entrance = Entrance::new(ring.as_raw_fd());
    // A filter may allow the set-up only; the first enter of the run loop would be too late to say so.
    if let Err(error) = entrance.test() {
        entrance.close();
        return Err(StartError::unusable("io_uring_enter", &error));
    }
    if let Some(workers) = setup.io_workers {
        bound_workers(&ring, workers);
    }
    Ok((ring, entrance, features))
}

/// The bounds are the thread's and outlive the ring, so they are set with each one. One that the kernel does not take does
/// not keep a runtime from working.
fn bound_workers(ring: &IoUring, [bounded, unbounded]: [u32; 2]) {
    static CPUS: OnceLock<u32> = OnceLock::new();
    let bounded = if bounded == 0 {
        // What may be used, not what is there: it counts affinity and the quota of a container.
        WORKERS_PER_CPU * CPUS.get_or_init(|| available_parallelism().map_or(1, |n| n.get() as u32))
    } else {
        bounded
    };
    let _ = ring.submitter().register_iowq_max_workers(&mut [bounded, unbounded]);
}

fn zero_copy(probe: &Probe, setup: &Setup) -> ZeroCopy {
    let code = opcode::SendZc::CODE;
    if !probe.is_supported(code) || setup.missing_opcodes.contains(&code) {
        ZeroCopy::Missing
    } else if sys::kernel_version() < (6, 2) {
        // It refuses the flag that asks for reports.
        ZeroCopy::Silent
    } else {
        ZeroCopy::Reporting
    }
}

/// Opcodes without which nothing works, and their names.
const REQUIRED: [(u8, &str); 5] = [
    (opcode::PollAdd::CODE, "IORING_OP_POLL_ADD"),
    (opcode::AsyncCancel::CODE, "IORING_OP_ASYNC_CANCEL"),
    (opcode::Accept::CODE, "IORING_OP_ACCEPT"),
    (opcode::Recv::CODE, "IORING_OP_RECV"),
    (opcode::Send::CODE, "IORING_OP_SEND"),
];

/// Why a runtime could not start: one line with the cause and the cure.
///
/// It is the inner error of the [`io::Error`] that [`Builder::build`](crate::exec::Builder::build) returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError {
    errno: i32,
    text: String,
}

impl StartError {
    /// The kernel's errno.
    pub fn raw_os_error(&self) -> i32 {
        self.errno
    }

    fn new(errno: i32, text: String) -> Self {
        Self { errno, text }
    }

    fn setup(errno: i32, entries: u32) -> Self {
        let name = "io_uring cannot be set up";
        let text = match errno {
            libc::EPERM => match io_uring_disabled() {
                Some(2) => format!(
                    "{name}: kernel.io_uring_disabled is 2 (off for everyone); set it to 0 with `sysctl kernel.io_uring_disabled=0`"
                ),
                Some(1) => format!(
                    "{name}: kernel.io_uring_disabled is 1 and this process has neither CAP_SYS_ADMIN nor the group in kernel.io_uring_group; set it to 0 or join the group"
                ),
                _ => format!(
                    "{name}: the call is forbidden (EPERM), most likely by a seccomp filter, as in the default profile of container engines; allow io_uring_setup, io_uring_enter and io_uring_register"
                ),
            },
            libc::ENOSYS => {
                let (major, minor) = sys::kernel_version();
                if (major, minor) >= KERNEL_FLOOR {
                    format!(
                        "{name}: the call is hidden (ENOSYS) though kernel {major}.{minor} has it, so a seccomp filter or a sandbox hides it; allow io_uring_setup, io_uring_enter and io_uring_register"
                    )
                } else {
                    return Self::too_old("io_uring");
                }
            }
            libc::EACCES => format!(
                "{name}: a security module forbids it (EACCES); allow the io_uring class for this program in SELinux or AppArmor"
            ),
            libc::EOPNOTSUPP => format!(
                "{name}: this system does not offer it (EOPNOTSUPP), as some sandboxes and virtual kernels do not; allow io_uring there, or run on a Linux kernel that has it"
            ),
            libc::ENOMEM => {
                let soft =
                    sys::rlimit(libc::RLIMIT_MEMLOCK).map_or_else(|| "unknown".to_owned(), |(soft, _)| bytes(soft));
                format!(
                    "{name}: no memory for {entries} entries (ENOMEM); the limit of locked memory (RLIMIT_MEMLOCK) is {soft} for all processes of this user; raise it with `ulimit -l` or LimitMEMLOCK=, or lower `entries`"
                )
            }
            libc::EMFILE | libc::ENFILE => Self::descriptors(name, errno),
            libc::EINVAL => {
                if sys::kernel_version() < KERNEL_FLOOR {
                    return Self::too_old("the ring flags");
                }
                format!(
                    "{name}: the kernel refuses every combination of flags (EINVAL) for {entries} entries; use a power of two from {MIN_ENTRIES} to 32768 for `entries`"
                )
            }
            errno => format!("{name}: {}", io::Error::from_raw_os_error(errno)),
        };
        Self::new(errno, text)
    }

    /// The ring is there, but this call, which is needed to use it, fails.
    fn unusable(call: &str, cause: &io::Error) -> Self {
        Self::new(
            cause.raw_os_error().unwrap_or(libc::EIO),
            format!(
                "io_uring can be set up but not used: {call} failed ({cause}), most likely because a seccomp filter does not know it; allow io_uring_setup, io_uring_enter and io_uring_register"
            ),
        )
    }

    /// The wake-up descriptor of the runtime could not be made.
    pub(crate) fn wake(error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let name = "the wake-up descriptor cannot be made";
        let text = match errno {
            libc::EMFILE | libc::ENFILE => Self::descriptors(name, errno),
            _ => format!("{name}: {error}"),
        };
        Self::new(errno, text)
    }

    fn descriptors(name: &str, errno: i32) -> String {
        if errno == libc::ENFILE {
            return format!("{name}: the system has no file descriptor left (ENFILE); raise fs.file-max");
        }
        let soft = sys::rlimit(libc::RLIMIT_NOFILE).map_or_else(|| "unknown".to_owned(), |(soft, _)| soft.to_string());
        format!(
            "{name}: this process has no file descriptor left (EMFILE); the limit (RLIMIT_NOFILE) is {soft}; raise it with `ulimit -n` or LimitNOFILE="
        )
    }

    fn too_old(what: &str) -> Self {
        let (major, minor) = sys::kernel_version();
        let (floor_major, floor_minor) = KERNEL_FLOOR;
        Self::new(
            libc::ENOSYS,
            format!(
                "kernel {major}.{minor} lacks {what}; the runtime needs Linux {floor_major}.{floor_minor} or newer"
            ),
        )
    }
}

/// The value of `kernel.io_uring_disabled` (6.6), if there is one.
pub(crate) fn io_uring_disabled() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

fn bytes(n: u64) -> String {
    if n == libc::RLIM_INFINITY { "unlimited".to_owned() } else { format!("{} KiB", n / 1024) }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StartError {}

impl From<StartError> for io::Error {
    fn from(error: StartError) -> Self {
        let kind = io::Error::from_raw_os_error(error.errno).kind();
        io::Error::new(kind, error)
    }
}
