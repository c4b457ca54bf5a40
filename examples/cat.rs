//! Writes files, or what comes in, to the standard output, without the program touching the bytes where the kernel can
//! move them.
//!
//! ```text
//! cargo run --release --example cat Cargo.toml README.md         # files, without a copy if the output is a pipe
//! seq 1000000 | cargo run --release --example cat | tail -n 1    # from pipe to pipe: splice(2) on the thread itself
//! cargo run --release --example cat                              # a terminal: line by line, up to Ctrl-D
//! cargo run --release --example cat README.md - < Cargo.toml     # `-` is the standard input
//! ```

use std::io;
use std::process::ExitCode;

use runtime::fs::File;
use runtime::io::{copy, stderr, stdin, stdout};

#[runtime::main]
async fn main() -> io::Result<ExitCode> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        arguments.push("-".to_owned());
    }
    let mut code = ExitCode::SUCCESS;
    for name in arguments {
        match cat(&name).await {
            Ok(()) => {}
            // Nobody reads any more, as in `cat large | head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            Err(error) => {
                stderr()?.write_all(format!("{name}: {error}\n")).await.0?;
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

async fn cat(name: &str) -> io::Result<()> {
    // `copy` chooses the way: it knows what these are.
    match name {
        "-" => copy(&mut stdin()?, &mut stdout()?).await?,
        path => copy(&mut File::open(path).await?, &mut stdout()?).await?,
    };
    Ok(())
}
