//! Writing through the traits: short counts, errors and interruptions at each step, and futures dropped at each await.

use std::io::{Cursor, ErrorKind};

use runtime::io::prelude::*;
use runtime::io::{BufReader, BufResult, BufStream, BufWriter, IoBuf, IoBufMut, empty, sink as void};

use crate::io_script::{Fail, INTERRUPT, Move, Script, Wait, drive, insist, sink, source};

#[test]
fn write_all_goes_on_after_short_counts_and_interruptions() {
    let mut stream = sink([Move(1), INTERRUPT, Wait, Move(3), Wait, INTERRUPT, Move(2)]);
    drive(stream.write_all("0123456789")).0.unwrap();
    assert_eq!(stream.taken, b"0123456789");
    drive(stream.write_all(b"a slice of it".to_vec().slice(2..7))).0.unwrap();
    assert_eq!(stream.taken, b"0123456789slice");
}

#[test]
fn write_all_says_write_zero_and_gives_the_buffer_back() {
    let BufResult(result, buf) = drive(sink([Move(2), Move(0)]).write_all("abc"));
    assert_eq!((result.unwrap_err().kind(), buf), (ErrorKind::WriteZero, "abc"));
    let BufResult(result, buf) = drive(sink([Move(2), Fail(ErrorKind::BrokenPipe)]).write_all("abc"));
    assert_eq!((result.unwrap_err().kind(), buf), (ErrorKind::BrokenPipe, "abc"));
    drive(sink([Move(0)]).write_all("")).0.unwrap();
}

#[test]
fn vectored_writes_keep_the_order_and_give_all_buffers_back_in_their_places() {
    let bufs = vec!["", "ab", "cde", "f"];
    let mut stream = sink([]);
    let BufResult(result, back) = drive(stream.write_vectored(bufs.clone()));
    assert_eq!((result.unwrap(), &back), (2, &bufs));
    let mut stream = sink([Move(1), INTERRUPT, Wait, Move(1), Move(2)]);
    let BufResult(result, back) = drive(stream.write_all_vectored(bufs.clone()));
    result.unwrap();
    assert_eq!((&stream.taken[..], &back), (&b"abcdef"[..], &bufs));
    let mut stream = sink([Move(2), Move(1), Fail(ErrorKind::BrokenPipe)]);
    let BufResult(result, back) = drive(stream.write_all_vectored(bufs.clone()));
    assert_eq!((result.unwrap_err().kind(), back), (ErrorKind::BrokenPipe, bufs));
    assert_eq!(drive(stream.write_vectored(Vec::<String>::new())).0.unwrap(), 0);
}

// ---- buffered writing --------------------------------------------------------------------------------------------------

#[test]
fn small_writes_are_gathered_and_large_ones_go_past() {
    let mut writer = BufWriter::with_capacity(8, sink([]));
    for piece in ["abc", "def", "gh"] {
        drive(writer.write_all(piece)).0.unwrap();
    }
    assert_eq!((writer.get_ref().calls, writer.buffer()), (0, &b"abcdefgh"[..]));
    drive(writer.write_all("i")).0.unwrap();
    assert_eq!((&writer.get_ref().taken[..], writer.buffer()), (&b"abcdefgh"[..], &b"i"[..]));
    assert_eq!(drive(writer.write("at least 8")).0.unwrap(), 10);
    assert_eq!((&writer.get_ref().taken[..], writer.buffer()), (&b"abcdefghiat least 8"[..], &b""[..]));
    assert_eq!(drive(writer.write_vectored(vec!["1", "2"])).0.unwrap(), 2);
    drive(writer.write_all_vectored(vec!["3", "4"])).0.unwrap();
    assert_eq!(writer.buffer(), b"1234");
    drive(writer.shutdown()).unwrap();
    let (stream, rest) = writer.into_parts();
    assert_eq!((&stream.taken[19..], rest.unwrap().len(), stream.shutdowns), (&b"1234"[..], 0, 1));
    // Nothing is held back without capacity.
    let mut writer = BufWriter::with_capacity(0, sink([]));
    drive(writer.write_all("x")).0.unwrap();
    assert_eq!(writer.get_ref().taken, b"x");
}

