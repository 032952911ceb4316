//! Addresses where no etcd is, or none that serves us: each is told in words.

use std::net::SocketAddr;
use std::time::Duration;

use soloist_elector::core::election::Purpose;
use soloist_elector::etcd::{EtcdStore, Tls};
use soloist_elector::testing::{absent, held_by, in_time};
use soloist_elector::{LeaseStore, StoreError};
use testbed::EtcdTransport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::harness::{Etcd, refused};
use crate::lone::Lone;

/// Says this to everybody, when it has heard something, and then nothing more.
async fn stranger(says: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut heard = [0; 1024];
                let _ = stream.read(&mut heard).await;
                let _ = stream.write_all(says).await;
                if !says.is_empty() {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    address
}

fn unavailable<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> String {
    match outcome {
        Err(error @ StoreError::Unavailable(_)) => error.to_string(),
        other => panic!("not unavailable: {other:?}"),
    }
}

/// Without an etcd: whoever listens there says this.
async fn told_of(says: &'static [u8]) -> Result<(), StoreError> {
    told_at(stranger(says).await).await
}

async fn told_at(address: SocketAddr) -> Result<(), StoreError> {
    let options = format!("{address}/test").parse().unwrap();
    let store = EtcdStore::new(soloist_elector::etcd::Options::lease(options, "demo"));
    let read = in_time(store.read()).await.map(drop);
    // A write is told the same, and has certainly not landed.
    let missing = absent();
    let record = held_by("a", 1, 1);
    let write = in_time(store.write(&missing, &record, Purpose::Acquire)).await;
    assert_eq!(write.map(drop), read);
    read
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_no_etcd_is_told_by_what_it_says() {
    let web = refused(told_of(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
    assert!(
        web.contains("it speaks HTTP/1 (\"HTTP/1.1 400 Bad Request\")"),
        "{web}"
    );
    assert!(
        web.contains("nobody who speaks as an etcd does is there. ") && web.contains("2379"),
        "{web}"
    );
    let tls = refused(told_of(&[0x15, 3, 1, 0, 2, 2, 70, 0, 0]).await);
    assert!(tls.contains("give --etcd-ca"), "{tls}");
    let ssh = refused(told_of(b"SSH-2.0-OpenSSH_9.2p1\r\n").await);
    assert!(ssh.contains("says \"SSH-2.0-OpenSSH_9.2p1\""), "{ssh}");
    let garbage = refused(told_of(b"\xff\xfe\x00\x01garbage").await);
    assert!(garbage.contains("it does not speak HTTP/2"), "{garbage}");
    let closed = unavailable(told_of(b"").await);
    let said = "it closes the connection without a word; if it wants TLS, give --etcd-ca";
    assert!(closed.contains(said), "{closed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_something_else_that_is_asked_by_grpc_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let told = refused(told_at(address).await);
    assert!(told.contains("does not speak etcd's v3 API"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_accepts_and_says_nothing_is_left_for_the_next_address() {
    let Some(etcd) = Etcd::shared() else { return };
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute = mute.local_addr().map(|address| (mute, address)).unwrap();
    let endpoint = etcd.cluster().endpoint(0);
    let store = etcd.store_at(&format!("{},{endpoint}", mute.1));
    for _ in 0..2 {
        in_time(store.read()).await.unwrap();
        store.abandon_connections();
    }
    let alone = etcd.store_at(&mute.1.to_string());
    let told = unavailable(in_time(alone.read()).await);
    assert!(told.contains("it says nothing for "), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_where_there_is_tls_and_tls_where_there_is_none_are_told() {
    let Some(plain) = Etcd::shared() else { return };
    let secure = Etcd::by(1, EtcdTransport::Tls).unwrap();
    let ca = secure.cluster().ca();
    let endpoint = secure.cluster().endpoint(0);
    let error = in_time(secure.store_at(&endpoint).read())
        .await
        .unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains(&endpoint) && told.contains("--etcd-ca"),
        "{told}"
    );

    let options = plain.options(&plain.cluster().endpoint(0));
    let store = EtcdStore::new(options.tls(Tls { ca, identity: None }));
    let error = in_time(store.read()).await.unwrap_err();
    let told = error.to_string();
    let said = "it closes the connection instead of a TLS handshake; if this etcd has no TLS, leave --etcd-ca away";
    assert!(told.contains(said), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_name_is_told_with_the_name() {
    let Some(etcd) = Etcd::by(1, EtcdTransport::Tls) else {
        return;
    };
    let ca = etcd.cluster().ca();
    let member = etcd.cluster().endpoint(0);
    // An address that the certificate does not have.
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(&member).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        }
    });
    let options = etcd.options(&address.to_string());
    let store = EtcdStore::new(options.tls(Tls { ca, identity: None }));
    let told = refused(in_time(store.read()).await);
    assert!(told.contains("is not for the name 127.0.0.2"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_have_expired_are_told_on_both_sides() {
    let Some(etcd) = Etcd::by(1, EtcdTransport::MutualTls) else {
        return;
    };
    let ca = etcd.cluster().ca();
    let (certificate, key) = etcd.cluster().client("brief", Duration::ZERO).unwrap();
    // It says its end in whole seconds.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let endpoint = etcd.cluster().endpoint(0);
    let identity = Some((certificate.clone(), key.clone()));
    let options = etcd.options(&endpoint).tls(Tls {
        ca: ca.clone(),
        identity,
    });
    let told = refused(in_time(EtcdStore::new(options).read()).await);
    assert!(told.contains("does not accept our certificate"), "{told}");

    let files = [("cert", &certificate), ("key", &key)]
        .map(|(name, path)| format!("--{name}-file={}", path.display()));
    let old = Lone::start_with("https", &files.each_ref().map(String::as_str));
    let options = etcd.options(&old.endpoint).tls(Tls { ca, identity: None });
    let told = refused(in_time(EtcdStore::new(options).read()).await);
    assert!(told.contains("has expired"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_is_told_with_the_way_out() {
    let Some(etcd) = Etcd::shared() else { return };
    let lone = Lone::start_with("http", &["--quota-backend-bytes=100000"]);
    let store = etcd.store_at(&lone.endpoint);
    let missing = absent();
    let first = held_by("a", 1, 1);
    let written = in_time(store.write(&missing, &first, Purpose::Acquire))
        .await
        .unwrap();
    lone.fill();
    let record = held_by("a", 1, 2);
    let told = refused(in_time(store.write(&written, &record, Purpose::Renew)).await);
    assert!(
        told.contains("is full") && told.contains("alarm disarm"),
        "{told}"
    );
    // What is there can still be read.
    assert_eq!(
        in_time(store.read()).await.unwrap().version,
        written.version
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_learner_is_told_and_left_for_a_member_that_votes() {
    let Some(etcd) = Etcd::shared() else { return };
    let voter = Lone::start();
    let learner = voter.learner();
    let told = async {
        let store = etcd.store_at(&learner.endpoint);
        loop {
            // Until it has been let in it says other things.
            match store.read().await {
                Err(StoreError::Unavailable(told)) if told.contains("is a learner") => return told,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let told = in_time(told).await;
    assert!(
        told.contains(&learner.endpoint) && told.contains("leave it out"),
        "{told}"
    );
    let both = etcd.store_at(&format!("{},{}", learner.endpoint, voter.endpoint));
    let served = async { while in_time(both.read()).await.is_err() {} };
    in_time(served).await;
}
