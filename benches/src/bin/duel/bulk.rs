//! The rows of much data: relays, and files that are sent. All servers are up, and the load goes from one to the next.

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use benches::driver::{run_pinned, start_silent};
use runtime_limit::Result;
use runtime_limit::args::Args;
use tempfile::TempDir;

use crate::net::load;
use crate::table::Column;
use crate::who::{SERVER_CORE, Server, names, start_all};

const LOAD_CORE: usize = 1;
const RELAYS: &str = "limit-splice,limit-copy,ours,ours-copy,ours-splice,tokio,tokio-64k,monoio";
const SENDERS: &str = "limit,ours,ours-copy,tokio,nginx";

const PER_GIB: [Column; 2] = [
    Column { field: "cpu_ns", title: "cpu ms/GiB", factor: 1e-6, places: 0, compared: true },
    Column { field: "rate", title: "GiB/s", factor: 1.0, places: 2, compared: false },
];

const TRIPS: [Column; 3] = [
    Column { field: "p50_us", title: "p50 µs", factor: 1.0, places: 1, compared: true },
    Column { field: "cpu_ns", title: "cpu µs", factor: 1e-3, places: 2, compared: true },
    Column { field: "p99_us", title: "p99 µs", factor: 1.0, places: 0, compared: false },
];

/// Bulk in messages of several sizes, and small messages there and back.
pub(crate) fn relay(args: &mut Args) -> Result<()> {
    let names = names(args, RELAYS)?;
    let cycles: usize = args.value("cycles", 7)?;
    let mib: usize = args.value("mib", 128)?;
    let only: Option<usize> = args.optional("msg")?;
    let sizes = only.map_or_else(|| vec![4 << 10, 16 << 10, 64 << 10, 256 << 10], |size| vec![size]);
    let servers = start_all(&names, &["relay".to_owned()]);
    for size in sizes {
        println!("relay msg={size}: {cycles} cycles of {mib} MiB");
        load(&servers, LOAD_CORE, &format!("relay msg={size} mib={mib} cycles={cycles}"), &PER_GIB)?;
    }
    if only.is_none() {
        println!("relay, 64 B there and back: {cycles} cycles of 1000");
        load(&servers, LOAD_CORE, &format!("ping msg=64 n=1000 cycles={cycles}"), &TRIPS)?;
    }
    Ok(())
}

/// A file in the page cache, sent to one client after the other.
pub(crate) fn send_file(args: &mut Args) -> Result<()> {
    let mut names = names(args, SENDERS)?;
    let cycles: usize = args.value("cycles", 9)?;
    let mib: usize = args.value("mib", 256)?;
    let dir = TempDir::new()?;
    let data = dir.path().join("data");
    fill(&data, mib)?;
    let with_nginx = names.iter().any(|name| name == "nginx");
    names.retain(|name| name != "nginx");
    println!("send_file: {cycles} cycles of {mib} MiB");
    let path = data.to_str().ok_or("the directory has no usual name")?;
    let mut servers = start_all(&names, &["file".to_owned(), format!("path={path}")]);
    if with_nginx {
        match nginx(dir.path()) {
            Ok(server) => servers.push(server),
            Err(error) => println!("  without nginx: {error} (it is the package nginx-light)"),
        }
    }
    load(&servers, LOAD_CORE, &format!("fetch mib={mib} cycles={cycles}"), &PER_GIB)
}

/// A file of `mib`, in the page cache and on the disk.
pub(crate) fn fill(path: &Path, mib: usize) -> Result<()> {
    let mut file = File::create(path)?;
    let block: Vec<u8> = (0..1u32 << 20).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    (0..mib).try_for_each(|_| file.write_all(&block))?;
    Ok(file.sync_all()?)
}

/// One process that serves the directory.
fn nginx(dir: &Path) -> Result<Server> {
    // It takes no listener from us: a port that was free a moment ago.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let root = dir.display();
    let config = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/errors; events {{ worker_connections 64; }}
         http {{ access_log off; sendfile on; client_body_temp_path {root}/a; proxy_temp_path {root}/b;
         fastcgi_temp_path {root}/c; uwsgi_temp_path {root}/d; scgi_temp_path {root}/e;
         server {{ listen 127.0.0.1:{port}; root {root}; }} }}"
    );
    let file = dir.join("nginx.conf");
    fs::write(&file, config)?;
    let found = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"].into_iter().map(Path::new);
    let program = found.into_iter().find(|path| path.is_file()).ok_or("it is not installed")?;
    let mut command = run_pinned(SERVER_CORE, program);
    command.arg("-p").arg(dir).arg("-c").arg(&file).arg("-e").arg(dir.join("errors"));
    Ok(Server { name: "nginx".to_owned(), child: start_silent(&mut command, port)? })
}
