//! Sources and sinks that do what a test says, step by step, and polling by hand.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use runtime::io::{AsyncRead, AsyncWrite, BufResult, IoBuf, IoBufMut};

/// What one operation of a scripted stream does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Moves at most so many bytes.
    Move(usize),
    /// Suspends once, and then goes on with the next step. Dropped meanwhile it has moved nothing.
    Wait,
    /// Ends with this error.
    Fail(ErrorKind),
}

pub(crate) use Step::{Fail, Move, Wait};

pub(crate) const INTERRUPT: Step = Fail(ErrorKind::Interrupted);

/// A stream: reads come from `data`, writes go to `taken`. Once the steps are used up everything is moved at once.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) data: VecDeque<u8>,
    pub(crate) taken: Vec<u8>,
    pub(crate) steps: VecDeque<Step>,
    /// The first call after the last byte was read answers so, like a connection that was reset.
    pub(crate) end: Option<ErrorKind>,
    pub(crate) flushes: usize,
    pub(crate) shutdowns: usize,
    /// Operations that were begun.
    pub(crate) calls: usize,
}

pub(crate) fn source(data: &[u8], steps: impl IntoIterator<Item = Step>) -> Script {
    Script { data: data.iter().copied().collect(), steps: steps.into_iter().collect(), ..Script::default() }
}

pub(crate) fn sink(steps: impl IntoIterator<Item = Step>) -> Script {
    source(&[], steps)
}

/// Suspends once.
pub(crate) async fn wait() {
    let mut first = true;
    poll_fn(|task| {
        task.waker().wake_by_ref();
        if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

impl Script {
    async fn step(&mut self) -> io::Result<usize> {
        self.calls += 1;
        loop {
            match self.steps.pop_front() {
                Some(Move(n)) => return Ok(n),
                Some(Fail(kind)) => return Err(kind.into()),
                Some(Wait) => wait().await,
                None => return Ok(usize::MAX),
            }
        }
    }
}

impl AsyncRead for Script {
    async fn read<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<usize, B> {
        let n = match self.step().await {
            Ok(n) => n.min(self.data.len()).min(buf.capacity()),
            Err(error) => return BufResult(Err(error), buf),
        };
        if self.data.is_empty()
            && let Some(kind) = self.end.take()
        {
            return BufResult(Err(kind.into()), buf);
        }
        let data: Vec<u8> = self.data.iter().copied().take(n).collect();
        let n = runtime_core::buf::fill(&mut buf, &data);
        self.data.drain(..n);
        BufResult(Ok(n), buf)
    }
}

impl AsyncWrite for Script {
    async fn write<B: IoBuf>(&mut self, buf: B) -> BufResult<usize, B> {
        match self.step().await {
            Ok(n) => {
                let bytes = runtime_core::buf::bytes(&buf);
                let n = n.min(bytes.len());
                self.taken.extend_from_slice(&bytes[..n]);
                BufResult(Ok(n), buf)
            }
            Err(error) => BufResult(Err(error), buf),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.flushes += 1;
        Ok(())
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        self.shutdowns += 1;
        Ok(())
    }
}

/// Polls until the future is done.
#[track_caller]
pub(crate) fn drive<F: Future>(future: F) -> F::Output {
    polls(pin!(future), 100_000).expect("a future that does not end")
}

/// Polls at most `n` times.
pub(crate) fn polls<F: Future>(mut future: Pin<&mut F>, n: usize) -> Option<F::Output> {
    let mut task = Context::from_waker(Waker::noop());
    (0..n).find_map(|_| match future.as_mut().poll(&mut task) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

/// Starts a future again and again, each time dropped after `n` polls, until it is done within them.
#[track_caller]
pub(crate) fn insist<T>(n: usize, mut start: impl AsyncFnMut() -> T) -> T {
    for _ in 0..100_000 {
        if let Some(output) = polls(pin!(start()), n) {
            return output;
        }
    }
    panic!("no progress in a hundred thousand attempts");
}
