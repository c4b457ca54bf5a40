#[runtime::main(entries = 8, threads = 1, entries = 8)]
async fn main() {}

#[runtime::test(crate = "runtime", crate = "runtime", crate = 1)]
async fn test() {}
