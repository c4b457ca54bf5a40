//! Sends one file to each client, without the program touching its bytes and without a thread per client.
//!
//! ```text
//! cargo run --release --example send_file README.md                  # listens on 127.0.0.1:8080
//! cargo run --release --example send_file README.md 127.0.0.1:9000   # listens elsewhere
//! nc 127.0.0.1 8080                                                  # see the file
//! ```

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::process::ExitCode;
use std::rc::Rc;

use runtime::net::{TcpListener, TcpStream};
use runtime::pipe::send_file;

#[runtime::main]
async fn main() -> io::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("usage: send_file FILE [LISTEN]");
        return Ok(ExitCode::FAILURE);
    };
    let file = Rc::new(File::open(path)?);
    let listener = TcpListener::bind(arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned())).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut incoming = listener.incoming();
    while let Some(client) = incoming.next().await {
        match client {
            Ok(client) => drop(runtime::spawn(serve(client, Rc::clone(&file)))),
            Err(error) => eprintln!("accept: {error}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn serve(client: TcpStream, file: Rc<File>) {
    let sent = async {
        let sent = send_file(&file, 0, u64::MAX, &client).await?;
        client.shutdown(Shutdown::Write).await?;
        io::Result::Ok(sent)
    };
    match sent.await {
        Ok(sent) => println!("{sent} bytes"),
        Err(error) => println!("connection: {error}"),
    }
}
