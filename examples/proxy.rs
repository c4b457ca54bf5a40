//! Passes TCP connections on to another server, by splicing or by copying.
//!
//! ```text
//! cargo run --release --example proxy 127.0.0.1:8080 127.0.0.1:9000            # changes to splice(2) when much flows
//! cargo run --release --example proxy 127.0.0.1:8080 127.0.0.1:9000 --copy     # only copies
//! cargo run --release --example proxy 127.0.0.1:8080 127.0.0.1:9000 --splice   # splices from the start
//! nc -l 9000                                                                   # the server, elsewhere
//! nc 127.0.0.1 8080                                                            # a client: both type, both see
//! ```
//!
//! It says how many bytes went which way when a connection ends. One on which nothing moves for five minutes is closed.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use runtime::net::{TcpListener, TcpStream};
use runtime::pipe::Relay;

const IDLE: Duration = Duration::from_secs(300);

#[runtime::main]
async fn main() -> io::Result<ExitCode> {
    let mut relay = Relay::new().idle_timeout(IDLE);
    let mut addresses = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--copy" => relay = relay.copy(),
            "--splice" => relay = relay.splice(),
            _ => addresses.push(argument),
        }
    }
    let [from, to] = addresses.as_slice() else {
        eprintln!("usage: proxy LISTEN SERVER [--copy|--splice]");
        return Ok(ExitCode::FAILURE);
    };
    let listener = TcpListener::bind(from).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut incoming = listener.incoming();
    while let Some(client) = incoming.next().await {
        match client {
            Ok(client) => drop(runtime::spawn(serve(client, to.clone(), relay.clone()))),
            Err(error) => eprintln!("accept: {error}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn serve(client: TcpStream, server: String, relay: Relay) {
    let server = match TcpStream::connect(&server).await {
        Ok(server) => server,
        Err(error) => return eprintln!("{server}: {error}"),
    };
    match relay.run(&client, &server).await {
        Ok(relayed) => println!("{} bytes there, {} back", relayed.there, relayed.back),
        Err(error) => println!("{error}"),
    }
}
