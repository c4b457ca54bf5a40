//! Generates what takes the place of the function.
//!
//! Owns the generated code and what is left in its place after an error. Does not know the
//! syntax of the attribute (`args` does), which functions fit (`function` does), or how the two
//! macros differ (`kind` does).
//!
//! # Why the body becomes an inner `async fn`
//!
//! The generated function holds the user's function under another name, and calls it:
//!
//! ```text
//! fn main() -> Ret {
//!     async fn body() -> Ret { … }
//!     ::runtime::__private::run_main(::runtime::Builder::new(), body())
//! }
//! ```
//!
//! With more than one thread the function itself is handed over, and called once on each.
//!
//! An `async` block and an `async` closure were the alternatives, and their messages are worse:
//!
//! - The output of a block is inferred from its first `return` or its tail. The mismatch with the
//!   declared type then shows at the generated call, and `?` reports the type of the tail.
//! - A closure can declare its output, but the compiler compares it only after it has inferred
//!   one, and reports two closure types that differ, over the whole body.
//! - An `async fn` has its own return type as the expectation inside the body. A mismatch is
//!   reported at the expression, with a label at the declared type, as if there was no macro.
//!
//! The price is that the body, as an inner item, cannot say `Self`.
//!
//! Both copies of the return type have the span that it was written with. The compiler drops the
//! second of two equal messages, so an unknown type there is still reported once.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Generics, Path, ReturnType, Signature, Token, parse_quote_spanned};

use crate::args::Args;
use crate::errors::Errors;
use crate::function::Function;
use crate::kind::Kind;

