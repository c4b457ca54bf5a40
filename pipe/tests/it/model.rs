//! Random sequences of everything that moves bytes between pipes, each dropped at random, against queues of bytes.
//!
//! Pipes hold at most what they have room for, so much of it waits and is dropped. What a dropped move has done is not
//! told; then what is in the pipes is read, and has to be what some part of the move would have left.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use runtime::io::{BufResult, copy};
use runtime::pipe::{Builder, Pages, Receiver, Relay, Sender, splice, splice_all, tee, vmsplice};
use runtime::time::timeout;

use super::support::Rng;
use super::{pattern, poll_once, run};

const PIPES: usize = 3;

struct Pipe {
    tx: Sender,
    rx: Receiver,
    holds: VecDeque<u8>,
}

struct Model {
    rng: Rng,
    pipes: Vec<Pipe>,
    /// Bytes that were made so far: no two stretches of them are alike.
    made: usize,
    moved: usize,
    dropped: usize,
}

/// Polls it a few times, for a random time, or to its end; `None` when it was dropped.
async fn some_time<F: Future>(rng: &mut Rng, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match rng.below(4) {
        0 => {
            for _ in 0..rng.below(4) {
                if let std::task::Poll::Ready(output) = poll_once(future.as_mut()).await {
                    return Some(output);
                }
                if rng.below(2) == 0 {
                    runtime::task::yield_now().await;
                }
            }
            None
        }
        1 => timeout(Duration::from_micros(rng.below(300)), future).await.ok(),
        // What waits now would wait for ever: nobody else is here.
        _ => timeout(Duration::from_millis(2), future).await.ok(),
    }
}

