#![deny(dead_code, missing_docs, non_snake_case, unused_must_use, unused_variables)]
//! Lints about the function mean the user's: each is told once, and at the user's tokens.

#[runtime::main]
async fn nobody_calls_this() {}

#[runtime::main]
pub async fn undocumented() {}

/// A name that is not in snake case.
#[runtime::main]
pub async fn BadName() {
    let unused = 1;
}

/// A result that has to be used.
#[runtime::main]
#[must_use]
pub async fn must_use() -> u32 {
    1
}

#[runtime::main]
async fn main() {
    must_use();
    undocumented();
    std::future::ready(());
}
