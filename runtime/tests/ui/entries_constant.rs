const NONE: u32 = 0;
const USIZE: usize = 8;

fn eight() -> u32 {
    8
}

#[runtime::main(entries = NONE)]
async fn main() {}

#[runtime::main(entries = 1 << 20)]
async fn too_many() {}

#[runtime::main(entries = USIZE)]
async fn wrong_type() {}

#[runtime::main(entries = eight())]
async fn not_constant() {}
