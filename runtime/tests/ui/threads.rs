#[runtime::main(threads = 2)]
async fn main() {}

#[runtime::main(entries = 8, threads = "auto", crate = "runtime")]
async fn auto() {}

#[runtime::main(threads = 1, pin = true)]
async fn pinned() {}

#[runtime::main(threads = 8, pin = false)]
async fn both() {}

#[runtime::main(pin = true)]
async fn pin_alone() {}

#[runtime::main(threads = 1, pin = "yes")]
async fn pin_type() {}

#[runtime::main(threads = 0)]
async fn none() {}

#[runtime::test(threads = 2)]
async fn test() {}
