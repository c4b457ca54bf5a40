//! Order: writers never mix, readers are served in turn, a peek takes nothing, and both directions are independent.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::rc::Rc;

use runtime::task::yield_now;
use runtime::time::timeout;

use crate::peer::{Ticker, finish, ms, pair, pattern, poll_once, read_len, run, secs, start_and_drop};
use crate::support::Rng;

// ---- overlapping writes --------------------------------------------------------------------------------------------------

#[test]
fn frames_of_several_writers_are_never_torn() {
    const FRAME: usize = 256 * 1024;
    run(secs(60), async {
        let (stream, mut peer) = pair().await;
        let reader = std::thread::spawn(move || {
            let mut counts = [0; 3];
            let mut frame = vec![0; FRAME];
            loop {
                let mut at = 0;
                while at < FRAME {
                    let end = (at + 4096).min(FRAME);
                    match peer.read(&mut frame[at..end]).unwrap() {
                        0 if at == 0 => return counts,
                        0 => panic!("half a frame"),
                        n => at += n,
                    }
                }
                let id = frame[0];
                assert!(frame.iter().all(|&byte| byte == id), "a torn frame");
                counts[id as usize] += 1;
            }
        });
        let stream = Rc::new(stream);
        let writers: Vec<_> = (0..3u8)
            .map(|id| {
                let stream = Rc::clone(&stream);
                runtime::spawn(async move {
                    let mut frame = vec![id; FRAME];
                    for round in 0..60 {
                        if id == 2 && round % 2 == 0 {
                            let parts = frame.chunks(10_000).map(<[u8]>::to_vec).collect();
                            stream.write_all_vectored(parts).await.0.unwrap();
                        } else {
                            frame = stream.write_all(frame).await.into_result().unwrap().1;
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        drop(stream);
        assert_eq!(reader.join().unwrap(), [60, 60, 60]);
    });
}

#[test]
fn small_writes_of_many_tasks_go_out_in_the_order_of_their_first_poll() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        let stream = Rc::new(stream);
        // The first fills the socket, so that all the others wait.
        let mut tasks = vec![runtime::spawn({
            let stream = Rc::clone(&stream);
            async move { stream.write_all(vec![0; 8 << 20]).await.0.unwrap() }
        })];
        for i in 0..500 {
            let stream = Rc::clone(&stream);
            tasks.push(runtime::spawn(async move { stream.write_all(pattern(i * 3, 3)).await.0.unwrap() }));
        }
        for _ in 0..5 {
            yield_now().await;
        }
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        for task in tasks {
            task.await.unwrap();
        }
        drop(stream);
        let all = reader.join().unwrap();
        assert!(all[..8 << 20].iter().all(|&byte| byte == 0));
        assert!(all[8 << 20..] == pattern(0, 1500));
    });
}

// ---- readers ---------------------------------------------------------------------------------------------------------------

#[test]
fn concurrent_readers_are_served_in_turn_and_whole() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        let stream = Rc::new(stream);
        let served = Rc::new(RefCell::new(Vec::new()));
        for i in 0..50 {
            let (stream, served) = (Rc::clone(&stream), Rc::clone(&served));
            runtime::spawn(async move {
                let data = stream.read_exact(Vec::with_capacity(10)).await.into_result().unwrap().1;
                served.borrow_mut().push((i, data));
            });
        }
        yield_now().await;
        yield_now().await;
        let mut rng = Rng(50);
        let mut sent = 0;
        while sent < 500 {
            let n = (1 + rng.below(33) as usize).min(500 - sent);
            peer.write_all(&pattern(sent, n)).unwrap();
            sent += n;
            for _ in 0..rng.below(3) {
                yield_now().await;
            }
        }
        crate::peer::until("all readers are served", secs(5), || served.borrow().len() == 50).await;
        for (turn, (reader, data)) in served.borrow().iter().enumerate() {
            assert_eq!((turn, data), (*reader, &pattern(turn * 10, 10)));
        }
    });
}

#[test]
fn a_reader_that_leaves_the_line_holds_up_nobody() {
    run(secs(30), async {
        let mut rng = Rng(8);
        for round in 0..100 {
            let (stream, mut peer) = pair().await;
            let mut readers: Vec<_> =
                (0..6).map(|_| Some(Box::pin(stream.read_exact(Vec::with_capacity(4))))).collect();
            for reader in readers.iter_mut().flatten() {
                assert!(poll_once(reader.as_mut()).await.is_pending());
            }
            let mut at = 0;
            peer.write_all(&pattern(0, 100)).unwrap();
            yield_now().await;
            for _ in 0..3 {
                readers[rng.below(6) as usize] = None;
                if rng.below(2) == 0 {
                    yield_now().await;
                }
            }
            for reader in readers.into_iter().flatten() {
                let data = crate::peer::within(secs(2), "a reader in line", reader).await.into_result().unwrap().1;
                assert_eq!(data, pattern(at, 4), "round {round}");
                at += 4;
            }
            assert_eq!(read_len(&stream, 100 - at).await, pattern(at, 100 - at), "round {round}");
        }
    });
}

