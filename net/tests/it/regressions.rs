//! Failures that were once seen: each test failed before its fix.

use std::cell::RefCell;
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use runtime::Runtime;
use runtime::io::{AsyncReadExt, BufReader, FixedBufs};
use runtime::net::{TcpListener, TcpStream};
use runtime::task::yield_now;
use runtime::time::{sleep, timeout};
use socket2::SockRef;

use crate::peer::{
    Peer, Ticker, client, ends, finish, listen, may_open, ms, pair, poll_once, reset, run, secs, start_and_drop, until,
    within,
};
use crate::support::{cpu, fds, in_child, scaled, threads, watchdog};

/// Connects so many clients and takes them, in pieces that no backlog minds.
async fn crowd(listener: &TcpListener, count: usize) -> (Vec<TcpStream>, Vec<Peer>) {
    let addr = listener.local_addr().unwrap();
    let (mut streams, mut peers) = (Vec::new(), Vec::new());
    while peers.len() < count {
        let piece = (count - peers.len()).min(50);
        peers.extend((0..piece).map(|_| client(addr)));
        for _ in 0..piece {
            streams.push(within(secs(10), "a client of the crowd", listener.accept()).await.unwrap().0);
        }
    }
    (streams, peers)
}

/// Spawns a task per stream that reads until its end.
fn read_each(streams: Vec<TcpStream>) {
    for stream in streams {
        drop(runtime::spawn(async move { while let Ok(1..) = stream.read(Vec::with_capacity(16)).await.0 {} }));
    }
}

/// Connects so many clients to a listener of this runtime and reads each in a task; gives the clients.
async fn crowd_of_readers(count: usize) -> Vec<Peer> {
    let (listener, _) = listen().await;
    let (streams, peers) = crowd(&listener, count).await;
    read_each(streams);
    until("all of them read", secs(10), || runtime::testing::in_flight() >= count as u32).await;
    peers
}

/// Writes until the kernel takes no more, and leaves nothing in flight.
async fn stuff(stream: &TcpStream, pause: Duration) {
    stream.set_send_buffer_size(64 * 1024).unwrap();
    while timeout(pause, stream.write(vec![1u8; 64 * 1024])).await.is_ok() {}
    yield_now().await;
}

// ---- shutdown with many in flight --------------------------------------------------------------------------------------

#[test]
fn a_runtime_with_six_thousand_idle_connections_is_dropped_fast_and_leaves_no_descriptors() {
    let name = "regressions::a_runtime_with_six_thousand_idle_connections_is_dropped_fast_and_leaves_no_descriptors";
    in_child(name, secs(60), || {
        const COUNT: usize = 6000;
        if !may_open(COUNT) {
            return;
        }
        let _watchdog = watchdog(secs(50));
        let base = fds();
        let rt = Runtime::new().unwrap();
        let peers = rt.block_on(crowd_of_readers(COUNT));
        let begun = Instant::now();
        drop(rt);
        let took = begun.elapsed();
        assert!(took < scaled(secs(1)), "the drop took {took:?}");
        assert_eq!(fds(), base + COUNT, "the clients' alone");
        for mut peer in peers {
            assert_eq!(ends(&mut peer).unwrap(), 0);
        }
    });
}

#[test]
fn a_shutdown_without_any_time_leaves_none_of_five_hundred_reads_behind() {
    in_child("regressions::a_shutdown_without_any_time_leaves_none_of_five_hundred_reads_behind", secs(60), || {
        const COUNT: usize = 500;
        let _watchdog = watchdog(secs(50));
        for round in 0..3 {
            let base = fds();
            let rt = Runtime::new().unwrap();
            let peers = rt.block_on(crowd_of_readers(COUNT));
            assert_eq!(rt.shutdown_timeout(Duration::ZERO), 0, "left behind in round {round}");
            assert_eq!(fds(), base + COUNT, "the clients' alone");
            drop(peers);
        }
    });
}

// ---- buffers -----------------------------------------------------------------------------------------------------------

