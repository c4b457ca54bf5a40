//! What the tests of the examples share.

use std::path::PathBuf;
use std::process::Command;

/// The program of an example. Cargo puts it beside the test's own folder, but a run of one test alone does not build it.
pub(crate) fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(name);
    if !path.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "-p", "examples", "--example", name]).status().unwrap();
        assert!(built.success());
    }
    path
}
