use std::num::ParseIntError;

#[runtime::main]
async fn tail() -> Result<u32, ParseIntError> {
    let number: u32 = "1".parse()?;
    number
}

#[runtime::main]
async fn early() -> u32 {
    if std::env::args().count() > 1 {
        return "one";
    }
    1
}

#[runtime::main]
async fn nothing() -> u32 {
    let number = 1;
    number;
}

#[runtime::main]
async fn no_result() {
    let _number: u32 = "1".parse()?;
}

#[runtime::main]
async fn unit() {
    std::future::ready(1).await
}

fn main() {
    // The generated function has the declared type.
    let _text: &str = early();
}
