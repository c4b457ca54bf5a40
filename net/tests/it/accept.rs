//! `accept` and `incoming`: no connection is lost, doubled or given to the wrong one, and the listener never goes deaf.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use futures::FutureExt;
use runtime::Builder;
use runtime::net::{TcpListener, TcpStream};
use runtime::task::yield_now;
use runtime::time::{sleep, timeout};

use crate::peer::{Peer, client, echo, ends, listen, ms, ping, poll_once, reset, run, secs, until, within};
use crate::support::{Rng, eventually, fds, in_child, watchdog};

const EAGAIN: i32 = 11;

// ---- transient errors and dead clients ---------------------------------------------------------------------------------

#[test]
fn incoming_delivers_a_reset_client_and_its_first_read_says_so() {
    run(secs(20), async {
        let (listener, addr) = listen().await;
        let mut incoming = listener.incoming();
        for round in 0..20u8 {
            reset(client(addr));
            let stream = incoming.next().await.unwrap().unwrap();
            let error = stream.read(Vec::with_capacity(8)).await.0.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);

            let mut peer = client(addr);
            let task = runtime::spawn(echo(incoming.next().await.unwrap().unwrap()));
            let done = runtime::spawn_blocking(move || ping(&mut peer, round));
            done.await.unwrap();
            task.await.unwrap().unwrap();
        }
        assert_eq!(runtime::metrics().accept_skipped, 0);
    });
}

#[test]
fn a_listener_that_was_in_many_runtimes_has_met_no_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    for _ in 0..40 {
        run(secs(20), async {
            assert!(timeout(ms(1), listener.accept()).await.is_err(), "nobody is there");
        });
    }
    run(secs(20), async {
        let peer = client(addr);
        let (_stream, from) = within(secs(5), "the client", listener.accept()).await.unwrap();
        assert_eq!(from, peer.local_addr().unwrap());
    });
}

#[test]
fn accept_skips_and_counts_clients_that_are_gone() {
    run(secs(20), async {
        let (listener, addr) = listen().await;
        for round in 1..=20 {
            reset(client(addr));
            reset(client(addr));
            let alive = client(addr);
            let (stream, from) = within(secs(5), "the living client", listener.accept()).await.unwrap();
            assert_eq!(from, alive.local_addr().unwrap());
            assert_eq!(stream.peer_addr().unwrap(), from);
            assert_eq!(runtime::metrics().accept_skipped, 2 * round);
        }
    });
}

#[test]
fn a_client_that_only_finished_is_not_skipped() {
    run(secs(20), async {
        let (listener, addr) = listen().await;
        let mut peer = client(addr);
        peer.write_all(b"all I had to say").unwrap();
        drop(peer);
        let (stream, _) = listener.accept().await.unwrap();
        let (n, data) = stream.read(Vec::with_capacity(64)).await.into_result().unwrap();
        assert_eq!(&data[..n], b"all I had to say");
        assert_eq!(stream.read(data).await.0.unwrap(), 0);
    });
}

// ---- dropped accepts ----------------------------------------------------------------------------------------------------

#[test]
fn accept_dropped_300_times_in_a_select_greets_every_client() {
    in_child("accept::accept_dropped_300_times_in_a_select_greets_every_client", secs(60), || {
        run(secs(50), async {
            let (listener, addr) = listen().await;
            let mut rng = Rng(97);
            // The warm-up also starts what threads the process keeps.
            runtime::spawn_blocking(|| {}).await.unwrap();
            let base = fds();
            let clients = std::thread::spawn(move || {
                let mut rng = Rng(7);
                let mut open = Vec::new();
                for _ in 0..300 {
                    open.push(client(addr));
                    std::thread::sleep(std::time::Duration::from_micros(rng.below(1000)));
                }
                for peer in &mut open {
                    let mut greeting = [0; 5];
                    peer.read_exact(&mut greeting).unwrap();
                    assert_eq!(&greeting, b"hello");
                }
                open.len()
            });
            let mut greeted = 0;
            let mut dropped = 0;
            while greeted < 300 {
                let pause = std::time::Duration::from_micros(rng.below(1000));
                futures::select_biased! {
                    accepted = listener.accept().fuse() => {
                        accepted.unwrap().0.write_all("hello").await.0.unwrap();
                        greeted += 1;
                    }
                    () = sleep(pause).fuse() => dropped += 1,
                }
            }
            assert_eq!(clients.join().unwrap(), 300);
            assert!(dropped > 0, "no accept was ever dropped");
            until("descriptors back to base", secs(2), || fds() == base).await;
        });
    });
}

