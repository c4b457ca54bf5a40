//! Buffered reads of real sockets that are dropped at every await: no byte is lost, repeated or reordered.

use std::io::{ErrorKind, Write};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::StreamExt;
use runtime::io::prelude::*;
use runtime::io::{BufReader, BufStream, BufWriter};
use runtime::time::timeout;

use crate::peer::{Peer, ends, finish, ms, pair, pattern, reset, run, secs, start_and_drop, until, within};
use crate::support::Rng;

/// Lines of text that tell their number and their length.
fn line(number: usize) -> String {
    format!("line {number} {}", "x".repeat(number * 31 % 200))
}

/// Sends `lines` lines in pieces of one to `most` bytes, with short pauses, and then the end.
fn dribble(mut peer: Peer, lines: usize, most: u64, seed: u64) -> JoinHandle<Peer> {
    std::thread::spawn(move || {
        peer.set_nodelay(true).unwrap();
        let mut rng = Rng(seed);
        let text: String = (0..lines).map(|number| line(number) + "\n").collect();
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let n = (1 + rng.below(most) as usize).min(rest.len());
            peer.write_all(&rest[..n]).unwrap();
            rest = &rest[n..];
            if rng.below(3) == 0 {
                std::thread::sleep(Duration::from_micros(rng.below(60)));
            }
        }
        finish(&peer);
        peer
    })
}

/// Awaits what `start` starts with a random limit, dropping it and starting again until it is done.
async fn insist<T>(rng: &mut Rng, dropped: &mut usize, mut start: impl AsyncFnMut() -> T) -> T {
    loop {
        let limit = Duration::from_micros(rng.below(120));
        match timeout(limit, start()).await {
            Ok(output) => return output,
            Err(_) => *dropped += 1,
        }
    }
}

/// Noise whose last byte is 0, as some before it are.
fn ended_by_zero(len: usize) -> Vec<u8> {
    let mut data = pattern(0, len);
    data[len - 1] = 0;
    data
}

#[test]
fn lines_of_a_slow_peer_survive_a_time_limit_at_every_wait() {
    run(secs(60), async {
        let mut dropped = 0;
        for (seed, capacity) in [(1, 1), (2, 16), (3, 64 * 1024)] {
            let (stream, peer) = pair().await;
            let peer = dribble(peer, 100, 2, seed);
            let mut lines = BufReader::with_capacity(capacity, stream).lines().max_len(1000);
            let mut rng = Rng(seed);
            for number in 0..100 {
                let next = insist(&mut rng, &mut dropped, async || lines.next_line().await).await;
                assert_eq!(next.unwrap().unwrap(), line(number), "after {dropped} drops, capacity {capacity}");
            }
            assert_eq!(lines.next_line().await.unwrap(), None);
            drop(peer.join().unwrap());
        }
        assert!(dropped > 20, "only {dropped} waits were dropped");
    });
}

