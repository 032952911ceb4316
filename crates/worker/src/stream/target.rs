//! Where the server is, and how to get there.

#[cfg(feature = "tls")]
use super::tls::Tls;
use std::path::PathBuf;
use std::time::Duration;

use soloist_core::time::Human;
use tonic::transport::{Channel, Endpoint};

use super::connector::Once;
use super::failure::Failure;

/// A server's address, with what a connection to it needs.
#[derive(Clone, Debug)]
pub struct Target {
    address: String,
    connect_limit: Duration,
    keepalive: Keepalive,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// How often a sign of life is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keepalive {
    pub(super) interval: Duration,
    timeout: Duration,
}

impl Keepalive {
    const LONGEST: Duration = Duration::from_secs(3600);

    /// Servers of other languages end a connection at the fourth ping on a quiet stream, and close it a second later. They
    /// say why, but h2 does not pass it on.
    pub(super) fn pinged_too_often(self, quiet: Duration) -> bool {
        quiet >= self.interval * 3 && quiet <= self.interval * 5 + Duration::from_secs(2)
    }

    /// What gRPC asks of a client that pings too often.
    pub(super) fn with_half_as_many(self) -> Self {
        let interval = self.interval.saturating_mul(2).min(Self::LONGEST);
        Self { interval, ..self }
    }
}

