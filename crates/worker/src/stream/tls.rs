//! Certificates, from files.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::target::TargetError;

/// Whom to trust, and who we are. As it is: the system's roots, and nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

impl Tls {
    /// The system's roots, and no certificate of our own.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trust who bears a certificate of this CA (PEM), instead of the system's roots.
    #[must_use]
    pub fn ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
    }

    /// Our own certificate (with its chain) and key (PEM), for servers that want to know who we are.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The name that the server's certificate bears, if it is not the address's host.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    pub(super) fn read(&self) -> Result<ClientTlsConfig, TargetError> {
        let mut config = ClientTlsConfig::new();
        config = match &self.ca {
            Some(path) => {
                config.ca_certificate(Certificate::from_pem(certificates("CA certificate", path)?))
            }
            None => config.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            let certificate = certificates("client certificate", certificate)?;
            config = config.identity(Identity::from_pem(certificate, private_key(key)?));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        Ok(config)
    }
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<u8>, TargetError> {
    let pem = read(what, path)?;
    let parsed = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    match parsed {
        Ok(found) if !found.is_empty() => Ok(pem),
        Ok(_) => Err(wrong(what, path, "there is no PEM certificate in it")),
        Err(error) => Err(wrong(what, path, &error.to_string())),
    }
}

fn private_key(path: &Path) -> Result<Vec<u8>, TargetError> {
    const WHAT: &str = "client key";
    let pem = read(WHAT, path)?;
    match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(_) => Ok(pem),
        Err(rustls::pki_types::pem::Error::NoItemsFound) => {
            Err(wrong(WHAT, path, "there is no PEM private key in it"))
        }
        Err(error) => Err(wrong(WHAT, path, &error.to_string())),
    }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TargetError> {
    std::fs::read(path).map_err(|error| wrong(what, path, &error.to_string()))
}

fn wrong(what: &'static str, path: &Path, reason: &str) -> TargetError {
    TargetError::File {
        what,
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Target;

    fn error(tls: Tls) -> String {
        let target = Target::new("https://feed:50051").unwrap();
        target.tls(tls).unwrap_err().to_string()
    }

    #[test]
    fn a_file_that_is_missing_or_holds_something_else_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.pem");
        let name = path.display();
        assert_eq!(
            error(Tls::new().ca(&path)),
            format!(
                "the CA certificate cannot be read from {name}: No such file or directory (os error 2)"
            )
        );
        std::fs::write(&path, "not a certificate").unwrap();
        assert_eq!(
            error(Tls::new().ca(&path)),
            format!(
                "the CA certificate cannot be read from {name}: there is no PEM certificate in it"
            )
        );
        assert_eq!(
            error(Tls::new().identity(&path, &path)),
            format!(
                "the client certificate cannot be read from {name}: there is no PEM certificate in it"
            )
        );
    }

    #[test]
    fn certificates_without_tls_are_a_mistake() {
        let target = Target::new("http://feed:50051").unwrap();
        assert_eq!(
            target.tls(Tls::new()).unwrap_err().to_string(),
            "http://feed:50051 has TLS settings but no TLS: write it as https://HOST:PORT"
        );
    }
}