#[test]
fn a_read_or_peek_into_a_buffer_of_more_than_two_gib_is_like_any_other() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        // Never touched, so never there: of two GiB, where a length turns negative, and beyond.
        for capacity in [(1 << 31) - 1, 1 << 31, 0x9000_0000, 3 << 30] {
            for in_flight in [false, true] {
                let mut later = peer.try_clone().unwrap();
                let mut say = move || later.write_all(b"hello").unwrap();
                if !in_flight {
                    say();
                    sleep(ms(5)).await;
                }
                let mut peek = Box::pin(stream.peek(Vec::with_capacity(capacity)));
                if in_flight {
                    assert!(poll_once(peek.as_mut()).await.is_pending());
                    sleep(ms(5)).await;
                    say();
                }
                let (n, data) = within(secs(5), "a peek", peek).await.into_result().unwrap();
                assert_eq!((n, &data[..]), (5, &b"hello"[..]), "a peek into {capacity:#x}");
                let (n, data) = stream.read(Vec::with_capacity(capacity)).await.into_result().unwrap();
                assert_eq!((n, &data[..]), (5, &b"hello"[..]), "a read into {capacity:#x}");

                let bufs = vec![Vec::with_capacity(capacity), Vec::with_capacity(5)];
                if !in_flight {
                    say();
                    sleep(ms(5)).await;
                }
                let mut read = Box::pin(stream.read_vectored(bufs));
                if in_flight {
                    assert!(poll_once(read.as_mut()).await.is_pending());
                    sleep(ms(5)).await;
                    say();
                }
                let (n, bufs) = within(secs(5), "a vectored read", read).await.into_result().unwrap();
                assert_eq!((n, &bufs[0][..]), (5, &b"hello"[..]), "a vectored read into {capacity:#x}");

                let mut read = Box::pin(stream.read(Vec::with_capacity(capacity)));
                assert!(poll_once(read.as_mut()).await.is_pending());
                sleep(ms(5)).await;
                say();
                let (n, data) = within(secs(5), "a read", read).await.into_result().unwrap();
                assert_eq!((n, &data[..]), (5, &b"hello"[..]), "a read in flight into {capacity:#x}");
            }
        }
        let mut exact = Box::pin(stream.read_exact(Vec::with_capacity(1 << 31)));
        assert!(poll_once(exact.as_mut()).await.is_pending());
        sleep(ms(5)).await;
        peer.write_all(b"all there is").unwrap();
        finish(&peer);
        let result = within(secs(5), "a read_exact", exact).await;
        assert_eq!(result.0.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(result.1, b"all there is");
    });
}

// ---- errors that a dropped operation was told --------------------------------------------------------------------------

/// When the peer resets, seen from the drop of an operation in flight.
#[derive(Debug, Clone, Copy)]
enum Reset {
    /// The operation has ended with it.
    Before,
    /// No turn of the runtime lies between.
    With,
    After,
}

/// Drops an operation in flight, and resets the connection.
async fn drop_and_reset<F: Future>(operation: F, peer: Peer, when: Reset) {
    let mut operation = Box::pin(operation);
    assert!(poll_once(operation.as_mut()).await.is_pending());
    sleep(ms(20)).await;
    match when {
        Reset::Before => {
            reset(peer);
            sleep(ms(20)).await;
            drop(operation);
        }
        Reset::With => {
            drop(operation);
            reset(peer);
        }
        Reset::After => {
            drop(operation);
            sleep(ms(10)).await;
            reset(peer);
        }
    }
    sleep(ms(10)).await;
}

/// A read's result by its kind.
async fn read(stream: &TcpStream) -> Result<usize, ErrorKind> {
    let read = within(secs(5), "a read after a reset", stream.read(Vec::with_capacity(16))).await;
    read.0.map_err(|error| error.kind())
}

#[test]
fn a_peek_dropped_in_flight_does_not_swallow_the_reset() {
    run(secs(20), async {
        for when in [Reset::Before, Reset::With, Reset::After] {
            let (stream, peer) = pair().await;
            drop_and_reset(stream.peek(Vec::with_capacity(16)), peer, when).await;
            assert_eq!(read(&stream).await, Err(ErrorKind::ConnectionReset), "{when:?}");
            assert_eq!(read(&stream).await, Ok(0), "{when:?}: told once");
        }
    });
}

