//! What was dropped and what comes later: order, errors that stick, and closing.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::task::Poll;
use std::time::Duration;

use runtime::Builder;
use runtime::fs::{File, OpenOptions};
use runtime::io::BufResult;
use runtime_core::op::{Kind, Rung, opcode};

use crate::kit::{dropped_after, everywhere, start_and_drop};
use crate::support::{eventually, fds, in_child, watchdog};

#[test]
fn a_dropped_write_never_lands_on_a_later_one() {
    everywhere(|| async {
        let std = tempfile::tempfile().unwrap();
        let file = File::from(std.try_clone().unwrap());
        let clone = file.try_clone().unwrap();
        let (old, new) = (vec![b'A'; 200_000], vec![b'B'; 200_000]);
        let mut back = vec![0; 200_000];
        for round in 0..200 {
            start_and_drop(file.write_at(old.clone(), 0)).await;
            match round % 4 {
                0 => file.write_all_at(new.clone(), 0).await.0.unwrap(),
                1 => clone.write_all_at(new.clone(), 0).await.0.unwrap(),
                2 => drop(file.write_vectored_at(vec![new.clone(), new.clone()], 0).await.into_result().unwrap()),
                _ => {
                    // What was dropped meanwhile is waited for as well, and so is who waits and is dropped.
                    start_and_drop(file.write_at(old.clone(), 0)).await;
                    start_and_drop(clone.set_len(0)).await;
                    file.write_all_at(new.clone(), 0).await.0.unwrap();
                }
            }
            // Nothing is in flight any more that could change it.
            assert!(runtime::testing::in_flight() <= 1, "the cancel request at most");
            std.read_exact_at(&mut back, 0).unwrap();
            assert!(back == new, "round {round}");
        }
    });
}

#[test]
fn a_dropped_change_of_length_is_over_before_the_next_operation() {
    everywhere(|| async {
        let std = tempfile::tempfile().unwrap();
        let file = File::from(std.try_clone().unwrap());
        for round in 0..300 {
            dropped_after(1 + round % 2, file.set_len(0)).await;
            file.write_all_at("content", 0).await.0.unwrap();
            assert_eq!(file.metadata().await.unwrap().len(), 7);
            dropped_after(1 + round % 2, file.set_len(3)).await;
            let (n, _) = file.read_to_end_at(Vec::new(), 0).await.into_result().unwrap();
            let len = std.metadata().unwrap().len();
            assert_eq!(n as u64, len, "decided before it was read");
            file.set_len(0).await.unwrap();
        }
    });
}

#[test]
fn futures_dropped_at_each_await_leave_a_file_that_works() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).await.unwrap();
        for polls in 1..6 {
            dropped_after(polls, file.sync_all()).await;
            dropped_after(polls, file.write_all_at_sync("durable", 0)).await;
            dropped_after(polls, file.read_to_end_at(Vec::new(), 0)).await;
            dropped_after(polls, file.metadata()).await;
            dropped_after(polls, file.allocate(0, 100)).await;
            dropped_after(polls, file.set_times(runtime::fs::FileTimes::new())).await;
            dropped_after(polls, file.try_lock()).await;
            dropped_after(polls, file.lock_shared()).await;
            dropped_after(polls, file.unlock()).await;
            dropped_after(polls, runtime::fs::read(&path)).await;
            dropped_after(polls, runtime::fs::write(dir.path().join("other"), "x")).await;
            dropped_after(polls, File::open(&path).await.unwrap().close()).await;
            dropped_after(polls, File::open(&path).await.unwrap().into_std()).await;
            dropped_after(polls, OpenOptions::new().append(true).open(&path)).await;
        }
        file.unlock().await.unwrap();
        file.set_len(0).await.unwrap();
        file.write_all_at("fine", 0).await.0.unwrap();
        file.close().await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"fine");
    });
}

