//! Streams and pending futures that are carried between runtimes and threads, by random walks and by hand.

use std::io::Write;
use std::task::Poll;
use std::time::Duration;

use runtime::testing::tiny;

use crate::peer::{finish, ms, pair, poll_once, secs};
use crate::support::{Rng, watchdog};

fn rt() -> runtime::Runtime {
    tiny(8, 16).build().unwrap()
}

/// A `read_exact` that gathered from the standing receive, whose runtime ends while it waits, and that is dropped then.
#[test]
fn attack_read_exact_dropped_after_its_runtime() {
    let _watchdog = watchdog(secs(30));
    let a = rt();
    let (stream, mut peer) = a.block_on(pair());
    let mut read = Box::pin(stream.read_exact(vec![0u8; 10]));
    a.block_on(async {
        peer.write_all(b"x").unwrap();
        assert_eq!(&stream.recv().await.unwrap()[..], b"x");
        peer.write_all(b"12345").unwrap();
        for _ in 0..5 {
            assert!(poll_once(read.as_mut()).await.is_pending());
            runtime::time::sleep(ms(5)).await;
        }
        peer.write_all(b"67").unwrap();
        runtime::time::sleep(ms(20)).await;
    });
    drop(a);
    drop(read);
    finish(&peer);
    let b = rt();
    let all = b.block_on(async {
        let mut all = Vec::new();
        loop {
            let (n, data) = stream.read(Vec::with_capacity(3)).await.into_result().unwrap();
            if n == 0 {
                return all;
            }
            all.extend(data);
        }
    });
    assert_eq!(String::from_utf8_lossy(&all), "1234567");
}

/// The same read goes on in the next runtime.
#[test]
fn attack_read_goes_on_after_its_runtime() {
    let _watchdog = watchdog(secs(30));
    let a = rt();
    let (stream, mut peer) = a.block_on(pair());
    let mut read = Box::pin(stream.read(Vec::with_capacity(10)));
    a.block_on(async {
        peer.write_all(b"x").unwrap();
        assert_eq!(&stream.recv().await.unwrap()[..], b"x");
        assert!(poll_once(read.as_mut()).await.is_pending());
        peer.write_all(b"12345").unwrap();
        runtime::time::sleep(ms(20)).await;
    });
    drop(a);
    peer.write_all(b"67").unwrap();
    finish(&peer);
    std::thread::sleep(ms(20));
    let b = rt();
    let mut all = b.block_on(read).into_result().unwrap().1;
    b.block_on(async {
        loop {
            let (n, data) = stream.read(Vec::with_capacity(3)).await.into_result().unwrap();
            if n == 0 {
                return;
            }
            all.extend(data);
        }
    });
    assert_eq!(String::from_utf8_lossy(&all), "1234567");
}

