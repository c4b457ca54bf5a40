//! Linked operations: the second runs after the first and only if that succeeded, however full the queue is; dropped,
//! cut and forgotten ones.

use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use futures::future::join_all;
use runtime::op::{Chained, Cqe, Kind, Op, chain, opcode, squeue, submit, types};
use runtime::testing::{backlog, in_flight, inject_cut, inject_enter_faults, tiny};

use crate::kit::{self, nop, poll_once, poll_with, raw_pipe};
use crate::support::watchdog;

const LIMIT: Duration = Duration::from_secs(60);
const ECANCELED: Option<i32> = Some(125);

/// Reads one byte of a pipe; of an end that only writes it fails.
struct ReadByte(Arc<OwnedFd>, Box<[u8; 1]>);

fn read_byte(fd: &Arc<OwnedFd>) -> ReadByte {
    ReadByte(Arc::clone(fd), Box::new([0]))
}

// SAFETY: the byte is heap memory that the operation owns; one completion.
unsafe impl Op for ReadByte {
    type Output = std::io::Result<u32>;
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        opcode::Read::new(types::Fd(self.0.as_raw_fd()), self.1.as_mut_ptr(), 1).offset(u64::MAX).build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        cqe.result()
    }
}

#[test]
fn the_second_begins_only_after_the_first() {
    let _watchdog = watchdog(LIMIT);
    tiny(8, 16).build().unwrap().block_on(async {
        let (rx, mut tx) = raw_pipe();
        let second_is_over = Rc::new(Cell::new(false));
        let over = Rc::clone(&second_is_over);
        let mut both = chain(read_byte(&rx), nop(move || over.set(true)));
        assert!(poll_once(&mut both).await.is_pending());
        for _ in 0..20 {
            submit(nop(|| {})).await.unwrap();
        }
        assert!(!second_is_over.get(), "others overtake it, its own chain does not");
        std::io::Write::write_all(&mut tx, b"x").unwrap();
        let Chained { first, second, is_linked, .. } = both.await;
        assert!(first.unwrap() == 1 && second.is_ok() && is_linked);
        // Without what it waits for, an end, it is a short read, and breaks the link.
        drop(tx);
        let chained = chain(read_byte(&rx), nop(|| {})).await;
        assert_eq!((chained.first.unwrap(), chained.second.unwrap_err().raw_os_error()), (0, ECANCELED));
        assert_eq!(in_flight(), 0);
    });
}

#[test]
fn a_full_queue_splits_no_chain() {
    let _watchdog = watchdog(LIMIT);
    let rt = tiny(8, 16).build().unwrap();
    rt.block_on(async {
        let broken = Arc::new(OwnedFd::from(std::fs::File::open("/").unwrap()));
        // With each number of entries before them, many chains that fail: were one split, its second would succeed.
        for before in 0..9 {
            for many in [1, 3, 4, 5, 40] {
                let nops = join_all((0..before).map(|_| submit(nop(|| {}))));
                let chains = join_all((0..many).map(|_| chain(read_byte(&broken), nop(|| {}))));
                // An enter that fails in between leaves all where they were.
                inject_enter_faults(&[11, 4][..before % 3]);
                let (nops, chains) = futures::join!(nops, chains);
                assert!(nops.iter().all(Result::is_ok));
                for chained in chains {
                    assert_eq!(chained.first.unwrap_err().raw_os_error(), Some(21), "a directory");
                    assert_eq!(chained.second.unwrap_err().raw_os_error(), ECANCELED, "{before} before, {many}");
                    assert!(chained.is_linked);
                }
            }
        }
        assert!(runtime::metrics().backlogged > 100, "the queue was full");
    });
    assert_eq!(backlog(&rt), 0);
}

