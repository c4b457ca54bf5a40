//! Foreign code (wakers, outputs, buffers, destructors) may panic or come back in at any point; the rest still runs.
#![allow(clippy::async_yields_async, reason = "handles and futures are carried out of `block_on` on purpose")]

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::io::Write as _;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;

use runtime::op::{Cqe, Kind, Op, Standing, opcode, squeue, stand, submit};
use runtime::pipe::{Receiver, pipe};
use runtime::task::{JoinHandle, yield_now};
use runtime::testing::in_flight;
use runtime::time::{Sleep, sleep};
use runtime::{Runtime, spawn};

use crate::kit::{self, Guarded, OnDrop, PollMany, panic_text, poll_with};
use crate::support::watchdog;

const LIMIT: Duration = Duration::from_secs(60);

/// Does what a destructor may do: spawns, wakes, drops a handle, drops a stream, polls new operations and timers.
struct Busybody {
    other: Waker,
    handle: Option<JoinHandle<()>>,
    stream: Option<Receiver>,
    dropped: Rc<Cell<u32>>,
}

impl Busybody {
    fn new(other: &Waker, dropped: &Rc<Cell<u32>>) -> Self {
        let (tx, rx) = pipe().unwrap();
        // A read of this stream stays in flight, so that dropping the stream has something to do.
        let mut read = Box::pin(rx.read(vec![0; 8]));
        assert!(poll_with(&mut read, Waker::noop()).is_pending());
        drop((read, tx));
        let handle = Some(spawn(pending()));
        Self { other: other.clone(), handle, stream: Some(rx), dropped: Rc::clone(dropped) }
    }
}

impl Drop for Busybody {
    fn drop(&mut self) {
        drop(spawn(async {}));
        self.other.wake_by_ref();
        let aborted = self.handle.take().unwrap();
        aborted.abort();
        drop(aborted);
        let _ = poll_with(&mut submit(kit::nop(|| {})), &self.other);
        let _ = poll_with(&mut sleep(Duration::from_secs(1)), &self.other);
        let stream = self.stream.take().unwrap();
        let _ = poll_with(&mut Box::pin(stream.read(vec![0; 8])), &self.other);
        drop(stream);
        self.dropped.set(self.dropped.get() + 1);
    }
}

#[test]
fn destructors_may_use_the_runtime_wherever_they_run() {
    let _watchdog = watchdog(LIMIT);
    let dropped = Rc::new(Cell::new(0));
    let rt = Runtime::new().unwrap();
    rt.block_on(async {
        let other = poll_fn(|task| Poll::Ready(task.waker().clone())).await;
        let new = || Busybody::new(&other, &dropped);

        // On completion, as state and as output.
        let (state, output) = (new(), new());
        let done = spawn(async move {
            let _state = state;
            yield_now().await;
            output
        });
        drop(done.await.unwrap());
        assert_eq!(dropped.get(), 2);

        // On abort.
        let state = new();
        let aborted = spawn(async move {
            let _state = state;
            pending::<()>().await;
        });
        yield_now().await;
        aborted.abort();
        assert!(aborted.await.is_err());
        assert_eq!(dropped.get(), 3);

        // As the buffer of a cancelled operation.
        let (tx, rx) = pipe().unwrap();
        let mut read = Box::pin(rx.read(Guarded(vec![0; 8], new())));
        assert!(poll_with(&mut read, Waker::noop()).is_pending());
        drop(read);
        kit::until(|| dropped.get() == 4).await;

        // As what comes back from an operation that fails: the wrong end of a pipe.
        let end = std::sync::Arc::new(std::os::fd::OwnedFd::from(kit::std_end(&tx)));
        let failed = submit(kit::ReadInto { fd: end, memory: Guarded(vec![0; 8], new()) }).await;
        assert_eq!(failed.0.unwrap_err().raw_os_error(), Some(libc::EBADF));
        drop(failed.1);
        assert_eq!(dropped.get(), 5);

        // In a waker that is dropped by the runtime.
        let state = new();
        let waker = kit::waker(move || _ = &state);
        let mut timer = sleep(Duration::from_secs(1));
        assert!(poll_with(&mut timer, &waker).is_pending());
        drop(waker);
        drop(timer);
        assert_eq!(dropped.get(), 6);

        // The rest goes with the runtime: in a task, in a buffer in flight, in a timer's waker, in an output.
        let state = new();
        spawn(async move {
            let _state = state;
            pending::<()>().await;
        });
        let buf = Guarded(vec![0; 8], new());
        spawn(async move { (rx.read(buf).await.0.is_ok(), tx) });
        let state = new();
        let waker = kit::waker(move || _ = &state);
        let mut timer = sleep(Duration::from_secs(3600));
        assert!(poll_with(&mut timer, &waker).is_pending());
        std::mem::forget(timer);
        let output = new();
        spawn(async move { output });
        yield_now().await;
        assert_eq!(dropped.get(), 7);
    });
    drop(rt);
    assert_eq!(dropped.get(), 10);
}

