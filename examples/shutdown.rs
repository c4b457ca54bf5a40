//! Ends a server well: on Ctrl-C or SIGTERM it stops accepting, answers what its clients have sent, and goes.
//!
//! ```text
//! cargo run --release --example shutdown                  # listens on 127.0.0.1:8080
//! cargo run --release --example shutdown 127.0.0.1:9000   # listens elsewhere
//! nc 127.0.0.1 8080                                       # type a line, see it again, and then press Ctrl-C over there:
//!                                                         # the connection ends, and the server says how many it closed
//! ```
//!
//! A second signal ends it at once.

use std::io;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, FutureExt, Shared, select};
use runtime::net::{TcpListener, TcpStream};
use runtime::signal::{Signal, SignalKind, signal};
use runtime::task::JoinSet;
use runtime::time::timeout;

/// How long clients may take to fetch their last answer.
const GRACE: Duration = Duration::from_secs(10);

/// Completes for everybody who holds a clone when the server is to end.
type Stop = Shared<oneshot::Receiver<()>>;

#[runtime::main]
async fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    // Before anything else, so that no signal falls into a gap.
    let mut signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (stop, stopping) = oneshot::channel();
    let stopping = stopping.shared();

    let listener = TcpListener::bind(&addr).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut connections = JoinSet::new();
    while let Some(client) = next_client(&listener, &mut signals).await {
        match client {
            Ok(stream) => drop(connections.spawn(serve(stream, stopping.clone()))),
            Err(error) => eprintln!("accept: {error}"),
        }
        // Those that have ended need not be kept.
        while connections.join_next().now_or_never().flatten().is_some() {}
    }

    // From here on clients are turned away, rather than left waiting.
    drop(listener);
    let open = connections.len();
    println!("closing {open} connections");
    drop(stop);
    let rest = async { while connections.join_next().await.is_some() {} };
    match select(Box::pin(timeout(GRACE, rest)), Box::pin(any(&mut signals))).await {
        Either::Left((Ok(()), _)) => println!("all closed"),
        Either::Left((Err(_), _)) => println!("not all of them closed within {GRACE:?}"),
        Either::Right(_) => println!("ending at once"),
    }
    Ok(())
}

/// The next client, or `None` once a signal came.
async fn next_client(listener: &TcpListener, signals: &mut (Signal, Signal)) -> Option<io::Result<TcpStream>> {
    // Dropping either future loses nothing: a connection stays with the listener, a signal with its `Signal`.
    match select(Box::pin(any(signals)), Box::pin(listener.accept())).await {
        Either::Left(_) => None,
        Either::Right((client, _)) => Some(client.map(|(stream, _peer)| stream)),
    }
}

async fn any((interrupt, terminate): &mut (Signal, Signal)) {
    select(Box::pin(interrupt.recv()), Box::pin(terminate.recv())).await;
}

async fn serve(stream: TcpStream, stopping: Stop) {
    if let Err(error) = echo(&stream, stopping).await {
        eprintln!("connection: {error}");
    }
}

/// How long a client that is sending keeps a server that stops.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Sends back what comes until the client has no more, or the server stops and what had come is sent back.
async fn echo(stream: &TcpStream, stopping: Stop) -> io::Result<()> {
    let mut buf = Vec::with_capacity(16 * 1024);
    loop {
        // The read comes first: what has arrived is answered even when the server is stopping.
        let (n, data) = match select(stream.read(buf), stopping.clone()).await {
            Either::Left((result, _)) => result.into_result()?,
            // A read needs a turn to bring what is there, so it gets a moment.
            Either::Right((_, read)) => match timeout(LAST_WORDS, read).await {
                Ok(result) => result.into_result()?,
                Err(_elapsed) => return stream.shutdown(std::net::Shutdown::Write).await,
            },
        };
        if n == 0 {
            return Ok(());
        }
        (_, buf) = stream.write_all(data).await.into_result()?;
    }
}
