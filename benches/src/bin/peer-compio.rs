//! compio: all but `relay`, `file` and `tree`, see the README. `ring=defer` sets its ring up with our flags.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use benches::host::{Compio, Host, RingSetup};
use benches::{exec, files, pingpong, serve, splice, timer};
use compio::BufResult;
use compio::io::{AsyncRead, AsyncWriteExt};
use compio::net::{TcpListener, TcpStream};
use runtime_limit::Result;
use runtime_limit::args::Args;

fn main() -> ExitCode {
    runtime_limit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    serve::bounds(&mut args)?;
    let setup = args.value("ring", RingSetup::Default)?;
    match args.command() {
        "echo" => Compio::with(setup)?.block_on(echo(args)),
        "accept" => Compio::with(setup)?.block_on(accept(args)),
        "exec" => exec::command::<Compio>(args),
        "timer" => timer::command::<Compio>(args),
        "pingpong" => pingpong::command(args, Compio::new),
        "reads" | "meta" | "writes" => files::command(args, Compio::with(setup)?),
        "pass" => splice::pass::<Compio>(args),
        "splice" | "tee" => splice::command(args, Compio::new),
        _ => Err("usage: peer-compio echo|accept|exec|timer|pingpong|pass|splice|reads|meta|writes key=value…".into()),
    }
}

async fn echo(mut args: Args) -> Result<()> {
    let buffer_len = args.value("buf", 16 << 10)?;
    serve::expect(&mut args, "requests")?;
    let listener = listen(args)?;
    loop {
        let (stream, _) = listener.accept().await?;
        compio::runtime::spawn(connection(stream, buffer_len)).detach();
    }
}

async fn connection(mut stream: TcpStream, buffer_len: usize) {
    let mut buffer = Vec::with_capacity(buffer_len);
    loop {
        let BufResult(read, filled) = stream.read(buffer).await;
        let Ok(1..) = read else { return };
        let BufResult(written, filled) = stream.write_all(filled).await;
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

fn listen(mut args: Args) -> Result<TcpListener> {
    let listener = serve::listen(&mut args)?;
    args.finish()?;
    Ok(TcpListener::from_std(listener)?)
}