#[test]
fn a_reader_in_line_polled_by_another_task_is_still_woken() {
    run(secs(20), async {
        for _ in 0..50 {
            let (stream, mut peer) = pair().await;
            let stream = Rc::new(stream);
            let read = |stream: Rc<runtime::net::TcpStream>| async move {
                stream.read_exact(Vec::with_capacity(4)).await.into_result().unwrap().1
            };
            // First polled here, then moved into tasks: the last waker counts.
            let mut first = Box::pin(read(Rc::clone(&stream)));
            let mut second = Box::pin(read(Rc::clone(&stream)));
            assert!(poll_once(first.as_mut()).await.is_pending());
            assert!(poll_once(second.as_mut()).await.is_pending());
            let (first, second) = (runtime::spawn(first), runtime::spawn(second));
            yield_now().await;
            yield_now().await;
            peer.write_all(b"firstone").unwrap();
            let both = futures::future::join(first, second);
            let (first, second) = crate::peer::within(secs(2), "both readers", both).await;
            assert_eq!((first.unwrap(), second.unwrap()), (b"firs".to_vec(), b"tone".to_vec()));
        }
    });
}

// ---- peek ------------------------------------------------------------------------------------------------------------------

#[test]
fn a_peek_takes_nothing_from_the_socket_or_from_the_residue() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        for round in 0..50 {
            peer.write_all(&pattern(round, 20)).unwrap();
            let (n, seen) = stream.peek(Vec::with_capacity(8)).await.into_result().unwrap();
            assert_eq!((n, seen), (8, pattern(round, 8)));
            // Dropped peeks take nothing either.
            let _ = start_and_drop(stream.peek(Vec::with_capacity(20))).await;
            yield_now().await;
            assert_eq!(read_len(&stream, 20).await, pattern(round, 20));

            let mut waits = Box::pin(stream.read(Vec::with_capacity(10)));
            assert!(poll_once(waits.as_mut()).await.is_pending());
            yield_now().await;
            peer.write_all(&pattern(round, 30)).unwrap();
            yield_now().await;
            drop(waits);
            for size in [1, 5, 10] {
                let (n, seen) = stream.peek(Vec::with_capacity(size)).await.into_result().unwrap();
                assert!(n <= size && n > 0);
                assert_eq!(seen, pattern(round, n));
            }
            assert_eq!(read_len(&stream, 30).await, pattern(round, 30));
        }
        finish(&peer);
        assert_eq!(stream.peek(Vec::with_capacity(8)).await.0.unwrap(), 0);
        assert_eq!(stream.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
    });
}

#[test]
fn a_peek_shows_an_orphans_error_and_leaves_it_to_the_read() {
    run(secs(20), async {
        for _ in 0..20 {
            let (stream, peer) = pair().await;
            let mut waits = Box::pin(stream.read(Vec::with_capacity(10)));
            assert!(poll_once(waits.as_mut()).await.is_pending());
            yield_now().await;
            crate::peer::reset(peer);
            yield_now().await;
            drop(waits);
            for _ in 0..2 {
                assert!(stream.peek(Vec::with_capacity(8)).await.0.is_err());
            }
            assert!(stream.read(Vec::with_capacity(8)).await.0.is_err());
            assert_eq!(stream.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
        }
    });
}

// ---- both directions -------------------------------------------------------------------------------------------------------

#[test]
fn reading_and_writing_at_once_from_two_tasks_keeps_both_streams_whole() {
    const BYTES: usize = 6 << 20;
    run(secs(60), async {
        let (stream, mut peer) = pair().await;
        let echo = std::thread::spawn(move || {
            let mut piece = [0; 30_000];
            loop {
                match peer.read(&mut piece).unwrap() {
                    0 => return,
                    n => peer.write_all(&piece[..n]).unwrap(),
                }
            }
        });
        let stream = Rc::new(stream);
        let writer = runtime::spawn({
            let stream = Rc::clone(&stream);
            async move {
                let mut rng = Rng(6);
                let mut at = 0;
                while at < BYTES {
                    let n = (1 + rng.below(100_000) as usize).min(BYTES - at);
                    stream.write_all(pattern(at, n)).await.0.unwrap();
                    at += n;
                }
                stream.shutdown(std::net::Shutdown::Write).await.unwrap();
            }
        });
        let mut rng = Rng(9);
        let mut at = 0;
        loop {
            let size = 1 + rng.below(50_000) as usize;
            let Ok(read) = timeout(ms(rng.below(3)), stream.read(Vec::with_capacity(size))).await else { continue };
            let (n, data) = read.into_result().unwrap();
            if n == 0 {
                break;
            }
            assert!(data == pattern(at, n), "at {at}");
            at += n;
        }
        assert_eq!(at, BYTES);
        writer.await.unwrap();
        echo.join().unwrap();
    });
}

#[test]
fn a_shutdown_waits_for_the_writes_before_it_and_not_for_reads() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        let stream = Rc::new(stream);
        let ticker = Ticker::start();
        let read = runtime::spawn({
            let stream = Rc::clone(&stream);
            async move { stream.read(Vec::with_capacity(8)).await.into_result().unwrap().1 }
        });
        let write = runtime::spawn({
            let stream = Rc::clone(&stream);
            async move { stream.write_all(pattern(0, 8 << 20)).await.0.unwrap() }
        });
        yield_now().await;
        let mut shutdown = Box::pin(stream.shutdown(std::net::Shutdown::Write));
        assert!(poll_once(shutdown.as_mut()).await.is_pending(), "there is a write before it");
        assert!(timeout(ms(50), shutdown.as_mut()).await.is_err());
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            peer.write_all(b"bye").unwrap();
            all
        });
        shutdown.await.unwrap();
        write.await.unwrap();
        assert_eq!(read.await.unwrap(), b"bye");
        assert!(reader.join().unwrap() == pattern(0, 8 << 20));
        assert!(stream.write("more").await.0.is_err(), "the direction has ended");
        assert!(ticker.stop() < ms(500));
    });
}
