//! A child of fork(2) has a copy of its parent's runtime (ruling 12): operations panic there with a sentence, drops
//! close descriptors, and nothing that the child does reaches the parent.

use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream as StdStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use futures::FutureExt;
use runtime::fs::File;
use runtime::net::{TcpListener, TcpStream};
use runtime::pipe::pipe;
use runtime::{Builder, Runtime};

use crate::raw::{exit_at_once, fork, fork_here, map};
use crate::scene::{connected, poll_once, timed};
use crate::support::{fds, in_child, scaled};

const LIMIT: Duration = Duration::from_secs(40);

/// The text of the panic that `f` ends with, empty if it does not panic.
fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => String::new(),
        Err(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default(),
    }
}

/// What is tried in a child.
type Attempt<'a> = Box<dyn FnOnce() + 'a>;

/// Says which of these did not panic with the sentence: 0 when all did, else the number of the first that did not.
fn first_silent(attempts: Vec<(&str, Attempt<'_>)>) -> i32 {
    let mut first = 0;
    for (n, (name, attempt)) in attempts.into_iter().enumerate() {
        let text = panic_of(attempt);
        if !text.contains("child of fork(2)") {
            eprintln!("{name} in a child: {text:?} instead of the sentence");
            first = if first == 0 { n as i32 + 1 } else { first };
        }
    }
    first
}

fn try_op<F: Future>(future: F) {
    let _ = future.now_or_never();
}

#[test]
fn operations_in_a_child_panic_with_a_sentence() {
    in_child("fork::operations_in_a_child_panic_with_a_sentence", LIMIT, || {
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            let (stream, mut peer) = connected().await;
            let (receives, mut other_peer) = connected().await;
            other_peer.write_all(b"x").unwrap();
            assert_eq!(receives.recv().await.unwrap().len(), 1);
            let (tx, rx) = pipe().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let dir = tempfile::tempdir().unwrap();
            let file = File::create(dir.path().join("file")).await.unwrap();
            let child = fork(|| {
                first_silent(vec![
                    ("read", Box::new(|| try_op(stream.read(vec![0; 8])))),
                    ("recv", Box::new(|| try_op(stream.recv()))),
                    ("recv of a stream that receives", Box::new(|| try_op(receives.recv()))),
                    ("read_exact", Box::new(|| try_op(stream.read_exact(vec![0; 8])))),
                    ("read_vectored", Box::new(|| try_op(stream.read_vectored(vec![vec![0; 8], vec![0; 8]])))),
                    ("peek", Box::new(|| try_op(stream.peek(vec![0; 8])))),
                    ("write", Box::new(|| try_op(stream.write("from the child")))),
                    ("write_all", Box::new(|| try_op(stream.write_all("from the child")))),
                    ("write_vectored", Box::new(|| try_op(stream.write_vectored(vec!["from the", "child"])))),
                    ("shutdown", Box::new(|| try_op(stream.shutdown(std::net::Shutdown::Write)))),
                    ("pipe read", Box::new(|| try_op(rx.read(vec![0; 8])))),
                    ("pipe write", Box::new(|| try_op(tx.write_all("from the child")))),
                    ("accept", Box::new(|| try_op(listener.accept()))),
                    ("connect", Box::new(|| try_op(TcpStream::connect(addr)))),
                    ("open", Box::new(|| try_op(File::open("/dev/null")))),
                    ("read_at", Box::new(|| try_op(file.read_at(vec![0; 8], 0)))),
                    ("write_at", Box::new(|| try_op(file.write_at("from the child", 0)))),
                ])
            });
            assert_eq!(child.wait(), 0, "an operation did not panic in the child");
            // And the parent has noticed nothing.
            stream.write_all("from the parent").await.0.unwrap();
            drop(stream);
            let mut text = String::new();
            peer.read_to_string(&mut text).unwrap();
            assert_eq!(text, "from the parent");
            assert_eq!(file.read_at(vec![0; 8], 0).await.0.unwrap(), 0, "nothing was written to the file");
        });
    });
}

