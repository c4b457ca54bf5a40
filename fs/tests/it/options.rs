//! How files are opened: every combination of options against std on a file in the same state.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use runtime::fs::{File, OpenOptions};
use runtime::io::{AsyncRead, AsyncReadExt, AsyncWrite, BufResult};

use crate::kit::{everywhere, same_error};

#[test]
fn every_combination_of_options_does_what_stds_does() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        for bits in 0..64 {
            for exists in [false, true] {
                let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
                for path in [&ours, &theirs] {
                    let _ = std::fs::remove_file(path);
                    if exists {
                        std::fs::write(path, "content").unwrap();
                    }
                }
                let on = |bit: u32| bits >> bit & 1 == 1;
                let mut options = OpenOptions::new();
                options.read(on(0)).write(on(1)).append(on(2)).truncate(on(3)).create(on(4)).create_new(on(5));
                options.mode(0o640);
                let mut std_options = std::fs::OpenOptions::new();
                std_options.read(on(0)).write(on(1)).append(on(2)).truncate(on(3)).create(on(4)).create_new(on(5));
                std_options.mode(0o640);
                match (options.open(&ours).await, std_options.open(&theirs)) {
                    (Ok(mut file), Ok(mut std_file)) => {
                        let wrote = file.write_all("12").await.0.is_ok();
                        assert_eq!(wrote, std_file.write_all(b"12").is_ok(), "{bits:b} {exists}");
                        let mut rest = Vec::new();
                        let mut std_rest = Vec::new();
                        let read = file.read_to_end(&mut rest).await.is_ok();
                        assert_eq!(read, std::io::Read::read_to_end(&mut std_file, &mut std_rest).is_ok());
                        assert_eq!(rest, std_rest, "{bits:b} {exists}");
                    }
                    (Err(ours), Err(theirs)) => assert_eq!(ours.kind(), theirs.kind(), "{bits:b} {exists}"),
                    (ours, theirs) => panic!("{bits:b} {exists}: {ours:?}, but std says {theirs:?}"),
                }
                assert_eq!(std::fs::read(&ours).ok(), std::fs::read(&theirs).ok(), "{bits:b} {exists}");
                let mode = |path| std::fs::metadata(path).ok().map(|metadata| metadata.permissions().mode());
                assert_eq!(mode(&ours), mode(&theirs), "{bits:b} {exists}");
            }
        }
    });
}

#[test]
fn custom_flags_reach_the_kernel() {
    const O_NOFOLLOW: i32 = 0o400_000;
    const O_DIRECTORY: i32 = 0o200_000;
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        // The values of x86-64; elsewhere they are other flags, which std passes on just the same.
        for (path, flags) in [(&link, O_NOFOLLOW), (&file, O_DIRECTORY)] {
            let theirs = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
            let ours = OpenOptions::new().read(true).custom_flags(flags).open(path).await;
            match theirs {
                Err(_) => same_error(ours, theirs),
                Ok(_) => drop(ours.unwrap()),
            }
        }
        same_error(File::create_new(&file).await, std::fs::File::create_new(&file));
        same_error(File::create_new(&link).await, std::fs::File::create_new(&link));
    });
}

#[test]
fn what_appends_appends_whatever_the_offset_says() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "AAAA").unwrap();
        let mut log = OpenOptions::new().read(true).append(true).open(&path).await.unwrap();
        assert_eq!(log.write_at("Z", 0).await.0.unwrap(), 1);
        assert_eq!(std::fs::read(&path).unwrap(), b"AAAAZ");
        // The cursor reads from the start, and is at the end after an append.
        let (_, first) = log.read_exact(Vec::with_capacity(2)).await.into_result().unwrap();
        assert_eq!(first, b"AA");
        log.write_all("end").await.0.unwrap();
        assert_eq!(log.stream_position().await.unwrap(), 8);
        let mut rest = Vec::new();
        assert_eq!(log.read_to_end(&mut rest).await.unwrap(), 0);
        // Somebody else appends in between: nothing is overwritten.
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"!").unwrap();
        log.write_all("more").await.0.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"AAAAZend!more");
        let BufResult(result, data) = log.write_all_at_sync("x", 0).await;
        assert_eq!((result.unwrap_err().kind(), data), (std::io::ErrorKind::InvalidInput, "x"));
        // It is known of a descriptor, too.
        let mut taken = File::from(std::fs::OpenOptions::new().append(true).open(&path).unwrap());
        taken.write_all("?").await.0.unwrap();
        assert_eq!(taken.stream_position().await.unwrap(), 14);
    });
}
