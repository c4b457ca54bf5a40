//! What the macros say about code that does not compile, and where they point.
//!
//! Each file in `ui` holds the mistakes of one kind, next to it what the compiler prints. Run
//! with `TRYBUILD=overwrite` to write the latter anew, and read the difference. Does not know
//! what the macros do with code that compiles: `macros_run` does.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
