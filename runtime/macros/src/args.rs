//! Reads what stands in the parentheses of the attribute.
//!
//! Owns the names of the arguments, and the types and ranges of their values. Does not know which
//! of the two macros is expanded, or what `threads` and `pin` lead to (`threads` does).

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, ExprUnary, Lit, LitInt, Path, Token, UnOp};

use crate::errors::{Errors, in_argument};
use crate::threads::{Count, Threads, Written};

/// The kernel refuses a larger ring, so a larger number is a mistake that can be shown early.
const MAX_ENTRIES: u32 = 32768;

/// The number of submission entries, as far as it is known during expansion.
#[derive(Debug)]
pub(crate) enum Entries {
    /// A number that has been checked here.
    Literal(LitInt),
    /// An expression whose value only the compiler knows: the expansion has to check it.
    Const(Expr),
}

impl Entries {
    /// The expression to hand to the builder.
    ///
    /// A constant expression goes through a `const` item and not through an inline `const`
    /// block, because the compiler evaluates the item even if it only checks the program. The
    /// name is long because the expression can see it, and must not mean it.
    pub(crate) fn into_tokens(self) -> TokenStream {
        match self {
            Self::Literal(number) => number.into_token_stream(),
            Self::Const(expr) => {
                let message = format!("`entries` must be from 1 to {MAX_ENTRIES}");
                quote_spanned! {expr.span()=> {
                    const __RUNTIME_MACROS_ENTRIES: ::core::primitive::u32 = #expr;
                    const _: () = match __RUNTIME_MACROS_ENTRIES {
                        1..=#MAX_ENTRIES => {}
                        _ => ::core::panic!(#message),
                    };
                    __RUNTIME_MACROS_ENTRIES
                }}
            }
        }
    }
}

/// The arguments that could be read; those with an error are absent.
#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) entries: Option<Entries>,
    pub(crate) threads: Threads,
    /// The path of the runtime crate, if it is not `::runtime`.
    pub(crate) krate: Option<Path>,
}

/// One `name = value` as it was written.
struct Arg {
    name: Ident,
    eq: Token![=],
    value: Expr,
}

impl Parse for Arg {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if !input.peek(Ident::peek_any) {
            return Err(in_argument(input.cursor().token_stream(), "arguments are written `name = value`"));
        }
        // Any identifier, because `crate` is a keyword.
        let name = Ident::parse_any(input)?;
        // The errors of the parser for the two cases below would point at the whole attribute.
        if input.is_empty() || input.peek(Token![,]) {
            return Err(in_argument(&name, &format!("`{name}` needs a value, as in `{name} = …`")));
        }
        // A single `=` is also found at the start of these two.
        if !input.peek(Token![=]) || input.peek(Token![==]) || input.peek(Token![=>]) {
            return Err(in_argument(&name, "arguments are written `name = value`"));
        }
        let eq: Token![=] = input.parse()?;
        if input.is_empty() || input.peek(Token![,]) {
            let written = NameAndSign(&name, &eq);
            return Err(in_argument(&written, &format!("`{name}` needs a value, as in `{name} = …`")));
        }
        let value = ungroup(input.parse()?);
        Ok(Self { name, eq, value })
    }
}

impl ToTokens for Arg {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        NameAndSign(&self.name, &self.eq).to_tokens(tokens);
        self.value.to_tokens(tokens);
    }
}

/// The part of an argument in front of its value, for messages that point at it.
struct NameAndSign<'a>(&'a Ident, &'a Token![=]);

impl ToTokens for NameAndSign<'_> {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.0.to_tokens(tokens);
        self.1.to_tokens(tokens);
    }
}

impl Args {
    /// Reads as much as possible: an error in one argument leaves the others in place, so that
    /// the expansion that follows an error is close to the one that was asked for.
    pub(crate) fn read(attr: TokenStream, errors: &mut Errors) -> Self {
        let list = errors.keep(Punctuated::<Arg, Token![,]>::parse_terminated.parse2(attr)).unwrap_or_default();

        let mut args = Self::default();
        let mut count: Option<Option<Count>> = None;
        let mut pin: Option<(Arg, bool)> = None;
        let mut seen: Vec<String> = Vec::new();

        for arg in list {
            let name = arg.name.to_string();
            if seen.contains(&name) {
                errors.push(in_argument(&arg, &format!("`{name}` is given twice")));
                continue;
            }
            match name.as_str() {
                "entries" => args.entries = errors.keep(entries(&arg.value)),
                "crate" => args.krate = errors.keep(krate(&arg.value)),
                "threads" => count = Some(errors.keep(threads_count(&arg.value))),
                "pin" => pin = errors.keep(pin_flag(&arg.value)).map(|flag| (arg, flag)),
                _ => errors.push(in_argument(&arg.name, &format!("`{name}` is not an argument of this macro"))),
            }
            seen.push(name);
        }

        let pin = pin.as_ref().map(|(arg, flag)| (arg as &dyn ToTokens, *flag));
        args.threads = Threads::new(&Written { count, pin }, errors);
        args
    }
}