impl<G> AsMut<[u8]> for Guarded<G> {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[test]
fn wakers_may_use_the_runtime_when_they_are_woken() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let base = in_flight();
        let root = poll_fn(|task| Poll::Ready(task.waker().clone())).await;
        let woken = Rc::new(Cell::new(0));
        // One is woken by a completion, one by a timer, one by a task that ends. Each drops a future in flight, a
        // settled one, a timer and a stream, and starts others.
        let act = || {
            let (count, root) = (Rc::clone(&woken), root.clone());
            let (tx, rx) = pipe().unwrap();
            let rx = Rc::new(rx);
            let stream = Rc::clone(&rx);
            let mut read = Box::pin(async move { stream.read(vec![0; 8]).await });
            assert!(poll_with(&mut read, &root).is_pending());
            let mut timer = sleep(Duration::from_secs(9));
            assert!(poll_with(&mut timer, &root).is_pending());
            let mut settled = submit(kit::nop(|| {}));
            assert!(poll_with(&mut settled, &root).is_pending());
            let held = RefCell::new(Some((read, timer, settled, tx, rx)));
            kit::waker(move || {
                count.set(count.get() + 1);
                let task = spawn(pending::<()>());
                task.abort();
                drop(held.take());
                assert!(poll_with(&mut submit(kit::nop(|| {})), &root).is_pending());
                assert!(poll_with(&mut sleep(Duration::from_secs(9)), &root).is_pending());
                root.wake_by_ref();
            })
        };
        let mut operation = submit(kit::nop(|| {}));
        assert!(poll_with(&mut operation, &act()).is_pending());
        kit::until(|| woken.get() == 1).await;
        let waker = act();
        let mut timer = sleep(Duration::from_millis(50));
        assert!(poll_with(&mut timer, &waker).is_pending());
        kit::until(|| woken.get() == 2).await;
        let mut handle = spawn(yield_now());
        assert!(poll_with(&mut handle, &act()).is_pending());
        kit::until(|| woken.get() == 3).await;
        assert!(poll_with(&mut operation, &root).is_ready());
        kit::until(|| in_flight() == base && runtime::metrics().tasks == 0).await;
        assert_eq!(runtime::metrics().timers, 0);
    });
}

/// Submits a no-op whose waker panics with this text.
fn nop_with_panicking_waker(text: &'static str) -> impl Future + Unpin {
    let mut operation = submit(kit::nop(|| {}));
    assert!(poll_with(&mut operation, &kit::waker(move || panic!("{text}"))).is_pending());
    operation
}

#[test]
fn a_waker_that_panics_does_not_keep_others_from_being_woken() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let mut operations = Vec::new();
    let woken = Rc::new(Cell::new(0));
    let text = panic_text(|| {
        rt.block_on(async {
            operations.push(nop_with_panicking_waker("the first"));
            let count = Rc::clone(&woken);
            let mut between = submit(kit::nop(|| {}));
            assert!(poll_with(&mut between, &kit::waker(move || count.set(count.get() + 1))).is_pending());
            operations.push(nop_with_panicking_waker("the second"));
            let count = Rc::clone(&woken);
            let mut last = submit(kit::nop(|| {}));
            assert!(poll_with(&mut last, &kit::waker(move || count.set(count.get() + 1))).is_pending());
            std::mem::forget((between, last));
            pending::<()>().await;
        });
    });
    assert_eq!((text.as_str(), woken.get()), ("the first", 2));
    rt.block_on(async {
        for operation in operations {
            operation.await;
        }
        sleep(Duration::from_millis(1)).await;
    });
}

