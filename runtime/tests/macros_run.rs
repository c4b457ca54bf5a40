//! What functions under the macros do when they run.
//!
//! Knows the macros only from outside. What they say about code that does not compile is in
//! `macros_ui`.

use std::cell::Cell;
use std::rc::Rc;

/// A body that never runs would pass every test but one that has to panic.
mod results {
    #[runtime::test]
    async fn unit() {
        assert_eq!(super::later(1).await, 1);
    }

    #[runtime::test]
    async fn ok() -> Result<(), std::num::ParseIntError> {
        let number: u32 = "7".parse()?;
        assert_eq!(super::later(number).await, 7);
        Ok(())
    }

    #[runtime::test]
    #[should_panic(expected = "the body ran")]
    async fn panics() {
        super::later(()).await;
        panic!("the body ran");
    }

    #[runtime::main]
    async fn fails() -> Result<u32, std::num::ParseIntError> {
        let number: u32 = "seven".parse()?;
        unreachable!("{number} came from a word");
    }

    #[test]
    fn error_reaches_the_caller() {
        assert!(fails().is_err());
    }
}

/// Gives the value back after one trip through the executor.
async fn later<T>(value: T) -> T {
    let mut first = true;
    let mut value = Some(value);
    std::future::poll_fn(move |context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        value.take().map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    })
    .await
}

mod attributes {
    #[runtime::test]
    #[cfg(any())]
    async fn configured_away() {
        this_would_not_compile
    }

    /// A doc comment is an attribute, too.
    #[runtime::test]
    #[expect(non_snake_case, reason = "shows that lint levels reach the function and its body")]
    async fn Named() {
        let Inside = super::later(2).await;
        assert_eq!(Inside, 2);
    }

    #[runtime::test]
    async fn inner_attributes() {
        #![expect(unused_variables, reason = "shows that the attribute is still in the body")]
        let unused = 1;
    }
}

mod called {
    use super::{Cell, Rc, later};

    #[runtime::main]
    async fn helper() -> u32 {
        later(40).await + 2
    }

    #[runtime::main]
    pub(crate) async fn not_send() -> Rc<Cell<u32>> {
        let shared = Rc::new(Cell::new(0));
        shared.set(later(9).await);
        shared
    }

    #[runtime::main]
    async fn opaque() -> impl Iterator<Item = u32> {
        later(0..3).await
    }

    #[runtime::main]
    async fn early(/* comments are no arguments */) -> Option<u32> {
        let number = later(Some(3)).await?;
        if later(number).await == 3 {
            return None;
        }
        Some(number)
    }

    #[runtime::main]
    async fn borrowed() -> &'static str {
        later("static").await
    }

    /// Calls the generated function, not the one it is generated from.
    #[runtime::main]
    async fn address() -> fn() -> u32 {
        helper
    }

    struct Service;

    impl Service {
        #[runtime::main]
        async fn run() -> Service {
            later(Service).await
        }
    }

    #[test]
    fn as_plain_functions() {
        assert_eq!(helper(), 42);
        assert_eq!(helper(), 42, "the second runtime on this thread");
        assert_eq!(not_send().get(), 9);
        assert_eq!(opaque().sum::<u32>(), 3);
        assert_eq!(early(), None);
        assert_eq!(borrowed(), "static");
        assert_eq!(address()(), 42);
        let Service = Service::run();
    }

    #[test]
    #[should_panic(expected = "out of the body")]
    fn panic_reaches_the_caller() {
        #[runtime::main]
        async fn panics() {
            later(()).await;
            panic!("out of the body");
        }
        panics();
    }
}

mod arguments {
    const ENTRIES: u32 = 8;

    #[runtime::test(entries = 8)]
    async fn literal() {}

    #[runtime::test(entries = 0x10_u32, threads = 1)]
    async fn suffixed() {}

    #[runtime::test(entries = ENTRIES * 2, threads = 1,)]
    async fn constant() {}

    #[runtime::test(entries = { const ENTRIES: u32 = 4; ENTRIES })]
    async fn block() {}

    #[runtime::test()]
    async fn none() {}
}

mod threads {
    use std::process::ExitCode;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use runtime::Handle;

    #[runtime::test(threads = 2)]
    async fn each_has_its_index() {
        let here = Handle::current();
        assert!(here.index() < 2);
        assert_eq!(here.threads(), 2);
        assert_eq!(std::thread::current().name(), Some(&*format!("runtime-{}", here.index())));
    }

    #[runtime::test(threads = "auto", pin = true, entries = 8)]
    async fn auto() -> Result<(), std::num::ParseIntError> {
        let one: usize = "1".parse()?;
        assert!(Handle::current().threads() >= one);
        Ok(())
    }

    #[runtime::test(threads = 1)]
    async fn one_is_the_calling_thread() {
        assert!(std::thread::current().name().unwrap().ends_with("one_is_the_calling_thread"));
        assert_eq!(Handle::current().threads(), 1);
    }