#[test]
fn a_write_dropped_in_flight_does_not_swallow_the_reset() {
    run(secs(20), async {
        for when in [Reset::Before, Reset::With, Reset::After] {
            for vectored in [false, true] {
                let (stream, peer) = pair().await;
                drop_and_reset(stream.write_all(vec![0u8; 32 << 20]), peer, when).await;
                let first = if vectored {
                    let read = within(secs(5), "a read", stream.read_vectored(vec![Vec::with_capacity(8)])).await;
                    read.0.map_err(|error| error.kind())
                } else {
                    read(&stream).await
                };
                assert_eq!(first, Err(ErrorKind::ConnectionReset), "{when:?}, vectored {vectored}");
                assert_eq!(read(&stream).await, Ok(0), "{when:?}, vectored {vectored}: told once");
                assert!(stream.write_all("more").await.0.is_err(), "{when:?}, vectored {vectored}");
            }
        }
    });
}

#[test]
fn a_reset_that_a_dropped_write_was_told_comes_behind_the_last_words() {
    run(secs(20), async {
        for when in [Reset::Before, Reset::With, Reset::After] {
            let (stream, mut peer) = pair().await;
            peer.write_all(b"last words").unwrap();
            drop_and_reset(stream.write_all(vec![0u8; 32 << 20]), peer, when).await;
            assert_eq!(read(&stream).await, Ok(10), "{when:?}");
            assert_eq!(read(&stream).await, Err(ErrorKind::ConnectionReset), "{when:?}");
            assert_eq!(read(&stream).await, Ok(0), "{when:?}: told once");
        }
    });
}

// ---- accepting ---------------------------------------------------------------------------------------------------------

#[test]
fn a_program_that_does_not_accept_holds_few_connections_of_those_that_come() {
    in_child("regressions::a_program_that_does_not_accept_holds_few_connections_of_those_that_come", secs(60), || {
        const CLIENTS: usize = 400;
        const GROUP: usize = 8;
        run(secs(50), async {
            let (listener, addr) = listen().await;
            let mut peers = vec![client(addr)];
            let mut taken = vec![listener.accept().await.unwrap().1];
            sleep(ms(20)).await;
            let base = fds();
            for _ in 0..CLIENTS / GROUP {
                peers.extend((0..GROUP).map(|_| client(addr)));
                sleep(ms(1)).await;
                let held = fds() - base - (peers.len() - 1);
                assert!(held <= 64 + 2 * GROUP, "{held} descriptors held for connections that nobody asked for");
            }
            sleep(ms(50)).await;
            let held = fds() - base - CLIENTS;
            assert!(held <= 64 + 2 * GROUP, "{held} descriptors held for connections that nobody asked for");
            // And nobody is lost, nor out of order.
            while taken.len() < peers.len() {
                taken.push(within(secs(5), "a client that waited", listener.accept()).await.unwrap().1);
            }
            let expected: Vec<SocketAddr> = peers.iter().map(|peer| peer.local_addr().unwrap()).collect();
            assert_eq!(taken, expected);
            assert!(timeout(ms(50), listener.accept()).await.is_err(), "nobody else is there");
            until("only the clients are left", secs(2), || fds() == base + CLIENTS).await;
        });
    });
}

#[test]
fn a_port_is_free_at_once_though_hundreds_of_connections_became_readable_before() {
    in_child(
        "regressions::a_port_is_free_at_once_though_hundreds_of_connections_became_readable_before",
        secs(60),
        || {
            for count in [10, 60, 300, 1000] {
                run(secs(50), async {
                    let (listener, addr) = listen().await;
                    let (streams, mut peers) = crowd(&listener, count).await;
                    read_each(streams);
                    until("all of them read", secs(10), || runtime::testing::in_flight() > count as u32).await;
                    // All of them come before the loop turns again.
                    for peer in &mut peers {
                        peer.write_all(b"x").unwrap();
                    }
                    drop(listener);
                    let refused = Peer::connect(addr).map_err(|error| error.kind());
                    assert_eq!(refused.unwrap_err(), ErrorKind::ConnectionRefused, "{count} connections");
                    let bound = std::net::TcpListener::bind(addr);
                    assert!(bound.is_ok(), "{count} connections: {bound:?}");
                });
            }
        },
    );
}

