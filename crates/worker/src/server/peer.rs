//! Who is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::unix::UCred;

/// Who asks: in the extensions of every request. In axum it is taken by `Extension<Peer>`, in tonic by
/// `request.extensions().get::<Peer>()`.
#[derive(Clone, Debug)]
pub struct Peer {
    known: Arc<Known>,
}

#[derive(Debug)]
struct Known {
    address: PeerAddress,
    #[cfg(feature = "server-tls")]
    certificates: Vec<rustls::pki_types::CertificateDer<'static>>,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum PeerAddress {
    /// Over TCP. Behind a proxy or a load balancer it is theirs.
    Tcp(SocketAddr),
    /// Over a Unix socket: user, group and, where the system tells, process.
    Unix(UCred),
}

impl Peer {
    pub(super) fn new(address: PeerAddress) -> Self {
        Self::known(Known {
            address,
            #[cfg(feature = "server-tls")]
            certificates: Vec::new(),
        })
    }

    #[cfg(feature = "server-tls")]
    pub(super) fn with_certificates(
        address: PeerAddress,
        certificates: &[rustls::pki_types::CertificateDer<'_>],
    ) -> Self {
        let certificates = certificates.iter().map(|one| one.clone().into_owned());
        Self::known(Known {
            address,
            certificates: certificates.collect(),
        })
    }

    fn known(known: Known) -> Self {
        let known = Arc::new(known);
        Self { known }
    }

    /// Where it comes from.
    #[must_use]
    pub fn address(&self) -> PeerAddress {
        self.known.address
    }

    /// Its IP address; `None` over a Unix socket.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self.address() {
            PeerAddress::Tcp(address) => Some(address.ip().to_canonical()),
            PeerAddress::Unix(_) => None,
        }
    }

    /// Its certificate, which has been verified, and then those between it and the CA. Empty without
    /// [`Tls::client_ca`](super::Tls::client_ca).
    #[cfg(feature = "server-tls")]
    #[must_use]
    pub fn certificates(&self) -> &[rustls::pki_types::CertificateDer<'static>] {
        &self.known.certificates
    }
}
