//! Bad input: every mistake has its words.

use std::path::Path;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use soloist_worker::stream::{Consumer, State, Target, Tls};
use soloist_worker::{Backoff, Shutdown};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::harness::{DRAIN, Nobody, Notes, Stage, note, quick, within};
use crate::server::{Note, Server};

async fn error_of(consumer: Consumer) -> String {
    let (notes, _works) = Notes::new(true);
    let shutdown = Shutdown::new(DRAIN);
    let ended = within("an error", consumer.run(&shutdown, &notes)).await;
    ended.unwrap_err().to_string()
}

/// What it says while it tries on.
async fn reason_of(consumer: Consumer) -> String {
    let (notes, _works) = Notes::new(true);
    let shutdown = Shutdown::new(DRAIN);
    let mut states = consumer.states();
    let waiting = states.wait_for(|state| matches!(state, State::Waiting { .. }));
    tokio::select! {
        ended = consumer.run(&shutdown, &notes) => panic!("it gave up: {ended:?}"),
        state = within("a failure", waiting) => state.unwrap().to_string(),
    }
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_tried_on_and_named() {
    let nobody = Nobody::new();
    let reason = reason_of(quick(&nobody.url())).await;
    let begin = format!("no connection to {}: ", nobody.url());
    assert!(
        reason.starts_with(&begin) && reason.contains("Connection refused"),
        "{reason}"
    );
    assert!(reason.ends_with("; trying again in 10ms"), "{reason}");
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_tried_on_and_named() {
    let reason = reason_of(quick("http://no-such-host.invalid:50051")).await;
    assert!(
        reason.starts_with("no connection to http://no-such-host.invalid:50051: dns error"),
        "{reason}"
    );
}

/// Reads what comes and answers with these bytes.
async fn rude_server(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut heard = [0; 4096];
                let _ = connection.read(&mut heard).await;
                let _ = connection.write_all(answer).await;
                while connection.read(&mut heard).await.is_ok_and(|n| n > 0) {}
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn a_server_of_http_1_speaks_no_grpc() {
    let url =
        rude_server(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .await;
    let error = error_of(quick(&url)).await;
    assert!(
        error.starts_with(&format!("{url} speaks no gRPC: its answer is not HTTP/2")),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_of_http_2_that_knows_no_grpc_is_told_from_one_that_does() {
    let app =
        axum::Router::new().route("/test.Feed/Open", axum::routing::post(|| async { "hello" }));
    for (app, expected) in [
        (
            axum::Router::new(),
            "failed: Unimplemented: grpc-status header missing, mapped from HTTP status code 404; is this the right server, and does it speak gRPC?",
        ),
        (
            app,
            "failed: Internal: protocol error: received message with invalid compression flag",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        let error = error_of(quick(&url)).await;
        assert!(error.contains(expected), "{error}");
        server.abort();
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_at_all_is_noticed() {
    let url = rude_server(b"").await;
    let beat = Duration::from_millis(200);
    let target = Target::new(&url).unwrap().keepalive(beat, beat).unwrap();
    let reason = reason_of(Consumer::new(target)).await;
    assert!(reason.contains("keep-alive timed out"), "{reason}");
}

#[tokio::test]
async fn a_server_that_closes_at_once_is_tried_again_only_after_the_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let long = Duration::from_secs(600);
    let consumer = quick(&url).backoff(Backoff::try_new(long, long).unwrap());
    let mut states = consumer.states();
    let running = tokio::spawn(async move {
        let (notes, _works) = Notes::new(true);
        consumer.run(&Shutdown::new(DRAIN), &notes).await.map(drop)
    });
    drop(within("a connection", listener.accept()).await.unwrap());
    let waiting = states.wait_for(|state| matches!(state, State::Waiting { .. }));
    within("a wait", waiting).await.unwrap();
    let again = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(again.is_err(), "there was a second connection");
    running.abort();
}

/// Ends a quiet connection at the fourth ping, as servers of other languages do.
async fn impatient_server(interval: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(connection).await.unwrap();
            let (_, mut answer) = connection.accept().await.unwrap().unwrap();
            let head = http::Response::builder().header("content-type", "application/grpc");
            let stream = answer.send_response(head.body(()).unwrap(), false).unwrap();
            let pinged = tokio::time::timeout(interval * 4, connection.accept()).await;
            assert!(pinged.is_err(), "it does not ask for more");
            drop((stream, connection));
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn a_server_that_wants_fewer_signs_of_life_gets_half_as_many() {
    let interval = Duration::from_millis(200);
    let url = impatient_server(interval).await;
    let target = Target::new(&url).unwrap();
    let consumer = Consumer::new(target.keepalive(interval, DRAIN).unwrap());
    let reason = reason_of(consumer).await;
    assert!(
        reason.contains("; in case it was pinged too often: every 400ms from now on"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_message_that_cannot_be_read_ends_it() {
    let mut stage = Stage::new().await;
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    sent.send(Ok(vec![0xff; 16])).await.unwrap();
    stage.work().await.done();
    let error = stage.ended().await.unwrap_err().to_string();
    assert!(
        error.contains("failed: Internal: failed to decode Protobuf message: ")
            && error.ends_with("; do both sides use the same .proto?"),
        "{error}"
    );
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_it() {
    let mut stage = Stage::new().await;
    let sent = stage.opened().await;
    let large = Note {
        position: 1,
        payload: vec![0; 5 << 20],
    };
    sent.send(Ok(prost::Message::encode_to_vec(&large)))
        .await
        .unwrap();
    let error = stage.ended().await.unwrap_err().to_string();
    assert!(
        error.contains("the limit is: 4194304 bytes")
            && error.contains("raise max_decoding_message_size of the client"),
        "{error}"
    );
}

/// A CA, and what it has signed.
struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// As two files, `NAME.pem` and `NAME.key`.
    fn sign(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        Identity::from_pem(certificate.pem(), key.serialize_pem())
    }

    fn certificate(&self) -> Certificate {
        Certificate::from_pem(self.issuer.pem())
    }
}

fn secure(server: &Server, tls: Tls) -> Consumer {
    let url = format!("https://localhost:{}", server.address.port());
    Consumer::new(Target::new(&url).unwrap().tls(tls).unwrap())
}

#[tokio::test]
async fn with_the_right_certificates_on_both_sides_messages_flow() {
    let authority = Authority::new("ours");
    let tls = ServerTlsConfig::new()
        .identity(authority.sign("localhost"))
        .client_ca_root(authority.certificate());
    authority.sign("worker");
    let server = Server::with_tls(tls).await;
    let ours = Tls::new()
        .ca(authority.path("ca.pem"))
        .identity(authority.path("worker.pem"), authority.path("worker.key"));
    let consumer = secure(&server, ours);
    let mut stage = Stage::set(server, consumer, Shutdown::new(DRAIN), true);
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    stage.work().await.done();
    stage.acknowledged(1).await;
}

#[tokio::test]
async fn a_certificate_of_another_ca_or_for_another_name_is_not_trusted() {
    let authority = Authority::new("ours");
    let stranger = Authority::new("another");
    let tls = ServerTlsConfig::new().identity(authority.sign("localhost"));
    let server = Server::with_tls(tls).await;
    let by_stranger = error_of(secure(&server, Tls::new().ca(stranger.path("ca.pem")))).await;
    assert!(
        by_stranger.contains("is not trusted: ") && by_stranger.contains("UnknownIssuer"),
        "{by_stranger}"
    );
    let ours = Tls::new().ca(authority.path("ca.pem"));
    let misnamed = error_of(secure(&server, ours.server_name("feed.example"))).await;
    assert!(
        misnamed.contains("is not trusted: ") && misnamed.contains("feed.example"),
        "{misnamed}"
    );
}

#[tokio::test]
async fn a_server_that_wants_to_know_who_we_are_says_so() {
    let authority = Authority::new("ours");
    let tls = ServerTlsConfig::new()
        .identity(authority.sign("localhost"))
        .client_ca_root(authority.certificate());
    let server = Server::with_tls(tls).await;
    let nameless = error_of(secure(&server, Tls::new().ca(authority.path("ca.pem")))).await;
    assert!(
        nameless.contains("refuses our side of TLS: CertificateRequired"),
        "{nameless}"
    );
}

#[tokio::test]
async fn tls_to_a_server_without_it_and_the_reverse_are_told() {
    let authority = Authority::new("ours");
    let server = Server::start().await;
    let error = error_of(secure(&server, Tls::new().ca(authority.path("ca.pem")))).await;
    assert!(
        error.contains("does not speak TLS; is it meant to be http://?"),
        "{error}"
    );

    let tls = ServerTlsConfig::new().identity(authority.sign("localhost"));
    let server = Server::with_tls(tls).await;
    let reason = reason_of(quick(&server.url())).await;
    assert!(
        reason.contains("; does it speak gRPC there, and is it not meant to be https://?"),
        "{reason}"
    );
}

#[tokio::test]
async fn certificates_are_read_anew_for_every_connection() {
    let authority = Authority::new("ours");
    let tls = ServerTlsConfig::new().identity(authority.sign("localhost"));
    let server = Server::with_tls(tls).await;
    let consumer = secure(&server, Tls::new().ca(authority.path("ca.pem")));
    std::fs::remove_file(authority.path("ca.pem")).unwrap();
    let reason = reason_of(consumer).await;
    assert!(
        reason.contains("the CA certificate cannot be read from"),
        "{reason}"
    );
    assert!(Path::new(&authority.path("localhost.pem")).exists());
}

#[tokio::test]
async fn a_rotated_ca_and_client_certificate_are_picked_up() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let folder = tempfile::tempdir().unwrap();
    let install = |authority: &Authority| {
        authority.sign("worker");
        for name in ["ca.pem", "worker.pem", "worker.key"] {
            let staged = folder.path().join("staged");
            std::fs::copy(authority.path(name), &staged).unwrap();
            std::fs::rename(staged, folder.path().join(name)).unwrap();
        }
    };
    let mutual = |authority: &Authority| {
        ServerTlsConfig::new()
            .identity(authority.sign("localhost"))
            .client_ca_root(authority.certificate())
    };
    install(&old);
    let server = Server::with_tls(mutual(&old)).await;
    let address = server.address;
    let path = |name: &str| folder.path().join(name);
    let tls = Tls::new().ca(path("ca.pem"));
    let tls = tls.identity(path("worker.pem"), path("worker.key"));
    let first = Duration::from_millis(10);
    let backoff = Backoff::try_new(first, first).unwrap();
    let consumer = secure(&server, tls).backoff(backoff);
    let mut stage = Stage::set(server, consumer, Shutdown::new(DRAIN), true);
    let sent = stage.opened().await;

    // The server is rotated first, and our files later.
    stage.server = Server::start().await;
    drop(sent);
    let is_gone = |state: &State| state.to_string().contains("Connection refused");
    stage.state(is_gone).await;
    stage.server = Server::on(address, Some(mutual(&new))).await;
    let is_untrusted = |state: &State| state.to_string().contains("is not trusted: ");
    stage.state(is_untrusted).await;
    install(&new);
    let sent = stage.opened().await;
    sent.send(note(1)).await.unwrap();
    stage.work().await.done();
    stage.acknowledged(1).await;
}
