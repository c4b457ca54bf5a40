//! Reading through the traits: short counts, errors and interruptions at each step, and futures dropped at each await.

use std::io::{Cursor, ErrorKind};
use std::time::Duration;

use futures::StreamExt;
use runtime::io::prelude::*;
use runtime::io::{BufReader, BufResult, IoBuf, empty, repeat};

use crate::io_script::{Fail, INTERRUPT, Move, Script, Step, Wait, drive, insist, source};
use crate::support::watchdog;

// ---- exact reads and numbers -------------------------------------------------------------------------------------------

#[test]
fn read_exact_goes_on_after_short_counts_and_interruptions() {
    let mut stream = source(b"0123456789rest", [Move(1), INTERRUPT, Wait, Move(3), Wait, INTERRUPT, Move(2)]);
    let (_, data) = drive(stream.read_exact(Vec::with_capacity(10))).into_result().unwrap();
    assert_eq!(data, b"0123456789");
    let (_, data) = drive(stream.read_exact([0; 4])).into_result().unwrap();
    assert_eq!(&data, b"rest");
}

#[test]
fn read_exact_says_unexpected_eof_and_the_buffer_has_what_came() {
    let mut stream = source(b"abc", [Move(2)]);
    let BufResult(result, data) = drive(stream.read_exact(b"previous".to_vec()));
    assert_eq!((result.unwrap_err().kind(), &data[..]), (ErrorKind::UnexpectedEof, &b"abc"[..]));
    let mut stream = source(b"abcdef", [Move(2), Fail(ErrorKind::ConnectionReset)]);
    let BufResult(result, data) = drive(stream.read_exact(Vec::with_capacity(6)));
    assert_eq!((result.unwrap_err().kind(), &data[..]), (ErrorKind::ConnectionReset, &b"ab"[..]));
    // The buffered reader says the same, below and above its capacity, with something buffered before.
    for capacity in 1..12 {
        let mut reader = BufReader::with_capacity(capacity, source(b"xabc", [Move(2)]));
        drive(reader.read_u8()).unwrap();
        let BufResult(result, data) = drive(reader.read_exact(Vec::with_capacity(8)));
        assert_eq!((result.unwrap_err().kind(), &data[..]), (ErrorKind::UnexpectedEof, &b"abc"[..]), "{capacity}");
    }
}

#[test]
fn a_read_without_room_is_no_end() {
    let mut reader = BufReader::with_capacity(4, source(b"abc", []));
    assert_eq!(drive(reader.read(Vec::new())).0.unwrap(), 0);
    assert_eq!(drive(reader.read_exact(Vec::new())).0.map_err(|e| e.kind()), Ok(()));
    assert_eq!(drive(reader.read_vectored(vec![Vec::new(), Vec::new()])).0.unwrap(), 0);
    let mut all = Vec::new();
    assert_eq!(drive(reader.read_to_end(&mut all)).unwrap(), 3);
    let mut chain = source(b"a", []).chain(source(b"b", []));
    assert_eq!(drive(chain.read(Vec::new())).0.unwrap(), 0);
    assert_eq!(drive(chain.read_to_end(&mut all)).unwrap(), 2);
    assert_eq!(all, b"abcab");
}

#[test]
fn every_number_makes_the_round_trip_in_both_byte_orders() {
    macro_rules! round_trip {
        ($($type:ident $read:ident $write:ident $read_le:ident $write_le:ident;)*) => {$(
            for number in [$type::MIN, $type::MAX, 1 as $type, 0x12 as $type] {
                let mut sink = Vec::new();
                drive(sink.$write(number)).unwrap();
                drive(sink.$write_le(number)).unwrap();
                assert_eq!(sink, [number.to_be_bytes(), number.to_le_bytes()].concat());
                let mut source = source(&sink, [Move(1); 64]);
                assert_eq!(drive(source.$read()).unwrap(), number);
                assert_eq!(drive(source.$read_le()).unwrap(), number);
                assert_eq!(drive(source.$read()).unwrap_err().kind(), ErrorKind::UnexpectedEof);
            }
        )*};
    }
    round_trip! {
        u8 read_u8 write_u8 read_u8 write_u8;
        i8 read_i8 write_i8 read_i8 write_i8;
        u16 read_u16 write_u16 read_u16_le write_u16_le;
        i16 read_i16 write_i16 read_i16_le write_i16_le;
        u32 read_u32 write_u32 read_u32_le write_u32_le;
        i32 read_i32 write_i32 read_i32_le write_i32_le;
        u64 read_u64 write_u64 read_u64_le write_u64_le;
        i64 read_i64 write_i64 read_i64_le write_i64_le;
        u128 read_u128 write_u128 read_u128_le write_u128_le;
        i128 read_i128 write_i128 read_i128_le write_i128_le;
        f32 read_f32 write_f32 read_f32_le write_f32_le;
        f64 read_f64 write_f64 read_f64_le write_f64_le;
    }
}