/// The same read is polled in another runtime while the first is alive.
fn elsewhere(vectored: bool) -> String {
    let (a, b) = (rt(), rt());
    let (stream, mut peer) = a.block_on(pair());
    let mut read: std::pin::Pin<Box<dyn Future<Output = Vec<u8>>>> = if vectored {
        Box::pin(async {
            let bufs = vec![Vec::with_capacity(4), Vec::with_capacity(4)];
            stream.read_vectored(bufs).await.into_result().unwrap().1.concat()
        })
    } else {
        Box::pin(async { stream.read(Vec::with_capacity(10)).await.into_result().unwrap().1 })
    };
    a.block_on(async {
        peer.write_all(b"x").unwrap();
        assert_eq!(&stream.recv().await.unwrap()[..], b"x");
        assert!(poll_once(read.as_mut()).await.is_pending());
        peer.write_all(b"12345").unwrap();
        runtime::time::sleep(ms(20)).await;
    });
    // The standing receive of `a` was cancelled as its block_on ended, or stands.
    peer.write_all(b"67").unwrap();
    std::thread::sleep(ms(20));
    let mut all = b.block_on(async {
        match runtime::time::timeout(ms(500), read).await {
            Ok(data) => data,
            Err(_) => b"(nothing)".to_vec(),
        }
    });
    finish(&peer);
    a.block_on(async {
        loop {
            let (n, data) = stream.read(Vec::with_capacity(3)).await.into_result().unwrap();
            if n == 0 {
                return;
            }
            all.extend(data);
        }
    });
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn attack_read_polled_in_another_runtime() {
    let _watchdog = watchdog(secs(30));
    match std::panic::catch_unwind(|| elsewhere(false)) {
        Ok(all) => assert_eq!(all, "1234567"),
        Err(_) => println!("refused with a panic, as documented"),
    }
}

#[test]
fn attack_read_vectored_polled_in_another_runtime() {
    let _watchdog = watchdog(secs(30));
    match std::panic::catch_unwind(|| elsewhere(true)) {
        Ok(all) => assert_eq!(all, "1234567"),
        Err(_) => println!("refused with a panic, as documented"),
    }
}

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use runtime::net::TcpStream;

use crate::peer::{Peer, pattern, reset};

/// A destructor that reads while its runtime closes leaves no error of the runtime's to the next one.
#[test]
fn attack_closing_error_is_not_invented() {
    let _watchdog = watchdog(secs(30));
    struct Guard(Rc<TcpStream>, bool);
    impl Drop for Guard {
        fn drop(&mut self) {
            let mut task = Context::from_waker(Waker::noop());
            let mut recv = Box::pin(self.0.recv());
            let first = recv.as_mut().poll(&mut task);
            println!("closing recv: {first:?}");
            drop(recv);
            if self.1 {
                let mut read = Box::pin(self.0.read(Vec::with_capacity(4)));
                for _ in 0..1 {
                    println!("closing read: {:?}", read.as_mut().poll(&mut task).is_ready());
                }
            }
        }
    }
    for both in [false, true] {
        let a = rt();
        let (stream, mut peer) = a.block_on(pair());
        let stream = Rc::new(stream);
        let guard = Guard(Rc::clone(&stream), both);
        a.block_on(async {
            drop(runtime::spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            }));
            runtime::task::yield_now().await;
        });
        drop(a);
        peer.write_all(b"12345").unwrap();
        finish(&peer);
        let mut all = Vec::new();
        rt().block_on(async {
            loop {
                let (n, data) = stream.read(Vec::with_capacity(3)).await.into_result().unwrap();
                if n == 0 {
                    return;
                }
                all.extend(data);
            }
        });
        assert_eq!(all, b"12345");
    }
}

/// A `recv` that is polled elsewhere panics without losing a piece.
#[test]
fn attack_recv_elsewhere_above_the_bound() {
    let _watchdog = watchdog(secs(30));
    let build = || {
        let mut builder = tiny(8, 16);
        let pool = &mut builder.setup_mut().pool;
        (pool.slab_bytes, pool.first, pool.most, pool.queue_bytes) = (2048, 2, 4, 4096);
        builder.build().unwrap()
    };
    let (a, b) = (build(), build());
    let (stream, mut peer) = a.block_on(pair());
    let mut recv = Box::pin(stream.recv());
    const LEN: usize = 30_000;
    a.block_on(async {
        peer.write_all(b"x").unwrap();
        assert_eq!(&stream.recv().await.unwrap()[..], b"x");
        assert!(poll_once(recv.as_mut()).await.is_pending());
        peer.write_all(&pattern(0, LEN)).unwrap();
        for _ in 0..5 {
            runtime::time::sleep(ms(5)).await;
        }
    });
    finish(&peer);
    let mut all = Vec::new();
    match catch_unwind(AssertUnwindSafe(|| b.block_on(recv.as_mut()))) {
        Ok(data) => all.extend_from_slice(&data.unwrap()),
        Err(_) => println!("panicked"),
    }
    drop(recv);
    a.block_on(async {
        loop {
            let (n, data) = stream.read(Vec::with_capacity(1000)).await.into_result().unwrap();
            if n == 0 {
                return;
            }
            all.extend(data);
        }
    });
    assert_eq!(all.len(), LEN, "bytes are missing");
    assert!(all == pattern(0, LEN));
}

type Fut = Pin<Box<dyn Future<Output = Got>>>;

struct Got {
    data: Vec<u8>,
    end: bool,
    error: Option<std::io::Error>,
    peek: bool,
}

