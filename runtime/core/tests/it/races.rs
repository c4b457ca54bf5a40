//! Tasks, timers and processes where two things happen at once: aborts before arrival, forks inside threads of the
//! runtime, timers that are moved while nobody looks.
#![allow(clippy::async_yields_async, reason = "handles are carried out of `block_on` on purpose")]

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use runtime::task::{AbortHandle, JoinHandle, spawn, yield_now};
use runtime::{Builder, Handle, Runtime};

use crate::kit::OnDrop;
use crate::support::watchdog;

const LIMIT: Duration = Duration::from_secs(20);

/// A task for this thread that was made on another is aborted here before it has arrived.
#[test]
fn a_task_from_another_thread_may_be_aborted_at_home_before_it_arrives() {
    let _watchdog = watchdog(LIMIT);
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dropped);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let here = Handle::current();
        spawn(async move {
            let guard = OnDrop(move || _ = count.fetch_add(1, Ordering::SeqCst));
            let child: JoinHandle<()> = thread::spawn(move || {
                here.spawn(move || async move {
                    let _guard = guard;
                    pending::<()>().await
                })
            })
            .join()
            .unwrap();
            child.abort();
            drop(child);
        })
        .await
        .unwrap();
        for _ in 0..5 {
            yield_now().await;
        }
    });
    drop(runtime);
    assert_eq!(dropped.load(Ordering::SeqCst), 1, "the closure was dropped");
}

/// One that arrives as its runtime ends, and aborts itself from its destructor.
#[test]
fn a_task_that_is_refused_may_abort_itself_from_its_destructor() {
    let _watchdog = watchdog(LIMIT);
    let runtime = Runtime::new().unwrap();
    let here = runtime.block_on(async { Handle::current() });
    thread::spawn(move || {
        let own: Arc<Mutex<Option<AbortHandle>>> = Arc::default();
        let place = Arc::clone(&own);
        let guard = OnDrop(move || {
            if let Some(own) = own.lock().unwrap().take() {
                own.abort();
            }
        });
        let handle: JoinHandle<()> = here.spawn(move || async move {
            let _guard = guard;
            pending::<()>().await
        });
        *place.lock().unwrap() = Some(handle.abort_handle());
    })
    .join()
    .unwrap();
    drop(runtime);
}

/// A thread that cannot start (no memory, descriptors or threads for it) swallows every connection but one.
#[test]
fn dispatch_serves_on_the_threads_that_can_be_started() {
    crate::support::in_child("races::dispatch_serves_on_the_threads_that_can_be_started", LIMIT, || {
        use std::io::Read;
        let runtime = Builder::new().threads(2).build().unwrap();
        crate::raw::forbid(libc::SYS_io_uring_setup, libc::ENOMEM);
        let (served, closed) = runtime.block_on(async {
            let listener = runtime::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let mut clients: Vec<_> = (0..10).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
            let mut dispatch = listener.dispatch(|stream: runtime::net::TcpStream| async move {
                let _ = stream.write_all(vec![7]).await.0;
                let _ = stream.read(vec![0; 8]).await.0;
            });
            for _ in 0..10 {
                dispatch.next().await.unwrap();
            }
            let (mut served, mut closed) = (0, 0);
            for _ in 0..20 {
                yield_now().await;
            }
            for client in &mut clients {
                client.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                match client.read(&mut [0; 1]) {
                    Ok(1) => served += 1,
                    _ => closed += 1,
                }
            }
            (served, closed)
        });
        assert_eq!((served, closed), (10, 0));
    });
}

/// A task of a thread that was started on demand forks, and its child goes on.
#[test]
fn a_child_that_a_worker_forked_ends_and_says_that_it_failed() {
    crate::support::in_child("races::a_child_that_a_worker_forked_ends_and_says_that_it_failed", LIMIT, || {
        let runtime = Builder::new().threads(2).build().unwrap();
        let code = runtime.block_on(async {
            runtime::spawn_on(1, || async {
                match crate::raw::fork_here() {
                    Some(child) => child.wait(),
                    None => {
                        // SAFETY: the child ends itself should it hang.
                        unsafe { libc::alarm(5) };
                        yield_now().await;
                        0
                    }
                }
            })
            .await
            .unwrap()
        });
        assert!(code < 1000);
    });
}

