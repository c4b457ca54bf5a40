//! `io::copy` past the program: chosen by itself, and with what it promises unchanged.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use runtime::fs::File;
use runtime::io::{AsyncRead, AsyncReadExt, BufReader, BufResult, BufWriter, IoBufMut, copy};
use runtime::net::TcpStream;
use runtime::op::{Kind, Rung};
use runtime::pipe::pipe;
use runtime::time::timeout;

use super::send_file::file;
use super::support::Rng;
use super::{pattern, poll_once, read_all, run};

async fn connected() -> (TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (stream, listener.accept().unwrap().0)
}

fn reading(mut peer: std::net::TcpStream) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    })
}

fn writing(mut peer: std::net::TcpStream, data: Vec<u8>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || peer.write_all(&data).unwrap())
}

fn spliced() -> u64 {
    runtime::metrics().ops(Kind::Splice, Rung::Inline)
}

#[test]
fn between_streams_the_program_does_not_see_the_bytes() {
    run(async {
        let all = pattern(1, (4 << 20) + 7);
        // From socket to socket, also by reference and behind a box.
        let ((mut a, client), (b, server)) = (connected().await, connected().await);
        let (client, server) = (writing(client, all.clone()), reading(server));
        let mut to = Box::new(&b);
        assert_eq!(copy(&mut &mut a, &mut to).await.unwrap(), all.len() as u64);
        b.shutdown(Shutdown::Write).await.unwrap();
        client.join().unwrap();
        assert!(server.join().unwrap() == all);
        let between_sockets = spliced();
        assert!(between_sockets > 0, "much flowed");
        // From pipe to pipe: nothing was read.
        let ((tx, mut from), (mut to, rx)) = (pipe().unwrap(), pipe().unwrap());
        let reads = runtime::metrics().ops(Kind::Read, Rung::Ring);
        let write = async {
            tx.write_all(all.clone()).await.0.unwrap();
            drop(tx);
        };
        let copying = async {
            let copied = copy(&mut from, &mut to).await.unwrap();
            drop(to);
            copied
        };
        let len = all.len();
        let look = async {
            let mut seen = 0;
            while seen < len {
                let (n, data) = rx.read(Vec::with_capacity(1 << 20)).await.into_result().unwrap();
                assert!(data == all[seen..seen + n]);
                seen += n;
            }
        };
        let ((), copied, ()) = futures::join!(write, copying, look);
        assert_eq!(copied as usize, len);
        assert!(spliced() > between_sockets && runtime::metrics().ops(Kind::Read, Rung::Ring) >= reads);
    });
}

#[test]
fn a_file_goes_to_a_socket_from_its_cursor_which_moves_along() {
    run(async {
        let all = pattern(2, 3 << 20);
        let mut source = File::from_std(file(&all));
        source.seek(std::io::SeekFrom::Start(1000)).await.unwrap();
        let (mut stream, peer) = connected().await;
        let peer = reading(peer);
        assert_eq!(copy(&mut source, &mut stream).await.unwrap(), (3 << 20) - 1000);
        assert_eq!(source.stream_position().await.unwrap(), 3 << 20);
        assert!(spliced() > 0);
        stream.shutdown(Shutdown::Write).await.unwrap();
        assert!(peer.join().unwrap() == all[1000..]);
        // Dropped again and again, the cursor is behind what went out.
        source.rewind().await.unwrap();
        let (mut to, rx) = pipe().unwrap();
        let (mut seen, mut rng, mut dropped): (Vec<u8>, _, _) = (Vec::new(), Rng(8), 0);
        while seen.len() < all.len() {
            if timeout(Duration::from_micros(rng.below(800)), copy(&mut source, &mut to)).await.is_err() {
                dropped += 1;
            }
            while let BufResult(Ok(n), data) = rx.try_read(vec![0; 100_000]) {
                seen.extend(&data[..n]);
            }
            assert_eq!(source.stream_position().await.unwrap(), seen.len() as u64);
        }
        assert!(seen == all && dropped > 10, "{dropped} dropped");
    });
}

#[test]
fn what_holds_or_changes_bytes_is_read_and_written() {
    run(async {
        /// Passes on, but changes the bytes: it must be asked for each of them.
        struct Xor<R>(R);
        impl<R: AsyncRead> AsyncRead for Xor<R> {
            async fn read<B: IoBufMut>(&mut self, buf: B) -> BufResult<usize, B> {
                let BufResult(result, data) = self.0.read(Vec::with_capacity(buf.capacity().min(1000))).await;
                let changed: Vec<u8> = data.iter().map(|byte| byte ^ 0xff).collect();
                let mut source = &changed[..];
                match result {
                    Ok(_) => AsyncRead::read(&mut source, buf).await,
                    Err(error) => BufResult(Err(error), buf),
                }
            }
        }
        let all = pattern(4, 300_000);
        let inverted: Vec<u8> = all.iter().map(|byte| byte ^ 0xff).collect();
        for way in 0..4 {
            let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
            let write = async {
                // Of one that stops early nobody reads the rest.
                assert!(tx.write_all(all.clone()).await.0.is_ok() || way == 2);
                drop(tx);
            };
            let copying = async {
                let from = from;
                let mut to = BufWriter::new(to);
                let copied = match way {
                    0 => copy(&mut Xor(&from), to.get_mut()).await,
                    1 => copy(&mut BufReader::new(&from), to.get_mut()).await,
                    2 => copy(&mut (&from).take(100_000), to.get_mut()).await,
                    _ => copy(&mut &from, &mut to).await,
                };
                copied.unwrap()
            };
            let ((), copied, seen) = futures::join!(write, copying, read_all(&rx));
            let wanted = match way {
                0 => &inverted[..],
                2 => &all[..100_000],
                _ => &all[..],
            };
            assert!(copied == wanted.len() as u64 && seen == wanted, "way {way}");
        }
        assert_eq!(spliced(), 0);
    });
}

