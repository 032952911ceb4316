use std::fs;

use feed::proto::feed_client::FeedClient;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::common::{Client, Server};

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Certificate and key, as PEM.
struct Pair(String, String);

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self {
            certificate,
            issuer,
        }
    }

    fn sign(&self, name: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair(certificate.pem(), key.serialize_pem())
    }

    fn client(&self) -> ClientTlsConfig {
        let config = ClientTlsConfig::new().domain_name("localhost");
        config.ca_certificate(Certificate::from_pem(&self.certificate))
    }
}

fn start(server: &Pair, client_ca: Option<&Authority>) -> Server {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut flags = vec!["--tls-cert".to_owned(), write("cert", &server.0)];
    flags.extend(["--tls-key".to_owned(), write("key", &server.1)]);
    if let Some(authority) = client_ca {
        let file = write("ca", &authority.certificate);
        flags.extend(["--client-ca".to_owned(), file]);
    }
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Server::start(&flags)
}

/// Whether a client gets a message.
async fn is_served(server: &Server, tls: Option<ClientTlsConfig>) -> bool {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", server.address)).unwrap();
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls).unwrap();
    }
    let Ok(channel) = endpoint.connect().await else {
        return false;
    };
    let inner = FeedClient::new(channel);
    let mut client = Client { inner, token: 1 };
    match client.subscribe(0).await {
        Ok(mut messages) => matches!(messages.next().await, Ok(Some(_))),
        Err(_) => false,
    }
}

#[tokio::test]
async fn with_tls_only_who_trusts_the_server_is_served() {
    let [ours, other] = ["ours", "other"].map(Authority::new);
    let server = start(&ours.sign("localhost"), None);
    assert!(is_served(&server, Some(ours.client())).await);
    assert!(!is_served(&server, Some(other.client())).await);
    assert!(!is_served(&server, None).await);
}

#[tokio::test]
async fn with_mutual_tls_only_who_has_a_certificate_of_the_authority_is_served() {
    let [ours, other] = ["ours", "other"].map(Authority::new);
    let server = start(&ours.sign("localhost"), Some(&ours));
    let with = |Pair(certificate, key): Pair| {
        let identity = Identity::from_pem(certificate, key);
        Some(ours.client().identity(identity))
    };
    assert!(is_served(&server, with(ours.sign("worker"))).await);
    assert!(!is_served(&server, with(other.sign("worker"))).await);
    assert!(!is_served(&server, Some(ours.client())).await);
}
