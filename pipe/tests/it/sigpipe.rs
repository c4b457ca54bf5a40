//! A program in which SIGPIPE kills, and everything that can write to somebody who is gone.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpListener};
use std::pin::pin;
use std::time::Duration;

use runtime::io::{BufResult, copy};
use runtime::net::TcpStream;
use runtime::pipe::{
    Pages, Receiver, Relay, Sender, pipe, send_file, splice, splice_all, splice_from_file, tee, vmsplice,
};
use runtime::time::timeout;

use super::calls::default_sigpipe;
use super::send_file::file;
use super::support::in_child;
use super::{SIGPIPE, pattern, poll_once, run, signals};

/// A stream whose peer has reset it.
async fn reset() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let peer = listener.accept().unwrap().0;
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    // The reset is heard of once; from then on it is a broken pipe.
    let _ = stream.read(vec![0; 1]).await;
    stream
}

fn full(of: usize) -> (Sender, Receiver) {
    let (tx, rx) = pipe().unwrap();
    assert_eq!(tx.try_write(pattern(0, of)).0.unwrap(), of);
    (tx, rx)
}

async fn broken<T: std::fmt::Debug>(what: &str, result: impl Future<Output = io::Result<T>>) {
    let limit = super::support::scaled(Duration::from_secs(1));
    let error = timeout(limit, result).await.expect(what).expect_err(what);
    assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{what}: {error}");
    assert_eq!(signals("SigPnd:") & SIGPIPE, 0, "{what}: the signal is left");
}

#[test]
fn nothing_that_writes_to_somebody_who_is_gone_kills_the_process() {
    in_child("sigpipe::nothing_that_writes_to_somebody_who_is_gone_kills_the_process", Duration::from_secs(30), || {
        default_sigpipe();
        run(async {
            let source = file(&pattern(1, 100_000));
            let (tx, rx) = pipe().unwrap();
            drop(rx);
            broken("write", async { tx.write("x").await.0 }).await;
            broken("write_all", async { tx.write_all(vec![0; 200_000]).await.0 }).await;
            broken("write_vectored", async { tx.write_vectored(vec!["a", "b"]).await.0 }).await;
            broken("try_write", async { tx.try_write("x").0 }).await;
            let (_keep, from) = full(1000);
            broken("splice", splice(&from, &tx, 100)).await;
            broken("splice_all", splice_all(&from, &tx, 100)).await;
            broken("tee", tee(&from, &tx, 100)).await;
            broken("copy", copy(&mut &from, &mut &tx)).await;
            let mut pages = Pages::new(5000).unwrap();
            pages.resize(5000);
            broken("vmsplice", vmsplice(pages, &tx)).await;
            broken("splice_from_file", splice_from_file(&source, Some(0), &tx, 100)).await;
            broken("send_file", send_file(&source, 0, u64::MAX, &tx)).await;
            // The same to sockets.
            broken("splice to a socket", splice(&from, &reset().await, 100)).await;
            broken("send_file to a socket", send_file(&source, 0, u64::MAX, &reset().await)).await;
            broken("copy to a socket", copy(&mut &from, &mut &reset().await)).await;
            for way in [Relay::new(), Relay::new().copy(), Relay::new().splice()] {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let a = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let mut client = listener.accept().unwrap().0;
                io::Write::write_all(&mut client, &pattern(2, 1000)).unwrap();
                let b = reset().await;
                b.shutdown(Shutdown::Write).await.unwrap_or(());
                let (_idle_tx, idle) = pipe().unwrap();
                let (aside, _aside_rx) = pipe().unwrap();
                let one_way = async { way.run_halves((&a, &aside), (&idle, &b)).await.map_err(io::Error::from) };
                broken("relay", one_way).await;
                assert_eq!(a.read(vec![0; 1000]).await.0.unwrap(), 1000, "what was not passed on is still there");
            }
            // Writes that wait, and are waited for or dropped.
            for drops in [false, true] {
                let (tx, rx) = full(65_536);
                let mut waits = pin!(tx.write_all("more"));
                assert!(poll_once(waits.as_mut()).await.is_pending());
                runtime::task::yield_now().await;
                drop(rx);
                if !drops {
                    let limit = super::support::scaled(Duration::from_secs(1));
                    let BufResult(result, _) = timeout(limit, waits).await.expect("in time");
                    assert_eq!(result.unwrap_err().kind(), ErrorKind::BrokenPipe);
                }
            }
            while runtime::testing::in_flight() > 0 {
                runtime::task::yield_now().await;
            }
        });
        assert_eq!(signals("SigPnd:") & SIGPIPE, 0, "after `block_on` it would kill");
    });
}
