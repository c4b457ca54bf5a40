#[runtime::main]
struct Structure;

#[runtime::main]
const VALUE: u32 = 1;

#[runtime::test]
pub mod module {}

trait Trait {
    #[runtime::main]
    async fn declared();
}

fn main() {
    // The items are still there.
    let (_, _) = (Structure, VALUE);
}
