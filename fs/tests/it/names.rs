//! Free functions: what they do and how they fail, against std's on a twin of the same tree.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use runtime::fs::{self, DirBuilder, File, FileTimes, Metadata, Permissions};

use crate::kit::{dropped_after, everywhere, same_error};

#[track_caller]
fn same_metadata(ours: &Metadata, theirs: &std::fs::Metadata) {
    let ids = (ours.dev(), ours.ino(), ours.mode(), ours.nlink(), ours.uid(), ours.gid(), ours.rdev());
    let std_ids =
        (theirs.dev(), theirs.ino(), theirs.mode(), theirs.nlink(), theirs.uid(), theirs.gid(), theirs.rdev());
    assert_eq!(ids, std_ids);
    assert_eq!((ours.size(), ours.blksize(), ours.blocks()), (theirs.size(), theirs.blksize(), theirs.blocks()));
    assert_eq!((ours.atime(), ours.atime_nsec()), (theirs.atime(), theirs.atime_nsec()));
    assert_eq!((ours.mtime(), ours.mtime_nsec()), (theirs.mtime(), theirs.mtime_nsec()));
    assert_eq!((ours.ctime(), ours.ctime_nsec()), (theirs.ctime(), theirs.ctime_nsec()));
    assert_eq!(ours.modified().unwrap(), theirs.modified().unwrap());
    assert_eq!(ours.accessed().unwrap(), theirs.accessed().unwrap());
    assert_eq!(ours.created().ok(), theirs.created().ok());
    assert_eq!((ours.len(), ours.is_dir(), ours.is_file()), (theirs.len(), theirs.is_dir(), theirs.is_file()));
    assert_eq!((ours.is_symlink(), ours.permissions()), (theirs.is_symlink(), theirs.permissions()));
    let (ours, theirs) = (ours.file_type(), theirs.file_type());
    assert_eq!(ours.is_char_device(), theirs.is_char_device());
    assert_eq!(ours.is_block_device(), theirs.is_block_device());
    assert_eq!((ours.is_fifo(), ours.is_socket()), (theirs.is_fifo(), theirs.is_socket()));
}

#[test]
fn metadata_is_stds_in_every_field() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), vec![1; 10_000]).unwrap();
        symlink("file", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        // Times before 1970 count backwards with nanoseconds forwards.
        let old = std::time::UNIX_EPOCH - std::time::Duration::from_millis(1_234_567);
        let file = File::open(at("file")).await.unwrap();
        file.set_times(FileTimes::new().set_modified(old).set_accessed(old)).await.unwrap();
        for path in
            [at("file"), at("link"), at("dangling"), at("socket"), dir.path().into(), "/dev/null".into(), "/".into()]
        {
            same_metadata(&fs::symlink_metadata(&path).await.unwrap(), &std::fs::symlink_metadata(&path).unwrap());
            match std::fs::metadata(&path) {
                Ok(theirs) => same_metadata(&fs::metadata(&path).await.unwrap(), &theirs),
                theirs => same_error(fs::metadata(&path).await, theirs),
            }
            assert_eq!(fs::try_exists(&path).await.unwrap(), path.try_exists().unwrap());
        }
        assert_eq!(fs::metadata(at("file")).await.unwrap().modified().unwrap(), old);
        same_metadata(&file.metadata().await.unwrap(), &std::fs::metadata(at("file")).unwrap());
        // Of the file that is open, not of who has its name now.
        std::fs::rename(at("file"), at("moved")).unwrap();
        std::fs::write(at("file"), "another").unwrap();
        assert_eq!(file.metadata().await.unwrap().len(), 10_000);
        file.set_permissions(Permissions::from_mode(0o600)).await.unwrap();
        assert_eq!(std::fs::metadata(at("moved")).unwrap().mode() & 0o777, 0o600);
    });
}

