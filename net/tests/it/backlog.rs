//! Accepting under pressure: bursts that overflow the ring, consumers that stop, processes without descriptors.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Instant;

use runtime::Runtime;
use runtime::net::TcpListener;
use runtime::task::yield_now;
use runtime::time::{sleep, timeout, timeout_at};

use crate::peer::{Peer, Shell, client, listen, ms, poll_once, run, secs, until, within};
use crate::support::{fds, in_child, watchdog};

const EMFILE: i32 = 24;

fn local(peers: &[Peer]) -> Vec<SocketAddr> {
    peers.iter().map(|peer| peer.local_addr().unwrap()).collect()
}

// ---- the multishot ends by itself --------------------------------------------------------------------------------------

#[test]
fn an_accept_that_overflows_a_tiny_ring_goes_on_and_loses_nobody() {
    let _watchdog = watchdog(secs(60));
    let runtime = runtime::testing::tiny(8, 16).build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::options().backlog(128).bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut incoming = listener.incoming();
        assert!(timeout(ms(1), incoming.next()).await.is_err(), "armed");
        for _ in 0..4 {
            // The thread is not in the runtime meanwhile, so a hundred completions meet sixteen places.
            let peers: Vec<Peer> = (0..100).map(|_| client(addr)).collect();
            let mut taken = Vec::new();
            while taken.len() < 100 {
                let stream = within(secs(10), "one of a burst", incoming.next()).await.unwrap().unwrap();
                taken.push(stream.peer_addr().unwrap());
                if taken.len() % 10 == 0 {
                    sleep(ms(5)).await;
                }
            }
            assert_eq!(taken, local(&peers), "each once and in order");
        }
        assert!(timeout(ms(200), incoming.next()).await.is_err(), "nobody else is there");
        let late = client(addr);
        let stream = within(secs(1), "a client after the bursts", incoming.next()).await.unwrap().unwrap();
        assert_eq!(stream.peer_addr().unwrap(), late.local_addr().unwrap());
        let accepts = runtime::metrics().ops(runtime::op::Kind::Accept, runtime::op::Rung::Ring);
        assert!(accepts > 1, "the multishot never ended: this test tests nothing");
    });
}

#[test]
fn bursts_on_a_tiny_ring_with_a_stalled_thread_lose_nobody() {
    let _watchdog = watchdog(secs(60));
    let runtime = runtime::testing::tiny(8, 16).build().unwrap();
    runtime.block_on(async {
        let (listener, addr) = listen().await;
        let listener = Rc::new(listener);
        for round in 0..20 {
            let burst = std::thread::spawn(move || (0..60).map(|_| client(addr)).collect::<Vec<Peer>>());
            let mut taken = Vec::new();
            while taken.len() < 60 {
                let accepted = within(secs(10), "one of a burst", listener.accept()).await.unwrap();
                taken.push(accepted.1);
                if taken.len() % 7 == round % 7 {
                    // On purpose: completions pile up behind a thread that computes.
                    std::thread::sleep(ms(1));
                }
            }
            let mut expected = local(&burst.join().unwrap());
            taken.sort();
            expected.sort();
            assert_eq!(taken, expected, "round {round}");
        }
    });
}

// ---- back-pressure ---------------------------------------------------------------------------------------------------------

#[test]
fn a_consumer_that_stops_leaves_the_rest_to_the_kernel_and_all_are_served_in_the_end() {
    in_child(
        "backlog::a_consumer_that_stops_leaves_the_rest_to_the_kernel_and_all_are_served_in_the_end",
        secs(120),
        || {
            const CLIENTS: usize = 4000;
            run(secs(110), async {
                let (listener, addr) = listen().await;
                drop(client(addr));
                drop(listener.accept().await.unwrap());
                runtime::spawn_blocking(|| {}).await.unwrap();
                sleep(ms(20)).await;
                let base = fds();
                let connecting =
                    runtime::spawn_blocking(move || (0..CLIENTS).map(|_| client(addr)).collect::<Vec<Peer>>());
                // The runtime turns, but nobody accepts.
                let mut peers = connecting.await.unwrap();
                sleep(ms(100)).await;
                let queued = fds() - base - CLIENTS;
                assert!(queued >= 64, "the accept stood: {queued}");
                // The bound while nobody waits, and what one backlog brings on top.
                assert!(queued <= 64 + 1024, "{queued} connections are queued: the bound is not kept");
                let cancels = runtime::metrics().cancels;
                assert!(cancels > 0, "the accept was taken back");
                sleep(ms(50)).await;
                assert_eq!(fds() - base - CLIENTS, queued, "and stays so");

                let mut taken = Vec::new();
                for (i, expected) in local(&peers).into_iter().enumerate() {
                    let (stream, from) = within(secs(10), "a client that waited", listener.accept()).await.unwrap();
                    assert_eq!(from, expected, "client {i}, in order");
                    stream.write_all("hello").await.0.unwrap();
                    taken.push(stream);
                    // Room for what was taken: both ends of all of them would need too many descriptors.
                    if taken.len() == 500 {
                        taken.clear();
                    }
                }
                drop(taken);
                let greeted = runtime::spawn_blocking(move || {
                    for peer in &mut peers {
                        let mut greeting = Vec::new();
                        peer.read_to_end(&mut greeting).unwrap();
                        assert_eq!(greeting, b"hello");
                    }
                });
                greeted.await.unwrap();
                until("descriptors back to base", secs(2), || fds() <= base).await;
            });
        },
    );
}

