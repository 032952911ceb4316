//! Which etcd, which key in it, and who we are there.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// etcd's own port for clients.
const PORT: u16 = 2379;
/// Where leases are if nothing else is said.
const PREFIX: &str = "soloist";

/// One member's address for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
}

impl FromStr for Endpoint {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError::Malformed(text.to_owned());
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                (host, port.strip_prefix(':'))
            }
            None => match text.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None => PORT,
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
        let is_name = !host.is_empty() && host.chars().all(plain);
        match is_name && (text.starts_with('[') || !host.contains(':')) {
            true => Ok(Self {
                host: host.to_owned(),
                port,
            }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

/// Why a text names no etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Of another form.
    #[error(
        "{0:?} is no address of an etcd: write HOST:PORT[,HOST:PORT…]/PREFIX, an IPv6 address in brackets"
    )]
    Malformed(String),
    /// With `http://` or `https://`.
    #[error(
        "{0:?} is a URL: write HOST:PORT[,HOST:PORT…]/PREFIX without its scheme; there is TLS where the CA's certificate is given"
    )]
    Url(String),
    /// One member twice.
    #[error("{0:?} names {1} twice: each member once")]
    Twice(String, Endpoint),
    /// A prefix that nobody could type.
    #[error("{0:?} has a control character in its prefix")]
    Unprintable(String),
    /// Nothing between the slash and the end.
    #[error(
        "{0:?} has an empty prefix: write HOST:PORT[,HOST:PORT…]/PREFIX, or no slash for the prefix {PREFIX}"
    )]
    NoPrefix(String),
}

/// The members of an etcd, and the prefix of leases in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) prefix: String,
}

impl FromStr for Address {
    type Err = AddressError;

    /// `HOST:PORT[,HOST:PORT…][/PREFIX]`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains("://") {
            return Err(AddressError::Url(text.to_owned()));
        }
        let (members, prefix) = text.split_once('/').unwrap_or((text, PREFIX));
        let endpoints = members.split(',').map(str::parse).collect::<Result<_, _>>();
        let prefix = prefix.trim_end_matches('/');
        let endpoints: Vec<Endpoint> = endpoints?;
        if prefix.is_empty() {
            return Err(AddressError::NoPrefix(text.to_owned()));
        }
        if prefix.chars().any(char::is_control) {
            return Err(AddressError::Unprintable(text.to_owned()));
        }
        let twice = |(n, endpoint): (usize, &Endpoint)| endpoints[..n].contains(endpoint);
        if let Some(n) = (0..endpoints.len()).find(|n| twice((*n, &endpoints[*n]))) {
            return Err(AddressError::Twice(text.to_owned(), endpoints[n].clone()));
        }
        Ok(Self {
            endpoints,
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, endpoint) in self.endpoints.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{endpoint}")?;
        }
        write!(f, "/{}", self.prefix)
    }
}

/// Whom we trust, and who we are: files, read anew for every connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificates of who may sign a member's (PEM).
    pub ca: PathBuf,
    /// Our own certificate and its key (PEM).
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd's, and the file that its password is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// Read anew whenever we log in; a line's end at its end is no part of it.
    pub password_file: PathBuf,
}

/// A lease in an etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub(super) address: Address,
    pub(super) name: String,
    pub(super) tls: Option<Tls>,
    pub(super) login: Option<Login>,
}

impl Options {
    /// The lease of this name below the address's prefix; without TLS, as nobody.
    pub fn lease(address: Address, name: impl Into<String>) -> Self {
        Self {
            address,
            name: name.into(),
            tls: None,
            login: None,
        }
    }

    /// By TLS.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// As this user.
    #[must_use]
    pub fn login(mut self, login: Login) -> Self {
        self.login = Some(login);
        self
    }

    /// Where the members are.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.address.prefix, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_members_and_a_prefix() {
        for (text, shown) in [
            ("a:1", "a:1/soloist"),
            ("a", "a:2379/soloist"),
            ("a:1,b:2/x/y", "a:1,b:2/x/y"),
            ("[::1]:7,[fe80::1]/x/", "[::1]:7,[fe80::1]:2379/x"),
            ("a:1//x", "a:1//x"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
        }
        for wrong in [
            "", ":1", "a:", "a:x", "a:1,", "::1", "a b:1", "a:99999", "[a:1",
        ] {
            let error = wrong.parse::<Address>().unwrap_err();
            assert!(matches!(error, AddressError::Malformed(_)), "{wrong}");
        }
    }

    #[test]
    fn a_url_is_told_to_go_without_its_scheme() {
        for url in ["http://a:1/x", "https://a:1", "a:1,https://b:1/x"] {
            let error = url.parse::<Address>().unwrap_err();
            assert!(matches!(error, AddressError::Url(_)), "{url}");
            let said = "is a URL: write HOST:PORT[,HOST:PORT…]/PREFIX without its scheme";
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        for (text, told) in [
            ("a:1/", "has an empty prefix: write HOST:PORT"),
            ("a:1//", "has an empty prefix"),
            ("a:1,b:2,a:1/x", "twice: each member once"),
            ("a,a:2379", "names a:2379 twice"),
            ("[::1]:7,[::1]:7", "names [::1]:7 twice"),
            ("a:1/x\ny", "has a control character in its prefix"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn the_key_is_prefix_and_name() {
        let key = |address: &str| Options::lease(address.parse().unwrap(), "demo").key();
        assert_eq!(key("a:1/x/y"), "x/y/demo");
        assert_eq!(key("a:1//x"), "/x/demo");
    }
}