#[test]
fn an_error_of_the_sink_loses_nothing() {
    let steps = [Move(2), INTERRUPT, Fail(ErrorKind::TimedOut), Move(1), Wait, Fail(ErrorKind::OutOfMemory), Move(0)];
    let mut writer = BufWriter::with_capacity(8, sink(steps));
    drive(writer.write_all("abcdef")).0.unwrap();
    assert_eq!(drive(writer.flush()).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(writer.buffer(), b"cdef");
    // A write that needs the room fails without being taken.
    assert_eq!(drive(writer.write_all("ghijk")).0.unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(writer.buffer(), b"def");
    let error = drive(writer.into_inner()).unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::WriteZero);
    let stream = drive(error.into_inner().into_inner()).unwrap();
    assert_eq!(stream.taken, b"abcdef");
}

#[test]
fn a_dropped_flush_is_told_once_and_what_fits_is_never_at_risk() {
    let mut writer = BufWriter::with_capacity(8, sink([Move(1), Wait, Move(1)]));
    // These do not wait, so they cannot be dropped half-way.
    assert!(insist(1, async || writer.write_all("abc").await).0.is_ok());
    let mut dropped = 0;
    let result = insist(1, async || {
        dropped += 1;
        writer.flush().await
    });
    assert_eq!(dropped, 2);
    let error = result.unwrap_err();
    assert!(error.to_string().contains("dropped half-way"), "{error}");
    drive(writer.write_all("on")).0.unwrap();
    drive(writer.flush()).unwrap();
    assert_eq!(writer.get_ref().taken, b"aon", "b and c were lent to the flush that was dropped");
    // Writes say so as well, and take nothing then.
    let mut writer = BufWriter::with_capacity(2, sink([Wait]));
    drive(writer.write_all("x")).0.unwrap();
    let BufResult(result, back) = insist(1, async || writer.write_all("yz").await);
    assert_eq!((result.unwrap_err().kind(), back, writer.buffer()), (ErrorKind::Other, "yz", &b""[..]));
}

#[test]
fn a_buffered_stream_has_both_sides() {
    let mut stream = BufStream::with_capacity(4, 4, source(b"line\nrest", [Move(3)]));
    let mut line = String::new();
    drive(stream.read_line(&mut line)).unwrap();
    drive(stream.write_all("ab")).0.unwrap();
    assert_eq!((&line[..], stream.buffer(), stream.get_ref().taken.len()), ("line\n", &b"re"[..], 0));
    drive(stream.flush()).unwrap();
    drive(stream.write_all("c")).0.unwrap();
    assert_eq!(stream.get_mut().taken, b"ab");
    let script: Script = drive(stream.into_inner()).unwrap();
    assert_eq!(script.taken, b"abc");
    // Either wrapper passes the other direction on.
    let mut reader = BufReader::new(BufWriter::new(source(b"x", [])));
    drive(reader.write_u8(1)).unwrap();
    assert_eq!(drive(reader.read_u8()).unwrap(), b'x');
    let mut writer = BufWriter::new(BufReader::new(source(b"x\n", [])));
    assert_eq!(drive(writer.read_line(&mut line)).unwrap(), 2);
}

// ---- copying -----------------------------------------------------------------------------------------------------------

#[test]
fn copies_are_exact_whatever_the_pieces() {
    let data: Vec<u8> = (0..300_000u32).map(|i| (i * 7 % 253) as u8).collect();
    let pieces = || (0..400).flat_map(|i| [Move(i % 90 * 30 + 1), Wait, INTERRUPT, Move(1 + i)]);
    let mut to = sink(pieces());
    assert_eq!(drive(runtime::io::copy(&mut source(&data, pieces()), &mut to)).unwrap(), 300_000);
    assert!(to.taken == data);
    let mut to = sink(pieces());
    let mut from = BufReader::with_capacity(7, source(&data, pieces()));
    assert_eq!(drive(runtime::io::copy_buf(&mut from, &mut to)).unwrap(), 300_000);
    assert!(to.taken == data);
    // Through both wrappers, with sizes that divide nothing.
    let mut to = BufWriter::with_capacity(5, sink(pieces()));
    let mut from = BufReader::with_capacity(7, source(&data, pieces()));
    assert_eq!(drive(runtime::io::copy(&mut from, &mut to)).unwrap(), 300_000);
    assert!(to.get_ref().taken == data && to.get_ref().flushes > 0);
}

#[test]
fn copies_move_64_kib_at_a_time() {
    let mut from = source(&vec![7; 1 << 20], []);
    let mut to = sink([]);
    drive(runtime::io::copy(&mut from, &mut to)).unwrap();
    assert_eq!((from.calls, to.calls), (17, 16));
    let mut from = BufReader::new(source(&vec![7; 1 << 20], []));
    let mut to = sink([]);
    drive(runtime::io::copy_buf(&mut from, &mut to)).unwrap();
    assert_eq!((from.get_ref().calls, to.calls), (17, 16));
}

#[test]
fn copy_holds_nothing_back_while_the_source_waits() {
    for buffered in [false, true] {
        let mut from = BufReader::new(source(b"xrest", [Move(1), Wait, Wait]));
        let mut to = BufWriter::new(sink([]));
        let polled = insist_once(async {
            if buffered {
                runtime::io::copy_buf(&mut from, &mut to).await.unwrap();
            } else {
                runtime::io::copy(&mut from, &mut to).await.unwrap();
            }
        });
        assert!(!polled, "the source waits");
        assert_eq!(to.get_ref().taken, b"x", "buffered {buffered}");
    }
}

/// Whether the future was done after one poll.
fn insist_once<F: Future>(future: F) -> bool {
    crate::io_script::polls(std::pin::pin!(future), 1).is_some()
}

#[test]
fn copies_end_with_the_error_of_either_side() {
    let copy = |from: Script, to: Script| {
        let (mut from, mut to) = (from, to);
        let kind = drive(runtime::io::copy(&mut from, &mut to)).unwrap_err().kind();
        (kind, to.taken)
    };
    let reset = || source(b"abc", [Move(2), Fail(ErrorKind::ConnectionReset)]);
    assert_eq!(copy(reset(), sink([])), (ErrorKind::ConnectionReset, b"ab".to_vec()));
    assert_eq!(copy(source(b"abc", []), sink([Move(1), Move(0)])), (ErrorKind::WriteZero, b"a".to_vec()));
    let mut from = BufReader::new(source(b"abc", []));
    let mut to = sink([Move(1), Wait, Fail(ErrorKind::BrokenPipe)]);
    assert_eq!(drive(runtime::io::copy_buf(&mut from, &mut to)).unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(from.buffer(), b"bc", "what is not written is still in the reader");
}

#[test]
fn a_dropped_copy_buf_goes_on_where_it_was() {
    // Every wait is a drop. The sink takes nothing of a write that is dropped, so nothing comes twice either.
    let data: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
    let steps = || (0..500).flat_map(|i| [Wait, Move(i % 17 + 1)]);
    let mut from = BufReader::with_capacity(64, source(&data, steps()));
    let mut to = sink(steps());
    insist(1, async || runtime::io::copy_buf(&mut from, &mut to).await).unwrap();
    assert!(to.taken == data);
}

/// Says that it has moved everything there is, and moves nothing.
struct Liar;

impl AsyncRead for Liar {
    async fn read<B: IoBufMut>(&mut self, buf: B) -> BufResult<usize, B> {
        BufResult(Ok(usize::MAX), buf)
    }
}

impl AsyncWrite for Liar {
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
fn a_stream_that_lies_about_its_counts_ends_in_no_panic_and_no_loop() {
    let eof = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    eof(drive(Liar.read_exact(Vec::with_capacity(8))).0);
    drive(Liar.read_exact([1; 8])).0.unwrap();
    let mut all = Vec::new();
    assert_eq!(drive(Liar.read_to_end(&mut all)).unwrap(), 0);
    assert_eq!(drive(runtime::io::copy(&mut Liar, &mut Liar)).unwrap(), 0);
    let mut reader = BufReader::with_capacity(4, Liar);
    eof(drive(reader.read_exact(Vec::with_capacity(2))).0);
    eof(drive(reader.read_exact(Vec::with_capacity(9))).0);
    assert_eq!(drive(reader.read_until(b'x', &mut all)).unwrap(), 0);
    assert_eq!(drive(Liar.take(3).read_exact(Vec::with_capacity(2))).0.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    drive(Liar.write_all("abc")).0.unwrap();
    drive(Liar.write_all_vectored(vec!["abc", "d"])).0.unwrap();
    let mut writer = BufWriter::with_capacity(4, Liar);
    drive(writer.write_all("abc")).0.unwrap();
    drive(writer.write_all("def")).0.unwrap();
    drive(writer.flush()).unwrap();
    assert_eq!(drive(runtime::io::copy_buf(&mut &b"abc"[..], &mut writer)).unwrap(), 3);
}

// ---- sinks in memory ---------------------------------------------------------------------------------------------------

#[test]
fn memory_is_a_sink() {
    let mut place = [0; 4];
    let mut rest = &mut place[..];
    drive(rest.write_all("ab")).0.unwrap();
    assert_eq!(drive(rest.write_all("cde")).0.unwrap_err().kind(), ErrorKind::WriteZero);
    assert_eq!(&place, b"abcd");
    let mut cursor = Cursor::new(vec![b'.'; 3]);
    cursor.set_position(2);
    drive(cursor.write_all("xy")).0.unwrap();
    assert_eq!(cursor.into_inner(), b"..xy");
    let mut cursor = Cursor::new([0; 2]);
    assert_eq!(drive(cursor.write("abc")).0.unwrap(), 2);
    let mut boxed: Box<Vec<u8>> = Box::default();
    drive(boxed.write_all(vec![1, 2])).0.unwrap();
    assert_eq!(*boxed, [1, 2]);
    assert_eq!(drive(void().write_vectored(vec!["a", "bc"])).0.unwrap(), 3);
    drive(empty().write_all("abc")).0.unwrap();
}

#[cfg(feature = "bytes")]
#[test]
fn shared_bytes_are_written_without_a_copy() {
    let bytes = bytes::Bytes::from(b"0123456789".to_vec());
    let mut stream = sink([Move(3)]);
    let BufResult(result, back) = drive(stream.write_all(bytes.clone()));
    result.unwrap();
    assert_eq!((&stream.taken[..], back.as_ptr()), (&b"0123456789"[..], bytes.as_ptr()));
    let mut from = source(b"abc", []);
    let BufResult(result, back) = drive(from.read_exact(bytes::BytesMut::with_capacity(3).slice(..3)));
    result.unwrap();
    assert_eq!(&back[..], b"abc");
}