#[test]
fn a_chain_that_the_kernel_took_in_two_parts_says_so() {
    let _watchdog = watchdog(LIMIT);
    tiny(8, 16).build().unwrap().block_on(async {
        let broken = Arc::new(OwnedFd::from(std::fs::File::open("/").unwrap()));
        inject_cut(1);
        let chained = chain(read_byte(&broken), nop(|| {})).await;
        assert!(chained.first.is_err() && chained.second.is_ok(), "the link was lost");
        assert!(!chained.is_linked);
        // All of it is no cut.
        inject_cut(2);
        let chained = chain(read_byte(&broken), nop(|| {})).await;
        assert!(chained.second.is_err() && chained.is_linked);
    });
}

#[test]
fn both_parts_of_a_chain_end_once_whenever_it_is_dropped() {
    let _watchdog = watchdog(LIMIT);
    let ends = Rc::new(Cell::new(0));
    let count = || {
        let ends = Rc::clone(&ends);
        nop(move || ends.set(ends.get() + 1))
    };
    let (rx, tx) = raw_pipe();
    let rt = tiny(8, 16).build().unwrap();
    rt.block_on(async {
        // Never started; in flight; settled; the first of them waiting.
        drop(chain(count(), count()));
        assert_eq!((ends.get(), in_flight()), (0, 0));
        let mut flying = chain(count(), count());
        assert!(poll_with(&mut flying, Waker::noop()).is_pending());
        drop(flying);
        let mut settled = chain(count(), count());
        assert!(poll_with(&mut settled, Waker::noop()).is_pending());
        kit::until(|| ends.get() == 2).await;
        drop(settled);
        kit::until(|| ends.get() == 4).await;
        let mut waits = chain(read_byte(&rx), count());
        assert!(poll_once(&mut waits).await.is_pending());
        submit(nop(|| {})).await.unwrap();
        drop(waits);
        kit::until(|| ends.get() == 5 && in_flight() == 0).await;
        // Forgotten, and behind a full queue: the end of the runtime gets them.
        for _ in 0..10 {
            let mut forgotten = chain(read_byte(&rx), count());
            assert!(poll_with(&mut forgotten, Waker::noop()).is_pending());
            std::mem::forget(forgotten);
        }
    });
    drop(rt);
    assert_eq!(ends.get(), 15);
    drop(tx);
    assert_eq!(Arc::strong_count(&rx), 1, "every descriptor was let go");
}

#[test]
fn a_second_that_cannot_be_made_takes_the_first_along() {
    struct Panics;

    // SAFETY: never reaches the kernel.
    unsafe impl Op for Panics {
        type Output = ();
        const KIND: Kind = Kind::Other;

        fn entry(&mut self) -> squeue::Entry {
            panic!("no entry")
        }

        fn complete(self, _: Cqe) {}
    }

    let _watchdog = watchdog(LIMIT);
    tiny(8, 16).build().unwrap().block_on(async {
        for _ in 0..100 {
            let text = kit::panic_text(|| poll_with(&mut chain(nop(|| {}), Panics), Waker::noop()));
            assert_eq!((&*text, in_flight()), ("no entry", 0));
            let text = kit::panic_text(|| poll_with(&mut chain(Panics, nop(|| {})), Waker::noop()));
            assert_eq!((&*text, in_flight()), ("no entry", 0));
        }
        let chained = chain(nop(|| {}), nop(|| {})).await;
        assert!(chained.first.is_ok() && chained.second.is_ok());
    });
}

#[test]
fn the_smallest_ring_has_room_for_a_pair() {
    let _watchdog = watchdog(LIMIT);
    let rt = runtime::Builder::new().entries(1).build().unwrap();
    rt.block_on(async {
        for _ in 0..10 {
            let done = std::rc::Rc::new(std::cell::Cell::new(0));
            let nop = || {
                let done = std::rc::Rc::clone(&done);
                crate::kit::nop(move || done.set(done.get() + 1))
            };
            runtime::op::chain(nop(), nop()).await;
            runtime::op::submit(nop()).await.unwrap();
            assert_eq!(done.get(), 3);
        }
    });
}