#[test]
fn read_vectored_fills_in_order_and_gives_all_buffers_back_in_their_places() {
    let bufs = || vec![Vec::new(), Vec::with_capacity(2), b"old".to_vec(), Vec::with_capacity(4)];
    let BufResult(result, back) = drive(source(b"abcdef", []).read_vectored(bufs()));
    assert_eq!((result.unwrap(), back), (2, vec![vec![], b"ab".to_vec(), vec![], vec![]]));
    let mut reader = BufReader::with_capacity(64, source(b"abcdef", []));
    let BufResult(result, back) = drive(reader.read_vectored(bufs()));
    assert_eq!((result.unwrap(), back), (6, vec![vec![], b"ab".to_vec(), b"cde".to_vec(), b"f".to_vec()]));
}

// ---- everything up to the end ------------------------------------------------------------------------------------------

#[test]
fn read_to_end_appends_and_a_dropped_one_goes_on() {
    let data: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    let steps = (0..300).flat_map(|i| [Wait, Move(1 + i * 7), INTERRUPT]);
    let mut stream = source(&data, steps);
    let mut all = b"before".to_vec();
    // Two polls: one piece may come, the next wait drops it.
    insist(2, async || stream.read_to_end(&mut all).await).unwrap();
    assert_eq!((&all[..6], &all[6..]), (&b"before"[..], &data[..]));
}

