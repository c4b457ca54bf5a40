//! One thread accepts and hands each connection to the thread that has the fewest; streams that move between threads.

use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use runtime::net::{TcpListener, TcpStream};
use runtime::{Builder, Handle, spawn_on};

use crate::peer::{Peer, client, pair, pattern, poll_once, read_len, secs, until, within};
use crate::support::{Rng, in_child, watchdog};

/// Says on which thread it is served, and stays until the peer leaves.
async fn served_here(stream: TcpStream) {
    let here = Rc::new(Handle::current().index());
    stream.write_all(vec![*here as u8]).await.0.unwrap();
    let end = stream.read(vec![0; 8]).await.0;
    assert!(end.is_err() || end.is_ok_and(|n| n == 0));
}

fn who(peer: &mut Peer) -> usize {
    let mut byte = [0];
    peer.read_exact(&mut byte).unwrap();
    usize::from(byte[0])
}

#[test]
fn connections_are_spread_evenly_over_the_threads_and_the_port_is_free_at_once() {
    // Apart, since a test that starts a child beside this one lends it the listener until its exec.
    let name = "dispatch::connections_are_spread_evenly_over_the_threads_and_the_port_is_free_at_once";
    in_child(name, secs(60), spread_a_thousand);
}

fn spread_a_thousand() {
    const TOTAL: usize = 1000;
    Builder::new().threads(2).build().unwrap().block_on(async {
        let listener = TcpListener::options().backlog(4096).bind("127.0.78.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let clients = std::thread::spawn(move || {
            let mut clients: Vec<Peer> = (0..TOTAL).map(|_| client(addr)).collect();
            let mut by = [0; 2];
            clients.iter_mut().for_each(|client| by[who(client)] += 1);
            (by, clients)
        });
        let mut dispatch = listener.dispatch(served_here);
        for _ in 0..TOTAL {
            dispatch.next().await.unwrap();
        }
        assert_eq!(dispatch.live(), [TOTAL / 2; 2]);
        until("the clients are answered", secs(20), || clients.is_finished()).await;
        let (by, clients) = clients.join().unwrap();
        println!("spread by the fewest: {by:?}");
        assert_eq!(by, [TOTAL / 2; 2]);
        // While all of them are open, and with one on its way that nobody has taken.
        let late = client(addr);
        drop(dispatch);
        drop(std::net::TcpListener::bind(addr).expect("the port is free"));
        drop((clients, late));
    });
}

#[test]
fn a_thread_whose_connections_end_gets_the_next_ones() {
    let _watchdog = watchdog(secs(30));
    Builder::new().threads(3).build().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        // The accepting thread leaves the serving to the others.
        let mut dispatch = listener.dispatch(served_here).among([1, 2]);
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(client(addr));
            dispatch.next().await.unwrap();
        }
        assert_eq!(dispatch.live(), [0, 3, 3]);
        let mut of = |thread: usize| {
            let at = clients.iter_mut().position(|client| who(client) == thread);
            drop(clients.remove(at.unwrap()));
        };
        of(2);
        until("it has ended", secs(10), || dispatch.live() == [0, 3, 2]).await;
        let next = client(addr);
        assert_eq!(dispatch.next().await.unwrap(), 2);
        drop((next, clients));
        until("all ended", secs(10), || dispatch.live() == [0, 0, 0]).await;
    });
}

#[test]
fn a_group_dispatches_until_it_is_told_to_stop() {
    let _watchdog = watchdog(secs(60));
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let run = Builder::new().threads(3).run(move |cx: Handle| {
        let count = Arc::clone(&count);
        async move {
            if cx.index() != 1 {
                cx.stopped().await;
                return io::Result::Ok(());
            }
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let addr = listener.local_addr()?;
            let dispatch = listener.dispatch(move |stream| {
                count.fetch_add(1, Ordering::SeqCst);
                async move {
                    served_here(stream).await;
                    // A task of the program's that fails is nobody else's affair.
                    std::panic::resume_unwind(Box::new("after the connection"));
                }
            });
            let stop = cx.clone();
            let clients = std::thread::spawn(move || {
                for _ in 0..30 {
                    who(&mut client(addr));
                }
                stop.stop();
            });
            dispatch.run().await?;
            clients.join().unwrap();
            assert!(std::net::TcpListener::bind(addr).is_ok(), "the port is free");
            Ok(())
        }
    });
    run.unwrap();
    assert_eq!(served.load(Ordering::SeqCst), 30);
}