#[test]
fn names_come_and_go_as_with_std() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a"), "one").await.0.unwrap();
        fs::rename(at("a"), at("b")).await.unwrap();
        fs::hard_link(at("b"), at("c")).await.unwrap();
        assert_eq!(fs::metadata(at("b")).await.unwrap().nlink(), 2);
        fs::symlink("b", at("d")).await.unwrap();
        assert_eq!(fs::read_link(at("d")).await.unwrap(), Path::new("b"));
        assert_eq!(fs::canonicalize(at("d")).await.unwrap(), std::fs::canonicalize(at("b")).unwrap());
        fs::hard_link(at("d"), at("e")).await.unwrap();
        assert!(fs::symlink_metadata(at("e")).await.unwrap().is_symlink());
        assert_eq!(fs::read(at("d")).await.unwrap(), b"one");
        fs::set_permissions(at("d"), Permissions::from_mode(0o444)).await.unwrap();
        assert_eq!(fs::copy(at("d"), at("f")).await.unwrap(), 3);
        assert_eq!(std::fs::metadata(at("f")).unwrap().mode(), std::fs::metadata(at("b")).unwrap().mode());
        fs::remove_file(at("b")).await.unwrap();
        assert!(!fs::try_exists(at("d")).await.unwrap());
        fs::create_dir(at("dir")).await.unwrap();
        std::fs::create_dir(at("std-dir")).unwrap();
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().mode();
        assert_eq!(mode("dir"), mode("std-dir"));
        DirBuilder::new().mode(0o700).create(at("private")).await.unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(at("std-private")).unwrap();
        assert_eq!(mode("private"), mode("std-private"));
        fs::create_dir_all(at("x/y/z")).await.unwrap();
        fs::create_dir_all(at("x/y/z")).await.unwrap();
        fs::remove_dir(at("x/y/z")).await.unwrap();
        // Links out of the tree are removed, not followed.
        std::fs::create_dir(at("outside")).unwrap();
        std::fs::write(at("outside/keep"), "").unwrap();
        symlink(at("outside"), at("x/y/out")).unwrap();
        fs::remove_dir_all(at("x")).await.unwrap();
        assert!(!at("x").exists() && at("outside/keep").exists());
    });
}

#[test]
fn errors_of_names_are_stds() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        std::fs::create_dir_all(at("full/inside")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let bad: [PathBuf; 9] = [
            at("missing"),
            at("file/below"),
            at(&"n".repeat(300)),
            "".into(),
            at("full"),
            at("file"),
            at("loop/x"),
            "a\0b".into(),
            "/".into(),
        ];
        fn check<T: std::fmt::Debug, U: std::fmt::Debug>(what: &str, ours: io::Result<T>, theirs: io::Result<U>) {
            match (&ours, &theirs) {
                (Ok(_), Ok(_)) => {}
                (Err(ours), Err(theirs)) => {
                    assert_eq!((ours.raw_os_error(), ours.kind()), (theirs.raw_os_error(), theirs.kind()), "{what}");
                }
                _ => panic!("{what}: {ours:?}, but std says {theirs:?}"),
            }
        }
        for path in &bad {
            let what = format!("{path:?}");
            check(&what, fs::metadata(path).await, std::fs::metadata(path));
            check(&what, fs::symlink_metadata(path).await, std::fs::symlink_metadata(path));
            check(&what, fs::try_exists(path).await, path.try_exists());
            check(&what, fs::read(path).await, std::fs::read(path));
            check(&what, fs::read_link(path).await, std::fs::read_link(path));
            check(&what, fs::canonicalize(path).await, std::fs::canonicalize(path));
            check(&what, fs::read_dir(path).await, std::fs::read_dir(path));
            if path.as_os_str().is_empty() || path == Path::new("/") {
                // What is below these is no part of the test.
                continue;
            }
            check(&what, fs::remove_dir(path.join("no")).await, std::fs::remove_dir(path.join("no")));
            check(&what, fs::copy(path, at("full")).await, std::fs::copy(path, at("full")));
            if path != &at("file") {
                check(&what, fs::create_dir(path.join(".")).await, std::fs::create_dir(path.join(".")));
                check(&what, fs::remove_file(path).await, std::fs::remove_file(path));
                check(&what, fs::remove_dir(path).await, std::fs::remove_dir(path));
                check(&what, fs::rename(path, at("full")).await.and(Ok(())), std::fs::rename(path, at("full")));
            }
            check(
                &what,
                fs::rename(at("missing"), path.join("no")).await,
                std::fs::rename(at("missing"), path.join("no")),
            );
            check(&what, fs::hard_link(path, at("file")).await, std::fs::hard_link(path, at("file")));
            check(&what, fs::symlink("x", path.join(".")).await, symlink("x", path.join(".")));
            check(
                &what,
                fs::set_permissions(path.join("no"), Permissions::from_mode(0o600)).await,
                std::fs::set_permissions(path.join("no"), Permissions::from_mode(0o600)),
            );
        }
        let full = fs::write(at("full"), "x").await;
        assert_eq!((full.0.unwrap_err().kind(), full.1), (ErrorKind::IsADirectory, "x"));
        std::fs::write(at("text"), b"\xff").unwrap();
        assert_eq!(fs::read_to_string(at("text")).await.unwrap_err().kind(), ErrorKind::InvalidData);
    });
}

