//! Which rung was taken, and direct I/O: what depends on the file system, and says so.

use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use runtime::Builder;
use runtime::fs::{self, AlignedBuf, File, OpenOptions};
use runtime::io::{BufResult, IoBuf};
use runtime_core::op::open::O_DIRECT;
use runtime_core::op::{Kind, Rung};

use crate::kit::{everywhere, same_error};
use crate::support::watchdog;

/// The file system that a path is on, as the list of mounts says.
fn file_system(path: &std::path::Path) -> String {
    let path = path.canonicalize().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    // The last one of the longest is on top.
    mounts.filter(|mount| path.starts_with(mount[1])).max_by_key(|mount| mount[1].len()).unwrap()[2].to_owned()
}

#[test]
fn metadata_in_memory_needs_no_worker_where_that_is_known_to_be_safe() {
    let _watchdog = watchdog(Duration::from_secs(20));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "12345").unwrap();
    let rt = Builder::new().build().unwrap();
    let (inline, ring) = (|| rt.metrics().ops(Kind::Stat, Rung::Inline), || rt.metrics().ops(Kind::Stat, Rung::Ring));
    rt.block_on(async {
        let file = File::open(&path).await.unwrap();
        for _ in 0..100 {
            assert_eq!(fs::metadata(&path).await.unwrap().len(), 5);
            assert_eq!(file.metadata().await.unwrap().len(), 5);
        }
    });
    let name = file_system(dir.path());
    if ["ext4", "xfs", "btrfs", "tmpfs"].contains(&&*name) {
        assert!(inline() >= 190, "on {name} {} were inline and {} went to the ring", inline(), ring());
    } else {
        assert_eq!((inline(), ring()), (0, 200), "{name}");
    }
    // What asks others, or makes it up, is left to a worker.
    let before = inline();
    rt.block_on(async {
        for _ in 0..10 {
            assert_eq!(fs::metadata("/proc/self/status").await.unwrap().len(), 0);
        }
    });
    assert_eq!(inline(), before, "procfs is on no list");
    // A task that finds everything in memory lets others run.
    rt.block_on(async {
        let other = runtime::spawn(async {});
        for _ in 0..1000 {
            fs::metadata(&path).await.unwrap();
        }
        assert!(other.is_finished());
    });
}