#[test]
fn a_child_that_drops_pieces_and_streams_takes_nothing_from_its_parent() {
    in_child("fork::a_child_that_drops_pieces_and_streams_takes_nothing_from_its_parent", LIMIT, || {
        let mut rt = Some(Runtime::new().unwrap());
        let (mut stream, mut held, mut peer) = rt.as_ref().unwrap().block_on(async {
            let (stream, mut peer) = connected().await;
            peer.write_all(b"held").unwrap();
            let held = stream.recv().await.unwrap();
            peer.write_all(b"ahead").unwrap();
            runtime::task::yield_now().await;
            (Some(stream), Some(held), peer)
        });
        for order in 0..2 {
            let child = fork(|| {
                drop(held.take());
                if order == 0 {
                    drop(stream.take());
                }
                drop(rt.take());
                drop(stream.take());
                0
            });
            assert_eq!(child.wait(), 0);
        }
        let (rt, stream) = (rt.unwrap(), stream.unwrap());
        rt.block_on(async {
            let child = {
                let receives = &stream;
                assert_eq!(receives.recv().await.unwrap()[..], *b"ahead");
                fork(|| {
                    drop(held.take());
                    0
                })
            };
            assert_eq!(child.wait(), 0);
            for round in 0..100u8 {
                peer.write_all(&[round; 5000]).unwrap();
                let mut got = 0;
                while got < 5000 {
                    let data = stream.recv().await.unwrap();
                    assert!(data.iter().all(|&byte| byte == round));
                    got += data.len();
                }
            }
        });
        assert_eq!(held.unwrap()[..], *b"held");
    });
}

#[test]
fn a_child_that_awaits_on_gets_the_sentence_out_of_block_on() {
    in_child("fork::a_child_that_awaits_on_gets_the_sentence_out_of_block_on", LIMIT, || {
        type Rest = fn() -> Pin<Box<dyn Future<Output = ()>>>;
        let rests: [(&str, Rest); 4] = [
            ("sleep", || Box::pin(runtime::time::sleep(Duration::from_millis(300)))),
            ("yield", || Box::pin(runtime::task::yield_now())),
            ("pending", || Box::pin(std::future::pending())),
            ("task", || Box::pin(async { runtime::spawn(async {}).await.unwrap() })),
        ];
        for in_task in [false, true] {
            for (name, rest) in rests {
                let rt = Runtime::new().unwrap();
                let (mut peer, parent_saw) = (None, AtomicBool::new(false));
                let parent = std::process::id();
                let text = panic_of(|| {
                    rt.block_on(async {
                        let (stream, other) = connected().await;
                        peer = Some(other);
                        // Ready to run beside whoever forks: it must not run in the child.
                        let beside = runtime::spawn(async move {
                            runtime::task::yield_now().await;
                            stream.write_all("once").await.0.unwrap();
                        });
                        let forks = async move {
                            let Some(child) = fork_here() else {
                                rest().await;
                                // The child gets no further.
                                exit_at_once(7);
                            };
                            assert_eq!(child.wait(), 0, "{name} in a child, in a task: {in_task}");
                        };
                        if in_task {
                            runtime::spawn(forks).await.unwrap();
                        } else {
                            forks.await;
                        }
                        beside.await.unwrap();
                        parent_saw.store(true, Ordering::Relaxed);
                    });
                });
                if std::process::id() != parent {
                    // Drops must work here too, after the panic.
                    drop(rt);
                    exit_at_once(if text.contains("child of fork(2)") { 0 } else { 8 });
                }
                assert_eq!(text, "", "the parent panicked");
                assert!(parent_saw.load(Ordering::Relaxed));
                let mut text = String::new();
                peer.unwrap().read_to_string(&mut text).unwrap();
                assert_eq!(text, "once", "{name}, in a task: {in_task}");
            }
        }
    });
}

#[test]
fn block_on_in_a_child_panics_with_a_sentence() {
    in_child("fork::block_on_in_a_child_panics_with_a_sentence", LIMIT, || {
        let rt = Runtime::new().unwrap();
        rt.block_on(runtime::time::sleep(Duration::from_millis(1)));
        let child = fork(|| {
            first_silent(vec![
                ("block_on", Box::new(|| rt.block_on(async {}))),
                (
                    "a new runtime",
                    // Refused before it takes a lock that another thread of the parent may have held.
                    Box::new(|| panic!("{}", Runtime::new().unwrap_err())),
                ),
            ])
        });
        assert_eq!(child.wait(), 0);
        rt.block_on(runtime::time::sleep(Duration::from_millis(1)));
    });
}

