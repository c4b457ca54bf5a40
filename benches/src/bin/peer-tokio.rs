//! tokio, one thread, epoll: all commands, see the README.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use benches::host::{Host, Tokio};
use benches::{exec, files, pingpong, serve, splice, timer};
use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::meter::Meter;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};

fn main() -> ExitCode {
    runtime_limit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    serve::bounds(&mut args)?;
    match args.command() {
        "echo" => Tokio::new()?.block_on(echo(args)),
        "accept" => Tokio::new()?.block_on(accept(args)),
        "exec" => exec::command::<Tokio>(args),
        "timer" => timer::command::<Tokio>(args),
        "pingpong" => pingpong::command(args, Tokio::new),
        "relay" => Tokio::new()?.block_on(relay(args)),
        "file" => Tokio::new()?.block_on(file(args)),
        "reads" | "meta" | "writes" => files::command(args, Tokio::new()?),
        "tree" => Tokio::new()?.block_on(tree(args)),
        "pass" => splice::pass::<Tokio>(args),
        "splice" | "tee" => splice::command(args, Tokio::new),
        _ => Err("usage: peer-tokio echo|accept|exec|timer|pingpong|relay|file|pass|splice|tee|reads|meta|writes|tree key=value…".into()),
    }
}

async fn echo(mut args: Args) -> Result<()> {
    let buffer_len = args.value("buf", 16 << 10)?;
    serve::expect(&mut args, "requests")?;
    let listener = listen(args)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(connection(stream, buffer_len));
    }
}

async fn connection(mut stream: TcpStream, buffer_len: usize) {
    let mut buffer = vec![0; buffer_len];
    while let Ok(len @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..len]).await.is_err() {
            return;
        }
        serve::count_or_exit("requests");
    }
}

async fn accept(mut args: Args) -> Result<()> {
    serve::expect(&mut args, "conns")?;
    let mut held = serve::Held::new(&mut args)?;
    let listener = listen(args)?;
    loop {
        held.keep(listener.accept().await?.0);
        serve::count_or_exit("accepted");
    }
}

/// Pairs of connections, the client's first, by way of buffers of `buf` bytes.
async fn relay(mut args: Args) -> Result<()> {
    // Its own default.
    let buffer_len = args.value("buf", 8 << 10)?;
    let listener = listen(args)?;
    loop {
        let (mut a, mut b) = (listener.accept().await?.0, listener.accept().await?.0);
        tokio::spawn(async move { copy_bidirectional_with_sizes(&mut a, &mut b, buffer_len, buffer_len).await });
    }
}

/// A file for whoever connects and asks, by way of a buffer of 64 KiB.
async fn file(mut args: Args) -> Result<()> {
    let path: String = args.optional("path")?.ok_or("path= is missing")?;
    let listener = listen(args)?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let path = path.clone();
        tokio::spawn(async move {
            // Whatever it asks for.
            let _ = stream.read(&mut [0; 1024]).await?;
            let mut file = tokio::fs::File::open(path).await?;
            let mut buffer = vec![0; 64 << 10];
            loop {
                match file.read(&mut buffer).await? {
                    0 => return std::io::Result::Ok(()),
                    n => stream.write_all(&buffer[..n]).await?,
                }
            }
        });
    }
}

/// Walks a tree and asks for the metadata of everything.
async fn tree(mut args: Args) -> Result<()> {
    let path: String = args.optional("path")?.ok_or("path= is missing")?;
    let mut meter = Meter::new(&mut args)?;
    args.finish()?;
    for _ in 0..2 {
        meter.begin()?;
        let (mut dirs, mut entries) = (vec![PathBuf::from(&path)], 0);
        while let Some(dir) = dirs.pop() {
            let mut found = tokio::fs::read_dir(dir).await?;
            while let Some(entry) = found.next_entry().await? {
                entries += 1;
                if entry.metadata().await?.is_dir() {
                    dirs.push(entry.path());
                }
            }
        }
        meter.end(entries)?;
    }
    meter.print("tree");
    Ok(())
}

fn listen(mut args: Args) -> Result<TcpListener> {
    let listener = serve::listen(&mut args)?;
    args.finish()?;
    listener.set_nonblocking(true)?;
    Ok(TcpListener::from_std(listener)?)
}