#[test]
fn a_listener_that_was_taken_back_is_dropped_clean() {
    in_child("backlog::a_listener_that_was_taken_back_is_dropped_clean", secs(60), || {
        run(secs(50), async {
            let base = fds();
            let (listener, addr) = listen().await;
            assert!(poll_once(std::pin::pin!(listener.accept())).await.is_pending());
            let connecting = std::thread::spawn(move || (0..2500).map(|_| client(addr)).collect::<Vec<Peer>>());
            until("all are connected", secs(20), || connecting.is_finished()).await;
            let mut peers = connecting.join().unwrap();
            drop(listener);
            // Each of them ends, whether it was queued, on its way or still the kernel's.
            for peer in &mut peers {
                // Resets are not repeated, and of thousands at once the loopback device may drop some
                // (net.core.netdev_max_backlog): a byte provokes another one.
                let _ = peer.write_all(b"?");
                assert_eq!(crate::peer::ends(peer).unwrap_or(0), 0);
                yield_now().await;
            }
            drop(peers);
            until("descriptors back to base", secs(2), || fds() <= base).await;
        });
    });
}

#[test]
fn few_connections_are_accepted_ahead_of_whoever_takes_them_one_by_one() {
    in_child("backlog::few_connections_are_accepted_ahead_of_whoever_takes_them_one_by_one", secs(60), || {
        run(secs(50), async {
            const BACKLOG: usize = 100;
            let listener = TcpListener::options().backlog(BACKLOG as u32).bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let base = fds();
            let count = Arc::new(AtomicUsize::new(0));
            let connected = Arc::clone(&count);
            let clients = std::thread::spawn(move || -> Vec<Peer> {
                let counted = |peer| (peer, count.fetch_add(1, Ordering::Relaxed)).0;
                (0..800).map(|_| counted(client(addr))).collect()
            });
            let (mut taken, mut most) = (Vec::new(), 0);
            while taken.len() < 800 {
                // Nobody waits for long: one look, and then other work.
                if let Poll::Ready(accepted) = poll_once(pin!(listener.accept())).await {
                    taken.push(accepted.unwrap().0);
                }
                sleep(std::time::Duration::from_micros(300)).await;
                let open = fds() - base;
                most = most.max(open.saturating_sub(connected.load(Ordering::Relaxed) + taken.len()));
            }
            // 64 ahead, and what the kernel had in its queue when the accept was taken back.
            assert!(most <= 64 + BACKLOG + 2, "{most} connections that nobody has taken");
            drop(clients.join().unwrap());
        });
    });
}

// ---- no descriptors -------------------------------------------------------------------------------------------------------

/// Errors of a second of accepting without a free descriptor.
async fn starve(listener: &TcpListener, shell: &mut Shell) -> usize {
    let (enters, turns) = (runtime::metrics().enters, runtime::metrics().turns);
    let cpu = shell.cpu();
    let mut incoming = listener.incoming();
    let mut errors = 0;
    let deadline = Instant::now() + secs(1);
    while let Ok(item) = timeout_at(deadline, incoming.next()).await {
        let error = item.unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EMFILE));
        errors += 1;
    }
    let (enters, turns) = (runtime::metrics().enters - enters, runtime::metrics().turns - turns);
    assert!(enters < 100 && turns < 200, "it spins: {enters} enters, {turns} turns in a second");
    let cpu = shell.cpu() - cpu;
    assert!(cpu < ms(300), "it spins: {cpu:?} of CPU in a second");
    errors
}

