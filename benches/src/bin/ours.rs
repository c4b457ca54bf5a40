//! The runtime: all commands, see the README.
//!
//! `threads=N` serves `echo` on N threads. `spin=off` switches the spin before the park off. `echo` and `accept` come to an
//! orderly end after `requests=N` or `conns=N`, and print what the runtime has counted.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};

use benches::host::{Host, Ours};
use benches::{exec, files, pingpong, serve, splice, timer};
use runtime::fs::{self, File};
use runtime::net::{TcpListener, TcpStream};
use runtime::pipe::Relay;
use runtime::{Builder, Handle, pipe};
use runtime_limit::Result;
use runtime_limit::args::Args;
use runtime_limit::meter::Meter;

fn main() -> ExitCode {
    runtime_limit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    serve::bounds(&mut args)?;
    let threads: usize = args.value("threads", 1)?;
    if threads > 1 {
        return group(threads, args);
    }
    let spins = args.value("spin", "on".to_owned())? == "on";
    let mut ours = if spins { Ours::new()? } else { Ours::without_spin()? };
    match args.command() {
        "echo" => ours.block_on(echo(args)),
        "accept" => ours.block_on(accept(args)),
        // It makes a runtime of its own.
        "exec" => exec::command::<Ours>(args),
        "timer" => timer::command::<Ours>(args),
        "pingpong" => pingpong::command(args, move || if spins { Ours::new() } else { Ours::without_spin() }),
        "relay" => ours.block_on(relay(args)),
        "file" => ours.block_on(file(args)),
        "reads" | "meta" | "writes" => files::command(args, ours),
        "tree" => ours.block_on(tree(args)),
        "pass" => ours.block_on(pass(args)),
        "splice" | "tee" => splice::command(args, if spins { Ours::new } else { Ours::without_spin }),
        _ => Err(
            "usage: ours echo|accept|exec|timer|pingpong|relay|file|pass|splice|tee|reads|meta|writes|tree key=value…"
                .into(),
        ),
    }
}

async fn echo(mut args: Args) -> Result<()> {
    let buffer_len = args.value("buf", 16 << 10)?;
    let pooled = args.value("pooled", false)?;
    serve::expect(&mut args, "requests")?;
    let listener = listen(args)?;
    runtime::spawn(async move {
        let mut incoming = listener.incoming();
        while let Some(stream) = incoming.next().await {
            let stream = accepted(stream);
            if pooled {
                runtime::spawn(pooled_connection(stream));
            } else {
                runtime::spawn(connection(stream, buffer_len));
            }
        }
    });
    print_counts("requests", serve::last_counted().await);
    Ok(())
}

/// `echo` on several threads that share the port. It goes on until it is stopped.
fn group(threads: usize, mut args: Args) -> Result<()> {
    let (port, buffer_len) = (args.value("port", 0u16)?, args.value("buf", 16 << 10)?);
    args.finish()?;
    let all_listen = Arc::new(Barrier::new(threads));
    let served = Builder::new().threads(threads).run(move |here: Handle| {
        let all_listen = Arc::clone(&all_listen);
        async move {
            let listener = TcpListener::bind(("127.0.0.1", port)).await?;
            // Or whoever listens first would get all connections of the load.
            all_listen.wait();
            if here.index() == 0 {
                serve::ready(listener.local_addr()?.port());
            }
            let mut incoming = listener.incoming();
            while let Some(stream) = incoming.next().await {
                runtime::spawn(connection(stream?, buffer_len));
            }
            std::io::Result::Ok(())
        }
    });
    served?;
    Ok(())
}

async fn connection(stream: TcpStream, buffer_len: usize) {
    let mut buffer = Vec::with_capacity(buffer_len);
    loop {
        let read = stream.read(buffer).await;
        let Ok(1..) = read.0 else { return };
        let written = stream.write_all(read.1).await;
        if written.0.is_err() {
            return;
        }
        serve::count();
        buffer = written.1;
        buffer.clear();
    }
}

