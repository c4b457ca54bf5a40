//! All of these tests again on other file systems: tmpfs, and overlayfs in a mount namespace of the test's own. The
//! usual run is on whatever holds the temporary files, mostly ext4; /proc is read in several tests.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::scaled;

/// Runs this test binary again with its temporary files in `dir`. `wrapper` and its arguments come before it.
fn all_tests(dir: &Path, wrapper: &[&str]) -> Option<String> {
    let exe = std::env::current_exe().unwrap();
    let mut words = wrapper.iter().copied().map(std::ffi::OsString::from).chain([exe.into_os_string()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["--skip", "grounds::", "--skip", "full::", "--test-threads=2"]);
    command.env("TMPDIR", dir).env("RUNTIME_TEST_GROUND", dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return None };
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let readers = [
        std::thread::spawn(move || std::io::read_to_string(out).unwrap_or_default()),
        std::thread::spawn(move || std::io::read_to_string(err).unwrap_or_default()),
    ];
    let deadline = Instant::now() + scaled(Duration::from_secs(180));
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the tests on {} do not end", dir.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = readers.map(|reader| reader.join().unwrap()).concat();
    if status.code() == Some(99) || text.starts_with("unshare") {
        eprintln!("{}", text.trim());
        return None;
    }
    assert!(status.success(), "on {}:\n{text}", dir.display());
    Some(text)
}

#[test]
fn everything_holds_on_tmpfs() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: there is no /dev/shm");
        return;
    };
    let text = all_tests(dir.path(), &[]).expect("it can be started");
    assert!(text.contains(" passed; 0 failed"), "{text}");
}

#[test]
fn everything_holds_on_overlayfs() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let merged = dir.path().join("merged");
    let mount = "cd \"$TMPDIR/..\" && mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged || exit 99; \
                 cd / && exec \"$0\" \"$@\"";
    let wrapper = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount];
    match all_tests(&merged, &wrapper) {
        Some(text) => assert!(text.contains(" passed; 0 failed"), "{text}"),
        None => eprintln!("skipped: overlayfs may not be mounted here"),
    }
}
