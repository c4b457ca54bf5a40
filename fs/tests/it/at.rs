//! Reading and writing at offsets: whole transfers, vectors, large offsets, and buffers that come back.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;

use runtime::fs::File;
use runtime::io::{BufResult, IoBuf};

use crate::kit::everywhere;
use crate::support::Rng;

fn temporary() -> (std::fs::File, File) {
    let file = tempfile::tempfile().unwrap();
    (file.try_clone().unwrap(), File::from(file))
}

#[test]
fn exact_reads_fill_the_buffer_or_say_that_the_file_ends() {
    everywhere(|| async {
        let (std, file) = temporary();
        std.write_all_at(b"0123456789", 0).unwrap();
        let (_, data) = file.read_exact_at(Vec::with_capacity(4), 3).await.into_result().unwrap();
        assert_eq!(data, b"3456");
        let BufResult(result, data) = file.read_exact_at(Vec::with_capacity(8), 6).await;
        assert_eq!((result.unwrap_err().kind(), &data[..]), (ErrorKind::UnexpectedEof, &b"6789"[..]));
        let BufResult(result, _) = file.read_exact_at(Vec::<u8>::new(), 100).await;
        result.unwrap();
        let BufResult(result, data) = file.read_exact_at(vec![7; 6].slice(2..4), 0).await;
        result.unwrap();
        assert_eq!(data.into_inner(), [7, 7, b'0', b'1', 7, 7]);
    });
}

#[test]
fn reading_to_the_end_appends_what_is_there_in_any_size() {
    everywhere(|| async {
        let (std, file) = temporary();
        let data: Vec<u8> = (0..300_000u32).map(|i| (i * 7 % 251) as u8).collect();
        std.write_all_at(&data, 0).unwrap();
        for offset in [0, 1, 8191, 8192, 291_808, 299_999, 300_000, 400_000] {
            let expected = data.get(offset..).unwrap_or(&[]);
            let before = b"before".to_vec();
            let (n, all) = file.read_to_end_at(before, offset as u64).await.into_result().unwrap();
            assert_eq!(n, expected.len());
            assert!(all.strip_prefix(b"before").unwrap() == expected, "from {offset}");
        }
        for len in [0, 1, 8190, 8191, 8192, 8193, 16_384, 16_385] {
            std.set_len(len).unwrap();
            let (n, all) = file.read_to_end_at(Vec::new(), 0).await.into_result().unwrap();
            assert_eq!((n as u64, all.len() as u64), (len, len));
        }
    });
}

#[test]
fn vectors_go_in_order_and_more_than_iov_max_are_a_short_transfer() {
    everywhere(|| async {
        let (std, file) = temporary();
        let bufs: Vec<Vec<u8>> = (0..1500u32).map(|i| vec![i as u8]).collect();
        let (n, bufs) = file.write_vectored_at(bufs, 10).await.into_result().unwrap();
        assert_eq!((n, bufs.len()), (1024, 1500));
        let mut back = vec![0; 1024];
        std.read_exact_at(&mut back, 10).unwrap();
        assert!(back.iter().enumerate().all(|(i, &byte)| byte == i as u8));
        let bufs: Vec<Vec<u8>> = (0..1500).map(|_| Vec::with_capacity(1)).collect();
        let (n, bufs) = file.read_vectored_at(bufs, 10).await.into_result().unwrap();
        assert_eq!(n, 1024);
        assert!(bufs.iter().enumerate().all(|(i, buf)| if i < 1024 { buf == &[i as u8] } else { buf.is_empty() }));
        // One, none, and empty ones among others.
        assert_eq!(file.write_vectored_at(vec!["one"], 0).await.into_result().unwrap(), (3, vec!["one"]));
        assert_eq!(file.write_vectored_at(Vec::<&str>::new(), 0).await.into_result().unwrap(), (0, vec![]));
        assert_eq!(file.write_vectored_at(vec!["", "t", "", "wo"], 3).await.0.unwrap(), 3);
        let (n, bufs) = file.read_vectored_at(vec![Vec::with_capacity(8)], 0).await.into_result().unwrap();
        assert_eq!((n, &bufs[0][..6]), (8, &b"onetwo"[..]));
        let (n, bufs) = file
            .read_vectored_at(vec![Vec::new(), Vec::with_capacity(2), Vec::with_capacity(3)], 1)
            .await
            .into_result()
            .unwrap();
        assert_eq!((n, &bufs[..]), (5, &[vec![], b"ne".to_vec(), b"two".to_vec()][..]));
        let BufResult(result, bufs) = file.read_vectored_at(vec![vec![1], vec![2]], u64::MAX).await;
        assert_eq!((result.unwrap_err().kind(), bufs), (ErrorKind::InvalidInput, vec![vec![1], vec![2]]));
    });
}

