#[runtime::main(crate = "rt")]
async fn main() {}

mod inner {
    #[runtime::main(crate = "crate::rt")]
    async fn helper() {}
}
