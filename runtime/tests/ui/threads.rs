#[runtime::main(pin = true)]
async fn pin_alone() {}

#[runtime::main(pin = false)]
async fn no_pin_alone() {}

#[runtime::main(threads = 1, pin = "yes")]
async fn pin_type() {}

#[runtime::main(threads = 0)]
async fn none() {}

#[runtime::main(threads = 2.5)]
async fn fraction() {}

#[runtime::main(threads = "all")]
async fn all() {}

#[runtime::main(threads = -1)]
async fn negative() {}

const COUNT: usize = 2;

#[runtime::test(threads = COUNT)]
async fn constant() {}

#[runtime::main(threads = 2, threads = "auto", pin = 1)]
async fn main() {}