#[test]
fn the_error_of_a_dropped_write_is_told_by_one_sync_or_by_close() {
    everywhere(|| async {
        let full = OpenOptions::new().write(true).open("/dev/full").await.unwrap();
        // Cancelled before the kernel tried it is no error, so until one has failed.
        for how in 0..2 {
            let mut told = 0;
            for turns in 0..1000 {
                {
                    let mut write = std::pin::pin!(full.write_at("no room", 0));
                    let pending =
                        std::future::poll_fn(|task| Poll::Ready(write.as_mut().poll(task).is_pending())).await;
                    assert!(pending);
                    // It goes on without being polled, for longer and longer.
                    for _ in 0..turns {
                        runtime::task::yield_now().await;
                    }
                }
                let result = match how {
                    0 => full.sync_data().await,
                    _ => full.try_clone().unwrap().close().await,
                };
                match result {
                    Err(error) if error.kind() == ErrorKind::StorageFull => {
                        told += 1;
                        if let Err(error) = full.sync_all().await {
                            assert_ne!(error.kind(), ErrorKind::StorageFull, "told once");
                        }
                        break;
                    }
                    // A device need not be able to sync.
                    result => drop(result),
                }
            }
            assert_eq!(told, 1);
        }
    });
}

#[test]
fn closed_means_closed_and_can_be_executed() {
    in_child("order::closed_means_closed_and_can_be_executed", Duration::from_secs(60), || {
        everywhere(|| async {
            use std::os::unix::fs::PermissionsExt;
            let dir = tempfile::tempdir().unwrap();
            let base = fds();
            for round in 0..30 {
                let path = dir.path().join(format!("script-{round}"));
                let file = File::create(&path).await.unwrap();
                file.write_all_at("#!/bin/sh\nexit 7\n", 0).await.0.unwrap();
                start_and_drop(file.write_at("#!/bin/sh\nexit 7\n", 0)).await;
                file.set_permissions(std::fs::Permissions::from_mode(0o700)).await.unwrap();
                file.close().await.unwrap();
                assert_eq!(fds(), base);
                let status = std::process::Command::new(&path).status().unwrap();
                assert_eq!(status.code(), Some(7));
                let file = File::open(&path).await.unwrap();
                file.lock().await.unwrap();
                drop(file);
                let other = std::fs::File::open(&path).unwrap();
                eventually("the lock went with the file", || other.try_lock().is_ok());
            }
        });
    });
}

#[test]
fn descriptors_leave_once() {
    in_child("order::descriptors_leave_once", Duration::from_secs(60), || {
        everywhere(|| async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            std::fs::write(&path, "x").unwrap();
            let base = fds();
            for _ in 0..300 {
                let file = File::open(&path).await.unwrap();
                let raw = file.as_raw_fd();
                let std = file.into_std().await.unwrap();
                assert_eq!(std.as_raw_fd(), raw, "the very descriptor, no duplicate");
                let other = File::open("/dev/null").await.unwrap();
                assert_ne!(other.as_raw_fd(), raw);
                drop(std);
                assert!(other.metadata().await.unwrap().file_type().is_char_device());
                let _ = other.as_fd();
            }
            eventually("descriptors back to base", || fds() == base);
        });
    });
}

#[test]
fn locks_exclude_wait_and_are_not_kept_by_who_is_gone() {
    everywhere(|| async {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(path.path()).await.unwrap();
        let other = std::fs::File::open(path.path()).unwrap();
        file.lock().await.unwrap();
        assert!(matches!(other.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
        file.unlock().await.unwrap();
        other.lock_shared().unwrap();
        file.try_lock_shared().await.unwrap();
        file.unlock().await.unwrap();
        assert!(matches!(file.try_lock().await, Err(std::fs::TryLockError::WouldBlock)));
        // Who waits gets it when it is free.
        let holder = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            other.unlock().unwrap();
            other
        });
        file.lock().await.unwrap();
        let other = holder.join().unwrap();
        file.unlock().await.unwrap();
        for polls in [1, 1, 2, 1, 2] {
            if !dropped_after(polls, file.try_lock()).await {
                let free = std::time::Instant::now() + crate::support::scaled(Duration::from_secs(5));
                while other.try_lock().is_err() {
                    assert!(std::time::Instant::now() < free, "a dropped future holds the lock");
                    runtime::task::yield_now().await;
                }
                other.unlock().unwrap();
            } else {
                file.unlock().await.unwrap();
            }
        }
    });
}