#[test]
fn without_descriptors_the_error_comes_once_a_pause_and_a_raised_limit_serves_all() {
    in_child(
        "backlog::without_descriptors_the_error_comes_once_a_pause_and_a_raised_limit_serves_all",
        secs(60),
        || {
            let mut shell = Shell::start();
            run(secs(50), async {
                let (listener, addr) = listen().await;
                let mut peers: Vec<Peer> = (0..200).map(|_| client(addr)).collect();
                if !shell.limit_fds(16) {
                    return;
                }
                let errors = starve(&listener, &mut shell).await;
                // 5, 10, 20, … 320 ms fit into a second.
                assert!((3..=12).contains(&errors), "{errors} errors in a second");
                assert!(shell.limit_fds(20000));
                let mut taken = Vec::new();
                while taken.len() < 200 {
                    // A last error of the old limit may still be in the queue.
                    match within(secs(2), "a client after the limit was raised", listener.accept()).await {
                        Ok((stream, from)) => {
                            stream.write_all("hello").await.0.unwrap();
                            taken.push(from);
                        }
                        Err(error) => assert_eq!(error.raw_os_error(), Some(EMFILE)),
                    }
                }
                assert_eq!(taken, local(&peers));
                for peer in &mut peers {
                    let mut greeting = Vec::new();
                    peer.read_to_end(&mut greeting).unwrap();
                    assert_eq!(greeting, b"hello");
                }
            });
        },
    );
}

#[test]
fn a_few_descriptors_serve_many_clients_one_after_the_other() {
    in_child("backlog::a_few_descriptors_serve_many_clients_one_after_the_other", secs(60), || {
        let mut shell = Shell::start();
        run(secs(50), async {
            let (listener, addr) = listen().await;
            let peers: Vec<Peer> = (0..60).map(|_| client(addr)).collect();
            // The lowest free numbers are given first, so these fill every gap; the limit goes just above them.
            let highest = peers.last().unwrap().as_raw_fd();
            let mut room = vec![std::fs::File::open("/dev/null").unwrap()];
            while room.last().unwrap().as_raw_fd() < highest + 4 {
                room.push(std::fs::File::open("/dev/null").unwrap());
            }
            if !shell.limit_fds(highest as u64 + 5) {
                return;
            }
            starve(&listener, &mut shell).await;
            room.truncate(room.len() - 4);
            let mut taken = Vec::new();
            let mut errors = 0;
            while taken.len() < 60 {
                match within(secs(5), "one client per free descriptor", listener.accept()).await {
                    Ok((stream, from)) => {
                        stream.write_all("hello").await.0.unwrap();
                        taken.push(from);
                    }
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(EMFILE));
                        errors += 1;
                    }
                }
            }
            assert_eq!(taken, local(&peers), "after {errors} errors");
        });
    });
}

#[test]
fn a_stream_of_connections_that_was_left_in_a_pause_goes_on_in_another_runtime() {
    in_child("backlog::a_stream_of_connections_that_was_left_in_a_pause_goes_on_in_another_runtime", secs(60), || {
        let mut shell = Shell::start();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = client(listener.local_addr().unwrap());
        let listener = TcpListener::from_std(listener).unwrap();
        let mut incoming = listener.incoming();
        let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
        let is_limited = first.block_on(async {
            if !shell.limit_fds(3) {
                return false;
            }
            // The pauses become longer and longer, up to half a second.
            for _ in 0..7 {
                assert_eq!(incoming.next().await.unwrap().unwrap_err().raw_os_error(), Some(EMFILE));
            }
            assert!(timeout(ms(5), incoming.next()).await.is_err());
            true
        });
        // One that waits is carried along.
        let mut waits = Box::pin(listener.accept());
        first.block_on(async {
            assert!(poll_once(waits.as_mut()).await.is_pending());
        });
        shell.limit_fds(20000);
        drop(first);
        if is_limited {
            let other = client(listener.local_addr().unwrap());
            let accepted = second.block_on(async { within(secs(5), "a client", waits).await });
            assert_eq!(accepted.unwrap().1, peer.local_addr().unwrap());
            let peer = other;
            let next = second.block_on(async { within(secs(5), "the client", incoming.next()).await });
            assert_eq!(next.unwrap().unwrap().peer_addr().unwrap(), peer.local_addr().unwrap());
        }
    });
}

#[test]
fn whoever_waits_beside_the_one_that_got_the_error_is_served_after_the_pause() {
    in_child("backlog::whoever_waits_beside_the_one_that_got_the_error_is_served_after_the_pause", secs(60), || {
        let mut shell = Shell::start();
        run(secs(50), async {
            let (listener, addr) = listen().await;
            let listener = Rc::new(listener);
            let peer = client(addr);
            if !shell.limit_fds(5) {
                return;
            }
            let accept = |listener: &Rc<TcpListener>| {
                let listener = Rc::clone(listener);
                runtime::spawn(async move { listener.accept().await.map(|(_, from)| from) })
            };
            let (first, second, third) = (accept(&listener), accept(&listener), accept(&listener));
            let error = within(secs(5), "the error", first).await.unwrap().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(EMFILE));
            // The first is gone; nobody but the second is there to accept again. Then it goes as well.
            second.abort();
            assert!(shell.limit_fds(20000));
            let outcome = within(secs(5), "whoever waits behind an error", third).await.unwrap();
            if let Ok(from) = outcome {
                assert_eq!(from, peer.local_addr().unwrap());
            }
        });
    });
}