/// Takes the invisible parentheses off an expression that came through a `macro_rules!` macro.
fn ungroup(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) => ungroup(*group.expr),
        expr => expr,
    }
}

fn entries(value: &Expr) -> syn::Result<Entries> {
    let out_of_range = || in_argument(value, &format!("`entries` must be from 1 to {MAX_ENTRIES}"));
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => match number.suffix() {
            "" | "u32" => match number.base10_parse() {
                Ok(1..=MAX_ENTRIES) => Ok(Entries::Literal(number.clone())),
                _ => Err(out_of_range()),
            },
            suffix => Err(in_argument(value, &format!("`entries` is a `u32`, not a `{suffix}`"))),
        },
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) if is_int(expr) => Err(out_of_range()),
        Expr::Lit(_) => Err(in_argument(value, "`entries` takes an integer, as in `entries = 256`")),
        expr => Ok(Entries::Const(expr.clone())),
    }
}

fn is_int(expr: &Expr) -> bool {
    matches!(expr, Expr::Lit(ExprLit { lit: Lit::Int(_), .. }))
}

fn krate(value: &Expr) -> syn::Result<Path> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = value else {
        return Err(in_argument(value, "`crate` takes a path in a string, as in `crate = \"rt\"`"));
    };
    // The tokens get the span of the string: a path that leads nowhere is reported there.
    text.parse_with(Path::parse_mod_style)
        .map_err(|_| in_argument(value, &format!("`{}` is not the path of a crate", text.value())))
}

fn threads_count(value: &Expr) -> syn::Result<Count> {
    let wrong = || in_argument(value, "`threads` takes an integer or `\"auto\"`");
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.suffix().is_empty() => match number.base10_parse() {
            Ok(0) => Err(in_argument(value, "a runtime has at least one thread")),
            Ok(count) => Ok(Count::Exactly(count)),
            Err(_) => Err(wrong()),
        },
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value() == "auto" => Ok(Count::Auto),
        _ => Err(wrong()),
    }
}