#[test]
fn a_listener_made_of_a_udp_socket_tells_its_error_and_does_not_spin() {
    in_child("regressions::a_listener_made_of_a_udp_socket_tells_its_error_and_does_not_spin", secs(20), || {
        run(secs(15), async {
            const EOPNOTSUPP: i32 = 95;
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let listener = TcpListener::from(OwnedFd::from(socket));
            let (cpu_before, enters) = (cpu(), runtime::metrics().enters);
            let error = within(secs(2), "an error", listener.accept()).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(EOPNOTSUPP), "{error}");
            // And for as long as the program goes on asking.
            let mut errors = 1;
            let asking = async {
                loop {
                    assert!(listener.accept().await.is_err());
                    errors += 1;
                }
            };
            let _: Result<(), _> = timeout(secs(1), asking).await;
            let (cpu, enters) = (cpu() - cpu_before, runtime::metrics().enters - enters);
            assert!((2..=20).contains(&errors), "{errors} errors in a second");
            assert!(enters < 200, "{enters} enters in a second");
            assert!(cpu < ms(200), "{cpu:?} of CPU time in a second");
        });
    });
}

// ---- block_on returns with cancellations under way ---------------------------------------------------------------------

/// Streams of which each had a read dropped in the last poll of `block_on`, their peers, and the listener.
async fn with_dropped_reads(count: usize) -> (Vec<TcpStream>, Vec<Peer>, TcpListener) {
    let (listener, _) = listen().await;
    let (streams, peers) = crowd(&listener, count).await;
    for stream in &streams {
        assert!(start_and_drop(stream.read(Vec::with_capacity(16))).await.is_pending());
    }
    (streams, peers, listener)
}

#[test]
fn streams_dropped_after_block_on_are_closed_though_two_hundred_reads_were_dropped_at_its_end() {
    let _watchdog = watchdog(secs(40));
    for drop_listener in [false, true] {
        let rt = Runtime::new().unwrap();
        let (streams, peers, listener) = rt.block_on(async {
            let (streams, peers, listener) = with_dropped_reads(200).await;
            let listener = (!drop_listener).then_some(listener);
            (streams, peers, listener)
        });
        drop(streams);
        // Without the runtime.
        for (i, mut peer) in peers.into_iter().enumerate() {
            peer.set_read_timeout(Some(scaled(ms(300)))).unwrap();
            let end = peer.read(&mut [0; 4]);
            assert!(matches!(end, Ok(0)), "peer {i} of 200, listener dropped: {drop_listener}: {end:?}");
        }
        drop(listener);
    }
}

#[test]
fn reads_in_flight_dropped_at_the_end_of_block_on_leave_their_streams_unused() {
    let _watchdog = watchdog(secs(40));
    for drop_listener in [false, true] {
        let rt = Runtime::new().unwrap();
        let (streams, peers, listener) = rt.block_on(async {
            let (listener, _) = listen().await;
            let (streams, peers) = crowd(&listener, 200).await;
            let mut reads: Vec<_> =
                streams.iter().map(|stream| Box::pin(stream.read(Vec::with_capacity(16)))).collect();
            for read in &mut reads {
                assert!(poll_once(read.as_mut()).await.is_pending());
            }
            // In the kernel by now.
            sleep(ms(20)).await;
            drop(reads);
            let listener = (!drop_listener).then_some(listener);
            (streams, peers, listener)
        });
        for (i, stream) in streams.into_iter().enumerate() {
            let given = stream.into_std();
            assert!(given.is_ok(), "stream {i} of 200, listener dropped: {drop_listener}: {given:?}");
        }
        for mut peer in peers {
            peer.set_read_timeout(Some(scaled(ms(300)))).unwrap();
            assert_eq!(peer.read(&mut [0; 4]).unwrap(), 0);
        }
        drop(listener);
    }
}

