//! tokio, one thread, epoll: `echo`, `accept` and `exec`, see the README.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use benches::host::{Host, Tokio};
use benches::{exec, pingpong, serve, splice, timer};
use runtime_limit::Result;
use runtime_limit::args::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
        "pass" => splice::pass::<Tokio>(args),
        "splice" | "tee" => splice::command(args, Tokio::new),
        _ => Err("usage: peer-tokio echo|accept|exec|timer|pingpong|pass|splice|tee key=value…".into()),
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

fn listen(mut args: Args) -> Result<TcpListener> {
    let listener = serve::listen(&mut args)?;
    args.finish()?;
    listener.set_nonblocking(true)?;
    Ok(TcpListener::from_std(listener)?)
}
