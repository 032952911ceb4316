//! Whom a connection trusts, and as whom it is made: certificates of a kubeconfig or of a Pod.

use std::fs;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::config::AuthInfo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use secrecy::ExposeSecret;

use super::source::ConnectError;

pub(super) fn client_config(config: &Config) -> Result<ClientConfig, ConnectError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("TLS", &error))?;
    let builder = if config.accept_invalid_certs {
        let anybody = Arc::new(Anybody(provider));
        builder
            .dangerous()
            .with_custom_certificate_verifier(anybody)
    } else {
        builder.with_root_certificates(trusted(config.root_cert.as_deref())?)
    };
    match identity(&config.auth_info)? {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| unusable("the client certificate and its key", &error)),
    }
}

/// The cluster's own authority, else whom the machine trusts.
fn trusted(authority: Option<&[Vec<u8>]>) -> Result<RootCertStore, ConnectError> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(certificates) => {
            for certificate in certificates {
                let added = roots.add(CertificateDer::from(certificate.as_slice()));
                added.map_err(|error| unusable("the certificate authority", &error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    match (roots.is_empty(), authority) {
        (false, _) => Ok(roots),
        (true, Some(_)) => Err(unusable("the certificate authority", &"it is empty")),
        (true, None) => Err(ConnectError::Certificate(
            "no certificate authority is named, and this machine has none".into(),
        )),
    }
}

type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(auth: &AuthInfo) -> Result<Option<ClientIdentity>, ConnectError> {
    const CERTIFICATE: &str = "the client certificate";
    const KEY: &str = "the client key";
    let key = auth.client_key_data.as_ref();
    let key = content(
        KEY,
        key.map(ExposeSecret::expose_secret),
        auth.client_key.as_deref(),
    )?;
    let certificate = content(
        CERTIFICATE,
        auth.client_certificate_data.as_deref(),
        auth.client_certificate.as_deref(),
    )?;
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(unusable(CERTIFICATE, &"there is no key with it")),
        (None, Some(_)) => return Err(unusable(KEY, &"there is no certificate with it")),
        (Some(certificate), Some(key)) => (certificate, key),
    };
    let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| unusable(CERTIFICATE, &error))?;
    if chain.is_empty() {
        return Err(unusable(CERTIFICATE, &"it is not PEM"));
    }
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| unusable(KEY, &error))?;
    Ok(Some((chain, key)))
}

fn content(
    what: &str,
    data: Option<&str>,
    file: Option<&str>,
) -> Result<Option<Vec<u8>>, ConnectError> {
    let is_given = |text: &&str| !text.is_empty();
    if let Some(data) = data.filter(is_given) {
        let decoded = STANDARD.decode(data);
        return decoded.map(Some).map_err(|error| unusable(what, &error));
    }
    let Some(file) = file.filter(is_given) else {
        return Ok(None);
    };
    fs::read(file)
        .map(Some)
        .map_err(|error| unusable(&format!("{what} {file}"), &error))
}

fn unusable(what: &str, reason: &dyn std::fmt::Display) -> ConnectError {
    ConnectError::Certificate(format!("{what}: {reason}"))
}

/// For `insecure-skip-tls-verify`: whoever answers. That who answers has the certificate's key is still checked.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
