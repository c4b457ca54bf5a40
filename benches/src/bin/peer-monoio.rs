//! monoio: all but `pingpong`, `file` and `tree`, see the README. `ring=defer` sets its ring up with our flags.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use benches::host::{Host, Monoio, RingSetup};
use benches::{exec, files, serve, splice, timer};
use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt, Splitable, zero_copy};
use monoio::net::{TcpListener, TcpStream};
use runtime_limit::Result;
use runtime_limit::args::Args;

fn main() -> ExitCode {
    runtime_limit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    serve::bounds(&mut args)?;
    let setup = args.value("ring", RingSetup::Default)?;
    match args.command() {
        "echo" => Monoio::with(setup)?.block_on(echo(args)),
        "accept" => Monoio::with(setup)?.block_on(accept(args)),
        "exec" => exec::command::<Monoio>(args),
        "timer" => timer::command::<Monoio>(args),
        "relay" => Monoio::with(setup)?.block_on(relay(args)),
        "reads" | "meta" | "writes" => files::command(args, Monoio::with(setup)?),
        "pass" => splice::pass::<Monoio>(args),
        "splice" | "tee" => splice::command(args, Monoio::new),
        _ => Err("usage: peer-monoio echo|accept|exec|timer|relay|pass|splice|reads|meta|writes key=value…".into()),
    }
}

async fn echo(mut args: Args) -> Result<()> {
    let buffer_len = args.value("buf", 16 << 10)?;
    serve::expect(&mut args, "requests")?;
    let listener = listen(args)?;
    loop {
        let (stream, _) = listener.accept().await?;
        monoio::spawn(connection(stream, buffer_len));
    }
}

async fn connection(mut stream: TcpStream, buffer_len: usize) {
    let mut buffer = Vec::with_capacity(buffer_len);
    loop {
        let (read, filled) = stream.read(buffer).await;
        let Ok(1..) = read else { return };
        let (written, filled) = stream.write_all(filled).await;
        if written.is_err() {
            return;
        }
        serve::count_or_exit("requests");
        buffer = filled;
        buffer.clear();
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

/// Pairs of connections, the client's first, with its `zero_copy`: the ring's SPLICE through a pipe.
async fn relay(args: Args) -> Result<()> {
    let listener = listen(args)?;
    loop {
        let (a, b) = (listener.accept().await?.0, listener.accept().await?.0);
        let ((mut a_read, mut a_write), (mut b_read, mut b_write)) = (a.into_split(), b.into_split());
        monoio::spawn(async move {
            zero_copy(&mut a_read, &mut b_write).await?;
            b_write.shutdown().await
        });
        monoio::spawn(async move {
            zero_copy(&mut b_read, &mut a_write).await?;
            a_write.shutdown().await
        });
    }
}

fn listen(mut args: Args) -> Result<TcpListener> {
    let listener = serve::listen(&mut args)?;
    args.finish()?;
    Ok(TcpListener::from_std(listener)?)
}
