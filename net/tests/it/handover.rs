//! Streams and pending futures that are carried between runtimes and threads.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use runtime::Runtime;
use runtime::net::TcpStream;
use runtime::task::yield_now;
use runtime::testing::tiny;
use runtime::time::sleep;

use crate::peer::{finish, ms, pair, pattern, poll_once, run, secs, within};
use crate::support::watchdog;

/// Everything to the end, in small reads.
async fn rest(stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let (n, data) = stream.read(Vec::with_capacity(3)).await.into_result().unwrap();
        if n == 0 {
            return all;
        }
        all.extend(data);
    }
}

fn rt() -> runtime::Runtime {
    tiny(8, 16).build().unwrap()
}

/// A `read_exact` that gathered from the standing receive, whose runtime ends while it waits, and that is dropped then.
#[test]
fn an_exact_read_that_is_dropped_after_its_runtime_gives_back_in_order() {
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
    let all = b.block_on(async { rest(&stream).await });
    assert_eq!(String::from_utf8_lossy(&all), "1234567");
}

/// The same read goes on in the next runtime.
#[test]
fn a_read_goes_on_in_the_next_runtime_with_what_the_first_had() {
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
        all.extend(rest(&stream).await);
    });
    assert_eq!(String::from_utf8_lossy(&all), "1234567");
}

/// The same read is polled in another runtime while the first is alive.
fn elsewhere(vectored: bool) -> String {
    let (a, b) = (rt(), rt());
    let (stream, mut peer) = a.block_on(pair());
    let mut read: Pin<Box<dyn Future<Output = Vec<u8>>>> = if vectored {
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
        all.extend(rest(&stream).await);
    });
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn a_read_that_is_polled_in_another_runtime_overtakes_nothing() {
    let _watchdog = watchdog(secs(30));
    match catch_unwind(|| elsewhere(false)) {
        Ok(all) => assert_eq!(all, "1234567"),
        Err(_) => println!("refused with a panic, as documented"),
    }
}

#[test]
fn a_scattered_read_that_is_polled_in_another_runtime_overtakes_nothing() {
    let _watchdog = watchdog(secs(30));
    match catch_unwind(|| elsewhere(true)) {
        Ok(all) => assert_eq!(all, "1234567"),
        Err(_) => println!("refused with a panic, as documented"),
    }
}

/// A destructor that reads while its runtime closes leaves no error of the runtime's to the next one.
#[test]
fn what_a_closing_runtime_refuses_is_no_error_of_the_stream() {
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
            all.extend(rest(&stream).await);
        });
        assert_eq!(all, b"12345");
    }
}

/// A `recv` that is polled elsewhere panics without losing a piece.
#[test]
fn a_receive_that_panics_elsewhere_takes_nothing() {
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
fn a_receive_that_is_dropped_inside_lets_go_of_its_stream() {
    left_behind(true, false);
}

#[test]
fn a_read_that_is_dropped_inside_lets_go_of_its_stream() {
    left_behind(false, false);
}

thread_local! {
    static LAST: RefCell<Option<Rc<TcpStream>>> = const { RefCell::new(None) };
}

/// A waker that a timer keeps until the runtime is gone, and whose destructor receives.
#[test]
fn a_receive_that_begins_after_the_end_leaves_the_stream_usable() {
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

/// A body that panics leaves its streams usable elsewhere.
#[test]
fn a_body_that_panics_lets_go_of_its_streams() {
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
fn a_read_that_was_the_body_lets_go_of_its_stream() {
    timed_out(false);
}

#[test]
fn a_receive_that_was_the_body_lets_go_of_its_stream() {
    timed_out(true);
}

#[test]
fn a_zero_copy_write_that_a_worker_has_is_settled_as_block_on_ends() {
    let (rt, mut peer, stream) = {
        let rt = Runtime::new().unwrap();
        let (peer, stream) = rt.block_on(async {
            let (stream, peer) = pair().await;
            stream.set_zc_threshold(0);
            let mut write = Box::pin(stream.write_all_zc(vec![7; 16 << 20]));
            assert!(poll_once(write.as_mut()).await.is_pending());
            sleep(ms(5)).await;
            // The kernel's own poll tells of this again and again, and then a worker takes over.
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            sleep(ms(50)).await;
            drop(write);
            (peer, stream)
        });
        (rt, peer, stream)
    };
    let reading = std::thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    });
    // The first runtime does not run meanwhile.
    let other = std::thread::spawn(move || {
        run(secs(20), async { within(secs(5), "a write", stream.write_all("the end")).await.0.unwrap() });
    });
    other.join().unwrap();
    assert!(reading.join().unwrap().ends_with(b"the end"));
    drop(rt);
}

#[test]
fn reads_that_were_dropped_a_turn_before_the_end_of_block_on_are_settled_there() {
    const COUNT: usize = 100;
    let (rt, (mut peers, streams)) = {
        let rt = tiny(2, 2).build().unwrap();
        let pairs = rt.block_on(async {
            let (mut peers, mut streams) = (Vec::new(), Vec::new());
            for _ in 0..COUNT {
                let (stream, peer) = pair().await;
                streams.push(stream);
                peers.push(peer);
            }
            let mut reads: Vec<_> = streams.iter().map(|stream| Box::pin(stream.read(vec![0; 16]))).collect();
            for read in &mut reads {
                assert!(poll_once(read.as_mut()).await.is_pending());
            }
            yield_now().await;
            drop(reads);
            // The cancels go in, and not all of what they end comes out.
            yield_now().await;
            (peers, streams)
        });
        (rt, pairs)
    };
    for peer in &mut peers {
        peer.write_all(b"hello").unwrap();
    }
    let other = std::thread::spawn(move || {
        run(secs(20), async {
            for stream in &streams {
                assert_eq!(within(secs(5), "a read", stream.read(vec![0; 16])).await.0.unwrap(), 5);
            }
        });
    });
    other.join().unwrap();
    drop(rt);
}
