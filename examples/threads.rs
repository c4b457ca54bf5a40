//! A server on all cores, in two ways: each thread listens on the same port, or one accepts and hands out.
//!
//! ```text
//! cargo run --release --example threads              # each thread listens; the kernel picks one by a hash
//! cargo run --release --example threads dispatch     # the first thread accepts; the one with the fewest serves
//! nc 127.0.0.1 8080                                  # says which thread serves it, until the input ends
//! ```
//!
//! With a few `nc`s at once one sees that the hash gives some thread more than another, and that dispatch does not.

use runtime::Handle;
use runtime::net::{TcpListener, TcpStream};

#[runtime::main(threads = "auto")]
async fn main() -> std::io::Result<()> {
    let here = Handle::current();
    let dispatch = std::env::args().nth(1).is_some_and(|arg| arg == "dispatch");
    if dispatch && here.index() > 0 {
        // Serves what the first thread hands out.
        here.stopped().await;
        return Ok(());
    }
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("thread {} of {} listens on {}", here.index(), here.threads(), listener.local_addr()?);
    if dispatch {
        return listener.dispatch(serve).run().await;
    }
    let mut incoming = listener.incoming();
    while let Some(stream) = incoming.next().await {
        match stream {
            Ok(stream) => drop(runtime::spawn(serve(stream))),
            Err(error) => eprintln!("accept: {error}"),
        }
    }
    Ok(())
}

async fn serve(stream: TcpStream) {
    if let Err(error) = greet(&stream).await {
        eprintln!("connection: {error}");
    }
}

async fn greet(stream: &TcpStream) -> std::io::Result<()> {
    let text = format!("thread {} serves you\n", Handle::current().index());
    stream.write_all(text).await.0?;
    let mut buf = Vec::with_capacity(4096);
    loop {
        let (n, data) = stream.read(buf).await.into_result()?;
        if n == 0 {
            return Ok(());
        }
        buf = data;
    }
}