#[test]
fn a_listener_dropped_at_the_end_of_block_on_frees_its_port_under_load() {
    let _watchdog = watchdog(secs(40));
    let rt = Runtime::new().unwrap();
    let (addr, _peers) = rt.block_on(async {
        let (listener, addr) = listen().await;
        let (streams, mut peers) = crowd(&listener, 300).await;
        read_each(streams);
        sleep(ms(20)).await;
        for peer in &mut peers {
            peer.write_all(b"x").unwrap();
        }
        drop(listener);
        (addr, peers)
    });
    let refused = Peer::connect(addr).map_err(|error| error.kind());
    assert_eq!(refused.unwrap_err(), ErrorKind::ConnectionRefused);
}

// ---- linger and keep-alive ---------------------------------------------------------------------------------------------

#[test]
fn accepted_sockets_that_inherit_a_linger_leave_the_loop_alone() {
    run(secs(30), async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        SockRef::from(&listener).set_linger(Some(secs(2))).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let addr = listener.local_addr().unwrap();
        let ticker = Ticker::start();
        let mut peers = Vec::new();
        for way in 0..3 {
            peers.push(client(addr));
            let stream = if way == 0 {
                listener.accept().await.unwrap().0
            } else {
                listener.incoming().next().await.unwrap().unwrap()
            };
            assert_eq!(stream.linger().unwrap(), Some(secs(2)), "inherited, or this test tests nothing");
            stuff(&stream, ms(20)).await;
            let begun = Instant::now();
            if way == 2 {
                drop(stream.into_split());
            } else {
                drop(stream);
            }
            assert!(begun.elapsed() < scaled(ms(300)), "the drop itself waited, way {way}");
        }
        sleep(ms(300)).await;
        let gap = ticker.stop();
        assert!(gap < scaled(ms(500)), "the loop stood still for {gap:?}");
    });
}

#[test]
fn lingering_closes_to_peers_that_do_not_read_leave_the_blocking_pool_free() {
    in_child("regressions::lingering_closes_to_peers_that_do_not_read_leave_the_blocking_pool_free", secs(60), || {
        run(secs(50), async {
            // More than the blocking pool has threads.
            const COUNT: usize = 140;
            let base = fds();
            let (mut streams, mut peers) = (Vec::new(), Vec::new());
            for _ in 0..COUNT {
                let (stream, peer) = pair().await;
                stream.set_linger(Some(secs(20))).unwrap();
                SockRef::from(&peer).set_recv_buffer_size(4096).unwrap();
                stuff(&stream, ms(3)).await;
                streams.push(stream);
                peers.push(peer);
            }
            let threads_before = threads();
            drop(streams);
            sleep(ms(50)).await;
            assert!(threads() <= threads_before + 20, "{} threads, {threads_before} before", threads());
            assert!(threads() > threads_before, "none of them lingers: this test tests nothing");
            assert!(fds() <= base + COUNT + 2, "closes that have not begun: {}", fds() - base - COUNT);
            let (stream, mut peer) = pair().await;
            stream.set_linger(Some(secs(20))).unwrap();
            stuff(&stream, ms(3)).await;
            let begun = Instant::now();
            drop(stream);
            let reading = runtime::spawn_blocking(move || peer.read_to_end(&mut Vec::new()).unwrap());
            assert!(reading.await.unwrap() > 0);
            let took = begun.elapsed();
            assert!(took < scaled(secs(5)), "a peer that reads waited for those that do not: {took:?}");
            let begun = Instant::now();
            runtime::spawn_blocking(|| ()).await.unwrap();
            let took = begun.elapsed();
            assert!(took < scaled(ms(500)), "a blocking job waited for {took:?}");
            let begun = Instant::now();
            assert!(runtime::net::lookup_host("localhost:80").await.unwrap().count() > 0);
            let took = begun.elapsed();
            assert!(took < scaled(ms(500)), "a look-up waited for {took:?}");
            let open = fds();
            drop(runtime::fs::File::open("/sys/devices/system/cpu/online").await.unwrap());
            until("a file whose close may ask somebody is closed", secs(2), || fds() <= open).await;
            // A reset ends a close that lingers.
            drop(peers);
            until("descriptors back to base", secs(5), || fds() <= base).await;
        });
    });
}

