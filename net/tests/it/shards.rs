//! One address, on which each thread of a group listens.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use runtime::net::TcpListener;
use runtime::{Builder, Handle, spawn_blocking};

use crate::peer::{Peer, client, ms, run, secs};
use crate::support::{Rng, am_child, eventually, fds, in_child, run_child, watchdog};

const EADDRINUSE: i32 = 98;

fn in_use(result: io::Result<impl Sized>) -> bool {
    result.err().and_then(|error| error.raw_os_error()) == Some(EADDRINUSE)
}

/// Waits, off the loop, until all threads of a group are here.
async fn meet(barrier: &Arc<Barrier>) {
    let barrier = Arc::clone(barrier);
    let _leader = spawn_blocking(move || barrier.wait()).await.unwrap();
}

#[test]
fn ports_that_the_kernel_chose_stay_in_their_order_when_another_listener_goes() {
    let _watchdog = watchdog(secs(30));
    let barrier = Arc::new(Barrier::new(2));
    let ports = Builder::new().threads(2).run(move |cx: Handle| {
        let barrier = Arc::clone(&barrier);
        async move {
            if cx.index() == 1 {
                meet(&barrier).await;
            }
            let other = TcpListener::bind("127.0.0.2:0").await?;
            let ours = [TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?];
            let ports = [ours[0].local_addr()?.port(), ours[1].local_addr()?.port()];
            drop(other);
            if cx.index() == 0 {
                meet(&barrier).await;
            }
            meet(&barrier).await;
            io::Result::Ok(ports)
        }
    });
    let ports = ports.unwrap();
    assert_eq!(ports[0], ports[1]);
}

/// Connects until both threads have served somebody, and says how many each has served.
async fn serve(cx: &Handle, listener: &TcpListener, served: &[AtomicUsize], total: usize) -> io::Result<()> {
    let mut stopped = std::pin::pin!(cx.stopped());
    let mut open = Vec::new();
    loop {
        let accept = std::pin::pin!(listener.accept());
        let (stream, _) = match futures::future::select(accept, stopped.as_mut()).await {
            futures::future::Either::Left((accepted, _)) => accepted?,
            futures::future::Either::Right(((), _)) => return Ok(()),
        };
        stream.write_all(vec![cx.index() as u8]).await.0?;
        open.push(stream);
        served[cx.index()].fetch_add(1, Ordering::SeqCst);
        if served.iter().map(|served| served.load(Ordering::SeqCst)).sum::<usize>() == total {
            cx.stop();
        }
    }
}

#[test]
fn connections_are_spread_over_the_threads_and_each_is_served_once() {
    let _watchdog = watchdog(secs(60));
    const TOTAL: usize = 1000;
    let served: Arc<[AtomicUsize; 2]> = Arc::default();
    let (count, barrier) = (Arc::clone(&served), Arc::new(Barrier::new(2)));
    let ports = Builder::new().threads(2).run(move |cx: Handle| {
        let (served, barrier) = (Arc::clone(&count), Arc::clone(&barrier));
        async move {
            let listener = TcpListener::options().backlog(4096).bind("127.0.0.1:0").await?;
            let addr = listener.local_addr()?;
            meet(&barrier).await;
            let clients = (cx.index() == 0).then(|| {
                std::thread::spawn(move || {
                    let mut clients: Vec<Peer> = (0..TOTAL).map(|_| client(addr)).collect();
                    let mut by = [0; 2];
                    for client in &mut clients {
                        let mut who = [0];
                        client.read_exact(&mut who).unwrap();
                        by[usize::from(who[0])] += 1;
                    }
                    by
                })
            });
            serve(&cx, &listener, &served[..], TOTAL).await?;
            let by = match clients {
                Some(clients) => spawn_blocking(move || clients.join().unwrap()).await?,
                None => [0; 2],
            };
            io::Result::Ok((addr.port(), by))
        }
    });
    let ports = ports.unwrap();
    assert_eq!(ports[0].0, ports[1].0, "port 0 is the same for all");
    let by = ports[0].1;
    assert_eq!([0, 1].map(|at| served[at].load(Ordering::SeqCst)), by);
    println!("spread by the kernel's hash: {by:?}");
    assert!(by.iter().all(|&served| served > TOTAL / 4), "{by:?}");
}

