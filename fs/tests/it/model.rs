//! Random sequences of what is done to files and names, with futures dropped on the way, against `std::fs` on a twin.
//!
//! A change that was dropped may have been carried out in part. So after one the file is compared with what it may be,
//! and the twin is made the same; that nothing of it comes later is what the rest of the sequence shows.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use runtime::Builder;
use runtime::fs::{self, File, OpenOptions};
use runtime::io::{AsyncRead, AsyncWrite};

use crate::kit::dropped_after;
use crate::support::watchdog;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Step {
    Open {
        name: usize,
        append: bool,
        truncate: bool,
    },
    /// Changes are dropped after so many polls, or awaited.
    WriteAt {
        at: u64,
        len: usize,
        polls: Option<usize>,
    },
    Durable {
        at: u64,
        len: usize,
        polls: Option<usize>,
    },
    Write {
        len: usize,
        polls: Option<usize>,
    },
    SetLen {
        len: u64,
        polls: Option<usize>,
    },
    ReadAt {
        at: u64,
        len: usize,
    },
    Read {
        len: usize,
    },
    Seek {
        to: u64,
    },
    Sync {
        data_only: bool,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Remove {
        name: usize,
    },
    Whole {
        name: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (name, at, len) = (|| 0..NAMES.len(), || 0..20_000u64, || 0..6000usize);
    let polls = || proptest::option::of(1..4usize);
    prop_oneof![
        2 => (name(), any::<bool>(), any::<bool>())
            .prop_map(|(name, append, truncate)| Step::Open { name, append, truncate }),
        4 => (at(), len(), polls()).prop_map(|(at, len, polls)| Step::WriteAt { at, len, polls }),
        1 => (at(), len(), polls()).prop_map(|(at, len, polls)| Step::Durable { at, len, polls }),
        4 => (len(), polls()).prop_map(|(len, polls)| Step::Write { len, polls }),
        2 => (at(), polls()).prop_map(|(len, polls)| Step::SetLen { len, polls }),
        3 => (at(), len()).prop_map(|(at, len)| Step::ReadAt { at, len }),
        3 => len().prop_map(|len| Step::Read { len }),
        1 => at().prop_map(|to| Step::Seek { to }),
        1 => any::<bool>().prop_map(|data_only| Step::Sync { data_only }),
        2 => (name(), name()).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => name().prop_map(|name| Step::Remove { name }),
        2 => name().prop_map(|name| Step::Whole { name }),
    ]
}

/// What a dropped change may have done.
enum Dropped {
    Bytes { at: u64, len: usize, byte: u8 },
    Len(u64),
}

/// A file and its twin.
struct Twins {
    ours: File,
    std: std::fs::File,
    append: bool,
}

impl Twins {
    async fn open(dirs: [&Path; 2], name: usize, append: bool, truncate: bool) -> Self {
        let truncate = truncate && !append;
        let mut options = OpenOptions::new();
        options.read(true).write(!append).append(append).create(true).truncate(truncate);
        let ours = options.open(dirs[0].join(NAMES[name])).await.unwrap();
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(!append).append(append).create(true).truncate(truncate);
        Self { ours, std: options.open(dirs[1].join(NAMES[name])).unwrap(), append }
    }

    /// What is in a file, also when it has no name any more; through a description of its own.
    fn content(fd: &impl AsRawFd) -> Vec<u8> {
        std::fs::read(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap()
    }

    /// Waits until the dropped change is over, and makes the twin what the file is now.
    async fn settle(&self, dropped: Dropped) {
        self.ours.metadata().await.unwrap();
        let (now, before) = (Self::content(&self.ours), Self::content(&self.std));
        match dropped {
            Dropped::Len(len) => {
                let mut cut = before.clone();
                cut.resize(len as usize, 0);
                assert!(now == before || now == cut, "neither the old length nor the new one");
            }
            Dropped::Bytes { at, len, byte } => {
                let start = if self.append { before.len() } else { at as usize };
                assert!(now.len() >= before.len() && now.len() <= before.len().max(start + len));
                for (i, &found) in now.iter().enumerate() {
                    let old = before.get(i).copied().unwrap_or(0);
                    let new = (start..start + len).contains(&i) && found == byte;
                    assert!(found == old || new, "byte {i} is {found}, was {old}, and {byte} was written");
                }
            }
        }
        std::fs::write(format!("/proc/self/fd/{}", self.std.as_raw_fd()), now).unwrap();
    }
}

async fn run(dirs: [&Path; 2], steps: Vec<Step>) {
    let mut twins = Twins::open(dirs, 0, false, false).await;
    for (i, step) in steps.into_iter().enumerate() {
        let byte = (i % 255) as u8 + 1;
        let Twins { ours, std, append } = &mut twins;
        let dropped = match step {
            Step::Open { name, append, truncate } => {
                twins = Twins::open(dirs, name, append, truncate).await;
                None
            }
            Step::WriteAt { at, len, polls } | Step::Durable { at, len, polls } => {
                let (data, is_durable) = (vec![byte; len], matches!(step, Step::Durable { .. }) && !*append);
                let write = async {
                    if is_durable {
                        ours.write_all_at_sync(data.clone(), at).await.0.unwrap();
                    } else {
                        ours.write_all_at(data.clone(), at).await.0.unwrap();
                    }
                };
                if dropped_after(polls.unwrap_or(usize::MAX), write).await {
                    std.write_all_at(&data, at).unwrap();
                    None
                } else {
                    Some(Dropped::Bytes { at, len, byte })
                }
            }
            Step::Write { len, polls } => {
                let at = std.stream_position().unwrap();
                let write = ours.write_all(vec![byte; len]);
                if dropped_after(polls.unwrap_or(usize::MAX), write).await {
                    std.write_all(&vec![byte; len]).unwrap();
                    if *append {
                        // The cursor is at the end, which is where std's was left only as long as the file does not
                        // change.
                        assert_eq!(ours.seek(SeekFrom::Current(0)).await.unwrap(), std.stream_position().unwrap());
                    }
                    None
                } else {
                    Some(Dropped::Bytes { at, len, byte })
                }
            }
            Step::SetLen { len, polls } => {
                if dropped_after(polls.unwrap_or(usize::MAX), ours.set_len(len)).await {
                    std.set_len(len).unwrap();
                    None
                } else {
                    Some(Dropped::Len(len))
                }
            }
            Step::ReadAt { at, len } => {
                let (n, data) = ours.read_at(Vec::with_capacity(len), at).await.into_result().unwrap();
                let mut expected = vec![0; data.capacity()];
                assert_eq!(n, std.read_at(&mut expected, at).unwrap());
                assert!(data == expected[..n]);
                None
            }
            Step::Read { len } => {
                let (n, data) = ours.read(Vec::with_capacity(len)).await.into_result().unwrap();
                let mut expected = vec![0; data.capacity()];
                assert_eq!(n, std.read(&mut expected).unwrap());
                assert!(data == expected[..n]);
                None
            }
            Step::Seek { to } => {
                assert_eq!(ours.seek(SeekFrom::Start(to)).await.unwrap(), std.seek(SeekFrom::Start(to)).unwrap());
                None
            }
            Step::Sync { data_only } => {
                if data_only { ours.sync_data().await } else { ours.sync_all().await }.unwrap();
                None
            }
            Step::Rename { from, to } => {
                let [ours, theirs] = dirs.map(|dir| (dir.join(NAMES[from]), dir.join(NAMES[to])));
                let result = fs::rename(ours.0, ours.1).await.map_err(|error| error.kind());
                assert_eq!(result, std::fs::rename(theirs.0, theirs.1).map_err(|error| error.kind()));
                None
            }
            Step::Remove { name } => {
                let result = fs::remove_file(dirs[0].join(NAMES[name])).await.map_err(|error| error.kind());
                assert_eq!(result, std::fs::remove_file(dirs[1].join(NAMES[name])).map_err(|error| error.kind()));
                None
            }
            Step::Whole { name } => {
                let ours = fs::read(dirs[0].join(NAMES[name])).await.map_err(|error| error.kind());
                assert!(ours == std::fs::read(dirs[1].join(NAMES[name])).map_err(|error| error.kind()));
                None
            }
        };
        if let Some(dropped) = dropped {
            twins.settle(dropped).await;
        }
        let len = twins.ours.metadata().await.unwrap().len();
        assert_eq!(len, twins.std.metadata().unwrap().len());
    }
    assert_eq!(twins.ours.stream_position().await.unwrap(), twins.std.stream_position().unwrap());
    assert!(Twins::content(&twins.ours) == Twins::content(&twins.std));
    twins.ours.close().await.unwrap();
    let [ours, theirs] = dirs.map(|dir| {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries
            .map(|path| (path.file_name().unwrap().to_owned(), std::fs::read(&path).unwrap()))
            .collect::<BTreeMap<_, _>>()
    });
    assert!(ours == theirs);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_leave_what_they_leave_with_std(steps in proptest::collection::vec(step(), 1..60), tiny: bool) {
        let _watchdog = watchdog(Duration::from_secs(60));
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut builder = Builder::new().entries(if tiny { 8 } else { 64 });
        if tiny {
            builder.setup_mut().cq_entries = 16;
        }
        builder.build().unwrap().block_on(run([ours.path(), theirs.path()], steps));
    }
}