#[test]
fn a_runtime_first_built_in_a_child_works() {
    in_child("fork::a_runtime_first_built_in_a_child_works", LIMIT, || {
        let child = fork(|| {
            let rt = Runtime::new().unwrap();
            rt.block_on(async {
                let (tx, rx) = pipe().unwrap();
                tx.write_all("x").await.0.unwrap();
                rx.read(vec![0; 1]).await.0.unwrap() as i32 + 41
            })
        });
        assert_eq!(child.wait(), 42);
        assert_eq!(Runtime::new().unwrap().block_on(async { 1 }), 1, "the parent still can");
    });
}

/// Everything a runtime can be busy with; the parent goes on with it after the fork.
struct Busy {
    rt: Runtime,
    stream: &'static TcpStream,
    listener: TcpListener,
    task: runtime::task::JoinHandle<usize>,
    write_to_task: StdStream,
    client: Option<StdStream>,
    peer: StdStream,
    read: Pin<Box<dyn Future<Output = usize>>>,
    sleep: Pin<Box<runtime::time::Sleep>>,
    piped: Pin<Box<dyn Future<Output = usize>>>,
    tx: runtime::pipe::Sender,
    file: File,
}

fn busy() -> Busy {
    let rt = Runtime::new().unwrap();
    let mut made = None;
    rt.block_on(async {
        let (stream, peer) = connected().await;
        let (in_task, write_to_task) = connected().await;
        let task = runtime::spawn(async move { in_task.read(vec![0; 8]).await.0.unwrap() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        // One is accepted, so that the multishot accept stands; a second waits in the queue.
        let client = StdStream::connect(addr).unwrap();
        listener.accept().await.unwrap();
        let stream: &'static TcpStream = Box::leak(Box::new(stream));
        let mut read: Pin<Box<dyn Future<Output = usize>>> =
            Box::pin(async { stream.read(vec![0; 8]).await.0.unwrap() });
        let mut sleep = Box::pin(runtime::time::sleep(Duration::from_millis(300)));
        let (tx, rx) = pipe().unwrap();
        let mut piped: Pin<Box<dyn Future<Output = usize>>> =
            Box::pin(async move { rx.read(vec![0; 8]).await.0.unwrap() });
        assert!(poll_once(read.as_mut()).is_pending());
        assert!(poll_once(piped.as_mut()).is_pending());
        assert!(poll_once(sleep.as_mut()).is_pending());
        runtime::time::sleep(Duration::from_millis(5)).await;
        let file = File::open("/proc/self/stat").await.unwrap();
        made = Some((stream, listener, task, write_to_task, client, peer, read, sleep, piped, tx, file));
    });
    let (stream, listener, task, write_to_task, client, peer, read, sleep, piped, tx, file) = made.unwrap();
    Busy { rt, stream, listener, task, write_to_task, client: Some(client), peer, read, sleep, piped, tx, file }
}

impl Busy {
    /// All of it still works.
    fn go_on(mut self) {
        let addr = self.listener.local_addr().unwrap();
        self.peer.write_all(b"abc").unwrap();
        self.write_to_task.write_all(b"abcd").unwrap();
        self.client = Some(StdStream::connect(addr).unwrap());
        self.rt.block_on(async {
            assert_eq!(self.read.await, 3);
            assert_eq!(self.task.await.unwrap(), 4);
            self.sleep.await;
            self.tx.write_all("abcde").await.0.unwrap();
            assert_eq!(self.piped.await, 5);
            self.listener.accept().await.unwrap();
            assert!(self.file.read_at(vec![0; 64], 0).await.0.unwrap() > 0);
            self.stream.write_all("bye").await.0.unwrap();
            let thread = std::thread::spawn(|| 5);
            assert_eq!(runtime::spawn_blocking(move || thread.join().unwrap()).await.unwrap(), 5);
        });
        let mut text = [0; 3];
        self.peer.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"bye");
    }
}

#[test]
fn drops_in_a_child_close_descriptors_and_leave_the_parent_alone() {
    in_child("fork::drops_in_a_child_close_descriptors_and_leave_the_parent_alone", LIMIT, || {
        // Whatever the process opens once and keeps is open before the count.
        busy().go_on();
        for reversed in [false, true] {
            let before = fds();
            let mut busy = Some(busy());
            assert!(fds() > before + 5);
            let child = fork(|| {
                let Busy { rt, listener, task, write_to_task, client, peer, read, sleep, piped, tx, file, .. } =
                    busy.take().unwrap();
                let mut drops: Vec<Box<dyn FnOnce()>> = vec![
                    Box::new(move || drop((write_to_task, client, peer, tx, file))),
                    Box::new(move || drop((read, sleep, piped))),
                    Box::new(move || drop(listener)),
                    Box::new(move || drop(task)),
                    Box::new(move || drop(rt)),
                ];
                if reversed {
                    drops.reverse();
                }
                for each in drops {
                    each();
                }
                // What is leaked on purpose stays: the stream of `busy`.
                let left = fds() - before - 1;
                eprintln!("left open in the child (reversed: {reversed}): {left}");
                left as i32
            });
            assert_eq!(child.wait(), 0, "descriptors left open in the child, or killed by a signal");
            busy.unwrap().go_on();
        }
    });
}

#[test]
fn a_stream_dropped_in_a_child_while_its_read_is_in_flight_is_closed_there() {
    in_child("fork::a_stream_dropped_in_a_child_while_its_read_is_in_flight_is_closed_there", LIMIT, || {
        Runtime::new().unwrap().block_on(async {
            let (stream, mut peer) = connected().await;
            let mut read: Option<Pin<Box<dyn Future<Output = usize>>>> =
                Some(Box::pin(async move { stream.read(vec![0; 8]).await.0.unwrap() }));
            assert!(poll_once(read.as_mut().unwrap().as_mut()).is_pending());
            runtime::task::yield_now().await;
            let open = fds();
            let child = fork(|| {
                drop(read.take());
                // The runtime is still there, and is not asked.
                i32::from(fds() != open - 1)
            });
            assert_eq!(child.wait(), 0, "still open in the child");
            peer.write_all(b"abc").unwrap();
            assert_eq!(read.take().unwrap().await, 3);
        });
    });
}

#[test]
fn a_listener_dropped_in_a_child_inside_block_on_stays_the_parents() {
    in_child("fork::a_listener_dropped_in_a_child_inside_block_on_stays_the_parents", LIMIT, || {
        Runtime::new().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let mut listener = Some(listener);
            let first = StdStream::connect(addr).unwrap();
            listener.as_ref().unwrap().accept().await.unwrap();
            let open = fds();
            let child = fork(|| {
                drop(listener.take());
                i32::from(fds() != open - 1)
            });
            assert_eq!(child.wait(), 0, "still open in the child, or killed by a signal");
            let second = StdStream::connect(addr).unwrap();
            let (_, peer) = listener.as_ref().unwrap().accept().await.unwrap();
            assert_eq!(peer, second.local_addr().unwrap());
            drop((first, second));
        });
    });
}

