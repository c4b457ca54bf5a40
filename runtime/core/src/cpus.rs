//! Which CPUs a thread may run on.
//!
//! Owns the kernel's CPU mask; knows nothing of runtimes. Masks hold 1024 CPUs; on a machine with more, asking for the
//! allowed ones fails.

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// What the first thread that was pinned could use before: threads inherit the CPUs of the one that starts them, and those
/// that serve everybody must not be pinned with it.
static BEFORE: OnceLock<Cpus> = OnceLock::new();

/// A set of CPUs.
#[derive(Clone, Copy)]
pub(crate) struct Cpus(libc::cpu_set_t);

impl std::fmt::Debug for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Cpus {
    fn none() -> Self {
        // SAFETY: a plain array of integers, for which all bits zero is the empty set.
        Self(unsafe { MaybeUninit::zeroed().assume_init() })
    }

    /// Those that the calling thread may run on: its affinity, which the kernel keeps inside the process's CPU set.
    pub(crate) fn allowed() -> io::Result<Self> {
        Self::of(0)
    }

    /// Those of a thread; 0 is the calling one.
    fn of(thread: libc::pid_t) -> io::Result<Self> {
        let mut cpus = Self::none();
        // SAFETY: writes at most the given size to a set of that size.
        let result = unsafe { libc::sched_getaffinity(thread, size_of::<libc::cpu_set_t>(), &raw mut cpus.0) };
        if result == 0 { Ok(cpus) } else { Err(io::Error::last_os_error()) }
    }

    fn only(cpu: usize) -> Self {
        let mut cpus = Self::none();
        // SAFETY: the number came out of a set, so it is below the bound.
        unsafe { libc::CPU_SET(cpu, &mut cpus.0) };
        cpus
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        // SAFETY: below the bound.
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &self.0) })
    }

    /// One of them for the thread with this index: each gets its own until there are more threads than CPUs.
    pub(crate) fn for_thread(&self, index: usize) -> Self {
        match self.iter().count() {
            0 => *self,
            count => self.iter().nth(index % count).map_or(*self, Self::only),
        }
    }

    /// Has the calling thread run on these only.
    #[doc(alias = "sched_setaffinity")]
    pub(crate) fn confine_thread(&self) -> io::Result<()> {
        // SAFETY: reads a set of the given size.
        let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Like [`confine_thread`](Self::confine_thread), for a thread of a runtime that is pinned.
    pub(crate) fn pin_thread(&self) -> io::Result<()> {
        if BEFORE.get().is_none() {
            let before = Self::allowed()?;
            BEFORE.get_or_init(|| before);
        }
        self.confine_thread()
    }

    pub(crate) fn raw(&self) -> &libc::cpu_set_t {
        &self.0
    }
}

/// How many CPUs the process may use, as it was when this was first asked: those of its first thread, since the one that
/// asks may be pinned.
pub(crate) fn of_process() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| match (BEFORE.get(), Cpus::of(std::process::id() as libc::pid_t)) {
        (Some(before), _) => before.iter().count(),
        (None, Ok(first)) => first.iter().count(),
        (None, Err(_)) => std::thread::available_parallelism().map_or(1, usize::from),
    })
}

/// Undoes on this thread what it inherited from one that is pinned, if there are such threads.
pub(crate) fn unpin_thread() {
    if let Some(before) = BEFORE.get() {
        // Where it is not allowed the thread stays where it is.
        let _ = before.confine_thread();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_get_a_cpu_each_and_then_start_over() {
        let mut cpus = Cpus::only(3);
        assert_eq!(cpus.for_thread(0).iter().collect::<Vec<_>>(), [3]);
        assert_eq!(cpus.for_thread(7).iter().collect::<Vec<_>>(), [3]);
        // SAFETY: below the bound.
        unsafe { libc::CPU_SET(1000, &mut cpus.0) };
        let of = |index| cpus.for_thread(index).iter().collect::<Vec<_>>();
        assert_eq!([of(0), of(1), of(2)], [[3], [1000], [3]]);
        assert_eq!(Cpus::none().for_thread(1).iter().count(), 0);
    }

    #[test]
    fn a_thread_is_confined_inside_what_it_may_use() {
        std::thread::spawn(|| {
            let one = Cpus::allowed().unwrap().for_thread(1);
            one.confine_thread().unwrap();
            assert_eq!(Cpus::allowed().unwrap().iter().collect::<Vec<_>>(), one.iter().collect::<Vec<_>>());
        })
        .join()
        .unwrap();
    }
}
