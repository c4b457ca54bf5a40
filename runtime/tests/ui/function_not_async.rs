#[runtime::main]
fn main() {}

#[runtime::test]
fn test() {}

#[runtime::main]
pub(crate) extern "C" fn exported() -> u32 {
    1
}
