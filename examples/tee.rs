//! Passes its input on to its output and writes it to a file as well. From pipe to pipe the program does not copy
//! anything: tee(2) gives the output the same pages, and splice(2) then moves them into the file.
//!
//! ```text
//! seq 1000000 | cargo run --release --example tee /tmp/numbers | tail -n 1    # pipes
//! cargo run --release --example tee /tmp/lines                                # a terminal: read and written
//! ```

use std::io;
use std::process::ExitCode;

use runtime::fs::File;
use runtime::io::{Stdin, Stdout, stdin, stdout};
use runtime::pipe::{splice_to_file, tee};

/// Bytes that go both ways before more are looked at.
const PIECE: usize = 256 << 10;

#[runtime::main]
async fn main() -> io::Result<ExitCode> {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: tee FILE");
        return Ok(ExitCode::FAILURE);
    };
    let (input, output, file) = (stdin()?, stdout()?, File::create(path).await?);
    match share(&input, &output, &file).await {
        // Not two pipes: nothing was moved.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => copy(&input, &output, &file).await?,
        result => result?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn share(input: &Stdin, output: &Stdout, file: &File) -> io::Result<()> {
    let mut at = 0;
    loop {
        let shared = tee(input, output, PIECE).await?;
        if shared == 0 {
            return Ok(());
        }
        // What the output has now is still in the input, and goes on from there.
        let end = at + shared as u64;
        while at < end {
            at += splice_to_file(input, file, Some(at), (end - at) as usize).await? as u64;
        }
    }
}

async fn copy(input: &Stdin, output: &Stdout, file: &File) -> io::Result<()> {
    let mut at = 0;
    loop {
        let (n, data) = input.read(Vec::with_capacity(PIECE)).await.into_result()?;
        if n == 0 {
            return Ok(());
        }
        let data = output.write_all(data).await.into_result()?.1;
        file.write_all_at(data, at).await.0?;
        at += n as u64;
    }
}
