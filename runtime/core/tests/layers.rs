//! The rules of the source tree that no compiler checks: layers, where `unsafe` may stand, and what a file looks like.
//!
//! Sources are read as a stream of tokens without comments and strings, so a path counts wherever it stands: in a `use`,
//! in a signature or in the middle of an expression. Test modules count as well, since a unit test that needs a higher
//! layer is an integration test. It knows nothing of what the modules do.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The modules at the root of `runtime-core`, lowest layer first. A module may use its own submodules and whatever stands
/// in a *lower* layer; neighbours in one layer do not know each other. Move a name here when the design moves.
const LAYERS: &[&[&str]] = &[
    &["buf", "cpus", "fd", "lock", "panics", "sys"],
    &["pooled", "gift"],
    &["op"],
    &["ring", "slot", "wake", "spin", "time_queue", "wait", "pool", "metrics"],
    &["driver", "run_queue"],
    &["crew"],
    &["context"],
    &["cell"],
    &["submit", "duplex", "open_file", "coop", "task", "time", "local", "local_key", "fixed"],
    &["receiver", "ends"],
    &["exec", "ladder", "probe", "io", "foreign"],
    &["signal", "testing"],
];

/// The packages whose sources may say `unsafe`, by their folder.
const UNSAFE: &[&str] = &["runtime/core", "runtime/core/limit"];

/// Above this a file holds more than one idea.
const MAX_LINES: usize = 700;

#[test]
fn a_file_imports_only_from_lower_layers() {
    let src = root().join("runtime/core/src");
    let mut faults = Vec::new();
    for file in rust_files(&src) {
        let module = module_path(file.strip_prefix(&src).expect("a file below src"));
        // lib.rs only lists the modules, of every layer.
        if module.is_empty() {
            continue;
        }
        for fault in layer_faults(&module, &read(&file)) {
            faults.push(format!("{}: {fault}", shown(&file)));
        }
    }
    report(&faults);
}

#[test]
fn unsafe_stays_in_core() {
    let mut faults = Vec::new();
    for member in members().iter().filter(|member| !UNSAFE.contains(&member.as_str())) {
        for file in sources(member).into_iter().chain(tests(member)) {
            if says_unsafe(&read(&file)) {
                faults.push(format!("{}: says `unsafe`, which only runtime/core may", shown(&file)));
            }
        }
        let lib = root().join(member).join("src/lib.rs");
        if lib.exists() && !tokens(&read(&lib)).join(" ").contains("# ! [ forbid ( unsafe_code ) ]") {
            faults.push(format!("{}: add #![forbid(unsafe_code)]", shown(&lib)));
        }
    }
    report(&faults);
}

#[test]
fn a_file_says_what_it_owns_and_stays_short() {
    let mut faults = Vec::new();
    for file in members().iter().flat_map(|member| sources(member)) {
        let text = read(&file);
        if !text.starts_with("//!") {
            faults.push(format!("{}: open it with `//!` and what it owns", shown(&file)));
        }
        let lines = text.lines().count();
        if lines > MAX_LINES {
            faults.push(format!("{}: {lines} lines, {MAX_LINES} is the limit; split it by idea", shown(&file)));
        }
    }
    report(&faults);
}

/// Whether `unsafe` stands in `text`, also where it is only quoted into a user's program, which `forbid` does not see.
/// `Token![unsafe]` is allowed: it is how a macro asks whether the user said it.
fn says_unsafe(text: &str) -> bool {
    let tokens = tokens(text);
    let asked = |at: usize| at >= 3 && tokens[at - 3..at] == ["Token", "!", "["];
    tokens.iter().enumerate().any(|(at, token)| token == "unsafe" && !asked(at))
}

/// The imports of `text`, the source of `module`, that break the table: one sentence each.
fn layer_faults(module: &[String], text: &str) -> Vec<String> {
    let layer_of = |name: &str| LAYERS.iter().position(|names| names.contains(&name));
    let own = &module[0];
    let Some(layer) = layer_of(own) else {
        return vec![format!("module `{own}` has no layer: add it to LAYERS in runtime/core/tests/layers.rs")];
    };
    let mut faults = Vec::new();
    for target in imports(module, text).iter().filter(|target| *target != own) {
        match layer_of(target) {
            None => faults.push(format!(
                "uses `crate::{target}`, which has no layer: name the module that an item is in, or, if this is one, \
                 add it to LAYERS in runtime/core/tests/layers.rs"
            )),
            Some(other) if other > layer => {
                faults.push(format!("`{own}` (L{layer}) uses `{target}` (L{other}), a higher layer"));
            }
            Some(other) if other == layer => {
                faults.push(format!("`{own}` uses `{target}`, but neighbours (both L{layer}) do not know each other"));
            }
            Some(_) => {}
        }
    }
    faults
}