/// The expansion of either macro. Errors stand in front of it, and never in place of it.
pub(crate) fn expand(kind: Kind, attr: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::read(attr, &mut errors);
    let Some(mut function) = errors.keep(syn::parse2::<Function>(item.clone())) else {
        let errors = errors.into_compile_errors();
        return quote!(#errors #item);
    };
    let fits = function.check(kind, &mut errors);
    match errors.into_compile_errors() {
        None => runs(kind, args, &function),
        Some(errors) => {
            // A second expansion would find a function that has lost its `async`.
            function.attrs.retain(|attr| !kind.is_repeated_by(attr));
            let rest = match fits {
                true => stands_in(&function, &kind.attribute()),
                false if function.receiver().is_some() || function.sig.asyncness.is_none() => item,
                false => stands_in(&function, &TokenStream::new()),
            };
            quote!(#errors #rest)
        }
    }
}

/// The function that builds a runtime and runs the body on it.
///
/// The path of the runtime crate is used in place and not imported: it can then be anything that
/// leads there, `self` and `super` included, and adds no name that the body could see.
fn runs(kind: Kind, args: Args, function: &Function) -> TokenStream {
    let on_threads = args.threads.are_started();
    // What the body returns has to travel between threads: a type that cannot is reported where it is written.
    let site = if on_threads { return_span(&function.sig) } else { Span::mixed_site() };
    let krate: Path = args.krate.unwrap_or_else(|| parse_quote_spanned!(site=> ::runtime));
    let entries = args.entries.map(|entries| {
        let entries = entries.into_tokens();
        quote_spanned!(site=> .entries(#entries))
    });
    let threads = args.threads.into_tokens(&krate, site);
    let (runner, body) = (kind.runner(on_threads, site), body_name(site));
    let call = if on_threads { TokenStream::new() } else { quote_spanned!(site=> ()) };
    let tail = quote_spanned! {site=>
        #krate::__private::#runner(#krate::Builder::new() #entries #threads, #body #call)
    };
    let sig = Signature { asyncness: None, ..function.sig.clone() };
    around(function, &kind.attribute(), &sig, &tail)
}

/// The place of the return type, or of the name where there is none.
fn return_span(sig: &Signature) -> Span {
    let span = match &sig.output {
        ReturnType::Default => sig.ident.span(),
        ReturnType::Type(_, written) => written.span(),
    };
    span.resolved_at(Span::mixed_site())
}

/// A function with the same callers and the same body that runs nothing.
///
/// It follows an error. An `async fn main`, or a caller that gets a future where it expects the
/// value, would be reported as well, and both would be errors of the macro's making. It makes no
/// use of the runtime crate, because the error can be in the argument that says where that is.
fn stands_in(function: &Function, attribute: &TokenStream) -> TokenStream {
    let mut sig = Signature { asyncness: None, constness: None, ..function.sig.clone() };
    if sig.ident == "main" {
        // The compiler has its own opinion on a `main` with arguments or generics.
        sig.inputs.clear();
        sig.variadic = None;
        if !sig.generics.params.is_empty() {
            sig.output = ReturnType::Default;
        }
        sig.generics = Generics::default();
    }
    let attributes = quote!(#attribute #[allow(unused, reason = "follows an error of the macro")]);
    around(function, &attributes, &sig, &quote!(loop {}))
}

/// The user's function under the signature `sig`, with the original inside and `tail` behind it.
fn around(function: &Function, attribute: &TokenStream, sig: &Signature, tail: &TokenStream) -> TokenStream {
    let Function { attrs, vis, body, .. } = function;
    let ours = |span: Span| span.resolved_at(Span::mixed_site());

    // The inner function starts with a token of the macro, which makes all of it generated code
    // to lints: that an `async fn` has no `.await` in it is nothing the user could change. Its
    // name has the place of the user's, because that is what messages about it point at.
    let asyncness = function.sig.asyncness.map(|token| Token![async](ours(token.span)));
    let ident = body_name(ours(function.sig.ident.span()));
    let inner = Signature { abi: None, asyncness, ident, ..function.sig.clone() };
    let inner = inner.into_token_stream();

    // The outer function begins and ends with tokens of the user, which makes it the user's to
    // lints: the compiler does not report unused or undocumented functions of a macro.
    let mut block = Group::new(Delimiter::Brace, quote_spanned!(Span::mixed_site()=> #inner #body #tail));
    block.set_span(body.span());
    quote!(#attribute #(#attrs)* #vis #sig #block)
}

/// The name of the inner function. Items have no hygiene: the body can see this name, so it is
/// one that nobody calls by accident.
fn body_name(span: Span) -> Ident {
    Ident::new("__runtime_macros_body", span)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(source: &str) -> TokenStream {
        source.parse().expect("these are tokens")
    }

    /// The expansion, next to the code that is expected, with the same spaces in both.
    #[track_caller]
    fn assert_expands(kind: Kind, attr: &str, item: &str, expected: &str) {
        assert_eq!(expand(kind, tokens(attr), tokens(item)).to_string(), tokens(expected).to_string());
    }

    /// The errors in the expansion, and what stands behind them.
    fn after_errors(kind: Kind, attr: &str, item: &str) -> (usize, String) {
        let file: syn::File = syn::parse2(expand(kind, tokens(attr), tokens(item))).expect("the expansion parses");
        let (errors, rest): (Vec<_>, Vec<_>) =
            file.items.into_iter().partition(|item| matches!(item, syn::Item::Macro(_)));
        (errors.len(), quote!(#(#rest)*).to_string())
    }

    #[test]
    fn main_with_defaults() {
        assert_expands(
            Kind::Main,
            "",
            "pub(crate) async fn main() -> Result<(), Error> { work().await }",
            "pub(crate) fn main() -> Result<(), Error> {
                async fn __runtime_macros_body() -> Result<(), Error> { work().await }
                ::runtime::__private::run_main(::runtime::Builder::new(), __runtime_macros_body())
            }",
        );
    }

    #[test]
    fn test_with_everything() {
        assert_expands(
            Kind::Test,
            "entries = 8, threads = 1, crate = \"a::rt\"",
            "#[should_panic] #[ignore = \"slow\"] async fn name() { #![allow(unused)] }",
            "#[::core::prelude::v1::test] #[should_panic] #[ignore = \"slow\"] fn name() {
                async fn __runtime_macros_body() { #![allow(unused)] }
                a::rt::__private::run_test(a::rt::Builder::new().entries(8).threads(1), __runtime_macros_body())
            }",
        );
    }

    #[test]
    fn several_threads_get_the_function_itself() {
        assert_expands(
            Kind::Main,
            "threads = \"auto\", pin = true, crate = \"rt\"",
            "async fn main() {}",
            "fn main() {
                async fn __runtime_macros_body() {}
                rt::__private::run_main_on_threads(
                    rt::Builder::new().threads(rt::Threads::Auto).pin(true), __runtime_macros_body)
            }",
        );
        assert_expands(
            Kind::Test,
            "threads = 3",
            "async fn name() -> Result<(), Error> { work().await }",
            "#[::core::prelude::v1::test] fn name() -> Result<(), Error> {
                async fn __runtime_macros_body() -> Result<(), Error> { work().await }
                ::runtime::__private::run_test_on_threads(::runtime::Builder::new().threads(3), __runtime_macros_body)
            }",
        );
    }

    #[test]
    fn the_calling_convention_is_that_of_the_outer_function() {
        assert_expands(
            Kind::Main,
            "",
            "async extern \"C\" fn start() {}",
            "extern \"C\" fn start() {
                async fn __runtime_macros_body() {}
                ::runtime::__private::run_main(::runtime::Builder::new(), __runtime_macros_body())
            }",
        );
    }

    #[test]
    fn a_wrong_argument_leaves_the_function_and_no_runtime() {
        let (errors, rest) = after_errors(Kind::Test, "entries = 0, x = 1", "async fn name() -> u32 { 1 }");
        assert_eq!(errors, 2);
        let expected = "#[::core::prelude::v1::test] #[allow(unused, reason = \"follows an error of the macro\")]
            fn name() -> u32 { async fn __runtime_macros_body() -> u32 { 1 } loop {} }";
        assert_eq!(rest, tokens(expected).to_string());
    }

    #[test]
    fn a_wrong_function_keeps_its_callers() {
        let (errors, rest) = after_errors(Kind::Test, "", "#[test] async fn name<T>(value: T) -> T { value }");
        assert_eq!(errors, 3);
        let expected = "#[allow(unused, reason = \"follows an error of the macro\")]
            fn name<T>(value: T) -> T { async fn __runtime_macros_body<T>(value: T) -> T { value } loop {} }";
        assert_eq!(rest, tokens(expected).to_string());
    }

    #[test]
    fn a_wrong_main_becomes_one_the_compiler_takes() {
        let (errors, rest) = after_errors(Kind::Main, "", "async fn main<T>(value: T) -> T { value }");
        assert_eq!(errors, 2);
        let expected = "#[allow(unused, reason = \"follows an error of the macro\")]
            fn main() { async fn __runtime_macros_body<T>(value: T) -> T { value } loop {} }";
        assert_eq!(rest, tokens(expected).to_string());
    }

    #[test]
    fn what_is_not_understood_stays_as_it_is() {
        for item in ["fn main() { work() }", "struct S;", "pub const N: u32 = 1;"] {
            assert_eq!(after_errors(Kind::Main, "", item), (1, tokens(item).to_string()));
        }
        let method = tokens("async fn method(&self) {}");
        let expansion = expand(Kind::Main, TokenStream::new(), method.clone()).to_string();
        assert!(expansion.starts_with(":: core :: compile_error !"), "{expansion}");
        assert!(expansion.ends_with(&method.to_string()), "{expansion}");
    }
}