#[test]
fn an_accept_that_was_chosen_and_dropped_passes_the_connection_on() {
    run(secs(10), async {
        let (listener, addr) = listen().await;
        for _ in 0..100 {
            let mut first = Box::pin(listener.accept());
            let mut second = Box::pin(listener.accept());
            assert!(poll_once(first.as_mut()).await.is_pending());
            assert!(poll_once(second.as_mut()).await.is_pending());
            let peer = client(addr);
            // The completion chooses the first, which goes away without looking.
            yield_now().await;
            drop(first);
            let (_, from) = within(secs(2), "the connection of the dropped accept", second).await.unwrap();
            assert_eq!(from, peer.local_addr().unwrap());
        }
    });
}

// ---- several who accept ---------------------------------------------------------------------------------------------------

#[test]
fn a_newcomer_is_not_forgotten_while_another_was_chosen() {
    // Two connections in one batch, one waiter: the waiter is chosen for the first. Whoever comes before the waiter has
    // run finds the list in use and must not wait for a third connection.
    run(secs(20), async {
        let (listener, addr) = listen().await;
        let listener = Rc::new(listener);
        for _ in 0..50 {
            let theirs = Rc::clone(&listener);
            let waiter = runtime::spawn(async move { theirs.accept().await.unwrap().1 });
            yield_now().await;
            let (one, two) = (client(addr), client(addr));
            // The root is polled before the tasks that the visit woke.
            yield_now().await;
            let mine = within(secs(2), "the second of two connections", listener.accept()).await.unwrap().1;
            let mut got = [mine, waiter.await.unwrap()];
            let mut expected = [one.local_addr().unwrap(), two.local_addr().unwrap()];
            got.sort();
            expected.sort();
            assert_eq!(got, expected);
        }
    });
}

#[test]
fn accepts_and_incoming_of_one_listener_are_served_in_order() {
    run(secs(20), async {
        let (listener, addr) = listen().await;
        let listener = Rc::new(listener);
        let served: Rc<RefCell<Vec<(usize, SocketAddr)>>> = Rc::default();
        for waiter in 0..30 {
            let (listener, served) = (Rc::clone(&listener), Rc::clone(&served));
            runtime::spawn(async move {
                let stream = match waiter % 3 {
                    0 => listener.incoming().next().await.unwrap().unwrap(),
                    _ => listener.accept().await.unwrap().0,
                };
                served.borrow_mut().push((waiter, stream.peer_addr().unwrap()));
            });
        }
        // All thirty wait, in the order in which they were spawned.
        yield_now().await;
        yield_now().await;
        let peers: Vec<Peer> = (0..30).map(|_| client(addr)).collect();
        until("all are served", secs(5), || served.borrow().len() == 30).await;
        let expected: Vec<_> = peers.iter().enumerate().map(|(i, peer)| (i, peer.local_addr().unwrap())).collect();
        assert_eq!(*served.borrow(), expected);
    });
}

#[test]
fn many_accepts_under_random_drops_lose_no_connection() {
    run(secs(40), async {
        let (listener, addr) = listen().await;
        let listener = Rc::new(listener);
        let got: Rc<RefCell<Vec<SocketAddr>>> = Rc::default();
        for seed in 1..=8 {
            let (listener, got) = (Rc::clone(&listener), Rc::clone(&got));
            runtime::spawn(async move {
                let mut rng = Rng(seed);
                loop {
                    let limit = std::time::Duration::from_micros(rng.below(400));
                    if let Ok(accepted) = timeout(limit, listener.accept()).await {
                        got.borrow_mut().push(accepted.unwrap().1);
                    }
                }
            });
        }
        let clients = std::thread::spawn(move || {
            let mut rng = Rng(88);
            let connect = |_| {
                std::thread::sleep(std::time::Duration::from_micros(rng.below(300)));
                client(addr)
            };
            (0..800).map(connect).collect::<Vec<_>>()
        });
        until("every client is accepted", secs(30), || got.borrow().len() >= 800).await;
        let mut expected: Vec<_> = clients.join().unwrap().iter().map(|peer| peer.local_addr().unwrap()).collect();
        let mut got = got.borrow().clone();
        got.sort();
        expected.sort();
        assert_eq!(got, expected);
    });
}

