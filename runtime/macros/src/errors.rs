//! Collects the errors of one expansion.
//!
//! Owns the form of the messages about arguments, and the list of arguments they end with. Does
//! not know what is an error: that is for the modules that read.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::Error;

/// The second line of every message about an argument.
const KNOWN: &str =
    "known arguments: `entries = 1..=32768`, `threads = 4` or `\"auto\"`, `pin = true`, `crate = \"path\"`";

/// An error in an argument: where, what, and which arguments there are.
pub(crate) fn in_argument(at: impl ToTokens, what: &str) -> Error {
    Error::new_spanned(at, format!("{what}\n{KNOWN}"))
}

/// All errors so far, so that one compilation shows all of them.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            none => *none = Some(error),
        }
    }

    /// Passes a good value on, and keeps the error of a bad one.
    pub(crate) fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn into_compile_errors(self) -> Option<TokenStream> {
        self.0.map(Error::into_compile_error)
    }

    /// The first line of each message.
    #[cfg(test)]
    pub(crate) fn lines(self) -> Vec<String> {
        let line = |error: Error| error.to_string().lines().next().unwrap_or_default().to_owned();
        self.0.into_iter().flatten().map(line).collect()
    }
}
