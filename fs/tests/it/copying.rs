//! Copying files: the same bytes, holes and permissions, and what must not be harmed.

use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

use runtime::fs;

use crate::kit::{everywhere, same_error};

#[test]
fn a_copy_has_the_bytes_the_length_and_the_permissions() {
    everywhere(|| async {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        for (round, len) in [0u32, 1, 4095, 4096, 1_000_003].into_iter().enumerate() {
            let data: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            std::fs::write(at("from"), &data).unwrap();
            let mode = 0o400 + round as u32 * 8;
            std::fs::set_permissions(at("from"), std::fs::Permissions::from_mode(mode)).unwrap();
            // Over something longer, and to a new file.
            std::fs::write(at("over"), vec![9; 2_000_000]).unwrap();
            for to in [at("over"), at(&format!("new-{round}"))] {
                assert_eq!(fs::copy(at("from"), &to).await.unwrap(), u64::from(len));
                assert!(std::fs::read(&to).unwrap() == data, "{len} bytes to {to:?}");
                assert_eq!(std::fs::metadata(&to).unwrap().mode() & 0o7777, mode);
            }
            std::fs::remove_file(at("from")).unwrap();
        }
        // What has no length is read until it ends.
        let n = fs::copy("/proc/version", at("version")).await.unwrap();
        let version = std::fs::read("/proc/version").unwrap();
        assert!(n == version.len() as u64 && std::fs::read(at("version")).unwrap() == version);
        // Between two file systems.
        if let Ok(other) = tempfile::tempdir_in("/dev/shm") {
            std::fs::write(at("from"), vec![5; 300_000]).unwrap();
            assert_eq!(fs::copy(at("from"), other.path().join("to")).await.unwrap(), 300_000);
            assert!(std::fs::read(other.path().join("to")).unwrap() == vec![5; 300_000]);
        }
    });
}

#[test]
fn holes_stay_holes_where_the_file_system_knows_them() {
    everywhere(|| async {
        let tmp = tempfile::tempdir().unwrap();
        let (from, to) = (tmp.path().join("from"), tmp.path().join("to"));
        let file = std::fs::File::create(&from).unwrap();
        file.write_all_at(b"start", 0).unwrap();
        file.write_all_at(&[7; 100_000], 20 << 20).unwrap();
        // 5 GiB: beyond what 32 bits hold, and a hole at the end.
        file.set_len(5 << 30).unwrap();
        assert_eq!(fs::copy(&from, &to).await.unwrap(), 5 << 30);
        let (source, copy) = (std::fs::metadata(&from).unwrap(), std::fs::metadata(&to).unwrap());
        assert_eq!(copy.len(), 5 << 30);
        if source.blocks() < 10_000 {
            assert!(copy.blocks() < 10_000, "{} blocks of {}", copy.blocks(), source.blocks());
        }
        let copy = std::fs::File::open(&to).unwrap();
        let (mut start, mut middle) = ([0; 8], vec![0; 100_002]);
        copy.read_exact_at(&mut start, 0).unwrap();
        copy.read_exact_at(&mut middle, (20 << 20) - 1).unwrap();
        assert_eq!(&start, b"start\0\0\0");
        assert!(middle[0] == 0 && middle[100_001] == 0 && middle[1..100_001].iter().all(|&byte| byte == 7));
    });
}

#[test]
fn what_cannot_be_copied_is_an_error_and_harms_nothing() {
    everywhere(|| async {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        std::fs::write(at("from"), "precious").unwrap();
        std::fs::hard_link(at("from"), at("twin")).unwrap();
        symlink("from", at("link")).unwrap();
        for to in ["from", "twin", "link"] {
            assert_eq!(fs::copy(at("from"), at(to)).await.unwrap_err().kind(), ErrorKind::InvalidInput, "{to}");
            assert_eq!(std::fs::read(at("from")).unwrap(), b"precious");
        }
        same_error(fs::copy(at("missing"), at("to")).await, std::fs::copy(at("missing"), at("to")));
        assert!(!at("to").exists());
        same_error(fs::copy(at("from"), tmp.path()).await, std::fs::copy(at("from"), tmp.path()));
        same_error(fs::copy(at("from"), at("no/to")).await, std::fs::copy(at("from"), at("no/to")));
        assert_eq!(fs::copy(tmp.path(), at("to")).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(fs::copy(at("from"), "/dev/full").await.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(fs::copy(at("from"), "/dev/null").await.unwrap(), 8);
    });
}
