//! The ends of streams that bytes can be moved between without the program seeing them: [`Source`] and [`Sink`]; and
//! [`View`], what a reader of any type says of itself.
//!
//! Owns what such a move needs to know of an end; knows nothing of how it is done, nor of which types there are.

use std::sync::Arc;

use crate::duplex::Duplex;
use crate::open_file::OpenFile;

/// What an end is, as far as splice(2) makes a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// One end of a pipe, or a FIFO.
    Pipe,
    /// A stream socket.
    Socket,
    /// Something else that is read and written where the kernel is, such as a terminal: only copied.
    Other,
}

/// One end of a stream.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// Its descriptor, and who uses it.
    pub duplex: &'a Arc<Duplex>,
    /// What it is.
    pub what: What,
}

/// What reading from a source amounts to.
///
/// There is no specialisation, so a function that takes any reader cannot know by its type that the program need not
/// see the bytes; it asks. Whoever passes reads on and changes nothing may pass the question on too; whoever holds
/// bytes of its own, counts or changes them, must not.
#[derive(Debug)]
pub enum View<'a> {
    /// Reading has to be asked for.
    Opaque,
    /// Each read returns the next bytes of this end.
    Stream(End<'a>),
    /// Each read returns the next bytes of this file from the position on, which then moves.
    File {
        /// The file. Changes of it that were dropped are to be waited for.
        open: &'a Arc<OpenFile>,
        /// Where the next byte is.
        at: &'a mut u64,
    },
}

/// Where bytes come from: the reading end of a pipe, a stream socket or its reading half.
///
/// For the types of this crate; its methods are not part of the interface.
pub trait Source {
    /// What the move works on.
    #[doc(hidden)]
    fn source(&self) -> End<'_>;
}

/// Where bytes go: the writing end of a pipe, a stream socket or its writing half.
///
/// For the types of this crate; its methods are not part of the interface.
pub trait Sink {
    /// What the move works on.
    #[doc(hidden)]
    fn sink(&self) -> End<'_>;
}

impl<T: Source + ?Sized> Source for &T {
    fn source(&self) -> End<'_> {
        (**self).source()
    }
}

impl<T: Sink + ?Sized> Sink for &T {
    fn sink(&self) -> End<'_> {
        (**self).sink()
    }
}
