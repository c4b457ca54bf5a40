//! The end of a stream is told to whoever reads, however short their patience.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use runtime::task::yield_now;

use crate::peer::{finish, pair, run, secs};

/// Polls a future once, lets the runtime turn, and drops it unless it was ready.
async fn impatient<F: Future>(future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let first = poll_fn(|task| Poll::Ready(Pin::new(&mut future).poll(task))).await;
    match first {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_reader_that_never_waits_hears_of_the_end() {
    run(secs(30), async {
        let (stream, peer) = pair().await;
        finish(&peer);
        let mut tries = 0;
        let n = loop {
            if let Some(result) = impatient(stream.read(Vec::with_capacity(8))).await {
                break result.0.unwrap();
            }
            tries += 1;
            assert!(tries < 10_000, "never told");
            yield_now().await;
        };
        assert_eq!(n, 0);
        // Once is not for all.
        assert_eq!(stream.read(vec![0; 8]).await.0.unwrap(), 0);
    });
}

#[test]
fn bytes_come_before_the_end_in_every_way_of_reading() {
    run(secs(30), async {
        for way in 0..3 {
            let (stream, mut peer) = pair().await;
            std::io::Write::write_all(&mut peer, b"ab").unwrap();
            finish(&peer);
            let mut got = Vec::new();
            let mut tries = 0;
            loop {
                tries += 1;
                assert!(tries < 10_000, "never told");
                let read = match way {
                    0 => impatient(stream.read(Vec::with_capacity(1))).await.map(|r| r.0.map(|n| r.1[..n].to_vec())),
                    1 => {
                        let bufs = vec![Vec::with_capacity(1), Vec::with_capacity(1)];
                        impatient(stream.read_vectored(bufs)).await.map(|r| r.0.map(|_| r.1.concat()))
                    }
                    _ => impatient(stream.recv()).await.map(|r| r.map(|data| data.to_vec())),
                };
                match read {
                    None => yield_now().await,
                    Some(data) => {
                        let data = data.unwrap();
                        if data.is_empty() {
                            break;
                        }
                        got.extend_from_slice(&data);
                    }
                }
            }
            assert_eq!(got, b"ab", "way {way}");
        }
    });
}

#[test]
fn a_stream_at_its_end_may_be_taken_apart() {
    run(secs(30), async {
        let (stream, peer) = pair().await;
        finish(&peer);
        assert!(impatient(stream.read(vec![0; 8])).await.is_none());
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(stream.into_std().is_ok(), "the end is no loss");
    });
}