#[test]
fn each_time_that_a_thread_asks_for_port_0_it_gets_another_and_all_get_the_same() {
    let _watchdog = watchdog(secs(30));
    let barrier = Arc::new(Barrier::new(3));
    let ports = Builder::new().threads(3).run(move |_: Handle| {
        let barrier = Arc::clone(&barrier);
        async move {
            let (first, second) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
            let ports = [first.local_addr()?.port(), second.local_addr()?.port()];
            meet(&barrier).await;
            io::Result::Ok(ports)
        }
    });
    let ports = ports.unwrap();
    assert_ne!(ports[0][0], ports[0][1]);
    assert_eq!(ports, [ports[0]; 3]);
}

#[test]
fn on_one_thread_an_address_can_be_bound_once() {
    let _watchdog = watchdog(secs(30));
    let (barrier, port) = (Arc::new(Barrier::new(2)), Arc::new(AtomicU16::new(0)));
    let run = Builder::new().threads(2).run(move |cx: Handle| {
        let (barrier, port) = (Arc::clone(&barrier), Arc::clone(&port));
        async move {
            if cx.index() == 0 {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let addr = listener.local_addr()?;
                assert!(in_use(TcpListener::bind(addr).await));
                // Another address with the same port is another matter for the kernel, and so for us.
                assert!(in_use(TcpListener::bind(("0.0.0.0", addr.port())).await));
                port.store(addr.port(), Ordering::SeqCst);
                meet(&barrier).await;
                meet(&barrier).await;
                assert!(in_use(TcpListener::bind(addr).await));
                drop(listener);
                // The other thread has it still, so this is beside that one.
                drop(TcpListener::bind(addr).await?);
                meet(&barrier).await;
            } else {
                meet(&barrier).await;
                // The port that the other thread got, by its number.
                let addr = ("127.0.0.1", port.load(Ordering::SeqCst));
                let listener = TcpListener::bind(addr).await?;
                assert!(in_use(TcpListener::bind(addr).await));
                meet(&barrier).await;
                meet(&barrier).await;
                drop(listener);
                // Free for anybody.
                drop(std::net::TcpListener::bind(addr)?);
            }
            io::Result::Ok(())
        }
    });
    run.unwrap();
}

const OTHER_PROCESS: &str = "shards::another_process_does_not_get_the_port";

#[test]
fn another_process_does_not_get_the_port() {
    if am_child(OTHER_PROCESS) {
        let addr: SocketAddr = std::env::var("ADDR").unwrap().parse().unwrap();
        assert!(in_use(std::net::TcpListener::bind(addr)), "std");
        assert!(run(secs(10), async { in_use(TcpListener::bind(addr).await) }), "alone");
        let group = Builder::new().threads(2).run(async move |_: Handle| TcpListener::bind(addr).await.map(drop));
        assert!(in_use(group), "a group of its own");
        return;
    }
    let _watchdog = watchdog(secs(60));
    let barrier = Arc::new(Barrier::new(2));
    let run = Builder::new().threads(2).run(move |cx: Handle| {
        let barrier = Arc::clone(&barrier);
        async move {
            let ask = |addr: SocketAddr| {
                let child = spawn_blocking(move || run_child(OTHER_PROCESS, secs(20), &[("ADDR", &addr.to_string())]));
                async move {
                    let child = child.await.unwrap();
                    assert!(child.success, "{}", child.text);
                }
            };
            let addr = "127.0.0.1:0";
            if cx.index() == 0 {
                let listener = TcpListener::bind(addr).await?;
                let addr = listener.local_addr()?;
                // With one of the sockets, with both, and with the second one alone.
                ask(addr).await;
                meet(&barrier).await;
                meet(&barrier).await;
                ask(addr).await;
                drop(listener);
                ask(addr).await;
                meet(&barrier).await;
            } else {
                meet(&barrier).await;
                let listener = TcpListener::bind(addr).await?;
                meet(&barrier).await;
                meet(&barrier).await;
                drop(listener);
            }
            io::Result::Ok(())
        }
    });
    run.unwrap();
}

