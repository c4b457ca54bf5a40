//! Sends back what each client sends, from one multishot accept stream, without a buffer of its own.
//!
//! ```text
//! cargo run --release --example echo                  # listens on 127.0.0.1:8080
//! cargo run --release --example echo 127.0.0.1:9000   # listens elsewhere
//! nc 127.0.0.1 8080                                   # type a line, see it again
//! ```

use runtime::net::{TcpListener, TcpStream};

#[runtime::main]
async fn main() -> std::io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&addr).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut incoming = listener.incoming();
    while let Some(stream) = incoming.next().await {
        match stream {
            Ok(stream) => drop(runtime::spawn(serve(stream))),
            // Out of descriptors, for example: the stream goes on by itself after a pause.
            Err(error) => eprintln!("accept: {error}"),
        }
    }
    Ok(())
}

async fn serve(stream: TcpStream) {
    if let Err(error) = echo(&stream).await {
        eprintln!("connection: {error}");
    }
}

async fn echo(stream: &TcpStream) -> std::io::Result<()> {
    loop {
        // Received in memory of the runtime's pool, sent from there, and given back when the write is over.
        let data = stream.recv().await?;
        if data.is_empty() {
            return Ok(());
        }
        stream.write_all(data).await.0?;
    }
}
