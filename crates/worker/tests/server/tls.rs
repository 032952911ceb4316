//! TLS: certificates that are renewed, and clients that show theirs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::routing::get;
use axum::{Extension, Router};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use soloist_worker::Shutdown;
use soloist_worker::server::{Drained, Peer, Server, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::stage::{LONG, within};

const NAME: &str = "server.test";
const REQUEST: &str = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";

/// A CA, and a folder for what it signs.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Certificate and key, in PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Signs a certificate and puts it where the server finds it.
    fn renew(&self) {
        let (certificate, key) = self.sign(NAME);
        std::fs::write(self.path("tls.crt"), certificate).unwrap();
        std::fs::write(self.path("tls.key"), key).unwrap();
    }

    fn tls(&self) -> Tls {
        Tls::new(self.path("tls.crt"), self.path("tls.key"))
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        roots
    }
}

struct Stage {
    address: SocketAddr,
    shutdown: Shutdown,
    served: JoinHandle<Drained>,
}

impl Stage {
    async fn new(tls: Tls) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new(LONG);
        let who = async |Extension(peer): Extension<Peer>| peer.certificates().len().to_string();
        let app = Router::new().route("/", get(who));
        let server = Server::new(listener).tls(tls).unwrap();
        let server = server.linger(Duration::from_millis(100));
        let served = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { server.serve(app, &shutdown).await }
        });
        Self {
            address,
            shutdown,
            served,
        }
    }

    async fn connect(&self, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(NAME).unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        within("a handshake", connector.connect(name, stream)).await
    }

    async fn end(self) {
        self.shutdown.begin();
        let drained = within("the server ends", self.served).await.unwrap();
        assert!(drained.is_complete(), "{drained:?}");
    }
}

fn config() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    builder.with_safe_default_protocol_versions().unwrap()
}

fn trusting(authority: &Authority) -> ClientConfig {
    let roots = config().with_root_certificates(authority.roots());
    roots.with_no_client_auth()
}

fn showing(authority: &Authority, (certificate, key): (String, String)) -> ClientConfig {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let roots = config().with_root_certificates(authority.roots());
    roots.with_client_auth_cert(vec![certificate], key).unwrap()
}

fn certificate(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    let certificates = stream.get_ref().1.peer_certificates().unwrap();
    certificates[0].to_vec()
}

/// What is answered, from the first byte to the last, on a connection that stays.
async fn ask(stream: &mut TlsStream<TcpStream>) -> std::io::Result<String> {
    let asked = async {
        stream.write_all(REQUEST.as_bytes()).await?;
        let mut answer = String::new();
        while !answer.contains("\r\n\r\n") {
            answer.push(stream.read_u8().await?.into());
        }
        answer.push(stream.read_u8().await?.into());
        Ok(answer)
    };
    within("an answer", asked).await
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_who_connects_next_and_disturbs_nobody() {
    let authority = Authority::new("CA");
    authority.renew();
    let stage = Stage::new(authority.tls()).await;
    let mut before = stage.connect(trusting(&authority)).await.unwrap();
    assert!(ask(&mut before).await.unwrap().starts_with("HTTP/1.1 200"));
    authority.renew();
    let mut after = stage.connect(trusting(&authority)).await.unwrap();
    assert_ne!(certificate(&before), certificate(&after));
    assert!(ask(&mut after).await.unwrap().starts_with("HTTP/1.1 200"));
    assert!(ask(&mut before).await.unwrap().starts_with("HTTP/1.1 200"));
    stage.end().await;
}

#[tokio::test]
async fn a_secret_that_kubernetes_renews_is_noticed() {
    use std::os::unix::fs::symlink;

    let authority = Authority::new("CA");
    let put = |version: &str| {
        let (certificate, key) = authority.sign(NAME);
        let folder = authority.path(version);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("tls.crt"), certificate).unwrap();
        std::fs::write(folder.join("tls.key"), key).unwrap();
        symlink(&folder, authority.path("data_new")).unwrap();
        std::fs::rename(authority.path("data_new"), authority.path("data")).unwrap();
    };
    put("1");
    let data = authority.path("data");
    let stage = Stage::new(Tls::new(data.join("tls.crt"), data.join("tls.key"))).await;
    let before = stage.connect(trusting(&authority)).await.unwrap();
    put("2");
    let after = stage.connect(trusting(&authority)).await.unwrap();
    assert_ne!(certificate(&before), certificate(&after));
    drop((before, after));
    stage.end().await;
}

