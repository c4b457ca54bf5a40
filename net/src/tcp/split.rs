//! The halves of a [`TcpStream`].

use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;

use runtime_core::buf::{BufResult, IoBuf, IoBufMut};
use runtime_core::duplex::{Duplex, Reader};
use runtime_core::ends::{End, Sink, Source, What};
use runtime_core::receiver::{self, Recv, RecvStream};
use runtime_core::sys;
use socket2::SockRef;

use super::stream::{TcpStream, inet};
use crate::transfer::{self, Receive, Transmit, WriteAll, zero_copy};

pub(crate) fn split(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let reader = stream.into_reader();
    let write = OwnedWriteHalf { duplex: Some(Arc::clone(&reader)), _not_sync: PhantomData };
    (OwnedReadHalf { duplex: reader, _not_sync: PhantomData }, write)
}

/// The reading half of a [`TcpStream`]; each half may be on a thread of its own.
pub struct OwnedReadHalf {
    duplex: Reader,
    _not_sync: PhantomData<Cell<()>>,
}

/// The writing half of a [`TcpStream`]. Dropping it ends the writing direction: the peer reads the end of the stream.
pub struct OwnedWriteHalf {
    /// There until the halves are joined again.
    duplex: Option<Arc<Duplex>>,
    _not_sync: PhantomData<Cell<()>>,
}

impl OwnedReadHalf {
    /// See [`TcpStream::read`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn read<B: IoBufMut>(&self, buf: B) -> Receive<'_, B> {
        transfer::read(&self.duplex, buf)
    }

    /// See [`TcpStream::recv`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn recv(&self) -> Recv<'_> {
        receiver::recv(&self.duplex)
    }

    /// See [`TcpStream::recv_stream`].
    pub fn recv_stream(&self) -> RecvStream<'_> {
        receiver::recv_stream(&self.duplex)
    }

    /// See [`TcpStream::read_exact`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn read_exact<B: IoBufMut>(&self, buf: B) -> BufResult<(), B> {
        transfer::read_exact(&self.duplex, buf).await
    }

    /// See [`TcpStream::read_vectored`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn read_vectored<B: IoBufMut>(&self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        transfer::read_vectored(&self.duplex, bufs).await
    }

    /// See [`TcpStream::peek`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn peek<B: IoBufMut>(&self, buf: B) -> Receive<'_, B> {
        transfer::peek(&self.duplex, buf)
    }

    /// Address of the other side.
    ///
    /// # Errors
    ///
    /// `NotConnected` when it is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        inet(SockRef::from(&**self.duplex).peer_addr()?)
    }

    /// Joins the halves of one stream again; the writing direction stays open.
    ///
    /// # Errors
    ///
    /// Both halves, when they are not of the same stream.
    pub fn reunite(self, write: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        let same = write.duplex.as_ref().is_some_and(|duplex| Arc::ptr_eq(duplex, &self.duplex));
        if !same {
            return Err(ReuniteError(self, write));
        }
        write.into_duplex();
        Ok(TcpStream::from_reader(self.duplex))
    }
}

impl OwnedWriteHalf {
    fn duplex(&self) -> &Arc<Duplex> {
        self.duplex.as_ref().expect("taken only when the half is used up")
    }

    /// Without ending the direction.
    fn into_duplex(mut self) -> Option<Arc<Duplex>> {
        self.duplex.take()
    }

    /// See [`TcpStream::write`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn write<B: IoBuf>(&self, buf: B) -> Transmit<'_, B> {
        transfer::write(self.duplex(), buf)
    }

    /// See [`TcpStream::write_all`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub fn write_all<B: IoBuf>(&self, buf: B) -> WriteAll<'_, B> {
        transfer::write_all(self.duplex(), buf)
    }

    /// See [`TcpStream::write_zc`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn write_zc<B: IoBuf>(&self, buf: B) -> BufResult<usize, B> {
        zero_copy::write(self.duplex(), buf).await
    }

    /// See [`TcpStream::write_all_zc`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn write_all_zc<B: IoBuf>(&self, buf: B) -> BufResult<(), B> {
        zero_copy::write_all(self.duplex(), buf).await
    }

    /// See [`TcpStream::set_zc_threshold`].
    pub fn set_zc_threshold(&self, bytes: usize) {
        zero_copy::set_threshold(self.duplex(), bytes);
    }

    /// See [`TcpStream::write_vectored`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn write_vectored<B: IoBuf>(&self, bufs: Vec<B>) -> BufResult<usize, Vec<B>> {
        transfer::write_vectored(self.duplex(), bufs).await
    }

    /// See [`TcpStream::write_all_vectored`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn write_all_vectored<B: IoBuf>(&self, bufs: Vec<B>) -> BufResult<(), Vec<B>> {
        transfer::write_all_vectored(self.duplex(), bufs).await
    }

    /// Ends the writing direction once the writes before it are over.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::shutdown`].
    ///
    /// # Cancel safety
    ///
    /// Either done or not.
    pub async fn shutdown(&self) -> io::Result<()> {
        transfer::shutdown(self.duplex(), Shutdown::Write).await
    }

    /// Address of the other side.
    ///
    /// # Errors
    ///
    /// `NotConnected` when it is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        inet(SockRef::from(&**self.duplex()).peer_addr()?)
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        // In a child of fork(2) the connection is the parent's.
        if let Some(duplex) = self.duplex.as_ref().filter(|_| sys::same_process()) {
            // A connection that is gone already needs no end.
            let _ = duplex.shutdown(Shutdown::Write);
        }
    }
}

impl Source for OwnedReadHalf {
    fn source(&self) -> End<'_> {
        End { duplex: &self.duplex, what: What::Socket }
    }
}

impl Sink for OwnedWriteHalf {
    fn sink(&self) -> End<'_> {
        End { duplex: self.duplex(), what: What::Socket }
    }
}

impl fmt::Debug for OwnedReadHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedReadHalf").finish_non_exhaustive()
    }
}

impl fmt::Debug for OwnedWriteHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedWriteHalf").finish_non_exhaustive()
    }
}

/// Two halves that are not of the same stream; they are inside.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are not of the same stream")
    }
}

impl std::error::Error for ReuniteError {}