#[test]
fn offsets_beyond_four_gib_are_right() {
    everywhere(|| async {
        let (std, file) = temporary();
        for offset in [(1u64 << 31) - 2, (1 << 32) - 2, 5 << 30, (1 << 40) + 1] {
            file.write_all_at("across", offset).await.0.unwrap();
            let mut back = [0; 6];
            std.read_exact_at(&mut back, offset).unwrap();
            assert_eq!(&back, b"across");
            let (_, data) = file.read_exact_at(Vec::with_capacity(6), offset).await.into_result().unwrap();
            assert_eq!(data, b"across");
            assert_eq!(file.metadata().await.unwrap().len(), offset + 6);
            let (n, tail) = file.read_to_end_at(Vec::new(), offset + 3).await.into_result().unwrap();
            assert_eq!((n, &tail[..]), (3, &b"oss"[..]));
        }
        file.set_len((6 << 30) + 1).await.unwrap();
        assert_eq!(std.metadata().unwrap().len(), (6 << 30) + 1);
    });
}

#[test]
fn what_does_not_fit_is_an_error_with_the_buffer() {
    everywhere(|| async {
        let full = File::options().write(true).open("/dev/full").await.unwrap();
        for _ in 0..300 {
            let BufResult(result, data) = full.write_all_at("no room", 0).await;
            assert_eq!((result.unwrap_err().raw_os_error(), data), (Some(28), "no room"));
        }
        let BufResult(result, data) = full.write_vectored_at(vec!["no", "room"], 0).await;
        assert_eq!((result.unwrap_err().raw_os_error(), data), (Some(28), vec!["no", "room"]));
        let BufResult(result, data) = runtime::fs::write("/dev/full", vec![1; 100_000]).await;
        assert_eq!((result.unwrap_err().kind(), data.len()), (ErrorKind::StorageFull, 100_000));
        let (_std, file) = temporary();
        let BufResult(result, data) = file.write_all_at("at the edge", i64::MAX as u64 - 3).await;
        assert!(result.is_err());
        assert_eq!(data, "at the edge");
    });
}

#[test]
fn random_operations_leave_what_they_leave_with_std() {
    everywhere(|| async {
        let (ours, theirs) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let mut file = File::from(ours.reopen().unwrap());
        let mut std = theirs.reopen().unwrap();
        let mut random = Rng(0x5eed_f11e);
        for step in 0..400 {
            let (offset, len) = (random.below(20_000), random.below(3000) as usize);
            match random.below(8) {
                0 | 1 => {
                    file.write_all_at(vec![step as u8; len], offset).await.0.unwrap();
                    std.write_all_at(&vec![step as u8; len], offset).unwrap();
                }
                2 => {
                    use runtime::io::AsyncWrite;
                    file.write_all(vec![step as u8; len]).await.0.unwrap();
                    std.write_all(&vec![step as u8; len]).unwrap();
                }
                3 => {
                    use runtime::io::AsyncRead;
                    let (n, data) = file.read(Vec::with_capacity(len)).await.into_result().unwrap();
                    let mut expected = vec![0; data.capacity()];
                    let m = std::io::Read::read(&mut std, &mut expected).unwrap();
                    assert_eq!((n, &data[..]), (m, &expected[..m]));
                }
                4 => {
                    use std::io::{Seek, SeekFrom};
                    let to = [
                        SeekFrom::Start(offset),
                        SeekFrom::Current(offset as i64 - 10_000),
                        SeekFrom::End(len as i64 - 3000),
                    ][random.below(3) as usize];
                    let (ours, theirs) = (file.seek(to).await, std.seek(to));
                    assert_eq!(ours.map_err(|error| error.kind()), theirs.map_err(|error| error.kind()), "{to:?}");
                }
                5 => {
                    file.set_len(offset).await.unwrap();
                    std.set_len(offset).unwrap();
                }
                6 => {
                    file.sync_data().await.unwrap();
                    let (n, data) = file.read_at(Vec::with_capacity(len), offset).await.into_result().unwrap();
                    let mut expected = vec![0; data.capacity()];
                    let m = std.read_at(&mut expected, offset).unwrap();
                    assert_eq!((n, &data[..]), (m, &expected[..m]));
                }
                _ => {
                    // There and back: both keep their position.
                    file = File::from_std(file.into_std().await.unwrap());
                }
            }
        }
        assert!(std::fs::read(ours.path()).unwrap() == std::fs::read(theirs.path()).unwrap());
    });
}
