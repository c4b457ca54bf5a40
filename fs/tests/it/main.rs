//! Files as their users see them: what is read and written, and std's errors.

#[path = "../../../runtime/core/tests/support/mod.rs"]
mod support;

mod as_std;
mod at;
mod copying;
mod cursor;
mod dirs;
mod durable;
mod full;
mod grounds;
mod kit;
mod model;
mod names;
mod options;
mod order;
mod rungs;
mod workers;
mod xattr;

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use kit::start_and_drop;
use runtime::Builder;
use runtime::fs::File;
use runtime::io::{BufResult, IoBuf};
use support::{eventually, fds, in_child, watchdog};

fn run<F: Future>(body: F) -> F::Output {
    let _watchdog = watchdog(Duration::from_secs(20));
    Builder::new().build().unwrap().block_on(body)
}

#[test]
fn what_is_written_is_read() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).await.unwrap();
        assert_eq!(file.write_at("hello world", 0).await.0.unwrap(), 11);
        assert_eq!(file.write_at("W", 6).await.0.unwrap(), 1);
        assert_eq!(file.write_at("", 3).await.0.unwrap(), 0);
        let (n, data) = file.read_at(Vec::with_capacity(64), 6).await.into_result().unwrap();
        assert_eq!((n, &data[..]), (5, &b"World"[..]));
        let (n, part) = file.read_at(vec![7; 10].slice(3..6), 0).await.into_result().unwrap();
        assert_eq!((n, part.into_inner()), (3, [&[7; 3][..], b"hel", &[7; 4]].concat()));
        file.close().await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"hello World");

        // Again, and it is empty.
        let file = File::create(&path).await.unwrap();
        assert_eq!(file.read_at(Vec::with_capacity(8), 0).await.0.unwrap(), 0);
        // A hole is zeros.
        file.write_at("x", 5000).await.0.unwrap();
        let (n, data) = file.read_at(Vec::with_capacity(8192), 0).await.into_result().unwrap();
        assert_eq!((n, data[4999], data[5000]), (5001, 0, b'x'));
    });
}

#[test]
fn reading_at_or_behind_the_end_is_nothing() {
    run(async {
        let file = tempfile::tempfile().unwrap();
        file.set_len(131_072).unwrap();
        let file = File::from(file);
        assert_eq!(file.read_at(Vec::with_capacity(16), 131_072).await.0.unwrap(), 0);
        assert_eq!(file.read_at(Vec::with_capacity(16), 131_073).await.0.unwrap(), 0);
        assert_eq!(file.read_at(Vec::with_capacity(16), 131_070).await.0.unwrap(), 2);
        assert_eq!(file.read_at(Vec::new(), 0).await.0.unwrap(), 0);
    });
}

#[test]
fn offsets_that_no_file_has_are_errors_and_move_nothing() {
    use std::io::{Seek, SeekFrom};
    run(async {
        let mut std_file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut std_file, b"0123456789").unwrap();
        std_file.seek(SeekFrom::Start(3)).unwrap();
        let file = File::from(std_file.try_clone().unwrap());
        for offset in [1 << 63, u64::MAX - 8, u64::MAX] {
            let BufResult(result, buf) = file.read_at(Vec::with_capacity(8), offset).await;
            assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput, "{offset}");
            assert_eq!(buf.capacity(), 8);
            let BufResult(result, data) = file.write_at("data", offset).await;
            assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput, "{offset}");
            assert_eq!(data, "data");
        }
        let BufResult(result, _) = file.write_at("x", i64::MAX as u64).await;
        assert!(result.is_err(), "the end of the last possible byte");
        assert_eq!(file.read_at([0; 2], 0).await.0.unwrap(), 2);
        // u64::MAX would be the file's own position.
        assert_eq!(std_file.stream_position().unwrap(), 3);
        assert_eq!(std_file.metadata().unwrap().len(), 10);
    });
}

