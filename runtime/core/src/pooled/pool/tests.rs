//! The accounting of pieces against a kernel of our own, which reads the table as the real one does.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const F_BUFFER: u32 = 1;
const F_MORE: u32 = 2;
const F_BUF_MORE: u32 = 1 << 4;

/// Result and flags of a completion, and what was written, by buffer.
type Received = ((i32, u32), Vec<Vec<u8>>);

/// The kernel's side of a table: it fills what is lent, in order, with a byte that counts up.
struct Kernel {
    table: *mut BufRingEntry,
    head: u16,
    incremental: bool,
    bundles: bool,
    next: u8,
}

impl Kernel {
    fn entry(&self) -> Option<&'static mut BufRingEntry> {
        // SAFETY: the pool's table, which lives longer than this kernel looks at it.
        let tail = unsafe { BufRingEntry::tail(self.table) };
        // SAFETY: as above.
        if self.head == unsafe { *tail } {
            return None;
        }
        // SAFETY: a place of the table.
        let entry = unsafe { self.table.add(usize::from(self.head & (ENTRIES - 1))) };
        // SAFETY: lent to this kernel.
        Some(unsafe { &mut *entry })
    }

    /// Receives up to `len` bytes.
    fn receive(&mut self, len: u32) -> Option<Received> {
        let mut flags = F_BUFFER | F_MORE | u32::from(self.entry()?.bid()) << 16;
        let (mut filled, mut left) = (Vec::new(), len);
        while let Some(entry) = self.entry() {
            let n = left.min(entry.len());
            left -= n;
            let data: Vec<u8> = (0..n)
                .map(|_| {
                    self.next = self.next.wrapping_add(1);
                    self.next
                })
                .collect();
            // SAFETY: the memory is lent to this kernel, for at least so many bytes.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), entry.addr() as *mut u8, data.len()) };
            filled.push(data);
            if self.incremental && n < entry.len() {
                entry.set_addr(entry.addr() + u64::from(n));
                entry.set_len(entry.len() - n);
                flags |= F_BUF_MORE;
            } else {
                self.head = self.head.wrapping_add(1);
            }
            if left == 0 || !self.bundles {
                break;
            }
        }
        Some(((filled.concat().len() as i32, flags), filled))
    }
}

/// What a completion brought that is known to bring one piece.
fn one(pool: &Pool, (result, flags): (i32, u32)) -> Pooled {
    let mut pieces = cut(pool, (result, flags));
    assert_eq!(pieces.len(), 1);
    pieces.remove(0)
}

fn cut(pool: &Pool, (result, flags): (i32, u32)) -> Vec<Pooled> {
    let Some((first, rest)) = pool.cut(result, flags) else { return Vec::new() };
    let mut pieces = vec![first];
    if let Some(mut rest) = rest {
        pieces.extend(std::iter::from_fn(|| pool.cut_next(&mut rest)));
    }
    pieces
}

/// Boxed, since slabs know their pool by its address.
fn pool(shape: Shape) -> (Box<Pool>, Kernel) {
    let pool = Box::new(Pool::new(shape));
    pool.set_up(true, |_, _, _| true);
    let kernel =
        Kernel { table: pool.table.get(), head: 0, incremental: !shape.classic, bundles: pool.has_bundles(), next: 0 };
    (pool, kernel)
}

#[derive(Debug, Clone)]
enum Step {
    /// The kernel receives; completions wait until they are reaped, all at once.
    Receive(u32),
    Reap,
    Drop(usize),
    Advance(usize, usize),
    IntoVec(usize),
    Relieve(usize),
    Replenish,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (1..600u32).prop_map(Step::Receive),
        3 => Just(Step::Reap),
        4 => (0..32usize).prop_map(Step::Drop),
        1 => (0..32usize, 0..40usize).prop_map(|(at, n)| Step::Advance(at, n)),
        1 => (0..32usize).prop_map(Step::IntoVec),
        1 => (0..32usize).prop_map(Step::Relieve),
        1 => Just(Step::Replenish),
    ];
    prop::collection::vec(step, 0..300)
}

fn shape() -> impl Strategy<Value = Shape> {
    (16..200u32, 1..5u16, 5..12u16, any::<[bool; 2]>()).prop_map(|(slab_bytes, first, most, [classic, single])| Shape {
        slab_bytes,
        first,
        most,
        classic,
        single,
        ..Shape::default()
    })
}