#[test]
fn a_listener_in_two_runtimes_panics_with_a_sentence_and_stays_usable() {
    let _watchdog = watchdog(secs(10));
    let (home, other) = (Builder::new().build().unwrap(), Builder::new().build().unwrap());
    let (listener, addr) = home.block_on(listen());
    home.block_on(async { assert!(timeout(ms(1), listener.accept()).await.is_err()) });
    let wrong = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let _ = other.block_on(listener.accept());
    }));
    let panic = wrong.unwrap_err();
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap();
    assert!(text.contains("a listener belongs to one thread"), "{text}");
    let peer = client(addr);
    assert_eq!(home.block_on(listener.accept()).unwrap().1, peer.local_addr().unwrap());
}

#[test]
fn a_listener_outlives_its_runtime_and_goes_on_in_the_next() {
    let _watchdog = watchdog(secs(10));
    let first = Builder::new().build().unwrap();
    let (listener, addr) = first.block_on(listen());
    let one = client(addr);
    let two = client(addr);
    // The second connection is in the listener's queue when its runtime ends.
    assert_eq!(first.block_on(listener.accept()).unwrap().1, one.local_addr().unwrap());
    drop(first);
    let three = client(addr);
    let second = Builder::new().build().unwrap();
    for peer in [two, three] {
        let accepted = second.block_on(within(secs(2), "the next runtime", listener.accept())).unwrap();
        assert_eq!(accepted.1, peer.local_addr().unwrap());
    }
}

// ---- the end of a listener --------------------------------------------------------------------------------------------------