#[test]
fn room_is_reserved_and_given_back() {
    everywhere(|| async {
        let std = tempfile::tempfile().unwrap();
        let file = File::from(std.try_clone().unwrap());
        file.write_all_at(vec![1; 65_536], 0).await.0.unwrap();
        file.advise(runtime::fs::Advice::Random, 0, 0).await.unwrap();
        file.punch_hole(4096, 8192).await.unwrap();
        let (_, data) = file.read_exact_at(Vec::with_capacity(65_536), 0).await.into_result().unwrap();
        assert!(data.iter().enumerate().all(|(i, &byte)| byte == u8::from(!(4096..12_288).contains(&i))));
        file.allocate(65_536, 4096).await.unwrap();
        assert_eq!(std.metadata().unwrap().len(), 69_632);
        assert_eq!(file.allocate(0, 0).await.unwrap_err().raw_os_error(), Some(22));
        assert_eq!(file.set_len(1 << 63).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        let BufResult(result, _) = file.write_all_at_sync(vec![2; 300_000], 1000).await;
        result.unwrap();
        let mut back = vec![0; 300_000];
        std.read_exact_at(&mut back, 1000).unwrap();
        assert!(back.iter().all(|&byte| byte == 2));
    });
}

#[test]
fn what_a_kernel_lacks_the_pool_does_and_it_is_counted() {
    let _watchdog = watchdog(Duration::from_secs(20));
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut builder = Builder::new();
    builder.setup_mut().missing_opcodes = crate::kit::missing();
    let rt = builder.build().unwrap();
    rt.block_on(async {
        use runtime::fs;
        fs::create_dir(at("dir")).await.unwrap();
        let file = OpenOptions::new().write(true).create(true).open(at("file")).await.unwrap();
        file.set_len(77).await.unwrap();
        file.sync_all().await.unwrap();
        let _ = file.set_xattr("user.x", "1").await;
        fs::hard_link(at("file"), at("link")).await.unwrap();
        fs::symlink("file", at("soft")).await.unwrap();
        fs::rename(at("link"), at("moved")).await.unwrap();
        fs::remove_file(at("moved")).await.unwrap();
        assert!(fs::metadata("/proc/version").await.unwrap().is_file());
    });
    assert_eq!(std::fs::metadata(at("soft")).unwrap().len(), 77);
    let kinds = [
        Kind::MakeDir,
        Kind::Open,
        Kind::Truncate,
        Kind::Sync,
        Kind::Xattr,
        Kind::Link,
        Kind::Symlink,
        Kind::Rename,
        Kind::Unlink,
    ];
    for kind in kinds {
        assert_eq!((rt.metrics().ops(kind, Rung::Offload), rt.metrics().ops(kind, Rung::Ring)), (1, 0), "{kind:?}");
    }
    assert!(rt.metrics().ops(Kind::Stat, Rung::Offload) >= 1 && rt.metrics().ops(Kind::Stat, Rung::Ring) == 0);
    // One that is missing alone changes nothing for the others.
    let mut builder = Builder::new();
    builder.setup_mut().missing_opcodes = vec![opcode::Ftruncate::CODE];
    let rt = builder.build().unwrap();
    rt.block_on(async {
        let file = OpenOptions::new().write(true).open(at("file")).await.unwrap();
        file.set_len(7).await.unwrap();
        file.sync_all().await.unwrap();
    });
    let ops = |kind, rung| rt.metrics().ops(kind, rung);
    assert_eq!((ops(Kind::Truncate, Rung::Offload), ops(Kind::Truncate, Rung::Ring)), (1, 0));
    assert_eq!((ops(Kind::Sync, Rung::Offload), ops(Kind::Sync, Rung::Ring)), (0, 1));
}
