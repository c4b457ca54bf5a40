//! Starting: whatever the kernel, a filter or a limit refuses is one line with cause and cure, never a panic; and what a
//! runtime opens stays in its process.

use std::io;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use runtime::fs::File;
use runtime::net::{TcpListener, TcpStream};
use runtime::pipe::pipe;
use runtime::testing::{ring_sizes, tiny};
use runtime::{Builder, Runtime, StartError};

use crate::raw::{become_user, forbid, fork, is_root, set_limit, set_soft_nofile, set_thread_euid};
use crate::support::{fds, in_child, threads, watchdog};

const LIMIT: Duration = Duration::from_secs(40);

const CALLS: [(&str, i64); 3] = [
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
];
const ERRNOS: [(&str, i32); 4] =
    [("EPERM", libc::EPERM), ("ENOSYS", libc::ENOSYS), ("EOPNOTSUPP", libc::EOPNOTSUPP), ("EINVAL", libc::EINVAL)];

/// Panics unless this is one line that names io_uring or what is short, a cause and a cure, with this errno.
#[track_caller]
fn assert_explains(error: &io::Error, errno: i32) {
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() > 40 && text.len() < 400, "not one line: {text:?}");
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<StartError>());
    let inner = inner.unwrap_or_else(|| panic!("not a StartError: {error:?}"));
    assert_eq!(inner.raw_os_error(), errno, "{text}");
    assert_eq!(error.kind(), io::Error::from_raw_os_error(errno).kind(), "{text}");
    let cures = ["allow", "raise", "set it", "needs Linux", "use ", "lower", "run "];
    assert!(cures.iter().any(|cure| text.contains(cure)), "no cure in: {text}");
    assert!(text.contains("io_uring") || text.contains("kernel") || text.contains("descriptor"), "no subject: {text}");
}

/// The runtime does what runtimes do: bytes, a timer, a wake from another thread, a cancelled operation, a connection.
fn works(rt: &Runtime) {
    rt.block_on(async {
        let (tx, rx) = pipe().unwrap();
        let none = runtime::time::timeout(Duration::from_millis(2), rx.read(vec![0; 8])).await;
        assert!(none.is_err());
        let (read, wrote) = futures::join!(rx.read(vec![0; 8]), tx.write_all("bytes"));
        wrote.0.unwrap();
        assert_eq!(read.0.unwrap(), 5);
        let (wake, woken) = futures::channel::oneshot::channel();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            wake.send(7).unwrap();
        });
        assert_eq!(woken.await.unwrap(), 7);
        thread.join().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (client, server) = futures::join!(TcpStream::connect(addr), listener.accept());
        client.unwrap().write_all("hello").await.0.unwrap();
        assert_eq!(server.unwrap().0.read(vec![0; 8]).await.0.unwrap(), 5);
    });
}

/// And the rest of what is offered, each by its own operations or by what stands in for them.
fn everything_works(rt: &Runtime) {
    works(rt);
    rt.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let theirs = listener.incoming().next().await.unwrap().unwrap();
        ours.set_zc_threshold(1);
        ours.write_all_zc(vec![1; 5000]).await.0.unwrap();
        ours.write_all_vectored(vec!["two", "parts"]).await.0.unwrap();
        let mut got = 0;
        while got < 5000 {
            got += theirs.recv().await.unwrap().len();
        }
        while got < 5008 {
            got += theirs.read_vectored(vec![vec![0; 3], vec![0; 9]]).await.0.unwrap();
        }
        // Waits first, in each of the ways in which it can.
        let mut wait = std::pin::pin!(theirs.recv());
        assert!(futures::poll!(wait.as_mut()).is_pending());
        ours.write_all("late").await.0.unwrap();
        assert_eq!(wait.await.unwrap()[..], *b"late");
        let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
        let move_on = runtime::pipe::splice(&from, &to, 8);
        let (moved, wrote) = futures::join!(move_on, tx.write_all("moved"));
        wrote.0.unwrap();
        assert_eq!((moved.unwrap(), rx.read(Vec::with_capacity(8)).await.1), (5, b"moved".to_vec()));
        let mut signals = runtime::signal::signal(runtime::signal::SignalKind::window_change()).unwrap();
        let mut told = std::pin::pin!(signals.recv());
        assert!(futures::poll!(told.as_mut()).is_pending());
        // SAFETY: no pointers; a listener is there.
        assert_eq!(unsafe { libc::raise(libc::SIGWINCH) }, 0);
        told.await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        let file = File::create(&path).await.unwrap();
        file.write_all_at("content", 0).await.0.unwrap();
        file.sync_all().await.unwrap();
        file.set_len(4).await.unwrap();
        runtime::fs::rename(&path, &other).await.unwrap();
        assert_eq!(runtime::fs::read(&other).await.unwrap(), b"cont");
        assert_eq!(runtime::fs::metadata(&other).await.unwrap().len(), 4);
        runtime::fs::remove_file(&other).await.unwrap();
    });
}

