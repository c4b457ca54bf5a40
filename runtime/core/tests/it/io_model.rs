//! The buffered wrappers against std's on the same bytes: random operations, random pieces, interruptions, and futures
//! that are dropped after a random number of polls and started again.

use std::io::{BufRead, ErrorKind, Read};

use proptest::collection::vec;
use proptest::prelude::*;
use runtime::io::prelude::*;
use runtime::io::{BufReader, BufResult, BufWriter};

use crate::io_script::{INTERRUPT, Move, Step, Wait, drive, insist, sink, source};

#[derive(Debug, Clone)]
enum Reading {
    Some(usize),
    Exact(usize),
    Scattered(usize, usize),
    Until(u8),
    UntilMax(usize),
    Line,
    Skip,
    Peek(usize),
}

fn reading() -> impl Strategy<Value = Reading> {
    prop_oneof![
        (0usize..20).prop_map(Reading::Some),
        (0usize..20).prop_map(Reading::Exact),
        (0usize..10, 0usize..10).prop_map(|(a, b)| Reading::Scattered(a, b)),
        prop_oneof![Just(b'a'), Just(b'\n')].prop_map(Reading::Until),
        (0usize..12).prop_map(Reading::UntilMax),
        Just(Reading::Line),
        Just(Reading::Skip),
        (0usize..10).prop_map(Reading::Peek),
    ]
}

fn text(len: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => Just(b'a'), 6 => Just(b'b'), 3 => Just(b'\n'), 2 => Just(b'\r'), 1 => Just(0xff)];
    vec(byte, 0..len)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![4 => (1usize..9).prop_map(Move), 2 => Just(Wait), 1 => Just(INTERRUPT)];
    vec(step, 0..150)
}

/// Does the same with the reader and with std on the bytes that it should have; each future has `patience` polls at a
/// time. With `patience` of 0 none is dropped.
fn compare<R: AsyncBufRead>(mut reader: R, model: &[u8], todo: &[Reading], patience: usize) {
    let model = follow(&mut reader, model, todo, patience);
    // Whatever is left comes out too.
    assert_eq!(rest_of(reader, patience), model);
}

fn rest_of(mut reader: impl AsyncRead, patience: usize) -> Vec<u8> {
    let mut rest = Vec::new();
    insist(patience.max(1), async || reader.read_to_end(&mut rest).await).unwrap();
    rest
}