#[test]
fn a_port_that_somebody_has_is_had_by_no_thread() {
    let _watchdog = watchdog(secs(30));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let failed = Builder::new().threads(2).run(async move |_: Handle| TcpListener::bind(addr).await.map(drop));
    assert!(in_use(failed));
    // Two groups are two programs.
    let first = Builder::new().threads(2).run(move |cx: Handle| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        if cx.index() == 0 {
            let second = spawn_blocking(move || {
                Builder::new().threads(2).run(async move |_: Handle| TcpListener::bind(addr).await.map(drop))
            });
            assert!(in_use(second.await?));
            cx.stop();
        }
        cx.stopped().await;
        io::Result::Ok(())
    });
    first.unwrap();
}

/// A moment of some length, so that each of two comes first now and then.
fn idle(rng: &mut Rng) {
    (0..rng.below(8) * 200).for_each(|_| std::hint::spin_loop());
}

/// Another process, as far as the kernel and the register of addresses are concerned, that does what a group does.
fn listen_like_a_group(addr: SocketAddr, rng: &mut Rng) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    idle(rng);
    socket.bind(&addr.into())?;
    idle(rng);
    socket.listen(16)?;
    socket.set_reuse_port(true)?;
    Ok(socket)
}

#[test]
fn of_two_that_start_at_the_same_time_one_gets_the_port() {
    let _watchdog = watchdog(secs(60));
    let probe = std::net::TcpListener::bind("127.0.77.3:0").unwrap();
    let addr = probe.local_addr().unwrap();
    drop(probe);
    let barrier = Arc::new(Barrier::new(2));
    let (gate, wins) = (Arc::clone(&barrier), Arc::new(AtomicUsize::new(0)));
    let theirs = Arc::clone(&wins);
    const ROUNDS: usize = 300;
    let rival = std::thread::spawn(move || {
        let mut rng = Rng(5);
        for _ in 0..ROUNDS {
            gate.wait();
            let socket = listen_like_a_group(addr, &mut rng);
            theirs.store(usize::from(socket.is_ok()), Ordering::SeqCst);
            gate.wait();
            drop(socket);
            gate.wait();
        }
    });
    let ours = Builder::new().threads(2).run(move |cx: Handle| {
        let (barrier, wins) = (Arc::clone(&barrier), Arc::clone(&wins));
        async move {
            let (mut ours, mut rng) = (0, Rng(6));
            for _ in 0..if cx.index() == 0 { ROUNDS } else { 0 } {
                // Blocks the loop, to be on time.
                barrier.wait();
                idle(&mut rng);
                let listener = TcpListener::bind(addr).await;
                barrier.wait();
                let won = usize::from(listener.is_ok());
                assert_eq!(won + wins.load(Ordering::SeqCst), 1, "one of them, not both");
                ours += won;
                drop(listener);
                barrier.wait();
            }
            io::Result::Ok(ours)
        }
    });
    rival.join().unwrap();
    println!("won {} of {ROUNDS}", ours.unwrap()[0]);
}

#[test]
fn a_port_is_free_at_once_after_the_last_drop() {
    in_child("shards::a_port_is_free_at_once_after_the_last_drop", secs(60), || {
        let mut port = 0;
        let mut open = 0;
        for round in 0..50 {
            let barrier = Arc::new(Barrier::new(2));
            let ports = Builder::new().threads(2).run(move |cx: Handle| {
                let barrier = Arc::clone(&barrier);
                async move {
                    let listener = TcpListener::bind(("127.0.77.2", port)).await?;
                    let addr = listener.local_addr()?;
                    meet(&barrier).await;
                    if cx.index() == 0 {
                        // With connections that were accepted, and some that nobody takes.
                        spawn_blocking(move || drop((0..10).map(|_| client(addr)).collect::<Vec<_>>())).await?;
                    }
                    if round % 2 == 0 {
                        let _ = runtime::time::timeout(ms(1), listener.accept()).await;
                    }
                    meet(&barrier).await;
                    drop(listener);
                    meet(&barrier).await;
                    if cx.index() == 0 {
                        drop(std::net::TcpListener::bind(addr)?);
                    }
                    meet(&barrier).await;
                    io::Result::Ok(addr.port())
                }
            });
            let ports: HashSet<u16> = ports.unwrap().into_iter().collect();
            assert_eq!(ports.len(), 1);
            port = *ports.iter().next().unwrap();
            if round == 2 {
                open = fds();
            }
        }
        eventually("descriptors at base", || fds() <= open);
    });
}

