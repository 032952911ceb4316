//! The lease as a key in etcd, by its v3 API.
//!
//! - One key, `PREFIX/NAME`; its value is the JSON that a lease file has. Fields that are not ours are kept.
//! - Reads are linearizable. A write is a transaction that compares the key's `mod_revision`, or that there is none; the version, and
//!   so the token, is the transaction's revision.
//! - No etcd lease: its time is counted by another machine's clock, and what it deletes would have to be waited out anyway.
//! - Requests and the watch have connections of their own, to different members if there are several. A request that is given up
//!   takes its connection with it, and the next one goes to the next member. A member without a leader says so at once and is left.
//! - Nothing is tried again here, but what had certainly no effect: a request that never left this process, because its connection was just
//!   closed, and one that was refused for an old token. Each is sent once more.
//!
//! Certificates and passwords are read from their files for every connection and login. Least privilege: a role with
//! `readwrite` on the one key.

mod cluster;
mod connection;
mod failure;
mod members;
mod messages;
mod options;
mod status;
mod tls;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use soloist_core::election::{Base, Purpose};
use soloist_core::ids::Version;
use soloist_core::orders::Orders;
use soloist_core::record::{Record, Snapshot};
use soloist_core::timings::{Preset, Timings};

use crate::clock;
use crate::form::Form;
use crate::seen::Seen;
use crate::store::{LeaseStore, StoreError, WatchEnded};
use cluster::Cluster;
use failure::Asked;
use members::Members;
use messages::{
    Compare, CompareTarget, Compared, KeyValue, PutRequest, RangeRequest, RangeResponse, Request,
    RequestOp, ResponseHeader, TxnRequest, TxnResponse, method,
};

pub use options::{Address, AddressError, Endpoint, Login, Options, Tls};
pub use status::{Member, MemberState};

/// A lease in an etcd. Clones share it.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    members: Members,
    key: String,
    place: String,
    /// The records, with what is not ours in them.
    seen: Mutex<Seen<Form>>,
    cluster: Mutex<Cluster>,
}

