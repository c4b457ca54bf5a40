//! Addresses and names: [`ToSocketAddrs`], [`lookup_host`].
//!
//! Literal addresses are parsed where they are; names are looked up by the system's resolver on the blocking pool, so
//! that a slow one never stops the loop.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::Mutex;

use runtime_core::task::spawn_blocking;

/// What can be resolved to socket addresses without blocking: addresses, and names with a port.
///
/// Implemented for what `std::net::ToSocketAddrs` is implemented for. Sealed.
pub trait ToSocketAddrs: sealed::Sealed {}

mod sealed {
    use super::Target;
    use std::io;

    pub trait Sealed {
        #[doc(hidden)]
        fn target(&self) -> io::Result<Target>;
    }
}

/// What a [`ToSocketAddrs`] stands for.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub enum Target {
    Addr(SocketAddr),
    Addrs(Vec<SocketAddr>),
    Name(String, u16),
}

/// Resolved addresses; a single one needs no memory.
#[derive(Debug)]
pub(crate) enum Addrs {
    One(Option<SocketAddr>),
    Many(std::vec::IntoIter<SocketAddr>),
}

impl Iterator for Addrs {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        match self {
            Self::One(addr) => addr.take(),
            Self::Many(addrs) => addrs.next(),
        }
    }
}

/// Looks a name up.
///
/// # Errors
///
/// Those of the system's resolver; `InvalidInput` for something that is neither an address nor a name with a port.
///
/// # Cancel safety
///
/// The look-up itself cannot be stopped; its result is dropped.
///
/// # Examples
///
/// ```
/// # runtime_core::exec::Builder::new().build().unwrap().block_on(async {
/// let addr = runtime_net::lookup_host("127.0.0.1:80").await.unwrap().next().unwrap();
/// assert_eq!(addr, ([127, 0, 0, 1], 80).into());
/// # });
/// ```
#[doc(alias = "getaddrinfo")]
pub async fn lookup_host<A: ToSocketAddrs>(host: A) -> io::Result<impl Iterator<Item = SocketAddr>> {
    resolve(&host).await
}

pub(crate) async fn resolve<A: ToSocketAddrs>(host: &A) -> io::Result<Addrs> {
    match host.target()? {
        Target::Addr(addr) => Ok(Addrs::One(Some(addr))),
        Target::Addrs(addrs) => Ok(Addrs::Many(addrs.into_iter())),
        Target::Name(name, port) => {
            let found = spawn_blocking(move || look_up(&name, port)).await??;
            Ok(Addrs::Many(found.into_iter()))
        }
    }
}

type Resolver = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

static RESOLVER: Mutex<Option<Resolver>> = Mutex::new(None);

/// Test hook: replaces the system's resolver in this process.
pub fn set_resolver(resolver: Resolver) {
    *RESOLVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(resolver);
}

fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let replaced = *RESOLVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match replaced {
        Some(resolver) => resolver(name, port),
        None => std::net::ToSocketAddrs::to_socket_addrs(&(name, port)).map(Iterator::collect),
    }
}

/// No address worked, or none was there.
pub(crate) fn no_address(last: Option<io::Error>) -> io::Error {
    last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name resolves to no address"))
}

fn target_of(text: &str) -> io::Result<Target> {
    if let Ok(addr) = text.parse() {
        return Ok(Target::Addr(addr));
    }
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{text:?} is not HOST:PORT: {why}"));
    let (host, port) = text.rsplit_once(':').ok_or_else(|| invalid("there is no colon"))?;
    let port = port.parse().map_err(|_| invalid("the port is not a number from 0 to 65535"))?;
    Ok(host_and_port(host, port))
}

fn host_and_port(host: &str, port: u16) -> Target {
    match host.parse::<IpAddr>() {
        Ok(ip) => Target::Addr(SocketAddr::new(ip, port)),
        Err(_) => Target::Name(host.to_owned(), port),
    }
}

macro_rules! targets {
    ($($type:ty: |$this:ident| $target:expr;)*) => {$(
        impl ToSocketAddrs for $type {}

        impl sealed::Sealed for $type {
            fn target(&self) -> io::Result<Target> {
                let $this = self;
                $target
            }
        }
    )*};
}

targets! {
    SocketAddr: |this| Ok(Target::Addr(*this));
    SocketAddrV4: |this| Ok(Target::Addr((*this).into()));
    SocketAddrV6: |this| Ok(Target::Addr((*this).into()));
    (IpAddr, u16): |this| Ok(Target::Addr((*this).into()));
    (Ipv4Addr, u16): |this| Ok(Target::Addr((*this).into()));
    (Ipv6Addr, u16): |this| Ok(Target::Addr((*this).into()));
    (&str, u16): |this| Ok(host_and_port(this.0, this.1));
    (String, u16): |this| Ok(host_and_port(&this.0, this.1));
    str: |this| target_of(this);
    String: |this| target_of(this);
    [SocketAddr]: |this| Ok(Target::Addrs(this.to_vec()));
    Vec<SocketAddr>: |this| Ok(Target::Addrs(this.clone()));
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {}

impl<T: ToSocketAddrs + ?Sized> sealed::Sealed for &T {
    fn target(&self) -> io::Result<Target> {
        (**self).target()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealed::Sealed;

    #[test]
    fn literals_need_no_resolver() {
        for text in ["127.0.0.1:80", "[::1]:80"] {
            assert!(matches!(text.target().unwrap(), Target::Addr(_)), "{text}");
        }
        assert!(matches!(("::1", 80).target().unwrap(), Target::Addr(_)));
        assert!(matches!("localhost:80".target().unwrap(), Target::Name(name, 80) if name == "localhost"));
    }

    #[test]
    fn nonsense_says_what_is_wrong_with_it() {
        for text in ["", "localhost", "localhost:", "localhost:65536", "127.0.0.1"] {
            let error = text.target().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("HOST:PORT"), "{error}");
        }
    }
}