#[test]
fn a_copy_that_waits_for_input_lets_others_write() {
    run(async {
        for sockets in [false, true] {
            let ((tx, from), (to, rx)) = (pipe().unwrap(), pipe().unwrap());
            let ((a, mut client), (b, mut server)) = (connected().await, connected().await);
            let (mut in_pipe, mut out_pipe, mut in_socket, mut out_socket) = (&from, &to, &a, &b);
            let mut copying = pin!(async {
                if sockets {
                    copy(&mut in_socket, &mut out_socket).await
                } else {
                    copy(&mut in_pipe, &mut out_pipe).await
                }
            });
            for round in 0..20 {
                assert!(poll_once(copying.as_mut()).await.is_pending());
                // Beside the copying, and in the middle of it.
                let limit = super::support::scaled(Duration::from_secs(5));
                if sockets {
                    timeout(limit, b.write_all("beside")).await.unwrap().0.unwrap();
                    client.write_all(format!("copied{round:02}").as_bytes()).unwrap();
                } else {
                    timeout(limit, to.write_all("beside")).await.unwrap().0.unwrap();
                    tx.write_all(format!("copied{round:02}")).await.0.unwrap();
                }
                let mut seen = vec![0; 14];
                let mut got = 0;
                server.set_nonblocking(true).unwrap();
                while got < 14 {
                    assert!(poll_once(copying.as_mut()).await.is_pending());
                    let part = if sockets {
                        server.read(&mut seen[got..]).unwrap_or(0)
                    } else {
                        let BufResult(n, data) = rx.try_read(vec![0; 14 - got]);
                        let n = n.unwrap_or(0);
                        seen[got..got + n].copy_from_slice(&data[..n]);
                        n
                    };
                    got += part;
                    runtime::task::yield_now().await;
                }
                assert_eq!(String::from_utf8(seen).unwrap(), format!("besidecopied{round:02}"));
            }
        }
    });
}

#[test]
fn a_copy_that_is_dropped_loses_nothing_between_streams() {
    run(async {
        let mut rng = Rng(5);
        let all = pattern(6, 8 << 20);
        let ((a, client), (b, server)) = (connected().await, connected().await);
        let (client, server) = (writing(client, all.clone()), reading(server));
        let dropped = Cell::new(0);
        while timeout(Duration::from_micros(rng.below(500)), copy(&mut &a, &mut &b)).await.is_err() {
            dropped.set(dropped.get() + 1);
        }
        b.shutdown(Shutdown::Write).await.unwrap();
        client.join().unwrap();
        assert!(server.join().unwrap() == all && dropped.get() > 0);
    });
}

#[test]
fn a_reset_of_the_source_is_told_though_the_copy_is_dropped_while_it_waits_for_its_target() {
    run(async {
        let ((source, peer), (target, mut other)) = (connected().await, connected().await);
        let (source, target) = (Rc::new(source), Rc::new(target));
        let copying = {
            let (source, target) = (Rc::clone(&source), Rc::clone(&target));
            runtime::spawn(async move { copy(&mut &*source, &mut &*target).await })
        };
        runtime::task::yield_now().await;
        // The copy waits for its source, and does not keep others from its target meanwhile.
        let writing = {
            let target = Rc::clone(&target);
            runtime::spawn(async move { target.write_all(vec![7; 16 << 20]).await.0 })
        };
        runtime::time::sleep(Duration::from_millis(20)).await;
        socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
        drop(peer);
        runtime::time::sleep(Duration::from_millis(20)).await;
        copying.abort();
        let copied = copying.await;
        let read = source.read(vec![0; 8]).await.0;
        let is_reset = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
        let told =
            matches!(&copied, Ok(Err(error)) if is_reset(error)) || matches!(&read, Err(error) if is_reset(error));
        assert!(told, "copy {copied:?}, read {read:?}");
        let reading = std::thread::spawn(move || {
            let mut all = vec![0; 16 << 20];
            other.read_exact(&mut all).unwrap();
        });
        writing.await.unwrap().unwrap();
        reading.join().unwrap();
    });
}