#[test]
fn a_linger_below_a_second_is_no_reset() {
    run(secs(20), async {
        for linger in [ms(1), ms(500), ms(999), secs(1)] {
            let (stream, mut peer) = pair().await;
            stream.set_linger(Some(linger)).unwrap();
            assert_eq!(stream.linger().unwrap(), Some(secs(1)), "{linger:?}, rounded up");
            stream.write_all("goodbye").await.0.unwrap();
            drop(stream);
            let mut rest = Vec::new();
            peer.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, b"goodbye", "{linger:?}");
        }
    });
}

#[test]
fn a_linger_beyond_all_bounds_is_a_long_one() {
    run(secs(10), async {
        let (stream, _peer) = pair().await;
        for linger in [Duration::MAX, secs(1 << 31), secs(1 << 32), secs((1 << 32) + 1)] {
            stream.set_linger(Some(linger)).unwrap();
            let set = stream.linger().unwrap().unwrap();
            assert!(set > secs(3600) && set < secs(1 << 31), "{linger:?} became {set:?}");
        }
        stream.set_linger(None).unwrap();
        assert_eq!(stream.linger().unwrap(), None);
    });
}

#[test]
fn a_keep_alive_below_a_second_or_beyond_all_bounds_is_on_and_none_is_off() {
    run(secs(10), async {
        let (stream, _peer) = pair().await;
        for (idle, set) in [(ms(500), Some(secs(1))), (ms(1500), Some(secs(2))), (secs(7), Some(secs(7)))]
            .into_iter()
            .chain([(Duration::MAX, None), (secs(1 << 32), None)])
        {
            stream.set_keepalive(Some(idle)).unwrap();
            assert!(stream.keepalive().unwrap(), "{idle:?}");
            let time = SockRef::from(&stream).tcp_keepalive_time().unwrap();
            assert!(set.map_or(time > secs(3600), |set| time == set), "{idle:?} became {time:?}");
            stream.set_keepalive(None).unwrap();
            assert!(!stream.keepalive().unwrap(), "off again after {idle:?}");
        }
    });
}

#[test]
fn what_spends_all_of_every_poll_starves_nothing_that_is_awaited_beside_it() {
    run(secs(30), async {
        async fn beside<T>(what: &str, future: impl Future<Output = T>) -> T {
            let past = Instant::now();
            let busy = async {
                loop {
                    runtime::time::sleep_until(past).await;
                    if past.elapsed() > secs(3) {
                        return;
                    }
                }
            };
            match select(pin!(busy), pin!(future)).await {
                Either::Right((output, _)) => output,
                Either::Left(_) => panic!("{what} was starved"),
            }
        }
        let (listener, addr) = listen().await;
        let mut peer = client(addr);
        let stream = beside("accept", listener.accept()).await.unwrap().0;
        for _ in 0..3 {
            peer.write_all(b"1234").unwrap();
            assert_eq!(beside("peek", stream.peek(vec![0; 1])).await.0.unwrap(), 1);
            assert_eq!(beside("read", stream.read(vec![0; 2])).await.0.unwrap(), 2);
            assert_eq!(beside("recv", stream.recv()).await.unwrap().len(), 2);
            beside("write", stream.write_all("5678")).await.0.unwrap();
            peer.read_exact(&mut [0; 4]).unwrap();
        }
        let (mut reader, (tx, rx)) = (BufReader::new(&b"a line"[..]), runtime::pipe::pipe().unwrap());
        assert_eq!(beside("read_to_end", reader.read_to_end(&mut Vec::new())).await.unwrap(), 6);
        tx.write_all("1234").await.0.unwrap();
        assert_eq!(beside("splice", runtime::pipe::splice(&rx, &stream, 9)).await.unwrap(), 4);
        let buffers = FixedBufs::new(1, 4096).unwrap();
        drop(beside("lease", buffers.lease()).await);
        beside("yield_now", yield_now()).await;
        let mut signals = runtime::signal::signal(runtime::signal::SignalKind::user_defined2()).unwrap();
        let me = std::process::id().to_string();
        assert!(std::process::Command::new("kill").args(["-USR2", &me]).status().unwrap().success());
        beside("a signal", signals.recv()).await.unwrap();
    });
}

