//! TLS with certificates that fit, do not fit, and are replaced.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use soloist_elector::LeaseStore;
use soloist_elector::etcd::{EtcdStore, Tls};
use soloist_elector::testing::in_time;
use testbed::EtcdTransport;

use crate::harness::{Etcd, elector, goes_on, refused};

const DAY: Duration = Duration::from_secs(86_400);

fn store(etcd: &Etcd, ca: PathBuf, identity: Option<(PathBuf, PathBuf)>) -> EtcdStore {
    let endpoints = etcd.cluster().endpoints();
    EtcdStore::new(etcd.options(&endpoints).tls(Tls { ca, identity }))
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_believed_by_their_certificates() {
    let Some(etcd) = Etcd::by(3, EtcdTransport::Tls) else {
        return;
    };
    let ca = etcd.cluster().ca();
    let elector = elector(store(&etcd, ca.clone(), None), "a");
    let term = in_time(elector.lead()).await.unwrap();
    goes_on(&term).await;

    let other = Etcd::by(1, EtcdTransport::Tls).unwrap();
    let stranger = store(&etcd, other.cluster().ca(), None);
    let told = refused(in_time(stranger.read()).await);
    assert!(told.contains("its certificate is not accepted"), "{told}");
    assert!(
        told.contains("no member of the etcd can be trusted, or none trusts us"),
        "{told}"
    );
    let missing = store(&etcd, ca.with_file_name("missing"), None);
    let told = refused(in_time(missing.read()).await);
    assert!(told.contains("missing cannot be used"), "{told}");

    let endpoints = etcd.cluster().endpoints();
    let plain = in_time(etcd.store_at(&endpoints).read()).await;
    assert!(plain.is_err(), "{plain:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_certificate_is_read_anew_for_every_connection() {
    let Some(etcd) = Etcd::by(1, EtcdTransport::MutualTls) else {
        return;
    };
    let ca = etcd.cluster().ca();
    let nameless = store(&etcd, ca.clone(), None);
    let told = refused(in_time(nameless.read()).await);
    assert!(told.contains("--etcd-cert"), "{told}");

    let (certificate, key) = etcd.cluster().client("me", DAY).unwrap();
    let store = store(&etcd, ca, Some((certificate.clone(), key.clone())));
    in_time(store.read()).await.unwrap();
    let good = (fs::read(&certificate).unwrap(), fs::read(&key).unwrap());
    fs::write(&certificate, "half of a fi").unwrap();
    // The connection that is there has done with it.
    in_time(store.read()).await.unwrap();
    store.abandon_connections();
    let told = refused(in_time(store.read()).await);
    assert!(told.contains("me.crt cannot be used"), "{told}");

    etcd.cluster().client("me", DAY).unwrap();
    assert_ne!(fs::read(&certificate).unwrap(), good.0);
    assert_ne!(fs::read(&key).unwrap(), good.1);
    in_time(store.read()).await.unwrap();
}
