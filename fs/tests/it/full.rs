//! A file system that is full, and one that may only be read: on a tmpfs of 256 KiB in a mount namespace of the test's own,
//! or where that may not be made, on /dev/full alone, which the test `at` covers as well.

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use runtime::fs::{self, File};
use runtime::io::{AsyncWrite, BufResult};

use crate::kit::{everywhere, same_error};
use crate::support::{am_child, watchdog};

const NAME: &str = "full::a_file_system_that_is_full_or_read_only_says_so";

#[test]
fn a_file_system_that_is_full_or_read_only_says_so() {
    if am_child(NAME) {
        let dir = std::env::var("RUNTIME_TEST_TINY").unwrap();
        let dir = std::path::Path::new(&dir);
        everywhere(|| on(dir.to_owned()));
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(dir).status().unwrap();
        assert!(status.success());
        return everywhere(|| read_only(dir.to_owned()));
    }
    let _watchdog = watchdog(Duration::from_secs(60));
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let mount = "mount -t tmpfs -o size=256k none \"$RUNTIME_TEST_TINY\" || exit 99; exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", mount])
        .arg(exe)
        .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
        .env("RUNTIME_TEST_CHILD", NAME)
        .env("RUNTIME_TEST_TINY", dir.path())
        .output();
    let may_not = |output: &std::process::Output| {
        let text = String::from_utf8_lossy(&output.stderr);
        output.status.code() == Some(99) || text.starts_with("unshare")
    };
    match output {
        Ok(output) if !may_not(&output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "it ran");
        }
        refused => {
            eprintln!("no tmpfs of 256 KiB here, so /dev/full stands in: {refused:?}");
            everywhere(|| async {
                let BufResult(result, data) = fs::write("/dev/full", "x").await;
                assert_eq!((result.unwrap_err().kind(), data), (ErrorKind::StorageFull, "x"));
            });
        }
    }
}

/// The file system may only be read by now: std's errors, and what may be read is.
async fn read_only(dir: std::path::PathBuf) {
    let path = dir.join("file");
    assert_eq!(fs::read(&path).await.unwrap(), b"fits");
    same_error(File::create(&path).await, std::fs::File::create(&path));
    same_error(fs::remove_file(&path).await, std::fs::remove_file(&path));
    same_error(fs::rename(&path, dir.join("x")).await, std::fs::rename(&path, dir.join("x")));
    same_error(fs::create_dir(dir.join("x")).await, std::fs::create_dir(dir.join("x")));
    same_error(fs::symlink("x", dir.join("y")).await, std::os::unix::fs::symlink("x", dir.join("y")));
    same_error(fs::copy(&path, dir.join("x")).await, std::fs::copy(&path, dir.join("x")));
    assert_eq!(fs::set_xattr(&path, "user.x", "").await.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    let error = fs::remove_dir_all(&dir).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
}

/// A write that is short because there is no room, with room again before it goes on: the rest is written, and a sync
/// after it.
async fn a_short_write_with_sync_goes_on(dir: &std::path::Path) {
    let filler = std::fs::File::create(dir.join("filler")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&filler, &[1; 100_000], 0).unwrap();
    let file = File::create(dir.join("log")).await.unwrap();
    let data: Vec<u8> = (0..200_000u32).map(|i| (i % 253) as u8).collect();
    let before = runtime::metrics();
    {
        let mut write = std::pin::pin!(file.write_all_at_sync(data.clone(), 0));
        let first = std::future::poll_fn(|task| std::task::Poll::Ready(write.as_mut().poll(task))).await;
        assert!(first.is_pending());
        // Both are over, and the future has not heard of it.
        while runtime::metrics().completions < before.completions + 2 {
            runtime::task::yield_now().await;
        }
        let len = std::fs::metadata(dir.join("log")).unwrap().len();
        assert!(len > 0 && len < 200_000, "a short write: {len}");
        filler.set_len(0).unwrap();
        let BufResult(result, back) = write.await;
        result.unwrap();
        assert!(back == data && std::fs::read(dir.join("log")).unwrap() == data);
    }
    let (after, ring) = (runtime::metrics(), runtime_core::op::Rung::Ring);
    for kind in [runtime_core::op::Kind::Write, runtime_core::op::Kind::Sync] {
        assert_eq!(after.ops(kind, ring) - before.ops(kind, ring), 2, "two chains: {kind:?}");
    }
    for name in ["log", "filler"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
}

async fn on(dir: std::path::PathBuf) {
    if runtime_core::coop::has_opcode(runtime_core::op::fsync::CODE) {
        a_short_write_with_sync_goes_on(&dir).await;
    }
    let path = dir.join("file");
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    for _ in 0..10 {
        let mut file = File::create(&path).await.unwrap();
        // What fits is written first, a short write; then it is full. All of the buffer comes back.
        let BufResult(result, back) = file.write_all_at(data.clone(), 0).await;
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.raw_os_error()), (ErrorKind::StorageFull, Some(28)));
        assert!(back == data);
        let written = std::fs::read(&path).unwrap();
        assert!(written.len() > 100_000 && data.starts_with(&written));
        let BufResult(result, _) = file.write_all(vec![1; written.len() + 1]).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(file.stream_position().await.unwrap(), written.len() as u64, "where the writing stopped");
        assert_eq!(file.allocate(0, 1_000_000).await.unwrap_err().kind(), ErrorKind::StorageFull);
        let BufResult(result, back) = file.write_all_at_sync(data.clone(), 0).await;
        assert_eq!((result.unwrap_err().kind(), back.len()), (ErrorKind::StorageFull, data.len()));
        let BufResult(result, back) = fs::write(dir.join("other"), data.clone()).await;
        assert_eq!((result.unwrap_err().kind(), back.len()), (ErrorKind::StorageFull, data.len()));
        // With room it goes on.
        file.set_len(0).await.unwrap();
        file.write_all_at("fits", 0).await.0.unwrap();
        file.sync_all().await.unwrap();
        file.close().await.unwrap();
        assert_eq!(fs::read(&path).await.unwrap(), b"fits");
        fs::remove_file(dir.join("other")).await.unwrap();
    }
}