/// The names at the crate's root that `text` reaches, through `crate::` or `super::`.
fn imports(module: &[String], text: &str) -> BTreeSet<String> {
    let tokens = tokens(text);
    let mut found = BTreeSet::new();
    // The inline modules around the current token, each with the brace depth of its body.
    let mut inline: Vec<(usize, String)> = Vec::new();
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => {
                inline.retain(|(body, _)| *body < depth);
                depth -= 1;
            }
            "mod" if tokens.get(at + 2).is_some_and(|next| next == "{") => {
                inline.push((depth + 1, tokens[at + 1].clone()));
            }
            // The head of a path; what follows a `::` is the middle of one, and was followed from its head.
            "crate" | "self" | "super" if at == 0 || tokens[at - 1] != "::" => {
                let mut here = module.to_vec();
                here.extend(inline.iter().map(|(_, name)| name.clone()));
                follow(&tokens, at, here, &mut found);
            }
            _ => {}
        }
    }
    found
}

/// Follows the path or `use` tree that starts at `at`, seen from the module `here`, to its names at the crate's root.
/// Returns the index of the first token after it.
fn follow(tokens: &[String], mut at: usize, mut here: Vec<String>, found: &mut BTreeSet<String>) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "crate" => here.clear(),
            "super" => drop(here.pop()),
            "self" => {}
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = if tokens[at] == "," { at + 1 } else { follow(tokens, at, here.clone(), found) };
                }
                return at + 1;
            }
            name => {
                if here.is_empty() {
                    found.insert(name.to_owned());
                }
                here.push(name.to_owned());
            }
        }
        at += 1;
        match tokens.get(at).map(String::as_str) {
            Some("::") => at += 1,
            // The new name is no path.
            Some("as") => return at + 2,
            _ => return at,
        }
    }
    at
}

/// Identifiers, `::` and single punctuation marks, without comments, strings and characters. Far from a Rust lexer, but
/// exact in what the rules look at.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = chars.get(at..).filter(|rest| !rest.is_empty()) {
        match rest {
            ['/', '/', ..] => at += rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
            ['/', '*', ..] => at += block_comment_len(rest),
            ['"', ..] => at += string_len(rest),
            ['\'', '\\', _, tail @ ..] => at += 3 + tail.iter().position(|c| *c == '\'').map_or(0, |end| end + 1),
            ['\'', _, '\'', ..] => at += 3,
            [':', ':', ..] => {
                found.push("::".to_owned());
                at += 2;
            }
            [c, ..] if is_word(*c) => {
                let len = rest.iter().position(|c| !is_word(*c)).unwrap_or(rest.len());
                let word: String = rest[..len].iter().collect();
                let raw_string = if matches!(word.as_str(), "r" | "br" | "cr") { raw_len(&rest[len..]) } else { None };
                match raw_string {
                    Some(raw) => at += len + raw,
                    None => {
                        found.push(word);
                        at += len;
                    }
                }
            }
            // The quote of a lifetime ends up here too; its name is a word like any other, and no rule looks for one.
            [c, ..] => {
                if !c.is_whitespace() {
                    found.push(c.to_string());
                }
                at += 1;
            }
            [] => break,
        }
    }
    found
}

