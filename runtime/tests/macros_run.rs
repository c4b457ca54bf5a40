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

mod renamed {
    use runtime as rt;

    #[rt::test(crate = "rt")]
    async fn alias() {}

    #[rt::test(crate = "self::rt", entries = 8)]
    async fn relative() {}

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
    struct Future;
    struct u32;
    mod core {}
    mod std {}
    mod runtime {}
    fn run_main() {}
    fn run_test() {}
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

    #[test]
    fn main_runs() {
        assert!(main().is_ok());
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

    #[test]
    fn runs() {
        assert_eq!(pieces(), 3);
        assert_eq!(whole(), 2);
    }
}
