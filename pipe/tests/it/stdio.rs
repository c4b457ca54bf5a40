//! The standard streams of child processes, whatever stands behind them: all bytes, in order, and the mode of what is
//! shared stays as it is.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use runtime::io::{AsyncBufReadExt, BufReader, copy, stderr, stdin, stdout};
use runtime::op::{Kind, Rung};
use runtime::pipe::splice_all;
use runtime::time::timeout;

use super::calls::{close_stdin, plain_lines, terminal};
use super::ends::Fifo;
use super::send_file::file;
use super::support::{Rng, am_child, in_child, scaled};
use super::{pattern, run};

const O_NONBLOCK: u32 = 0o4000;

/// This test once more, as a child with these streams.
fn start(name: &str, input: impl Into<Stdio>, output: impl Into<Stdio>) -> Child {
    again(name).stdin(input).stdout(output).spawn().unwrap()
}

fn again(name: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env("RUNTIME_TEST_CHILD", name);
    command
}

fn end(mut child: Child) -> ExitStatus {
    let deadline = Instant::now() + scaled(Duration::from_secs(30));
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What the child wrote between its marks; the harness writes to the same stream.
fn marked(all: &[u8]) -> &[u8] {
    let find = |mark: &[u8]| all.windows(3).position(|three| three == mark).expect("a mark");
    &all[find(b"<<<") + 3..find(b">>>")]
}

/// Whether the open file description is non-blocking.
fn is_nonblocking(fd: &impl AsRawFd) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
    u32::from_str_radix(flags, 8).unwrap() & O_NONBLOCK != 0
}

/// The child: passes its input on, with reads that are dropped all the time, each on a handle of its own.
fn pass_on() {
    run(async {
        let out = stdout().unwrap();
        out.write_all("<<<").await.0.unwrap();
        let mut rng = Rng(11);
        loop {
            let input = stdin().unwrap();
            let limit = Duration::from_micros(rng.below(300));
            let read = timeout(limit, input.read(Vec::with_capacity(1 + rng.below(20_000) as usize)));
            let Ok(read) = read.await else { continue };
            let (n, data) = read.into_result().unwrap();
            if n == 0 {
                break;
            }
            stdout().unwrap().write_all(data).await.0.unwrap();
        }
        out.write_all(">>>").await.0.unwrap();
    });
}

fn feed(mut to: impl Write + Send + 'static, all: Vec<u8>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for piece in all.chunks(3001) {
            to.write_all(piece).unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
    })
}

fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // A terminal ends with an error.
        let _ = from.read_to_end(&mut all);
        all
    })
}

#[test]
fn pipes_are_read_and_written_and_keep_their_mode() {
    const NAME: &str = "stdio::pipes_are_read_and_written_and_keep_their_mode";
    if am_child(NAME) {
        return pass_on();
    }
    let ((input, to), (from, output)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let shared = (input.try_clone().unwrap(), output.try_clone().unwrap());
    let child = start(NAME, input, output);
    let (fed, seen) = (feed(to, pattern(1, 400_000)), drain(from));
    fed.join().unwrap();
    assert!(end(child).success());
    assert!(!is_nonblocking(&shared.0) && !is_nonblocking(&shared.1), "the mode was changed");
    drop(shared);
    assert!(marked(&seen.join().unwrap()) == pattern(1, 400_000));
}

#[test]
fn sockets_are_read_and_written_and_keep_their_mode() {
    const NAME: &str = "stdio::sockets_are_read_and_written_and_keep_their_mode";
    if am_child(NAME) {
        return pass_on();
    }
    let (ours, theirs) = UnixStream::pair().unwrap();
    let shared = theirs.try_clone().unwrap();
    let child = start(NAME, OwnedFd::from(theirs.try_clone().unwrap()), OwnedFd::from(theirs));
    let seen = drain(ours.try_clone().unwrap());
    feed(ours.try_clone().unwrap(), pattern(2, 400_000)).join().unwrap();
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(end(child).success());
    assert!(!is_nonblocking(&shared), "the mode was changed");
    drop(shared);
    assert!(marked(&seen.join().unwrap()) == pattern(2, 400_000));
}

#[test]
fn files_are_read_and_written_where_the_shared_position_is() {
    const NAME: &str = "stdio::files_are_read_and_written_where_the_shared_position_is";
    if am_child(NAME) {
        return pass_on();
    }
    let (mut input, mut output) = (file(&pattern(3, 300_000)), file(b"before "));
    input.seek(SeekFrom::Start(100_000)).unwrap();
    let child = start(NAME, input.try_clone().unwrap(), output.try_clone().unwrap());
    assert!(end(child).success());
    assert_eq!(input.stream_position().unwrap(), 300_000, "the position is the process's too");
    let mut all = Vec::new();
    output.rewind().unwrap();
    output.read_to_end(&mut all).unwrap();
    assert!(all.starts_with(b"before ") && marked(&all) == &pattern(3, 300_000)[100_000..]);
}

#[test]
fn nothing_comes_from_dev_null_and_everything_goes_there() {
    const NAME: &str = "stdio::nothing_comes_from_dev_null_and_everything_goes_there";
    if am_child(NAME) {
        return pass_on();
    }
    assert!(end(start(NAME, Stdio::null(), Stdio::null())).success());
    // Closed at the start: std has put /dev/null there.
    let exe = std::env::current_exe().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" --exact \"$1\" --nocapture --test-threads=1 <&- >&-"]).arg(exe).arg(NAME);
    assert!(end(shell.env("RUNTIME_TEST_CHILD", NAME).spawn().unwrap()).success());
}

