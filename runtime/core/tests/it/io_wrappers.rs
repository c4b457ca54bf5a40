//! The wrappers at their edges: a source that fails, lies or pauses in the middle, a future that is dropped there, and
//! what a peer can make them keep.

use std::io::ErrorKind;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use runtime::io::prelude::*;
use runtime::io::{BufReader, BufResult, BufWriter, IoBuf, IoBufMut, repeat};

use crate::alloc::live;
use crate::io_script::{Fail, INTERRUPT, Move, Script, Step, Wait, drive, insist, polls, sink, source};
use crate::support::{in_child, watchdog};

const LIMIT: Duration = Duration::from_secs(20);

/// Reads what is left.
fn rest_of(mut reader: impl AsyncRead) -> Vec<u8> {
    let mut rest = Vec::new();
    drive(reader.read_to_end(&mut rest)).unwrap();
    rest
}

// ---- chain ------------------------------------------------------------------------------------------------------------

/// Lines of 64 bytes without end, in pieces whose ends never meet those of the lines.
struct Endless(usize);

impl AsyncRead for Endless {
    async fn read<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<usize, B> {
        let n = buf.capacity().min(60);
        let data: Vec<u8> = (self.0..self.0 + n).map(|i| if i % 64 == 30 { b'\n' } else { b'x' }).collect();
        self.0 += n;
        let n = runtime_core::buf::fill(&mut buf, &data);
        BufResult(Ok(n), buf)
    }
}

#[test]
fn a_chain_keeps_no_more_of_an_endless_stream_than_its_reader_does() {
    in_child("io_wrappers::a_chain_keeps_no_more_of_an_endless_stream_than_its_reader_does", LIMIT, || {
        let before = live();
        let mut lines = (&b"prefix"[..]).chain(BufReader::with_capacity(1000, Endless(0))).lines().max_len(100);
        for _ in 0..20_000 {
            drive(lines.next_line()).unwrap().unwrap();
        }
        assert!(live() - before < 4000, "{} bytes are held", live() - before);
    });
}

#[test]
fn what_a_chain_has_not_served_is_still_in_its_sources() {
    let chain = || BufReader::new(&b"one\ntw"[..]).chain(BufReader::new(&b"o\nthree\nbody"[..]));
    for (lines, left) in
        [&b"one\ntwo\nthree\nbody"[..], b"two\nthree\nbody", b"three\nbody", b"body"].iter().enumerate()
    {
        let mut chain = chain();
        for _ in 0..lines {
            drive(chain.read_line(&mut String::new())).unwrap();
        }
        let (first, second) = chain.into_inner();
        assert_eq!([rest_of(first), rest_of(second)].concat(), *left, "after {lines} lines");
    }
    // A search that crossed the seam and found nothing has taken nothing of either.
    let mut chain = chain();
    drive(chain.read_line(&mut String::new())).unwrap();
    drive(chain.read_until_max(b'!', 3, &mut Vec::new())).unwrap_err();
    assert_eq!(chain.buffer(), b"two\nthree\nbody");
    let (first, second) = chain.into_inner();
    assert_eq!((rest_of(first), rest_of(second)), (b"tw".to_vec(), b"o\nthree\nbody".to_vec()));
}

#[test]
fn what_is_read_from_the_sources_of_a_chain_directly_does_not_come_twice() {
    for first_too in [false, true] {
        let mut chain = BufReader::new(&b"tw"[..]).chain(BufReader::new(&b"o\nthree"[..]));
        drive(chain.read_until_max(b'!', 3, &mut Vec::new())).unwrap_err();
        let (first, second) = chain.get_mut();
        assert_eq!(drive(second.read_u8()).unwrap(), b'o');
        if first_too {
            assert_eq!(drive(first.read_u8()).unwrap(), b't');
        }
        let mut line = String::new();
        drive(chain.read_line(&mut line)).unwrap();
        assert_eq!(line, if first_too { "w\n" } else { "tw\n" });
        assert_eq!(rest_of(chain), b"three");
    }
}

#[test]
fn a_chain_is_read_on_from_the_middle_of_its_seam() {
    for taken in 0..=4 {
        let mut chain = BufReader::new(&b"tw"[..]).chain(BufReader::with_capacity(2, source(b"o\nthree", [Move(1)])));
        drive(chain.read_until_max(b'!', 2, &mut Vec::new())).unwrap_err();
        drive(chain.fill_more()).unwrap();
        AsyncBufRead::consume(&mut chain, taken);
        assert_eq!(rest_of(&mut chain), b"two\nthree"[taken..], "after {taken} bytes");
    }
}