/// The part of [`compare`] before the end; returns what should be left.
fn follow<'m, R: AsyncBufRead>(mut reader: &mut R, mut model: &'m [u8], todo: &[Reading], patience: usize) -> &'m [u8] {
    macro_rules! run {
        ($future:expr) => {
            if patience == 0 { drive($future) } else { insist(patience, async || $future.await) }
        };
    }
    for reading in todo {
        match *reading {
            Reading::Some(room) => {
                let BufResult(result, data) = loop {
                    let result = run!(reader.read(Vec::with_capacity(room)));
                    if !is_interrupted(&result.0) {
                        break result;
                    }
                };
                let (n, room) = (result.unwrap(), data.capacity());
                assert!(n > 0 || room == 0 || model.is_empty(), "an early end");
                assert_eq!(data, &model[..n]);
                BufRead::consume(&mut model, n);
            }
            Reading::Exact(len) => {
                // A loop over single reads cannot give back what earlier ones brought; the reader's own can.
                let BufResult(result, data) = run!(reader.read_exact(vec![0; len].into_boxed_slice()));
                let mut expected = vec![0; len];
                let before = model;
                match Read::read_exact(&mut model, &mut expected) {
                    Ok(()) => assert_eq!((result.map_err(|e| e.kind()), &*data), (Ok(()), &expected[..])),
                    Err(error) => {
                        assert_eq!(result.unwrap_err().kind(), error.kind());
                        assert_eq!(&data[..before.len()], before);
                        model = &[];
                    }
                }
            }
            Reading::Scattered(first, second) => {
                let bufs = || vec![Vec::with_capacity(first), Vec::with_capacity(second)];
                let BufResult(result, data) = loop {
                    let result = run!(reader.read_vectored(bufs()));
                    if !is_interrupted(&result.0) {
                        break result;
                    }
                };
                let n = result.unwrap();
                let room: usize = data.iter().map(Vec::capacity).sum();
                assert!(n > 0 || room == 0 || model.is_empty(), "an early end");
                assert_eq!(data.concat(), &model[..n]);
                BufRead::consume(&mut model, n);
            }
            Reading::Until(delimiter) => {
                let (mut data, mut expected) = (b"x".to_vec(), b"x".to_vec());
                let n = run!(reader.read_until(delimiter, &mut data)).unwrap();
                assert_eq!(n, BufRead::read_until(&mut model, delimiter, &mut expected).unwrap());
                assert_eq!(data, expected);
            }
            Reading::UntilMax(max_len) => {
                let mut data = Vec::new();
                let result = run!(reader.read_until_max(b'\n', max_len, &mut data));
                let len = model.iter().position(|byte| *byte == b'\n').unwrap_or(model.len());
                if len > max_len {
                    assert_eq!((result.unwrap_err().kind(), data.len()), (ErrorKind::InvalidData, 0));
                    assert_eq!(&reader.buffer()[..max_len], &model[..max_len]);
                } else {
                    let n = result.unwrap();
                    assert_eq!(&data, &model[..n]);
                    assert_eq!(n, (len + 1).min(model.len()));
                    BufRead::consume(&mut model, n);
                }
            }
            Reading::Line => {
                let (mut line, mut expected) = ("x".to_owned(), "x".to_owned());
                let result = run!(reader.read_line(&mut line)).map_err(|error| error.kind());
                let model = BufRead::read_line(&mut model, &mut expected).map_err(|error| error.kind());
                assert_eq!((result, line), (model, expected));
            }
            Reading::Skip => {
                let n = run!(reader.skip_until(b'\n')).unwrap();
                // A dropped search has thrown away a part already, so only what is left tells.
                let skipped = BufRead::skip_until(&mut model, b'\n').unwrap();
                assert!(if patience == 0 { n == skipped } else { n <= skipped });
            }
            Reading::Peek(n) => {
                let data = run!(reader_fill(&mut reader));
                assert!(!data.is_empty() || model.is_empty(), "an early end");
                assert_eq!(&data, &model[..data.len()]);
                let n = n.min(data.len());
                AsyncBufRead::consume(&mut reader, n);
                BufRead::consume(&mut model, n);
            }
        }
    }
    model
}

/// Single reads pass an interruption on, as std's do.
fn is_interrupted<T>(result: &std::io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Interrupted)
}

async fn reader_fill<R: AsyncBufRead>(reader: &mut R) -> Vec<u8> {
    reader.fill_buf().await.unwrap().to_vec()
}

/// The operations that a reader without a buffer of its own for them can do without losing a part when it is dropped.
fn single_reads(todo: &[Reading]) -> Vec<Reading> {
    todo.iter().filter(|reading| !matches!(reading, Reading::Exact(_))).cloned().collect()
}