async fn pooled_connection(stream: TcpStream) {
    loop {
        let Ok(data) = stream.recv().await else { return };
        if data.is_empty() || stream.write_all(data).await.0.is_err() {
            return;
        }
        serve::count();
    }
}

async fn accept(mut args: Args) -> Result<()> {
    serve::expect(&mut args, "conns")?;
    let mut held = serve::Held::new(&mut args)?;
    let listener = listen(args)?;
    runtime::spawn(async move {
        let mut incoming = listener.incoming();
        while let Some(stream) = incoming.next().await {
            held.keep_counting(accepted(stream), || runtime::metrics().enters);
            serve::count();
        }
    });
    print_counts("accepted", serve::last_counted().await);
    Ok(())
}

/// Pairs of connections, the client's first: `way=auto`, or only `copy` or `splice`.
async fn relay(mut args: Args) -> Result<()> {
    let relay = match args.value("way", "auto".to_owned())?.as_str() {
        "auto" => Relay::new(),
        "copy" => Relay::new().copy(),
        "splice" => Relay::new().splice(),
        _ => return Err("way= is auto, copy or splice".into()),
    };
    let listener = listen(args)?;
    loop {
        let (a, b) = (listener.accept().await?.0, listener.accept().await?.0);
        let relay = relay.clone();
        runtime::spawn(async move { relay.run(&a, &b).await.map(drop) });
    }
}

/// A file for whoever connects and asks: `way=send`, or `copy` with a buffer of 64 KiB.
async fn file(mut args: Args) -> Result<()> {
    let path: String = args.optional("path")?.ok_or("path= is missing")?;
    let sends = match args.value("way", "send".to_owned())?.as_str() {
        "send" => true,
        "copy" => false,
        _ => return Err("way= is send or copy".into()),
    };
    let listener = listen(args)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let path = path.clone();
        runtime::spawn(async move {
            stream.read(Vec::with_capacity(1024)).await.0?;
            let file = File::open(path).await?;
            if sends {
                return pipe::send_file(&file, 0, u64::MAX >> 1, &stream).await.map(drop);
            }
            let (mut buffer, mut at) = (Vec::with_capacity(64 << 10), 0);
            loop {
                buffer.clear();
                let n;
                (n, buffer) = file.read_at(buffer, at).await.into_result()?;
                if n == 0 {
                    return Ok(());
                }
                buffer = stream.write_all(buffer).await.into_result()?.1;
                at += n as u64;
            }
        });
    }
}

/// As `splice::pass`, with its own reads and writes too.
async fn pass(mut args: Args) -> Result<()> {
    let (size, mut meter) = (splice::size(&mut args)?, Meter::new(&mut args)?);
    args.finish()?;
    let ((tx, from), (to, rx)) = (pipe::pipe()?, pipe::pipe()?);
    let (mut message, mut buffer) = (vec![7; size], Vec::with_capacity(size));
    while meter.goes_on() {
        meter.begin()?;
        for _ in 0..64 {
            message = tx.write_all(message).await.into_result()?.1;
            splice::whole(pipe::splice(&from, &to, size).await?, size)?;
            let n;
            (n, buffer) = rx.read(buffer).await.into_result()?;
            splice::whole(n, size)?;
        }
        meter.end(64)?;
    }
    meter.print("pass");
    Ok(())
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
            let mut found = fs::read_dir(dir).await?;
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
    Ok(TcpListener::from_std(listener)?)
}

/// A figure of a server that could not accept is worth nothing, so the process ends.
fn accepted(stream: std::io::Result<TcpStream>) -> TcpStream {
    stream.unwrap_or_else(|error| {
        eprintln!("accept: {error}");
        std::process::exit(1);
    })
}

fn print_counts(unit: &str, count: u64) {
    let metrics = runtime::metrics();
    println!(
        "COUNTS {unit}={count} enters={} submissions={} completions={} polls={} accepting={}",
        metrics.enters,
        metrics.submissions,
        metrics.completions,
        metrics.polls,
        serve::accepting_enters()
    );
}