#[test]
fn a_chain_prints_none_of_the_bytes_that_pass() {
    let mut chain = BufReader::new(repeat(b'x').take(2)).chain(BufReader::new(repeat(b'y').take(2)));
    drive(chain.read_until_max(b'!', 3, &mut Vec::new())).unwrap_err();
    assert_eq!(chain.buffer(), b"xxyy");
    assert!(!format!("{chain:?}").contains('['), "{chain:?}");
}

// ---- take -------------------------------------------------------------------------------------------------------------

#[test]
fn a_body_ends_at_its_limit_whatever_an_exact_read_of_it_met() {
    let interruptions: [&[Step]; 4] = [
        &[Move(3), Fail(ErrorKind::TimedOut)],
        // A pause: a file that grows.
        &[Move(3), Move(0)],
        &[Move(3), Wait],
        &[Move(1), INTERRUPT, Move(2), Wait],
    ];
    for steps in interruptions {
        for buffered in [0, 1, 2, 64] {
            for fixed in [false, true] {
                let mut script = source(b"bodyNEXT", steps.iter().copied());
                let left = if buffered == 0 {
                    cut_short(&mut script, fixed)
                } else {
                    cut_short(&mut BufReader::with_capacity(buffered, &mut script), fixed)
                };
                assert_eq!(left, b"y", "{steps:?}, reads ahead {buffered}, fixed size {fixed}");
            }
        }
    }
}

/// An exact read of a body of four that does not succeed after three, and then all the rest of the body.
fn cut_short(source: &mut impl AsyncRead, fixed: bool) -> Vec<u8> {
    let mut body = source.take(4);
    if fixed {
        let result = polls(pin!(body.read_u32()), 1);
        assert!(result.is_none_or(|result| result.is_err()));
    } else if let Some(BufResult(result, came)) = polls(pin!(body.read_exact(Vec::with_capacity(4))), 1) {
        assert!(result.is_err());
        assert_eq!(came, b"bod");
    }
    assert_eq!(body.limit(), 1);
    rest_of(body)
}

#[test]
fn a_body_that_is_shorter_than_an_exact_read_counts_as_read() {
    let mut script = source(b"bodyNEXT", [Move(1), Wait, INTERRUPT]);
    let mut body = (&mut script).take(4);
    let BufResult(result, came) = drive(body.read_exact(Vec::with_capacity(6)));
    assert_eq!((result.unwrap_err().kind(), &came[..], body.limit()), (ErrorKind::UnexpectedEof, &b"body"[..], 0));
    assert_eq!(drive(body.read_exact(vec![0; 6])).1, b"");
    assert_eq!(rest_of(script), b"NEXT");
}

// ---- writes past the buffer -------------------------------------------------------------------------------------------

async fn large_write<W: AsyncWrite>(writer: &mut W, how: usize) -> std::io::Result<()> {
    match how {
        0 => writer.write("past the buffer").await.0.map(drop),
        1 => writer.write_all("past the buffer").await.0,
        2 => writer.write_vectored(vec!["past the", " buffer"]).await.0.map(drop),
        _ => writer.write_all_vectored(vec!["past the", " buffer"]).await.0,
    }
}

#[test]
fn a_dropped_write_past_the_buffer_is_told_once_by_whatever_comes_next() {
    for how in 0..4 {
        for next in 0..4 {
            let mut writer = BufWriter::with_capacity(8, sink([Move(3), Wait]));
            drive(writer.write_all("abc")).0.unwrap();
            assert!(polls(pin!(large_write(&mut writer, how)), 1).is_none());
            let result = match next {
                0 => drive(writer.write_all("on")).0,
                1 => drive(writer.flush()),
                2 => drive(large_write(&mut writer, how)),
                _ => drive(writer.shutdown()),
            };
            let error = result.unwrap_err();
            assert!(error.to_string().contains("dropped half-way"), "{how} {next}: {error}");
            drive(writer.write_all("on")).0.unwrap();
            assert_eq!(drive(writer.into_inner()).unwrap().taken, b"abcon");
        }
    }
}

#[test]
fn a_write_past_the_buffer_that_was_over_is_no_hole() {
    for how in 0..4 {
        let mut writer = BufWriter::with_capacity(2, sink([Wait, Fail(ErrorKind::TimedOut), Wait]));
        assert_eq!(drive(large_write(&mut writer, how)).unwrap_err().kind(), ErrorKind::TimedOut);
        drive(large_write(&mut writer, how)).unwrap();
        drive(writer.flush()).unwrap();
    }
}