    #[runtime::test(threads = 1, pin = true)]
    async fn one_of_its_own() {
        assert_eq!(std::thread::current().name(), Some("runtime-0"));
    }

    #[runtime::test(threads = 3)]
    #[should_panic(expected = "on thread 2")]
    async fn a_panic_of_any_thread_fails_the_test() {
        let here = Handle::current();
        if here.index() == 2 {
            panic!("on thread {}", here.index());
        }
        here.stopped().await;
    }

    static BODIES: AtomicUsize = AtomicUsize::new(0);

    #[runtime::main(threads = 4)]
    async fn count() {
        BODIES.fetch_add(1, Ordering::SeqCst);
        super::later(()).await;
    }

    #[runtime::main(threads = 2)]
    async fn fails() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let here = Handle::current();
        if here.index() == 0 {
            here.stopped().await;
            return Ok(());
        }
        Err("of thread 1".into())
    }

    #[runtime::main(threads = 2)]
    async fn exits() -> ExitCode {
        match Handle::current().index() {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(3),
        }
    }

    #[test]
    fn as_plain_functions() {
        count();
        assert_eq!(BODIES.load(Ordering::SeqCst), 4);
        assert_eq!(fails().unwrap_err().to_string(), "of thread 1");
        assert_eq!(exits(), ExitCode::from(3));
    }
}

mod renamed {
    use runtime as rt;

    #[rt::test(crate = "rt")]
    async fn alias() {}

    #[rt::test(crate = "self::rt", entries = 8)]
    async fn relative() {}

    #[rt::test(crate = "rt", threads = "auto")]
    async fn on_threads() {}

    #[test]
    fn in_a_function() {
        use runtime as local;

        #[local::main(crate = "local")]
        async fn helper() -> u32 {
            4
        }
        assert_eq!(helper(), 4);
    }

    mod reexported {
        pub(super) use runtime::*;

        #[main(crate = "self")]
        async fn helper() -> u32 {
            6
        }

        mod deeper {
            #[super::test(crate = "super")]
            async fn sees_the_parent() {
                // A runtime of its own: not inside this one.
                assert_eq!(std::thread::spawn(super::helper).join().unwrap(), 6);
            }
        }

        #[::core::prelude::v1::test]
        fn from_inside() {
            assert_eq!(helper(), 6);
        }
    }

    mod deep {
        #[super::rt::main(crate = "crate::renamed::rt")]
        async fn helper() -> u32 {
            5
        }

        #[test]
        fn from_the_root() {
            assert_eq!(helper(), 5);
        }
    }
}

/// Every name that the expansion could pick up from its surroundings means something else here.
mod shadowed {
    #![allow(dead_code, non_camel_case_types, reason = "the names are here to be in the way")]
    #![expect(unused_macros, reason = "the expansion must not use this `panic`")]

    struct Result;
    struct Option;
    struct Builder;
    struct Threads;
    struct Handle;
    struct Future;
    struct u32;
    mod core {}
    mod std {}
    mod runtime {}
    fn run_main() {}
    fn run_test() {}
    fn run_main_on_threads() {}
    fn run_test_on_threads() {}
    macro_rules! panic {
        () => {};
    }

    const ENTRIES: ::core::primitive::u32 = 8;

    #[::runtime::test(entries = ENTRIES)]
    async fn test() {
        assert_eq!(ENTRIES, 8);
    }

    #[::runtime::main(entries = 8)]
    async fn main() -> ::core::result::Result<Builder, Option> {
        Ok(Builder)
    }

    #[::runtime::main(threads = "auto", pin = true, entries = ENTRIES)]
    async fn on_threads() -> ::core::result::Result<Builder, Option> {
        Ok(Builder)
    }

    #[::runtime::test(threads = 2)]
    async fn test_on_threads() {}

    #[test]
    fn main_runs() {
        assert!(main().is_ok());
        assert!(on_threads().is_ok());
    }
}

/// Tokens that come through a `macro_rules!` macro can be wrapped in invisible parentheses.
mod generated {
    macro_rules! generate {
        ($vis:vis $name:ident, $entries:literal, $threads:expr, $krate:literal, $ret:ty, $body:block) => {
            #[runtime::main(entries = $entries, threads = $threads, crate = $krate)]
            $vis async fn $name() -> $ret $body
        };
    }

    generate!(pub(crate) pieces, 8, 1, "runtime", u32, { super::later(3).await });

    macro_rules! local {
        ($name:ident) => {
            #[runtime::main]
            async fn $name() -> u32 {
                let local = 1;
                local + super::later(local).await
            }
        };
    }

    local!(whole);

    macro_rules! on_threads {
        ($name:ident, $threads:literal, $ret:ty, $body:block) => {
            #[runtime::main(threads = $threads)]
            async fn $name() -> $ret $body
        };
    }

    on_threads!(two, 2, Result<u32, u32>, { Err(super::later(5).await) });

    #[test]
    fn runs() {
        assert_eq!(pieces(), 3);
        assert_eq!(whole(), 2);
        assert_eq!(two(), Err(5));
    }
}
