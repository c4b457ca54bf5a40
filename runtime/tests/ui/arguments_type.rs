#[runtime::main(entries = "8")]
async fn main() {}

#[runtime::main(entries = 8u64)]
async fn suffix() {}

#[runtime::main(entries = 8.0)]
async fn float() {}

#[runtime::main(threads = "many")]
async fn many() {}

#[runtime::main(threads = true)]
async fn yes() {}

#[runtime::main(threads = NUMBER)]
async fn constant() {}

#[runtime::main(crate = runtime)]
async fn path() {}

// Every mistake is reported, not only the first.
#[runtime::test(entries = b'8', threads = 1.0, crate = 8)]
async fn test() {}
