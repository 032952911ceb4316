//! Certificates from files, read anew for every connection, so that they can be replaced while we run.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connection::DialError;
use super::options::Tls;
use crate::apart::apart;
use crate::causes::find;

/// Speaks TLS with who claims to be `host`.
pub(super) async fn connect(
    files: &Tls,
    host: &str,
    tcp: TcpStream,
) -> Result<TlsStream<TcpStream>, DialError> {
    let reading = files.clone();
    let config = apart(move || read(&reading)).await;
    let config = config.map_err(|error| DialError::Tls(error.to_string()))??;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| DialError::Tls(format!("{host:?} is no name that a certificate can bear")))?;
    let connected = async {
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, tcp).await?;
        // Only now does TLS 1.3 tell whether our own certificate is accepted; a member speaks first.
        stream.fill_buf().await?;
        Ok(stream)
    };
    connected
        .await
        .map_err(|error: io::Error| match find::<rustls::Error>(&error) {
            Some(wrong) => DialError::Tls(in_words(wrong, files, host)),
            None if error.kind() == io::ErrorKind::UnexpectedEof => DialError::NoTls,
            None => DialError::Unreachable(error),
        })
}

/// What is wrong, and which file to look at.
pub(super) fn in_words(wrong: &rustls::Error, files: &Tls, host: &str) -> String {
    let ca = files.ca.display();
    match (wrong, &files.identity) {
        (rustls::Error::InvalidCertificate(reason), _) => {
            let reason = of_certificate(reason, host);
            format!("its certificate is not accepted: {reason} (trusted is who is signed by {ca})")
        }
        (rustls::Error::AlertReceived(alert), None) => {
            format!("it wants to know who we are ({alert:?}): give --etcd-cert and --etcd-key")
        }
        (rustls::Error::AlertReceived(alert), Some((certificate, _))) => format!(
            "it does not accept our certificate {} ({alert:?})",
            certificate.display()
        ),
        (rustls::Error::InvalidMessage(_), _) => {
            "it does not speak TLS; if this etcd has none, leave --etcd-ca away".to_owned()
        }
        (other, _) => other.to_string(),
    }
}

fn of_certificate(wrong: &CertificateError, host: &str) -> String {
    match wrong {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired, or this machine's clock is ahead".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet, or this machine's clock is behind".to_owned()
        }
        CertificateError::UnknownIssuer => "somebody else has signed it".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("it is not for the name {host}")
        }
        other => other.to_string(),
    }
}

fn read(files: &Tls) -> Result<ClientConfig, DialError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&files.ca)? {
        let added = roots.add(certificate);
        added.map_err(|error| unusable(&files.ca, &error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| DialError::Tls(error.to_string()))?
        .with_root_certificates(roots);
    let mut config = match &files.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let pem = PrivateKeyDer::from_pem_file(key);
            let pem = pem.map_err(|error| unusable(key, &error))?;
            let config = config.with_client_auth_cert(chain, pem);
            config.map_err(|error| unusable(certificate, &error))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, DialError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = found.map_err(|error| unusable(path, &error))?;
    match found.is_empty() {
        true => Err(unusable(path, &"there is no PEM certificate in it")),
        false => Ok(found),
    }
}

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> DialError {
    DialError::Tls(format!("{} cannot be used: {reason}", path.display()))
}