/// A listener on an address that no other test uses: while a port is free between two binds, a client of another test
/// could be given it. Such tests also run in a process of their own, since one that starts a child beside them lends the
/// listener to it until its exec.
async fn listen_apart(host: u8) -> (TcpListener, SocketAddr) {
    let addr = SocketAddr::from(([127, 0, 7, host], 0));
    let listener = TcpListener::options().backlog(4096).bind(addr).await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

#[test]
fn dropping_a_listener_ends_every_connection_that_nobody_took() {
    in_child("accept::dropping_a_listener_ends_every_connection_that_nobody_took", secs(60), || {
        run(secs(50), async {
            let base = fds();
            for round in 0..30 {
                let (listener, addr) = listen_apart(1).await;
                let mut peers: Vec<Peer> = (0..20).map(|_| client(addr)).collect();
                let taken = listener.accept().await.unwrap().0;
                // Nobody has reaped these: they are completions, or still the kernel's.
                peers.extend((0..20).map(|_| client(addr)));
                if round % 2 == 1 {
                    yield_now().await;
                }
                drop(listener);
                assert!(taken.write_all("you were taken").await.0.is_ok());
                drop(taken);
                let done = runtime::spawn_blocking(move || {
                    let counts: Vec<_> = peers.iter_mut().map(|peer| ends(peer).unwrap_or(0)).collect();
                    assert_eq!(counts.iter().sum::<usize>(), 14, "{counts:?}");
                    Peer::connect(addr).unwrap_err()
                });
                assert_eq!(done.await.unwrap().kind(), ErrorKind::ConnectionRefused, "the port is free");
            }
            until("descriptors back to base", secs(2), || fds() <= base).await;
        });
    });
}

#[test]
fn dropping_a_listener_frees_the_port_at_once() {
    in_child("accept::dropping_a_listener_frees_the_port_at_once", secs(30), || {
        run(secs(20), async {
            for round in 0..30 {
                let (listener, addr) = listen_apart(2).await;
                let _peers: Vec<Peer> = (0..5).map(|_| client(addr)).collect();
                if round % 3 > 0 {
                    drop(listener.accept().await.unwrap());
                }
                drop(listener);
                // Not one turn in between.
                let again = TcpListener::bind(addr).await;
                assert!(again.is_ok(), "round {round}: {}", again.unwrap_err());
            }
        });
    });
}

#[test]
fn a_listener_dropped_outside_of_its_runtime_frees_the_port_at_once() {
    in_child("accept::a_listener_dropped_outside_of_its_runtime_frees_the_port_at_once", secs(30), || {
        let _watchdog = watchdog(secs(10));
        let runtime = Builder::new().build().unwrap();
        for _ in 0..20 {
            let (listener, addr) = runtime.block_on(listen_apart(3));
            let peers: Vec<Peer> = (0..5).map(|_| client(addr)).collect();
            drop(runtime.block_on(listener.accept()).unwrap());
            drop(listener);
            drop(std::net::TcpListener::bind(addr).unwrap());
            for mut peer in peers {
                let _ = ends(&mut peer);
            }
        }
    });
}

#[test]
fn a_port_can_be_bound_again_after_the_server_closed_first() {
    in_child("accept::a_port_can_be_bound_again_after_the_server_closed_first", secs(30), || {
        run(secs(20), async {
            let (mut listener, addr) = listen_apart(4).await;
            for _ in 0..20 {
                let mut peer = client(addr);
                let (stream, _) = listener.accept().await.unwrap();
                drop(stream);
                drop(listener);
                assert_eq!(ends(&mut peer).unwrap(), 0);
                drop(peer);
                yield_now().await;
                listener = TcpListener::bind(addr).await.unwrap();
            }
        });
    });
}

#[test]
fn cancelled_accepts_leave_nothing_in_flight_once_the_listener_is_gone() {
    run(secs(10), async {
        for _ in 0..200 {
            let (listener, addr) = listen().await;
            assert!(poll_once(std::pin::pin!(listener.accept())).await.is_pending());
            let peer = client(addr);
            assert!(timeout(ms(200), listener.accept()).await.is_ok(), "a fresh accept works at once");
            drop((listener, peer));
        }
        until("nothing is in flight", secs(2), || runtime::testing::in_flight() == 0).await;
    });
}

// ---- addresses and conversions -----------------------------------------------------------------------------------------

#[test]
fn peers_have_their_own_address_in_every_family() {
    run(secs(10), async {
        let v4 = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = client(v4.local_addr().unwrap());
        assert_eq!(v4.accept().await.unwrap().1, peer.local_addr().unwrap());

        let Ok(v6) = TcpListener::bind("[::1]:0").await else {
            eprintln!("SKIP: no ::1 here");
            return;
        };
        let peer = client(v6.local_addr().unwrap());
        let from = v6.accept().await.unwrap().1;
        assert_eq!((from, from.ip()), (peer.local_addr().unwrap(), Ipv6Addr::LOCALHOST.into()));

        let both = TcpListener::bind("[::]:0").await.unwrap();
        let peer = client(([127, 0, 0, 1], both.local_addr().unwrap().port()).into());
        let from = both.accept().await.unwrap().1;
        assert_eq!(from.ip(), "::ffff:127.0.0.1".parse::<Ipv6Addr>().unwrap());
        assert_eq!(from.port(), peer.local_addr().unwrap().port());
    });
}

#[test]
fn only_v6_leaves_the_other_family_to_others() {
    run(secs(10), async {
        let Ok(listener) = TcpListener::options().only_v6(true).bind("[::]:0").await else {
            eprintln!("SKIP: no IPv6 here");
            return;
        };
        let port = listener.local_addr().unwrap().port();
        assert_eq!(Peer::connect(("127.0.0.1", port)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let other = TcpListener::bind(("0.0.0.0", port)).await.unwrap();
        let peer = client(([127, 0, 0, 1], port).into());
        assert_eq!(other.accept().await.unwrap().1, peer.local_addr().unwrap());
    });
}

#[test]
fn std_listeners_in_either_mode_accept_without_blocking_the_loop() {
    for nonblocking in [false, true] {
        run(secs(10), async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(nonblocking).unwrap();
            let addr = listener.local_addr().unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            assert_eq!(listener.local_addr().unwrap(), addr);
            for _ in 0..10 {
                assert!(timeout(ms(5), listener.accept()).await.is_err(), "waits without blocking and without error");
                let mut peer = client(addr);
                let (stream, _) = listener.accept().await.unwrap();
                let task = runtime::spawn(echo(stream));
                runtime::spawn_blocking(move || ping(&mut peer, 7)).await.unwrap();
                task.await.unwrap().unwrap();
            }
        });
    }
}

#[test]
fn accepted_sockets_are_close_on_exec_and_the_runtimes_own() {
    run(secs(10), async {
        let (listener, addr) = listen().await;
        let _peer = client(addr);
        let (stream, _) = listener.accept().await.unwrap();
        let connected = TcpStream::connect(addr).await.unwrap();
        for fd in [std::os::fd::AsRawFd::as_raw_fd(&stream), std::os::fd::AsRawFd::as_raw_fd(&connected)] {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            let flags = u32::from_str_radix(flags, 8).unwrap();
            assert_eq!(flags & 0o2_004_000, 0o2_004_000, "O_CLOEXEC and O_NONBLOCK: {flags:o}");
        }
    });
}

#[test]
fn a_dropped_incoming_leaves_its_connections_to_the_next() {
    run(secs(10), async {
        let (listener, addr) = listen().await;
        let peers: Vec<Peer> = (0..50).map(|_| client(addr)).collect();
        let mut taken = Vec::new();
        while taken.len() < 50 {
            let mut incoming = listener.incoming();
            let stream = within(secs(2), "a queued connection", incoming.next()).await.unwrap().unwrap();
            taken.push(stream.peer_addr().unwrap());
        }
        let expected: Vec<_> = peers.iter().map(|peer| peer.local_addr().unwrap()).collect();
        assert_eq!(taken, expected, "in the order in which they came");
    });
}

#[test]
fn connections_are_taken_while_other_tasks_are_always_ready() {
    run(secs(20), async {
        let (listener, addr) = listen().await;
        let busy = runtime::spawn(async {
            loop {
                yield_now().await;
            }
        });
        for _ in 0..100 {
            let peer = client(addr);
            let (_, from) = within(secs(2), "an accept beside a busy task", listener.accept()).await.unwrap();
            assert_eq!(from, peer.local_addr().unwrap());
        }
        busy.abort();
    });
}

#[test]
fn a_full_process_of_listeners_ends_clean() {
    in_child("accept::a_full_process_of_listeners_ends_clean", secs(30), || {
        let base = fds();
        for _ in 0..10 {
            run(secs(20), async {
                let mut kept = Vec::new();
                for _ in 0..20 {
                    let (listener, addr) = listen().await;
                    let peer = client(addr);
                    assert!(poll_once(std::pin::pin!(listener.accept())).await.is_pending());
                    kept.push((listener, peer));
                }
                yield_now().await;
                // Listeners, their queues and their accepts end with the runtime.
                runtime::spawn(async move {
                    let _kept = kept;
                    std::future::pending::<()>().await;
                });
                yield_now().await;
            });
        }
        eventually("descriptors back to base", || fds() == base);
    });
}

#[test]
fn an_accept_outside_of_a_runtime_takes_nothing_from_the_queue() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let mut peers: Vec<Peer> = (0..3).map(|_| client(addr)).collect();
    run(secs(20), async {
        let mut stream = Some(listener.accept().await.unwrap().0);
        // The others are accepted ahead meanwhile.
        sleep(ms(5)).await;
        drop(stream.take());
    });
    for _ in 0..2 {
        let outside = std::panic::catch_unwind(AssertUnwindSafe(|| futures::executor::block_on(listener.accept())));
        assert!(outside.is_err());
    }
    run(secs(20), async {
        for peer in &mut peers[1..] {
            let (stream, from) = within(secs(5), "a client", listener.accept()).await.unwrap();
            assert_eq!(from, peer.local_addr().unwrap());
            stream.write_all("x").await.0.unwrap();
            peer.read_exact(&mut [0]).unwrap();
        }
    });
}

#[test]
fn a_listener_outlives_a_runtime_that_ended_without_time_while_the_kernel_took_nothing() {
    for faults in [1, 1000] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let rt = Builder::new().build().unwrap();
        rt.block_on(async {
            assert!(timeout(ms(5), listener.accept()).await.is_err());
            runtime::testing::inject_enter_faults(&vec![EAGAIN; faults]);
        });
        let left = rt.shutdown_timeout(std::time::Duration::ZERO);
        assert_eq!(left == 0, faults == 1, "{left} left");
        let peer = client(addr);
        run(secs(20), async {
            let (_stream, from) = within(secs(5), "the client", listener.accept()).await.unwrap();
            assert_eq!(from, peer.local_addr().unwrap());
        });
    }
}
