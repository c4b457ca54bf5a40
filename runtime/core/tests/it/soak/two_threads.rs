//! Two runtimes on two threads hand each other streams whose last read is still in flight at home, handles of tasks,
//! and wakers; now and then one of the runtimes ends and another takes its place.

use std::future::poll_fn;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use runtime::io::BufResult;
use runtime::net::TcpStream;
use runtime::task::JoinHandle;
use runtime::testing::tiny;
use runtime::time::{sleep, timeout};

use super::model::{Buf, Link, byte, check_quarantine};
use super::{panic_ends_all, rng, setting};
use crate::kit::poll_once;
use crate::support::{Rng, fds, in_child, scaled};

/// Bytes that go through one stream.
const BYTES: u64 = 40_000;
const STREAMS: usize = 3;

/// What one thread hands to the other.
enum Parcel {
    /// A stream, whose last read may be an orphan on the sender's ring, and how far it was read.
    Stream(TcpStream, Link),
    /// A task of the sender and what it returns, if it comes to that.
    Handle(JoinHandle<u64>, u64),
    /// The sender waits until the flag is set and the waker was woken.
    Promise(Arc<Promise>),
}

#[derive(Default)]
struct Promise {
    kept: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Promise {
    fn keep(&self) {
        self.kept.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn wait(&self) {
        poll_fn(|task| {
            *self.waker.lock().unwrap() = Some(task.waker().clone());
            if self.kept.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// What a thread has not looked at yet.
#[derive(Default)]
struct Inbox {
    parcels: Mutex<Vec<Parcel>>,
    /// Whoever waits for parcels.
    waker: Mutex<Option<Waker>>,
}

impl Inbox {
    fn put(&self, parcel: Parcel) {
        self.parcels.lock().unwrap().push(parcel);
        self.kick();
    }

    fn kick(&self) {
        let waker = self.waker.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn take(&self) -> Vec<Parcel> {
        std::mem::take(&mut *self.parcels.lock().unwrap())
    }

    /// Waits for parcels for a moment.
    async fn wait(&self, moment: Duration) {
        let any = poll_fn(|task| {
            *self.waker.lock().unwrap() = Some(task.waker().clone());
            if self.parcels.lock().unwrap().is_empty() { Poll::Pending } else { Poll::Ready(()) }
        });
        let _ = timeout(moment, any).await;
    }
}

/// What both threads see.
struct Shared {
    inboxes: [Inbox; 2],
    /// Streams that were read to their end.
    ended: Mutex<usize>,
    streams: usize,
}

impl Shared {
    fn is_over(&self) -> bool {
        *self.ended.lock().unwrap() == self.streams
    }
}

#[test]
fn soak_two_threads_exchange_everything() {
    in_child("soak::two_threads::soak_two_threads_exchange_everything", super::LIMIT, || {
        panic_ends_all();
        let mut rng = rng("two threads");
        let passes = (setting("RUNTIME_SOAK_ROUNDS", 2_000) / 200).max(1);
        // The pool and std keep nothing open, but the first pass makes thread-locals and the like.
        exchange(&mut rng);
        let base = fds();
        for _ in 0..passes {
            exchange(&mut rng);
            assert_eq!(fds(), base, "descriptors after a pass");
        }
    });
}

fn exchange(rng: &mut Rng) {
    let shared = Shared { inboxes: Default::default(), ended: Mutex::new(0), streams: STREAMS };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        for n in 0..STREAMS {
            let mut writer = std::net::TcpStream::connect(addr).unwrap();
            let mut rng = Rng(rng.next() | 1);
            let (reader, _) = listener.accept().unwrap();
            let mut link = Link::new();
            link.next = BYTES;
            link.ending = true;
            shared.inboxes[n % 2].put(Parcel::Stream(TcpStream::from_std(reader).unwrap(), link));
            scope.spawn(move || {
                let mut at = 0;
                while at < BYTES {
                    let to = (at + 1 + rng.below(900)).min(BYTES);
                    writer.write_all(&(at..to).map(byte).collect::<Vec<_>>()).unwrap();
                    at = to;
                    match rng.below(4) {
                        0 => std::thread::sleep(Duration::from_micros(rng.below(300))),
                        1 => std::thread::yield_now(),
                        _ => {}
                    }
                }
            });
        }
        for me in 0..2 {
            let rng = Rng(rng.next() | 1);
            let shared = &shared;
            scope.spawn(move || live(shared, me, rng));
        }
    });
    assert!(shared.is_over());
}

/// One thread's life: runtimes, one after the other.
fn live(shared: &Shared, me: usize, mut rng: Rng) {
    while !shared.is_over() {
        let rt = tiny(8, 16).build().unwrap();
        let parcels = 20 + rng.below(60);
        rt.block_on(work(shared, me, &mut rng, parcels));
        // Streams that the other thread has by now may have orphans here: the end of the ring settles them.
        assert_eq!(rt.shutdown_timeout(Duration::from_secs(5)), 0);
        check_quarantine(0);
    }
}

async fn work(shared: &Shared, me: usize, rng: &mut Rng, parcels: u64) {
    let mine = &shared.inboxes[me];
    let theirs = &shared.inboxes[1 - me];
    let mut seen = 0;
    while seen < parcels && !shared.is_over() {
        seen += 1;
        give(theirs, rng);
        mine.wait(Duration::from_micros(100 + rng.below(500))).await;
        let batch = mine.take().into_iter().map(|parcel| {
            seen += 1;
            open(shared, me, Rng(rng.next() | 1), parcel)
        });
        futures::future::join_all(batch.collect::<Vec<_>>()).await;
    }
}

/// Hands the other thread something that only works together with this one.
fn give(theirs: &Inbox, rng: &mut Rng) {
    let (yields, pause, value) = (rng.below(3), Duration::from_micros(rng.below(400)), rng.next());
    let handle = runtime::spawn(async move {
        for _ in 0..yields {
            runtime::task::yield_now().await;
        }
        sleep(pause).await;
        value
    });
    theirs.put(Parcel::Handle(handle, value));
    let promise = Arc::new(Promise::default());
    theirs.put(Parcel::Promise(Arc::clone(&promise)));
    runtime::spawn(async move {
        let kept = timeout(scaled(Duration::from_secs(20)), promise.wait()).await;
        assert!(kept.is_ok() || !promise.kept.load(Ordering::SeqCst), "the wake of a promise was lost");
    });
}

async fn open(shared: &Shared, me: usize, mut rng: Rng, parcel: Parcel) {
    match parcel {
        Parcel::Stream(stream, link) => read_on(shared, me, &mut rng, stream, link).await,
        Parcel::Promise(promise) => promise.keep(),
        Parcel::Handle(handle, value) => {
            let abort = rng.below(4) == 0;
            if abort {
                handle.abort();
            }
            match timeout(scaled(Duration::from_secs(20)), handle).await.expect("a task ends, or its runtime does") {
                Ok(got) => assert_eq!(got, value),
                // Aborted here, or its runtime has ended.
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            }
        }
    }
}

/// Reads a few times, starts one more read, drops it, and passes the stream on.
async fn read_on(shared: &Shared, me: usize, rng: &mut Rng, stream: TcpStream, mut link: Link) {
    for _ in 0..1 + rng.below(4) {
        let read = stream.read(Buf::new(1 + rng.below(1_500) as usize));
        let BufResult(result, buf) = timeout(scaled(Duration::from_secs(20)), read).await.expect("bytes, or the end");
        if result.unwrap() == 0 {
            link.ended();
            *shared.ended.lock().unwrap() += 1;
            // Whoever waits for parcels has to look.
            shared.inboxes.iter().for_each(Inbox::kick);
            return;
        }
        link.received(buf.bytes());
    }
    let mut last = stream.read(Buf::new(1 + rng.below(1_500) as usize));
    if let Poll::Ready(BufResult(result, buf)) = poll_once(&mut last).await {
        assert_eq!(result.unwrap(), buf.bytes().len());
        link.received(buf.bytes());
    } else if rng.below(2) == 0 {
        // Let it go into the ring, and perhaps complete, before it is dropped.
        runtime::task::yield_now().await;
    }
    drop(last);
    let to = if rng.below(4) == 0 { me } else { 1 - me };
    shared.inboxes[to].put(Parcel::Stream(stream, link));
}