#[test]
fn a_stream_that_was_closed_is_an_error() {
    in_child("stdio::a_stream_that_was_closed_is_an_error", Duration::from_secs(20), || {
        close_stdin();
        let error = stdin().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        run(async { stderr().unwrap().write_all("still there\n").await.0.unwrap() });
    });
}

#[test]
fn a_fifo_whose_writer_is_gone_ends() {
    const NAME: &str = "stdio::a_fifo_whose_writer_is_gone_ends";
    if am_child(NAME) {
        return pass_on();
    }
    let fifo = Fifo::new("stdio");
    // Both ways, so that opening does not wait; then the one that writes goes.
    let mut writer = File::options().read(true).write(true).open(&fifo.0).unwrap();
    let input = File::open(&fifo.0).unwrap();
    writer.write_all(b"all there is").unwrap();
    drop(writer);
    let (from, output) = std::io::pipe().unwrap();
    let child = start(NAME, input, output);
    let seen = drain(from);
    assert!(end(child).success());
    assert_eq!(marked(&seen.join().unwrap()), b"all there is");
}

#[test]
fn input_is_copied_to_output_without_being_read() {
    const NAME: &str = "stdio::input_is_copied_to_output_without_being_read";
    if am_child(NAME) {
        return run(async {
            let (mut input, mut out) = (stdin().unwrap(), stdout().unwrap());
            out.write_all("<<<").await.0.unwrap();
            splice_all(&input, &out, 1000).await.unwrap();
            copy(&mut input, &mut out).await.unwrap();
            out.write_all(">>>").await.0.unwrap();
            assert_eq!(
                runtime::metrics().ops(Kind::Read, Rung::Ring) + runtime::metrics().ops(Kind::Read, Rung::Inline),
                0
            );
        });
    }
    let ((input, to), (from, output)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let child = start(NAME, input, output);
    let (fed, seen) = (feed(to, pattern(5, 700_000)), drain(from));
    fed.join().unwrap();
    assert!(end(child).success());
    assert!(marked(&seen.join().unwrap()) == pattern(5, 700_000));
}

#[test]
fn a_terminal_gives_lines_and_an_end_and_a_slow_one_holds_up_nobody() {
    const NAME: &str = "stdio::a_terminal_gives_lines_and_an_end_and_a_slow_one_holds_up_nobody";
    const LEN: usize = 300_000;
    if am_child(NAME) {
        return run(async {
            let mut lines = BufReader::new(stdin().unwrap()).lines();
            let mut count = 0;
            loop {
                // A wait that is given up loses no line.
                match timeout(Duration::from_millis(1), lines.next_line()).await {
                    Ok(line) => match line.unwrap() {
                        Some(line) => assert_eq!(line, format!("line {count}")),
                        None => break,
                    },
                    Err(_) => continue,
                }
                count += 1;
            }
            assert_eq!(count, 3, "and then ^D");
            // More than the terminal takes, while nobody looks: the thread goes on.
            let out = stdout().unwrap();
            let writing = runtime::spawn(async move {
                out.write_all("<<<").await.0.unwrap();
                out.write_all(vec![b'x'; LEN]).await.0.unwrap();
                out.write_all(">>>").await.0.unwrap();
            });
            for _ in 0..20 {
                runtime::time::sleep(Duration::from_millis(2)).await;
            }
            assert!(!writing.is_finished(), "there was room for all of it");
            stderr().unwrap().write_all("ticked").await.0.unwrap();
            writing.await.unwrap();
        });
    }
    let (mut master, slave) = terminal();
    plain_lines(&slave);
    let (mut ticks, theirs) = UnixStream::pair().unwrap();
    let mut command = again(NAME);
    command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(OwnedFd::from(theirs));
    let child = command.spawn().unwrap();
    // Its copy of the other side, which would keep that open.
    drop(command);
    for number in 0..3 {
        master.write_all(format!("line {number}\n").as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    master.write_all(&[4]).unwrap();
    // The child's output is left alone until it has said that its timers go on.
    ticks.set_read_timeout(Some(scaled(Duration::from_secs(20)))).unwrap();
    let mut said = [0; 6];
    ticks.read_exact(&mut said).expect("the write holds the thread up");
    assert_eq!(&said, b"ticked");
    let seen = drain(master);
    assert!(end(child).success());
    assert!(!is_nonblocking(&slave), "the mode was changed");
    drop(slave);
    let all = seen.join().unwrap();
    assert_eq!(marked(&all).len(), LEN);
}

#[test]
fn a_terminal_that_cannot_be_opened_again_is_written_by_a_worker() {
    const NAME: &str = "stdio::a_terminal_that_cannot_be_opened_again_is_written_by_a_worker";
    if am_child(NAME) {
        return run(async {
            for number in 0..20 {
                stdout().unwrap().write_all(format!("line {number}\n")).await.0.unwrap();
            }
            assert!(super::splice::workers() > 0);
            // Ending hangs the terminal up: only once everything has been read.
            assert_eq!(stdin().unwrap().read(vec![0; 8]).await.0.unwrap(), 0);
        });
    }
    // The master's file makes another terminal each time that it is opened.
    let (master, slave) = terminal();
    plain_lines(&slave);
    let (input, over) = std::io::pipe().unwrap();
    let child = start(NAME, input, master);
    let mut all = String::new();
    let mut reader = std::io::BufReader::new(slave);
    while !all.contains("line 19\n") {
        assert!(std::io::BufRead::read_line(&mut reader, &mut all).unwrap() > 0);
    }
    assert!((0..20).all(|number| all.contains(&format!("line {number}\n"))), "{all}");
    drop(over);
    assert!(end(child).success());
}