fn got(peek: bool, whole: bool, result: std::io::Result<usize>, data: Vec<u8>) -> Got {
    match result {
        Ok(0) if !whole => Got { data: Vec::new(), end: true, error: None, peek },
        Ok(_) => Got { data, end: false, error: None, peek },
        Err(error) => Got { data, end: false, error: Some(error), peek },
    }
}

struct Conn {
    stream: Rc<TcpStream>,
    peer: Peer,
    sent: usize,
    got: usize,
    finished: bool,
    over: bool,
    /// In flight, and whether it is a read of the whole.
    reads: Vec<(Fut, bool, &'static str)>,
}

/// Futures that live outside of `block_on`, are polled by whichever of several runtimes, and dropped anywhere.
fn wander(seed: u64, steps: u32) {
    println!("seed {seed}");
    let mut rng = Rng((seed * 2 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for _ in 0..8 {
        rng.next();
    }
    let build = |rng: &mut Rng| {
        let mut builder = tiny(8, 16);
        match rng.below(4) {
            0 => builder.setup_mut().pool.none = true,
            1 => {
                let pool = &mut builder.setup_mut().pool;
                (pool.slab_bytes, pool.first, pool.most, pool.queue_bytes) = (2048, 2, 2, 4096);
                pool.classic = rng.below(2) == 0;
            }
            2 => builder.setup_mut().pool.queue_bytes = 4096,
            _ => {}
        }
        builder.build().unwrap()
    };
    let mut runtimes: Vec<Option<runtime::Runtime>> = (0..2).map(|_| Some(build(&mut rng))).collect();
    let mut conns: Vec<Conn> = Vec::new();
    let log: RefCell<Vec<String>> = RefCell::default();
    let say = |text: String| {
        let mut log = log.borrow_mut();
        log.push(text);
        if log.len() > 60 {
            log.remove(0);
        }
    };
    let check = AssertUnwindSafe(|| {
        for _ in 0..steps {
            while conns.len() < 2 {
                let (stream, peer) = runtimes[0].as_ref().unwrap().block_on(pair());
                peer.set_nonblocking(true).unwrap();
                say("new".into());
                conns.push(Conn {
                    stream: Rc::new(stream),
                    peer,
                    sent: 0,
                    got: 0,
                    finished: false,
                    over: false,
                    reads: Vec::new(),
                });
            }
            let at = rng.below(conns.len() as u64) as usize;
            let which = rng.below(runtimes.len() as u64) as usize;
            let conn = &mut conns[at];
            match rng.below(16) {
                0..=3 => {
                    let n = [1, 10, 100, 5000][rng.below(4) as usize];
                    if !conn.finished
                        && conn.sent - conn.got < 20_000
                        && let Ok(n) = conn.peer.write(&pattern(conn.sent, n))
                    {
                        say(format!("{at}: sent {n} at {}", conn.sent));
                        conn.sent += n;
                    }
                }
                4..=6 if conn.reads.len() < 3 => {
                    let stream = Rc::clone(&conn.stream);
                    let n = 1 + rng.below(300) as usize;
                    let kind = rng.below(6);
                    let name = ["recv", "read", "exact", "peek", "vectored", "next"][kind as usize];
                    let fut: Fut = match kind {
                        0 => Box::pin(async move {
                            match stream.recv().await {
                                Ok(data) => got(false, false, Ok(data.len()), data.to_vec()),
                                Err(error) => got(false, false, Err(error), Vec::new()),
                            }
                        }),
                        1 => Box::pin(async move {
                            let r = stream.read(Vec::with_capacity(n)).await;
                            got(false, false, r.0, r.1)
                        }),
                        2 => Box::pin(async move {
                            let r = stream.read_exact(vec![0; n]).await;
                            got(false, true, r.0.map(|()| n), r.1)
                        }),
                        3 => Box::pin(async move {
                            let r = stream.peek(Vec::with_capacity(n)).await;
                            got(true, false, r.0, r.1)
                        }),
                        4 => Box::pin(async move {
                            let r = stream.read_vectored(vec![Vec::with_capacity(n / 2), Vec::with_capacity(n)]).await;
                            got(false, false, r.0, r.1.concat())
                        }),
                        _ => Box::pin(async move {
                            match stream.recv_stream().next().await {
                                None => got(false, false, Ok(0), Vec::new()),
                                Some(Ok(data)) => got(false, false, Ok(data.len()), data.to_vec()),
                                Some(Err(error)) => got(false, false, Err(error), Vec::new()),
                            }
                        }),
                    };
                    say(format!("{at}: make {name}"));
                    conn.reads.push((fut, kind == 2, name));
                }
                7..=11 => {
                    // Polls all that are in flight in one runtime, a few times.
                    let Some(rt) = runtimes[which].as_ref() else { continue };
                    let times = 1 + rng.below(3);
                    let naps = rng.below(3);
                    say(format!("{at}: poll in {which}, {times} times, {} reads", conn.reads.len()));
                    rt.block_on(async {
                        for _ in 0..times {
                            let mut i = 0;
                            while i < conn.reads.len() {
                                let (fut, whole, name) = &mut conn.reads[i];
                                let mut task = Context::from_waker(Waker::noop());
                                let polled = catch_unwind(AssertUnwindSafe(|| fut.as_mut().poll(&mut task)));
                                let whole = *whole;
                                match polled {
                                    Err(_) => {
                                        say(format!("{at}: {name} panics"));
                                        drop(conn.reads.remove(i));
                                    }
                                    Ok(Poll::Pending) => i += 1,
                                    Ok(Poll::Ready(Got { data, end, error, peek })) => {
                                        say(format!("{at}: {name} {} {end} {error:?}", data.len()));
                                        drop(conn.reads.remove(i));
                                        if let Some(error) = error {
                                            assert!(
                                                whole && error.kind() == std::io::ErrorKind::UnexpectedEof,
                                                "{error}"
                                            );
                                            assert!(conn.finished, "an invented end");
                                            let rest = conn.sent - conn.got;
                                            assert_eq!(rest, data.len(), "the end too early");
                                            assert!(data[..rest] == pattern(conn.got, rest), "bytes at the end");
                                            conn.got += rest;
                                            conn.over = true;
                                        } else if end {
                                            assert!(conn.finished && conn.got == conn.sent, "an early end");
                                            conn.over = true;
                                        } else {
                                            assert!(conn.got + data.len() <= conn.sent, "invented");
                                            assert!(
                                                data == pattern(conn.got, data.len()),
                                                "{} bytes at {} are others",
                                                data.len(),
                                                conn.got
                                            );
                                            if !peek {
                                                conn.got += data.len();
                                            }
                                        }
                                    }
                                }
                            }
                            match naps {
                                0 => runtime::task::yield_now().await,
                                1 => runtime::time::sleep(Duration::from_micros(200)).await,
                                _ => {}
                            }
                        }
                    });
                }
                12 if !conn.reads.is_empty() => {
                    let i = rng.below(conn.reads.len() as u64) as usize;
                    let read = conn.reads.remove(i);
                    if rng.below(2) == 0
                        && let Some(rt) = runtimes[which].as_ref()
                    {
                        say(format!("{at}: drop {} in {which}", read.2));
                        rt.block_on(async { drop(read) });
                    } else {
                        say(format!("{at}: drop {} outside", read.2));
                        drop(read);
                    }
                }
                13 if rng.below(3) == 0 => {
                    say(format!("drop runtime {which}"));
                    runtimes[which] = None;
                    runtimes[which] = Some(build(&mut rng));
                }
                14 if rng.below(6) == 0 && !conn.finished => {
                    say(format!("{at}: finish"));
                    finish(&conn.peer);
                    conn.finished = true;
                }
                15 => {
                    for rt in runtimes.iter().flatten() {
                        rt.block_on(runtime::time::sleep(Duration::from_micros(100)));
                    }
                }
                _ => {}
            }
            conns.retain(|conn| !conn.over);
        }
        // To the last byte.
        for conn in &mut conns {
            conn.reads.clear();
            if !conn.finished {
                finish(&conn.peer);
            }
            for rt in runtimes.iter().flatten() {
                rt.block_on(runtime::time::sleep(ms(1)));
            }
            let last = runtimes.len() - 1;
            runtimes[0] = None;
            let rt = runtimes[last].as_ref().unwrap();
            rt.block_on(async {
                loop {
                    let data = runtime::time::timeout(secs(5), conn.stream.recv()).await.expect("hangs").unwrap();
                    if data.is_empty() {
                        break;
                    }
                    assert!(data[..] == pattern(conn.got, data.len()), "bytes at {}", conn.got);
                    conn.got += data.len();
                }
            });
            assert_eq!(conn.got, conn.sent);
        }
    });
    if let Err(panic) = catch_unwind(check) {
        for line in log.borrow().iter() {
            println!("  {line}");
        }
        println!("failed with seed {seed}");
        std::panic::resume_unwind(panic);
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn attack_wander() {
    let (first, count) = (setting("SEED", 1), setting("COUNT", 30));
    let start = std::time::Instant::now();
    let mut done = 0;
    for seed in first..first + count {
        let _watchdog = watchdog(secs(60));
        wander(seed, 400);
        done += 1;
        if start.elapsed() > secs(120) {
            break;
        }
    }
    println!("{done} seeds from {first}");
}

// ---- writes -----------------------------------------------------------------------------------------------------------

// ---- servers ----------------------------------------------------------------------------------------------------------

// ---- more hand-made ones ----------------------------------------------------------------------------------------------

/// A future that waits is dropped between two `block_on`s; the stream goes to another thread while the first one sleeps.
fn left_behind(standing: bool, outside: bool) {
    let _watchdog = watchdog(secs(30));
    let a = rt();
    let (stream, mut peer) = a.block_on(pair());
    let mut read: Pin<Box<dyn Future<Output = ()> + '_>> = if standing {
        Box::pin(async { drop(stream.recv().await) })
    } else {
        Box::pin(async { drop(stream.read(vec![0; 10]).await) })
    };
    a.block_on(async {
        assert!(poll_once(read.as_mut()).await.is_pending());
        runtime::time::sleep(ms(5)).await;
    });
    peer.write_all(b"12345").unwrap();
    if outside {
        drop(read);
    } else {
        a.block_on(async { drop(read) });
    }
    finish(&peer);
    let moved = std::thread::spawn(move || {
        rt().block_on(async {
            let mut all = Vec::new();
            loop {
                let (n, data) = runtime::time::timeout(secs(2), stream.read(Vec::with_capacity(3)))
                    .await
                    .expect("hangs: its home does not run")
                    .into_result()
                    .unwrap();
                if n == 0 {
                    return all;
                }
                all.extend(data);
            }
        })
    });
    assert_eq!(moved.join().unwrap(), b"12345");
}

#[test]
fn attack_left_behind_recv_inside() {
    left_behind(true, false);
}

#[test]
fn attack_left_behind_read_inside() {
    left_behind(false, false);
}

thread_local! {
    static LAST: RefCell<Option<Rc<TcpStream>>> = const { RefCell::new(None) };
}

/// A waker that a timer keeps until the runtime is gone, and whose destructor receives.
#[test]
fn attack_a_receive_after_the_end() {
    struct Late;
    impl std::task::Wake for Late {
        fn wake(self: std::sync::Arc<Self>) {}
    }
    impl Drop for Late {
        fn drop(&mut self) {
            let stream = LAST.with(|last| last.borrow_mut().take());
            let Some(stream) = stream else { return };
            let mut task = Context::from_waker(Waker::noop());
            let polled = catch_unwind(AssertUnwindSafe(|| Box::pin(stream.recv()).as_mut().poll(&mut task)));
            println!("late: {polled:?}");
        }
    }
    let _watchdog = watchdog(secs(30));
    let a = rt();
    let (stream, mut peer) = a.block_on(pair());
    let stream = Rc::new(stream);
    LAST.with(|last| *last.borrow_mut() = Some(Rc::clone(&stream)));
    let mut sleep = None;
    a.block_on(async {
        let waker = Waker::from(std::sync::Arc::new(Late));
        let mut task = Context::from_waker(&waker);
        let mut nap = Box::pin(runtime::time::sleep(secs(1000)));
        assert!(nap.as_mut().poll(&mut task).is_pending());
        sleep = Some(nap);
    });
    drop(a);
    peer.write_all(b"12345").unwrap();
    finish(&peer);
    let mut all = Vec::new();
    rt().block_on(async {
        loop {
            let data = runtime::time::timeout(secs(2), stream.recv()).await.expect("hangs").unwrap();
            if data.is_empty() {
                return;
            }
            all.extend_from_slice(&data);
        }
    });
    drop(sleep);
    assert_eq!(all, b"12345");
}

// ---- hops -------------------------------------------------------------------------------------------------------------

/// A write of everything whose first part hid a reset, and that is dropped in its second.
fn reset_then_dropped(zc: bool, naps: u32) {
    let _watchdog = watchdog(secs(30));
    rt().block_on(async {
        let (stream, mut peer) = pair().await;
        stream.set_zc_threshold(1000);
        let data = vec![7u8; 64 << 20];
        let mut write: Pin<Box<dyn Future<Output = std::io::Result<()>> + '_>> = if zc {
            Box::pin(async { stream.write_all_zc(data).await.0 })
        } else {
            Box::pin(async { stream.write_all(data).await.0 })
        };
        for _ in 0..3 {
            assert!(poll_once(write.as_mut()).await.is_pending());
            runtime::time::sleep(ms(5)).await;
        }
        // So that the operation in flight has sent a part.
        peer.set_nonblocking(true).unwrap();
        for _ in 0..5 {
            let _ = std::io::Read::read(&mut peer, &mut vec![0; 1 << 20]);
            runtime::time::sleep(ms(5)).await;
        }
        reset(peer);
        // Its first part ends meanwhile.
        for _ in 0..3 {
            runtime::time::sleep(ms(5)).await;
        }
        let again = poll_once(write.as_mut()).await;
        println!("zc {zc}: after the reset: {again:?}");
        assert!(again.is_pending(), "told at once: nothing to see");
        for _ in 0..naps {
            runtime::task::yield_now().await;
        }
        drop(write);
        let read = stream.read(vec![0; 10]).await.0;
        let next = stream.write_all("x").await.0;
        println!("read: {read:?}, write: {next:?}");
        let error = read.expect_err("a clean end after a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn attack_reset_then_dropped() {
    reset_then_dropped(false, 0);
}

#[test]
fn attack_reset_then_dropped_later() {
    reset_then_dropped(false, 3);
}

#[test]
fn attack_reset_then_dropped_zc() {
    reset_then_dropped(true, 0);
}

/// A body that panics leaves its streams usable elsewhere.
#[test]
fn attack_moved_after_a_panic() {
    let _watchdog = watchdog(secs(30));
    let a = rt();
    let (stream, mut peer) = a.block_on(pair());
    let result = catch_unwind(AssertUnwindSafe(|| {
        a.block_on(async {
            peer.write_all(b"x").unwrap();
            assert_eq!(&stream.recv().await.unwrap()[..], b"x");
            panic!("the body fails");
        })
    }));
    assert!(result.is_err());
    peer.write_all(b"12345").unwrap();
    finish(&peer);
    let moved = std::thread::spawn(move || {
        rt().block_on(async { runtime::time::timeout(secs(2), stream.recv()).await.expect("hangs").unwrap().to_vec() })
    });
    assert_eq!(moved.join().unwrap(), b"12345");
}

/// The very future of `block_on` is a limit on a read; the stream goes to another thread while its runtime sleeps.
fn timed_out(standing: bool) {
    let _watchdog = watchdog(secs(30));
    let a = rt();
    let (stream, mut peer) = a.block_on(pair());
    if standing {
        assert!(a.block_on(runtime::time::timeout(ms(5), stream.recv())).is_err());
    } else {
        assert!(a.block_on(runtime::time::timeout(ms(5), stream.read(vec![0; 10]))).is_err());
    }
    peer.write_all(b"12345").unwrap();
    let moved = std::thread::spawn(move || {
        rt().block_on(async {
            let read = stream.read(Vec::with_capacity(5));
            runtime::time::timeout(secs(2), read).await.expect("hangs: its home does not run").into_result().unwrap().1
        })
    });
    assert_eq!(moved.join().unwrap(), b"12345");
}

#[test]
fn attack_timed_out_read() {
    timed_out(false);
}

#[test]
fn attack_timed_out_recv() {
    timed_out(true);
}
