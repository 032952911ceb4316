//! Whom the Kubernetes store trusts, and as whom it comes.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

use std::fs;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use soloist_elector::core::election::Answer;
use soloist_elector::kubernetes::{KubernetesStore, Options};
use soloist_elector::testing::in_time;
use soloist_elector::{LeaseStore, StoreError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn trusted(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }

    /// A certificate and its key.
    fn signs(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    /// As the API server is configured that claims this name, and lets in whom `clients` has signed.
    fn server(&self, name: &str, clients: Option<&Self>) -> Arc<ServerConfig> {
        let (certificate, key) = self.signs(name);
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(clients.trusted(), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }
}

/// An API server that has no lease.
struct Server {
    port: u16,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    folder: tempfile::TempDir,
}

impl Server {
    async fn start(config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(Mutex::new(config));
        let present = Arc::clone(&config);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let config = Arc::clone(&present.lock().unwrap());
                tokio::spawn(answer_once(stream, config));
            }
        });
        Self {
            port,
            config,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    async fn store(&self, mut cluster: Value, user: Value) -> KubernetesStore {
        cluster["server"] = json!(format!("https://127.0.0.1:{}", self.port));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        });
        let path = self.file("kubeconfig", &kubeconfig.to_string());
        let options = Options::lease("demo").namespace("shop").kubeconfig(path);
        KubernetesStore::connect(options).await.unwrap()
    }
}

async fn answer_once(stream: TcpStream, config: Arc<ServerConfig>) -> Option<()> {
    let stream = TlsAcceptor::from(config).accept(stream).await.ok()?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await.ok().filter(|n| *n > 0)?;
    }
    let body = r#"{"metadata": {"resourceVersion": "1"}, "items": []}"#;
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

async fn read(store: &KubernetesStore) -> Result<(), StoreError> {
    in_time(store.read()).await.map(drop)
}

/// The request was not made, for this reason.
async fn is_not_asked(store: &KubernetesStore, reason: &str) {
    let error = read(store).await.unwrap_err();
    assert_eq!(error.answer(), Answer::Unavailable, "{error}");
    assert!(error.to_string().contains(reason), "{error}");
}

fn data(pem: &str) -> String {
    STANDARD.encode(pem)
}

#[tokio::test]
async fn only_a_server_that_the_named_authority_vouches_for_is_asked() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = Server::start(ours.server("127.0.0.1", None)).await;
    let trusting = async |authority: &Authority| {
        let cluster = json!({"certificate-authority-data": data(&authority.pem())});
        server.store(cluster, json!({})).await
    };
    read(&trusting(&ours).await).await.unwrap();
    is_not_asked(&trusting(&theirs).await, "invalid peer certificate").await;
    let other_name = ours.server("api.example", None);
    *server.config.lock().unwrap() = other_name;
    is_not_asked(&trusting(&ours).await, "invalid peer certificate").await;
}

#[tokio::test]
async fn a_server_is_asked_under_the_name_that_the_kubeconfig_gives_it() {
    let authority = Authority::new();
    let server = Server::start(authority.server("api.example", None)).await;
    let cluster = json!({
        "certificate-authority-data": data(&authority.pem()),
        "tls-server-name": "api.example",
    });
    read(&server.store(cluster, json!({})).await).await.unwrap();
}

#[tokio::test]
async fn whoever_answers_is_asked_where_the_kubeconfig_says_so() {
    let server = Server::start(Authority::new().server("api.example", None)).await;
    let cluster = json!({"insecure-skip-tls-verify": true});
    read(&server.store(cluster, json!({})).await).await.unwrap();
}

#[tokio::test]
async fn an_authority_that_is_replaced_is_read_again_when_it_is_needed() {
    let (old, new) = (Authority::new(), Authority::new());
    let server = Server::start(old.server("127.0.0.1", None)).await;
    let file = server.file("ca.crt", &old.pem());
    let store = server
        .store(json!({"certificate-authority": file}), json!({}))
        .await;
    read(&store).await.unwrap();
    *server.config.lock().unwrap() = new.server("127.0.0.1", None);
    server.file("ca.crt", "");
    is_not_asked(&store, "invalid peer certificate").await;
    is_not_asked(&store, "the certificate authority: it is empty").await;
    server.file("ca.crt", &format!("{}{}", old.pem(), new.pem()));
    read(&store).await.unwrap();
}

#[tokio::test]
async fn a_client_certificate_is_shown_from_data_and_from_files_and_when_it_has_changed() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = Server::start(authority.server("127.0.0.1", Some(&clients))).await;
    let cluster = json!({"certificate-authority-data": data(&authority.pem())});
    let (certificate, key) = clients.signs("us");
    let (certificate, key) = (certificate.pem(), key.serialize_pem());
    let inline = json!({
        "client-certificate-data": data(&certificate), "client-key-data": data(&key),
    });
    let store = server.store(cluster.clone(), inline).await;
    read(&store).await.unwrap();

    let (stranger, strangers_key) = authority.signs("us");
    let in_files = json!({
        "client-certificate": server.file("client.crt", &stranger.pem()),
        "client-key": server.file("client.key", &strangers_key.serialize_pem()),
    });
    let store = server.store(cluster, in_files).await;
    read(&store).await.unwrap_err();
    server.file("client.crt", &certificate);
    server.file("client.key", &key);
    read(&store).await.unwrap();
}