#[test]
fn a_filter_that_blocks_io_uring_is_an_error_with_cause_and_cure() {
    in_child("startup::a_filter_that_blocks_io_uring_is_an_error_with_cause_and_cure", LIMIT, || {
        let mut failed = Vec::new();
        for (call, number) in CALLS {
            for (name, errno) in ERRNOS {
                let child = fork(|| {
                    forbid(number, errno);
                    let error = Runtime::new().map(drop).expect_err("a runtime that cannot run was built");
                    eprintln!("{call} {name}: {error}");
                    assert_explains(&error, errno);
                    // The one call that is blocked, or all of them, is what has to be allowed.
                    if matches!(errno, libc::EPERM | libc::ENOSYS) || call != "io_uring_setup" {
                        assert!(error.to_string().contains(call), "{error}");
                    }
                    let probe = runtime::probe();
                    assert!(probe.ring.is_err(), "the probe does not tell the truth: {probe}");
                    0
                });
                if child.wait() != 0 {
                    failed.push((call, name));
                }
            }
        }
        assert!(failed.is_empty(), "{failed:?}");
    });
}

#[runtime::main]
async fn entry() {
    eprintln!("the body ran");
}

/// What `entry` prints on standard error and exits with, in a child prepared by `prepare`.
fn entry_in_child(prepare: impl FnOnce()) -> (String, i32) {
    let (mut ours, theirs) = std::io::pipe().unwrap();
    let child = fork(|| {
        // SAFETY: plain descriptors of this process.
        unsafe { libc::dup2(theirs.as_raw_fd(), 2) };
        prepare();
        entry();
        0
    });
    drop(theirs);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    (text, child.wait())
}