/// The length of the block comment at the start of `rest`; they nest.
fn block_comment_len(rest: &[char]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (at, depth) = (at + 2, depth + 1),
            ['*', '/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of the string at the start of `rest`.
fn string_len(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// The length of what follows the `r` of a raw string, or None if `rest` is not that.
fn raw_len(rest: &[char]) -> Option<usize> {
    let hashes = rest.iter().take_while(|c| **c == '#').count();
    if rest.get(hashes) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = &rest[hashes + 1..];
    let len = body.windows(closing.len()).position(|window| window == closing).unwrap_or(body.len());
    Some(hashes + 1 + len + closing.len())
}

/// `op/recv.rs` is the module [op, recv]; `lib.rs` is the root, [].
fn module_path(file: &Path) -> Vec<String> {
    let stem = file.with_extension("");
    let names: Vec<String> = stem.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names == ["lib"] { Vec::new() } else { names }
}

/// The folders of the workspace's packages, as its manifest lists them.
fn members() -> Vec<String> {
    let manifest = read(&root().join("Cargo.toml"));
    let list = manifest.split_once("\nmembers = [").expect("the workspace lists its members").1;
    let list = list.split_once(']').expect("the list of members ends").0;
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The sources of a package: what is below its `src`, and, for the flat `examples`, what is beside its manifest.
fn sources(member: &str) -> Vec<PathBuf> {
    let folder = root().join(member);
    let mut files = rust_files(&folder.join("src"));
    if member == "examples" {
        files.extend(entries(&folder).into_iter().filter(|path| is_rust(path)));
    }
    files
}

/// What is compiled with a member beside its sources: integration tests, examples, benches. Not the programs of which a
/// test sees that they are refused.
fn tests(member: &str) -> Vec<PathBuf> {
    let folders = ["tests", "examples", "benches"].map(|name| root().join(member).join(name));
    let files = folders.iter().filter(|folder| folder.is_dir()).flat_map(|folder| rust_files(folder));
    files.filter(|file| !file.starts_with(root().join(member).join("tests/ui"))).collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in entries(folder) {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if is_rust(&path) {
            files.push(path);
        }
    }
    files
}

/// What is in `folder`, sorted, so that two runs report alike.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = list.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    paths
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("core is two folders deep").to_owned()
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

fn report(faults: &[String]) {
    assert!(faults.is_empty(), "rules broken: {}\n{}", faults.len(), faults.join("\n"));
}

// Tests of the reader itself: a rule that sees nothing passes.

fn imports_of(module: &str, text: &str) -> Vec<String> {
    let module: Vec<String> = module.split("::").map(str::to_owned).collect();
    imports(&module, text).into_iter().collect()
}

#[test]
fn paths_are_found_wherever_they_stand() {
    let of = |text| imports_of("driver", text);
    assert_eq!(of("pub(crate) use crate::ring::{Ring, Entry};"), ["ring"]);
    assert_eq!(of("use crate::{\n buf::{self, IoBuf as B},\n fd, op::{a::{b}, c},\n};"), ["buf", "fd", "op"]);
    assert_eq!(of("fn f(x: &crate::slot::Key) { crate::wake::ring(crate::fd::MAX) }"), ["fd", "slot", "wake"]);
    assert_eq!(of("macro_rules! m { () => { $crate::task::T } }"), ["task"]);
    assert_eq!(of("use crate::{buf as b, exec as e};"), ["buf", "exec"]);
    assert_eq!(of("use crate::*;"), ["*"]);
}

#[test]
fn super_is_resolved() {
    assert_eq!(imports_of("driver", "use super::exec::Turn;"), ["exec"]);
    assert_eq!(imports_of("driver", "use self::super::exec::Turn; fn f(&self) { self.time() }"), ["exec"]);
    assert_eq!(imports_of("op::recv", "use super::{Op, super::exec::X};"), ["exec"]);
    assert_eq!(imports_of("op::recv", "use super::super::{exec, buf};"), ["buf", "exec"]);
    assert_eq!(imports_of("driver", "mod tests { use super::*; fn f() { super::super::exec::run() } }"), ["exec"]);
    assert_eq!(imports_of("driver", "mod a { fn f() {} }\nuse super::time;"), ["time"]);
}

#[test]
fn comments_strings_and_visibility_are_no_imports() {
    let text = r###"
        //! See crate::exec.
        /* crate::exec /* nested */ crate::time */
        pub(crate) fn f<'a>(x: &'a str) -> char { g("crate::exec \" crate::exec", r#"" crate::exec"#); '"' }
        const QUOTES: [char; 2] = ['\'', '"']; // "
        use crate::buf;
    "###;
    assert_eq!(imports_of("driver", text), ["buf"]);
    assert!(!says_unsafe("#![forbid(unsafe_code)] // unsafe\nlet x = input.peek(Token![unsafe]);"));
    assert!(says_unsafe("let x = unsafe { y };"));
    assert!(says_unsafe("quote! { unsafe { #body } }"));
}

#[test]
fn each_kind_of_fault_is_found() {
    let faults = |module: &str, text| layer_faults(&[module.to_owned()], text);
    assert!(faults("ring", "use crate::{op::Op, sys::enter, ring::Flags};").is_empty());
    assert!(faults("ring", "use crate::exec::Turn;")[0].contains("a higher layer"));
    assert!(faults("ring", "use crate::slot::Key;")[0].contains("neighbours"));
    assert!(faults("ring", "use crate::Runtime;")[0].contains("add it to LAYERS"));
    assert!(faults("novelty", "")[0].contains("add it to LAYERS"));
}

/// Whether bytes, descriptors and buffers survive a dropped future cannot be seen in its type, so the documentation says.
#[test]
fn every_public_async_function_says_what_dropping_it_does() {
    let mut faults = Vec::new();
    for member in members().into_iter().filter(|member| member != "benches" && member != "examples") {
        for file in sources(&member) {
            let source = read(&file);
            let lines: Vec<&str> = source.lines().collect();
            for (at, line) in
                lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("pub async fn "))
            {
                let above = lines[..at].iter().rev().take_while(|line| {
                    let line = line.trim_start();
                    line.starts_with("///") || line.starts_with("#[")
                });
                if !above.into_iter().any(|line| line.contains("# Cancel safety")) {
                    faults.push(format!("{}:{}: {} has no `# Cancel safety`", shown(&file), at + 1, line.trim()));
                }
            }
        }
    }
    report(&faults);
}
