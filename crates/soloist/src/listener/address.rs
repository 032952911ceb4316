//! Where to listen, as people write it.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;

/// `IP:PORT`, or `:PORT` for all addresses of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    One(SocketAddr),
    All { port: u16 },
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no address to listen at: write IP:PORT, as 127.0.0.1:8080 or [::1]:8080, or :PORT for all addresses"
            )
        };
        match text.strip_prefix(':') {
            Some(port) => {
                let port = port.parse().map_err(|_| wrong())?;
                Ok(Self::All { port })
            }
            None => text.parse().map(Self::One).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(address) => write!(f, "{address}"),
            Self::All { port } => write!(f, ":{port}"),
        }
    }
}

impl ListenAddress {
    /// 0 for any that is free.
    pub(crate) const fn port(self) -> u16 {
        match self {
            Self::One(address) => address.port(),
            Self::All { port } => port,
        }
    }

    pub(super) fn bind(&self) -> io::Result<TcpListener> {
        match *self {
            Self::One(address) => TcpListener::bind(address),
            Self::All { port } => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    // A machine without IPv6.
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
                }
                bound => bound,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_shown() {
        for text in ["127.0.0.1:8080", "[::1]:0", "0.0.0.0:80", ":8080"] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        for wrong in [
            "",
            "8080",
            "localhost:80",
            ":",
            ":x",
            "1.2.3.4",
            "::1:80:",
            ":70000",
        ] {
            let error = wrong.parse::<ListenAddress>().unwrap_err();
            assert!(error.contains("is no address to listen at"), "{error}");
        }
    }
}
