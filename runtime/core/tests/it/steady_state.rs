//! In steady state nothing is allocated per operation, and one enter serves a turn.

use std::io::{Read, Write};
use std::time::Duration;

use runtime::io::FixedBufs;
use runtime::net::{TcpListener, TcpStream};
use runtime::pipe::pipe;

use crate::alloc;
use crate::support::in_child;

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn operations_allocate_nothing() {
    in_child("steady_state::operations_allocate_nothing", LIMIT, || {
        let rt = runtime::Runtime::new().unwrap();
        rt.block_on(async {
            let (tx, rx) = pipe().unwrap();
            let (other_tx, other_rx) = pipe().unwrap();
            let (mut out, mut back) = (vec![7u8; 64], Vec::with_capacity(64));
            let mut before = 0;
            for round in 0..2_000 {
                if round == 1_000 {
                    before = alloc::calls();
                }
                if round < 1_000 {
                    // Two at a time make batches, which go to the ring; alone most writes are inline. Both are warm then.
                    let reads = futures::future::join(other_rx.read(vec![0; 8]), rx.read(vec![0; 8]));
                    let writes = futures::future::join(other_tx.write("a"), tx.write("b"));
                    futures::join!(reads, writes);
                }
                let (read, wrote) = futures::join!(rx.read(back), tx.write_all(out));
                assert_eq!(read.0.unwrap(), 64);
                wrote.0.unwrap();
                (back, out) = (read.1, wrote.1);
            }
            assert_eq!(alloc::calls() - before, 0, "allocations in a thousand reads and writes");
        });
    });
}

#[test]
fn zero_copy_sends_and_registered_buffers_allocate_nothing() {
    in_child("steady_state::zero_copy_sends_and_registered_buffers_allocate_nothing", LIMIT, || {
        let rt = runtime::Runtime::new().unwrap();
        rt.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let tx = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (rx, _) = listener.accept().await.unwrap();
            tx.set_zc_threshold(1);
            let bufs = FixedBufs::new(2, 4096).unwrap();
            let (mut out, mut back) = (vec![7u8; 64], Vec::with_capacity(64));
            let mut before = 0;
            for round in 0..2_000 {
                if round == 1_000 {
                    before = alloc::calls();
                }
                let (read, wrote) = futures::join!(rx.read(back), tx.write_all_zc(out));
                assert_eq!(read.0.unwrap(), 64);
                wrote.0.unwrap();
                (back, out) = (read.1, wrote.1);
                let mut fixed = bufs.lease().await;
                fixed.resize(64);
                let (read, wrote) = futures::join!(rx.read(back), tx.write_all_zc(fixed));
                assert_eq!(read.0.unwrap(), 64);
                wrote.0.unwrap();
                back = read.1;
            }
            assert_eq!(alloc::calls() - before, 0, "allocations in two thousand sends");
        });
    });
}

#[test]
fn pooled_receives_allocate_nothing() {
    in_child("steady_state::pooled_receives_allocate_nothing", LIMIT, || {
        let rt = runtime::Runtime::new().unwrap();
        rt.block_on(async {
            let (stream, mut peer) = pair().await;
            let mut before = 0;
            for round in 0..2_000 {
                if round == 1_000 {
                    before = alloc::calls();
                }
                peer.write_all(&[round as u8; 100]).unwrap();
                let data = stream.recv().await.unwrap();
                assert_eq!(data[..], [round as u8; 100]);
                stream.write_all(data).await.0.unwrap();
                peer.read_exact(&mut [0; 100]).unwrap();
            }
            assert_eq!(alloc::calls() - before, 0, "allocations in a thousand echoes");
        });
    });
}

