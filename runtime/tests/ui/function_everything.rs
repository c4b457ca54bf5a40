// One look at the errors is enough to find all of them.
#[runtime::main(entries = 0, workers = 4)]
fn helper<T>(value: T) -> T {
    value
}

fn main() {
    let _: u32 = helper(1);
}
