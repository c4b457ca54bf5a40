//! The end of a process whose runtime is busy: its exit code, and that nothing keeps it.

use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use runtime::Runtime;
use runtime::op::submit;

use crate::scene::{Guards, pend_on_everything, timed};
use crate::support::{am_child, in_child, run_child};

const LIMIT: Duration = Duration::from_secs(40);

#[runtime::main]
async fn returns_in_mid_flight() {
    let dir = tempfile::tempdir().unwrap();
    // The other sides stay open: nothing but the end of the runtime ends what waits for them.
    std::mem::forget(pend_on_everything(&Guards::default(), dir.path()).await);
    println!("returning");
}

#[test]
fn a_main_that_returns_with_everything_pending_is_a_process_that_ends() {
    let name = "shutdown_process::a_main_that_returns_with_everything_pending_is_a_process_that_ends";
    if am_child(name) {
        return returns_in_mid_flight();
    }
    let (child, took) = timed(|| run_child(name, LIMIT, &[]));
    assert_eq!(child.status.code(), Some(0), "{}", child.text);
    assert!(child.text.contains("returning"), "{}", child.text);
    // The runtime's own limit is longer: had anything been waited for in vain, it would show.
    assert!(took < crate::support::scaled(Duration::from_millis(2500)), "{took:?}");
}

#[test]
fn exit_inside_a_task_ends_the_process_with_its_code() {
    let name = "shutdown_process::exit_inside_a_task_ends_the_process_with_its_code";
    if am_child(name) {
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let _keep = pend_on_everything(&Guards::default(), dir.path()).await;
            runtime::spawn(async { std::process::exit(7) }).await.unwrap();
        });
    }
    let (child, took) = timed(|| run_child(name, LIMIT, &[]));
    assert_eq!(child.status.code(), Some(7), "{}", child.text);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_panic_with_everything_pending_is_exit_code_101_and_no_abort() {
    let name = "shutdown_process::a_panic_with_everything_pending_is_exit_code_101_and_no_abort";
    struct PanicOnDrop;
    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            panic!("a destructor panics");
        }
    }
    if am_child(name) {
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let _keep = pend_on_everything(&Guards::default(), dir.path()).await;
            for _ in 0..3 {
                drop(runtime::spawn(async {
                    let _panics = PanicOnDrop;
                    std::future::pending::<()>().await;
                }));
            }
            runtime::task::yield_now().await;
            panic!("main panics");
        });
    }
    let (child, took) = timed(|| run_child(name, LIMIT, &[]));
    assert_eq!(child.status.code(), Some(101), "{}", child.text);
    assert!(child.text.contains("main panics"), "{}", child.text);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_pending_read_of_standard_input_does_not_keep_the_process() {
    let name = "shutdown_process::a_pending_read_of_standard_input_does_not_keep_the_process";
    let limit = Duration::from_secs(2);
    if am_child(name) {
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            let stdin = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
            let read = runtime_core::op::read::Read::new(stdin, vec![0u8; 8], 0, u64::MAX);
            drop(runtime::spawn(async move { drop(submit(read).await) }));
            drop(runtime::spawn_blocking(|| std::io::stdin().read(&mut [0; 8]).unwrap_or(0)));
            runtime::time::sleep(Duration::from_millis(50)).await;
        });
        return;
    }
    // Open and silent for as long as the child lives.
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--test-threads=1"])
        .env("RUNTIME_TEST_CHILD", name)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let _silent = child.stdin.take();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > crate::support::scaled(limit) {
            child.kill().unwrap();
            panic!("not gone after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_blocking_job_that_hangs_keeps_neither_the_runtime_nor_the_process() {
    let name = "shutdown_process::a_blocking_job_that_hangs_keeps_neither_the_runtime_nor_the_process";
    in_child(name, Duration::from_secs(10), || {
        let rt = Runtime::new().unwrap();
        let mut handle = None;
        rt.block_on(async {
            handle = Some(runtime::spawn_blocking(|| std::thread::sleep(Duration::from_secs(3600))));
            runtime::time::sleep(Duration::from_millis(20)).await;
        });
        let ((), took) = timed(|| drop(rt));
        assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(3), "{took:?}");
        assert!(!handle.unwrap().is_finished());
    });
}