#[test]
fn the_main_macro_prints_one_line_and_exits_with_1() {
    in_child("startup::the_main_macro_prints_one_line_and_exits_with_1", LIMIT, || {
        // SAFETY: nobody else reads the environment now.
        unsafe { std::env::set_var("RUST_BACKTRACE", "1") };
        assert_eq!(entry_in_child(|| ()), ("the body ran\n".to_owned(), 0));
        let mut failed = Vec::new();
        for (call, number) in CALLS {
            for (name, errno) in ERRNOS {
                let (text, code) = entry_in_child(|| forbid(number, errno));
                let one_line = text.starts_with("error: ") && text.ends_with('\n') && text.matches('\n').count() == 1;
                if !one_line || code != 1 {
                    failed.push(format!("{call} {name}: exit code {code}, text {text:?}"));
                }
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    });
}

#[test]
fn every_errno_of_the_set_up_is_explained() {
    let _dog = watchdog(LIMIT);
    let errnos = [
        libc::EPERM,
        libc::EACCES,
        libc::ENOSYS,
        libc::EOPNOTSUPP,
        libc::EINVAL,
        libc::ENOMEM,
        libc::EMFILE,
        libc::ENFILE,
    ];
    for errno in errnos {
        let mut builder = Builder::new();
        builder.setup_mut().fail_with = Some(errno);
        let error = builder.build().map(drop).unwrap_err();
        assert_explains(&error, errno);
    }
}

#[test]
fn set_up_flags_that_the_kernel_does_not_know_are_left_out() {
    let _dog = watchdog(LIMIT);
    // SUBMIT_ALL, COOP_TASKRUN, TASKRUN_FLAG, SINGLE_ISSUER, DEFER_TASKRUN, NO_SQARRAY; alone and in all combinations.
    let flags = [1 << 7, 1 << 8, 1 << 9, 1 << 12, 1 << 13, 1u32 << 16];
    for combination in 0..1u32 << flags.len() {
        let refused = (0..flags.len()).filter(|bit| combination & 1 << bit != 0).map(|bit| flags[bit]).sum();
        let mut builder = tiny(8, 16);
        builder.setup_mut().refuse_flags = refused;
        works(&builder.build().unwrap_or_else(|error| panic!("without the flags {refused:#x}: {error}")));
    }
    let mut builder = Builder::new();
    builder.setup_mut().refuse_flags = u32::MAX;
    works(&builder.build().unwrap());
}

#[test]
fn an_opcode_that_is_missing_is_named_or_not_needed() {
    let _dog = watchdog(LIMIT);
    let mut named = 0;
    for code in 0..=70 {
        let mut builder = tiny(8, 16);
        builder.setup_mut().missing_opcodes = vec![code];
        match builder.build() {
            Ok(rt) => everything_works(&rt),
            Err(error) => {
                assert_explains(&error, libc::ENOSYS);
                assert!(error.to_string().contains("IORING_OP_"), "{error}");
                named += 1;
            }
        }
    }
    assert!(named >= 3, "nothing was asked for");
}

#[test]
fn every_size_that_is_offered_can_be_had() {
    let _dog = watchdog(LIMIT);
    for entries in [1, 2, 3, 7, 8, 9, 100, 255, 256, 257, 4096, 16384, 16385, 32767, 32768] {
        let rt = Builder::new().entries(entries).build().unwrap_or_else(|error| panic!("{entries} entries: {error}"));
        let (sq, cq) = ring_sizes(&rt);
        if sq != entries.next_power_of_two().max(2) {
            // Smaller is allowed only for want of memory, which a test machine has.
            panic!("{entries} entries became {sq}");
        }
        // The kernel has no completion queue of more than 65536 entries.
        assert_eq!(cq, (sq * 4).min(65536), "{entries}");
        works(&rt);
    }
}

#[test]
fn sizes_that_no_ring_has_are_refused_with_the_range() {
    let _dog = watchdog(LIMIT);
    for entries in [0, 32769, u32::MAX] {
        let error = Builder::new().entries(entries).build().map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("1 to 32768"), "{error}");
        assert!(error.to_string().contains(&entries.to_string()), "{error}");
    }
}

/// A user that nobody else is: locked memory counts for all processes of a user.
fn lone_user() -> u32 {
    1_000_000 + std::process::id()
}

#[test]
fn the_locked_memory_limit_shrinks_the_ring_or_is_named() {
    in_child("startup::the_locked_memory_limit_shrinks_the_ring_or_is_named", LIMIT, || {
        if !is_root() {
            eprintln!("SKIP: only root may become another user");
            return;
        }
        let limited = |limit: u64, body: &dyn Fn()| {
            let child = fork(|| {
                set_limit(libc::RLIMIT_MEMLOCK, limit);
                become_user(lone_user());
                body();
                0
            });
            assert_eq!(child.wait(), 0, "with {limit} bytes of locked memory");
        };
        let explained = |error: io::Error, value: &str| {
            eprintln!("{error}");
            assert_explains(&error, libc::ENOMEM);
            let text = error.to_string();
            for part in ["RLIMIT_MEMLOCK", value, "ulimit -l"] {
                assert!(text.contains(part), "no {part} in: {text}");
            }
        };
        // Kernels differ in whether rings count at all.
        limited(0, &|| match Runtime::new() {
            Ok(rt) => works(&rt),
            Err(error) => explained(error, " 0 KiB"),
        });
        for entries in [8, 256, 4096, 32768] {
            limited(64 << 10, &|| match Builder::new().entries(entries).build() {
                Ok(rt) => {
                    let (sq, cq) = ring_sizes(&rt);
                    eprintln!("{entries} entries in 64 KiB: {sq} and {cq}");
                    assert!(sq <= entries && cq >= sq);
                    works(&rt);
                }
                Err(error) => explained(error, "64 KiB"),
            });
        }
        limited(8 << 20, &|| {
            let cores = std::thread::available_parallelism().unwrap().get().min(16);
            let barrier = std::sync::Barrier::new(cores);
            std::thread::scope(|scope| {
                for _ in 0..cores {
                    scope.spawn(|| {
                        let rt = Runtime::new();
                        barrier.wait();
                        works(&rt.expect("one runtime per core fits into 8 MiB"));
                    });
                }
            });
        });
        // The macro's entry neither panics nor prints more than a line.
        let (text, code) = entry_in_child(|| {
            set_limit(libc::RLIMIT_MEMLOCK, 0);
            become_user(lone_user());
        });
        assert!(text.matches('\n').count() == 1 && (code == 0 || code == 1), "{code}: {text}");
    });
}

#[test]
fn memory_of_rings_that_are_gone_can_be_used_again() {
    in_child("startup::memory_of_rings_that_are_gone_can_be_used_again", LIMIT, || {
        if !is_root() {
            eprintln!("SKIP: only root may become another user");
            return;
        }
        let child = fork(|| {
            set_limit(libc::RLIMIT_MEMLOCK, 256 << 10);
            become_user(lone_user());
            // A kernel gives the memory back late, after the descriptor is closed: the ring may be smaller meanwhile.
            for round in 0..200 {
                let deadline = Instant::now() + Duration::from_secs(5);
                while let Err(error) = Runtime::new() {
                    if Instant::now() > deadline {
                        eprintln!("round {round}: {error}");
                        return 1;
                    }
                }
            }
            0
        });
        assert_eq!(child.wait(), 0);
    });
}

#[test]
fn a_process_without_descriptors_is_told_so_and_leaks_none() {
    in_child("startup::a_process_without_descriptors_is_told_so_and_leaks_none", LIMIT, || {
        let child = fork(|| {
            set_soft_nofile(64);
            let mut fill = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                fill.push(file);
            }
            // A ring and its wake-up descriptor: two.
            for free in 0..2 {
                let error = Runtime::new().map(drop).unwrap_err();
                eprintln!("{free} free: {error}");
                assert_explains(&error, libc::EMFILE);
                for part in ["RLIMIT_NOFILE", "64", "ulimit -n"] {
                    assert!(error.to_string().contains(part), "no {part} in: {error}");
                }
                fill.pop();
            }
            let rt = Runtime::new().unwrap();
            assert!(std::fs::File::open("/dev/null").is_err(), "one of the two was leaked by an attempt before");
            rt.block_on(async {
                assert_eq!(pipe().unwrap_err().raw_os_error(), Some(libc::EMFILE));
                let error = File::open("/dev/null").await.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                runtime::time::sleep(Duration::from_millis(1)).await;
                fill.truncate(8);
            });
            works(&rt);
            0
        });
        assert_eq!(child.wait(), 0);
    });
}

