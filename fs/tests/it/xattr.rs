//! Extended attributes: of paths and of files, whatever their size, and the errors of those who have none.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::process::Command;

use runtime::fs::{self, File};

use crate::kit::{dropped_after, everywhere};

/// Whether attributes of users are kept here; says so if not.
async fn are_kept(path: &std::path::Path) -> bool {
    match fs::set_xattr(path, "user.test", "").await {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            eprintln!("{} keeps no attributes of users", path.display());
            false
        }
    }
}

#[test]
fn attributes_are_kept_listed_replaced_and_removed() {
    everywhere(|| async {
        let tmp = tempfile::tempdir().unwrap();
        let (path, link) = (tmp.path().join("file"), tmp.path().join("link"));
        let file = File::create(&path).await.unwrap();
        if !are_kept(&path).await {
            return;
        }
        symlink("file", &link).unwrap();
        assert_eq!(fs::xattr(&path, "user.test").await.unwrap().unwrap(), b"");
        assert_eq!(fs::xattr(&path, "user.none").await.unwrap(), None);
        assert_eq!(file.xattr("user.none").await.unwrap(), None);
        // Larger than the first try, and with bytes that are no text.
        let large: Vec<u8> = (0..2000u32).map(|i| i as u8).collect();
        file.set_xattr("user.large", &large).await.unwrap();
        assert_eq!(fs::xattr(&link, "user.large").await.unwrap().unwrap(), large, "links are followed");
        fs::set_xattr(&link, "user.large", "small").await.unwrap();
        assert_eq!(file.xattr("user.large").await.unwrap().unwrap(), b"small");
        let mut names = file.xattrs().await.unwrap();
        names.retain(|name| name.as_encoded_bytes().starts_with(b"user."));
        names.sort();
        assert_eq!(names, ["user.large", "user.test"]);
        file.remove_xattr("user.large").await.unwrap();
        assert_eq!(file.remove_xattr("user.large").await.unwrap_err().raw_os_error(), Some(61));
        fs::remove_xattr(&link, "user.test").await.unwrap();
        assert!(fs::xattrs(&path).await.unwrap().iter().all(|name| !name.as_encoded_bytes().starts_with(b"user.")));
        // Another program sees the same.
        file.set_xattr("user.seen", "by others").await.unwrap();
        if let Ok(output) = Command::new("getfattr").args(["-n", "user.seen", "--only-values"]).arg(&path).output() {
            assert_eq!(output.stdout, b"by others");
        }
        // Changes that were dropped are waited for.
        for round in 0..50 {
            dropped_after(1 + round % 3, file.set_xattr("user.seen", "old")).await;
            file.set_xattr("user.seen", format!("{round}")).await.unwrap();
            assert_eq!(fs::xattr(&path, "user.seen").await.unwrap().unwrap(), round.to_string().as_bytes());
        }
    });
}

#[test]
fn errors_of_attributes_are_the_kernels() {
    everywhere(|| async {
        let tmp = tempfile::NamedTempFile::new().unwrap();
        let missing = tmp.path().join("missing");
        assert_eq!(fs::xattr(&missing, "user.x").await.unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(fs::set_xattr("/nowhere", "user.x", "").await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::xattrs("/nowhere").await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::remove_xattr("/nowhere", "user.x").await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::xattr(tmp.path(), "a\0b").await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(
            fs::set_xattr(tmp.path(), "no space of names", "").await.unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        let file = File::open(tmp.path()).await.unwrap();
        assert_eq!(file.set_xattr("user.x", vec![0; 70_000]).await.unwrap_err().raw_os_error(), Some(7), "E2BIG");
        assert_eq!(file.xattr("n".repeat(300)).await.unwrap_err().raw_os_error(), Some(34), "ERANGE: the name");
        // What was refused has left the file as usable as before.
        assert!(file.as_raw_fd() >= 0 && file.sync_all().await.is_ok());
    });
}
