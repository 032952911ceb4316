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
mod greeting;
mod members;
mod messages;
mod options;
mod status;
mod tls;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::Stream;
use soloist_core::election::Purpose;
use soloist_core::ids::Version;
use soloist_core::orders::Orders;
use soloist_core::record::Record;
use soloist_core::timings::{Preset, Timings};

use crate::clock;
use crate::form::Form;
use crate::store::{LeaseStore, StoreError, Stored, WatchEnded};
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
        let never = Some(Version::new(i64::MAX.unsigned_abs()));
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

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose answer this is.
    fn hear(&self, header: Option<ResponseHeader>, at_least: i64) -> Result<Version, String> {
        let header = header.ok_or("it has no header")?;
        let heard = self.cluster().hear(header, at_least, clock::now());
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

    /// What was found is what a write sends back.
    fn stored(&self, found: &KeyValue) -> Result<Stored<Form>, String> {
        let form = Form::parse(&found.value)?;
        Ok(self.stored_as(version(found.mod_revision)?, form))
    }

    fn stored_as(&self, version: Version, form: Form) -> Stored<Form> {
        let record = form.record();
        // For records that do not say it themselves.
        let usual = Timings::preset(Preset::LowLoad).lease();
        self.cluster().show(record.promise(usual));
        Stored::present(version, record, form)
    }

    /// Writes it if the key still has this version, or still is not there.
    async fn send(&self, base: Option<Version>, form: Form) -> Result<Stored<Form>, StoreError> {
        let asked = self.asked(true);
        let transaction = self.transaction(base, form.to_bytes())?;
        let at_least = self.cluster().revision();
        let answer = self.members.ask(method::TXN, transaction).await;
        let answer: TxnResponse = answer.map_err(|trouble| asked.failed(&trouble))?;
        let store = self
            .hear(answer.header, at_least)
            .map_err(StoreError::Unknown)?;
        if answer.succeeded {
            return Ok(self.stored_as(store, form));
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

    fn transaction(&self, base: Option<Version>, value: Vec<u8>) -> Result<TxnRequest, StoreError> {
        let key = || self.key.clone().into_bytes();
        let (target, compared) = match base {
            None => (CompareTarget::Create, Compared::CreateRevision(0)),
            Some(version) => {
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
    /// The value, with what is not ours in it.
    type Carried = Form;

    async fn read(&self) -> Result<Stored<Form>, StoreError> {
        let (store, found) = self.inner.range().await?;
        let Some(found) = found else {
            return Ok(Stored::missing(store));
        };
        let stored = self.inner.stored(&found);
        let stored = stored.map_err(|reason| self.inner.asked(false).not_understood(&reason))?;
        Ok(stored.still_at(store))
    }

    async fn write(
        &self,
        base: &Stored<Form>,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Stored<Form>, StoreError> {
        let mut form = base.carried.clone();
        form.set(record, purpose);
        let version = base.record.as_ref().map(|_| base.version);
        self.inner.send(version, form).await
    }

    async fn order(
        &self,
        base: &Stored<Form>,
        orders: &Orders,
    ) -> Result<Stored<Form>, StoreError> {
        let mut form = base.carried.clone();
        form.set_orders(orders);
        self.inner.send(Some(base.version), form).await
    }

    fn watch(
        &self,
        after: &Stored<Form>,
    ) -> impl Stream<Item = Result<Stored<Form>, WatchEnded>> + Send + 'static {
        watch::changes(Arc::clone(&self.inner), after.version, after.as_of)
    }

    fn abandon_connections(&self) {
        self.inner.members.leave_present();
    }

    fn describe(&self) -> String {
        self.inner.place.clone()
    }
}
