//! `async-task` in a bare queue: `exec`, see the README. It is the bound for executors on the same task cell.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use benches::host::Bare;
use benches::{exec, serve};
use runtime_limit::Result;
use runtime_limit::args::Args;

fn main() -> ExitCode {
    runtime_limit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    serve::bounds(&mut args)?;
    match args.command() {
        "exec" => exec::command::<Bare>(args),
        _ => Err("usage: peer-async-task exec key=value…".into()),
    }
}