#[test]
fn a_waker_that_panics_costs_nobody_else_a_connection_or_a_byte() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the program's");
        }
    }
    fn case<'a, T: 'static>(
        rt: &Runtime,
        waits: impl Future<Output = T> + 'static,
        other: impl Future + 'a,
        arrive: impl FnOnce(),
    ) -> T {
        let mut other = Box::pin(other);
        let result = Rc::new(RefCell::new(None));
        let theirs = Rc::clone(&result);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            rt.block_on(async {
                runtime::spawn(async move {
                    let value = waits.await;
                    *theirs.borrow_mut() = Some(value);
                });
                yield_now().await;
                yield_now().await;
                let bad = Waker::from(Arc::new(Bad));
                assert!(other.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
                arrive();
                sleep(secs(5)).await;
            });
        }));
        let panic = *panicked.expect_err("told by block_on").downcast::<&str>().unwrap();
        assert_eq!(panic, "a waker of the program's");
        drop(other);
        rt.block_on(async { until("the first one is served", secs(5), || result.borrow().is_some()).await });
        result.take().unwrap()
    }
    in_child("regressions::a_waker_that_panics_costs_nobody_else_a_connection_or_a_byte", secs(30), || {
        let rt = Runtime::new().unwrap();
        let (listener, addr) = rt.block_on(listen());
        let (listener, mut peers) = (Rc::new(listener), Vec::new());
        let (one, other) = (Rc::clone(&listener), Rc::clone(&listener));
        let accept = async move { one.accept().await.unwrap().0 };
        let stream = case(&rt, accept, async move { other.accept().await.map(drop) }, || {
            peers = vec![client(addr), client(addr)];
        });
        let second = rt.block_on(async { within(secs(5), "the other client", listener.accept()).await.unwrap().0 });
        assert_eq!(stream.peer_addr().unwrap(), peers[0].local_addr().unwrap());
        assert_eq!(second.peer_addr().unwrap(), peers[1].local_addr().unwrap());
        let stream = Rc::new(stream);
        for pooled in [false, true] {
            let (one, other) = (Rc::clone(&stream), Rc::clone(&stream));
            let read = async move {
                match pooled {
                    true => one.recv().await.unwrap().to_vec(),
                    false => one.read(vec![0; 4]).await.1,
                }
            };
            let second = async move { other.read(vec![0; 4]).await.0.map(drop) };
            let data = case(&rt, read, second, || peers[0].write_all(b"abcd").unwrap());
            assert_eq!(data, b"abcd", "pooled: {pooled}");
        }
    });
}

#[test]
fn operations_that_have_nothing_to_do_let_others_run() {
    run(secs(30), async {
        let ((stream, mut peer), (tx, rx)) = (pair().await, runtime::pipe::pipe().unwrap());
        peer.write_all(b"x").unwrap();
        let (stream, tx, rx) = (&stream, &tx, &rx);
        let nothing: Vec<Vec<u8>> = vec![Vec::new(); 3];
        macro_rules! lets_others_run {
            ($($operation:expr),* $(,)?) => {$({
                let start = Instant::now();
                let again = async {
                    loop {
                        let _ = $operation.await;
                        assert!(start.elapsed() < secs(5), "{} starves", stringify!($operation));
                    }
                };
                let _ = timeout(ms(1), again).await;
            })*};
        }
        lets_others_run!(
            stream.write(""),
            stream.write_all(""),
            stream.write_zc(""),
            stream.write_vectored(Vec::<Vec<u8>>::new()),
            stream.write_vectored(nothing.clone()),
            stream.write_all_vectored(nothing.clone()),
            stream.read(Vec::new()),
            stream.read_exact(Vec::new()),
            stream.peek(Vec::new()),
            stream.read_vectored(Vec::<Vec<u8>>::new()),
            stream.read_vectored(nothing.clone()),
            tx.write(""),
            tx.write_all(""),
            tx.write_vectored(nothing.clone()),
            rx.read(Vec::new()),
            rx.read_exact(Vec::new()),
            rx.read_vectored(nothing.clone()),
            runtime::pipe::splice(rx, stream, 0),
            runtime::pipe::splice_all(rx, stream, 0),
            runtime::pipe::tee(rx, tx, 0),
            stream.shutdown(std::net::Shutdown::Read),
        );
    });
}
