//! The names of the servers and how they are started.

use std::process::Command;

use benches::driver::{Child, program, run_pinned, start};
use runtime_limit::Result;
use runtime_limit::args::Args;

/// The core that everything under measurement runs on.
pub(crate) const SERVER_CORE: usize = 0;

/// Name, program, further arguments. The tuned peers have our flags on their ring.
const KNOWN: &[(&str, &str, &[&str])] = &[
    ("limit", "limit", &[]),
    // With larger buffers than everybody has: for messages that are larger still.
    ("limit-64k", "limit", &["buf=65536"]),
    ("limit-256k", "limit", &["buf=262144"]),
    // Only for `echo`.
    ("limit-direct", "limit", &["direct=true"]),
    ("multi", "limit", &["mode=multi"]),
    ("single", "limit", &["mode=single"]),
    // Bare system calls, and the ring's own operations, for what has both.
    ("sys", "limit", &["via=sys"]),
    ("ring", "limit", &["via=ring"]),
    // Only for `relay`; of the files, ours-copy too.
    ("limit-splice", "limit", &["via=splice"]),
    ("limit-copy", "limit", &["via=copy"]),
    ("ours-copy", "ours", &["way=copy"]),
    ("ours-splice", "ours", &["way=splice"]),
    ("tokio-64k", "peer-tokio", &["buf=65536"]),
    // Only for files.
    ("std", "limit", &[]),
    ("limit-fixed", "limit", &["via=fixed"]),
    ("limit-readv", "limit", &["via=readv"]),
    ("pread", "limit", &["via=sys"]),
    ("pool", "limit", &["via=pool"]),
    ("ours-fixed", "ours", &["way=fixed"]),
    ("ours-readv", "ours", &["way=readv"]),
    ("async-task", "peer-async-task", &[]),
    ("ours", "ours", &[]),
    // Only for `echo`.
    ("ours-pooled", "ours", &["pooled=true"]),
    ("ours-pooled-parks", "ours", &["pooled=true", "spin=off"]),
    // Only for `echo`; on the server's core, as all are.
    ("ours-two", "ours", &["threads=2"]),
    ("ours-parks", "ours", &["spin=off"]),
    ("tokio", "peer-tokio", &[]),
    ("monoio", "peer-monoio", &[]),
    ("monoio-defer", "peer-monoio", &["ring=defer"]),
    ("compio", "peer-compio", &[]),
    ("compio-defer", "peer-compio", &["ring=defer"]),
    ("glommio", "peer-glommio", &[]),
];

/// Takes `who=`; the first name is what the others are compared with.
pub(crate) fn names(args: &mut Args, default: &str) -> Result<Vec<String>> {
    let list = args.value("who", default.to_owned())?;
    Ok(list.split(',').map(str::to_owned).collect())
}

/// How `name` is run on the server's core.
pub(crate) fn command(name: &str, arguments: &[String]) -> Result<Command> {
    let (file, further) = find(name)?;
    let mut command = run_pinned(SERVER_CORE, &program(file)?);
    command.args(arguments).args(further);
    Ok(command)
}

/// How `name` is run on all cores.
pub(crate) fn free_command(name: &str, arguments: &[String]) -> Result<Command> {
    let (file, further) = find(name)?;
    let mut command = Command::new(program(file)?);
    command.args(arguments).args(further);
    Ok(command)
}

fn find(name: &str) -> Result<(&'static str, &'static [&'static str])> {
    let found = KNOWN.iter().find(|(known, ..)| *known == name);
    let &(_, file, further) = found.ok_or_else(|| {
        let names: Vec<_> = KNOWN.iter().map(|(known, ..)| known).collect();
        format!("who={name}: it is one of {names:?}")
    })?;
    Ok((file, further))
}

/// A server that is up.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) child: Child,
}

/// Starts all of them. One that cannot be started is left out, with a line that says so.
pub(crate) fn start_all(names: &[String], arguments: &[String]) -> Vec<Server> {
    let mut servers = Vec::new();
    for name in names {
        match command(name, arguments).and_then(|mut command| start(&mut command)) {
            Ok(child) => servers.push(Server { name: name.clone(), child }),
            Err(error) => println!("  without {name}: {error}"),
        }
    }
    servers
}

/// `name:port:pid,…`, as the load takes it.
pub(crate) fn list(servers: &[Server]) -> String {
    let entry = |server: &Server| format!("{}:{}:{}", server.name, server.child.port(), server.child.pid());
    servers.iter().map(entry).collect::<Vec<_>>().join(",")
}
