//! Names and addresses: a slow resolver stops nobody, and literal addresses need none.

use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use runtime::net::{TcpListener, TcpStream, lookup_host};
use runtime::testing::set_resolver;
use runtime::time::timeout;

use crate::peer::{Ticker, ms, run, secs};
use crate::support::{in_child, threads};

fn slow(name: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    std::thread::sleep(Duration::from_millis(300));
    match name {
        "slow.test" => Ok(vec![(Ipv4Addr::LOCALHOST, port).into()]),
        "nobody.test" => Ok(Vec::new()),
        _ => Err(Error::new(ErrorKind::NotFound, "no such name")),
    }
}

#[test]
fn a_slow_resolver_stops_nobody_and_literal_addresses_start_no_thread() {
    in_child("names::a_slow_resolver_stops_nobody_and_literal_addresses_start_no_thread", secs(30), || {
        set_resolver(slow);
        run(secs(20), async {
            let base = threads();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
            TcpStream::connect((IpAddr::V4(Ipv4Addr::LOCALHOST), port)).await.unwrap();
            assert_eq!(lookup_host("[::1]:80").await.unwrap().count(), 1);
            assert!(TcpStream::connect("nonsense").await.is_err());
            assert_eq!(threads(), base, "no thread for literal addresses");

            let ticker = Ticker::start();
            let begun = Instant::now();
            let stream = TcpStream::connect(("slow.test", port)).await.unwrap();
            assert!(begun.elapsed() >= ms(300));
            assert_eq!(stream.peer_addr().unwrap().port(), port);
            // Side by side, not one after the other.
            let begun = Instant::now();
            let lookups = (0..5).map(|_| lookup_host("slow.test:1"));
            let found = futures::future::join_all(lookups).await;
            assert!(found.into_iter().all(|found| found.unwrap().eq([SocketAddr::from(([127, 0, 0, 1], 1))])));
            assert!(begun.elapsed() < ms(1200), "{:?}", begun.elapsed());
            let gap = ticker.stop();
            assert!(gap < ms(100), "the loop stood still for {gap:?}");

            let unknown = TcpStream::connect("unknown.test:1").await.unwrap_err();
            assert_eq!((unknown.kind(), unknown.to_string()), (ErrorKind::NotFound, "no such name".to_owned()));
            let nobody = TcpListener::bind("nobody.test:1").await.unwrap_err();
            assert_eq!(nobody.kind(), ErrorKind::InvalidInput);
            // A look-up that is given up is given up at once; its result goes nowhere.
            let begun = Instant::now();
            assert!(timeout(ms(10), lookup_host("slow.test:1")).await.is_err());
            assert!(begun.elapsed() < ms(200));
        });
    });
}

#[test]
fn a_resolver_that_panics_costs_its_caller_only() {
    in_child("names::a_resolver_that_panics_costs_its_caller_only", secs(30), || {
        set_resolver(|name, port| {
            assert!(name != "panics.test", "a broken resolver");
            Ok(vec![(Ipv4Addr::LOCALHOST, port).into()])
        });
        run(secs(20), async {
            let broken = runtime::spawn(async { lookup_host("panics.test:1").await.map(Iterator::count) }).await;
            assert!(!matches!(broken, Ok(Ok(_))), "an error or a panic of this task");
            assert_eq!(lookup_host("fine.test:7").await.unwrap().next(), Some(([127, 0, 0, 1], 7).into()));
        });
    });
}

#[test]
fn the_systems_resolver_knows_localhost() {
    run(secs(20), async {
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let found: Vec<_> = lookup_host(("localhost", port)).await.unwrap().collect();
        assert!(found.iter().all(|addr| addr.ip().is_loopback() && addr.port() == port) && !found.is_empty());
        let stream = TcpStream::connect(("localhost".to_owned(), port)).await.unwrap();
        assert!(stream.peer_addr().unwrap().ip().is_loopback());
    });
}

#[test]
fn addresses_are_taken_in_every_form_that_std_takes() {
    run(secs(20), async {
        let v4 = SocketAddr::from(([127, 0, 0, 1], 80));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 80));
        let one = |found: std::io::Result<Vec<SocketAddr>>| found.unwrap();
        let collect = |addr: &'static str| async move { lookup_host(addr).await.map(Iterator::collect) };
        assert_eq!(one(collect("127.0.0.1:80").await), [v4]);
        assert_eq!(one(collect("[::1]:80").await), [v6]);
        assert_eq!(lookup_host(v4).await.unwrap().collect::<Vec<_>>(), [v4]);
        assert_eq!(lookup_host(("::1", 80)).await.unwrap().collect::<Vec<_>>(), [v6]);
        assert_eq!(lookup_host((Ipv6Addr::LOCALHOST, 80)).await.unwrap().collect::<Vec<_>>(), [v6]);
        assert_eq!(lookup_host(&[v4, v6][..]).await.unwrap().collect::<Vec<_>>(), [v4, v6]);
        for nonsense in ["", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "[::1]", "a:b:c"] {
            let error = collect(nonsense).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{nonsense:?}: {error}");
        }
    });
}
