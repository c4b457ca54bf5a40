//! What std's own tests of files hold, as behaviours written anew. Those that stand in other files:
//!
//! | behaviour | test |
//! |---|---|
//! | what is written is read; binary contents; reads in pieces | `what_is_written_is_read`, `cursor::*` |
//! | offsets and the cursor do not know of each other; seeking and telling; nothing is read at the end | `cursor::*`, `at::*` |
//! | every combination of options; contradictions are errors | `options::every_combination_of_options_does_what_stds_does` |
//! | missing files, files as directories, NUL bytes: std's errors | `errors_are_stds`, `names::errors_of_names_are_stds` |
//! | metadata of files, directories, links, sockets and devices, times before 1970 | `names::metadata_is_stds_in_every_field` |
//! | links, hard links, what links say, canonical paths, removing trees with links | `names::names_come_and_go_as_with_std` |
//! | directories are listed whole; entries know kind and metadata | `names::directories_are_read_whole_and_in_pieces` |
//! | copies: contents, permissions, over others, of special files, to itself | `copying::*` |
//! | locks exclude, are shared, and go with the file | `order::locks_exclude_wait_and_are_not_kept_by_who_is_gone` |
//! | syncs harm nothing; lengths grow and shrink | `order::*`, `durable::*`, `model::*` |

use std::io::SeekFrom;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use runtime::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use runtime::io::{AsyncBufRead, AsyncRead, AsyncReadExt, AsyncWrite, BufReader, BufResult};

use crate::kit::{everywhere, same_error};
use crate::support::{am_child, in_child};

#[test]
fn new_is_new_and_there_is_there() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert!(!fs::exists(at("file")).await.unwrap());
        drop(File::create_new(at("file")).await.unwrap());
        assert!(fs::exists(at("file")).await.unwrap());
        same_error(File::create_new(at("file")).await, std::fs::File::create_new(at("file")));
        same_error(fs::create_dir(at("file")).await, std::fs::create_dir(at("file")));
        fs::remove_file(at("file")).await.unwrap();
        assert!(!fs::exists(at("file")).await.unwrap());
        same_error(fs::remove_file(at("file")).await, std::fs::remove_file(at("file")));
        // Names that are no ASCII, and none that are no text.
        let odd = dir.path().join(std::ffi::OsStr::new("test-각丁ー再见"));
        fs::create_dir(&odd).await.unwrap();
        assert!(fs::metadata(&odd).await.unwrap().is_dir());
        let bytes: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe\x01");
        fs::write(dir.path().join(bytes), "raw").await.0.unwrap();
        assert_eq!(fs::read(dir.path().join(bytes)).await.unwrap(), b"raw");
        let mut entries = fs::read_dir(dir.path()).await.unwrap();
        let mut found = false;
        while let Some(entry) = entries.next_entry().await.unwrap() {
            found |= entry.file_name() == bytes;
        }
        assert!(found, "nothing of the name is lost");
        // A slash at the end, and dots on the way.
        fs::create_dir(format!("{}/", at("slash").display())).await.unwrap();
        fs::create_dir_all(at("slash/./more/../again/")).await.unwrap();
        assert!(at("slash/again").is_dir());
        fs::create_dir_all("").await.unwrap();
        fs::create_dir_all("/").await.unwrap();
        // What only may be read is removed, and a directory renamed.
        fs::write(at("slash/readonly"), "").await.0.unwrap();
        fs::set_permissions(at("slash/readonly"), Permissions::from_mode(0o400)).await.unwrap();
        fs::remove_file(at("slash/readonly")).await.unwrap();
        fs::rename(at("slash"), at("moved")).await.unwrap();
        assert!(at("moved/again").is_dir() && !at("slash").exists());
    });
}

#[test]
fn trees_are_made_at_once_by_many_and_removed_whole() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c/d/e/f");
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let path = path.clone();
                runtime::spawn(async move { fs::create_dir_all(path).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert!(path.is_dir());
        std::fs::write(path.join("file"), "").unwrap();
        same_error(fs::create_dir_all(path.join("file")).await, std::fs::create_dir_all(path.join("file")));
        same_error(fs::create_dir_all(path.join("file/x")).await, std::fs::create_dir_all(path.join("file/x")));
        same_error(fs::remove_dir(dir.path().join("a")).await, std::fs::remove_dir(dir.path().join("a")));
        same_error(fs::remove_dir_all(path.join("file")).await, std::fs::remove_dir_all(path.join("file")));
        same_error(fs::remove_dir_all(path.join("none")).await, std::fs::remove_dir_all(path.join("none")));
        // A link to a tree goes alone.
        let link = dir.path().join("link");
        symlink(dir.path().join("a"), &link).unwrap();
        fs::remove_dir_all(&link).await.unwrap();
        assert!(path.is_dir() && link.symlink_metadata().is_err());
        fs::remove_dir_all(dir.path().join("a")).await.unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    });
}

