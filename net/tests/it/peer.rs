//! What these tests share: a runtime with a time bound, sockets of which one end is std's, and a shell that changes
//! this process's limits from outside.

use std::cell::Cell;
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use runtime::Builder;
use runtime::net::{TcpListener, TcpStream};
use runtime::time::sleep;

use crate::support::{Rng, scaled, watchdog};

/// The std side of a connection.
pub(crate) use std::net::TcpStream as Peer;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Runs `body` on a runtime of its own, bounded by `limit`.
pub(crate) fn run<F: Future>(limit: Duration, body: F) -> F::Output {
    let _watchdog = watchdog(limit);
    Builder::new().build().unwrap().block_on(body)
}

/// A connection that the runtime made, and its std end.
pub(crate) async fn pair() -> (TcpStream, Peer) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(scaled(secs(20)))).unwrap();
    (stream, peer)
}

/// A listener with room for any burst here, and its address.
pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::options().backlog(4096).bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// A std client whose reads are bounded.
pub(crate) fn client(addr: SocketAddr) -> Peer {
    let peer = Peer::connect(addr).unwrap();
    peer.set_read_timeout(Some(scaled(secs(20)))).unwrap();
    peer
}

/// Whether this process may open a client and a stream for each of so many connections; says so where not.
pub(crate) fn may_open(connections: usize) -> bool {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX);
    let may = soft >= 2 * connections + 100;
    if !may {
        eprintln!("SKIP: the limit of descriptors is {soft}");
    }
    may
}

/// Closes with a reset instead of an end.
pub(crate) fn reset(peer: Peer) {
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
}

/// Polls a future once.
pub(crate) async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|task| Poll::Ready(future.as_mut().poll(task))).await
}

/// Starts a future and drops it.
pub(crate) async fn start_and_drop<F: Future>(future: F) -> Poll<F::Output> {
    poll_once(std::pin::pin!(future)).await
}

/// Waits on the runtime until `condition` holds.
#[track_caller]
pub(crate) fn until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + scaled(limit);
        while !condition() {
            assert!(Instant::now() < deadline, "{place}: not within {limit:?}: {what}");
            sleep(ms(1)).await;
        }
    }
}

/// Bounds a wait on the runtime: names what hangs.
#[track_caller]
pub(crate) fn within<F: Future>(limit: Duration, what: &str, future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        match runtime::time::timeout(scaled(limit), future).await {
            Ok(output) => output,
            Err(_) => panic!("{place}: not within {limit:?}: {what}"),
        }
    }
}

/// Reads `len` bytes from the runtime's side, whatever the pieces.
pub(crate) async fn read_len(stream: &TcpStream, len: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(len);
    while all.len() < len {
        let (n, data) = stream.read(Vec::with_capacity((len - all.len()).min(65536))).await.into_result().unwrap();
        assert!(n > 0, "the stream ended after {} of {len} bytes", all.len());
        all.extend_from_slice(&data[..n]);
        all.truncate(len);
    }
    all
}

/// Bytes that tell every position from its neighbours: noise, in blocks that begin with their number. Cheap, since it
/// is made on runtime threads whose pauses are measured.
pub(crate) fn pattern(from: usize, len: usize) -> Vec<u8> {
    const BLOCK: usize = 4096;
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    let noise = NOISE.get_or_init(|| {
        let mut rng = Rng(0x9e37_79b9);
        (0..BLOCK).map(|_| (rng.next() >> 32) as u8).collect()
    });
    let mut all = Vec::with_capacity(len);
    while all.len() < len {
        let (at, start) = (from + all.len(), all.len());
        let (block, offset) = (at / BLOCK, at % BLOCK);
        let n = (BLOCK - offset).min(len - start);
        all.extend_from_slice(&noise[offset..offset + n]);
        for (i, byte) in (block as u32).to_le_bytes().into_iter().enumerate() {
            if (offset..offset + n).contains(&i) {
                all[start + i - offset] ^= byte;
            }
        }
    }
    all
}

/// Serves a connection: every byte back until the end.
pub(crate) async fn echo(stream: TcpStream) -> std::io::Result<()> {
    let mut buf = Vec::with_capacity(4096);
    loop {
        let (n, data) = stream.read(buf).await.into_result()?;
        if n == 0 {
            return Ok(());
        }
        buf = stream.write_all(data).await.into_result()?.1;
    }
}

/// One byte there and back, from the std side.
pub(crate) fn ping(peer: &mut Peer, byte: u8) {
    peer.write_all(&[byte]).unwrap();
    let mut back = [0];
    peer.read_exact(&mut back).unwrap();
    assert_eq!(back, [byte]);
}

/// What a std peer sees at the end of a connection; panics when it would wait.
pub(crate) fn ends(peer: &mut Peer) -> std::io::Result<usize> {
    let mut rest = Vec::new();
    match peer.read_to_end(&mut rest) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the connection just hangs"),
        result => result,
    }
}

/// Ends the writing side of a std peer.
pub(crate) fn finish(peer: &Peer) {
    peer.shutdown(Shutdown::Write).unwrap();
}

/// A task that wakes every 10 ms and remembers the longest time between two wakes.
#[derive(Debug)]
pub(crate) struct Ticker {
    longest: Rc<Cell<Duration>>,
    task: runtime::task::JoinHandle<()>,
}

impl Ticker {
    pub(crate) fn start() -> Self {
        let longest = Rc::new(Cell::new(Duration::ZERO));
        let mine = Rc::clone(&longest);
        let task = runtime::spawn(async move {
            let mut last = Instant::now();
            loop {
                sleep(ms(10)).await;
                mine.set(mine.get().max(last.elapsed()));
                last = Instant::now();
            }
        });
        Self { longest, task }
    }

    pub(crate) fn stop(self) -> Duration {
        self.task.abort();
        self.longest.get()
    }
}

/// A shell outside of this process, for what a process without free descriptors cannot do itself.
#[derive(Debug)]
pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    pub(crate) fn start() -> Self {
        let mut command = Command::new("sh");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn line(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Sets the soft limit of descriptors of this process; false where there is no `prlimit`.
    pub(crate) fn limit_fds(&mut self, soft: u64) -> bool {
        let pid = std::process::id();
        let done = self.line(&format!("prlimit --pid {pid} --nofile={soft}: 2>/dev/null && echo yes || echo no"));
        if done.trim() != "yes" {
            eprintln!("SKIP: no prlimit here");
        }
        done.trim() == "yes"
    }

    /// CPU time of this process, by the kernel's clock tick of 10 ms.
    pub(crate) fn cpu(&mut self) -> Duration {
        let stat = self.line(&format!("cat /proc/{}/stat", std::process::id()));
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        ms(ticks * 10)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Anonymous memory of this process that is resident: code that is read in for the first time is none.
pub(crate) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("known since Linux 4.5");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}
