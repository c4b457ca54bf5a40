#[runtime::test]
#[test]
async fn test() {}

#[runtime::test]
#[runtime::test]
async fn runtime_test() {}

fn main() {}
