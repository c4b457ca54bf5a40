//! A reset is told, also where the kernel hides it behind the count of what was sent before.

use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::Poll;

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

#[test]
fn a_look_ahead_leaves_the_reset_to_the_read() {
    run(secs(30), async {
        let (stream, peer) = pair().await;
        let mut write = Box::pin(stream.write_all(vec![1; 64 << 20]));
        assert!(poll_once(write.as_mut()).await.is_pending());
        sleep(ms(20)).await;
        reset(peer);
        sleep(ms(20)).await;
        drop(write);
        for _ in 0..2 {
            let looked = stream.peek(Vec::with_capacity(10)).await.0;
            assert_eq!(looked.unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        let read = stream.read(Vec::with_capacity(10)).await.0;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

/// A write of everything whose first part hid a reset, and that is dropped in its second.
fn reset_then_dropped(zc: bool, naps: u32) {
    run(secs(30), async move {
        let (stream, mut peer) = pair().await;
        stream.set_zc_threshold(1000);
        let data = vec![7u8; 64 << 20];
        let mut write: Pin<Box<dyn Future<Output = std::io::Result<()>> + '_>> = if zc {
            Box::pin(async { stream.write_all_zc(data).await.0 })
        } else {
            Box::pin(async { stream.write_all(data).await.0 })
        };
        for _ in 0..3 {
            assert!(poll_once(write.as_mut()).await.is_pending());
            sleep(ms(5)).await;
        }
        // So that the operation in flight has sent a part.
        peer.set_nonblocking(true).unwrap();
        for _ in 0..5 {
            let _ = peer.read(&mut vec![0; 1 << 20]);
            sleep(ms(5)).await;
        }
        reset(peer);
        // Its first part ends meanwhile.
        for _ in 0..3 {
            sleep(ms(5)).await;
        }
        let again = poll_once(write.as_mut()).await;
        if let Poll::Ready(result) = again {
            // The second part has ended by then, and the writer is told.
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ConnectionReset);
            return;
        }
        for _ in 0..naps {
            runtime::task::yield_now().await;
        }
        drop(write);
        let read = stream.read(vec![0; 10]).await.0;
        let error = read.expect_err("a clean end after a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_reset_behind_the_first_part_of_a_dropped_write_is_told() {
    reset_then_dropped(false, 0);
}

#[test]
fn a_reset_behind_the_first_part_of_a_write_that_is_dropped_later_is_told() {
    reset_then_dropped(false, 3);
}

#[test]
fn a_reset_behind_the_first_part_of_a_dropped_zero_copy_write_is_told() {
    reset_then_dropped(true, 0);
}