/// Of everything that an idle connection has in user space: stream, standing receive, slot, and the task that serves it.
#[test]
fn an_idle_pooled_connection_is_small() {
    in_child("steady_state::an_idle_pooled_connection_is_small", LIMIT, || {
        const MANY: usize = 1024;
        let rt = runtime::Runtime::new().unwrap();
        rt.block_on(async {
            let mut peers = Vec::with_capacity(4 * MANY);
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut held = [0; 2];
            // The first half fills tables; the second half is what counts.
            for held in &mut held {
                let before = alloc::live();
                for _ in 0..MANY {
                    let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                    let stream = TcpStream::from_std(listener.accept().unwrap().0).unwrap();
                    runtime::spawn(echo(stream));
                    peers.push(peer);
                    if peers.len() % 64 == 0 {
                        // Each has served something before it is idle.
                        for peer in peers.iter_mut().rev().take(64) {
                            peer.write_all(b"x").unwrap();
                        }
                        for _ in 0..8 {
                            runtime::task::yield_now().await;
                        }
                        runtime::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                *held = alloc::live() - before;
            }
            assert_eq!(runtime::metrics().pool_pieces, 0);
            let each = held[1] as f64 / MANY as f64;
            println!("an idle pooled connection: {each:.0} bytes");
            // Of these, 64 are the slot and some 200 the task.
            assert!(each <= 500.0, "an idle pooled connection has {each:.0} bytes");
        });
    });
}

/// Each of so many clients is there at the same time, has a KiB echoed and leaves.
fn wave(addr: std::net::SocketAddr, clients: usize) {
    let mut peers: Vec<_> = (0..clients).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
    peers.iter_mut().for_each(|peer| peer.write_all(&[7; 1024]).unwrap());
    for peer in &mut peers {
        let mut back = [0; 1024];
        peer.read_exact(&mut back).unwrap();
        assert_eq!(back, [7; 1024]);
    }
}

/// Into pooled memory as into a buffer of each connection's own.
#[test]
fn waves_of_connections_leave_no_memory_but_that_of_the_first() {
    in_child("steady_state::waves_of_connections_leave_no_memory_but_that_of_the_first", 3 * LIMIT, || {
        if !crate::raw::raise_descriptors(4_096) {
            println!("SKIP: the limit of descriptors cannot be raised");
            return;
        }
        for pooled in [true, false] {
            let rt = runtime::Runtime::new().unwrap();
            rt.block_on(async {
                let listener = TcpListener::options().backlog(4096).bind("127.0.0.1:0").await.unwrap();
                let addr = listener.local_addr().unwrap();
                let server = runtime::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        runtime::spawn(async move {
                            if pooled {
                                return echo(stream).await;
                            }
                            let mut buf = Vec::with_capacity(2048);
                            while let Ok((n, data)) = stream.read(buf).await.into_result()
                                && n > 0
                            {
                                buf = stream.write_all(data).await.1;
                            }
                        });
                    }
                });
                let mut after = Vec::new();
                for clients in [1_000, 1_000, 1_000, 1] {
                    let done = std::thread::spawn(move || wave(addr, clients));
                    crate::kit::until(|| done.is_finished() && runtime::metrics().tasks == 1).await;
                    done.join().unwrap();
                    crate::kit::until(|| runtime::metrics().in_flight <= 1).await;
                    after.push(alloc::live());
                }
                println!("living after each wave: {after:?}");
                // What the first one leaves are tables that had to hold it; nothing comes on top.
                let grown = after[3].max(after[2]).max(after[1]) - after[0];
                assert!(grown < 64 << 10, "{grown} bytes more than after the first wave: {after:?}");
                server.abort();
            });
        }
    });
}

async fn echo(stream: TcpStream) {
    loop {
        let Ok(data) = stream.recv().await else { return };
        if data.is_empty() || stream.write_all(data).await.0.is_err() {
            return;
        }
    }
}

/// A connection that the runtime made, and its std end.
async fn pair() -> (TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (stream, listener.accept().unwrap().0)
}

#[test]
fn an_idle_runtime_makes_no_system_calls_and_uses_no_cpu() {
    in_child("steady_state::an_idle_runtime_makes_no_system_calls_and_uses_no_cpu", LIMIT, || {
        let rt = runtime::Runtime::new().unwrap();
        rt.block_on(async {
            let (_tx, rx) = pipe().unwrap();
            let idle = runtime::spawn(async move { rx.read(Vec::with_capacity(8)).await.0 });
            runtime::time::sleep(Duration::from_millis(20)).await;
            let (before, cpu) = (runtime::metrics(), crate::support::cpu());
            runtime::time::sleep(Duration::from_secs(1)).await;
            let after = runtime::metrics();
            assert!(after.enters - before.enters <= 2, "{} enters in an idle second", after.enters - before.enters);
            assert!(crate::support::cpu() - cpu < crate::support::scaled(Duration::from_millis(5)));
            idle.abort();
        });
    });
}
