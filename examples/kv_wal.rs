//! A key-value store that survives being killed: every change is appended to a log and synced before it is acknowledged;
//! changes that come together share one sync (group commit).
//!
//! ```text
//! cargo run --release --example kv_wal -- store.log    # then type:
//!   set color dark blue      # ok, once it is on the disk
//!   get color                # dark blue
//!   del color                # ok
//!   keys                     # how many there are
//! kill -9 it, start it again: what was acknowledged is there
//! printf 'set a 1\nset b 2\n' | kv_wal store.log       # two changes, one sync
//! ```
//!
//! A record is its length, a checksum, and the change as text. When the store opens its log it takes the records up to the
//! first one that is not whole, which a crash may have left, and cuts the rest off. A log that cannot be synced ends the
//! program: after that nobody knows what is on the disk, and trying again would not tell.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::AsFd;

use runtime::fs::{File, OpenOptions};
use runtime::io::{AsyncBufReadExt, BufReader};

const HEAD_BYTES: usize = 8;
const MAX_LINE_BYTES: usize = 1 << 16;

struct Store {
    log: File,
    /// Behind the last record.
    end: u64,
    map: HashMap<String, String>,
    /// Records that are not in the log yet.
    batch: Vec<u8>,
}

#[runtime::main]
async fn main() -> io::Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: kv_wal LOG"))?;
    let mut store = Store::open(path.as_ref()).await?;
    println!("{} keys", store.map.len());
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut lines = BufReader::new(stdin).lines().max_len(MAX_LINE_BYTES);
    let mut answers = String::new();
    while let Some(line) = lines.next_line().await? {
        answers += &store.answer(&line);
        answers.push('\n');
        // Requests that are here already are answered together, so that they share the sync.
        if !lines.get_ref().buffer().contains(&b'\n') {
            store.commit().await?;
            io::stdout().write_all(answers.as_bytes())?;
            io::stdout().flush()?;
            answers.clear();
        }
    }
    store.commit().await?;
    print!("{answers}");
    store.log.close().await
}

impl Store {
    async fn open(path: &std::path::Path) -> io::Result<Self> {
        let log = OpenOptions::new().read(true).write(true).create(true).open(path).await?;
        let (_, bytes) = log.read_to_end_at(Vec::new(), 0).await.into_result()?;
        let mut store = Self { log, end: 0, map: HashMap::new(), batch: Vec::new() };
        while let Some((change, len)) = record(&bytes[store.end as usize..]) {
            store.apply(change);
            store.end += len as u64;
        }
        if store.end < bytes.len() as u64 {
            store.log.set_len(store.end).await?;
        }
        // The name of a new file has to be on the disk, too.
        store.log.sync_all().await?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(".".as_ref());
        File::open(parent).await?.sync_all().await?;
        Ok(store)
    }

    fn answer(&mut self, line: &str) -> String {
        let mut words = line.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("set"), Some(_), Some(_)) | (Some("del"), Some(_), None) => {
                self.batch.extend_from_slice(&(line.len() as u32).to_le_bytes());
                self.batch.extend_from_slice(&checksum(line.as_bytes()).to_le_bytes());
                self.batch.extend_from_slice(line.as_bytes());
                self.apply(line);
                "ok".to_owned()
            }
            (Some("get"), Some(key), None) => self.map.get(key).cloned().unwrap_or_else(|| "not found".to_owned()),
            (Some("keys"), None, None) => self.map.len().to_string(),
            _ => "error: say `set KEY VALUE`, `get KEY`, `del KEY` or `keys`".to_owned(),
        }
    }

    fn apply(&mut self, change: &str) {
        let mut words = change.splitn(3, ' ').skip(1);
        match (words.next(), words.next()) {
            (Some(key), Some(value)) => drop(self.map.insert(key.to_owned(), value.to_owned())),
            (Some(key), None) => drop(self.map.remove(key)),
            (None, _) => {}
        }
    }

    /// Everything that was answered since the last time is on the disk afterwards.
    async fn commit(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        // One submission: the kernel goes on to the sync by itself.
        let (_, mut batch) = self.log.write_all_at_sync(batch, self.end).await.into_result()?;
        self.end += batch.len() as u64;
        batch.clear();
        self.batch = batch;
        Ok(())
    }
}

/// The first record and its length, if it is whole.
fn record(bytes: &[u8]) -> Option<(&str, usize)> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let len = u32::from_le_bytes(head[..4].try_into().ok()?) as usize;
    let change = rest.get(..len)?;
    let sum = u32::from_le_bytes(head[4..].try_into().ok()?);
    // A hole of zeros is no record.
    (len > 0 && sum == checksum(change)).then_some(())?;
    Some((std::str::from_utf8(change).ok()?, HEAD_BYTES + len))
}

/// FNV-1a: enough to tell a torn record from a whole one.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