/// The same in a group.
#[test]
fn a_child_that_a_body_forked_ends_and_says_that_it_failed() {
    crate::support::in_child("races::a_child_that_a_body_forked_ends_and_says_that_it_failed", LIMIT, || {
        let codes = Builder::new().threads(2).run(|cx: Handle| async move {
            if cx.index() == 1 {
                return std::io::Result::Ok(0);
            }
            let code = match crate::raw::fork_here() {
                Some(child) => child.wait(),
                None => {
                    // SAFETY: the child ends itself should it hang.
                    unsafe { libc::alarm(5) };
                    yield_now().await;
                    3
                }
            };
            std::io::Result::Ok(code)
        });
        let code = codes.unwrap()[0];
        assert!(code > 0 && code < 1000, "{code}");
    });
}

/// A waker used in a child while another thread was using the door.
#[test]
fn a_wake_in_a_child_does_not_hang() {
    crate::support::in_child("races::a_wake_in_a_child_does_not_hang", Duration::from_secs(60), || {
        use std::sync::atomic::AtomicBool;
        let runtime = Runtime::new().unwrap();
        let wakers: Arc<Mutex<Vec<std::task::Waker>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let out = Arc::clone(&wakers);
        runtime.block_on(async {
            for _ in 0..2 {
                let out = Arc::clone(&out);
                let mut first = true;
                spawn(std::future::poll_fn(move |cx| {
                    if std::mem::replace(&mut first, false) {
                        out.lock().unwrap().push(cx.waker().clone());
                    }
                    std::task::Poll::<()>::Pending
                }));
            }
            yield_now().await;
            yield_now().await;
            let mine = wakers.lock().unwrap().pop().unwrap();
            let theirs = wakers.lock().unwrap().pop().unwrap();
            let ends = Arc::clone(&stop);
            let forker = thread::spawn(move || {
                let mut worst = 0;
                for n in 0..1500 {
                    // On another thread, so that this is no wake at home.
                    let child = match crate::raw::fork_here() {
                        Some(child) => child,
                        None => {
                            // SAFETY: the child ends itself should it hang.
                            unsafe { libc::alarm(5) };
                            mine.wake_by_ref();
                            crate::raw::exit_at_once(0);
                        }
                    };
                    let code = child.wait();
                    if code != 0 {
                        worst = code;
                        println!("fork {n}: {code}");
                        break;
                    }
                }
                ends.store(true, Ordering::SeqCst);
                worst
            });
            let spammers: Vec<_> = (0..1)
                .map(|_| {
                    let theirs = theirs.clone();
                    let stop = Arc::clone(&stop);
                    thread::spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            theirs.wake_by_ref();
                        }
                    })
                })
                .collect();
            crate::kit::until(|| forker.is_finished()).await;
            spammers.into_iter().for_each(|s| s.join().unwrap());
            assert_eq!(forker.join().unwrap(), 0);
        });
    });
}

/// No other thread at all.
#[test]
fn a_task_may_be_aborted_before_it_arrives_on_one_thread() {
    let runtime = Runtime::new().unwrap();
    let handle = runtime.block_on(async { Handle::current() });
    let child = handle.spawn(pending::<()>);
    runtime.block_on(async {
        spawn(async move { child.abort() }).await.unwrap();
        yield_now().await;
        yield_now().await;
    });
}

/// A parent that aborts its child when it is dropped; both are on their way as the runtime ends.
#[test]
fn tasks_under_way_at_the_end_may_abort_one_another() {
    struct AbortOnDrop(JoinHandle<()>);
    impl Drop for AbortOnDrop {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
    let runtime = Runtime::new().unwrap();
    let here = runtime.block_on(async { Handle::current() });
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dropped);
    let slot: Arc<Mutex<Option<AbortOnDrop>>> = Arc::default();
    let theirs = Arc::clone(&slot);
    struct Guard(Arc<Mutex<Option<AbortOnDrop>>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            drop(self.0.lock().unwrap().take());
        }
    }
    let parent_state = Guard(theirs);
    drop(here.spawn(move || async move {
        let _s = parent_state;
        pending::<()>().await
    }));
    let guard = OnDrop(move || _ = count.fetch_add(1, Ordering::SeqCst));
    *slot.lock().unwrap() = Some(AbortOnDrop(here.spawn(move || async move {
        let _g = guard;
        pending::<()>().await
    })));
    drop(slot);
    drop(runtime);
    assert_eq!(dropped.load(Ordering::SeqCst), 1, "the child's closure was dropped");
}