#[tokio::test]
async fn a_renewal_that_is_half_written_leaves_the_former_certificate_in_use() {
    let authority = Authority::new("CA");
    authority.renew();
    let stage = Stage::new(authority.tls()).await;
    let before = stage.connect(trusting(&authority)).await.unwrap();
    let (new_certificate, new_key) = authority.sign(NAME);
    std::fs::write(authority.path("tls.crt"), new_certificate).unwrap();
    let during = stage.connect(trusting(&authority)).await.unwrap();
    assert_eq!(certificate(&before), certificate(&during));
    std::fs::write(authority.path("tls.key"), new_key).unwrap();
    let after = stage.connect(trusting(&authority)).await.unwrap();
    assert_ne!(certificate(&before), certificate(&after));
    drop((before, during, after));
    stage.end().await;
}

#[tokio::test]
async fn who_must_show_a_certificate_and_has_none_or_a_strange_one_is_not_served() {
    let authority = Authority::new("CA");
    let stranger = Authority::new("stranger");
    authority.renew();
    let stage = Stage::new(authority.tls().client_ca(authority.path("ca.pem"))).await;
    let known = showing(&authority, authority.sign("client.test"));
    let mut known = stage.connect(known).await.unwrap();
    assert!(ask(&mut known).await.unwrap().ends_with('1'));
    let strange = showing(&authority, stranger.sign("client.test"));
    for config in [trusting(&authority), strange] {
        // A TLS 1.3 client has shaken hands before the server has looked at its certificate.
        let asked = match stage.connect(config).await {
            Ok(mut stream) => ask(&mut stream).await,
            Err(error) => Err(error),
        };
        assert!(asked.is_err(), "{asked:?}");
    }
    drop(known);
    stage.end().await;
}

#[tokio::test]
async fn who_may_show_a_certificate_is_served_without() {
    let authority = Authority::new("CA");
    authority.renew();
    let ca = authority.path("ca.pem");
    let stage = Stage::new(authority.tls().optional_client_ca(ca)).await;
    let mut unknown = stage.connect(trusting(&authority)).await.unwrap();
    assert!(ask(&mut unknown).await.unwrap().ends_with('0'));
    let known = showing(&authority, authority.sign("client.test"));
    let mut known = stage.connect(known).await.unwrap();
    assert!(ask(&mut known).await.unwrap().ends_with('1'));
    drop((unknown, known));
    stage.end().await;
}

#[tokio::test]
async fn a_renewed_client_ca_decides_over_who_connects_next() {
    let authority = Authority::new("CA");
    let next = Authority::new("next CA");
    authority.renew();
    let ca = authority.path("clients.pem");
    std::fs::copy(authority.path("ca.pem"), &ca).unwrap();
    let stage = Stage::new(authority.tls().client_ca(&ca)).await;
    std::fs::copy(next.path("ca.pem"), &ca).unwrap();
    let known = showing(&authority, next.sign("client.test"));
    let mut known = stage.connect(known).await.unwrap();
    assert!(ask(&mut known).await.unwrap().ends_with('1'));
    drop(known);
    stage.end().await;
}

#[tokio::test]
async fn who_does_not_shake_hands_does_not_hold_the_server_up() {
    let authority = Authority::new("CA");
    authority.renew();
    let stage = Stage::new(authority.tls()).await;
    let silent = TcpStream::connect(stage.address).await.unwrap();
    stage.end().await;
    drop(silent);
}

#[tokio::test]
async fn http2_is_offered() {
    let authority = Authority::new("CA");
    authority.renew();
    let stage = Stage::new(authority.tls()).await;
    let mut config = trusting(&authority);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = stage.connect(config).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get("https://server.test/").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    let response = within("an answer", response).await.unwrap();
    assert_eq!(response.status(), http::StatusCode::OK);
    stage.end().await;
    drop(client);
    let ended = within("the connection ends", connection).await.unwrap();
    assert!(ended.is_ok(), "{ended:?}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_at_once() {
    let authority = Authority::new("CA");
    let error = async |tls: Tls| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Server::new(listener).tls(tls).unwrap_err().to_string()
    };
    let (certificate, key) = (authority.path("tls.crt"), authority.path("tls.key"));
    let missing = error(authority.tls()).await;
    let expected = format!(
        "the server's certificate cannot be read from {}: ",
        certificate.display()
    );
    assert!(missing.starts_with(&expected), "{missing}");
    authority.renew();
    let (_, other_key) = authority.sign(NAME);
    std::fs::write(&key, other_key).unwrap();
    let mismatch = error(authority.tls()).await;
    assert!(
        mismatch.starts_with("the certificate in ") && mismatch.contains("cannot be used"),
        "{mismatch}"
    );
    std::fs::write(&key, "nothing").unwrap();
    let nothing = error(authority.tls()).await;
    let expected = format!(
        "the server's key cannot be read from {}: there is no PEM private key in it",
        key.display()
    );
    assert_eq!(nothing, expected);
}
