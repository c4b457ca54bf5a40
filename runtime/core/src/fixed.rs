//! Registered buffers: [`FixedBufs`], [`FixedBuf`].
//!
//! Owns one region of memory per set, which the ring knows as one registered buffer, and who has which piece of it. Knows
//! nothing of what the pieces are used for: operations ask a buffer whether it is registered.
//!
//! ```text
//!          lease                       drop of the piece, also by an orphan's end
//!   free ─────────▶ a `FixedBuf` ─────────────────────────────────────────────────▶ free, the next waiter is woken
//! ```
//!
//! The region is freed with the set and its last piece, after the ring, if that is still there, has forgotten it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::task::{Context as Task, Poll, Waker, ready};

use crate::buf::{IoBuf, IoBufMut, Registered};
use crate::cell;
use crate::context::{self, Context, Proceed};
use crate::ring::REGIONS;
use crate::sys;
use crate::wait::{Left, Ticket, WaitList};

/// What one registration may cover.
const MAX_BYTES: usize = 1 << 30;

/// A set of equal, page-aligned buffers that are registered with the ring of this thread's runtime.
///
/// The kernel looks up and pins the pages of an ordinary buffer in each operation on a file opened with `O_DIRECT` and in
/// each zero-copy send; those of registered buffers once, here. Reads and writes through the page cache pin nothing, and so
/// have nothing to gain.
///
/// A [`FixedBuf`] is used like any other buffer; `File::read_at`, `File::write_at` and `TcpStream::write_zc` recognise
/// it and use the kernel's variant for registered memory (`READ_FIXED`, `WRITE_FIXED`, `SEND_ZC` with a fixed buffer). In
/// another runtime than the one that it was made in, and with every other operation, it is an ordinary buffer.
///
/// The memory is locked, and counts against `RLIMIT_MEMLOCK` of the user unless the process may exceed it. It is given
/// back when the set and every buffer of it are dropped, in whichever order they and the runtime go.
///
/// **Peers that do not read can use a set up.** What a zero-copy send has handed out comes back when the other side has
/// acknowledged it, however long that takes and whatever becomes of the stream. Where peers are not trusted, take buffers
/// with [`try_lease`](Self::try_lease) and write from ordinary memory when there is none, and end a stream that has hung
/// for too long with `set_linger(Some(Duration::ZERO))` before it is dropped.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// use runtime_core::fixed::FixedBufs;
///
/// let bufs = FixedBufs::new(8, 64 * 1024)?;
/// let mut buf = bufs.lease().await;
/// buf.put(b"a record");
/// assert_eq!(&buf[..], b"a record");
/// drop(buf); // back in the set
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct FixedBufs {
    region: Rc<Region>,
}

struct Region {
    start: NonNull<u8>,
    layout: Layout,
    /// Bytes of one piece: whole pages.
    piece: usize,
    shares: RefCell<Shares>,
    registered: Registered,
    home: Weak<Context>,
}

struct Shares {
    /// The numbers of the free pieces; the one that was used last is handed out first.
    free: Vec<u32>,
    waiters: WaitList,
    /// Waiters that were chosen and have not come yet: so many of the free pieces are theirs. While somebody waits who was
    /// not chosen, all of them are.
    promised: usize,
}

impl Shares {
    fn take(&mut self) -> Option<u32> {
        if self.free.len() > self.promised { self.free.pop() } else { None }
    }

    /// Chooses a waiter if there is a piece for it.
    #[must_use]
    fn choose(&mut self) -> Option<Waker> {
        if self.free.len() == self.promised {
            return None;
        }
        let waker = self.waiters.notify_one()?;
        self.promised += 1;
        Some(waker)
    }
}