#[test]
fn an_error_of_one_client_in_a_crowd_costs_no_other() {
    in_child("backlog::an_error_of_one_client_in_a_crowd_costs_no_other", secs(60), || {
        let mut shell = Shell::start();
        run(secs(50), async {
            let (listener, addr) = listen().await;
            let listener = Rc::new(listener);
            // Armed with plenty of descriptors: the limit of that moment counts, so a lower one changes nothing yet.
            assert!(timeout(ms(1), listener.accept()).await.is_err());
            let clients = std::thread::spawn(move || (0..300).map(|_| client(addr)).collect::<Vec<Peer>>());
            let got: Rc<std::cell::RefCell<Vec<SocketAddr>>> = Rc::default();
            let errors = Rc::new(std::cell::Cell::new(0));
            let tasks: Vec<_> = (0..5)
                .map(|_| {
                    let (listener, got, errors) = (Rc::clone(&listener), Rc::clone(&got), Rc::clone(&errors));
                    runtime::spawn(async move {
                        loop {
                            match listener.accept().await {
                                Ok((_, from)) => got.borrow_mut().push(from),
                                Err(error) => {
                                    assert_eq!(error.raw_os_error(), Some(EMFILE));
                                    errors.set(errors.get() + 1);
                                }
                            }
                        }
                    })
                })
                .collect();
            until("all clients have connected", secs(20), || clients.is_finished()).await;
            until("all are served", secs(10), || got.borrow().len() == 300).await;
            // Now with a limit that comes and goes.
            let peers = clients.join().unwrap();
            let more: Vec<socket2::Socket> = (0..100)
                .map(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap())
                .collect();
            for (i, socket) in more.iter().enumerate() {
                if i % 20 == 0 && !shell.limit_fds(if i % 40 == 0 { 8 } else { 20000 }) {
                    return;
                }
                socket.connect(&addr.into()).unwrap();
                sleep(ms(2)).await;
            }
            assert!(shell.limit_fds(20000));
            until("all are served after the errors", secs(10), || got.borrow().len() == 400).await;
            assert!(tasks.iter().all(|task| !task.is_finished()));
            drop(peers);
        });
    });
}

// ---- beside other work ---------------------------------------------------------------------------------------------------

#[test]
fn what_a_listeners_end_fetched_for_others_reaches_them_beside_a_busy_task() {
    // Dropping a listener visits the kernel; what it finds there for others must not wait for the next visit, which a
    // task that is always ready and submits nothing never brings.
    run(secs(20), async {
        let (listener, addr) = listen().await;
        let (stream, mut peer) = crate::peer::pair().await;
        let (listener_2, _) = listen().await;
        assert!(poll_once(std::pin::pin!(listener.accept())).await.is_pending());
        assert!(poll_once(std::pin::pin!(listener_2.accept())).await.is_pending());
        let reader = runtime::spawn(async move { stream.read(Vec::with_capacity(8)).await.0.unwrap() });
        yield_now().await;
        yield_now().await;
        peer.write_all(b"data").unwrap();
        drop(listener);
        let deadline = Instant::now() + secs(2);
        while !reader.is_finished() {
            assert!(Instant::now() < deadline, "a completed read was not delivered beside a busy task");
            yield_now().await;
        }
        assert_eq!(reader.await.unwrap(), 4);
        drop((listener_2, addr));
    });
}

#[test]
fn connections_in_bursts_from_many_threads_are_each_served_once() {
    run(secs(60), async {
        let (listener, addr) = listen().await;
        let server = runtime::spawn(async move {
            let mut incoming = listener.incoming();
            while let Some(stream) = incoming.next().await {
                runtime::spawn(crate::peer::echo(stream.unwrap()));
            }
        });
        let clients = (0..4u8).map(|thread| {
            std::thread::spawn(move || {
                for round in 0..100u8 {
                    let mut peer = client(addr);
                    crate::peer::ping(&mut peer, thread ^ round);
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        until("all clients are done", secs(50), || clients.iter().all(std::thread::JoinHandle::is_finished)).await;
        clients.into_iter().for_each(|client| client.join().unwrap());
        server.abort();
    });
}
