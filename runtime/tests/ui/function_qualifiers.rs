#[runtime::main]
async unsafe fn start() {}

#[runtime::test]
const fn constant() {}

fn main() {}