#[test]
fn a_failed_start_leaves_nothing_behind() {
    in_child("startup::a_failed_start_leaves_nothing_behind", LIMIT, || {
        drop(Runtime::new().unwrap());
        let (open, threads_before) = (fds(), threads());
        for opcode in [6, 13, 14, 26, 27] {
            let mut builder = Builder::new();
            builder.setup_mut().missing_opcodes = vec![opcode];
            let _ = builder.build();
            builder.setup_mut().fail_with = Some(libc::EPERM);
            assert!(builder.build().is_err());
        }
        assert_eq!((fds(), threads()), (open, threads_before));
    });
}

#[test]
fn no_kernel_thread_polls_the_ring_and_no_thread_is_started() {
    in_child("startup::no_kernel_thread_polls_the_ring_and_no_thread_is_started", LIMIT, || {
        let before = threads();
        let rt = Runtime::new().unwrap();
        assert_eq!(threads(), before);
        rt.block_on(async {
            let (tx, rx) = pipe().unwrap();
            tx.write_all("x").await.0.unwrap();
            rx.read(vec![0; 1]).await.0.unwrap();
            for task in std::fs::read_dir("/proc/self/task").unwrap() {
                let name = std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default();
                assert!(!name.starts_with("iou-sqp"), "a polling thread: {name}");
            }
        });
        assert_eq!(threads(), before, "sockets and pipes need no worker");
    });
}

