//! Reads the function under the attribute, and decides whether it can be run.
//!
//! Owns the shape that a function must have, and the messages about other shapes. Does not know
//! the arguments of the attribute (`args` does), and does not look into the body, which stays the
//! tokens it was: incomplete code in there is for the compiler to report, and an editor can
//! complete it.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, FnArg, Signature, Token, Visibility};

use crate::errors::Errors;
use crate::kind::Kind;

/// A function, taken apart as far as the macros need it.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    /// The braces and what is in them.
    pub(crate) body: TokenTree,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let starts_function = input.peek(Token![fn])
            || input.peek(Token![async])
            || input.peek(Token![const]) && !input.peek2(syn::Ident)
            || input.peek(Token![unsafe])
            || input.peek(Token![extern]);
        if !starts_function {
            return Err(input.error("this attribute goes on an `async fn`"));
        }
        let sig: Signature = input.parse()?;
        if input.peek(Token![;]) {
            return Err(input.error("this function has no body to run"));
        }
        // A body from a `macro_rules!` macro is in invisible parentheses, and can stay there.
        let body = match input.parse()? {
            TokenTree::Group(group) if matches!(group.delimiter(), Delimiter::Brace | Delimiter::None) => group.into(),
            other => return Err(Error::new_spanned(other, "expected the body of the function")),
        };
        Ok(Self { attrs, vis, sig, body })
    }
}

impl Function {
    /// Adds an error for each part that does not fit; true if all of them do.
    pub(crate) fn check(&self, kind: Kind, errors: &mut Errors) -> bool {
        let sig = &self.sig;
        let mut fits = true;
        let mut reject = |at: &dyn ToTokens, what: &str| {
            errors.push(Error::new_spanned(at, what));
            fits = false;
        };

        if let Some(token) = sig.constness {
            reject(&token, "a function that starts a runtime cannot be `const`");
        }
        if let Some(token) = sig.unsafety {
            reject(&token, "a function that starts a runtime cannot be `unsafe`: its caller has nothing to promise");
        }
        if sig.asyncness.is_none() {
            reject(
                &sig.fn_token,
                &format!("`#[runtime::{}]` runs an `async fn`, and this one is not `async`", kind.name()),
            );
        }
        if !sig.generics.params.is_empty() {
            reject(
                &sig.generics,
                "this function cannot be generic: nothing says which types the runtime would call it with",
            );
        } else if let Some(clause) = &sig.generics.where_clause {
            reject(clause, "this function cannot have a `where` clause: it has no generics to talk about");
        }
        if let Some(receiver) = self.receiver() {
            reject(receiver, "this function cannot have a receiver: the runtime has no `self` to call it with");
        }
        let arguments = self.arguments();
        if !arguments.is_empty() {
            reject(&arguments, "this function cannot have arguments: the runtime has none to call it with");
        }
        if let Some(attr) = self.attrs.iter().find(|attr| kind.is_repeated_by(attr)) {
            let name = kind.name();
            reject(
                attr,
                &format!(
                    "`#[runtime::{name}]` is all it takes: with a second `{name}` attribute the test would run twice"
                ),
            );
        }
        fits
    }

    /// The `self` argument, if there is one.
    pub(crate) fn receiver(&self) -> Option<&FnArg> {
        self.sig.inputs.first().filter(|input| matches!(input, FnArg::Receiver(_)))
    }

    /// The arguments other than `self`, with the commas between them.
    fn arguments(&self) -> TokenStream {
        let skip = usize::from(self.receiver().is_some());
        let mut tokens: TokenStream = self.sig.inputs.pairs().skip(skip).map(ToTokens::into_token_stream).collect();
        self.sig.variadic.to_tokens(&mut tokens);
        tokens
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn lines(kind: Kind, item: TokenStream) -> Vec<String> {
        let mut errors = Errors::default();
        let fits = match errors.keep(syn::parse2::<Function>(item)) {
            Some(function) => function.check(kind, &mut errors),
            None => false,
        };
        let lines = errors.lines();
        assert_eq!(fits, lines.is_empty(), "{lines:?}");
        lines
    }

    #[test]
    fn what_fits() {
        for item in [
            quote!(
                async fn main() {}
            ),
            quote!(
                pub(crate) async fn anything() -> Result<u32, String> {
                    Ok(1)
                }
            ),
            quote!(
                async extern "C" fn exported() {}
            ),
            quote!(
                #[inline]
                #[doc = "text"]
                async fn attributes() -> impl Copy {
                    #![allow(unused)]
                }
            ),
        ] {
            assert_eq!(lines(Kind::Main, item.clone()), [""; 0], "{item}");
            assert_eq!(lines(Kind::Test, item.clone()), [""; 0], "{item}");
        }
    }

    #[test]
    fn the_body_is_not_looked_into() {
        let item = "async fn main() { let x = ; x. }".parse().expect("these are tokens");
        assert_eq!(lines(Kind::Main, item), [""; 0]);
    }

    #[test]
    fn each_part_has_its_message() {
        let item = "pub const unsafe fn f<T>(&self, a: T) where T: Copy {}".parse().expect("these are tokens");
        let lines = lines(Kind::Main, item);
        let starts = [
            "a function that starts a runtime cannot be `const`",
            "a function that starts a runtime cannot be `unsafe`",
            "`#[runtime::main]` runs an `async fn`",
            "this function cannot be generic",
            "this function cannot have a receiver",
            "this function cannot have arguments",
        ];
        assert_eq!(lines.len(), starts.len(), "{lines:?}");
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn a_where_clause_alone_is_rejected() {
        let item = "async fn f() where u32: Copy {}".parse().expect("these are tokens");
        assert_eq!(
            lines(Kind::Test, item),
            ["this function cannot have a `where` clause: it has no generics to talk about"]
        );
    }

    #[test]
    fn a_second_test_attribute_is_rejected() {
        for attr in [quote!(#[test]), quote!(#[::core::prelude::v1::test]), quote!(#[runtime::test(entries = 8)])] {
            let item = quote!(#attr async fn f() {});
            assert_eq!(lines(Kind::Test, item.clone()).len(), 1, "{item}");
            // The generated function of `main` is a plain one, which can be a test.
            assert_eq!(lines(Kind::Main, item.clone()), [""; 0], "{item}");
        }
        assert_eq!(
            lines(
                Kind::Test,
                quote!(
                    #[cfg(test)]
                    async fn f() {}
                )
            ),
            [""; 0]
        );
    }

    #[test]
    fn other_items_are_rejected() {
        for item in ["struct S;", "const N: u32 = 1;", "pub mod m {}", "use a::b;", "static S: u32 = 1;", "impl S {}"] {
            let tokens = item.parse().expect("these are tokens");
            assert_eq!(lines(Kind::Main, tokens), ["this attribute goes on an `async fn`"], "{item}");
        }
        let declared = "async fn f();".parse().expect("these are tokens");
        assert_eq!(lines(Kind::Main, declared), ["this function has no body to run"]);
    }
}
