//! Failures that a review found by trying, and that need signals or fork(2): each test failed once.

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _, Write as _};
use std::rc::Rc;
use std::time::Duration;

use runtime::Runtime;
use runtime::net::TcpListener;
use runtime::pipe::pipe;
use runtime::time::{sleep, timeout};

use crate::raw::fork;
use crate::scene::{connected, timed};
use crate::support::{fds, in_child, scaled};

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
    let name = "review::a_listener_dropped_between_two_block_ons_raises_no_sigpipe_of_a_write_in_flight";
    in_child(name, LIMIT, || {
        // SAFETY: the default action, as in programs that are not std's.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
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

#[test]
fn a_write_half_dropped_in_a_child_does_not_end_the_parents_connection() {
    in_child("review::a_write_half_dropped_in_a_child_does_not_end_the_parents_connection", LIMIT, || {
        Runtime::new().unwrap().block_on(async {
            for write_first in [true, false] {
                let (stream, mut peer) = connected().await;
                peer.set_read_timeout(Some(scaled(Duration::from_secs(5)))).unwrap();
                let (rx, tx) = stream.into_split();
                let mut halves = (Some(rx), Some(tx));
                let open = fds();
                let child = fork(|| {
                    if write_first {
                        drop(halves.1.take());
                        drop(halves.0.take());
                    } else {
                        drop(halves.0.take());
                        drop(halves.1.take());
                    }
                    i32::from(fds() != open - 1)
                });
                assert_eq!(child.wait(), 0, "still open in the child");
                let (Some(rx), Some(tx)) = halves else { panic!("the parent has both halves") };
                tx.write_all("still there?").await.0.unwrap();
                let mut text = [0; 12];
                peer.read_exact(&mut text).unwrap();
                assert_eq!(&text, b"still there?");
                peer.write_all(b"yes").unwrap();
                assert_eq!(rx.read(vec![0; 8]).await.0.unwrap(), 3);
                // The parent's own drop still ends it.
                drop(tx);
                let (end, took) = timed(|| peer.read(&mut text));
                assert_eq!(end.unwrap(), 0, "after {took:?}");
            }
        });
    });
}
