//! SIGPIPE does not reach a program that did not ask for it, whichever call enters the ring.

use std::cell::RefCell;
use std::io::{ErrorKind, Write as _};
use std::rc::Rc;
use std::time::Duration;

use runtime::Runtime;
use runtime::net::{TcpListener, TcpStream};
use runtime::pipe::pipe;
use runtime::time::{sleep, timeout};

use crate::calls::default_sigpipe;
use crate::support::in_child;

const LIMIT: Duration = Duration::from_secs(20);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Whether this thread holds SIGPIPE back.
fn is_sigpipe_blocked() -> bool {
    // SAFETY: plain data that the call below fills.
    let mut mask = unsafe { std::mem::zeroed::<libc::sigset_t>() };
    // SAFETY: only writes the present mask.
    assert_eq!(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask) }, 0);
    // SAFETY: a mask that was filled above.
    unsafe { libc::sigismember(&raw const mask, libc::SIGPIPE) == 1 }
}

#[test]
fn a_listener_dropped_between_two_block_ons_raises_no_sigpipe_of_a_write_in_flight() {
    let name = "sigpipe::a_listener_dropped_between_two_block_ons_raises_no_sigpipe_of_a_write_in_flight";
    in_child(name, LIMIT, || {
        default_sigpipe();
        for _ in 0..5 {
            let rt = Runtime::new().unwrap();
            let (tx, rx) = pipe().unwrap();
            let outcome = Rc::new(RefCell::new(None));
            let theirs = Rc::clone(&outcome);
            let listener = rt.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                // The accept stands from here on.
                assert!(timeout(ms(1), listener.accept()).await.is_err());
                drop(runtime::spawn(async move {
                    *theirs.borrow_mut() = Some(tx.write_all(vec![0; 1 << 20]).await.0);
                }));
                sleep(ms(20)).await;
                listener
            });
            assert!(outcome.borrow().is_none(), "the pipe is full");
            drop(rx);
            // Enters the ring, where the write ends.
            drop(listener);
            assert!(!is_sigpipe_blocked(), "the thread's mask is what it was");
            rt.block_on(sleep(ms(20)));
            let outcome = outcome.borrow_mut().take().expect("the write has ended");
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::BrokenPipe);
        }
    });
}

/// A stream whose peer is gone, and that knows.
async fn forsaken() -> TcpStream {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    // Unread bytes make the peer's close a reset.
    stream.write_all("unread").await.0.unwrap();
    drop(listener.accept().unwrap());
    assert_eq!(stream.read(vec![0; 8]).await.0.unwrap_err().kind(), ErrorKind::ConnectionReset);
    stream
}

/// Has more than one completion in a turn, so that the writes after it go to the ring.
async fn crowd() {
    let ((a, mut a_tx), (b, mut b_tx)) = (crate::kit::raw_pipe(), crate::kit::raw_pipe());
    let read = |fd| runtime::op::submit(crate::kit::ReadInto { fd, memory: [0; 1] });
    let feed = async {
        runtime::task::yield_now().await;
        a_tx.write_all(b"a").unwrap();
        b_tx.write_all(b"b").unwrap();
    };
    let (a, b, ()) = futures::join!(read(a), read(b), feed);
    assert_eq!((a.0.unwrap(), b.0.unwrap()), (1, 1));
}

#[test]
fn writes_of_every_shape_to_a_peer_that_is_gone_kill_no_program_with_the_default_action() {
    let name = "sigpipe::writes_of_every_shape_to_a_peer_that_is_gone_kill_no_program_with_the_default_action";
    in_child(name, LIMIT, || {
        default_sigpipe();
        Runtime::new().unwrap().block_on(async {
            // Of sockets only: with a pipe in use the thread would hold the signal back.
            for round in 0..20 {
                let gone = forsaken().await;
                gone.set_zc_threshold(1);
                if round % 2 == 1 {
                    crowd().await;
                }
                let kinds = [
                    gone.write("x").await.0.unwrap_err().kind(),
                    gone.write_vectored(vec!["x", "y"]).await.0.unwrap_err().kind(),
                    gone.write_all(vec![0; 1 << 20]).await.0.unwrap_err().kind(),
                    gone.write_all_vectored(vec![vec![0; 1 << 19]; 2]).await.0.unwrap_err().kind(),
                    gone.write_all_zc(vec![0; 1 << 17]).await.0.unwrap_err().kind(),
                    futures::join!(gone.write("1"), gone.write("2")).1.0.unwrap_err().kind(),
                ];
                assert_eq!(kinds, [ErrorKind::BrokenPipe; 6], "round {round}");
                assert!(!is_sigpipe_blocked(), "this test tests nothing");
                assert!(gone.shutdown(std::net::Shutdown::Write).await.is_err());
                let (_rx, tx) = gone.into_split();
                assert_eq!(tx.write("x").await.0.unwrap_err().kind(), ErrorKind::BrokenPipe);
            }
            // A relay has a private pipe, and its bytes go from there to the socket.
            for way in [runtime::pipe::Relay::new().copy(), runtime::pipe::Relay::new().splice()] {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let source = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let mut peer = listener.accept().unwrap().0;
                peer.write_all(&[1; 100_000]).unwrap();
                let error = way.run(&source, &forsaken().await).await.unwrap_err();
                // Whichever of its directions is told first.
                let kind = error.error.kind();
                assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
            }
        });
    });
}
