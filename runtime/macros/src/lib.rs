//! The attribute macros [`macro@main`] and [`macro@test`] of the `runtime` crate.
//!
//! Use them through that crate, as `#[runtime::main]` and `#[runtime::test]`: what they generate
//! calls back into it, so this crate is of no use alone.
//!
//! This file owns the two entry points and their documentation. It does not know how arguments
//! are read (`args`, `threads`), which functions are accepted (`function`), or what is generated
//! (`expand`).
#![forbid(unsafe_code)]

mod args;
mod errors;
mod expand;
mod function;
mod kind;
mod threads;

use proc_macro::TokenStream;

use crate::expand::expand;
use crate::kind::Kind;

/// Runs an `async fn` to its end on a runtime of its own.
///
/// The function keeps its name, its visibility, its attributes and its return type, and stops
/// being `async`: calling it builds a runtime on the current thread, runs the body there, and
/// returns what the body returned.
///
/// ```no_run
/// #[runtime::main]
/// async fn main() {
///     println!("this runs on the ring");
/// }
/// ```
///
/// Whatever `fn main` may return, this may return too:
///
/// ```no_run
/// #[runtime::main]
/// async fn main() -> Result<(), std::num::ParseIntError> {
///     let answer: u32 = "42".parse()?;
///     println!("{answer}");
///     Ok(())
/// }
/// ```
///
/// The example above is short for this:
///
/// ```no_run
/// fn main() -> Result<(), std::num::ParseIntError> {
///     async fn body() -> Result<(), std::num::ParseIntError> {
///         let answer: u32 = "42".parse()?;
///         println!("{answer}");
///         Ok(())
///     }
///     runtime::__private::run_main(runtime::Builder::new(), body())
/// }
/// ```
///
/// # Arguments
///
/// | argument | value | default | meaning |
/// |---|---|---|---|
/// | `entries` | a `u32` from 1 to 32768: a literal, or a constant expression | the builder's | how many submissions the ring holds before it has to be entered |
/// | `threads` | a literal from 1, or `"auto"` | | on how many threads the body runs, see below |
/// | `pin` | `true` or `false` | `false` | whether each of these threads stays on one CPU |
/// | `crate` | a path in a string | `"::runtime"` | where to find the `runtime` crate |
///
/// A constant expression is checked against the same range while the program compiles.
///
/// ```no_run
/// const ENTRIES: u32 = 64 * 16;
///
/// #[runtime::main(entries = ENTRIES)]
/// async fn main() {}
/// ```
///
/// # Threads
///
/// With `threads` the body runs once on each of so many threads, each with a ring of its own:
///
/// ```no_run
/// #[runtime::main(threads = "auto")]
/// async fn main() -> std::io::Result<()> {
///     let here = runtime::Handle::current();
///     println!("this is thread {} of {}", here.index(), here.threads());
///     Ok(())
/// }
/// ```
///
/// `"auto"` is as many as this process may run at once. The threads are new ones, and the calling
/// one waits for them. When a body panics or returns an error the others are stopped, and that is
/// what the function ends with; `runtime::Builder::run` says how. The return type is `()`, a
/// `Result` or an `ExitCode`, and `Send`.
///
/// `threads = 1` runs the body on the calling thread, as without the argument; with
/// `pin = true` it gets a thread of its own, so that the calling one is not pinned.
///
/// # The name of the crate
///
/// `crate` is needed when the crate is known by another name, which happens with a renamed
/// dependency or when another crate re-exports it:
///
/// ```no_run
/// mod server {
///     pub use runtime as rt;
/// }
///
/// #[server::rt::main(crate = "crate::server::rt")]
/// async fn main() {}
/// ```
///
/// # When the runtime does not start
///
/// A kernel without `io_uring`, a sandbox that forbids it, or a limit on locked memory can keep
/// the runtime from starting. The program then prints one line about it to standard error and
/// exits with code 1; the body does not run. To handle the failure in another way, build the
/// runtime with `runtime::Builder` instead of this macro.
///
/// # Functions that are not `main`
///
/// The name is not checked. Any function without arguments, generics and `self` is accepted, and
/// can be called from a `main` that has work to do before there is a runtime:
///
/// ```no_run
/// #[runtime::main]
/// async fn serve() -> u32 {
///     7
/// }
///
/// fn main() {
///     // A plain call, without `.await`.
///     assert_eq!(serve(), 7);
/// }
/// ```
///
/// Such a function must not be called from inside a runtime: it would block the thread that the
/// other tasks need.
///
/// The body becomes a function inside the function. One consequence shows in an `impl` block:
/// neither the body nor the return type can say `Self`, so write the type's name there.
///
/// # What is rejected
///
/// A function that is not `async`, that has arguments, a receiver or generics, or that is
/// `const` or `unsafe` does not compile; the message points at the part that does not fit:
///
/// ```compile_fail
/// #[runtime::main]
/// async fn main(arguments: Vec<String>) {}
/// ```
///
/// An argument that is unknown, given twice, or of the wrong type does not compile either:
///
/// ```compile_fail
/// #[runtime::main(entries = 0)]
/// async fn main() {}
/// ```
#[proc_macro_attribute]
pub fn main(attr: TokenStream, item: TokenStream) -> TokenStream {
    expand(Kind::Main, attr.into(), item.into()).into()
}