#[test]
fn threads_that_have_ended_get_nothing() {
    let _watchdog = watchdog(secs(30));
    let run = Builder::new().threads(3).run(async |cx: Handle| {
        if cx.index() > 0 {
            return io::Result::Ok(());
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        until("the others have ended", secs(10), || !cx.is_reachable(1) && !cx.is_reachable(2)).await;
        let mut only_gone = TcpListener::bind("127.0.0.1:0").await?.dispatch(served_here).among([1, 2]);
        let refused = client(only_gone.local_addr()?);
        assert_eq!(only_gone.next().await.unwrap_err().kind(), io::ErrorKind::NotConnected);
        drop(refused);
        let mut dispatch = listener.dispatch(served_here);
        let clients: Vec<_> = (0..5).map(|_| client(addr)).collect();
        for _ in 0..5 {
            assert_eq!(dispatch.next().await?, 0);
        }
        drop(clients);
        Ok(())
    });
    run.unwrap();
}

#[test]
fn a_dropped_wait_loses_no_connection() {
    let _watchdog = watchdog(secs(30));
    Builder::new().threads(2).build().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut dispatch = listener.dispatch(served_here);
        let mut clients = Vec::new();
        let mut taken = 0;
        for _ in 0..50 {
            if poll_once(std::pin::pin!(dispatch.next())).await.is_ready() {
                taken += 1;
            }
            clients.push(client(addr));
            runtime::task::yield_now().await;
        }
        for _ in taken..50 {
            within(secs(10), "a connection", dispatch.next()).await.unwrap();
        }
        assert_eq!(dispatch.live(), [25, 25]);
    });
}

#[test]
fn a_stream_moves_from_thread_to_thread_in_the_middle_of_reads() {
    let _watchdog = watchdog(secs(60));
    const LEN: usize = 200_000;
    Builder::new().threads(3).build().unwrap().block_on(async {
        let mut rng = Rng(11);
        for _ in 0..10 {
            let (mut stream, mut peer) = pair().await;
            let writes = std::thread::spawn(move || {
                for chunk in pattern(0, LEN).chunks(1009) {
                    peer.write_all(chunk).unwrap();
                }
                peer
            });
            let mut all = Vec::with_capacity(LEN);
            while all.len() < LEN {
                let (thread, seed) = (rng.below(3) as usize, rng.next());
                let want = LEN - all.len();
                let hop = spawn_on(thread, move || async move {
                    let mut rng = Rng(seed | 1);
                    let mut got = Vec::new();
                    for _ in 0..rng.below(20) {
                        if rng.below(3) == 0 {
                            // A read that is given up, so that the stream leaves with an orphan behind it, unless an
                            // orphan before it has left something.
                            let read = std::pin::pin!(stream.read(Vec::with_capacity(700)));
                            if let Poll::Ready(read) = poll_once(read).await {
                                got.extend(read.into_result().unwrap().1);
                            }
                        } else if got.len() < want {
                            got.extend(read_len(&stream, (want - got.len()).min(1 + rng.below(3000) as usize)).await);
                        }
                    }
                    (stream, got)
                });
                let (back, got) = within(secs(20), "one hop", hop).await.unwrap();
                stream = back;
                all.extend(got);
            }
            assert!(all == pattern(0, LEN), "every byte, in order");
            drop(writes.join().unwrap());
        }
    });
}