impl FixedBufs {
    /// Registers `count` buffers of `size` bytes each, rounded up to whole pages, with this thread's runtime.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when there is nothing to register, or more than 1 GiB; `OutOfMemory` when the memory is not there or
    /// may not be locked (the text names `RLIMIT_MEMLOCK`); `QuotaExceeded` when the runtime has 64 sets already; what
    /// else the kernel says of io_uring_register(2).
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    #[doc(alias = "IORING_REGISTER_BUFFERS")]
    pub fn new(count: usize, size: usize) -> io::Result<Self> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
        if count == 0 || size == 0 {
            return Err(invalid("a set of registered buffers needs at least one buffer of at least one byte"));
        }
        let page = sys::page_size();
        let piece = size.checked_next_multiple_of(page);
        let bytes = piece.and_then(|piece| piece.checked_mul(count)).filter(|&bytes| bytes <= MAX_BYTES);
        let (Some(piece), Some(bytes)) = (piece, bytes) else {
            return Err(invalid("a set of registered buffers may have 1 GiB"));
        };
        let layout = Layout::from_size_align(bytes, page).expect("a power of two, and a size far from the end");
        context::expect(|cx| {
            cx.driver.assert_same_process();
            let free = (0..count as u32).rev().collect();
            // SAFETY: the layout has a size.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) })
                .ok_or_else(|| io::Error::new(io::ErrorKind::OutOfMemory, "no memory for registered buffers"))?;
            let memory = Memory { start, layout };
            // SAFETY: the region unregisters the memory before it is freed.
            let index = unsafe { cx.driver.ring().borrow_mut().register(start.as_ptr(), bytes) };
            let index = index.map_err(|error| refused(&error, bytes))?;
            std::mem::forget(memory);
            let registered = Registered { ring: cx.id().number(), index };
            let shares = RefCell::new(Shares { free, waiters: WaitList::new(), promised: 0 });
            Ok(Self { region: Rc::new(Region { start, layout, piece, shares, registered, home: cx.weak() }) })
        })
    }

    /// A buffer that nobody uses; waits until there is one. First come, first served.
    ///
    /// # Cancel safety
    ///
    /// A waiter that is dropped leaves the queue; if it had been chosen, the next one is.
    pub fn lease(&self) -> Lease<'_> {
        Lease { region: &self.region, ticket: None, proceed: Proceed::default() }
    }

    /// A buffer that nobody uses or waits for.
    pub fn try_lease(&self) -> Option<FixedBuf> {
        let number = self.region.shares.borrow_mut().take()?;
        Some(FixedBuf::new(&self.region, number))
    }

    /// How many buffers nobody has now.
    pub fn free(&self) -> usize {
        self.region.shares.borrow().free.len()
    }

    /// Bytes of each buffer.
    pub fn buf_size(&self) -> usize {
        self.region.piece
    }
}

impl fmt::Debug for FixedBufs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedBufs").field("buf_size", &self.buf_size()).field("free", &self.free()).finish()
    }
}

#[cold]
fn refused(error: &io::Error, bytes: usize) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            let soft = sys::rlimit(libc::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft / 1024);
            let text = format!(
                "registered buffers of {} KiB cannot be locked (ENOMEM): the limit of locked memory (RLIMIT_MEMLOCK) is \
                 {soft} KiB for all rings and registered buffers of this user; raise it with `ulimit -l` or \
                 LimitMEMLOCK=, or register less",
                bytes / 1024
            );
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        }
        Some(libc::ENOSPC) => {
            let text = format!("a runtime can have {REGIONS} sets of registered buffers: use fewer and larger ones");
            io::Error::new(io::ErrorKind::QuotaExceeded, text)
        }
        _ => io::Error::new(error.kind(), format!("io_uring_register refused the buffers: {error}")),
    }
}

/// Memory that is freed again unless it is registered.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody else has it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // The ring of a runtime that is gone has let go of it; that of a parent process is not ours to touch.
        if sys::same_process()
            && let Some(home) = self.home.upgrade()
        {
            home.driver.ring().borrow_mut().unregister(self.registered.index);
        }
        // No piece is left, so no operation has one.
        drop(Memory { start: self.start, layout: self.layout });
    }
}

impl Region {
    fn give_back(&self, number: u32) {
        let mut shares = self.shares.borrow_mut();
        shares.free.push(number);
        let next = shares.choose();
        drop(shares);
        if let Some(next) = next {
            cell::wake_safely(next);
        }
    }
}

