//! The indices of the queues over the end of their range: a file stands in for the kernel's memory, with head and tail
//! wherever the test wants them, and the test takes the kernel's part.

use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use io_uring::opcode;

use super::*;

/// Offsets in `struct io_uring_params`, in words: `sq_off` and `cq_off` begin with head, tail, mask and entries.
const WORDS: usize = 30;
const SQ: usize = 10;
const SQ_ARRAY: usize = SQ + 6;
const CQ: usize = 20;
const CQES: usize = CQ + 5;
/// Where in the file the submission entries lie, and what the other mapping may need at most.
const SQES_AT: i64 = 0x1000_0000;
const RINGS_LEN: usize = 4096;

/// The kernel's side of the two queues.
struct Kernel {
    rings: *mut u8,
    sqes: *mut u8,
    params: [u32; WORDS],
}

impl Kernel {
    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: inside the mapping.
        let at = unsafe { self.rings.add(offset as usize) };
        // SAFETY: an aligned word of the mapping, which lives as long as the process.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    fn load(&self, field: usize) -> u32 {
        self.word(self.params[field]).load(Ordering::Acquire)
    }

    fn store(&self, field: usize, value: u32) {
        self.word(self.params[field]).store(value, Ordering::Release);
    }

    /// Takes what was submitted and completes it, in its order and as far as there is room.
    fn act(&self) -> usize {
        let (entries, room) = (self.params[0], self.params[1]);
        let mut taken = 0;
        while self.load(SQ) != self.load(SQ + 1) && self.load(CQ + 1).wrapping_sub(self.load(CQ)) < room {
            let (head, tail) = (self.load(SQ), self.load(CQ + 1));
            let index = self.word(self.params[SQ_ARRAY] + 4 * (head & (entries - 1))).load(Ordering::Acquire);
            // SAFETY: `user_data` of an entry inside the mapping.
            let data = unsafe { self.sqes.add(index as usize * 64 + 32) };
            // SAFETY: as above; whoever pushed the entry wrote it.
            let data = unsafe { data.cast::<u64>().read() };
            // SAFETY: a completion inside the mapping: the data, no result, no flags.
            let cqe = unsafe { self.rings.add((self.params[CQES] + 16 * (tail & (room - 1))) as usize) };
            // SAFETY: as above.
            unsafe { cqe.cast::<[u64; 2]>().write([data, 0]) };
            self.store(CQ + 1, tail.wrapping_add(1));
            self.store(SQ, head.wrapping_add(1));
            taken += 1;
        }
        taken
    }
}

fn map(file: &std::fs::File, at: i64, len: usize) -> *mut u8 {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping that touches no other memory, and stays.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, prot, libc::MAP_SHARED, file.as_raw_fd(), at) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// A ring whose memory is a file, with the indices of both queues at these values.
fn ring_at(sq: u32, cq: u32) -> (Ring, Kernel) {
    let real: IoUring = IoUring::builder().setup_cqsize(16).build(8).unwrap();
    let params = real.params().clone();
    // SAFETY: the structure is transparent over that many words of the kernel's.
    let words = unsafe { (&raw const params).cast::<[u32; WORDS]>().read() };
    let file = tempfile::tempfile().unwrap();
    file.set_len(SQES_AT as u64 + 4096).unwrap();
    let kernel = Kernel { rings: map(&file, 0, RINGS_LEN), sqes: map(&file, SQES_AT, 4096), params: words };
    assert!((words[CQES] + 16 * 16) as usize <= RINGS_LEN && (words[SQ_ARRAY] + 4 * 8) as usize <= RINGS_LEN);
    for (queue, entries, at) in [(SQ, words[0], sq), (CQ, words[1], cq)] {
        kernel.store(queue, at);
        kernel.store(queue + 1, at);
        kernel.store(queue + 2, entries - 1);
        kernel.store(queue + 3, entries);
    }
    // SAFETY: it is only mapped and closed; memory of the layout that the parameters describe is all that is used of it.
    let io = unsafe { IoUring::from_fd(file.into_raw_fd(), params) }.unwrap();
    let entrance = Entrance::new(io.as_raw_fd());
    let features = Features {
        abs_timer: false,
        no_iowait: false,
        taskrun_flag: false,
        defer_taskrun: false,
        bundles: false,
        zero_copy: ZeroCopy::default(),
        opcodes: 0,
    };
    let regions = buffers::Table::default();
    let (backlog, faults) = (VecDeque::new(), VecDeque::new());
    (Ring { io: ManuallyDrop::new(io), entrance, regions, features, backlog, cuts: 0, faults, starved: 0 }, kernel)
}

#[test]
fn entries_and_completions_keep_their_order_where_the_indices_wrap() {
    for (sq, cq) in [(u32::MAX - 30, u32::MAX - 90), (u32::MAX - 3, u32::MAX), (u32::MAX, 5), (0, u32::MAX - 7)] {
        let (mut ring, kernel) = ring_at(sq, cq);
        assert_eq!(ring.sizes(), (8, 16));
        assert_eq!(ring.look(), Look::Nothing);
        let (mut pushed, mut seen) = (0u64, 0u64);
        for round in 0..100 {
            // Fewer than the queue holds, as many, and more: the rest waits in the backlog.
            for n in 0..[1, 8, 3, 21, 7][round % 5] {
                let nop = opcode::Nop::new().build().user_data(pushed);
                // SAFETY: it points at nothing.
                let room = unsafe { ring.push(nop) };
                assert_eq!(room, if n < 8 { Pushed::Queued } else { Pushed::Backlogged }, "round {round}");
                pushed += 1;
            }
            assert_eq!(ring.look(), Look::Enter);
            while seen < pushed {
                ring.refill();
                let taken = kernel.act();
                assert!(taken > 0 && taken <= 8, "{taken} of {}", pushed - seen);
                let mut queue = ring.completions();
                assert_eq!(queue.len(), taken);
                for cqe in &mut queue {
                    assert_eq!(cqe.user_data(), seen, "from {sq} and {cq}, round {round}");
                    seen += 1;
                }
            }
            assert_eq!((ring.look(), ring.backlog_len()), (Look::Nothing, 0));
        }
        assert_eq!(kernel.load(SQ), sq.wrapping_add(pushed as u32));
        assert_eq!(kernel.load(CQ), cq.wrapping_add(pushed as u32));
    }
}

#[test]
fn full_queues_are_full_where_the_indices_wrap() {
    for before in 0..20 {
        let (mut ring, kernel) = ring_at(u32::MAX - before, u32::MAX - before);
        for n in 0..24 {
            // SAFETY: it points at nothing.
            let room = unsafe { ring.push(opcode::Nop::new().build().user_data(n)) };
            assert_eq!(room, if n < 8 { Pushed::Queued } else { Pushed::Backlogged });
        }
        // Eight at a time; nobody takes completions, so the second eight fill that queue, and the third stay.
        assert!(!ring.refill());
        assert_eq!((kernel.act(), ring.refill(), kernel.act()), (8, false, 8));
        assert_eq!((ring.refill(), kernel.act(), ring.look()), (true, 0, Look::Enter));
        assert!(ring.completions().is_full());
        assert_eq!(ring.completions().map(|cqe| cqe.user_data()).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
        assert_eq!(kernel.act(), 8);
        assert_eq!(ring.completions().map(|cqe| cqe.user_data()).collect::<Vec<_>>(), (16..24).collect::<Vec<_>>());
    }
}
