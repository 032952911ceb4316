//! A lease of its own for a test, in an etcd.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use soloist_elector::core::ids::Identity;
use soloist_elector::core::timings::Timings;
use soloist_elector::etcd::{EtcdStore, Options};
use soloist_elector::testing::{Disturb, Fixture, in_time};
use soloist_elector::{Elector, StoreError, Term, clock};
use testbed::{EtcdCluster, EtcdTransport, Link};

use crate::disturb::disturb;

pub(crate) const LEASE: &str = "demo";

/// Longer than a cluster of three on two busy cores takes to choose a new leader.
pub(crate) fn quick() -> Timings {
    let ms = Duration::from_millis;
    Timings::try_new(ms(8000), ms(6500), ms(300)).unwrap()
}

pub(crate) fn elector(store: EtcdStore, identity: &str) -> Elector {
    Elector::builder(store)
        .identity(Identity::try_new(identity).unwrap())
        .timings(quick())
        .spawn()
        .unwrap()
}

/// Waits until the term has been renewed for a whole lease from now on; it must not end meanwhile.
pub(crate) async fn goes_on(term: &Term) {
    let enough = clock::now() + quick().lease().get() * 2;
    let renewed = async {
        while term.valid_until() < enough {
            assert!(term.is_valid(), "the term has ended");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(renewed).await;
}

/// Waits for the next renewal: one fault at a time.
pub(crate) async fn is_renewed(term: &Term) {
    let before = term.valid_until();
    let renewed = async {
        while term.valid_until() == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(renewed).await;
}

/// What was refused, in words.
pub(crate) fn refused<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> String {
    match outcome {
        Err(error @ StoreError::Refused(_)) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// A prefix with one lease below it.
pub(crate) struct Etcd {
    cluster: Arc<Mutex<EtcdCluster>>,
    prefix: String,
}

impl Etcd {
    /// In the etcd that all tests share; `None` where there is none.
    pub(crate) fn shared() -> Option<Self> {
        static SHARED: LazyLock<Arc<Mutex<EtcdCluster>>> =
            LazyLock::new(|| start(1, EtcdTransport::Plain));
        (!is_skipped()).then(|| Self::on(Arc::clone(&SHARED)))
    }

    /// In an etcd of its own, to do harm to.
    pub(crate) fn own(members: usize) -> Option<Self> {
        Self::by(members, EtcdTransport::Plain)
    }

    pub(crate) fn by(members: usize, transport: EtcdTransport) -> Option<Self> {
        (!is_skipped()).then(|| Self::on(start(members, transport)))
    }

    fn on(cluster: Arc<Mutex<EtcdCluster>>) -> Self {
        static LEASES: AtomicUsize = AtomicUsize::new(0);
        let number = LEASES.fetch_add(1, Ordering::Relaxed);
        Self {
            cluster,
            prefix: format!("test-{number}"),
        }
    }

    pub(crate) fn cluster(&self) -> MutexGuard<'_, EtcdCluster> {
        self.cluster.lock().unwrap()
    }

    pub(crate) fn key(&self) -> String {
        format!("{}/{LEASE}", self.prefix)
    }

    pub(crate) fn options(&self, endpoints: &str) -> Options {
        let address = format!("{endpoints}/{}", self.prefix);
        Options::lease(address.parse().unwrap(), LEASE)
    }

    pub(crate) fn store_at(&self, endpoints: &str) -> EtcdStore {
        EtcdStore::new(self.options(endpoints))
    }

    pub(crate) fn elector(&self, identity: &str) -> Elector {
        elector(self.store(), identity)
    }

    pub(crate) fn json(&self) -> Value {
        let text = self
            .cluster()
            .etcdctl(&["get", "--print-value-only", &self.key()]);
        serde_json::from_str(&text.unwrap()).unwrap()
    }

    pub(crate) fn put(&self, value: &str) {
        self.cluster()
            .etcdctl(&["put", &self.key(), value])
            .unwrap();
    }
}

fn start(members: usize, transport: EtcdTransport) -> Arc<Mutex<EtcdCluster>> {
    let cluster = EtcdCluster::start(members, transport);
    Arc::new(Mutex::new(
        cluster.unwrap_or_else(|error| panic!("{error}")),
    ))
}

/// With `SOLOIST_TESTBED=required` these tests fail where there is no etcd.
fn is_skipped() -> bool {
    let wish = std::env::var("SOLOIST_TESTBED").unwrap_or_default();
    assert!(
        wish != "required" || !EtcdCluster::is_missing(),
        "install etcd-server and etcd-client"
    );
    wish == "off" || EtcdCluster::is_missing()
}

impl Fixture for Etcd {
    type Store = EtcdStore;

    fn store(&self) -> EtcdStore {
        let endpoints = self.cluster().endpoints();
        self.store_at(&endpoints)
    }

    async fn delete(&self) {
        self.cluster().etcdctl(&["del", &self.key()]).unwrap();
    }

    async fn set_holder(&self, holder: Option<&str>) {
        let mut record = self.json();
        record["holder"] = json!(holder);
        self.put(&record.to_string());
    }

    async fn annotate(&self, text: &str) -> Result<(), &'static str> {
        let mut record = self.json();
        record["note"] = json!(text);
        self.put(&record.to_string());
        Ok(())
    }

    async fn annotation(&self) -> Option<String> {
        Some(self.json()["note"].as_str()?.to_owned())
    }

    async fn back_up(&self) {
        self.cluster().save().unwrap();
    }

    async fn set_back(&self) {
        self.cluster().restore().unwrap();
    }

    async fn disturbed(&self) -> Result<(EtcdStore, Disturb), &'static str> {
        let link = Link::to(self.cluster().endpoint(0).parse().unwrap()).unwrap();
        let store = self.store_at(&link.address().to_string());
        Ok((store, disturb(link)))
    }

    async fn without_rights(&self) -> Result<EtcdStore, &'static str> {
        self.cluster().enable_users("first").unwrap();
        Ok(self.store())
    }

    async fn compact(&self) -> Result<(), &'static str> {
        self.cluster().compact().unwrap();
        Ok(())
    }
}
