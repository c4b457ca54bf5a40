#[runtime::main(entries = 0)]
async fn main() {}

#[runtime::main(entries = 32769)]
async fn too_many() {}

#[runtime::main(entries = 4294967296)]
async fn far_too_many() {}

#[runtime::main(entries = -1)]
async fn negative() {}

#[runtime::test(entries = 0u32)]
async fn test() {}
