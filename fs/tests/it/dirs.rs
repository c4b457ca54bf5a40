//! Open directories and names relative to them, how paths are walked, and files that are only named.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

use runtime::fs::{self, Dir, File, OpenOptions, Permissions, Resolve};

use crate::kit::{dropped_after, everywhere, same_error};
use crate::support::{eventually, fds, in_child};

#[test]
fn names_below_an_open_directory_follow_it_wherever_it_is_moved() {
    everywhere(|| async {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        std::fs::create_dir(at("first")).unwrap();
        let dir = Dir::open(at("first")).await.unwrap();
        std::fs::rename(at("first"), at("second")).unwrap();
        std::fs::create_dir(at("first")).unwrap();

        let mut create = OpenOptions::new();
        create.read(true).write(true).create_new(true).mode(0o640);
        let file = dir.open_file_with("file", &create).await.unwrap();
        file.write_all_at("here", 0).await.0.unwrap();
        same_error(dir.open_file_with("file", &create).await, std::fs::File::create_new(at("second/file")));
        assert_eq!(std::fs::read(at("second/file")).unwrap(), b"here");
        let (n, _) =
            dir.open_file("file").await.unwrap().read_at(Vec::with_capacity(9), 0).await.into_result().unwrap();
        assert_eq!(n, 4);
        dir.create_dir("below").await.unwrap();
        let below = dir.open_dir("below").await.unwrap();
        assert!(below.dir_metadata().await.unwrap().is_dir());
        dir.symlink("file", "link").await.unwrap();
        assert_eq!(dir.read_link("link").await.unwrap().as_os_str(), "file");
        assert!(dir.symlink_metadata("link").await.unwrap().is_symlink());
        assert_eq!(dir.metadata("link").await.unwrap().ino(), std::fs::metadata(at("second/file")).unwrap().ino());
        dir.hard_link("file", &below, "twin").await.unwrap();
        assert_eq!(below.metadata("twin").await.unwrap().nlink(), 2);
        below.rename("twin", &dir, "moved").await.unwrap();
        assert!(!below.try_exists("twin").await.unwrap() && dir.try_exists("moved").await.unwrap());
        dir.set_permissions("moved", Permissions::from_mode(0o600)).await.unwrap();
        assert_eq!(std::fs::metadata(at("second/file")).unwrap().mode() & 0o777, 0o600);
        dir.sync_all().await.unwrap();

        for _ in 0..2 {
            // From the start each time.
            let mut names = Vec::new();
            let mut entries = dir.read_dir().await.unwrap();
            while let Some(entry) = entries.next_entry().await.unwrap() {
                assert_eq!(entry.path().as_os_str(), entry.file_name());
                let theirs = std::fs::symlink_metadata(at("second").join(entry.file_name())).unwrap();
                assert_eq!(entry.metadata().await.unwrap().ino(), theirs.ino());
                names.push(entry.file_name());
            }
            names.sort();
            assert_eq!(names, ["below", "file", "link", "moved"]);
        }
        same_error(dir.remove_dir("file").await, std::fs::remove_dir(at("second/file")));
        same_error(dir.remove_file("below").await, std::fs::remove_file(at("second/below")));
        same_error(dir.open_dir("file").await, std::fs::read_dir(at("second/file")));
        same_error(dir.metadata("").await, std::fs::metadata(""));
        same_error(dir.metadata("file/below").await, std::fs::metadata(at("second/file/below")));
        assert_eq!(dir.create_dir("a\0b").await.unwrap_err().kind(), ErrorKind::InvalidInput);
        // Absolute paths are what they always are, and `..` leads out.
        assert_eq!(dir.metadata("/").await.unwrap().ino(), std::fs::metadata("/").unwrap().ino());
        assert_eq!(dir.metadata("..").await.unwrap().ino(), std::fs::metadata(tmp.path()).unwrap().ino());
        dir.remove_file("moved").await.unwrap();
        dir.remove_dir("below").await.unwrap();
        // The link goes, not what it leads to.
        symlink(at("first"), at("second/out")).unwrap();
        std::fs::write(at("first/kept"), "").unwrap();
        Dir::open(tmp.path()).await.unwrap().remove_dir_all("second").await.unwrap();
        assert!(!at("second").exists() && at("first/kept").exists());
        assert_eq!(dir.create_dir("gone").await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_path_is_walked_as_it_was_asked() {
    everywhere(|| async {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        std::fs::create_dir(at("dir")).unwrap();
        std::fs::write(at("dir/file"), "inside").unwrap();
        std::fs::write(at("secret"), "outside").unwrap();
        symlink("file", at("dir/link")).unwrap();
        symlink("../secret", at("dir/out")).unwrap();
        symlink("/file", at("dir/absolute")).unwrap();
        let dir = Dir::open(at("dir")).await.unwrap();
        let dir = &dir;
        let open = |path: &'static str, resolve| async move {
            let file = dir.open_file_with(path, OpenOptions::new().read(true).resolve(resolve)).await?;
            let (_, text) = file.read_to_end_at(Vec::new(), 0).await.into_result()?;
            std::io::Result::Ok(String::from_utf8(text).unwrap())
        };
        assert_eq!(open("link", Resolve::BENEATH).await.unwrap(), "inside");
        assert_eq!(open("out", Resolve::default()).await.unwrap(), "outside");
        for path in ["out", "../secret", "absolute", "/etc/passwd"] {
            assert_eq!(open(path, Resolve::BENEATH).await.unwrap_err().kind(), ErrorKind::CrossesDevices, "{path}");
        }
        assert_eq!(open("absolute", Resolve::IN_ROOT).await.unwrap(), "inside");
        assert_eq!(open("../../file", Resolve::IN_ROOT).await.unwrap(), "inside", "the root's parent is the root");
        assert_eq!(open("file", Resolve::NO_SYMLINKS).await.unwrap(), "inside");
        assert_eq!(open("link", Resolve::NO_SYMLINKS).await.unwrap_err().raw_os_error(), Some(40));
        let magic = OpenOptions::new().read(true).resolve(Resolve::NO_MAGICLINKS).open("/proc/self/exe").await;
        assert_eq!(magic.unwrap_err().raw_os_error(), Some(40));
        let other = OpenOptions::new().read(true).resolve(Resolve::NO_XDEV).open("/proc/version").await;
        assert_eq!(other.unwrap_err().kind(), ErrorKind::CrossesDevices);
        // What creates is walked so too, and its mode is kept.
        let mut create = OpenOptions::new();
        create.write(true).create(true).mode(0o600).resolve(Resolve::BENEATH | Resolve::NO_SYMLINKS);
        dir.open_file_with("new", &create).await.unwrap();
        assert_eq!(std::fs::metadata(at("dir/new")).unwrap().mode() & 0o777, 0o600);
        // A flag that it does not know is an error there, and is none otherwise.
        const UNKNOWN: i32 = 0o1_000_000_000;
        let odd = OpenOptions::new().read(true).custom_flags(UNKNOWN).resolve(Resolve::BENEATH).clone();
        assert_eq!(dir.open_file_with("file", &odd).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_file_that_is_only_named_tells_what_it_is_and_no_more() {
    everywhere(|| async {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        // Neither readable nor to be created: that is not asked.
        std::fs::set_permissions(&path, Permissions::from_mode(0o0)).unwrap();
        let mut name = OpenOptions::new();
        name.path_only(true).write(true).create_new(true);
        let named = name.open(&path).await.unwrap();
        assert_eq!(named.metadata().await.unwrap().len(), 5);
        assert_eq!(named.read_at([0; 4], 0).await.0.unwrap_err().raw_os_error(), Some(9));
        assert_eq!(named.write_at("no", 0).await.0.unwrap_err().raw_os_error(), Some(9));
        named.close().await.unwrap();
        // Not even a link is followed if that is asked too, and a directory serves as one.
        let link = tmp.path().join("link");
        symlink("nowhere", &link).unwrap();
        const O_NOFOLLOW: i32 = 0o400_000;
        let named = OpenOptions::new().path_only(true).custom_flags(O_NOFOLLOW).open(&link).await.unwrap();
        assert!(named.metadata().await.unwrap().is_symlink());
        let named = OpenOptions::new().path_only(true).open(tmp.path()).await.unwrap();
        let dir = Dir::from(OwnedFd::from(named.into_std().await.unwrap()));
        assert_eq!(dir.metadata("file").await.unwrap().len(), 5);
        let file = Dir::from(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        assert_eq!(file.metadata("x").await.unwrap_err().kind(), ErrorKind::NotADirectory);
    });
}

#[test]
fn what_is_written_with_dsync_is_there_and_the_flag_is_set() {
    everywhere(|| async {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("file");
        let file = OpenOptions::new().write(true).create(true).dsync(true).open(&path).await.unwrap();
        file.write_all_at("durable", 0).await.0.unwrap();
        let info = {
            use std::os::fd::AsRawFd;
            std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap()
        };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        assert_eq!(u32::from_str_radix(flags, 8).unwrap() & 0o10_000, 0o10_000, "O_DSYNC");
        assert_eq!(fs::read(&path).await.unwrap(), b"durable");
    });
}

#[test]
fn an_open_directory_is_closed_once_nobody_uses_it() {
    in_child("dirs::an_open_directory_is_closed_once_nobody_uses_it", Duration::from_secs(60), || {
        everywhere(|| async {
            let tmp = tempfile::tempdir().unwrap();
            std::fs::write(tmp.path().join("file"), "x").unwrap();
            let base = fds();
            for polls in 1..100 {
                let dir = Dir::open(tmp.path()).await.unwrap();
                dropped_after(polls % 4 + 1, dir.open_file("file")).await;
                dropped_after(polls % 4 + 1, dir.metadata("file")).await;
                dropped_after(polls % 4 + 1, dir.create_dir("dir")).await;
                dropped_after(polls % 4 + 1, dir.rename("dir", &dir, "other")).await;
                dropped_after(polls % 4 + 1, dir.remove_dir("other")).await;
                dropped_after(polls % 4 + 1, dir.read_dir()).await;
                dropped_after(polls % 4 + 1, Dir::open(tmp.path())).await;
            }
            while runtime::testing::in_flight() > 0 {
                runtime::task::yield_now().await;
            }
            eventually("descriptors back to base", || fds() == base);
            File::open(tmp.path().join("file")).await.unwrap().close().await.unwrap();
        });
    });
}