#[test]
fn a_runtime_dropped_in_a_child_unmaps_nothing_of_the_childs() {
    in_child("fork::a_runtime_dropped_in_a_child_unmaps_nothing_of_the_childs", LIMIT, || {
        let rt = Builder::new().entries(256).build().unwrap();
        rt.block_on(runtime::time::sleep(Duration::from_millis(1)));
        let child = fork(|| {
            // The queues are not mapped here (MADV_DONTFORK), so new mappings take their place.
            let mine: Vec<*mut u8> = (0..64).map(|_| map(4096)).chain((0..8).map(|_| map(65536))).collect();
            for &at in &mine {
                // SAFETY: a mapping of ours.
                unsafe { at.write_volatile(1) };
            }
            drop(rt);
            for &at in &mine {
                // SAFETY: as above, unless the runtime has unmapped it.
                let byte = unsafe { at.read_volatile() };
                assert_eq!(byte, 1);
            }
            0
        });
        assert_eq!(child.wait(), 0, "1011 is SIGSEGV: the child's own memory was unmapped");
    });
}

#[test]
fn a_lingering_stream_dropped_in_a_child_is_closed_there() {
    in_child("fork::a_lingering_stream_dropped_in_a_child_is_closed_there", LIMIT, || {
        let rt = Runtime::new().unwrap();
        rt.block_on(async {
            // The pool has a thread, which the child does not.
            runtime::spawn_blocking(|| ()).await.unwrap();
            let (stream, _peer) = connected().await;
            stream.set_linger(Some(Duration::from_secs(1))).unwrap();
            let mut stream = Some(stream);
            let before = fds();
            let child = fork(|| {
                drop(stream.take());
                let deadline = Instant::now() + Duration::from_secs(2);
                while fds() != before - 1 {
                    if Instant::now() > deadline {
                        return 1;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                0
            });
            assert_eq!(child.wait(), 0, "still open in the child");
            assert!(stream.is_some());
        });
    });
}

#[test]
fn a_blocking_job_in_a_child_does_not_wait_for_threads_that_are_not_there() {
    in_child("fork::a_blocking_job_in_a_child_does_not_wait_for_threads_that_are_not_there", LIMIT, || {
        let rt = Runtime::new().unwrap();
        rt.block_on(async { runtime::spawn_blocking(|| ()).await.unwrap() });
        let child = fork(|| {
            // Refused or carried out, by a panic or by the handle, but not for ever pending.
            let text = panic_of(|| {
                let outcome = runtime::spawn_blocking(|| ());
                let mut outcome = pin!(outcome);
                let deadline = Instant::now() + Duration::from_secs(2);
                while poll_once(outcome.as_mut()).is_pending() {
                    assert!(Instant::now() < deadline, "pending");
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            i32::from(text == "pending")
        });
        assert_eq!(child.wait(), 0);
    });
}

#[test]
fn a_waker_used_in_a_child_does_not_kick_the_parent() {
    in_child("fork::a_waker_used_in_a_child_does_not_kick_the_parent", LIMIT, || {
        let (send_waker, wakers) = std::sync::mpsc::channel::<(Waker, Waker)>();
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let parent = std::thread::spawn(move || {
            Runtime::new().unwrap().block_on(async move {
                let (to_root, of_task) = std::sync::mpsc::channel();
                let task = runtime::spawn(std::future::poll_fn(move |task| {
                    let _ = to_root.send(task.waker().clone());
                    Poll::<()>::Pending
                }));
                runtime::task::yield_now().await;
                let of_task = of_task.recv().unwrap();
                std::future::poll_fn(|task| {
                    send_waker.send((task.waker().clone(), of_task.clone())).unwrap();
                    Poll::Ready(())
                })
                .await;
                let (polls, completions) = (runtime::metrics().polls, runtime::metrics().completions);
                let mut root = 0;
                std::future::poll_fn(|_| {
                    root += 1;
                    if stopped.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                drop(task);
                // The first poll of the wait, and the one after the wake that ends it; one completion for that wake.
                (runtime::metrics().polls - polls, runtime::metrics().completions - completions, root)
            })
        });
        let (root, task) = wakers.recv().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..20 {
            let child = fork(|| {
                root.wake_by_ref();
                task.wake_by_ref();
                let (root, task) = (root.clone(), task.clone());
                root.wake();
                task.wake();
                0
            });
            assert_eq!(child.wait(), 0);
        }
        std::thread::sleep(Duration::from_millis(20));
        stop.store(true, Ordering::Relaxed);
        root.wake_by_ref();
        let (polls, completions, root_polls) = parent.join().unwrap();
        assert_eq!((polls, root_polls), (1, 2), "the child's wakes reached the parent");
        assert_eq!(completions, 1, "the child's wakes ended the parent's sleep");
    });
}

#[test]
fn children_forked_while_other_threads_use_runtimes_do_not_hang_in_drops() {
    in_child("fork::children_forked_while_other_threads_use_runtimes_do_not_hang_in_drops", 3 * LIMIT, || {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let others: Vec<_> = (0..3)
            .map(|_| {
                let stop = std::sync::Arc::clone(&stop);
                std::thread::spawn(move || {
                    // Futures that are dropped where their runtime does not run look for its door.
                    let rt = runtime::testing::tiny(8, 16).build().unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        let mut sleep = Box::pin(runtime::time::sleep(Duration::from_secs(60)));
                        rt.block_on(async { assert!(poll_once(sleep.as_mut()).is_pending()) });
                        drop(sleep);
                    }
                })
            })
            .collect();
        for round in 0..150 {
            let rt = runtime::testing::tiny(8, 16).build().unwrap();
            let mut read: Option<Pin<Box<dyn Future<Output = ()>>>> = None;
            let mut sleep = Some(Box::pin(runtime::time::sleep(Duration::from_secs(60))));
            rt.block_on(async {
                let (tx, rx) = pipe().unwrap();
                let mut future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
                    rx.read(vec![0; 8]).await.0.unwrap();
                    drop(tx);
                });
                assert!(poll_once(future.as_mut()).is_pending());
                assert!(poll_once(sleep.as_mut().unwrap().as_mut()).is_pending());
                read = Some(future);
            });
            let mut rt = Some(rt);
            let child = fork(|| {
                drop(read.take());
                drop(sleep.take());
                drop(rt.take());
                0
            });
            assert_eq!(child.wait(), 0, "round {round}: 1014 is the alarm, a hang");
        }
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn programs_started_by_std_do_not_disturb_the_runtime() {
    in_child("fork::programs_started_by_std_do_not_disturb_the_runtime", LIMIT, || {
        use std::os::unix::process::CommandExt;
        Runtime::new().unwrap().block_on(async {
            let (tx, rx) = pipe().unwrap();
            for round in 0..20 {
                let mut command = std::process::Command::new("true");
                if round % 2 == 1 {
                    // SAFETY: does nothing; with it std uses fork instead of posix_spawn.
                    unsafe { command.pre_exec(|| Ok(())) };
                }
                let mut read = Box::pin(rx.read(vec![0; 8]));
                assert!(poll_once(read.as_mut()).is_pending());
                assert!(command.status().unwrap().success());
                tx.write_all("x").await.0.unwrap();
                assert_eq!(read.await.0.unwrap(), 1);
            }
        });
    });
}

#[test]
fn a_child_may_return_from_block_on_with_a_cancel_that_was_never_sent() {
    in_child("fork::a_child_may_return_from_block_on_with_a_cancel_that_was_never_sent", LIMIT, || {
        let rt = Runtime::new().unwrap();
        let child = rt.block_on(async {
            let (_tx, rx) = pipe().unwrap();
            let mut read = Box::pin(rx.read(vec![0; 8]));
            assert!(poll_once(read.as_mut()).is_pending());
            runtime::task::yield_now().await;
            // Asks for a cancel, which waits for the end of the turn.
            drop(read);
            fork_here()
        });
        match child {
            Some(child) => assert_eq!(child.wait(), 0, "the child touched its parent's ring"),
            None => exit_at_once(0),
        }
    });
}

#[test]
fn a_write_half_dropped_in_a_child_does_not_end_the_parents_connection() {
    in_child("fork::a_write_half_dropped_in_a_child_does_not_end_the_parents_connection", LIMIT, || {
        Runtime::new().unwrap().block_on(async {
            for write_first in [true, false] {
                let (stream, mut peer) = connected().await;
                peer.set_read_timeout(Some(scaled(Duration::from_secs(5)))).unwrap();
                let (rx, tx) = stream.into_split();
                let mut halves = (Some(rx), Some(tx));
                let open = fds();
                let child = fork(|| {
                    if write_first {
                        drop(halves.1.take());
                        drop(halves.0.take());
                    } else {
                        drop(halves.0.take());
                        drop(halves.1.take());
                    }
                    i32::from(fds() != open - 1)
                });
                assert_eq!(child.wait(), 0, "still open in the child");
                let (Some(rx), Some(tx)) = halves else { panic!("the parent has both halves") };
                tx.write_all("still there?").await.0.unwrap();
                let mut text = [0; 12];
                peer.read_exact(&mut text).unwrap();
                assert_eq!(&text, b"still there?");
                peer.write_all(b"yes").unwrap();
                assert_eq!(rx.read(vec![0; 8]).await.0.unwrap(), 3);
                // The parent's own drop still ends it.
                drop(tx);
                let (end, took) = timed(|| peer.read(&mut text));
                assert_eq!(end.unwrap(), 0, "after {took:?}");
            }
        });
    });
}
