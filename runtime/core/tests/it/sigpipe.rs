//! SIGPIPE does not reach a program that did not ask for it, whichever call enters the ring.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use runtime::Runtime;
use runtime::net::TcpListener;
use runtime::pipe::pipe;
use runtime::time::{sleep, timeout};

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