/// Why a connection cannot even be tried.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It says no host, or speaks no HTTP.
    #[error(
        "{address:?} is no address of a gRPC server: {reason}; write it as http://HOST:PORT, or https://HOST:PORT for TLS"
    )]
    Address {
        /// As given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificates for a connection that shows none.
    #[error("{address} has TLS settings but no TLS: write it as https://HOST:PORT")]
    TlsWithoutHttps {
        /// As given.
        address: String,
    },
    /// This program cannot do it.
    #[error(
        "{address} wants TLS, and this program is built without the feature `tls` of soloist-worker"
    )]
    NoTls {
        /// As given.
        address: String,
    },
    /// A file with a certificate or a key cannot be read.
    #[error("the {what} cannot be read from {}: {reason}", path.display())]
    File {
        /// What should be in it.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The settings do not fit together.
    #[error("the TLS settings for {address} are not usable: {reason}")]
    Tls {
        /// As given.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// A keepalive that never comes.
    #[error("a keepalive every {} with a limit of {} makes no sense; both must be longer than nothing", Human(*interval), Human(*timeout))]
    Keepalive {
        /// As given.
        interval: Duration,
        /// As given.
        timeout: Duration,
    },
}

impl Target {
    /// From `http://HOST:PORT`, or `https://HOST:PORT` for TLS with the system's roots.
    ///
    /// # Errors
    /// When it is no such address.
    pub fn new(address: &str) -> Result<Self, TargetError> {
        let target = Self {
            address: address.to_owned(),
            connect_limit: Duration::from_secs(5),
            keepalive: Keepalive {
                interval: Duration::from_secs(30),
                timeout: Duration::from_secs(10),
            },
            #[cfg(feature = "tls")]
            tls: None,
        };
        target.endpoint(target.keepalive)?;
        Ok(target)
    }

    /// With these certificates. The files are read anew for every connection: they may be renewed.
    ///
    /// # Errors
    /// When a file cannot be read or used, or the address has no TLS.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Result<Self, TargetError> {
        self.tls = Some(tls);
        self.endpoint(self.keepalive)?;
        Ok(self)
    }

    /// How long a connection may take to be made; 5 s unless said otherwise.
    #[must_use]
    pub fn connect_limit(mut self, limit: Duration) -> Self {
        self.connect_limit = limit;
        self
    }

    /// A peer is asked for a sign of life this often (HTTP/2's PING), and is dead if none comes within `timeout`. Every 30 s and
    /// 10 s unless said otherwise. A server that finds this too often (by default, those of Go and Java want no more than one in
    /// five minutes on a quiet stream) ends the connection, and is asked half as often from then on.
    ///
    /// A host that is gone is noticed sooner, by TCP's keepalive: after 25 s.
    ///
    /// # Errors
    /// When one of them is zero.
    pub fn keepalive(mut self, interval: Duration, timeout: Duration) -> Result<Self, TargetError> {
        if interval.is_zero() || timeout.is_zero() {
            return Err(TargetError::Keepalive { interval, timeout });
        }
        self.keepalive = Keepalive { interval, timeout };
        Ok(self)
    }

    /// As given.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// One connection. A channel that has lost it does not make another.
    pub(super) async fn connect(&self, keepalive: Keepalive) -> Result<Channel, Failure> {
        let endpoint = self.endpoint(keepalive);
        let endpoint = endpoint.map_err(|error| Failure::target(&error))?;
        let connector = Once::new(self.connect_limit);
        let connected = endpoint.connect_with_connector(connector).await;
        connected.map_err(|error| Failure::connecting(&self.address, &error))
    }

    pub(super) fn first_keepalive(&self) -> Keepalive {
        self.keepalive
    }

    fn endpoint(&self, keepalive: Keepalive) -> Result<Endpoint, TargetError> {
        let wrong = |reason: &str| TargetError::Address {
            address: self.address.clone(),
            reason: reason.to_owned(),
        };
        let uri: http::Uri = self
            .address
            .parse()
            .map_err(|error: http::uri::InvalidUri| wrong(&error.to_string()))?;
        if uri.host().is_none_or(str::is_empty) {
            return Err(wrong("it names no host"));
        }
        // http takes anything for a port, and falls back to 80.
        let has_port = uri.authority().is_some_and(|authority| {
            let after = authority.as_str().rsplit(']').next().unwrap_or_default();
            after.contains(':')
        });
        if has_port && uri.port_u16().is_none_or(|port| port == 0) {
            return Err(wrong("its port is no number from 1 to 65535"));
        }
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(scheme) => return Err(wrong(&format!("{scheme}:// is not spoken here"))),
            None => return Err(wrong("it does not begin with http:// or https://")),
        };
        let endpoint = Endpoint::from(uri)
            .connect_timeout(self.connect_limit)
            .http2_keep_alive_interval(keepalive.interval)
            .keep_alive_timeout(keepalive.timeout)
            .keep_alive_while_idle(true);
        self.secure(endpoint, is_secure)
    }

    #[cfg(feature = "tls")]
    fn secure(&self, endpoint: Endpoint, is_secure: bool) -> Result<Endpoint, TargetError> {
        let address = self.address.clone();
        match (is_secure, &self.tls) {
            (false, None) => Ok(endpoint),
            (false, Some(_)) => Err(TargetError::TlsWithoutHttps { address }),
            (true, tls) => {
                let config = tls.as_ref().unwrap_or(&Tls::default()).read()?;
                let secured = endpoint.tls_config(config);
                secured.map_err(|error| TargetError::Tls {
                    address,
                    reason: super::dependency_errors::causes(&error),
                })
            }
        }
    }

    #[cfg(not(feature = "tls"))]
    fn secure(&self, endpoint: Endpoint, is_secure: bool) -> Result<Endpoint, TargetError> {
        let address = self.address.clone();
        match is_secure {
            false => Ok(endpoint),
            true => Err(TargetError::NoTls { address }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_breaks_at_the_fourth_ping_is_pinged_less() {
        let s = Duration::from_secs;
        let keepalive = Target::new("http://feed:1").unwrap().first_keepalive();
        assert_eq!(keepalive.interval, s(30));
        for (quiet, expected) in [(0, false), (60, false), (121, true), (300, false)] {
            assert_eq!(keepalive.pinged_too_often(s(quiet)), expected, "{quiet} s");
        }
        let mut fewer = keepalive;
        let intervals: Vec<_> = (0..8)
            .map(|_| {
                fewer = fewer.with_half_as_many();
                fewer.interval.as_secs() / 60
            })
            .collect();
        assert_eq!(intervals, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn an_address_that_is_none_is_named_with_the_reason() {
        for (address, reason) in [
            ("", "empty string"),
            (
                "127.0.0.1:50051",
                "it does not begin with http:// or https://",
            ),
            ("feed:50051", "it does not begin with http:// or https://"),
            ("ftp://feed:50051", "ftp:// is not spoken here"),
            ("http://", "empty string"),
            ("http://feed:port", "its port is no number from 1 to 65535"),
            ("http://feed:70000", "its port is no number from 1 to 65535"),
            ("/feed", "it names no host"),
        ] {
            let error = Target::new(address).unwrap_err().to_string();
            let begin = format!(
                "{address:?} is no address of a gRPC server: {reason}; write it as http://HOST:PORT"
            );
            assert!(error.starts_with(&begin), "{error}");
        }
        assert!(Target::new("http://feed:50051").is_ok());
        assert!(Target::new("http://[::1]:50051").is_ok());
    }

    #[test]
    fn a_keepalive_needs_time() {
        let target = Target::new("http://feed:50051").unwrap();
        let error = target.keepalive(Duration::ZERO, Duration::from_secs(1));
        assert_eq!(
            error.unwrap_err().to_string(),
            "a keepalive every 0s with a limit of 1s makes no sense; both must be longer than nothing"
        );
    }
}
