#[runtime::main(crate = "")]
async fn main() {}

#[runtime::main(crate = "not a path")]
async fn words() {}

#[runtime::main(crate = "rt<u32>")]
async fn generic() {}