proptest! {
    #[test]
    fn pieces_keep_their_bytes_and_slabs_come_back_once(shape in shape(), steps in steps()) {
        let (pool, mut kernel) = pool(shape);
        let mut waiting: VecDeque<Received> = VecDeque::new();
        // What is held, and what it must read as.
        let mut held: Vec<(Pooled, Vec<u8>)> = Vec::new();
        for step in steps {
            let count = held.len().max(1);
            match step {
                Step::Receive(len) => waiting.extend(kernel.receive(len)),
                Step::Reap => {
                    for (cqe, filled) in waiting.drain(..) {
                        let pieces = cut(&pool, cqe);
                        prop_assert_eq!(pieces.len(), filled.len());
                        held.extend(pieces.into_iter().zip(filled));
                    }
                }
                Step::Drop(at) if !held.is_empty() => drop(held.swap_remove(at % count)),
                Step::Advance(at, n) if !held.is_empty() => {
                    let (piece, data) = &mut held[at % count];
                    let n = n.min(data.len());
                    piece.advance(n);
                    data.drain(..n);
                }
                Step::IntoVec(at) if !held.is_empty() => {
                    let (piece, data) = held.swap_remove(at % count);
                    prop_assert_eq!(piece.into_vec(), data);
                }
                Step::Relieve(at) if !held.is_empty() => {
                    let (mut piece, data) = held.swap_remove(at % count);
                    let (pinned, in_pool) = (pool.pinned(), piece.is_piece());
                    pool.relieve(&mut piece);
                    let half = u32::from(shape.first).div_ceil(2);
                    let from = if shape.classic { half.max(u32::from(shape.most).div_ceil(4)) } else { half };
                    let tight = pinned >= from;
                    prop_assert_eq!(piece.is_piece(), in_pool && !tight);
                    held.push((piece, data));
                }
                Step::Replenish => {
                    let (empty, before) = (!pool.has_stock(), pool.slabs().len());
                    let full = before == usize::from(shape.most);
                    prop_assert_eq!(pool.replenish(), !(empty && full));
                    prop_assert_eq!(pool.slabs().len() > before, empty && !full);
                    prop_assert!(pool.slabs().len() <= usize::from(shape.most));
                }
                _ => {}
            }
            for (piece, data) in &held {
                prop_assert_eq!(&piece[..], &data[..]);
            }
            prop_assert_eq!(pool.picture().pieces as usize, held.iter().filter(|(piece, _)| piece.is_piece()).count());
        }
        // Everything is reaped and dropped: every slab is lent, each once.
        for (cqe, _) in waiting {
            drop(cut(&pool, cqe));
        }
        let (kept, rest): (Vec<_>, Vec<_>) = held.into_iter().enumerate().partition(|(i, _)| i % 3 == 0);
        drop(rest);
        if kept.is_empty() {
            prop_assert_eq!(pool.pinned(), 0);
            let mut lent: Vec<u16> = Vec::new();
            let mut seen = kernel.head;
            while let Some(entry) = (Kernel { head: seen, ..kernel }).entry() {
                lent.push(entry.bid());
                seen = seen.wrapping_add(1);
            }
            lent.sort_unstable();
            prop_assert_eq!(lent, (0..pool.slabs().len() as u16).collect::<Vec<_>>());
        }
        // What is held outlives the pool.
        pool.close();
        drop(pool);
        for (_, (piece, data)) in &kept {
            prop_assert_eq!(&piece[..], &data[..]);
        }
    }
}

#[test]
fn what_a_kernel_should_not_say_is_survived() {
    let (pool, mut kernel) = pool(Shape { slab_bytes: 64, first: 4, most: 4, ..Shape::default() });
    // No such buffer.
    assert!(cut(&pool, (8, F_BUFFER | 77 << 16)).is_empty());
    // More than there is.
    let ((_, flags), _) = kernel.receive(64).unwrap();
    let id = flags >> 16;
    let piece = one(&pool, (1 << 20, flags));
    assert_eq!(piece.len(), 64);
    // A buffer that it does not have.
    assert!(cut(&pool, (8, F_BUFFER | id << 16)).is_empty());
    // Nothing taken, although it says that it is done with the buffer: it is not.
    let tail = pool.tail.get();
    assert!(cut(&pool, (0, F_BUFFER | 1 << 16)).is_empty());
    assert_eq!((pool.pinned(), pool.tail.get()), (1, tail));
    drop(piece);
    assert_eq!(pool.pinned(), 0);
    pool.close();
}

#[test]
fn a_bundle_of_more_than_was_lent_ends_with_what_was() {
    let (pool, mut kernel) = pool(Shape { slab_bytes: 64, first: 3, most: 3, classic: true, ..Shape::default() });
    let ((_, flags), _) = kernel.receive(1).unwrap();
    let first = one(&pool, (1, flags));
    let ((result, flags), filled) = kernel.receive(1000).unwrap();
    assert_eq!(result, 128);
    let rest = cut(&pool, (1000, flags));
    assert!(rest.iter().map(|piece| &piece[..]).eq(filled.iter().map(|data| &data[..])));
    drop((first, rest));
    assert_eq!(pool.pinned(), 0);
    pool.close();
}

#[test]
fn a_classic_buffer_without_bytes_is_lent_again() {
    let (pool, mut kernel) = pool(Shape { slab_bytes: 64, first: 2, most: 2, classic: true, ..Shape::default() });
    for _ in 0..5 {
        let (cqe, _) = kernel.receive(0).unwrap();
        assert!(cut(&pool, cqe).is_empty());
        assert_eq!(pool.pinned(), 0);
    }
    pool.close();
}

#[test]
fn a_pool_whose_kernel_is_not_done_leaks_its_slabs_and_keeps_what_is_held() {
    let (pool, mut kernel) = pool(Shape { slab_bytes: 64, first: 1, most: 1, ..Shape::default() });
    let (cqe, filled) = kernel.receive(64).unwrap();
    let piece = one(&pool, cqe);
    drop(pool);
    assert_eq!(piece[..], filled[0][..]);
    drop(piece);
}

#[test]
fn a_kernel_that_refuses_leaves_no_stock() {
    let pool = Pool::new(Shape::default());
    pool.set_up(true, |_, _, _| false);
    assert!(!pool.has_stock() && !pool.replenish() && !pool.is_untried() && !pool.is_registered());
}
