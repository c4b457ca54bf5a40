#[runtime::main(worker_threads = 1)]
async fn main() {}

#[runtime::test(entries = 8, flavor = "local", Entries = 8)]
async fn test() {}

// The names are compared as they are written: this is no other way to write `entries`.
#[runtime::main(r#entries = 8)]
async fn raw() {}
