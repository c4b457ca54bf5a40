//! [`copy_bidirectional`].

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use super::{AsyncRead, AsyncWrite, copy};
use crate::task::yield_now;

/// Copies both ways between two streams until both have ended, and returns the counts from `a` to `b` and from `b` to
/// `a`. When one stream ends, the other is shut down for writing once everything has been passed on; the opposite
/// direction goes on.
///
/// For streams that can be used through a shared reference, as all sockets can.
///
/// # Errors
///
/// Those of reading, writing and shutting down, of either direction; the other direction ends then too, and the counts
/// are lost.
///
/// # Cancel safety
///
/// As [`copy`] for each direction: up to 64 KiB each way that were read and not written are lost.
///
/// # Examples
///
/// ```no_run
/// use runtime::net::{TcpListener, TcpStream};
/// # async fn proxy() -> std::io::Result<()> {
/// let listener = TcpListener::bind("127.0.0.1:8080").await?;
/// let (client, _) = listener.accept().await?;
/// let server = TcpStream::connect("127.0.0.1:9000").await?;
/// let (up, down) = runtime::io::copy_bidirectional(&client, &server).await?;
/// println!("{up} bytes there, {down} bytes back");
/// # Ok(())
/// # }
/// ```
pub async fn copy_bidirectional<A, B>(a: &A, b: &B) -> io::Result<(u64, u64)>
where
    A: ?Sized,
    B: ?Sized,
    for<'s> &'s A: AsyncRead + AsyncWrite,
    for<'s> &'s B: AsyncRead + AsyncWrite,
{
    let (mut there, mut back) = (pin!(pass_on(a, b)), pin!(pass_on(b, a)));
    let (mut up, mut down) = (None, None);
    poll_fn(|task| {
        if up.is_none()
            && let Poll::Ready(result) = there.as_mut().poll(task)
        {
            up = Some(result?);
        }
        if down.is_none()
            && let Poll::Ready(result) = back.as_mut().poll(task)
        {
            down = Some(result?);
        }
        match (up, down) {
            (Some(up), Some(down)) => Poll::Ready(Ok((up, down))),
            _ => Poll::Pending,
        }
    })
    .await
}

async fn pass_on<R: AsyncRead, W: AsyncWrite>(mut from: R, mut to: W) -> io::Result<u64> {
    let copied = copy(&mut from, &mut to).await?;
    // The kernel tells a reset once, perhaps to a write of the other direction, and says then that the stream has ended:
    // passed on as that, what was cut off would look whole. So the other direction has its say before.
    yield_now().await;
    match to.shutdown().await {
        // It is gone already, and everything was taken from it.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(copied),
        result => result.map(|()| copied),
    }
}