/// A timer that is moved ahead by what runs in the visit at the beginning of a spin.
#[test]
fn a_timer_that_is_moved_ahead_by_a_completion_fires_in_time() {
    let _watchdog = watchdog(LIMIT);
    use std::cell::RefCell;
    use std::pin::Pin;
    use std::rc::Rc;
    type Shared = Rc<RefCell<Pin<Box<runtime::time::Sleep>>>>;
    let mut late = Vec::new();
    for spin in [Duration::ZERO, Duration::from_micros(100)] {
        let runtime = Builder::new().spin(spin).build().unwrap();
        runtime.block_on(async {
            for _ in 0..20 {
                // Short sleeps make a record.
                for _ in 0..10 {
                    runtime::time::sleep(Duration::from_micros(20)).await;
                }
                let shared: Shared = Rc::new(RefCell::new(Box::pin(runtime::time::sleep(Duration::from_millis(300)))));
                let theirs = Rc::clone(&shared);
                let waits = spawn(std::future::poll_fn(move |cx| theirs.borrow_mut().as_mut().poll(cx)));
                yield_now().await;
                yield_now().await;
                let start = Instant::now();
                let again = Rc::clone(&shared);
                let mut op = Box::pin(runtime_core::submit::submit(crate::kit::nop(move || {
                    again.borrow_mut().as_mut().reset(Instant::now() + Duration::from_millis(5));
                })));
                assert!(crate::kit::poll_once(&mut op).await.is_pending());
                drop(op);
                waits.await.unwrap();
                if start.elapsed() > Duration::from_millis(100) {
                    late.push((spin, start.elapsed()));
                }
            }
        });
    }
    assert!(late.is_empty(), "{late:?}");
}

