//! glommio: all but those on pipes, `relay`, `file` and `tree`, see the README.
//!
//! It takes no listener of std without `unsafe`, so it binds its own: backlog 1024, TCP_NODELAY per connection.

#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::process::ExitCode;

use benches::host::{Glommio, Host};
use benches::{exec, files, pingpong, serve, timer};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use runtime_limit::Result;
use runtime_limit::args::Args;

fn main() -> ExitCode {
    runtime_limit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    serve::bounds(&mut args)?;
    match args.command() {
        "echo" => Glommio::new()?.block_on(echo(args)),
        "accept" => Glommio::new()?.block_on(accept(args)),
        "exec" => exec::command::<Glommio>(args),
        "timer" => timer::command::<Glommio>(args),
        "pingpong" => pingpong::command(args, Glommio::new),
        "reads" | "meta" | "writes" => files::command(args, Glommio::new()?),
        _ => Err("usage: peer-glommio echo|accept|exec|timer|pingpong|reads|meta|writes key=value…".into()),
    }
}

async fn echo(mut args: Args) -> Result<()> {
    let buffer_len = args.value("buf", 16 << 10)?;
    serve::expect(&mut args, "requests")?;
    let listener = listen(args)?;
    loop {
        let stream = listener.accept().await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        glommio::spawn_local(connection(stream, buffer_len)).detach();
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
        held.keep(listener.accept().await.map_err(|error| error.to_string())?);
        serve::count_or_exit("accepted");
    }
}

fn listen(mut args: Args) -> Result<TcpListener> {
    let port = args.value("port", 0)?;
    args.finish()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| error.to_string())?;
    serve::ready(listener.local_addr().map_err(|error| error.to_string())?.port());
    Ok(listener)
}
