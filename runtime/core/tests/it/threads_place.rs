//! Where threads run: pinning, inside what the process may use, for the kernel's workers as well.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use runtime::op::{Cqe, Kind, Op, opcode, squeue, submit};
use runtime::{Builder, Handle, Runtime};

use crate::support::in_child;

const LIMIT: Duration = Duration::from_secs(60);

/// The CPUs that a thread may run on, by its number or `self`.
fn cpus_of(task: &str) -> BTreeSet<usize> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

fn own_cpus() -> BTreeSet<usize> {
    // SAFETY: no arguments.
    cpus_of(&unsafe { libc::gettid() }.to_string())
}

/// The CPUs of the kernel's workers that serve this process.
fn worker_cpus() -> Vec<BTreeSet<usize>> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap());
    let is_worker = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("iou-wrk"))
    };
    tasks.filter(is_worker).map(|task| cpus_of(&task.file_name().to_string_lossy())).collect()
}

/// A no-op that has a worker carry it out.
struct OffLoop;

// SAFETY: no pointers; one completion.
unsafe impl Op for OffLoop {
    type Output = io::Result<u32>;
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        opcode::Nop::new().build().flags(squeue::Flags::ASYNC)
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        cqe.result()
    }
}

fn confine_thread_to(cpu: usize) {
    let mut set: libc::cpu_set_t = unsafe_zeroed();
    // SAFETY: the number is below the bound.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: reads a set of the given size.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) }, 0);
}

fn unsafe_zeroed() -> libc::cpu_set_t {
    // SAFETY: a plain array of integers.
    unsafe { std::mem::zeroed() }
}

#[test]
fn pinned_threads_have_a_cpu_each_and_their_workers_are_there_too() {
    in_child("threads_place::pinned_threads_have_a_cpu_each_and_their_workers_are_there_too", LIMIT, || {
        let allowed: Vec<usize> = own_cpus().into_iter().collect();
        let seen = Builder::new()
            .threads(allowed.len() + 1)
            .pin(true)
            .run(async |cx: Handle| {
                // One at a time, so that the workers that are there are this thread's.
                while cx.index() > 0 && cx.is_reachable(cx.index() - 1) {
                    runtime::time::sleep(Duration::from_millis(1)).await;
                }
                submit(OffLoop).await?;
                io::Result::Ok((own_cpus(), worker_cpus()))
            })
            .unwrap();
        for (index, (own, workers)) in seen.into_iter().enumerate() {
            let expected = BTreeSet::from([allowed[index % allowed.len()]]);
            assert_eq!(own, expected, "thread {index}");
            assert!(workers.contains(&expected), "a worker of thread {index}: {workers:?}");
        }
        assert_eq!(own_cpus().into_iter().collect::<Vec<_>>(), allowed, "the caller stays where it was");
    });
}

#[test]
fn threads_that_a_pinned_one_starts_are_not_pinned_with_it() {
    in_child("threads_place::threads_that_a_pinned_one_starts_are_not_pinned_with_it", LIMIT, || {
        let allowed = own_cpus();
        let seen = Builder::new()
            .threads(1)
            .pin(true)
            .run(async |_: Handle| io::Result::Ok((own_cpus(), runtime::spawn_blocking(own_cpus).await?)))
            .unwrap();
        assert_eq!(seen[0].0.len(), 1);
        assert_eq!(seen[0].1, allowed, "the blocking pool serves everybody");
        // A thread that is started on demand by a pinned one, or by a thread that is confined for reasons of its own.
        let runtime = Builder::new().threads(4).pin(true).build().unwrap();
        let (by_pinned, by_confined) = runtime.block_on(async {
            let by_pinned = runtime::spawn_on(1, || async { runtime::spawn_on(2, || async { own_cpus() }).await });
            let handle = Handle::current();
            let by_confined = std::thread::spawn(move || {
                confine_thread_to(*own_cpus().last().unwrap());
                handle.spawn_on(3, || async { own_cpus() })
            });
            (by_pinned.await.unwrap().unwrap(), by_confined.join().unwrap().await.unwrap())
        });
        let of = |index: usize| BTreeSet::from([*allowed.iter().nth(index % allowed.len()).unwrap()]);
        assert_eq!((by_pinned, by_confined), (of(2), of(3)));
        let runtime = Builder::new().threads(2).build().unwrap();
        let handle = runtime.block_on(async { Handle::current() });
        let free = std::thread::spawn(move || {
            confine_thread_to(*own_cpus().last().unwrap());
            handle.spawn_on(1, || async { own_cpus() })
        });
        assert_eq!(runtime.block_on(free.join().unwrap()).unwrap(), allowed);
    });
}

#[test]
fn nobody_is_pinned_by_default() {
    in_child("threads_place::nobody_is_pinned_by_default", LIMIT, || {
        let allowed = own_cpus();
        let seen = Builder::new().threads(2).run(async |_: Handle| io::Result::Ok(own_cpus())).unwrap();
        assert_eq!(seen, [allowed.clone(), allowed]);
    });
}

#[test]
fn a_process_that_may_use_the_last_cpu_only_starts_one_thread_there() {
    in_child("threads_place::a_process_that_may_use_the_last_cpu_only_starts_one_thread_there", LIMIT, || {
        let last = *own_cpus().last().unwrap();
        confine_thread_to(last);
        let only = BTreeSet::from([last]);
        for pin in [false, true] {
            let seen = Builder::new()
                .pin(pin)
                .run(async |_: Handle| {
                    submit(OffLoop).await?;
                    io::Result::Ok((own_cpus(), worker_cpus()))
                })
                .unwrap();
            let [(own, workers)] = &seen[..] else { panic!("one thread, not {}", seen.len()) };
            assert_eq!(*own, only);
            assert!(!workers.is_empty() && workers.iter().all(|cpus| *cpus == only), "{workers:?}");
        }
        // The same for a runtime without a group, and more threads than CPUs.
        let runtime = Builder::new().threads(3).pin(true).build().unwrap();
        let there = runtime.block_on(async {
            submit(OffLoop).await.unwrap();
            runtime::spawn_on(2, || async { own_cpus() }).await.unwrap()
        });
        assert_eq!(there, only);
        assert!(worker_cpus().iter().all(|cpus| *cpus == only));
    });
}

#[test]
fn a_runtime_that_is_built_where_the_thread_is_confined_keeps_its_workers_there() {
    in_child(
        "threads_place::a_runtime_that_is_built_where_the_thread_is_confined_keeps_its_workers_there",
        LIMIT,
        || {
            let first = *own_cpus().first().unwrap();
            confine_thread_to(first);
            Runtime::new().unwrap().block_on(submit(OffLoop)).unwrap();
            assert_eq!(worker_cpus(), [BTreeSet::from([first])]);
        },
    );
}
