//! However many operations of files are under way, the kernel's workers stay within their bound, and sockets need none.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use runtime::Builder;
use runtime::fs::File;
use runtime::net::TcpStream;

use crate::support::{in_child, watchdog};

const MANY: usize = 1_000;
const SOCKETS: usize = 500;
const PIECE: usize = 4_096;

/// Whether this process may open so many descriptors; says so where not.
fn may_open(count: usize) -> bool {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX);
    if soft < count {
        eprintln!("SKIP: the limit of descriptors is {soft}");
    }
    soft >= count
}

/// The blocking pool, which a mount is asked about by, does not count.
fn kernel_workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(name).filter(|name| name.starts_with("iou-wrk")).count()
}

/// A piece that tells where it belongs.
fn piece(n: usize) -> Vec<u8> {
    (0..PIECE).map(|at| (n * 7 + at / 64) as u8).collect()
}

#[test]
fn a_thousand_operations_of_files_beside_idle_sockets_stay_within_the_bound_of_workers() {
    let name = "workers::a_thousand_operations_of_files_beside_idle_sockets_stay_within_the_bound_of_workers";
    in_child(name, Duration::from_secs(60), || {
        if !may_open(2 * SOCKETS + MANY + 100) {
            return;
        }
        let _watchdog = watchdog(Duration::from_secs(50));
        let rt = Builder::new().build().unwrap();
        // The default of `Builder::io_workers`, which counts for files.
        let bound = 4 * std::thread::available_parallelism().unwrap().get();
        rt.block_on(async {
            let (stop, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&most));
            let observer = std::thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    seen.fetch_max(kernel_workers(), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut peers = Vec::new();
            for _ in 0..SOCKETS {
                let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                peers.push(listener.accept().unwrap().0);
                runtime::spawn(async move { stream.read(Vec::with_capacity(8)).await.0 });
            }

            let begun = Instant::now();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            let file = Rc::new(File::create(&path).await.unwrap());
            // A sync takes a worker in any case; a write of a fresh page may.
            let changes: Vec<_> = (0..MANY)
                .map(|n| {
                    let file = Rc::clone(&file);
                    runtime::spawn(async move {
                        file.write_all_at(piece(n), (n * PIECE) as u64).await.0.unwrap();
                        if n % 2 == 0 { file.sync_data().await.unwrap() } else { file.sync_all().await.unwrap() }
                    })
                })
                .collect();
            for change in changes {
                change.await.unwrap();
            }
            let file = Rc::new(File::open(&path).await.unwrap());
            let reads: Vec<_> = (0..MANY)
                .map(|n| {
                    let file = Rc::clone(&file);
                    runtime::spawn(async move {
                        let data =
                            file.read_exact_at(vec![0; PIECE], (n * PIECE) as u64).await.into_result().unwrap().1;
                        assert!(data == piece(n), "piece {n}");
                    })
                })
                .collect();
            for read in reads {
                read.await.unwrap();
            }
            let took = begun.elapsed();

            stop.store(true, Ordering::Relaxed);
            observer.join().unwrap();
            let workers = most.load(Ordering::Relaxed);
            println!("{workers} workers in {took:?}");
            assert!(workers > 0, "syncs need a worker: this test tests nothing");
            // What is asked of names may have had some more, as on overlayfs: those do not count as workers for files.
            assert!(workers <= 2 * bound, "{workers} workers where {bound} are allowed");
            assert!(took < Duration::from_secs(20), "{took:?}");
            drop(peers);
        });
    });
}
