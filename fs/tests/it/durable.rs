//! What is on the medium when: writes with a sync that is linked to them, dropped and cut ones, ranges, errors of both.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use runtime::Builder;
use runtime::fs::{File, OpenOptions};
use runtime::io::BufResult;
use runtime::testing::{in_flight, inject_cut};
use runtime_core::op::{Kind, Rung, opcode};

use crate::kit::{dropped_after, everywhere};
use crate::support::watchdog;

/// Writes and syncs of the runtime that runs, by the ring and by the pool.
fn counts() -> [u64; 3] {
    let metrics = runtime::metrics();
    let (ring, pool) = (metrics.ops(Kind::Sync, Rung::Ring), metrics.ops(Kind::Sync, Rung::Offload));
    [metrics.ops(Kind::Write, Rung::Ring), ring, pool]
}

#[test]
fn a_write_and_its_sync_are_one_submission() {
    let _watchdog = watchdog(Duration::from_secs(20));
    let body = || async {
        let file = File::from(tempfile::tempfile().unwrap());
        let before = counts();
        file.write_all_at_sync(vec![7; 100_000], 0).await.0.unwrap();
        let after = counts();
        [after[0] - before[0], after[1] - before[1], after[2] - before[2]]
    };
    assert_eq!(Builder::new().build().unwrap().block_on(body()), [1, 1, 0]);
    let mut lacking = Builder::new();
    lacking.setup_mut().missing_opcodes = vec![opcode::Fsync::CODE];
    assert_eq!(lacking.build().unwrap().block_on(body()), [1, 0, 1]);
    Builder::new().build().unwrap().block_on(async {
        let file = File::from(tempfile::tempfile().unwrap());
        let before = counts();
        // Nothing to write still syncs what was written before.
        file.write_all_at_sync("", 0).await.0.unwrap();
        assert_eq!(counts()[1] - before[1], 1);
        // Cut between the two by a kernel that is short of memory, the sync counts for nothing, and another one runs.
        inject_cut(1);
        file.write_all_at_sync("abc", 0).await.0.unwrap();
        assert_eq!(counts()[1] - before[1], 3);
    });
}

#[test]
fn a_dropped_write_with_sync_is_over_before_what_comes_later() {
    everywhere(|| async {
        let std = tempfile::tempfile().unwrap();
        let file = File::from(std.try_clone().unwrap());
        let mut back = vec![0; 50_000];
        for round in 0..100 {
            dropped_after(1 + round % 3, file.write_all_at_sync(vec![b'A'; 50_000], 0)).await;
            file.write_all_at_sync(vec![b'B'; 50_000], 0).await.0.unwrap();
            assert!(in_flight() <= 2, "the cancel requests at most");
            std.read_exact_at(&mut back, 0).unwrap();
            assert!(back.iter().all(|&byte| byte == b'B'), "round {round}");
        }
        file.close().await.unwrap();
    });
}

#[test]
fn a_write_with_sync_says_what_failed_and_returns_the_buffer() {
    everywhere(|| async {
        let path = tempfile::NamedTempFile::new().unwrap();
        let append = OpenOptions::new().append(true).open(path.path()).await.unwrap();
        let BufResult(result, data) = append.write_all_at_sync("data", 0).await;
        assert_eq!((result.unwrap_err().kind(), data), (ErrorKind::InvalidInput, "data"));
        let read_only = File::open(path.path()).await.unwrap();
        let BufResult(result, data) = read_only.write_all_at_sync("data", 0).await;
        assert_eq!((result.unwrap_err().raw_os_error(), data), (Some(9), "data"));
        let full = OpenOptions::new().write(true).open("/dev/full").await.unwrap();
        let BufResult(result, data) = full.write_all_at_sync("data", 0).await;
        assert_eq!((result.unwrap_err().kind(), data), (ErrorKind::StorageFull, "data"));
        let file = OpenOptions::new().write(true).open(path.path()).await.unwrap();
        for offset in [1 << 63, u64::MAX] {
            let BufResult(result, data) = file.write_all_at_sync("data", offset).await;
            assert_eq!((result.unwrap_err().kind(), data), (ErrorKind::InvalidInput, "data"));
        }
        // A write that succeeds where no sync can be.
        let (_rx, tx) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(tx));
        assert_eq!(pipe.sync_data().await.unwrap_err().raw_os_error(), Some(22));
    });
}

#[test]
fn of_two_failures_the_earlier_is_told_first_and_neither_is_lost() {
    everywhere(|| async {
        // Cancelled before the kernel tried it is no error, so until one has failed.
        for turns in 0..1000 {
            let full = OpenOptions::new().write(true).open("/dev/full").await.unwrap();
            {
                let mut write = std::pin::pin!(full.write_at("no room", 0));
                let first = std::future::poll_fn(|task| std::task::Poll::Ready(write.as_mut().poll(task))).await;
                assert!(first.is_pending());
                for _ in 0..turns {
                    runtime::task::yield_now().await;
                }
            }
            // A device cannot be synced: EINVAL.
            let error = full.sync_all().await.unwrap_err();
            if error.kind() != ErrorKind::StorageFull {
                assert_eq!(error.raw_os_error(), Some(22));
                continue;
            }
            assert_eq!(full.close().await.unwrap_err().raw_os_error(), Some(22), "that of the sync");
            return;
        }
        panic!("no dropped write failed");
    });
}

#[test]
fn ranges_are_written_back_and_their_errors_told() {
    everywhere(|| async {
        let file = File::from(tempfile::tempfile().unwrap());
        file.write_all_at(vec![1; 200_000], 0).await.0.unwrap();
        for (offset, len) in [(0, 4096), (100, 5), (0, 0), (1 << 40, 1 << 33), (0, i64::MAX as u64)] {
            file.sync_range(offset, len).await.unwrap();
        }
        assert_eq!(file.sync_range(1 << 63, 1).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(file.sync_range(1, i64::MAX as u64).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        let (rx, _tx) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(rx));
        assert_eq!(pipe.sync_range(0, 0).await.unwrap_err().raw_os_error(), Some(29), "ESPIPE");
    });
}