#[test]
fn the_parts_of_a_writer_tell_of_a_hole() {
    for large in [false, true] {
        let mut writer = BufWriter::with_capacity(8, sink([Wait]));
        if large {
            assert!(polls(pin!(large_write(&mut writer, 1)), 1).is_none());
        } else {
            drive(writer.write_all("held")).0.unwrap();
            assert!(polls(pin!(writer.flush()), 1).is_none());
        }
        let (script, held) = writer.into_parts();
        assert!(held.unwrap_err().to_string().contains("dropped half-way"));
        assert_eq!(script.taken, b"");
    }
    let mut writer = BufWriter::new(sink([]));
    drive(writer.write_all("held")).0.unwrap();
    assert_eq!(writer.into_parts().1.unwrap(), b"held");
}

// ---- memory -----------------------------------------------------------------------------------------------------------

#[test]
fn a_reader_of_lines_stays_within_its_memory_and_gives_it_back_before_it_waits() {
    in_child("io_wrappers::a_reader_of_lines_stays_within_its_memory_and_gives_it_back_before_it_waits", LIMIT, || {
        const MAX: i64 = 1 << 20;
        const CAPACITY: i64 = 64 * 1024;
        // What is left behind the long line: nothing, a bit, more than is copied.
        for tail in [0, 1, 5_000, 50_000] {
            let pieces = MAX as usize / 4096;
            let text = [&vec![b'x'; MAX as usize][..], b"\n", &vec![b'y'; tail]].concat();
            let steps = (0..pieces).flat_map(|_| [Wait, Move(4096)]).chain([Wait, Move(1 + tail), Wait, Wait]);
            let script = source(&text, steps);
            let before = live();
            let mut lines = BufReader::new(script).lines().max_len(MAX as usize);
            {
                let mut most = 0;
                let mut next = pin!(lines.next_line());
                let line = loop {
                    match polls(next.as_mut(), 1) {
                        Some(line) => break line,
                        None => most = most.max(live() - before),
                    }
                };
                assert_eq!(line.unwrap().unwrap().len(), MAX as usize);
                assert!(most <= 2 * (MAX + CAPACITY) + 2 * CAPACITY, "{most} bytes for a line");
            }
            let mut next = pin!(lines.next_line());
            assert!(polls(next.as_mut(), 1).is_none());
            let held = live() - before;
            assert!(held <= 5 * CAPACITY, "{held} bytes while it waits behind {tail}");
        }
        // Nor is it kept while nobody reads.
        let before = live();
        let mut reader = BufReader::new(source(&vec![b'x'; MAX as usize], [Move(4096); 200]));
        let data_len = live() - before;
        drive(reader.read_until_max(b'\n', MAX as usize / 2, &mut Vec::new())).unwrap_err();
        let n = reader.buffer().len();
        AsyncBufRead::consume(&mut reader, n);
        let held = live() - before - data_len;
        assert!(held <= 2 * CAPACITY, "{held} bytes with nothing in them");
    });
}

// ---- counts that lie --------------------------------------------------------------------------------------------------

/// Moves half of what there is room for, and says that it moved a lot.
struct Boaster;

impl AsyncRead for Boaster {
    async fn read<B: IoBufMut>(&mut self, mut buf: B) -> BufResult<usize, B> {
        let half = vec![b'x'; buf.capacity() / 2];
        runtime_core::buf::fill(&mut buf, &half);
        BufResult(Ok(usize::MAX), buf)
    }

    async fn read_exact<B: IoBufMut>(&mut self, buf: B) -> BufResult<(), B> {
        self.read(buf).await.map(drop)
    }
}

impl AsyncWrite for Boaster {
    async fn write<B: IoBuf>(&mut self, buf: B) -> BufResult<usize, B> {
        BufResult(Ok(usize::MAX), buf)
    }

