//! Copying between real sockets, and the traits of streams, halves and pipes.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use runtime::io::prelude::*;
use runtime::io::{BufReader, BufWriter, copy, copy_bidirectional, copy_buf, repeat, sink};
use runtime::net::TcpStream;
use runtime::pipe::pipe;
use runtime::time::timeout;

use crate::peer::{ends, finish, ms, pair, pattern, reset, run, secs, until, within};

const LEN: usize = 1 << 20;

#[test]
fn a_megabyte_is_the_same_behind_odd_buffers() {
    run(secs(60), async {
        let (mut from, mut input) = pair().await;
        let (to, mut output) = pair().await;
        let sender = std::thread::spawn(move || {
            input.write_all(&pattern(0, LEN)).unwrap();
            finish(&input);
            input
        });
        let receiver = std::thread::spawn(move || {
            let mut all = Vec::new();
            output.read_to_end(&mut all).unwrap();
            all
        });
        let mut writer = BufWriter::with_capacity(5, to);
        assert_eq!(copy(&mut BufReader::with_capacity(7, &mut from), &mut writer).await.unwrap(), LEN as u64);
        writer.shutdown().await.unwrap();
        assert!(receiver.join().unwrap() == pattern(0, LEN));
        drop(sender.join().unwrap());
    });
}

#[test]
fn what_comes_is_passed_on_before_more_comes() {
    run(secs(20), async {
        for buffered in [false, true] {
            let (from, mut input) = pair().await;
            let (to, mut output) = pair().await;
            let copying = runtime::spawn(async move {
                let (mut from, mut to) = (BufReader::new(from), BufWriter::new(to));
                if buffered { copy_buf(&mut from, &mut to).await } else { copy(&mut from, &mut to).await }
            });
            for byte in b"xyz" {
                input.write_all(&[*byte]).unwrap();
                output.set_nonblocking(true).unwrap();
                let mut back = [0];
                until("the byte passed on", secs(5), || output.read_exact(&mut back).is_ok()).await;
                assert_eq!(back[0], *byte);
            }
            finish(&input);
            assert_eq!(copying.await.unwrap().unwrap(), 3);
        }
    });
}

#[test]
fn both_ways_until_both_have_ended() {
    run(secs(60), async {
        let (client, mut client_peer) = pair().await;
        let (server, mut server_peer) = pair().await;
        let proxy = runtime::spawn(async move { copy_bidirectional(&client, &server).await });
        let server = std::thread::spawn(move || {
            let mut request = Vec::new();
            // The end of the request arrives although the answer is still to be sent.
            server_peer.read_to_end(&mut request).unwrap();
            server_peer.write_all(&pattern(7, 3 * LEN)).unwrap();
            request
        });
        let client = std::thread::spawn(move || {
            client_peer.write_all(&pattern(0, LEN)).unwrap();
            finish(&client_peer);
            let mut answer = Vec::new();
            client_peer.read_to_end(&mut answer).unwrap();
            answer
        });
        let counts = within(secs(40), "the proxy", proxy).await.unwrap().unwrap();
        assert_eq!(counts, (LEN as u64, 3 * LEN as u64));
        assert!(server.join().unwrap() == pattern(0, LEN));
        assert!(client.join().unwrap() == pattern(7, 3 * LEN));
    });
}

#[test]
fn a_reset_ends_both_ways() {
    run(secs(20), async {
        let (client, client_peer) = pair().await;
        let (server, mut server_peer) = pair().await;
        let mut proxy = runtime::spawn(async move { copy_bidirectional(&client, &server).await });
        assert!(timeout(ms(10), &mut proxy).await.is_err());
        reset(client_peer);
        let error = within(secs(5), "the reset", proxy).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let _ = ends(&mut server_peer);
    });
}