#[test]
fn errors_are_stds() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let long = dir.path().join("n".repeat(300));
        let paths = [dir.path().join("missing"), file.join("below"), long, "".into(), dir.path().join("no/such")];
        for path in &paths {
            let (ours, theirs) = (File::open(path).await.unwrap_err(), std::fs::File::open(path).unwrap_err());
            assert_eq!((ours.raw_os_error(), ours.kind()), (theirs.raw_os_error(), theirs.kind()), "{path:?}");
        }
        for path in paths[1..].iter().map(std::path::PathBuf::as_path).chain([dir.path()]) {
            let (ours, theirs) = (File::create(path).await.unwrap_err(), std::fs::File::create(path).unwrap_err());
            assert_eq!((ours.raw_os_error(), ours.kind()), (theirs.raw_os_error(), theirs.kind()), "{path:?}");
        }
        let nul = File::open("a\0b").await.unwrap_err();
        assert_eq!((nul.kind(), std::fs::File::open("a\0b").unwrap_err().kind()), (nul.kind(), nul.kind()));
        assert_eq!(File::create("a\0b").await.unwrap_err().kind(), ErrorKind::InvalidInput);

        let readable = File::open(&file).await.unwrap();
        let BufResult(result, data) = readable.write_at("no", 0).await;
        assert_eq!((result.unwrap_err().raw_os_error(), data), (Some(9), "no"));
        let writable = File::from(std::fs::OpenOptions::new().write(true).open(&file).unwrap());
        assert_eq!(writable.read_at([0; 4], 0).await.0.unwrap_err().raw_os_error(), Some(9));
        let folder = File::open(dir.path()).await.unwrap();
        assert_eq!(folder.read_at([0; 4], 0).await.0.unwrap_err().kind(), ErrorKind::IsADirectory);
        let full = File::from(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        for _ in 0..100 {
            let BufResult(result, data) = full.write_at("no room", 0).await;
            assert_eq!((result.unwrap_err().raw_os_error(), data), (Some(28), "no room"));
        }
    });
}

#[test]
fn new_files_have_the_usual_mode_and_nothing_is_inherited() {
    use std::os::unix::fs::PermissionsExt;
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        let file = File::create(&ours).await.unwrap();
        std::fs::File::create(&theirs).unwrap();
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&theirs));
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        assert_eq!(u32::from_str_radix(flags, 8).unwrap() & 0o2_000_000, 0o2_000_000, "O_CLOEXEC");
    });
}

#[test]
fn dropped_opens_close_what_they_opened() {
    in_child("dropped_opens_close_what_they_opened", Duration::from_secs(30), || {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            std::fs::write(&path, "x").unwrap();
            let base = fds();
            for round in 0..2000 {
                start_and_drop(File::open(&path)).await;
                if round % 3 == 0 {
                    start_and_drop(File::create(dir.path().join("created"))).await;
                }
                if round % 7 == 0 {
                    runtime::task::yield_now().await;
                }
            }
            let file = File::open(&path).await.unwrap();
            assert_eq!(file.read_at([0; 4], 0).await.0.unwrap(), 1);
            drop(file);
            while runtime::testing::in_flight() > 0 {
                runtime::task::yield_now().await;
            }
            eventually("descriptors back to base", || fds() == base);
        });
    });
}

#[test]
fn closing_means_closed_also_beside_dropped_operations() {
    in_child("closing_means_closed_also_beside_dropped_operations", Duration::from_secs(30), || {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            let base = fds();
            for _ in 0..300 {
                let file = File::create(&path).await.unwrap();
                file.write_at(vec![1; 10_000], 0).await.0.unwrap();
                file.close().await.unwrap();
                assert_eq!(fds(), base, "closed when `close` says so");
                let file = File::open(&path).await.unwrap();
                start_and_drop(file.read_at(Vec::with_capacity(10_000), 0)).await;
                file.close().await.unwrap();
                start_and_drop(File::open(&path).await.unwrap().close()).await;
                while runtime::testing::in_flight() > 0 {
                    runtime::task::yield_now().await;
                }
                eventually("what was dropped is closed too", || fds() == base);
            }
        });
    });
}

#[test]
fn many_operations_of_one_file_at_once_keep_to_their_offsets() {
    run(async {
        let file = File::from(OwnedFd::from(tempfile::tempfile().unwrap()));
        let writes = (0..500u64).map(|i| file.write_at(vec![i as u8; 1000], i * 1000));
        for BufResult(result, _) in join_all(writes).await {
            assert_eq!(result.unwrap(), 1000);
        }
        let reads = (0..500u64).map(|i| file.read_at(Vec::with_capacity(1000), i * 1000));
        for (i, BufResult(result, data)) in join_all(reads).await.into_iter().enumerate() {
            assert_eq!(result.unwrap(), 1000);
            assert!(data.iter().all(|&byte| byte == i as u8));
        }
    });
}

/// All at once, in order; this crate's tests have no `futures`.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|task| {
        for (future, output) in &mut futures {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(task)
            {
                *output = Some(ready);
            }
        }
        match futures.iter().all(|(_, output)| output.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}