fn pin_flag(value: &Expr) -> syn::Result<bool> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Bool(flag), .. }) => Ok(flag.value),
        _ => Err(in_argument(value, "`pin` takes `true` or `false`")),
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn read(attr: TokenStream) -> (Args, Vec<String>) {
        let mut errors = Errors::default();
        let args = Args::read(attr, &mut errors);
        (args, errors.lines())
    }

    /// The arguments, from an attribute without mistakes.
    fn good(attr: TokenStream) -> Args {
        let (args, lines) = read(attr);
        assert_eq!(lines, [""; 0]);
        args
    }

    fn lines(attr: TokenStream) -> Vec<String> {
        read(attr).1
    }

    fn entries_of(attr: TokenStream) -> String {
        good(attr).entries.expect("entries are given").into_tokens().to_string()
    }

    #[test]
    fn nothing_is_needed() {
        let args = good(quote!());
        assert!(args.entries.is_none() && args.krate.is_none() && args.threads == Threads::default());
    }

    #[test]
    fn a_trailing_comma_is_fine() {
        assert_eq!(entries_of(quote!(entries = 8,)), "8");
    }

    #[test]
    fn entries_are_kept_as_written() {
        for number in [quote!(1), quote!(32768), quote!(0x10), quote!(1_024u32)] {
            assert_eq!(entries_of(quote!(entries = #number)), number.to_string());
        }
    }

    #[test]
    fn entries_have_a_range() {
        for number in [quote!(0), quote!(0u32), quote!(32769), quote!(99999999999999), quote!(-1), quote!(-0)] {
            assert_eq!(lines(quote!(entries = #number)), ["`entries` must be from 1 to 32768"], "{number}");
        }
    }

    #[test]
    fn entries_are_a_number() {
        for value in [quote!("8"), quote!(8.0), quote!(true), quote!('8'), quote!(b'8')] {
            let expected = ["`entries` takes an integer, as in `entries = 256`"];
            assert_eq!(lines(quote!(entries = #value)), expected, "{value}");
        }
        assert_eq!(lines(quote!(entries = 8usize)), ["`entries` is a `u32`, not a `usize`"]);
    }

    #[test]
    fn an_expression_is_left_to_the_compiler() {
        for expr in [quote!(N), quote!(crate::N * 2), quote!(1 << 40), quote!({ 8 })] {
            let args = good(quote!(entries = #expr));
            assert!(matches!(args.entries, Some(Entries::Const(_))), "{expr}");
            let tokens = entries_of(quote!(entries = #expr));
            assert!(tokens.contains(&format!(": :: core :: primitive :: u32 = {expr} ;")), "{tokens}");
            assert!(tokens.contains("1 ..= 32768u32"), "{tokens}");
        }
    }

    #[test]
    fn crate_is_a_path() {
        for path in ["rt", "::rt", "crate::rt", "self", "super::super::rt"] {
            let krate = good(quote!(crate = #path)).krate.expect("a path is given");
            assert_eq!(krate.to_token_stream().to_string().replace(' ', ""), path);
        }
        for text in ["", "a b", "rt<u32>", "rt::", "8"] {
            assert_eq!(lines(quote!(crate = #text)), [format!("`{text}` is not the path of a crate")]);
        }
        for value in [quote!(rt), quote!(crate::rt), quote!(8), quote!(b"rt")] {
            let expected = ["`crate` takes a path in a string, as in `crate = \"rt\"`"];
            assert_eq!(lines(quote!(crate = #value)), expected, "{value}");
        }
    }

    #[test]
    fn threads_and_pin_have_types() {
        for value in [quote!(1.0), quote!("many"), quote!(true), quote!(N), quote!(-1), quote!(1u32)] {
            assert_eq!(lines(quote!(threads = #value)), ["`threads` takes an integer or `\"auto\"`"], "{value}");
        }
        assert_eq!(lines(quote!(threads = 0)), ["a runtime has at least one thread"]);
        for value in [quote!(1), quote!("true"), quote!(N)] {
            assert_eq!(lines(quote!(threads = 1, pin = #value)), ["`pin` takes `true` or `false`"], "{value}");
        }
    }

    #[test]
    fn threads_are_a_number_or_auto() {
        for (attr, started) in [
            (quote!(threads = 1), false),
            (quote!(threads = 1, pin = false), false),
            (quote!(threads = 2), true),
            (quote!(threads = "auto"), true),
            (quote!(pin = true, threads = 0x10), true),
        ] {
            assert_eq!(good(attr.clone()).threads.are_started(), started, "{attr}");
        }
        assert_eq!(lines(quote!(pin = true)), ["`pin` goes only together with `threads`"]);
        assert_eq!(lines(quote!(pin = true, threads = 0)), ["a runtime has at least one thread"]);
    }

    #[test]
    fn every_mistake_is_told_and_the_rest_is_kept() {
        let (args, lines) = read(quote!(entries = 8, entries = 9, workers = 1, crate = "rt", threads = ""));
        let expected = [
            "`entries` is given twice",
            "`workers` is not an argument of this macro",
            "`threads` takes an integer or `\"auto\"`",
        ];
        assert_eq!(lines, expected);
        assert!(args.krate.is_some());
        assert!(matches!(args.entries, Some(Entries::Literal(first)) if first.to_string() == "8"));
    }

    #[test]
    fn messages_list_the_arguments() {
        for attr in [quote!(x = 1), quote!(entries = 0), quote!(entries = ""), quote!(crate = "a", crate = "a")] {
            let mut errors = Errors::default();
            Args::read(attr, &mut errors);
            let tokens = errors.into_compile_errors().expect("there is a mistake").to_string();
            for name in ["entries = ", "threads = ", "pin = ", "crate = "] {
                assert!(tokens.contains(name), "{tokens}");
            }
        }
    }

    #[test]
    fn syntax() {
        for attr in [quote!(entries), quote!(entries =), quote!(entries = ,), quote!(entries, threads = 1)] {
            assert_eq!(lines(attr.clone()), ["`entries` needs a value, as in `entries = …`"], "{attr}");
        }
        for attr in
            [quote!(8), quote!(entries(8)), quote!(a::b = 8), quote!(,), quote!(entries == 8), quote!(entries: 8)]
        {
            assert_eq!(lines(attr.clone()), ["arguments are written `name = value`"], "{attr}");
        }
        assert_eq!(lines(quote!(entries = 8 threads = 1)), ["expected `,`"]);
    }
}