#[test]
fn searches_fills_and_exact_reads_mix_under_time_limits() {
    run(secs(60), async {
        let mut dropped = 0;
        for seed in 1..=4 {
            let (stream, mut peer) = pair().await;
            let total = 40_000;
            let writer = std::thread::spawn(move || {
                let mut rng = Rng(seed * 31);
                let data = ended_by_zero(total);
                let mut sent = 0;
                while sent < total {
                    let n = (1 + rng.below(900) as usize).min(total - sent);
                    peer.write_all(&data[sent..sent + n]).unwrap();
                    sent += n;
                    if rng.below(3) == 0 {
                        std::thread::sleep(Duration::from_micros(rng.below(150)));
                    }
                }
                finish(&peer);
                peer
            });
            let expected = ended_by_zero(total);
            let mut rng = Rng(seed);
            let mut reader = BufReader::with_capacity(1024, &stream);
            let mut at = 0;
            while at < total {
                // Nothing waits for the end of the stream: that leaves nothing behind when it is dropped, so a limit that is
                // shorter than a turn, as on a slow machine, would never see it.
                let size = (1 + rng.below(3000) as usize).min(total - at);
                match rng.below(5) {
                    0 => {
                        let mut data = Vec::new();
                        let find = async || reader.read_until(0, &mut data).await;
                        let n = insist(&mut rng, &mut dropped, find).await.unwrap();
                        assert_eq!(data, &expected[at..at + n], "until at {at}, seed {seed}");
                        assert_eq!(data.iter().position(|byte| *byte == 0), Some(n - 1));
                        at += n;
                    }
                    1 => {
                        // Below and above the capacity: both give back what had come.
                        let read = async || reader.read_exact(Vec::with_capacity(size)).await;
                        let result = insist(&mut rng, &mut dropped, read).await;
                        let (_, data) = result.into_result().unwrap();
                        assert_eq!(data, &expected[at..at + size], "exact at {at}, seed {seed}");
                        at += size;
                    }
                    2 => {
                        let limit = Duration::from_micros(rng.below(120));
                        let Ok(filled) = timeout(limit, reader.fill_buf()).await else {
                            dropped += 1;
                            continue;
                        };
                        let n = filled.unwrap().len().min(size);
                        assert_eq!(reader.buffer()[..n], expected[at..at + n], "fill at {at}, seed {seed}");
                        reader.consume(n);
                        at += n;
                    }
                    3 => {
                        let read = async || reader.read(Vec::with_capacity(size)).await;
                        let (n, data) = insist(&mut rng, &mut dropped, read).await.into_result().unwrap();
                        assert!(n > 0, "the end came early, at {at} of {total}, seed {seed}");
                        assert_eq!(data, &expected[at..at + n], "read at {at}, seed {seed}");
                        at += n;
                    }
                    _ => {
                        let mut data = Vec::new();
                        let limit = Duration::from_micros(rng.below(120));
                        let read = async { (&mut reader).take(size as u64).read_to_end(&mut data).await };
                        // What came before the drop is in `data` and counts.
                        if timeout(limit, read).await.is_err() {
                            dropped += 1;
                        }
                        assert_eq!(data, &expected[at..at + data.len()], "taken at {at}, seed {seed}");
                        at += data.len();
                    }
                }
            }
            assert_eq!(reader.read(Vec::with_capacity(1)).await.0.unwrap(), 0);
            drop(writer.join().unwrap());
        }
        assert!(dropped > 20, "only {dropped} futures were dropped");
    });
}

#[test]
fn a_dropped_fill_gives_its_bytes_to_whoever_reads_the_stream_next() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let mut reader = BufReader::new(&stream);
        assert!(start_and_drop(reader.fill_buf()).await.is_pending());
        peer.write_all(b"first").unwrap();
        assert_eq!(within(secs(5), "the fill", reader.fill_buf()).await.unwrap(), b"first");
        assert!(start_and_drop(reader.fill_more()).await.is_pending());
        assert_eq!(reader.buffer(), b"first", "what was there stays");
        peer.write_all(b"second").unwrap();
        // The buffered reader is given up: its bytes are its own, the stream's are the stream's.
        let (_, ahead) = reader.into_parts();
        let (n, data) = within(secs(5), "the read", stream.read(Vec::with_capacity(64))).await.into_result().unwrap();
        assert_eq!((&ahead[..], n, &data[..]), (&b"first"[..], 6, &b"second"[..]));
    });
}

#[test]
fn an_endless_line_is_refused_while_the_peer_goes_on_sending() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        let sender = std::thread::spawn(move || {
            let block = [b'x'; 4096];
            while peer.write_all(&block).is_ok() {}
        });
        let mut lines = BufReader::with_capacity(1024, stream).lines().max_len(100_000);
        let error = within(secs(20), "the refusal", lines.next()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let held = lines.get_ref().buffer().len();
        assert!(held > 100_000 && held <= 101_024, "{held} bytes");
        drop(lines);
        sender.join().unwrap();
    });
}

