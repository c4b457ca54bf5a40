//! The cursor: files as sources and sinks, and what moves the cursor and what does not.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;

use runtime::fs::File;
use runtime::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufResult, BufWriter,
};

use crate::kit::{everywhere, start_and_drop};

#[test]
fn writes_follow_each_other_and_offsets_move_nothing() {
    everywhere(|| async {
        let mut file = File::from(tempfile::tempfile().unwrap());
        file.write_all("a").await.0.unwrap();
        file.write_all("b").await.0.unwrap();
        assert_eq!(file.write_vectored(vec!["c", "", "d"]).await.0.unwrap(), 2);
        file.rewind().await.unwrap();
        let (n, data) = file.read(Vec::with_capacity(1)).await.into_result().unwrap();
        assert_eq!((n, &data[..]), (1, &b"a"[..]));
        file.read_at(Vec::with_capacity(1), 3).await.0.unwrap();
        file.write_at("e", 4).await.0.unwrap();
        let (_, data) = file.read_exact(Vec::with_capacity(2)).await.into_result().unwrap();
        assert_eq!(data, b"bc");
        let (n, data) =
            file.read_vectored(vec![Vec::with_capacity(1), Vec::with_capacity(8)]).await.into_result().unwrap();
        assert_eq!((n, &data[..]), (2, &[b"d".to_vec(), b"e".to_vec()][..]));
        assert_eq!(file.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
        assert_eq!(file.stream_position().await.unwrap(), 5);
        // An exact read that fails takes nothing.
        file.seek(SeekFrom::End(-2)).await.unwrap();
        let BufResult(result, data) = file.read_exact(Vec::with_capacity(3)).await;
        assert_eq!((result.unwrap_err().kind(), &data[..]), (ErrorKind::UnexpectedEof, &b"de"[..]));
        assert_eq!(file.stream_position().await.unwrap(), 3);
        assert_eq!(file.seek(SeekFrom::Current(-4)).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(file.seek(SeekFrom::Start(u64::MAX)).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(file.stream_position().await.unwrap(), 3);
        // Behind the end there is nothing, and a write there leaves a hole.
        file.seek(SeekFrom::End(3)).await.unwrap();
        assert_eq!(file.read(Vec::with_capacity(8)).await.0.unwrap(), 0);
        file.write_all("!").await.0.unwrap();
        file.rewind().await.unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "abcde\0\0\0!");
    });
}

#[test]
fn dropped_reads_leave_the_cursor_and_dropped_writes_are_repeated_in_place() {
    everywhere(|| async {
        let mut file = File::from(tempfile::tempfile().unwrap());
        let data: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
        for part in data.chunks(50) {
            start_and_drop(file.write_all(part.to_vec())).await;
            file.write_all(part.to_vec()).await.0.unwrap();
        }
        file.rewind().await.unwrap();
        let mut all = Vec::new();
        while all.len() < data.len() {
            // One that was over at once has moved the cursor, and is not dropped.
            let before = file.stream_position().await.unwrap();
            if start_and_drop(file.read(Vec::with_capacity(70))).await
                || start_and_drop(file.read_exact(Vec::with_capacity(70))).await
            {
                file.seek(std::io::SeekFrom::Start(before)).await.unwrap();
            }
            assert_eq!(file.stream_position().await.unwrap(), before);
            all.extend(file.read(Vec::with_capacity(70)).await.into_result().unwrap().1);
        }
        assert!(all == data);
    });
}

#[test]
fn a_file_that_is_taken_over_goes_on_where_it_was() {
    everywhere(|| async {
        let mut std = tempfile::tempfile().unwrap();
        std.write_all(b"0123456789").unwrap();
        let mut file = File::from(OwnedFd::from(std.try_clone().unwrap()));
        file.write_all("abc").await.0.unwrap();
        let mut clone = file.try_clone().unwrap();
        // The kernel's own position, which others share, has not moved.
        assert_eq!(std.stream_position().unwrap(), 10);
        clone.write_all("X").await.0.unwrap();
        assert_eq!(file.stream_position().await.unwrap(), 13, "a clone has a cursor of its own");
        let mut back = file.into_std().await.unwrap();
        assert_eq!(back.stream_position().unwrap(), 13);
        back.rewind().unwrap();
        let mut text = String::new();
        back.read_to_string(&mut text).unwrap();
        assert_eq!(text, "0123456789abcX");
    });
}

#[test]
fn buffers_copies_and_lines_work_on_files() {
    everywhere(|| async {
        let dir = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..1_000_000u64).map(|i| (i * i % 253) as u8).collect();
        std::fs::write(dir.path().join("from"), &data).unwrap();
        let mut from = BufReader::with_capacity(7777, File::open(dir.path().join("from")).await.unwrap());
        let mut to = BufWriter::with_capacity(5555, File::create(dir.path().join("to")).await.unwrap());
        assert_eq!(runtime::io::copy(&mut from, &mut to).await.unwrap(), 1_000_000);
        to.flush().await.unwrap();
        to.write_u64(u64::MAX - 1).await.unwrap();
        to.shutdown().await.unwrap();
        let copy = std::fs::read(dir.path().join("to")).unwrap();
        assert!(copy[..1_000_000] == data[..]);
        assert_eq!(copy[1_000_000..], (u64::MAX - 1).to_be_bytes());
        std::fs::write(dir.path().join("lines"), "one\ntwo\r\nthree").unwrap();
        let mut lines = BufReader::new(File::open(dir.path().join("lines")).await.unwrap()).lines();
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            all.push(line);
        }
        assert_eq!(all, ["one", "two", "three"]);
    });
}

#[test]
fn what_cannot_be_sought_is_read_as_it_comes() {
    everywhere(|| async {
        let (rx, mut tx) = std::io::pipe().unwrap();
        tx.write_all(b"abcdef").unwrap();
        let mut file = File::from(OwnedFd::from(rx));
        let (_, data) = file.read_exact(Vec::with_capacity(2)).await.into_result().unwrap();
        assert_eq!(data, b"ab");
        let (n, data) = file.read_vectored(vec![Vec::new(), Vec::with_capacity(2)]).await.into_result().unwrap();
        assert_eq!((n, &data[1][..]), (2, &b"cd"[..]));
        assert_eq!(file.seek(SeekFrom::Start(0)).await.unwrap_err().raw_os_error(), Some(29));
        drop(tx);
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"ef");
    });
}
