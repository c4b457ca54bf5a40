#[runtime::main(entries = UNKNOWN)]
async fn main() {}
