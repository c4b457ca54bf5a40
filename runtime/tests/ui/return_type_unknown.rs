#[runtime::main]
async fn main() -> Unknown {
    1
}