#[test]
fn an_endless_copy_in_memory_lets_others_run() {
    run(secs(20), async {
        let copying = runtime::spawn(async { copy(&mut repeat(0), &mut sink()).await });
        assert!(timeout(ms(20), std::future::pending::<()>()).await.is_err());
        copying.abort();
    });
}

// ---- the traits of each type -------------------------------------------------------------------------------------------

/// Uses nothing but the traits.
async fn exchange<R: AsyncRead, W: AsyncWrite>(mut reader: R, mut writer: W) {
    writer.write_all_vectored(vec!["len", "gth"]).await.0.unwrap();
    writer.write_u32_le(7).await.unwrap();
    assert_eq!(writer.write("ab").await.0.unwrap(), 2);
    assert!(writer.write_vectored(vec!["c", "d"]).await.0.unwrap() > 0);
    writer.flush().await.unwrap();
    assert_eq!(reader.read_exact([0; 6]).await.into_result().unwrap().1, *b"length");
    assert_eq!(reader.read_u32_le().await.unwrap(), 7);
    let read = reader.read_vectored(vec![Vec::with_capacity(1), Vec::with_capacity(0)]).await;
    assert_eq!(read.into_result().unwrap().1.concat(), b"a");
    assert_eq!(reader.read(Vec::with_capacity(1)).await.into_result().unwrap().1, b"b");
    assert_eq!(reader.read_u8().await.unwrap(), b'c');
    writer.shutdown().await.unwrap();
}

async fn connected() -> (TcpStream, TcpStream) {
    let listener = runtime::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

#[test]
fn streams_halves_and_pipes_are_sources_and_sinks_owned_and_borrowed() {
    run(secs(20), async {
        let (a, b) = connected().await;
        exchange(&a, &b).await;
        let (mut a, mut b) = connected().await;
        exchange(&mut a, &mut b).await;
        let (a, b) = connected().await;
        exchange(Box::new(a), Box::new(b)).await;
        let (a, b) = connected().await;
        let ((reader, _keep), (_other, writer)) = (a.into_split(), b.into_split());
        exchange(&reader, &writer).await;
        let (a, b) = connected().await;
        let ((reader, _keep), (_other, writer)) = (a.into_split(), b.into_split());
        exchange(reader, writer).await;
        let (tx, rx) = pipe().unwrap();
        exchange(&rx, &tx).await;
        let (tx, rx) = pipe().unwrap();
        exchange(rx, tx).await;
    });
}

#[test]
fn shutdown_of_the_trait_ends_the_writing_side_only() {
    run(secs(20), async {
        let (mut stream, mut peer) = pair().await;
        AsyncWrite::shutdown(&mut stream).await.unwrap();
        assert_eq!(ends(&mut peer).unwrap(), 0);
        peer.write_all(b"still").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        assert_eq!(stream.read_to_end(&mut rest).await.unwrap(), 5);
    });
}

#[test]
fn buffered_halves_are_joined_again() {
    run(secs(20), async {
        let (stream, mut peer) = pair().await;
        let (reader, writer) = stream.into_split();
        let (mut reader, mut writer) = (BufReader::new(reader), BufWriter::new(writer));
        peer.write_all(b"line\n").unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        writer.write_all(line).await.0.unwrap();
        let writer = writer.into_inner().await.unwrap();
        let stream = reader.into_inner().reunite(writer).unwrap();
        let mut back = [0; 5];
        peer.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"line\n");
        stream.write_all("open").await.0.unwrap();
        drop(stream);
        assert_eq!(ends(&mut peer).unwrap(), 4);
    });
}

#[test]
fn wrappers_move_to_another_thread_like_what_they_wrap() {
    fn is_send<T: Send>(_: T) {}
    run(secs(20), async {
        let (stream, _peer) = pair().await;
        let (reader, writer) = stream.into_split();
        is_send(BufReader::new(reader).chain(std::io::Cursor::new("x")).take(5).lines());
        is_send(BufWriter::new(writer));
        is_send(runtime::io::BufStream::new(pair().await.0));
    });
}
