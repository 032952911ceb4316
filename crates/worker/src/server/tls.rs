//! TLS by rustls, with certificates from files that may be renewed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tracing::{info, warn};

/// The server's certificate and, if clients must show theirs, whom to trust. All in PEM files, which are read again when
/// they have changed: looked at with every new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    clients: Option<Clients>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Clients {
    ca: PathBuf,
    may_be_unknown: bool,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is not what it should be.
    #[error("the server's {what} cannot be read from {}: {reason}", path.display())]
    File {
        /// What should be in it.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Certificate and key do not belong together, or are of a kind that is not known.
    #[error("the certificate in {} and the key in {} cannot be used: {source}", certificate.display(), key.display())]
    Identity {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The provider of cryptography that the program has installed does not suit.
    #[error("the rustls provider of this program offers no usable version of TLS: {0}")]
    Provider(#[source] rustls::Error),
}

impl Tls {
    /// The server's certificate, with those between it and its CA, and its key.
    #[must_use]
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            clients: None,
        }
    }

    /// Clients must show a certificate of this CA.
    #[must_use]
    pub fn client_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.clients = Some(Clients {
            ca: path.into(),
            may_be_unknown: false,
        });
        self
    }

    /// Clients may show a certificate of this CA, or none, as probes do: ask
    /// [`Peer::certificates`](super::Peer::certificates) what they have shown.
    #[must_use]
    pub fn optional_client_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.clients = Some(Clients {
            ca: path.into(),
            may_be_unknown: true,
        });
        self
    }

    fn read(&self) -> Result<ServerConfig, TlsError> {
        let provider = CryptoProvider::get_default().cloned();
        let provider =
            provider.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Provider)?;
        let config = match &self.clients {
            None => config.with_no_client_auth(),
            Some(clients) => config.with_client_cert_verifier(clients.verifier(provider)?),
        };
        let certificates = read_certificates("certificate", &self.certificate)?;
        let mut config = config
            .with_single_cert(certificates, read_key(&self.key)?)
            .map_err(|source| TlsError::Identity {
                certificate: self.certificate.clone(),
                key: self.key.clone(),
                source,
            })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Another value when a file has been written, replaced, or is reached by another link (as Kubernetes renews Secrets).
    fn state(&self) -> Vec<Option<FileState>> {
        let ca = self.clients.as_ref().map(|clients| &clients.ca);
        let files = [&self.certificate, &self.key].into_iter().chain(ca);
        files.map(|path| FileState::of(path)).collect()
    }
}

impl Clients {
    fn verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
        const WHAT: &str = "CA for clients";
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(WHAT, &self.ca)? {
            let added = roots.add(certificate);
            added.map_err(|error| wrong(WHAT, &self.ca, &error))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = match self.may_be_unknown {
            true => verifier.allow_unauthenticated(),
            false => verifier,
        };
        let built = verifier.build();
        built.map_err(|error| wrong(WHAT, &self.ca, &error))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileState {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

fn read_certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = fs::read(path).map_err(|error| wrong(what, path, &error))?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| wrong(what, path, &error))?;
    if found.is_empty() {
        return Err(wrong(what, path, &"there is no PEM certificate in it"));
    }
    Ok(found)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    const WHAT: &str = "key";
    let pem = fs::read(path).map_err(|error| wrong(WHAT, path, &error))?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        pem::Error::NoItemsFound => wrong(WHAT, path, &"there is no PEM private key in it"),
        error => wrong(WHAT, path, &error),
    })
}

fn wrong(what: &'static str, path: &Path, reason: &dyn ToString) -> TlsError {
    TlsError::File {
        what,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// What is in the files now or, if that cannot be used, what was.
#[derive(Debug)]
pub(super) struct Certificates {
    tls: Tls,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    state: Vec<Option<FileState>>,
}

impl Certificates {
    pub(super) fn read(tls: Tls) -> Result<Self, TlsError> {
        // Before the files: what is written while they are read is seen the next time.
        let state = tls.state();
        let config = Arc::new(tls.read()?);
        let current = Mutex::new(Current { config, state });
        Ok(Self { tls, current })
    }

    pub(super) fn current(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.tls.state();
        if state != current.state {
            current.state = state;
            match self.tls.read() {
                Ok(config) => {
                    current.config = Arc::new(config);
                    info!("TLS certificates were renewed, and are in use from now on");
                }
                Err(error) => warn!(
                    "TLS certificates were changed and cannot be used, so the former ones stay in use until the files change again: {error}"
                ),
            }
        }
        current.config.clone()
    }
}