#[test]
fn links_are_followed_where_std_follows_them() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("dir")).unwrap();
        std::fs::write(at("dir/file"), "content").unwrap();
        symlink("dir", at("link")).unwrap();
        symlink("dir/file", at("to-file")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        let mut entries = fs::read_dir(at("link")).await.unwrap();
        let entry = entries.next_entry().await.unwrap().unwrap();
        assert_eq!(entry.path(), at("link").join("file"));
        assert_eq!(format!("{entry:?}"), format!("DirEntry({:?})", at("link/file")));
        assert!(entry.file_type().await.unwrap().is_file());
        // Writing through a link; making something of a dangling one.
        fs::write(at("to-file"), "changed").await.0.unwrap();
        assert_eq!(std::fs::read(at("dir/file")).unwrap(), b"changed");
        fs::write(at("dangling"), "made").await.0.unwrap();
        assert_eq!(std::fs::read(at("nowhere")).unwrap(), b"made");
        fs::copy(at("nowhere"), at("to-file")).await.unwrap();
        assert!(at("to-file").is_symlink() && std::fs::read(at("dir/file")).unwrap() == b"made");
        same_error(fs::read_link(at("dir")).await, std::fs::read_link(at("dir")));
        same_error(fs::read_dir(at("none")).await, std::fs::read_dir(at("none")));
        same_error(fs::read_dir(at("to-file")).await, std::fs::read_dir(at("to-file")));
        for path in [at("link/file"), at("link/../to-file"), dir.path().join("./dir/./file"), "/proc/self".into()] {
            assert_eq!(fs::canonicalize(&path).await.unwrap(), std::fs::canonicalize(&path).unwrap());
        }
    });
}

#[test]
fn times_and_permissions_are_set_on_the_open_file() {
    everywhere(|| async {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = File::from(path.reopen().unwrap());
        let (accessed, modified) =
            (SystemTime::UNIX_EPOCH + Duration::from_secs(12_345), SystemTime::UNIX_EPOCH + Duration::new(54_321, 7));
        file.set_times(FileTimes::new().set_accessed(accessed).set_modified(modified)).await.unwrap();
        let metadata = file.metadata().await.unwrap();
        assert_eq!((metadata.accessed().unwrap(), metadata.modified().unwrap()), (accessed, modified));
        for mode in [0o400, 0o666, 0o755] {
            file.set_permissions(Permissions::from_mode(mode)).await.unwrap();
            assert_eq!(fs::metadata(path.path()).await.unwrap().mode() & 0o7777, mode);
            assert_eq!(file.metadata().await.unwrap().permissions().readonly(), mode == 0o400);
        }
        let missing = Path::new("/nowhere/at all");
        let permissions = || Permissions::from_mode(0o600);
        same_error(fs::set_permissions(missing, permissions()).await, std::fs::set_permissions(missing, permissions()));
    });
}

#[test]
fn clones_have_cursors_of_their_own_and_see_the_same_file() {
    everywhere(|| async {
        let mut file = File::from(tempfile::tempfile().unwrap());
        file.write_all("hello world").await.0.unwrap();
        let mut other = file.try_clone().unwrap();
        assert_eq!(other.stream_position().await.unwrap(), 11, "it starts where the other one is");
        other.rewind().await.unwrap();
        assert_eq!(file.stream_position().await.unwrap(), 11);
        let mut text = String::new();
        other.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello world");
        other.set_len(5).await.unwrap();
        assert_eq!(file.seek(SeekFrom::End(0)).await.unwrap(), 5);
        drop(file);
        assert_eq!(other.read_at(Vec::with_capacity(9), 0).await.0.unwrap(), 5);
    });
}

#[test]
fn files_are_send_and_sync_and_go_to_other_threads() {
    fn is_send_and_sync<T: Send + Sync>(_: &T) {}
    let file = runtime::Builder::new().build().unwrap().block_on(async {
        let file = File::from(tempfile::tempfile().unwrap());
        file.write_all_at("from here", 0).await.0.unwrap();
        file
    });
    is_send_and_sync(&file);
    let there = std::thread::spawn(move || {
        runtime::Builder::new().build().unwrap().block_on(async {
            let (_, text) = file.read_to_end_at(Vec::new(), 0).await.into_result().unwrap();
            file.close().await.unwrap();
            text
        })
    });
    assert_eq!(there.join().unwrap(), b"from here");
}

