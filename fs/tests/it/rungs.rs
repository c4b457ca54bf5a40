//! Which rung was taken, and direct I/O: what depends on the file system, and says so.

use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use runtime::Builder;
use runtime::fs::{self, AlignedBuf, File, OpenOptions};
use runtime::io::{BufResult, IoBuf};
use runtime_core::op::open::O_DIRECT;
use runtime_core::op::{Kind, Rung};

use crate::kit::{everywhere, same_error};
use crate::support::watchdog;

/// The file system that a path is on, as the list of mounts says.
fn file_system(path: &std::path::Path) -> String {
    let path = path.canonicalize().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    // The last one of the longest is on top.
    mounts.filter(|mount| path.starts_with(mount[1])).max_by_key(|mount| mount[1].len()).unwrap()[2].to_owned()
}

#[test]
fn metadata_in_memory_needs_no_worker_where_that_is_known_to_be_safe() {
    let _watchdog = watchdog(Duration::from_secs(20));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "12345").unwrap();
    let rt = Builder::new().build().unwrap();
    let (inline, ring) = (|| rt.metrics().ops(Kind::Stat, Rung::Inline), || rt.metrics().ops(Kind::Stat, Rung::Ring));
    rt.block_on(async {
        let file = File::open(&path).await.unwrap();
        for _ in 0..100 {
            assert_eq!(fs::metadata(&path).await.unwrap().len(), 5);
            assert_eq!(file.metadata().await.unwrap().len(), 5);
        }
    });
    let name = file_system(dir.path());
    if ["ext4", "xfs", "btrfs", "tmpfs"].contains(&&*name) {
        assert!(inline() >= 190, "on {name} {} were inline and {} went to the ring", inline(), ring());
    } else {
        assert_eq!((inline(), ring()), (0, 200), "{name}");
    }
    // What asks others, or makes it up, is left to a worker.
    let before = inline();
    rt.block_on(async {
        for _ in 0..10 {
            assert_eq!(fs::metadata("/proc/self/status").await.unwrap().len(), 0);
        }
    });
    assert_eq!(inline(), before, "procfs is on no list");
    // A task that finds everything in memory lets others run.
    rt.block_on(async {
        let other = runtime::spawn(async {});
        for _ in 0..1000 {
            fs::metadata(&path).await.unwrap();
        }
        assert!(other.is_finished());
    });
}

#[test]
fn metadata_is_right_when_no_descriptor_is_free() {
    crate::support::in_child("rungs::metadata_is_right_when_no_descriptor_is_free", Duration::from_secs(30), || {
        let _watchdog = watchdog(Duration::from_secs(20));
        let dir = tempfile::tempdir().unwrap();
        let rt = Builder::new().build().unwrap();
        rt.block_on(async {
            fs::metadata(dir.path()).await.unwrap();
            let mut taken = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                taken.push(file);
            }
            assert!(fs::metadata(dir.path()).await.unwrap().is_dir());
            assert_eq!(File::open("/dev/null").await.unwrap_err().raw_os_error(), Some(24));
            drop(taken);
        });
    });
}

#[test]
fn direct_transfers_work_when_aligned_and_name_the_alignment_when_not() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("direct");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let ours = OpenOptions::new().read(true).write(true).direct(true).open(&path).await;
        let theirs = std::fs::OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(&path);
        if theirs.is_err() {
            eprintln!("{} has no direct I/O; its error is compared instead", file_system(dir.path()));
            return same_error(ours, theirs);
        }
        let file = ours.unwrap();
        let Some(align) = file.direct_align().await.unwrap() else {
            eprintln!("{} does not tell what has to be aligned", file_system(dir.path()));
            return;
        };
        let (memory, block) = (align.memory as usize, align.offset as usize);
        let mut buf = AlignedBuf::new(block.max(4096) * 2, memory.max(4096)).unwrap();
        buf.resize(block.max(4096));
        buf.fill(9);
        let (n, buf) = file.write_at(buf, 0).await.into_result().unwrap();
        assert_eq!(n, block.max(4096));
        let (n, buf) = file.read_at(buf, 8192).await.into_result().unwrap();
        assert_eq!((n, &buf[..]), (1808, &[7; 1808][..]), "up to the end, which is not aligned");
        // The offset, the length, the address: each with the buffer back.
        let BufResult(result, buf) = file.read_at(buf, 1).await;
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("the offset must be a multiple of {block}")), "{error}");
        let mut buf = buf;
        buf.resize(100);
        let BufResult(result, buf) = file.write_all_at(buf, 0).await;
        assert!(result.unwrap_err().to_string().contains("the length"));
        if memory > 1 {
            let BufResult(result, buf) = file.read_at(buf.slice(1..1 + block), 0).await;
            assert!(result.unwrap_err().to_string().contains("the buffer's address"));
            assert_eq!(buf.into_inner().align(), memory.max(4096));
        }
        let content = std::fs::read(&path).unwrap();
        assert!(content[..4096].iter().all(|&byte| byte == 9) && content.len() >= 10_000);
    });
}
