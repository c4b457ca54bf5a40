//! How much room a tree takes, as `du -s`: many small questions to the file system, with many in flight.
//!
//! ```text
//! cargo run --release --example du -- DIR...     # KiB and path, one line each
//! ```
//!
//! Up to 16 directories are read at once, and in each up to 32 entries are asked about. An entry that the kernel has in
//! memory is answered on the spot, without a worker; the others wait in the ring together. Names are looked up relative
//! to their open directory, so a tree that is moved meanwhile is walked on, and links are never followed. A file with
//! several names counts once. What cannot be read is said, and the rest is counted.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use futures::{StreamExt, TryStreamExt};
use runtime::fs::{Dir, Metadata};
use runtime::task::JoinSet;

const DIRS_AT_ONCE: usize = 16;
const ENTRIES_AT_ONCE: usize = 32;

#[runtime::main]
async fn main() -> ExitCode {
    let mut roots: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if roots.is_empty() {
        roots.push(".".into());
    }
    let mut total = Total { seen: HashSet::new(), failed: false };
    for root in roots {
        match total.room(&root).await {
            Ok(bytes) => println!("{}\t{}", bytes.div_ceil(1024), root.display()),
            Err(error) => total.complain(&root, &error),
        }
    }
    if total.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct Total {
    /// Files with several names, by device and number.
    seen: HashSet<(u64, u64)>,
    failed: bool,
}

impl Total {
    async fn room(&mut self, root: &Path) -> io::Result<u64> {
        let metadata = runtime::fs::symlink_metadata(root).await?;
        let mut bytes = self.count(&metadata);
        let mut waiting = Vec::new();
        if metadata.is_dir() {
            waiting.push(root.to_owned());
        }
        let mut reading = JoinSet::new();
        loop {
            while reading.len() < DIRS_AT_ONCE
                && let Some(path) = waiting.pop()
            {
                reading.spawn(async move { (entries(&path).await, path) });
            }
            let Some(read) = reading.join_next().await else { return Ok(bytes) };
            match read.map_err(io::Error::other)? {
                (Ok(found), path) => {
                    for (name, metadata) in found {
                        bytes += self.count(&metadata);
                        if metadata.is_dir() {
                            waiting.push(path.join(name));
                        }
                    }
                }
                (Err(error), path) => self.complain(&path, &error),
            }
        }
    }

    fn count(&mut self, metadata: &Metadata) -> u64 {
        let is_new = metadata.is_dir() || metadata.nlink() < 2 || self.seen.insert((metadata.dev(), metadata.ino()));
        if is_new { metadata.blocks() * 512 } else { 0 }
    }

    fn complain(&mut self, path: &Path, error: &io::Error) {
        eprintln!("du: {}: {error}", path.display());
        self.failed = true;
    }
}

/// The names in a directory, and what is known about each.
async fn entries(path: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let dir = Dir::open(path).await?;
    let dir = &dir;
    let found = dir.read_dir().await?.map(|entry| async move {
        let name = entry?.path();
        match dir.symlink_metadata(&name).await {
            Ok(metadata) => Ok(Some((name, metadata))),
            // Removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    });
    found.buffer_unordered(ENTRIES_AT_ONCE).try_filter_map(async |found| Ok(found)).try_collect().await
}