/// Tasks that are sent, aborted, woken, awaited and dropped by everybody, while runtimes end.
#[test]
fn tasks_that_everybody_sends_aborts_wakes_and_drops_leave_nothing() {
    use crate::support::Rng;
    use std::task::{Poll, Waker};
    let _watchdog = watchdog(Duration::from_secs(120));
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    struct Count;
    impl Count {
        fn new() -> Self {
            LIVE.fetch_add(1, Ordering::SeqCst);
            Count
        }
    }
    impl Drop for Count {
        fn drop(&mut self) {
            LIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    #[derive(Default)]
    struct Shared {
        handles: Vec<JoinHandle<Count>>,
        aborts: Vec<AbortHandle>,
        wakers: Vec<Waker>,
        crews: Vec<Handle>,
    }
    impl Drop for Guard {
        fn drop(&mut self) {
            step(&mut Rng(self.1), &self.0);
        }
    }
    struct Guard(Arc<Mutex<Shared>>, u64, Count);
    fn take<T>(list: &mut Vec<T>, rng: &mut Rng) -> Option<T> {
        if list.is_empty() {
            return None;
        }
        let at = rng.below(list.len() as u64) as usize;
        Some(list.swap_remove(at))
    }
    fn step(rng: &mut Rng, shared: &Arc<Mutex<Shared>>) {
        match rng.below(7) {
            0 | 1 => {
                let Some(crew) = ({
                    let s = shared.lock().unwrap();
                    s.crews.get(rng.below(s.crews.len().max(1) as u64) as usize).cloned()
                }) else {
                    return;
                };
                if shared.lock().unwrap().handles.len() > 60 {
                    return;
                }
                let (count, output) = (Count::new(), Count::new());
                let guard = Guard(Arc::clone(shared), rng.next(), count);
                let (inner, mut r) = (Arc::clone(shared), Rng(rng.next()));
                let polls = r.below(4);
                let on = rng.below(crew.threads() as u64) as usize;
                let handle = crew.spawn_on(on, move || {
                    let rc = std::rc::Rc::new(Count::new());
                    async move {
                        let (_guard, _rc) = (guard, rc);
                        for _ in 0..polls {
                            step(&mut r, &inner);
                            let mut first = true;
                            std::future::poll_fn(|cx| {
                                if !std::mem::replace(&mut first, false) {
                                    return Poll::Ready(());
                                }
                                inner.lock().unwrap().wakers.push(cx.waker().clone());
                                if r.below(3) == 0 {
                                    cx.waker().wake_by_ref();
                                }
                                Poll::Pending
                            })
                            .await;
                            step(&mut r, &inner);
                        }
                        output
                    }
                });
                let mut s = shared.lock().unwrap();
                s.aborts.push(handle.abort_handle());
                s.handles.push(handle);
            }
            2 => {
                let h = take(&mut shared.lock().unwrap().handles, rng);
                if let Some(h) = h {
                    h.abort();
                    drop(h)
                }
            }
            3 => {
                let h = take(&mut shared.lock().unwrap().aborts, rng);
                if let Some(h) = h {
                    h.abort()
                }
            }
            4 => {
                let w = take(&mut shared.lock().unwrap().wakers, rng);
                if let Some(w) = w {
                    w.wake()
                }
            }
            5 => {
                let h = take(&mut shared.lock().unwrap().handles, rng);
                if let Some(mut h) = h {
                    let s = shared.lock().unwrap();
                    let waker = s.wakers.last().cloned().unwrap_or(Waker::noop().clone());
                    drop(s);
                    if crate::kit::poll_with(&mut h, &waker).is_pending() {
                        shared.lock().unwrap().handles.push(h);
                    }
                }
            }
            _ => {
                let h = take(&mut shared.lock().unwrap().handles, rng);
                drop(h)
            }
        }
    }
    let seed = 1u64;
    let rounds = if std::env::var_os("RUNTIME_EMULATED").is_some() { 2u64 } else { 20 };
    for round in 0..rounds {
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let helpers: Vec<_> = (0..2u64)
            .map(|n| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut rng = Rng((seed * 7919 + round * 31 + n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
                    for _ in 0..8 {
                        rng.next();
                    }
                    let runtime = Builder::new().threads(2).build().unwrap();
                    let handle = runtime.block_on(async { Handle::current() });
                    shared.lock().unwrap().crews.push(handle);
                    for _ in 0..2 + rng.below(6) {
                        for _ in 0..rng.below(100) {
                            step(&mut rng, &shared);
                        }
                        runtime.block_on(async {
                            for _ in 0..rng.below(300) {
                                step(&mut rng, &shared);
                                if rng.below(3) == 0 {
                                    yield_now().await;
                                }
                            }
                        });
                    }
                    drop(runtime);
                    for _ in 0..20 {
                        step(&mut rng, &shared);
                    }
                })
            })
            .collect();
        helpers.into_iter().for_each(|h| h.join().unwrap());
        // What a destructor adds is dropped in turn.
        for _ in 0..6 {
            let rest = std::mem::take(&mut *shared.lock().unwrap());
            drop(rest);
        }
        let live = LIVE.load(Ordering::SeqCst);
        assert_eq!(live, 0, "round {round}: {live} are left");
    }
}

/// A sleep that is moved ahead between two `block_on`s.
#[test]
fn a_reset_between_two_block_ons_keeps_who_waits() {
    use std::cell::RefCell;
    use std::rc::Rc;
    let runtime = Runtime::new().unwrap();
    let shared =
        runtime.block_on(async { Rc::new(RefCell::new(Box::pin(runtime::time::sleep(Duration::from_millis(400))))) });
    let theirs = Rc::clone(&shared);
    let mut task = runtime.block_on(async {
        let task = spawn(std::future::poll_fn(move |cx| std::future::Future::poll(theirs.borrow_mut().as_mut(), cx)));
        yield_now().await;
        yield_now().await;
        task
    });
    shared.borrow_mut().as_mut().reset(Instant::now() + Duration::from_millis(5));
    let ended = runtime.block_on(async { runtime::time::timeout(Duration::from_secs(2), &mut task).await });
    assert!(ended.is_ok(), "it waits for ever");
}