impl EtcdStore {
    /// The lease that is meant. etcd itself is first asked by the first request.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let key = options.key();
        let place = format!("lease {} on etcd {}", options.name, options.address);
        Self {
            inner: Arc::new(Inner {
                members: Members::new(options),
                key,
                place,
                seen: Mutex::default(),
                cluster: Mutex::default(),
            }),
        }
    }

    /// The key's value as it is, for people.
    ///
    /// # Errors
    /// As a read.
    pub async fn value(&self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.inner.range().await?.1.map(|found| found.value))
    }

    /// Whether we may write the key. Nothing is written.
    ///
    /// # Errors
    /// As a write.
    pub async fn may_write(&self) -> Result<(), StoreError> {
        // etcd asks for the rights of both branches, and no key is at this revision.
        let never = Base::Version(Version::new(i64::MAX.unsigned_abs()));
        match self.inner.send(never, Form::default()).await {
            Ok(_) | Err(StoreError::LostRace(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Inner {
    fn asked(&self, writes: bool) -> Asked<'_> {
        Asked {
            writes,
            key: &self.key,
            place: self.place.clone(),
            members: &self.members,
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen<Form>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long somebody may still believe in a record that was seen here.
    fn promised(&self) -> Duration {
        // For records that do not say it themselves.
        let usual = Timings::preset(Preset::LowLoad).lease();
        let seen = self.seen();
        let promises = seen.states().map(|form| form.record().promise(usual));
        promises.max().unwrap_or(Duration::ZERO)
    }

    /// Whose answer this is.
    fn hear(&self, header: Option<ResponseHeader>, at_least: i64) -> Result<Version, String> {
        let header = header.ok_or("it has no header")?;
        let promised = self.promised();
        let heard = self
            .cluster()
            .hear(header, at_least, promised, clock::now());
        if heard.is_err() {
            self.members.leave_present();
        }
        heard?;
        version(header.revision)
    }

    async fn range(&self) -> Result<(Version, Option<KeyValue>), StoreError> {
        let asked = self.asked(false);
        let at_least = self.cluster().revision();
        let key = self.key.clone().into_bytes();
        let answer = self.members.ask(method::RANGE, RangeRequest { key }).await;
        let mut answer: RangeResponse = answer.map_err(|trouble| asked.failed(&trouble))?;
        let store = self
            .hear(answer.header, at_least)
            .map_err(StoreError::Unavailable)?;
        Ok((store, answer.kvs.pop()))
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        let (store, found) = self.range().await?;
        let snapshot = match found {
            None => Ok(Snapshot::new(store, None)),
            Some(found) => self.remember(&found),
        };
        let snapshot = snapshot.map_err(|reason| self.asked(false).not_understood(&reason))?;
        self.seen().was_read(snapshot.version, store);
        Ok(snapshot)
    }

    /// What was found is what a write sends back.
    fn remember(&self, found: &KeyValue) -> Result<Snapshot, String> {
        let version = version(found.mod_revision)?;
        let form = Form::parse(&found.value)?;
        let record = form.record();
        self.seen().remember(version, form);
        Ok(Snapshot::new(version, Some(record)))
    }

    fn seen_at(&self, version: Version) -> Result<Form, StoreError> {
        self.seen().at(version).ok_or_else(|| {
            StoreError::LostRace(format!(
                "version {version} has not been seen here, so it must be read first"
            ))
        })
    }

    async fn write(
        &self,
        base: Base,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Version, StoreError> {
        let mut form = match base {
            Base::Absent => Form::default(),
            Base::Version(version) => self.seen_at(version)?,
        };
        form.set(record, purpose);
        self.send(base, form).await
    }

    async fn order(&self, base: Version, orders: &Orders) -> Result<Version, StoreError> {
        let mut form = self.seen_at(base)?;
        form.set_orders(orders);
        self.send(Base::Version(base), form).await
    }

    async fn send(&self, base: Base, form: Form) -> Result<Version, StoreError> {
        let asked = self.asked(true);
        let transaction = self.transaction(base, form.to_bytes())?;
        let at_least = self.cluster().revision();
        let answer = self.members.ask(method::TXN, transaction).await;
        let answer: TxnResponse = answer.map_err(|trouble| asked.failed(&trouble))?;
        let store = self
            .hear(answer.header, at_least)
            .map_err(StoreError::Unknown)?;
        if answer.succeeded {
            self.seen().remember(store, form);
            return Ok(store);
        }
        let found = answer
            .responses
            .into_iter()
            .find_map(|response| response.range);
        let found = found.and_then(|range| range.kvs.into_iter().next());
        Err(StoreError::LostRace(match found {
            Some(found) => format!("the lease is at version {}", found.mod_revision),
            None => format!("there is no lease, at version {store}"),
        }))
    }

    fn transaction(&self, base: Base, value: Vec<u8>) -> Result<TxnRequest, StoreError> {
        let key = || self.key.clone().into_bytes();
        let (target, compared) = match base {
            Base::Absent => (CompareTarget::Create, Compared::CreateRevision(0)),
            Base::Version(version) => {
                let revision = i64::try_from(version.get());
                let revision =
                    revision.map_err(|_| StoreError::LostRace("no revision is so high".into()))?;
                (CompareTarget::Mod, Compared::ModRevision(revision))
            }
        };
        let compare = Compare {
            target: target.into(),
            key: key(),
            compared: Some(compared),
        };
        let put = Request::Put(PutRequest { key: key(), value });
        let range = Request::Range(RangeRequest { key: key() });
        let operation = |request| {
            vec![RequestOp {
                request: Some(request),
            }]
        };
        Ok(TxnRequest {
            compare: vec![compare],
            success: operation(put),
            failure: operation(range),
        })
    }
}

fn version(revision: i64) -> Result<Version, String> {
    let revision = u64::try_from(revision);
    revision
        .map(Version::new)
        .map_err(|_| "it has a negative revision".into())
}

impl LeaseStore for EtcdStore {
    async fn read(&self) -> Result<Snapshot, StoreError> {
        self.inner.read().await
    }

    async fn write(
        &self,
        base: Base,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Version, StoreError> {
        self.inner.write(base, record, purpose).await
    }

    async fn order(&self, base: Version, orders: &Orders) -> Result<Version, StoreError> {
        self.inner.order(base, orders).await
    }

    fn watch(
        &self,
        after: Version,
    ) -> impl Stream<Item = Result<Snapshot, WatchEnded>> + Send + 'static {
        watch::changes(Arc::clone(&self.inner), after)
    }

    fn abandon_connections(&self) {
        self.inner.members.leave_present();
    }

    fn describe(&self) -> String {
        self.inner.place.clone()
    }
}
