//! Decides which `threads` and `pin` the runtime can serve.
//!
//! Owns the rule that there is one thread per runtime for now: [`not_there_yet`] is the only place
//! that refuses more. To lift it, empty that function, and hand both values to the builder in
//! `expand`. Does not know how the two arguments are written or read (`args` does).

use quote::ToTokens;
use syn::Error;

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
pub(crate) struct Threads<'a> {
    /// The argument, and its value if it was one.
    pub(crate) count: Option<(&'a dyn ToTokens, Option<Count>)>,
    pub(crate) pin: Option<&'a dyn ToTokens>,
}

/// Adds an error for each of the two that cannot be served.
pub(crate) fn check(threads: &Threads<'_>, errors: &mut Errors) {
    let before = not_there_yet(threads);
    if before.is_empty() {
        errors.keep(pin_has_threads(threads));
    }
    before.into_iter().for_each(|error| errors.push(error));
}

/// The gate: all that is not there yet, spanned at the argument that asks for it.
fn not_there_yet(threads: &Threads<'_>) -> Vec<Error> {
    let count = match threads.count {
        Some((arg, Some(count))) if count != Count::Exactly(1) => Some((arg, "threads")),
        _ => None,
    };
    let pin = threads.pin.map(|arg| (arg, "pin"));
    let error = |(arg, name)| {
        Error::new_spanned(arg, format!("`{name}` is not there yet: only one thread per runtime for now"))
    };
    count.into_iter().chain(pin).map(error).collect()
}

/// `pin` alone would pin the one thread there is, which is rarely what was meant.
fn pin_has_threads(threads: &Threads<'_>) -> syn::Result<()> {
    match threads {
        Threads { pin: Some(arg), count: None } => Err(in_argument(arg, "`pin` goes only together with `threads`")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;
    use quote::quote;

    use super::*;

    fn written(count: Option<Count>, pin: bool, check: impl Fn(&Threads<'_>) -> Vec<String>) -> Vec<String> {
        let tokens: TokenStream = quote!(argument);
        check(&Threads { count: count.map(|count| (&tokens as _, Some(count))), pin: pin.then_some(&tokens as _) })
    }

    #[test]
    fn the_gate_is_open_for_one_thread_only() {
        let gate = |threads: &Threads<'_>| not_there_yet(threads).iter().map(Error::to_string).collect();
        assert_eq!(written(None, false, gate), [""; 0]);
        assert_eq!(written(Some(Count::Exactly(1)), false, gate), [""; 0]);
        assert_eq!(written(Some(Count::Exactly(2)), false, gate).len(), 1);
        assert_eq!(written(Some(Count::Auto), true, gate).len(), 2);
    }

    #[test]
    fn pin_needs_threads_even_behind_the_gate() {
        let rule = |threads: &Threads<'_>| {
            pin_has_threads(threads).err().map(|error| error.to_string()).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(written(Some(Count::Auto), true, rule), [""; 0]);
        assert_eq!(written(None, false, rule), [""; 0]);
        assert!(written(None, true, rule)[0].starts_with("`pin` goes only together with `threads`"));
    }
}
