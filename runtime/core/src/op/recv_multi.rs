//! `IORING_OP_RECV` with `IORING_RECV_MULTISHOT` (6.0): one submission, many receives into buffers that the kernel picks;
//! and the receive into private memory that stands in for it when there are none.

use std::task::Waker;

use io_uring::{opcode, squeue, types};

use super::{Cqe, Kind, Multi};
use crate::fd::Origin;
use crate::pooled::Pooled;
use crate::pooled::pool::GROUP;

/// Where received bytes go.
pub(crate) trait RecvSink: Origin {
    /// Takes received bytes; see [`Multi::early`].
    fn received(&self, data: Pooled, enough: &mut bool) -> Option<Waker>;
    /// Takes the last completion, whose bytes, if it had any, came before.
    fn ended(&mut self, cqe: Cqe);
    /// Takes the end of a receive into private memory.
    fn received_apart(&mut self, cqe: Cqe, memory: Vec<u8>);
}

/// Receives until it is cancelled, the stream ends, or the pool is empty (`ENOBUFS`). With `BUNDLES`
/// (`IORING_RECVSEND_BUNDLE`, 6.10) a completion may bring many buffers.
#[derive(Debug)]
pub(crate) struct RecvMulti<S, const BUNDLES: bool> {
    sink: S,
}

impl<S: RecvSink, const BUNDLES: bool> RecvMulti<S, BUNDLES> {
    pub(crate) fn new(sink: S) -> Self {
        Self { sink }
    }
}

// SAFETY: the entry holds no pointers; all completions but the last carry F_MORE.
unsafe impl<S: RecvSink, const BUNDLES: bool> Multi for RecvMulti<S, BUNDLES> {
    const KIND: Kind = Kind::Recv;
    const POOLED: bool = true;

    fn entry(&mut self) -> squeue::Entry {
        let fd = types::Fd(self.sink.raw_fd());
        if BUNDLES {
            opcode::RecvMultiBundle::new(fd, GROUP).build()
        } else {
            opcode::RecvMulti::new(fd, GROUP).build()
        }
    }

    fn item(&mut self, cqe: Cqe) {
        self.sink.ended(cqe);
    }

    #[inline]
    fn early(&self, data: Pooled, enough: &mut bool) -> Option<Waker> {
        self.sink.received(data, enough)
    }
}

/// Receives once, into memory of its own.
#[derive(Debug)]
pub(crate) struct RecvApart<S> {
    sink: S,
    memory: Vec<u8>,
}

impl<S: RecvSink> RecvApart<S> {
    /// Receives into the whole capacity of `memory`, which is empty.
    pub(crate) fn new(sink: S, memory: Vec<u8>) -> Self {
        Self { sink, memory }
    }
}

// SAFETY: the entry points at a vector's heap memory, not into `self`; there is one completion, without F_MORE, so `item`
// runs when the kernel is done with that memory.
unsafe impl<S: RecvSink> Multi for RecvApart<S> {
    const KIND: Kind = Kind::Recv;

    fn entry(&mut self) -> squeue::Entry {
        let len = self.memory.capacity() as u32;
        opcode::Recv::new(types::Fd(self.sink.raw_fd()), self.memory.as_mut_ptr(), len).build()
    }

    fn item(&mut self, cqe: Cqe) {
        let mut memory = std::mem::take(&mut self.memory);
        let n = usize::try_from(cqe.parts().0).unwrap_or(0).min(memory.capacity());
        // SAFETY: the kernel wrote so many bytes from the start, within the capacity.
        unsafe { memory.set_len(n) };
        self.sink.received_apart(cqe, memory);
    }
}