#[test]
fn a_timer_whose_waker_panics_does_not_keep_others_from_firing() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let woken = Rc::new(Cell::new(0));
    let mut timers: Vec<Sleep> = Vec::new();
    let text = panic_text(|| {
        rt.block_on(async {
            for n in 0..10 {
                let (count, mut timer) = (Rc::clone(&woken), sleep(Duration::from_millis(5 + n / 5)));
                let waker = kit::waker(move || {
                    count.set(count.get() + 1);
                    assert!(n != 3, "the third");
                });
                assert!(poll_with(&mut timer, &waker).is_pending());
                timers.push(timer);
            }
            // All are due when the turn gets to them.
            thread::sleep(Duration::from_millis(10));
            pending::<()>().await;
        });
    });
    if text == "the third" {
        rt.block_on(async { kit::until(|| woken.get() == 10).await });
    } else {
        panic!("{text}");
    }
}

/// An operation that panics wherever it is told to.
struct Panics {
    at: &'static str,
    #[allow(dead_code, reason = "counts who is left")]
    held: Rc<()>,
}

// SAFETY: no pointers; one completion.
unsafe impl Op for Panics {
    type Output = ();
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        assert_ne!(self.at, "entry");
        opcode::Nop::new().build()
    }

    fn complete(self, _: Cqe) -> Self::Output {
        assert_ne!(self.at, "complete");
    }

    fn orphan(self, _: Cqe) {
        assert_ne!(self.at, "orphan");
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if self.at == "drop" && !thread::panicking() {
            panic!("in drop");
        }
    }
}

#[test]
fn an_operation_that_panics_in_its_future_costs_its_task_only() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let base = in_flight();
        let held = Rc::new(());
        for at in ["entry", "complete", "drop"] {
            let operation = Panics { at, held: Rc::clone(&held) };
            let sibling = spawn(submit(kit::nop(|| {})));
            assert!(spawn(submit(operation)).await.unwrap_err().is_panic(), "in {at}");
            sibling.await.unwrap().unwrap();
        }
        assert_eq!((in_flight(), Rc::strong_count(&held)), (base, 1));
    });
}

#[test]
fn an_orphan_that_panics_does_not_keep_others_from_ending() {
    let _watchdog = watchdog(LIMIT);
    for at in ["orphan", "drop"] {
        let rt = Runtime::new().unwrap();
        let held = Rc::new(());
        let done = Rc::new(Cell::new(0));
        let text = panic_text(|| {
            rt.block_on(async {
                for n in 0..6 {
                    let mark = Rc::clone(&done);
                    let mut other = submit(kit::nop(move || mark.set(mark.get() + 1)));
                    assert!(poll_with(&mut other, Waker::noop()).is_pending());
                    let mut bad = submit(Panics { at: if n % 2 == 0 { at } else { "" }, held: Rc::clone(&held) });
                    assert!(poll_with(&mut bad, Waker::noop()).is_pending());
                }
                pending::<()>().await;
            });
        });
        assert!(text.contains(at), "{text}");
        assert_eq!((done.get(), Rc::strong_count(&held)), (6, 1));
        rt.block_on(async {
            assert_eq!(in_flight(), 0);
            sleep(Duration::from_millis(1)).await;
        });
    }
}

#[test]
fn a_buffer_that_panics_when_it_is_dropped_does_not_keep_others_from_ending() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let dropped = Rc::new(Cell::new(0));
    let pipes: Vec<_> = (0..4).map(|_| pipe().unwrap()).collect();
    let text = panic_text(|| {
        rt.block_on(async {
            for (n, (_tx, rx)) in pipes.iter().enumerate() {
                let count = Rc::clone(&dropped);
                let guard = OnDrop(move || {
                    count.set(count.get() + 1);
                    assert!(n % 2 == 1, "buffer {n}");
                });
                let mut read = Box::pin(rx.read(Guarded(vec![0; 8], guard)));
                assert!(poll_with(&mut read, Waker::noop()).is_pending());
            }
            pending::<()>().await;
        });
    });
    assert!(text.starts_with("buffer"), "{text}");
    rt.block_on(async {
        kit::until(|| dropped.get() == 4 && in_flight() == 0).await;
        // The pipes work on: nobody holds a direction.
        for (tx, rx) in &pipes {
            tx.write_all("x").await.0.unwrap();
            assert_eq!(rx.read(Vec::with_capacity(8)).await.1, b"x");
        }
    });
}