#[test]
fn a_read_takes_the_rung_of_its_file_system_and_many_share_an_enter() {
    let _watchdog = watchdog(Duration::from_secs(20));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; 64 * 1024]).unwrap();
    let rt = Builder::new().build().unwrap();
    let counts = || [Rung::Inline, Rung::Ring, Rung::Offload].map(|rung| rt.metrics().ops(Kind::Read, rung));
    rt.block_on(async {
        let file = File::open(&path).await.unwrap();
        for i in 0..100 {
            let (n, _) = file.read_at(Vec::with_capacity(4096), i % 16 * 4096).await.into_result().unwrap();
            assert_eq!(n, 4096);
        }
    });
    let name = file_system(dir.path());
    let before = counts();
    match &*name {
        "ext4" | "xfs" | "btrfs" => assert!(before[0] >= 90 && before[2] == 0, "{name}: {before:?}"),
        "tmpfs" => assert!(before[0] >= 99, "{name}: {before:?}"),
        _ => assert_eq!(before, [0, 0, 100], "{name}"),
    }
    // Beside operations that complete in batches, reads are in the batch too.
    rt.block_on(async {
        let file = std::rc::Rc::new(File::open(&path).await.unwrap());
        let tasks: Vec<_> = (0..32)
            .map(|_| {
                let file = std::rc::Rc::clone(&file);
                runtime::spawn(async move {
                    for _ in 0..10 {
                        runtime::op::submit(runtime_core::op::nop::Nop).await.unwrap();
                        let (n, _) = file.read_at(Vec::with_capacity(4096), 0).await.into_result().unwrap();
                        assert_eq!(n, 4096);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    let after = counts();
    // Except where the ring would hand each to a worker.
    let inline = if name == "tmpfs" { 320..=320 } else { 0..=32 };
    assert!(inline.contains(&(after[0] - before[0])), "{name}: {before:?}, {after:?}");
    // What the kernel makes up, and what is read past the page cache, never goes inline.
    rt.block_on(async {
        for _ in 0..10 {
            assert!(fs::read("/proc/self/maps").await.unwrap().len() > 100);
        }
        let mut options = OpenOptions::new();
        let Ok(direct) = options.read(true).custom_flags(O_DIRECT).open(&path).await else { return };
        let buf = AlignedBuf::new(4096, 4096).unwrap();
        let BufResult(result, _) = direct.read_at(buf, 0).await;
        assert_eq!(result.unwrap(), 4096);
    });
    assert_eq!(counts()[0], after[0], "{name}");
    // A task that finds everything in memory lets others run.
    rt.block_on(async {
        let other = runtime::spawn(async {});
        let file = File::open(&path).await.unwrap();
        for _ in 0..1000 {
            file.read_at(Vec::with_capacity(16), 0).await.0.unwrap();
        }
        assert!(other.is_finished());
    });
}

#[test]
fn what_is_not_in_memory_is_read_all_the_same_and_tried_less() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let data: Vec<u8> = (0..2_000_003u32).map(|i| (i % 249) as u8).collect();
        std::fs::write(&path, &data).unwrap();
        let file = File::open(&path).await.unwrap();
        file.sync_all().await.unwrap();
        file.advise(runtime::fs::Advice::Random, 0, 0).await.unwrap();
        for len in [4096, 10_000, 65_536, 100_000] {
            file.advise(runtime::fs::Advice::DontNeed, 0, 0).await.unwrap();
            // One page in the middle of each piece is there, so that counts are short.
            for at in (0..data.len() as u64).step_by(len * 2) {
                file.read_at([0; 1], at).await.0.unwrap();
            }
            let mut at = 0;
            while at < data.len() {
                let (n, piece) = file.read_at(Vec::with_capacity(len), at as u64).await.into_result().unwrap();
                assert!(n > 0 && piece == data[at..at + n], "at {at}");
                assert!(n == len || at + n == data.len(), "whole, unless the file ends: {n} at {at}");
                at += n;
            }
            assert_eq!(file.read_at(Vec::with_capacity(len), at as u64).await.0.unwrap(), 0);
        }
        file.advise(runtime::fs::Advice::DontNeed, 0, 0).await.unwrap();
        assert!(fs::read(&path).await.unwrap() == data);
    });
}

#[test]
fn a_file_that_grows_or_shrinks_meanwhile_is_read_as_it_is() {
    everywhere(|| async {
        let std = tempfile::tempfile().unwrap();
        let file = File::from(std.try_clone().unwrap());
        let mut expected = Vec::new();
        for round in 0..200u32 {
            let part = vec![round as u8; (round * 37 % 9000) as usize];
            std::os::unix::fs::FileExt::write_all_at(&std, &part, expected.len() as u64).unwrap();
            expected.extend(part);
            let end = expected.len() as u64;
            assert_eq!(file.read_at(Vec::with_capacity(10_000), end).await.0.unwrap(), 0);
            let (_, all) = file.read_to_end_at(Vec::new(), 0).await.into_result().unwrap();
            assert!(all == expected);
            if round % 5 == 4 {
                expected.truncate(expected.len() / 3);
                std.set_len(expected.len() as u64).unwrap();
            }
        }
    });
}

#[test]
fn files_that_are_dropped_are_closed_when_block_on_returns() {
    crate::support::in_child(
        "rungs::files_that_are_dropped_are_closed_when_block_on_returns",
        Duration::from_secs(30),
        || {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            std::fs::write(&path, "x").unwrap();
            let rt = Builder::new().build().unwrap();
            let base = crate::support::fds();
            for round in 0..50 {
                // The first of its mount is left to another thread everywhere, those on overlayfs always are.
                rt.block_on(async {
                    let mut kept = Vec::new();
                    for _ in 0..20 {
                        kept.push(File::open(&path).await.unwrap());
                    }
                    let name = format!("{}", round % 7);
                    runtime::spawn(async move { drop(kept) });
                    drop(File::create(dir.path().join(name)).await.unwrap());
                    runtime::task::yield_now().await;
                });
                assert_eq!(crate::support::fds(), base, "round {round}");
            }
        },
    );
}

#[test]
fn files_that_are_dropped_are_closed_on_this_thread_where_that_asks_nobody() {
    crate::support::in_child(
        "rungs::files_that_are_dropped_are_closed_on_this_thread_where_that_asks_nobody",
        Duration::from_secs(30),
        || {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            std::fs::write(&path, "x").unwrap();
            let name = file_system(dir.path());
            let is_local = ["ext4", "xfs", "btrfs", "tmpfs"].contains(&&*name);
            let base = crate::support::fds();
            Builder::new().build().unwrap().block_on(async {
                let base = crate::support::fds();
                // What it is on is learned once.
                File::open(&path).await.unwrap().metadata().await.unwrap();
                crate::support::eventually("the first is closed", || crate::support::fds() == base);
                for _ in 0..100 {
                    drop(File::open(&path).await.unwrap());
                    assert!(!is_local || crate::support::fds() == base, "on {name}");
                }
                drop(File::from(std::fs::File::open("/dev/null").unwrap()));
                drop(File::open(dir.path()).await.unwrap());
                let closing = std::fs::read_dir("/proc/self/task").unwrap().any(|task| {
                    std::fs::read_to_string(task.unwrap().path().join("comm"))
                        .is_ok_and(|comm| comm.trim() == "rt-closing")
                });
                assert_eq!(closing, !is_local, "the pool closes what may ask somebody: {name}");
                crate::support::eventually("all are closed", || crate::support::fds() == base);
                let closes = |rung| runtime::metrics().ops(Kind::Close, rung);
                let before = [closes(Rung::Inline), closes(Rung::Ring)];
                File::open(&path).await.unwrap().close().await.unwrap();
                let after = [closes(Rung::Inline), closes(Rung::Ring)];
                let expected = if is_local { [1, 0] } else { [0, 1] };
                assert_eq!([after[0] - before[0], after[1] - before[1]], expected, "{name}");
            });
            crate::support::eventually("nothing is left", || crate::support::fds() == base);
        },
    );
}

#[test]
fn metadata_is_right_when_no_descriptor_is_free() {
    crate::support::in_child("rungs::metadata_is_right_when_no_descriptor_is_free", Duration::from_secs(30), || {
        let _watchdog = watchdog(Duration::from_secs(20));
        let dir = tempfile::tempdir().unwrap();
        let rt = Builder::new().build().unwrap();
        rt.block_on(async {
            fs::metadata(dir.path()).await.unwrap();
            let mut taken = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                taken.push(file);
            }
            assert!(fs::metadata(dir.path()).await.unwrap().is_dir());
            assert_eq!(File::open("/dev/null").await.unwrap_err().raw_os_error(), Some(24));
            drop(taken);
        });
    });
}

#[test]
fn direct_transfers_work_when_aligned_and_name_the_alignment_when_not() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("direct");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let ours = OpenOptions::new().read(true).write(true).direct(true).open(&path).await;
        let theirs = std::fs::OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(&path);
        if theirs.is_err() {
            eprintln!("{} has no direct I/O; its error is compared instead", file_system(dir.path()));
            return same_error(ours, theirs);
        }
        let file = ours.unwrap();
        let Some(align) = file.direct_align().await.unwrap() else {
            eprintln!("{} does not tell what has to be aligned", file_system(dir.path()));
            return;
        };
        let (memory, block) = (align.memory as usize, align.offset as usize);
        let mut buf = AlignedBuf::new(block.max(4096) * 2, memory.max(4096)).unwrap();
        buf.resize(block.max(4096));
        buf.fill(9);
        let (n, buf) = file.write_at(buf, 0).await.into_result().unwrap();
        assert_eq!(n, block.max(4096));
        let (n, buf) = file.read_at(buf, 8192).await.into_result().unwrap();
        assert_eq!((n, &buf[..]), (1808, &[7; 1808][..]), "up to the end, which is not aligned");
        // The offset, the length, the address: each with the buffer back.
        let BufResult(result, buf) = file.read_at(buf, 1).await;
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("the offset must be a multiple of {block}")), "{error}");
        let mut buf = buf;
        buf.resize(100);
        let BufResult(result, buf) = file.write_all_at(buf, 0).await;
        assert!(result.unwrap_err().to_string().contains("the length"));
        if memory > 1 {
            let BufResult(result, buf) = file.read_at(buf.slice(1..1 + block), 0).await;
            assert!(result.unwrap_err().to_string().contains("the buffer's address"));
            assert_eq!(buf.into_inner().align(), memory.max(4096));
        }
        let content = std::fs::read(&path).unwrap();
        assert!(content[..4096].iter().all(|&byte| byte == 9) && content.len() >= 10_000);
        // Vectors: all of their buffers, and which of them is not.
        let aligned = || AlignedBuf::new(block.max(4096), memory.max(4096)).unwrap();
        let BufResult(result, bufs) = file.read_vectored_at(vec![aligned(), aligned()], 0).await;
        assert!(result.unwrap() > 4096 && bufs[0][..4096] == content[..4096]);
        let mut short = aligned();
        short.resize(100);
        let BufResult(result, bufs) = file.write_vectored_at(vec![bufs.into_iter().next().unwrap(), short], 0).await;
        assert!(result.unwrap_err().to_string().contains("the length must be a multiple of"));
        assert_eq!((bufs[0].len(), bufs[1].len()), (block.max(4096), 100));
        // Registered memory is aligned to pages, and goes the same way.
        let pool = runtime::io::FixedBufs::new(2, block.max(4096)).unwrap();
        let mut buf = pool.lease().await;
        buf.fill(3);
        let (n, buf) = file.read_at(buf, 0).await.into_result().unwrap();
        assert!(n == block.max(4096) && buf[..4096] == content[..4096]);
        let (n, buf) = file.write_at(buf, 0).await.into_result().unwrap();
        assert_eq!(n, buf.len());
        assert_eq!(file.read_at(buf, 1).await.0.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(std::fs::read(&path).unwrap()[..4096] == content[..4096]);
    });
}
