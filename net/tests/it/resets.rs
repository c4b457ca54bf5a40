//! A reset is told, also where the kernel hides it behind the count of what was sent before.

use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use runtime::net::TcpStream;
use runtime::time::sleep;

use crate::peer::{ms, pair, poll_once, reset, run, secs, start_and_drop};

#[test]
fn a_write_of_everything_that_is_reset_half_way_says_so() {
    for zero_copy in [false, true] {
        run(secs(30), async move {
            let (stream, mut peer) = pair().await;
            stream.set_zc_threshold(if zero_copy { 1 } else { usize::MAX });
            let other = std::thread::spawn(move || {
                // The sender has filled its socket and waits; then it goes on, and is cut off.
                peer.read_exact(&mut vec![0; 7 << 20]).unwrap();
                reset(peer);
            });
            let error = stream.write_all_zc(vec![1; 64 << 20]).await.0.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "zero-copy: {zero_copy}");
            other.join().unwrap();
        });
    }
}

#[test]
fn a_dropped_write_that_was_reset_leaves_no_clean_end() {
    for zero_copy in [false, true] {
        for _ in 0..5 {
            run(secs(30), async move {
                let (stream, peer) = pair().await;
                stream.set_zc_threshold(if zero_copy { 1 } else { usize::MAX });
                let mut write = Box::pin(stream.write_all_zc(vec![1; 64 << 20]));
                assert!(poll_once(write.as_mut()).await.is_pending());
                sleep(ms(20)).await;
                reset(peer);
                sleep(ms(20)).await;
                drop(write);
                let read = stream.read(Vec::with_capacity(100)).await.0;
                let error = read.expect_err("no clean end");
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "zero-copy: {zero_copy}");
            });
        }
    }
}

#[test]
fn a_dropped_zero_copy_write_on_a_socket_without_it_leaves_no_error() {
    run(secs(30), async {
        let (one, mut other) = UnixStream::pair().unwrap();
        let stream = TcpStream::from(OwnedFd::from(one));
        stream.set_zc_threshold(1);
        drop(start_and_drop(stream.write_all_zc(b"dropped".to_vec())).await);
        stream.write_all("plain").await.0.unwrap();
        drop(stream);
        let mut got = String::new();
        other.read_to_string(&mut got).unwrap();
        assert!(got.ends_with("plain"), "{got:?}");
    });
}