proptest! {
    #[test]
    fn buf_reader_reads_what_std_reads(
        data in text(120), steps in steps(), capacity in 1usize..24, todo in vec(reading(), 0..30),
    ) {
        compare(BufReader::with_capacity(capacity, source(&data, steps)), &data, &todo, 0);
    }

    #[test]
    fn buf_reader_reads_what_std_reads_when_every_future_is_dropped_early(
        data in text(120), steps in steps(), capacity in 20usize..40, todo in vec(reading(), 0..30),
        patience in 1usize..4,
    ) {
        compare(BufReader::with_capacity(capacity, source(&data, steps)), &data, &todo, patience);
    }

    #[test]
    fn take_reads_what_std_takes(
        data in text(120), steps in steps(), capacity in 20usize..40, limit in 0u64..130, todo in vec(reading(), 0..30),
        patience in 0usize..4, inside: bool,
    ) {
        let expected = &data[..data.len().min(limit as usize)];
        let script = source(&data, steps);
        if inside {
            let todo = if patience == 0 { todo } else { single_reads(&todo) };
            compare(BufReader::with_capacity(capacity, script).take(limit), expected, &todo, patience);
        } else {
            compare(BufReader::with_capacity(capacity, script.take(limit)), expected, &todo, patience);
        }
    }

    #[test]
    fn chain_reads_what_std_chains(
        first in text(60), second in text(60), pieces in (steps(), steps()), capacity in (1usize..40, 1usize..40),
        todo in vec(reading(), 0..30), patience in 0usize..4, inside: bool, direct: usize,
    ) {
        let expected = [&first[..], &second[..]].concat();
        let (first, second) = (source(&first, pieces.0), source(&second, pieces.1));
        if inside {
            let todo = if patience == 0 { todo } else { single_reads(&todo) };
            let first = BufReader::with_capacity(capacity.0, first);
            let mut chain = first.chain(BufReader::with_capacity(capacity.1, second));
            let mut left = follow(&mut chain, &expected, &todo, patience);
            if direct % 4 > 0 {
                // What is taken from the sources directly is missing and nothing else, wherever the chain is.
                let (source, _) = chain.get_mut();
                let from_first = source.buffer().len().min(direct / 4 % 3);
                prop_assert_eq!(&source.buffer()[..from_first], &left[..from_first]);
                AsyncBufRead::consume(source, from_first);
                left = &left[from_first..];
                left = follow(&mut chain, left, &todo[todo.len() / 2..], patience);
            }
            if direct % 2 == 0 {
                prop_assert_eq!(rest_of(chain, patience), left);
            } else {
                // Nor do the sources miss anything.
                let (first, second) = chain.into_inner();
                prop_assert_eq!([rest_of(first, patience), rest_of(second, patience)].concat(), left);
            }
        } else {
            compare(BufReader::with_capacity(capacity.0.max(20), first.chain(second)), &expected, &todo, patience);
        }
    }

    #[test]
    fn lines_are_stds_lines(data in text(200), steps in steps(), capacity in 1usize..24, patience in 1usize..4) {
        let mut lines = BufReader::with_capacity(capacity, source(&data, steps)).lines();
        for expected in BufRead::lines(&data[..]) {
            let line = insist(patience, async || lines.next().await).expect("as many lines");
            prop_assert_eq!(line.map_err(|error| error.kind()), expected.map_err(|error| error.kind()));
        }
        prop_assert!(drive(lines.next()).is_none());
    }

    #[test]
    fn buf_writer_writes_everything_in_order(
        pieces in vec((text(30), 0usize..5), 0..40), steps in steps(), capacity in 0usize..24,
    ) {
        let mut writer = BufWriter::with_capacity(capacity, sink(steps));
        let mut expected = Vec::new();
        for (piece, how) in pieces {
            match how {
                0 => {
                    // A write of the caller's own may be interrupted; it has taken nothing then.
                    let n = loop {
                        match drive(writer.write(piece.clone())).0 {
                            Ok(n) => break n,
                            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Interrupted),
                        }
                    };
                    expected.extend_from_slice(&piece[..n]);
                }
                1 => {
                    drive(writer.write_all(piece.clone())).0.unwrap();
                    expected.extend_from_slice(&piece);
                }
                2 => {
                    let (start, end) = piece.split_at(piece.len() / 2);
                    drive(writer.write_all_vectored(vec![start.to_vec(), Vec::new(), end.to_vec()])).0.unwrap();
                    expected.extend_from_slice(&piece);
                }
                3 => drive(writer.flush()).unwrap(),
                _ => {
                    drive(writer.write_u16(7)).unwrap();
                    expected.extend_from_slice(&[0, 7]);
                }
            }
            let held = writer.buffer().len();
            prop_assert!(held <= capacity);
            prop_assert_eq!(&[&writer.get_ref().taken[..], writer.buffer()].concat(), &expected);
        }
        prop_assert_eq!(drive(writer.into_inner()).unwrap().taken, expected);
    }
}
