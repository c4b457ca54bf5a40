//! Tells the two macros apart.
//!
//! Owns every difference between `main` and `test`. Does not know what they have in common.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::Attribute;

/// Which of the two macros is expanded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Main,
    Test,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Test => "test",
        }
    }

    /// The function of the runtime crate that runs the body, on the calling thread or on threads of its own.
    pub(crate) fn runner(self, on_threads: bool, site: Span) -> Ident {
        let name = match (self, on_threads) {
            (Self::Main, false) => "run_main",
            (Self::Main, true) => "run_main_on_threads",
            (Self::Test, false) => "run_test",
            (Self::Test, true) => "run_test_on_threads",
        };
        Ident::new(name, site)
    }

    /// The attribute that the generated function has and the user's had not.
    pub(crate) fn attribute(self) -> TokenStream {
        match self {
            Self::Main => TokenStream::new(),
            Self::Test => quote_spanned!(Span::mixed_site()=> #[::core::prelude::v1::test]),
        }
    }

    /// Whether the attribute registers the function with the test harness once more.
    pub(crate) fn is_repeated_by(self, attr: &Attribute) -> bool {
        self == Self::Test && attr.path().segments.last().is_some_and(|last| last.ident == "test")
    }
}