#[test]
fn an_item_that_panics_does_not_keep_others_from_being_handed_over() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let (fd, mut tx) = kit::raw_pipe();
    let (bad, good) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let stands = rt.block_on(async {
        let (bad, good) = (Rc::clone(&bad), Rc::clone(&good));
        let first = stand(PollMany {
            fd: fd.clone(),
            item: move |_| {
                bad.set(bad.get() + 1);
                panic!("an item");
            },
        });
        let second = stand(PollMany { fd: fd.clone(), item: move |_| good.set(good.get() + 1) });
        yield_now().await;
        (first.ok().unwrap(), second.ok().unwrap())
    });
    tx.write_all(b"x").unwrap();
    assert_eq!(panic_text(|| rt.block_on(pending::<()>())), "an item");
    assert_eq!((bad.get(), good.get()), (1, 1));
    // The last item of an operation that is cancelled panics as well, and the slot is free nevertheless.
    stands.0.cancel();
    stands.1.cancel();
    assert_eq!(panic_text(|| rt.block_on(pending::<()>())), "an item");
    rt.block_on(async { kit::until(|| in_flight() == 0).await });
    assert_eq!((bad.get(), good.get()), (2, 2));
}

#[test]
fn a_waker_that_panics_when_it_is_dropped_does_not_keep_its_operation_from_being_cancelled() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    rt.block_on(async {
        let (fd, _tx) = kit::raw_pipe();
        let mut read = submit(kit::ReadInto { fd, memory: [0; 8] });
        let guard = OnDrop(|| panic!("the waker's drop"));
        let waker = kit::waker(move || _ = &guard);
        assert!(poll_with(&mut read, &waker).is_pending());
        drop(waker);
        assert_eq!(panic_text(|| drop(read)), "the waker's drop");
        for _ in 0..100 {
            if in_flight() == 0 {
                return;
            }
            sleep(Duration::from_millis(2)).await;
        }
        panic!("the operation is still in flight");
    });
}

/// A waker whose clone ends this standing operation at once, which visits the ring.
static CLONE_VISITS: RawWakerVTable = RawWakerVTable::new(
    |at| {
        // SAFETY: `at` is a `(Standing, Waker)` that outlives its wakers; see the test.
        let (standing, inner) = unsafe { &*at.cast::<(Standing, Waker)>() };
        standing.cancel_now();
        let inner = std::mem::ManuallyDrop::new(inner.clone());
        RawWaker::new(inner.data(), inner.vtable())
    },
    |_| {},
    |_| {},
    |_| {},
);

#[test]
fn a_waker_whose_clone_visits_the_ring_loses_no_wake() {
    let _watchdog = watchdog(LIMIT);
    Runtime::new().unwrap().block_on(async {
        let (fd, _tx) = kit::raw_pipe();
        let root = poll_fn(|task| Poll::Ready(task.waker().clone())).await;
        let standing = stand(PollMany { fd, item: |_| {} }).ok().unwrap();
        let state = (standing, root);
        // SAFETY: the waker is used while `state` lives, and its clones are those of the task's waker.
        let evil = unsafe { Waker::new((&raw const state).cast(), &CLONE_VISITS) };
        let mut nop = submit(kit::nop(|| {}));
        assert!(poll_with(&mut nop, Waker::noop()).is_pending());
        // The completion comes while the waker is cloned.
        if poll_with(&mut nop, &evil).is_pending() {
            // Only the wake that is due polls this future again before the limit.
            let start = std::time::Instant::now();
            let mut first = true;
            let polled = poll_fn(|_| if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) });
            let limit = sleep(Duration::from_secs(2));
            drop(futures::future::select(polled, limit).await);
            assert!(start.elapsed() < Duration::from_secs(1), "the wake was lost");
        }
    });
}

#[test]
fn a_panic_among_arrivals_does_not_lose_the_others() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let held = Rc::new(());
    let (waker_tx, waker_rx) = mpsc::channel::<Waker>();
    let (settled, timer, task) = rt.block_on(async {
        let mut settled = submit(Panics { at: "orphan", held });
        assert!(poll_with(&mut settled, Waker::noop()).is_pending());
        let guard = OnDrop(|| panic!("orphan of a timer"));
        let waker = kit::waker(move || _ = &guard);
        let mut timer = sleep(Duration::from_secs(3600));
        assert!(poll_with(&mut timer, &waker).is_pending());
        let mut polls = 0;
        let task = spawn(poll_fn(move |task| {
            polls += 1;
            let _ = waker_tx.send(task.waker().clone());
            if polls == 2 { Poll::Ready(polls) } else { Poll::Pending }
        }));
        let aborted = spawn(pending::<()>());
        yield_now().await;
        yield_now().await;
        (settled, timer, (task, aborted))
    });
    // All of these go through the door, the ones that panic first.
    drop(settled);
    drop(timer);
    waker_rx.recv().unwrap().wake();
    task.1.abort();
    let text = panic_text(|| rt.block_on(pending::<()>()));
    assert!(text.contains("orphan"), "{text}");
    // If both arrive in one batch, the first panic is told and the second contained.
    rt.block_on(async {
        assert_eq!(task.0.await.unwrap(), 2, "the task that was woken is not lost");
        assert!(task.1.await.unwrap_err().is_cancelled());
        assert_eq!(in_flight(), 0);
    });
}