/// Makes a test of an `async fn`, and runs it on a runtime of its own.
///
/// Every test gets a new runtime on the thread the test harness gave it, so tests share no ring
/// and no timers, and can run side by side.
///
/// ```
/// async fn double(number: u32) -> u32 {
///     number * 2
/// }
///
/// #[runtime::test]
/// async fn doubles() {
///     assert_eq!(double(21).await, 42);
/// }
/// ```
///
/// A test can return a `Result`, and fails when that is an error:
///
/// ```
/// #[runtime::test]
/// async fn parses() -> Result<(), std::num::ParseIntError> {
///     let answer: u32 = "42".parse()?;
///     assert_eq!(answer, 42);
///     Ok(())
/// }
/// ```
///
/// The macro adds the `#[test]` attribute itself. All other attributes stay on the function and
/// mean what they always mean:
///
/// ```
/// #[runtime::test]
/// #[should_panic(expected = "too small")]
/// #[cfg_attr(not(target_os = "linux"), ignore)]
/// async fn refuses_zero() {
///     panic!("too small");
/// }
/// ```
///
/// # Arguments
///
/// | argument | value | default | meaning |
/// |---|---|---|---|
/// | `entries` | a `u32` from 1 to 32768: a literal, or a constant expression | the builder's | how many submissions the ring holds before it has to be entered |
/// | `threads` | a literal from 1, or `"auto"` | | on how many threads the body runs |
/// | `pin` | `true` or `false` | `false` | whether each of these threads stays on one CPU |
/// | `crate` | a path in a string | `"::runtime"` | where to find the `runtime` crate |
///
/// They are the arguments of [`macro@main`], with the same checks. With `threads` the test passes
/// when all bodies do:
///
/// ```
/// #[runtime::test(threads = 2)]
/// async fn there_are_two() {
///     assert!(runtime::Handle::current().index() < 2);
/// }
/// ```
///
/// A small ring is a cheap way to
/// see what happens when it is full:
///
/// ```
/// #[runtime::test(entries = 1)]
/// async fn works_with_a_full_ring() {}
/// ```
///
/// # When the runtime does not start
///
/// The test fails with the reason: a kernel or a sandbox without `io_uring` must not look like
/// a test that passed.
///
/// # What is rejected
///
/// What [`macro@main`] rejects, and a second `#[test]` attribute, with which the test would run
/// twice:
///
/// ```compile_fail
/// #[runtime::test]
/// #[test]
/// async fn runs_twice() {}
/// ```
#[proc_macro_attribute]
pub fn test(attr: TokenStream, item: TokenStream) -> TokenStream {
    expand(Kind::Test, attr.into(), item.into()).into()
}
