#[runtime::main(entries)]
async fn main() {}

#[runtime::main(threads = 1, entries =)]
async fn no_value() {}

#[runtime::main(entries = , threads = 1)]
async fn no_value_in_front() {}

#[runtime::main(entries(8))]
async fn parentheses() {}

#[runtime::main(entries: 8)]
async fn colon() {}

#[runtime::main(8)]
async fn only_a_value() {}

#[runtime::main(runtime::entries = 8)]
async fn path() {}

#[runtime::main(entries = 8 threads = 1)]
async fn no_comma() {}

#[runtime::main = 8]
async fn equals() {}