#[test]
fn new_things_have_the_mode_that_was_asked_less_the_umask() {
    const NAME: &str = "as_std::new_things_have_the_mode_that_was_asked_less_the_umask";
    in_child(NAME, Duration::from_secs(30), || {
        // The mask is the process's; a shell sets it, and starts this test again.
        if std::env::var_os("RUNTIME_TEST_UMASK").is_none() {
            let output = Command::new("sh")
                .args(["-c", "umask 022; exec \"$0\" \"$@\""])
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", NAME, "--test-threads=1"])
                .env("RUNTIME_TEST_UMASK", "022")
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        everywhere(|| async {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            let mode = |name: &str| std::fs::metadata(at(name)).unwrap().mode() & 0o7777;
            File::create(at("file")).await.unwrap();
            OpenOptions::new().write(true).create(true).mode(0o600).open(at("private")).await.unwrap();
            OpenOptions::new().write(true).create(true).mode(0o666).open(at("public")).await.unwrap();
            fs::create_dir(at("dir")).await.unwrap();
            fs::create_dir_all(at("tree/below")).await.unwrap();
            DirBuilder::new().mode(0o700).recursive(true).create(at("own/below")).await.unwrap();
            fs::Dir::open(dir.path()).await.unwrap().create_dir("at").await.unwrap();
            assert_eq!([mode("file"), mode("private"), mode("public")], [0o644, 0o600, 0o644]);
            assert_eq!([mode("dir"), mode("tree"), mode("tree/below"), mode("at")], [0o755; 4]);
            assert_eq!([mode("own"), mode("own/below")], [0o700; 2]);
        });
    });
}

#[test]
fn a_redirected_output_goes_on_where_it_was() {
    const NAME: &str = "as_std::a_redirected_output_goes_on_where_it_was";
    if am_child(NAME) {
        // Standard output is a file that is not at its start.
        return runtime::Builder::new().build().unwrap().block_on(async {
            let mut out = File::from(std::io::stderr().as_fd().try_clone_to_owned().unwrap());
            out.write_all("and the rest").await.0.unwrap();
            out.into_std().await.unwrap();
        });
    }
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, b"ten bytes.").unwrap();
    let status = Command::new("/proc/self/exe")
        .args(["--exact", NAME, "--test-threads=1", "--nocapture"])
        .env("RUNTIME_TEST_CHILD", NAME)
        .stdout(std::process::Stdio::null())
        .stderr(file.try_clone().unwrap())
        .status()
        .unwrap();
    assert!(status.success());
    let mut text = String::new();
    std::io::Seek::rewind(&mut file).unwrap();
    std::io::Read::read_to_string(&mut file, &mut text).unwrap();
    assert!(text.starts_with("ten bytes.and the rest"), "{text}");
}

#[test]
fn a_reader_that_skips_behind_the_end_finds_nothing() {
    everywhere(|| async {
        let std = tempfile::tempfile().unwrap();
        std.set_len(100_000).unwrap();
        let mut file = File::from(std);
        file.seek(SeekFrom::Start(200_000)).await.unwrap();
        let mut reader = BufReader::new(file);
        assert!(reader.fill_buf().await.unwrap().is_empty());
        let (n, _) = reader.read(vec![1; 10]).await.into_result().unwrap();
        assert_eq!(n, 0);
    });
}

#[test]
fn a_thousand_failed_writes_leave_nothing_behind() {
    in_child("as_std::a_thousand_failed_writes_leave_nothing_behind", Duration::from_secs(30), || {
        everywhere(|| async {
            let full = OpenOptions::new().write(true).open("/dev/full").await.unwrap();
            let base = crate::support::fds();
            let mut data = vec![7; 10_000];
            for _ in 0..1000 {
                let BufResult(result, back) = full.write_all_at(data, 0).await;
                assert_eq!(result.unwrap_err().raw_os_error(), Some(28));
                data = back;
            }
            assert!(data == vec![7; 10_000]);
            assert_eq!(runtime::testing::in_flight(), 0);
            // Fewer, if what was dropped before has only been closed meanwhile.
            assert!(crate::support::fds() <= base);
            let file = File::from(tempfile::tempfile().unwrap());
            file.write_all_at(data, 0).await.0.unwrap();
            assert_eq!(file.metadata().await.unwrap().len(), 10_000);
        });
    });
}
