//! A key-value server that speaks lines of text: a buffered reader that finds lines and bounds them, a buffered writer
//! that answers a batch of requests with one write, and a time limit that cuts off who says nothing.
//!
//! ```text
//! cargo run --release --example lines                  # listens on 127.0.0.1:8081
//! cargo run --release --example lines 127.0.0.1:9000   # listens elsewhere
//! nc 127.0.0.1 8081                                    # then type:
//!   set color dark blue      # ok
//!   get color                # dark blue
//!   get size                 # not found
//!   del color                # ok
//!   quit                     # bye, and the connection ends
//! ```
//!
//! Requests may come in one piece or byte by byte, many at once, with `\n` or `\r\n`. A line of more than 4096 bytes is
//! answered with an error and ends the connection, as do one that is not UTF-8 and five minutes of silence.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use runtime::io::{AsyncBufReadExt, AsyncWrite, BufReader, BufWriter};
use runtime::net::{TcpListener, TcpStream};
use runtime::time::timeout;

/// Shared by the tasks of the one thread, so it needs no lock.
type Store = Rc<RefCell<HashMap<String, String>>>;

const MAX_LINE_BYTES: usize = 4096;
const MAX_SILENCE: Duration = Duration::from_secs(300);

#[runtime::main]
async fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let listener = TcpListener::bind(&addr).await?;
    println!("listening on {}", listener.local_addr()?);
    let store = Store::default();
    let mut incoming = listener.incoming();
    while let Some(stream) = incoming.next().await {
        match stream {
            Ok(stream) => drop(runtime::spawn(serve(stream, Rc::clone(&store)))),
            Err(error) => eprintln!("accept: {error}"),
        }
    }
    Ok(())
}

async fn serve(stream: TcpStream, store: Store) {
    if let Err(error) = talk(&stream, &store).await {
        eprintln!("connection: {error}");
    }
}

async fn talk(stream: &TcpStream, store: &Store) -> io::Result<()> {
    // `&TcpStream` reads and writes too, so the two directions need not be split.
    let mut lines = BufReader::new(stream).lines().max_len(MAX_LINE_BYTES);
    let mut answers = BufWriter::new(stream);
    loop {
        // Answers wait for each other as long as requests are here already.
        if !lines.get_ref().buffer().contains(&b'\n') {
            answers.flush().await?;
        }
        let request = match timeout(MAX_SILENCE, lines.next_line()).await {
            Ok(Ok(Some(request))) => request,
            Ok(Ok(None)) => return answers.shutdown().await,
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                answers.write_all(format!("error: {error}\n")).await.0?;
                return part(stream, answers).await;
            }
            Ok(Err(error)) => return Err(error),
            Err(_elapsed) => {
                answers.write_all("error: you say nothing\n").await.0?;
                return part(stream, answers).await;
            }
        };
        let answer = answer(&request, &mut store.borrow_mut());
        let ends = answer == "bye";
        answers.write_all(answer + "\n").await.0?;
        if ends {
            return part(stream, answers).await;
        }
    }
}

/// Says the last word and listens for a moment more: closing with bytes unread is a reset, which may take the last word
/// with it.
async fn part(mut stream: &TcpStream, mut answers: BufWriter<&TcpStream>) -> io::Result<()> {
    answers.shutdown().await?;
    match timeout(Duration::from_secs(1), runtime::io::copy(&mut stream, &mut runtime::io::sink())).await {
        Ok(result) => result.map(drop),
        Err(_elapsed) => Ok(()),
    }
}

fn answer(request: &str, store: &mut HashMap<String, String>) -> String {
    let mut words = request.trim().splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some("set"), Some(key), Some(value)) => {
            store.insert(key.to_owned(), value.to_owned());
            "ok".to_owned()
        }
        (Some("get"), Some(key), None) => store.get(key).cloned().unwrap_or_else(|| "not found".to_owned()),
        (Some("del"), Some(key), None) => match store.remove(key) {
            Some(_) => "ok".to_owned(),
            None => "not found".to_owned(),
        },
        (Some("quit"), None, None) => "bye".to_owned(),
        _ => "error: say `set KEY VALUE`, `get KEY`, `del KEY` or `quit`".to_owned(),
    }
}
