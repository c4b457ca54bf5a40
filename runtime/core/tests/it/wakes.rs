//! What a wake from another thread costs that thread: nothing of the kernel's while the runtime is awake, one system call
//! while it sleeps. The other thread's system calls are trapped and counted, so a kick does not even arrive.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use runtime::task::yield_now;
use runtime::time::sleep;
use runtime::{Builder, spawn};

use crate::raw::trap_calls;
use crate::support::in_child;

const LIMIT: Duration = Duration::from_secs(40);
const AWAKE: usize = 1_000;
const ASLEEP: usize = 5;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static LAST: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_trap(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // Behind signal, errno and code, and the address of the call: its number.
    // SAFETY: inside the structure.
    let number = unsafe { info.cast::<i32>().add(6) };
    // SAFETY: the kernel filled it for this signal.
    let number = unsafe { number.read() };
    LAST.store(number, Ordering::SeqCst);
    CALLS.fetch_add(1, Ordering::SeqCst);
}

/// Where the two threads are; both look at it without a system call.
#[derive(Default)]
struct Stage(AtomicUsize);

impl Stage {
    fn reach(&self, stage: usize) {
        self.0.store(stage, Ordering::SeqCst);
    }

    /// Turns on the spot: whoever waits in the kernel could not be told from one that calls it.
    fn wait_for(&self, stage: usize) {
        while self.0.load(Ordering::SeqCst) < stage {
            std::hint::spin_loop();
        }
    }
}

/// Waits until this thread of the process sleeps, and has slept for a while.
fn until_asleep(thread: i32) {
    let state = || {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
        let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        (of("State:"), of("voluntary_ctxt_switches:"))
    };
    let mut before = state();
    loop {
        thread::sleep(Duration::from_millis(5));
        let now = state();
        if now == before && now.0.starts_with('S') {
            return;
        }
        before = now;
    }
}

/// Wakes the future of `block_on` and a task from a thread whose system calls are counted.
fn count(spin: Duration) {
    let runtime = Builder::new().spin(spin).build().unwrap();
    // SAFETY: no arguments.
    let home = unsafe { libc::gettid() };
    // Even stages are the other thread's to reach, odd ones this thread's.
    let stage: Arc<Stage> = Arc::default();
    runtime.block_on(async {
        let root = poll_fn(|task| Poll::Ready(task.waker().clone())).await;
        let (tx, rx) = std::sync::mpsc::channel::<Waker>();
        let polls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&polls);
        let task = spawn(poll_fn(move |task| {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = tx.send(task.waker().clone());
            Poll::<()>::Pending
        }));
        yield_now().await;
        let of_task = rx.recv().unwrap();
        drop(rx);
        let theirs = Arc::clone(&stage);
        thread::spawn(move || {
            let wakers = [root, of_task];
            // What a first time may allocate.
            wakers.iter().for_each(Waker::wake_by_ref);
            theirs.reach(2);
            theirs.wait_for(3);
            trap_calls(&[libc::SYS_clock_nanosleep, libc::SYS_rt_sigreturn]);
            CALLS.store(0, Ordering::SeqCst);
            for round in 0..AWAKE + ASLEEP {
                theirs.wait_for(4 * round + 5);
                wakers.iter().for_each(Waker::wake_by_ref);
                let again = wakers[1].clone();
                again.wake();
                theirs.reach(4 * round + 6);
            }
            // A thread cannot end without system calls.
            loop {
                thread::sleep(Duration::from_secs(3600));
            }
        });
        stage.wait_for(2);
        // A few turns, so that both vectors of arrivals have their memory.
        yield_now().await;
        stage.reach(3);
        for round in 0..AWAKE {
            // In the middle of a poll.
            stage.reach(4 * round + 5);
            stage.wait_for(4 * round + 6);
            yield_now().await;
        }
        assert_eq!(CALLS.load(Ordering::SeqCst), 0, "system call {} was made", LAST.load(Ordering::SeqCst));
        assert!(polls.load(Ordering::SeqCst) >= AWAKE, "each wake came through");
        let mut kicks = 0;
        for round in AWAKE..AWAKE + ASLEEP {
            let at = Arc::clone(&stage);
            let observer = thread::spawn(move || {
                until_asleep(home);
                at.reach(4 * round + 5);
            });
            // Long enough for that; the kick itself is trapped, so nothing else ends this sleep.
            let before = CALLS.load(Ordering::SeqCst);
            while stage.0.load(Ordering::SeqCst) < 4 * round + 6 {
                let mut nap = std::pin::pin!(sleep(Duration::from_millis(200)));
                poll_fn(|task| nap.as_mut().poll(task)).await;
            }
            observer.join().unwrap();
            let calls = CALLS.load(Ordering::SeqCst) - before;
            let last = i64::from(LAST.load(Ordering::SeqCst));
            assert!(calls <= 1 && (calls == 0 || last == libc::SYS_write), "{calls} calls, the last one {last}");
            kicks += calls;
        }
        // On a busy machine the sleep may be over by the time that it is seen.
        assert!(kicks > 0, "three wakes of a sleeper are one kick");
        task.abort();
    });
}

#[test]
fn a_wake_costs_no_system_call_while_the_runtime_is_awake_and_one_while_it_sleeps() {
    let name = "wakes::a_wake_costs_no_system_call_while_the_runtime_is_awake_and_one_while_it_sleeps";
    if ["ASAN_OPTIONS", "TSAN_OPTIONS"].iter().any(|name| std::env::var_os(name).is_some()) {
        eprintln!("SKIP: a sanitizer makes system calls of its own");
        return;
    }
    in_child(name, LIMIT, || {
        // SAFETY: all zeroes is a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: a handler that only stores.
        assert_eq!(unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) }, 0);
        count(Duration::ZERO);
        count(Duration::from_micros(50));
    });
}