#[test]
fn a_reset_in_the_middle_of_a_line_is_no_clean_end_and_the_line_stays() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let mut lines = BufReader::new(stream).lines();
        peer.write_all(b"whole\nhal").unwrap();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "whole");
        assert!(timeout(ms(5), lines.next_line()).await.is_err());
        reset(peer);
        let error = within(secs(5), "the reset", lines.next_line()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(lines.get_ref().buffer(), b"hal");
    });
}

#[test]
fn a_stream_of_lines_keeps_its_read_when_a_next_is_dropped() {
    run(secs(30), async {
        let (stream, peer) = pair().await;
        let peer = dribble(peer, 100, 40, 5);
        let mut lines = BufReader::new(stream).lines().into_stream();
        let (mut rng, mut dropped) = (Rng(5), 0);
        for number in 0..100 {
            let next = insist(&mut rng, &mut dropped, async || lines.next().await).await;
            assert_eq!(next.unwrap().unwrap(), line(number));
        }
        assert!(lines.next().await.is_none());
        drop(peer.join().unwrap());
    });
}

#[test]
fn a_dropped_flush_is_told_to_the_next_write_and_the_connection_ends() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        stream.set_send_buffer_size(4096).unwrap();
        let mut writer = BufWriter::with_capacity(1 << 20, stream);
        // More than the socket takes, so the flush waits.
        let data = vec![b'a'; (1 << 20) - 1];
        for _ in 0..8 {
            writer.write_all(data.clone()).await.0.unwrap();
            if start_and_drop(writer.flush()).await.is_pending() {
                let error = writer.write_all("more").await.0.unwrap_err();
                assert!(error.to_string().contains("dropped half-way"), "{error}");
                assert_eq!(writer.buffer(), b"");
                drop(writer);
                let end = std::thread::spawn(move || ends(&mut peer));
                until("the end of what was sent", secs(10), || end.is_finished()).await;
                // A part of it, and no more than was held back.
                let received = end.join().unwrap().unwrap();
                assert!(received <= 8 << 20, "{received} bytes");
                return;
            }
        }
        panic!("a socket that takes 8 MiB at once");
    });
}

#[test]
fn requests_and_answers_through_both_buffers() {
    run(secs(30), async {
        let (stream, mut peer) = pair().await;
        let client = std::thread::spawn(move || {
            let mut answers = String::new();
            for number in 0..200 {
                peer.write_all((line(number) + "\r\n").as_bytes()).unwrap();
            }
            finish(&peer);
            std::io::Read::read_to_string(&mut peer, &mut answers).unwrap();
            answers
        });
        let mut stream = BufStream::with_capacity(100, 100, stream);
        let mut request = String::new();
        while stream.read_line_max(1000, &mut request).await.unwrap() > 0 {
            let answer = std::mem::take(&mut request).trim_end_matches(['\r', '\n']).to_uppercase();
            stream.write_all(answer).await.0.unwrap();
            stream.write_u8(b'\n').await.unwrap();
        }
        stream.shutdown().await.unwrap();
        let expected: String = (0..200).map(|number| line(number).to_uppercase() + "\n").collect();
        assert!(client.join().unwrap() == expected);
    });
}

#[test]
fn a_body_behind_a_dropped_exact_read_ends_before_the_next_request() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        // Half of a body of ten came with the head.
        let mut body = (&b"01234"[..]).chain(&stream).take(10);
        assert!(start_and_drop(body.read_exact(Vec::with_capacity(10))).await.is_pending());
        peer.write_all(b"56789GET /secret").unwrap();
        let mut rest = Vec::new();
        body.read_to_end(&mut rest).await.unwrap();
        assert_eq!(String::from_utf8(rest).unwrap(), "56789");
    });
}

#[test]
fn a_large_write_that_is_dropped_in_the_middle_is_told_before_anything_else_is_written() {
    run(secs(20), async {
        let (stream, _peer) = pair().await;
        let mut writer = BufWriter::with_capacity(1024, &stream);
        assert!(start_and_drop(writer.write_all(vec![1; 32 << 20])).await.is_pending());
        let error = writer.write_all("next").await.0.unwrap_err();
        assert!(error.to_string().contains("dropped half-way"), "{error}");
    });
}
