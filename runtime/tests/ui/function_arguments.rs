// The callers know what the function returns, whatever is wrong with it.
#[runtime::main]
async fn helper(mut one: u32, _two: &str) -> u32 {
    one += std::future::ready(1).await;
    one
}

#[runtime::test]
async fn test(argument: u32) {}

#[runtime::main]
async fn main(arguments: Vec<String>) {
    let _sum: u32 = helper(1, "two") + helper(3, "four");
}