/// Waits for a buffer; from [`FixedBufs::lease`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Lease<'a> {
    region: &'a Rc<Region>,
    ticket: Option<Ticket>,
    proceed: Proceed,
}

impl Future for Lease<'_> {
    type Output = FixedBuf;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<FixedBuf> {
        let this = &mut *self;
        // A task that finds a buffer each time is made to suspend as well (ruling 6).
        ready!(this.proceed.poll(task));
        // Cloned before anything is borrowed and dropped after: wakers are foreign code (I4).
        let waker = task.waker().clone();
        let mut shares = this.region.shares.borrow_mut();
        if this.ticket.is_some_and(|ticket| shares.waiters.take(ticket)) {
            this.ticket = None;
            shares.promised -= 1;
        }
        let number = if this.ticket.is_none() { shares.take() } else { None };
        if let Some(number) = number {
            drop(shares);
            context::with(|cx| cx.spend(0));
            return Poll::Ready(FixedBuf::new(this.region, number));
        }
        let unused = match this.ticket {
            None => {
                this.ticket = Some(shares.waiters.join(waker));
                None
            }
            Some(ticket) => shares.waiters.update(ticket, waker),
        };
        drop(shares);
        drop(unused);
        Poll::Pending
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut shares = self.region.shares.borrow_mut();
        let (left, unused) = shares.waiters.leave(ticket);
        if left == Left::PassOn {
            shares.promised -= 1;
        }
        let next = shares.choose();
        drop(shares);
        drop(unused);
        if let Some(next) = next {
            cell::wake_safely(next);
        }
    }
}

impl fmt::Debug for Lease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("waits", &self.ticket.is_some()).finish_non_exhaustive()
    }
}

/// A buffer of a [`FixedBufs`]. Derefs to the bytes that it holds, of which there are none at first; a read replaces
/// them. Goes back to its set when it is dropped.
pub struct FixedBuf {
    region: Rc<Region>,
    number: u32,
    len: usize,
}

impl FixedBuf {
    fn new(region: &Rc<Region>, number: u32) -> Self {
        Self { region: Rc::clone(region), number, len: 0 }
    }

    /// Bytes that it can hold.
    pub fn capacity(&self) -> usize {
        self.region.piece
    }

    /// Appends as much as there is room for, and returns the count.
    pub fn put(&mut self, data: &[u8]) -> usize {
        let at = self.len;
        let n = data.len().min(self.capacity() - at);
        self.resize(at + n);
        self[at..].copy_from_slice(&data[..n]);
        n
    }

    /// Makes it hold `len` bytes. Those that it did not hold before are whatever earlier users of the memory left there,
    /// zeros at first.
    ///
    /// # Panics
    ///
    /// When `len` is more than the capacity.
    pub fn resize(&mut self, len: usize) {
        assert!(len <= self.capacity(), "a registered buffer of {} bytes cannot hold {len}", self.capacity());
        self.len = len;
    }

    /// Makes it hold nothing.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    fn start(&self) -> *mut u8 {
        self.region.start.as_ptr().wrapping_add(self.number as usize * self.region.piece)
    }
}

impl Drop for FixedBuf {
    fn drop(&mut self) {
        self.region.give_back(self.number);
    }
}

impl Deref for FixedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the piece is this value's alone and was initialised as a whole; the length is within it.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for FixedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the value is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl fmt::Debug for FixedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedBuf").field("len", &self.len).field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

// SAFETY: the region does not move, and lives as long as the value; all of it was initialised when it was made.
unsafe impl IoBuf for FixedBuf {
    fn stable_ptr(&self) -> *const u8 {
        self.start()
    }

    fn init_len(&self) -> usize {
        self.len
    }

    fn registered(&self) -> Option<Registered> {
        Some(self.region.registered)
    }
}

// SAFETY: a piece belongs to one value at a time.
unsafe impl IoBufMut for FixedBuf {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.start()
    }

    fn capacity(&self) -> usize {
        self.region.piece
    }

    unsafe fn set_len(&mut self, len: usize) {
        self.len = len;
    }
}