#[test]
fn whole_files_are_read_whatever_their_length_says() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for len in [0, 1, 8191, 8192, 8193, 100_000, 3_000_000] {
            let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let (_, data) = fs::write(&path, data).await.into_result().unwrap();
            assert!(std::fs::read(&path).unwrap() == data);
            assert!(fs::read(&path).await.unwrap() == data);
        }
        // These say that they have no bytes, or more than they have.
        assert!(fs::read_to_string("/proc/self/status").await.unwrap().contains("VmSize"));
        assert_eq!(fs::read("/proc/version").await.unwrap(), std::fs::read("/proc/version").unwrap());
        assert_eq!(
            fs::read("/proc/cpuinfo").await.unwrap().is_empty(),
            std::fs::read("/proc/cpuinfo").unwrap().is_empty()
        );
        let online = "/sys/devices/system/cpu/online";
        assert_eq!(fs::read(online).await.unwrap(), std::fs::read(online).unwrap());
        assert_eq!(
            fs::copy("/proc/version", &path).await.unwrap(),
            std::fs::read("/proc/version").unwrap().len() as u64
        );
        // Growing and shrinking meanwhile: what was there is there, and nothing else.
        let writer = std::fs::File::create(&path).unwrap();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = std::sync::Arc::clone(&stop);
            move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for len in [20_000, 5, 300_000, 0] {
                        writer.set_len(len).unwrap();
                    }
                }
            }
        });
        for _ in 0..100 {
            let data = fs::read(&path).await.unwrap();
            assert!(data.len() <= 300_000 && data.iter().all(|&byte| byte == 0));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        thread.join().unwrap();
    });
}

#[test]
fn directories_are_read_whole_and_in_pieces() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        for count in [0, 1, 255, 256, 257, 3000] {
            for i in std::fs::read_dir(dir.path()).unwrap().count()..count {
                match i % 3 {
                    0 => std::fs::write(dir.path().join(format!("e{i}")), vec![0; i % 600]).unwrap(),
                    1 => std::fs::create_dir(dir.path().join(format!("e{i}"))).unwrap(),
                    _ => symlink("x", dir.path().join(format!("e{i}"))).unwrap(),
                }
            }
            let mut entries = fs::read_dir(dir.path()).await.unwrap();
            let mut found = Vec::new();
            loop {
                // An entry that is there at once is taken by the poll; otherwise nothing is lost.
                let first = {
                    let mut next = std::pin::pin!(entries.next_entry());
                    std::future::poll_fn(|task| std::task::Poll::Ready(next.as_mut().poll(task))).await
                };
                let entry = match first {
                    std::task::Poll::Ready(entry) => entry.unwrap(),
                    std::task::Poll::Pending => entries.next_entry().await.unwrap(),
                };
                let Some(entry) = entry else { break };
                if found.len() % 50 == 0 {
                    same_metadata(&entry.metadata().await.unwrap(), &entry.path().symlink_metadata().unwrap());
                }
                let file_type = entry.file_type().await.unwrap();
                let std_type = entry.path().symlink_metadata().unwrap().file_type();
                assert_eq!((file_type.is_dir(), file_type.is_symlink()), (std_type.is_dir(), std_type.is_symlink()));
                assert_eq!(entry.ino(), entry.path().symlink_metadata().unwrap().ino());
                found.push(entry.file_name());
            }
            assert!(entries.next_entry().await.unwrap().is_none(), "the end stays");
            let mut expected: Vec<_> =
                std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected);
            dropped_after(1, fs::read_dir(dir.path())).await;
        }
    });
}

#[test]
fn entries_are_asked_about_wherever_their_directory_is_by_now() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let (before, after) = (dir.path().join("before"), dir.path().join("after"));
        std::fs::create_dir(&before).unwrap();
        std::fs::write(before.join("file"), "12345").unwrap();
        let mut entries = fs::read_dir(&before).await.unwrap();
        let entry = entries.next_entry().await.unwrap().unwrap();
        std::fs::rename(&before, &after).unwrap();
        std::fs::create_dir(&before).unwrap();
        std::fs::write(before.join("file"), "other").unwrap();
        assert_eq!(entry.metadata().await.unwrap().ino(), after.join("file").metadata().unwrap().ino());
        assert_eq!(entry.path(), before.join("file"), "as it was named");
        std::fs::remove_dir_all(&after).unwrap();
        assert_eq!(entry.metadata().await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(entries.next_entry().await.unwrap().is_none());
    });
}
