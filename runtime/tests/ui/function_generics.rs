#[runtime::main]
async fn main<T: Default>() -> T {
    T::default()
}

#[runtime::main]
async fn lifetime<'a>() -> Option<&'a str> {
    None
}

#[runtime::main]
async fn constant<const N: usize>()
where
    [u8; N]: Default,
{
}

#[runtime::test]
async fn clause()
where
    u32: Copy,
{
}

// `impl Trait` as an argument is an argument, not a generic.
#[runtime::main]
async fn implied(_: impl Copy) {}