/// What a program that is started now has open, as `ls` prints it without its own listing.
fn inherited() -> Vec<String> {
    let output = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut open: Vec<String> = text
        .lines()
        .filter_map(|line| line.split_once(" -> "))
        .filter(|(_, target)| !target.starts_with("/proc/"))
        .map(|(number, target)| format!("{} {target}", number.rsplit(' ').next().unwrap_or_default()))
        // The pipes of `output` have another number each time.
        .map(|line| line.split('[').next().unwrap_or_default().to_owned())
        .collect();
    open.sort();
    open
}

#[test]
fn a_program_that_is_started_inherits_nothing() {
    in_child("startup::a_program_that_is_started_inherits_nothing", LIMIT, || {
        let before = inherited();
        let rt = Builder::new().threads(2).build().unwrap();
        rt.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let file = File::create(dir.path().join("file")).await.unwrap();
            let read_only = File::open(dir.path().join("file")).await.unwrap();
            let ends = pipe().unwrap();
            let mut streams = Vec::new();
            for ip in ["127.0.0.1:0", "[::1]:0"] {
                let listener = TcpListener::bind(ip).await.unwrap();
                let addr = listener.local_addr().unwrap();
                streams.push(TcpStream::connect(addr).await.unwrap());
                streams.push(listener.accept().await.unwrap().0);
                streams.push(TcpStream::connect(addr).await.unwrap());
                streams.push(listener.incoming().next().await.unwrap().unwrap());
                std::mem::forget(listener);
            }
            // Parked once, so that whatever waiting needs is open as well.
            runtime::time::sleep(Duration::from_millis(2)).await;
            runtime::spawn_blocking(|| ()).await.unwrap();
            // What is opened on the way to something else: the private pipe of a relay, a listener of signals, the ring
            // of another thread.
            let (one, other) = (streams.pop().unwrap(), streams.pop().unwrap());
            let way = runtime::pipe::Relay::new().splice();
            let relayed = runtime::time::timeout(Duration::from_millis(20), way.run(&one, &other)).await;
            assert!(relayed.is_err(), "nobody ends it");
            streams.extend([other, one]);
            let _signals = runtime::signal::signal(runtime::signal::SignalKind::user_defined1()).unwrap();
            runtime::spawn_on(1, || async { runtime::time::sleep(Duration::from_millis(1)).await }).await.unwrap();
            assert_eq!(inherited(), before);
            for stream in &streams {
                // SAFETY: asks for the flags of an open descriptor.
                let flags = unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_GETFD) };
                assert_ne!(flags & libc::FD_CLOEXEC, 0);
            }
            drop((file, read_only, ends));
        });
    });
}

#[test]
fn operations_have_the_rights_of_the_moment() {
    in_child("startup::operations_have_the_rights_of_the_moment", LIMIT, || {
        if !is_root() {
            eprintln!("SKIP: only root may become another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open_to_all).unwrap();
        let path = dir.path().join("secret");
        std::fs::File::create(&path).unwrap().write_all(b"secret").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Runtime::new().unwrap().block_on(async {
            File::open(&path).await.unwrap();
            set_thread_euid(65534);
            let error = File::open(&path).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            let error = File::create(dir.path().join("new")).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            set_thread_euid(0);
            File::open(&path).await.unwrap();
        });
    });
}