#[test]
fn read_to_end_keeps_what_came_before_an_error() {
    let mut stream = source(b"abcdef", [Move(2), Move(2), Fail(ErrorKind::TimedOut)]);
    let mut all = Vec::new();
    assert_eq!(drive(stream.read_to_end(&mut all)).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(all, b"abcd");
    assert_eq!(drive(stream.read_to_end(&mut all)).unwrap(), 2);
    assert_eq!(all, b"abcdef");
}

#[test]
fn an_endless_source_is_bounded_by_take() {
    let mut all = Vec::new();
    assert_eq!(drive(repeat(7).take(1_000_000).read_to_end(&mut all)).unwrap(), 1_000_000);
    assert!(all.len() == 1_000_000 && all.iter().all(|&byte| byte == 7));
    // A limit of all the numbers there are asks for no memory.
    let mut small = Vec::new();
    assert_eq!(drive(source(b"abc", []).take(u64::MAX).read_to_end(&mut small)).unwrap(), 3);
    assert!(small.capacity() < 100, "{}", small.capacity());
}

#[test]
fn a_buffer_of_impossible_size_is_an_error() {
    let mut reader = BufReader::with_capacity(usize::MAX, source(b"abc", []));
    assert_eq!(drive(reader.fill_buf()).unwrap_err().kind(), ErrorKind::OutOfMemory);
    let mut reader = BufReader::with_capacity(isize::MAX as usize, source(b"abc", []));
    assert_eq!(drive(reader.read_u8()).unwrap_err().kind(), ErrorKind::OutOfMemory);
}

#[test]
fn read_to_string_takes_text_only() {
    let mut text = "so: ".to_owned();
    assert_eq!(drive(source("grüße".as_bytes(), [Move(3)]).read_to_string(&mut text)).unwrap(), 7);
    assert_eq!(text, "so: grüße");
    let error = drive(source(b"ab\xff", []).read_to_string(&mut text)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let inner = error.get_ref().unwrap().downcast_ref::<std::string::FromUtf8Error>().unwrap();
    assert_eq!((inner.as_bytes(), &text[..]), (&b"ab\xff"[..], "so: grüße"));
}

// ---- take and chain ----------------------------------------------------------------------------------------------------

#[test]
fn take_stops_at_its_limit_and_leaves_the_rest() {
    let mut stream = source(b"abcdefgh", [Wait, Move(2)]);
    let mut take = (&mut stream).take(5);
    let BufResult(result, data) = drive(take.read(b"old old old".to_vec()));
    assert_eq!((result.unwrap(), &data[..], take.limit()), (2, &b"ab"[..], 3));
    let BufResult(result, data) = drive(take.read(b"old old old".to_vec()));
    assert_eq!((result.unwrap(), &data[..], take.limit()), (3, &b"cde"[..], 0));
    let BufResult(result, data) = drive(take.read(b"old".to_vec()));
    assert_eq!((result.unwrap(), &data[..]), (0, &b""[..]));
    take.set_limit(2);
    let BufResult(result, data) = drive(take.read_exact(Vec::with_capacity(3)));
    assert_eq!((result.unwrap_err().kind(), &data[..]), (ErrorKind::UnexpectedEof, &b"fg"[..]));
    assert_eq!(drive(stream.read_u8()).unwrap(), b'h');
}

#[test]
fn a_line_may_cross_the_seam_of_a_chain() {
    let first = BufReader::with_capacity(3, source(b"one\ntw", [Move(2), Wait, Move(1)]));
    let mut second = BufReader::with_capacity(4, source(b"o\nthree", [Move(3)]));
    drive(second.fill_buf()).unwrap();
    let mut lines = first.chain(second).lines();
    let mut all = Vec::new();
    while let Some(line) = insist(1, async || lines.next().await) {
        all.push(line.unwrap());
    }
    assert_eq!(all, ["one", "two", "three"]);
}

#[test]
fn what_the_second_of_a_chain_has_read_ahead_comes_into_view_at_once() {
    let mut second = BufReader::new(&b"two\nthree"[..]);
    drive(second.fill_buf()).unwrap();
    let mut lines = BufReader::new(&b"one\n"[..]).chain(second).lines();
    for expected in ["one", "two", "three"] {
        assert_eq!(drive(lines.next_line()).unwrap().unwrap(), expected);
    }
    assert!(drive(lines.next()).is_none());
}

// ---- buffered reading --------------------------------------------------------------------------------------------------

#[test]
fn large_reads_go_past_an_empty_buffer() {
    let mut reader = BufReader::with_capacity(4, source(b"0123456789", []));
    assert_eq!(drive(reader.read(Vec::with_capacity(6))).into_result().unwrap().1, b"012345");
    assert_eq!(drive(reader.read(Vec::with_capacity(2))).into_result().unwrap().1, b"67");
    assert_eq!(reader.buffer(), b"89");
    assert_eq!(drive(reader.read(Vec::with_capacity(6))).into_result().unwrap().1, b"89");
    assert_eq!(reader.get_ref().calls, 2);
}

#[test]
fn a_search_that_is_dropped_at_every_wait_finds_the_same() {
    let text = b"first line\nsecond one, longer than the buffer\n\nlast";
    for capacity in [1, 2, 7, 64] {
        let steps = (0..200).flat_map(|_| [Wait, Move(1), INTERRUPT]);
        let mut reader = BufReader::with_capacity(capacity, source(text, steps));
        for expected in text.split_inclusive(|byte| *byte == b'\n') {
            let mut line = Vec::new();
            let n = insist(2, async || reader.read_until(b'\n', &mut line).await).unwrap();
            assert_eq!((n, &line[..]), (expected.len(), expected), "capacity {capacity}");
        }
        let mut line = Vec::new();
        assert_eq!(drive(reader.read_until(b'\n', &mut line)).unwrap(), 0);
    }
}

#[test]
fn read_exact_dropped_at_every_wait_loses_nothing_below_the_capacity() {
    let data: Vec<u8> = (0..64).collect();
    let mut reader = BufReader::with_capacity(16, source(&data, (0..100).flat_map(|_| [Wait, Move(1)])));
    for start in (0..64).step_by(16) {
        let read = insist(2, async || reader.read_exact(Vec::with_capacity(16)).await);
        assert_eq!(read.into_result().unwrap().1, &data[start..start + 16]);
    }
}

#[test]
fn an_error_in_the_middle_of_a_line_leaves_the_line() {
    let steps = [Move(3), Fail(ErrorKind::TimedOut), Move(2), Fail(ErrorKind::ConnectionReset)];
    let mut reader = BufReader::with_capacity(4, source(b"a line\n", steps));
    let mut line = String::new();
    assert_eq!(drive(reader.read_line(&mut line)).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!((reader.buffer(), &line[..]), (&b"a l"[..], ""));
    assert_eq!(drive(reader.read_line(&mut line)).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!((reader.buffer(), &line[..]), (&b"a lin"[..], ""));
    assert_eq!(drive(reader.read_line(&mut line)).unwrap(), 7);
    assert_eq!(line, "a line\n");
}

#[test]
fn a_long_line_that_comes_byte_by_byte_is_gathered_in_linear_time() {
    const LEN: usize = 500_000;
    let mut data = vec![b'x'; LEN];
    data.push(b'\n');
    let mut reader = BufReader::with_capacity(64, source(&data, vec![Move(1); LEN + 1]));
    let _watchdog = watchdog(Duration::from_secs(8));
    let mut line = Vec::new();
    assert_eq!(drive(async { reader.read_until(b'\n', &mut line).await }).unwrap(), LEN + 1);
    assert_eq!(line, data);
    // What it grew to is not kept.
    assert_eq!(drive(reader.fill_buf()).unwrap(), b"");
    let (_, rest) = reader.into_parts();
    assert!(rest.capacity() <= 128, "{}", rest.capacity());
}

#[test]
fn into_parts_gives_what_was_read_ahead() {
    let mut reader = BufReader::new(source(b"head body", []));
    let mut head = Vec::new();
    drive(reader.read_until(b' ', &mut head)).unwrap();
    let (script, ahead) = reader.into_parts();
    assert_eq!((&ahead[..], script.data.len()), (&b"body"[..], 0));
}

// ---- lines -------------------------------------------------------------------------------------------------------------

fn all_lines(data: &[u8], capacity: usize, steps: &[Step]) -> Vec<Result<String, ErrorKind>> {
    let mut lines = BufReader::with_capacity(capacity, source(data, steps.iter().copied())).lines().max_len(10);
    let mut all = Vec::new();
    while let Some(line) = insist(2, async || lines.next().await) {
        all.push(line.map_err(|error| error.kind()));
    }
    all
}

#[test]
fn lines_lose_their_endings_and_nothing_else() {
    let steps: Vec<_> = (0..100).flat_map(|_| [Wait, Move(1)]).collect();
    for capacity in [1, 3, 100] {
        let lines = all_lines(b"a\r\n\nb\rc\n\r\nlast\r", capacity, &steps);
        assert_eq!(lines, ["a", "", "b\rc", "", "last\r"].map(|line| Ok(line.to_owned())));
    }
    assert!(all_lines(b"", 8, &steps).is_empty());
}

#[test]
fn a_line_that_is_no_text_is_skipped_and_its_bytes_are_in_the_error() {
    let lines = all_lines(b"one\nt\xffo\nthree\n", 8, &[Move(5)]);
    assert_eq!(lines, [Ok("one".to_owned()), Err(ErrorKind::InvalidData), Ok("three".to_owned())]);
    let mut reader = BufReader::new(&b"t\xffo\nrest"[..]);
    let error = drive(reader.read_line(&mut String::new())).unwrap_err();
    let inner = error.get_ref().unwrap().downcast_ref::<std::string::FromUtf8Error>().unwrap();
    assert_eq!((inner.as_bytes(), reader.buffer()), (&b"t\xffo\n"[..], &b"rest"[..]));
}

#[test]
fn an_endless_line_is_an_error_and_then_the_end_and_its_bytes_are_there() {
    let mut lines = BufReader::with_capacity(16, repeat(b'x')).lines().max_len(100);
    let error = drive(lines.next()).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("100 bytes"), "{error}");
    assert!(drive(lines.next()).is_none());
    let reader = lines.into_inner();
    assert!(reader.buffer().len() > 100 && reader.buffer().len() <= 116, "{}", reader.buffer().len());
    // A line of just the limit is none too long, whatever comes with it.
    let mut lines = BufReader::new(&b"12345\n123456\n"[..]).lines().max_len(5);
    assert_eq!(drive(lines.next_line()).unwrap().unwrap(), "12345");
    assert_eq!(drive(lines.next_line()).unwrap_err().kind(), ErrorKind::InvalidData);
    // Nor is one without an ending.
    let mut line = String::new();
    assert_eq!(drive(BufReader::new(&b"12345"[..]).read_line_max(5, &mut line)).unwrap(), 5);
    let mut long = BufReader::new(&b"123456"[..]);
    assert_eq!(drive(long.read_line_max(5, &mut line)).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!((&line[..], long.buffer()), ("12345", &b"123456"[..]));
}

#[test]
fn an_error_of_the_source_does_not_end_the_lines() {
    let steps = [Move(2), Fail(ErrorKind::InvalidData), Move(2), Fail(ErrorKind::TimedOut)];
    let mut lines = BufReader::new(source(b"one\ntwo", steps)).lines().max_len(10);
    assert_eq!(drive(lines.next_line()).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(drive(lines.next_line()).unwrap().unwrap(), "one");
    assert_eq!(drive(lines.next_line()).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(drive(lines.next_line()).unwrap().unwrap(), "two");
}

#[test]
fn split_and_skip_until_divide_at_any_byte() {
    let mut parts = BufReader::with_capacity(2, source(b"a;bc;;d", (0..9).flat_map(|_| [Wait, Move(1)]))).split(b';');
    let mut all = Vec::new();
    while let Some(part) = insist(2, async || parts.next().await) {
        all.push(part.unwrap());
    }
    assert_eq!(all, [&b"a"[..], b"bc", b"", b"d"]);
    let mut reader = BufReader::with_capacity(3, source(b"skip this;rest", [Move(2)]));
    assert_eq!(drive(reader.skip_until(b';')).unwrap(), 10);
    assert_eq!(drive(reader.skip_until(b';')).unwrap(), 4);
    assert_eq!(drive(reader.skip_until(b';')).unwrap(), 0);
}

#[test]
fn lines_are_a_stream_too_that_keeps_its_read() {
    let steps = (0..40).flat_map(|_| [Wait, Wait, Move(1)]);
    let lines = BufReader::with_capacity(3, source(b"one\ntwo\nthree", steps)).lines();
    let mut stream = lines.into_stream();
    let mut all = Vec::new();
    while let Some(line) = insist(1, async || stream.next().await) {
        all.push(line.unwrap());
    }
    assert_eq!(all, ["one", "two", "three"]);
    assert!(drive(stream.next()).is_none());
}

// ---- sources in memory -------------------------------------------------------------------------------------------------

#[test]
fn memory_is_a_source() {
    let mut slice = &b"line\nrest"[..];
    let mut line = String::new();
    drive(slice.read_line(&mut line)).unwrap();
    assert_eq!((&line[..], slice), ("line\n", &b"rest"[..]));
    let mut cursor = Cursor::new(b"abc".to_vec());
    assert_eq!(drive(cursor.read(Vec::with_capacity(2))).into_result().unwrap().1, b"ab");
    assert_eq!(cursor.buffer(), b"c");
    cursor.set_position(u64::MAX);
    assert_eq!(drive(cursor.read(Vec::with_capacity(2))).0.unwrap(), 0);
    assert_eq!(drive(empty().read(b"old".to_vec())).into_result().unwrap(), (0, Vec::new()));
    let boxed: Box<Script> = Box::new(source(b"\x01boxed", []));
    let mut boxed = Box::new(boxed);
    assert_eq!(drive((&mut &mut boxed).read_u8()).unwrap(), 1);
}

#[test]
fn a_slice_of_a_buffer_receives_its_part_only() {
    let part = vec![b'.'; 8].slice(2..5);
    let BufResult(result, part) = drive(BufReader::with_capacity(2, source(b"abcdef", [])).read_exact(part));
    result.unwrap();
    assert_eq!(part.into_inner(), b"..abc...");
}

#[test]
fn a_task_that_finds_everything_in_its_buffer_lets_others_run() {
    let _watchdog = watchdog(Duration::from_secs(20));
    runtime::Runtime::new().unwrap().block_on(async {
        let turns = std::rc::Rc::new(std::cell::Cell::new(0));
        let counted = std::rc::Rc::clone(&turns);
        let other = runtime::spawn(async move {
            loop {
                counted.set(counted.get() + 1);
                runtime::task::yield_now().await;
            }
        });
        let data = vec![b'\n'; 20_000];
        let mut lines = BufReader::new(&data[..]).lines();
        for _ in 0..10_000 {
            assert_eq!(lines.next_line().await.unwrap().unwrap(), "");
        }
        let by_lines = turns.replace(0);
        assert!(by_lines >= 50, "{by_lines} turns during ten thousand lines");
        let mut reader = lines.into_inner();
        for _ in 0..10_000 {
            reader.read_u8().await.unwrap();
        }
        assert!(turns.get() >= 50, "{} turns during ten thousand bytes", turns.get());
        other.abort();
    });
}
