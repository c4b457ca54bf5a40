//! What `threads` and `pin` mean for the expansion.
//!
//! Owns the rules about the two arguments, and whether the body runs on the calling thread or on threads of its own. Does
//! not know how the arguments are written or read (`args` does).

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::Path;

use crate::errors::{Errors, in_argument};

/// How many threads were asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Count {
    /// This many.
    Exactly(usize),
    /// As many as the machine can run at once.
    Auto,
}

/// The two arguments about threads, as they were written.
pub(crate) struct Written<'a> {
    /// Whether `threads` is there at all, and its value if it was one.
    pub(crate) count: Option<Option<Count>>,
    pub(crate) pin: Option<(&'a dyn ToTokens, bool)>,
}

/// What the two arguments ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Threads {
    count: Option<Count>,
    pin: bool,
}

impl Threads {
    /// Adds an error if the two do not go together.
    pub(crate) fn new(written: &Written<'_>, errors: &mut Errors) -> Self {
        if let Written { pin: Some((arg, _)), count: None } = written {
            // It would pin the one thread there is, which is rarely what was meant.
            errors.push(in_argument(arg, "`pin` goes only together with `threads`"));
        }
        Self { count: written.count.flatten(), pin: written.pin.is_some_and(|(_, pin)| pin) }
    }

    /// Whether the body runs on threads that are started for it, and not on the one that calls the function.
    pub(crate) fn are_started(self) -> bool {
        self.pin || !matches!(self.count, None | Some(Count::Exactly(1)))
    }

    /// The calls on the builder; `krate` is the path of the runtime crate.
    pub(crate) fn into_tokens(self, krate: &Path, site: Span) -> TokenStream {
        let count = self.count.map(|count| match count {
            // Without a suffix: the type is the builder's business.
            Count::Exactly(count) => {
                let count = proc_macro2::Literal::usize_unsuffixed(count);
                quote_spanned!(site=> .threads(#count))
            }
            Count::Auto => quote_spanned!(site=> .threads(#krate::Threads::Auto)),
        });
        let pin = self.pin.then(|| quote_spanned!(site=> .pin(true)));
        quote_spanned!(site=> #count #pin)
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn read(count: Option<Count>, pin: Option<bool>) -> (Threads, Vec<String>) {
        let tokens: TokenStream = quote!(argument);
        let mut errors = Errors::default();
        let written = Written { count: count.map(Some), pin: pin.map(|pin| (&tokens as _, pin)) };
        (Threads::new(&written, &mut errors), errors.lines())
    }

    #[test]
    fn one_thread_that_is_not_pinned_is_the_calling_one() {
        let one = Some(Count::Exactly(1));
        for (count, pin, started) in [
            (None, None, false),
            (one, None, false),
            (one, Some(false), false),
            (one, Some(true), true),
            (Some(Count::Exactly(2)), None, true),
            (Some(Count::Auto), Some(false), true),
        ] {
            let (threads, lines) = read(count, pin);
            assert_eq!(lines, [""; 0]);
            assert_eq!(threads.are_started(), started, "{count:?} {pin:?}");
        }
    }

    #[test]
    fn pin_needs_threads() {
        for pin in [false, true] {
            assert_eq!(read(None, Some(pin)).1, ["`pin` goes only together with `threads`"]);
        }
        // A count with a mistake in it is there all the same.
        let tokens: TokenStream = quote!(argument);
        let mut errors = Errors::default();
        Threads::new(&Written { count: Some(None), pin: Some((&tokens, true)) }, &mut errors);
        assert_eq!(errors.lines(), [""; 0]);
    }

    #[test]
    fn the_builder_is_told_what_differs_from_its_defaults() {
        let krate: Path = syn::parse_quote!(a::rt);
        let calls = |count, pin| read(count, pin).0.into_tokens(&krate, Span::call_site()).to_string().replace(' ', "");
        assert_eq!(calls(None, None), "");
        assert_eq!(calls(Some(Count::Exactly(1)), Some(false)), ".threads(1)");
        assert_eq!(calls(Some(Count::Auto), Some(true)), ".threads(a::rt::Threads::Auto).pin(true)");
    }
}