#[test]
fn a_thread_that_stops_listening_leaves_the_others_listening() {
    let _watchdog = watchdog(secs(30));
    let barrier = Arc::new(Barrier::new(2));
    let run = Builder::new().threads(2).run(move |cx: Handle| {
        let barrier = Arc::clone(&barrier);
        async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let addr = listener.local_addr()?;
            meet(&barrier).await;
            if cx.index() == 0 {
                // The first one, which was opened late.
                drop(listener);
                meet(&barrier).await;
                return io::Result::Ok(());
            }
            meet(&barrier).await;
            let clients = spawn_blocking(move || (0..50).map(|_| client(addr)).collect::<Vec<_>>());
            for _ in 0..50 {
                let (stream, _) = listener.accept().await?;
                stream.write_all("served").await.0?;
            }
            for mut client in clients.await? {
                let mut text = [0; 6];
                client.read_exact(&mut text)?;
            }
            Ok(())
        }
    });
    run.unwrap();
}

#[test]
fn a_group_that_binds_and_drops_at_random_is_never_refused_what_it_has_alone() {
    let _watchdog = watchdog(secs(60));
    // An address of its own, so that nobody else gets the port while the group lets go of it.
    let probe = std::net::TcpListener::bind("127.0.77.1:0").unwrap();
    let addr = probe.local_addr().unwrap();
    drop(probe);
    let run = Builder::new().threads(3).run(move |cx: Handle| async move {
        for round in 0..200 {
            let listener = TcpListener::bind(addr).await?;
            assert_eq!(listener.local_addr()?, addr);
            if (round + cx.index()).is_multiple_of(3) {
                let _ = runtime::time::timeout(ms(0), listener.accept()).await;
            }
            if round % 7 == cx.index() {
                runtime::task::yield_now().await;
            }
        }
        io::Result::Ok(())
    });
    run.unwrap();
}

#[test]
fn both_families_of_localhost_and_explicit_reuse_go_as_without_a_group() {
    let _watchdog = watchdog(secs(30));
    let run = Builder::new().threads(2).run(async |cx: Handle| {
        let shared = TcpListener::options().reuse_port(true).bind("127.0.0.1:0").await?;
        let addr = shared.local_addr()?;
        // Explicit sharing is the kernel's, on one thread as on several.
        let again = TcpListener::options().reuse_port(true).bind(addr).await?;
        assert!(in_use(TcpListener::bind(addr).await));
        drop((shared, again));
        if let Ok(v6) = TcpListener::options().only_v6(true).bind("[::]:0").await {
            let port = v6.local_addr()?.port();
            drop(v6);
            assert_ne!(port, 0);
        }
        // Until the other thread is done too.
        if cx.index() == 0 {
            cx.stop();
        }
        cx.stopped().await;
        io::Result::Ok(())
    });
    run.unwrap();
}

#[test]
fn outside_a_group_nothing_is_shared() {
    let _watchdog = watchdog(secs(30));
    let addr: Mutex<Option<SocketAddr>> = Mutex::default();
    let runtime = Builder::new().threads(2).build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        *addr.lock().unwrap() = Some(at);
        // A thread that was started on demand runs something else.
        let other = runtime::spawn_on(1, move || async move { in_use(TcpListener::bind(at).await) });
        assert!(other.await.unwrap());
        let mut peer = client(at);
        let (stream, _) = listener.accept().await.unwrap();
        peer.write_all(b"x").unwrap();
        assert_eq!(stream.read(vec![0; 8]).await.0.unwrap(), 1);
    });
}