#[test]
fn what_destructors_spawn_or_submit_while_the_runtime_ends_is_refused() {
    let _watchdog = watchdog(LIMIT);
    let seen = Rc::new(Cell::new(false));
    let rt = Runtime::new().unwrap();
    let late: Rc<Cell<Option<JoinHandle<()>>>> = Rc::default();
    rt.block_on(async {
        let (fd, _tx) = kit::raw_pipe();
        let (mark, handle) = (Rc::clone(&seen), Rc::clone(&late));
        let guard = OnDrop(move || {
            let ran = OnDrop(|| ());
            let refused = spawn(async move {
                let _ran = ran;
                panic!("a task was run while the runtime ends");
            });
            assert!(refused.is_finished());
            handle.set(Some(refused));
            let Poll::Ready(result) = poll_with(&mut submit(kit::nop(|| {})), Waker::noop()) else {
                panic!("an operation was taken");
            };
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
            let multi = stand(PollMany { fd: fd.clone(), item: |_| panic!("an item") });
            assert!(multi.is_err());
            mark.set(true);
        });
        spawn(async move {
            let _guard = guard;
            pending::<()>().await;
        });
        yield_now().await;
    });
    drop(rt);
    assert!(seen.get());
    assert!(futures::executor::block_on(late.take().unwrap()).unwrap_err().is_cancelled());
}

#[test]
fn nothing_panics_out_of_the_drop_of_a_runtime() {
    let _watchdog = watchdog(LIMIT);
    let ends: Rc<Cell<u32>> = Rc::default();
    let rt = Runtime::new().unwrap();
    let held = Rc::new(());
    let outside = rt.block_on(async {
        // Forgotten: settled, and never taken.
        for _ in 0..2 {
            let mut forgotten = submit(Panics { at: "orphan", held: Rc::clone(&held) });
            assert!(poll_with(&mut forgotten, Waker::noop()).is_pending());
            std::mem::forget(forgotten);
        }
        // Forgotten, in flight, with a waker that panics when it is dropped.
        let (fd, tx) = kit::raw_pipe();
        let count = Rc::clone(&ends);
        let guard = OnDrop(move || {
            count.set(count.get() + 1);
            panic!("the waker's drop");
        });
        let waker = kit::waker(move || _ = &guard);
        let mut forgotten = submit(kit::ReadInto { fd, memory: [0; 8] });
        assert!(poll_with(&mut forgotten, &waker).is_pending());
        std::mem::forget((forgotten, tx));
        drop(waker);
        // A task whose destructor panics, and one behind it.
        for _ in 0..2 {
            let count = Rc::clone(&ends);
            let guard = OnDrop(move || {
                count.set(count.get() + 1);
                panic!("a task's destructor");
            });
            spawn(async move {
                let _guard = guard;
                pending::<()>().await;
            });
        }
        // Dropped outside, so that it is an arrival when the runtime ends.
        let mut outside = submit(Panics { at: "orphan", held: Rc::clone(&held) });
        assert!(poll_with(&mut outside, Waker::noop()).is_pending());
        yield_now().await;
        yield_now().await;
        outside
    });
    drop(outside);
    drop(rt);
    assert_eq!((ends.get(), Rc::strong_count(&held)), (3, 1), "everything was dropped");
}

#[test]
fn a_ring_that_cannot_be_entered_is_a_panic_with_a_sentence() {
    let _watchdog = watchdog(LIMIT);
    let rt = Runtime::new().unwrap();
    let text = panic_text(|| {
        rt.block_on(async {
            runtime::testing::inject_enter_faults(&[libc::EBADF]);
            sleep(Duration::from_millis(5)).await;
        });
    });
    assert!(text.contains("io_uring_enter failed"), "{text}");
    // Were it to work again, so would the runtime.
    let (tx, rx) = pipe().unwrap();
    rt.block_on(async {
        let mut other = kit::std_end(&tx);
        let peer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            other.write_all(b"again").unwrap();
        });
        assert_eq!(rx.read(Vec::with_capacity(8)).await.1, b"again");
        kit::until(|| peer.is_finished()).await;
    });
}