    async fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    async fn shutdown(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_count_that_lies_goes_no_further_than_the_buffer() {
    async fn read(mut reader: impl AsyncRead, room: usize) -> (usize, usize) {
        let (n, buf) = reader.read(Vec::with_capacity(room)).await.into_result().unwrap();
        (n, buf.len())
    }
    async fn scattered(mut reader: impl AsyncRead, room: usize) -> (usize, usize) {
        let bufs = vec![Vec::with_capacity(room), Vec::with_capacity(room)];
        let (n, bufs) = reader.read_vectored(bufs).await.into_result().unwrap();
        (n, bufs.iter().map(Vec::len).sum())
    }
    drive(async {
        for room in [4, 64] {
            let half = (room / 2, room / 2);
            assert_eq!(read(Boaster.take(100), room).await, half);
            assert_eq!(scattered(Boaster.take(100), room).await, half);
            assert_eq!(read(BufReader::with_capacity(4, Boaster), room).await, half);
            assert_eq!(scattered(BufReader::with_capacity(4, Boaster), room).await, half);
            assert_eq!(read(Boaster.chain(Boaster), room).await, half);
            assert_eq!(read(b"".chain(Boaster), room).await, half);
            assert_eq!(scattered(Boaster, room).await, half);
        }
        // Nor is an exact read believed that has not filled its buffer.
        let BufResult(result, came) = BufReader::with_capacity(4, Boaster).read_exact(Vec::with_capacity(8)).await;
        assert_eq!((result.unwrap_err().kind(), &came[..]), (ErrorKind::UnexpectedEof, &b"xxxx"[..]));
        // What did not come is not taken from the limit either.
        let mut take = Boaster.take(100);
        take.read(Vec::with_capacity(8)).await.0.unwrap();
        assert_eq!(take.limit(), 96);
        let mut writer = BufWriter::with_capacity(2, Boaster);
        assert_eq!(writer.write("abc").await.0.unwrap(), 3);
        assert_eq!(writer.write_vectored(vec!["abc", "de"]).await.0.unwrap(), 3, "the first of them");
        assert_eq!(Boaster.write_vectored(vec!["", "abc", "de"]).await.0.unwrap(), 3);
    });
}

/// Says that more is buffered now, and buffers nothing.
struct Promises;

impl AsyncRead for Promises {
    async fn read<B: IoBufMut>(&mut self, buf: B) -> BufResult<usize, B> {
        BufResult(Ok(0), buf)
    }
}

impl AsyncBufRead for Promises {
    fn buffer(&self) -> &[u8] {
        b""
    }

    async fn fill_more(&mut self) -> std::io::Result<usize> {
        Ok(100)
    }

    fn consume(&mut self, _n: usize) {}
}

#[test]
fn a_reader_that_promises_what_never_comes_is_at_its_end() {
    let _watchdog = watchdog(LIMIT);
    assert_eq!(drive(Promises.read_until(b'x', &mut Vec::new())).unwrap(), 0);
    assert!(drive(Promises.lines().next()).is_none());
    assert_eq!(drive(Promises.skip_until(b'x')).unwrap(), 0);
    assert_eq!(drive(runtime::io::copy_buf(&mut Promises, &mut Vec::new())).unwrap(), 0);
    assert_eq!(drive(runtime::io::copy_buf(&mut Promises.take(3), &mut Vec::new())).unwrap(), 0);
    // The tail of a chain, too, stays what it is.
    let mut line = String::new();
    assert_eq!(drive(BufReader::new(&b"tail"[..]).chain(Promises).read_line(&mut line)).unwrap(), 4);
}

// ---- copies -----------------------------------------------------------------------------------------------------------

#[test]
fn copy_buf_lends_64_kib_at_a_time_however_much_is_there() {
    let data = vec![7; (1 << 20) + 1];
    let mut to = sink([]);
    assert_eq!(drive(runtime::io::copy_buf(&mut &data[..], &mut to)).unwrap(), data.len() as u64);
    assert!(to.taken == data);
    assert_eq!(to.calls, 17);
}

// ---- scattered reads --------------------------------------------------------------------------------------------------

#[test]
fn buffers_of_a_scattered_read_that_failed_have_no_old_bytes() {
    for capacity in [4, 64] {
        let mut reader = BufReader::with_capacity(capacity, source(b"abc", [Fail(ErrorKind::TimedOut)]));
        let BufResult(result, bufs) = drive(reader.read_vectored(vec![b"old".to_vec(), b"er".to_vec()]));
        assert_eq!((result.unwrap_err().kind(), bufs), (ErrorKind::TimedOut, vec![vec![], vec![]]), "{capacity}");
    }
}

// ---- lines ------------------------------------------------------------------------------------------------------------

#[test]
fn a_stream_of_lines_gives_them_back_with_all_that_is_unread() {
    let steps = [Move(5), Wait, Move(2), Wait, Wait];
    let mut stream = BufReader::new(source(b"one\ntwo\nthree", steps)).lines().max_len(10).into_stream();
    assert_eq!(insist(1, async || stream.next().await).unwrap().unwrap(), "one");
    // The next one is in flight.
    assert!(polls(pin!(stream.next()), 1).is_none());
    let mut lines = stream.into_lines();
    assert_eq!(insist(1, async || lines.next().await).unwrap().unwrap(), "two");
    // And again as a stream, to its end.
    let mut stream = lines.into_stream();
    assert_eq!(insist(1, async || stream.next().await).unwrap().unwrap(), "three");
    assert!(drive(stream.next()).is_none());
    let script: Script = stream.into_lines().into_inner().into_inner();
    assert!(script.data.is_empty());
}
