//! The table of slots against a plain map, under random sequences of everything that happens to an operation.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use proptest::prelude::*;

use super::*;
use crate::op::{opcode, squeue};

/// An operation that says who it is, of a size that fills a wide slot or is boxed.
struct Named<const WORDS: usize> {
    name: u64,
    words: [u64; WORDS],
    living: Rc<Cell<i64>>,
    orphans: Rc<Cell<i64>>,
}

type Wide = Named<6>;
type Boxed = Named<40>;
/// Has room in a narrow slot.
struct Narrow(Box<Wide>);

const _: () = assert!(size_of::<Wide>() == 72 && size_of::<Narrow>() == 8);

impl<const WORDS: usize> Named<WORDS> {
    fn new(name: u64, living: &Rc<Cell<i64>>, orphans: &Rc<Cell<i64>>) -> Self {
        living.set(living.get() + 1);
        Self { name, words: [name; WORDS], living: Rc::clone(living), orphans: Rc::clone(orphans) }
    }

    fn assert_whole(&self) {
        assert!(self.words.iter().all(|&word| word == self.name), "operation {} was written over", self.name);
    }
}

impl<const WORDS: usize> Drop for Named<WORDS> {
    fn drop(&mut self) {
        self.assert_whole();
        self.living.set(self.living.get() - 1);
    }
}

// SAFETY: no pointers.
unsafe impl<const WORDS: usize> Op for Named<WORDS> {
    type Output = (u64, i32);
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        opcode::Nop::new().build()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        (self.name, cqe.parts().0)
    }

    fn orphan(self, cqe: Cqe) {
        self.orphans.set(self.orphans.get() + 1);
        assert_eq!(self.complete(cqe).1, -libc::ECANCELED);
    }
}

// SAFETY: no pointers.
unsafe impl Op for Narrow {
    type Output = (u64, i32);
    const KIND: Kind = Kind::Other;

    fn entry(&mut self) -> squeue::Entry {
        self.0.entry()
    }

    fn complete(self, cqe: Cqe) -> Self::Output {
        self.0.complete(cqe)
    }

    fn orphan(self, cqe: Cqe) {
        self.0.orphan(cqe);
    }
}

/// What the test does with an operation of one size.
#[derive(Debug, Clone, Copy)]
struct Handling {
    body: fn(&Slot) -> usize,
    take: fn(&Slots, &Slot, Cqe) -> (u64, i32),
}

fn insert<O: Op<Output = (u64, i32)>>(slots: &Slots, make: impl FnOnce() -> O) -> (SlotKey, usize, Handling) {
    let handling = Handling {
        // SAFETY: called while the slot holds this operation.
        body: |slot| unsafe { slot.body::<O>() }.addr(),
        // SAFETY: as above, and it is settled.
        take: |slots, slot, cqe| unsafe { slots.take::<O>(slot) }.complete(cqe),
    };
    let (slot, at) = slots.insert_with(make);
    (slot.key(), at.addr(), handling)
}

#[derive(Debug, Clone)]
enum Step {
    /// A narrow one, a wide one, a boxed one.
    Insert(u8),
    /// The closure that makes the operation panics.
    Fail,
    Settle(usize),
    Take(usize),
    Abandon(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3u8).prop_map(Step::Insert),
        1 => Just(Step::Fail),
        3 => any::<usize>().prop_map(Step::Settle),
        2 => any::<usize>().prop_map(Step::Take),
        1 => any::<usize>().prop_map(Step::Abandon),
    ];
    prop::collection::vec(step, 0..400)
}

#[derive(Debug, Clone, Copy)]
struct Known {
    name: u64,
    handling: Handling,
    settled: bool,
    at: usize,
}

proptest! {
    #[test]
    fn an_operation_comes_out_once_as_it_went_in_and_old_keys_find_nothing(steps in steps()) {
        let slots = Slots::new();
        let (living, orphans) = (Rc::default(), Rc::default());
        let mut known: BTreeMap<u64, Known> = BTreeMap::new();
        let (mut gone, mut next, mut abandoned) = (Vec::new(), 0, 0);
        for step in steps {
            let pick = |i: usize| known.iter().nth(i % known.len().max(1)).map(|(&key, &op)| (key, op));
            match step {
                Step::Insert(size) => {
                    next += 1;
                    let (living, orphans) = (&living, &orphans);
                    let (key, at, handling) = match size {
                        0 => insert(&slots, || Narrow(Box::new(Wide::new(next, living, orphans)))),
                        1 => insert(&slots, || Wide::new(next, living, orphans)),
                        _ => insert(&slots, || Boxed::new(next, living, orphans)),
                    };
                    let fresh = Known { name: next, handling, settled: false, at };
                    prop_assert!(known.insert(key.user_data(), fresh).is_none(), "a key in use is given twice");
                }
                Step::Fail => {
                    let fail = || -> Wide { std::panic::resume_unwind(Box::new(())) };
                    let failed = catch_unwind(AssertUnwindSafe(|| slots.insert_with(fail).1));
                    prop_assert!(failed.is_err());
                }
                Step::Settle(i) => {
                    let Some((key, op)) = pick(i).filter(|(_, op)| !op.settled) else { continue };
                    let slot = slots.get(SlotKey::from_user_data(key)).unwrap();
                    prop_assert_eq!(slot.state(), State::Flying);
                    slot.settle_unsent();
                    known.insert(key, Known { settled: true, ..op });
                }
                Step::Take(i) => {
                    let Some((key, op)) = pick(i).filter(|(_, op)| op.settled) else { continue };
                    let slot = slots.get(SlotKey::from_user_data(key)).unwrap();
                    let cqe = slot.cqe();
                    prop_assert_eq!((op.handling.body)(slot), op.at, "it has moved");
                    let (name, result) = (op.handling.take)(&slots, slot, cqe);
                    prop_assert_eq!((name, result), (op.name, -libc::ECANCELED));
                    known.remove(&key);
                    gone.push(key);
                }
                Step::Abandon(i) => {
                    let Some((key, _)) = pick(i).filter(|(_, op)| op.settled) else { continue };
                    let slot = slots.get(SlotKey::from_user_data(key)).unwrap();
                    prop_assert!(slot.disown().is_none());
                    // SAFETY: settled.
                    unsafe { slots.finish(slot) };
                    abandoned += 1;
                    known.remove(&key);
                    gone.push(key);
                }
            }
            prop_assert_eq!(slots.in_use() as usize, known.len());
            prop_assert_eq!(living.get() as usize, known.len());
            prop_assert_eq!(orphans.get(), abandoned);
            prop_assert!(gone.iter().all(|&key| known.contains_key(&key) || slots.get(SlotKey::from_user_data(key)).is_none()));
        }
        // What is left ends as at the end of a runtime.
        for &key in known.keys() {
            let slot = slots.get(SlotKey::from_user_data(key)).unwrap();
            slot.settle_unsent();
            // SAFETY: settled by the line above.
            unsafe { slots.finish(slot) };
        }
        prop_assert_eq!((slots.in_use(), living.get()), (0, 0));
    }
}