fn is_prefix(all: &VecDeque<u8>, of: &[u8]) -> bool {
    all.len() <= of.len() && all.iter().eq(&of[..all.len()])
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let pipes = (0..PIPES).map(|_| {
            let (tx, rx) = Builder::new().capacity(4096 << rng.below(9)).build().unwrap();
            Pipe { tx, rx, holds: VecDeque::new() }
        });
        let pipes = pipes.collect();
        Self { rng, pipes, made: 0, moved: 0, dropped: 0 }
    }

    fn size(&mut self) -> usize {
        match self.rng.below(6) {
            0 => self.rng.below(3) as usize,
            1 => 1 + self.rng.below(100) as usize,
            2 | 3 => self.rng.below(10_000) as usize,
            4 => self.rng.below(200_000) as usize,
            _ => self.rng.below(4 << 20) as usize,
        }
    }

    fn make(&mut self, len: usize) -> Vec<u8> {
        self.made += len;
        pattern(self.made - len, len)
    }

    fn two(&mut self) -> (usize, usize) {
        let from = self.rng.below(PIPES as u64) as usize;
        (from, (from + 1 + self.rng.below(PIPES as u64 - 1) as usize) % PIPES)
    }

    /// Everything that is in a pipe now, in whatever form.
    async fn drain(&self, at: usize) -> VecDeque<u8> {
        while runtime::testing::in_flight() > 0 {
            runtime::task::yield_now().await;
        }
        let mut all = VecDeque::new();
        while let BufResult(Ok(n), data) = self.pipes[at].rx.try_read(Vec::with_capacity(70_000)) {
            assert!(n > 0, "no end");
            all.extend(data);
        }
        all
    }

    /// After a move of which nobody knows how far it came: both pipes are emptied.
    async fn settle_move(&mut self, from: usize, to: usize, stays: bool) {
        let (source, target) = (self.drain(from).await, self.drain(to).await);
        let (old_source, old_target) =
            (std::mem::take(&mut self.pipes[from].holds), std::mem::take(&mut self.pipes[to].holds));
        assert!(target.len() >= old_target.len() && target.iter().take(old_target.len()).eq(&old_target));
        let came = target.len() - old_target.len();
        assert!(target.iter().skip(old_target.len()).eq(old_source.iter().take(came)), "what came is a prefix");
        let gone = if stays { 0 } else { came };
        assert!(source.iter().eq(old_source.iter().skip(gone)), "what is left is the rest");
        self.dropped += 1;
    }

    async fn settle_write(&mut self, at: usize, data: &[u8]) {
        let mut now = self.drain(at).await;
        let old = std::mem::take(&mut self.pipes[at].holds);
        assert!(now.iter().take(old.len()).eq(&old));
        now.drain(..old.len());
        assert!(is_prefix(&now, data), "a prefix of what was written");
        self.dropped += 1;
    }

    fn moved(&mut self, from: usize, to: usize, n: usize) {
        let bytes: Vec<u8> = self.pipes[from].holds.drain(..n).collect();
        self.pipes[to].holds.extend(bytes);
        self.moved += n;
    }

    async fn step(&mut self) {
        let len = self.size();
        let (from, to) = self.two();
        match self.rng.below(12) {
            0..=2 => self.write(from, len).await,
            3 | 4 => self.read(from, len).await,
            5 | 6 => {
                let (a, b) = (&self.pipes[from], &self.pipes[to]);
                let there = a.holds.len();
                match some_time(&mut self.rng, splice(&a.rx, &b.tx, len)).await {
                    Some(n) => {
                        let n = n.unwrap();
                        assert!(n <= len && n <= there && (n > 0 || len == 0), "{n} of {len}, {there} there");
                        self.moved(from, to, n);
                    }
                    None => self.settle_move(from, to, false).await,
                }
            }
            7 => {
                let (a, b) = (&self.pipes[from], &self.pipes[to]);
                match some_time(&mut self.rng, splice_all(&a.rx, &b.tx, len as u64)).await {
                    Some(n) => {
                        assert_eq!(n.unwrap(), len as u64);
                        self.moved(from, to, len);
                    }
                    None => self.settle_move(from, to, false).await,
                }
            }
            8 => {
                let (a, b) = (&self.pipes[from], &self.pipes[to]);
                match some_time(&mut self.rng, tee(&a.rx, &b.tx, len)).await {
                    Some(n) => {
                        let n = n.unwrap();
                        assert!(n <= len && (n > 0 || len == 0));
                        let bytes: Vec<u8> = self.pipes[from].holds.iter().take(n).copied().collect();
                        assert_eq!(bytes.len(), n);
                        self.pipes[to].holds.extend(bytes);
                        self.moved += n;
                    }
                    None => self.settle_move(from, to, true).await,
                }
            }
            9 => {
                // Without an end these two only stop when they are dropped.
                let (a, b) = (&self.pipes[from], &self.pipes[to]);
                let copies = self.rng.below(2) == 0;
                let endless = async {
                    if copies {
                        copy(&mut &a.rx, &mut &b.tx).await.unwrap();
                    } else {
                        splice_all(&a.rx, &b.tx, u64::MAX).await.unwrap();
                    }
                };
                assert!(some_time(&mut self.rng, endless).await.is_none());
                self.settle_move(from, to, false).await;
            }
            10 => self.relay(from, to).await,
            _ => self.flow(from, to, len).await,
        }
    }

    async fn write(&mut self, at: usize, len: usize) {
        let data = self.make(len);
        let tx = &self.pipes[at].tx;
        let given = self.rng.below(3) == 0;
        let write = async {
            if given {
                let mut pages = Pages::new(len).unwrap();
                pages.resize(len);
                pages.copy_from_slice(&data);
                assert_eq!(vmsplice(pages, tx).await.unwrap(), len);
            } else {
                tx.write_all(data.clone()).await.0.unwrap();
            }
        };
        match some_time(&mut self.rng, write).await {
            Some(()) => self.pipes[at].holds.extend(data),
            None => self.settle_write(at, &data).await,
        }
    }

    async fn read(&mut self, at: usize, len: usize) {
        let rx = &self.pipes[at].rx;
        let way = self.rng.below(3);
        let len = len.max(2);
        let read = async {
            match way {
                0 => rx.read(Vec::with_capacity(len)).await.into_result().unwrap().1,
                1 => {
                    let bufs = vec![Vec::with_capacity(len / 2), Vec::with_capacity(len - len / 2)];
                    rx.read_vectored(bufs).await.into_result().unwrap().1.concat()
                }
                _ => rx.read_exact(Vec::with_capacity(len)).await.into_result().unwrap().1,
            }
        };
        // One that is dropped takes nothing.
        let Some(data) = some_time(&mut self.rng, read).await else { return };
        let holds = &mut self.pipes[at].holds;
        assert!(!data.is_empty() && data.len() <= len && (way < 2 || data.len() == len));
        assert!(holds.len() >= data.len() && holds.drain(..data.len()).eq(data.iter().copied()));
    }

    /// From one to the next and from the third to the first: what is in them, one behind the other, stays the same.
    async fn relay(&mut self, from: usize, to: usize) {
        let third = PIPES - from - to;
        let order = [to, from, third];
        let old: Vec<u8> = order.iter().flat_map(|&at| std::mem::take(&mut self.pipes[at].holds)).collect();
        let (a, b, c) = (&self.pipes[from], &self.pipes[to], &self.pipes[third]);
        let relay = if self.rng.below(2) == 0 { Relay::new() } else { Relay::new().copy() };
        let running = relay.run_halves((&a.rx, &a.tx), (&c.rx, &b.tx));
        assert!(some_time(&mut self.rng, running).await.is_none());
        let mut now = Vec::new();
        for at in order {
            now.extend(self.drain(at).await);
        }
        assert!(now == old, "{} of {} bytes", now.len(), old.len());
        self.dropped += 1;
    }

    /// All of it at once, whatever the size: written to the one, moved to the other and read from there.
    async fn flow(&mut self, from: usize, to: usize, len: usize) {
        let data = self.make(len);
        let mut wanted = std::mem::take(&mut self.pipes[to].holds);
        wanted.extend(std::mem::take(&mut self.pipes[from].holds));
        let in_pipe = wanted.len();
        wanted.extend(&data);
        let (a, b) = (&self.pipes[from], &self.pipes[to]);
        let before = self.drain(to).await;
        let move_len = (in_pipe - before.len() + len) as u64;
        let write = async { a.tx.write_all(data.clone()).await.0.unwrap() };
        let read = b.rx.read_exact(Vec::with_capacity(move_len as usize));
        let all = futures::future::join3(write, splice_all(&a.rx, &b.tx, move_len), read);
        let limit = super::support::scaled(Duration::from_secs(10));
        let ((), moved, read) = timeout(limit, all).await.expect("it flows");
        assert_eq!(moved.unwrap(), move_len);
        read.0.unwrap();
        let mut seen = before;
        seen.extend(read.1);
        assert!(seen == wanted);
        self.moved += move_len as usize;
    }
}

#[test]
fn random_sequences_lose_duplicate_and_reorder_no_byte() {
    run(async {
        let (mut moved, mut dropped) = (0, 0);
        for seed in 1..=15_u64 {
            let mut model = Model::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            model.made = seed as usize * 1_000_003;
            for _ in 0..60 {
                model.step().await;
            }
            for at in 0..PIPES {
                let left = model.drain(at).await;
                assert!(left == model.pipes[at].holds, "seed {seed}");
            }
            moved += model.moved;
            dropped += model.dropped;
        }
        assert!(moved > 4 << 20 && dropped > 100, "{moved} bytes moved, {dropped} moves dropped");
    });
}
