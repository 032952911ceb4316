//! client-go's elector, on one object or by its multilock on both: it polls, counts what it sees from when it first saw it, and keeps annotations that it does not know.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use soloist_core::election::Purpose;
use soloist_core::ids::Identity;
use soloist_core::orders::Orders;
use soloist_core::record::Record;
use soloist_core::time::Moment;

use super::super::super::{Write, object};
use super::super::protocol::Place;
use super::soloist::RETRY;
use super::world::{ModelPlace, World};

const LEASE: i64 = 15;
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Its client waits no longer for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The fields that it compares, and since when it has seen them so.
#[derive(Clone, Debug, Default)]
struct Observed(Option<(Value, Moment)>);

pub(super) struct ClientGo {
    place: ModelPlace,
    /// A multilock's second.
    second: Option<ModelPlace>,
    me: Identity,
    pub(super) works: bool,
    attempt: Option<BoxFuture<'static, (bool, Observed)>>,
    observed: Observed,
    next_try: Moment,
    /// Until then an attempt is waited for.
    patience: Moment,
    /// Until then this round of renewals must have succeeded.
    deadline: Moment,
    stopping: bool,
    ended: bool,
}

impl ClientGo {
    pub(super) fn new(place: ModelPlace, second: Option<ModelPlace>, name: &str) -> Self {
        Self {
            next_try: place.world.now(),
            place,
            second,
            me: Identity::found(name).unwrap_or_else(|| panic!("a name")),
            works: false,
            attempt: None,
            observed: Observed::default(),
            patience: Moment::NEVER,
            deadline: Moment::NEVER,
            stopping: false,
            ended: false,
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Its work ends, then it releases what it held.
    pub(super) fn stop(&mut self, world: &World) {
        let held = std::mem::take(&mut self.works);
        self.stopping = true;
        self.attempt = None;
        self.ended = !held || world.chance(30);
        if held {
            let (place, second) = (self.place.clone(), self.second.clone());
            self.attempt = Some(release(place, second, self.me.clone()).boxed());
            self.deadline = world.now() + RENEW_DEADLINE;
        }
    }

    pub(super) fn tick(&mut self, world: &World) {
        let now = world.now();
        if self.works && now >= self.deadline {
            // It exits, and is started again.
            self.works = false;
            self.ended = true;
            self.attempt = None;
        }
        if self.stopping && now >= self.deadline {
            self.ended = true;
        }
        if self.ended {
            if !self.stopping && world.one_in(60) {
                *self = Self::new(self.place.clone(), self.second.clone(), self.me.as_str());
            }
            return;
        }
        if self.attempt.is_some() && now >= self.patience && !self.stopping {
            self.attempt = None;
            self.next_try = now + RETRY;
        }
        if self.attempt.is_none() && now >= self.next_try && !self.stopping {
            let (place, second) = (self.place.clone(), self.second.clone());
            let (me, observed) = (self.me.clone(), self.observed.clone());
            self.attempt = Some(acquire_or_renew(place, second, me, observed).boxed());
            self.patience = now + PATIENCE;
        }
        let Some((won, observed)) = self.attempt.as_mut().and_then(FutureExt::now_or_never) else {
            return;
        };
        self.attempt = None;
        self.observed = observed;
        self.ended = self.stopping;
        let jitter = Duration::from_millis(world.up_to(400));
        self.next_try = now + RETRY + jitter;
        if won {
            self.works = true;
            // The next round begins after a retry period.
            self.deadline = self.next_try + RENEW_DEADLINE;
        }
    }
}

fn fields(object: &Value, place: &ModelPlace) -> (Record, Value) {
    let record = object::record(place.resource(), object);
    let fields = place.resource().fields(object);
    (record, Value::Object(fields))
}

/// Two that name different holders have one that nobody is.
const UNKNOWN: &str = "leaderelection.k8s.io/unknown";

/// The first object, and what it reads out of both.
async fn get(
    place: &ModelPlace,
    second: Option<&ModelPlace>,
) -> Option<Option<(Value, Record, Value)>> {
    let (item, _) = place.list().await.ok()?;
    let Some(item) = item else {
        return Some(None);
    };
    let (mut found, mut raw) = fields(&item, place);
    if let Some(second) = second
        && let Some(other) = second.list().await.ok()?.0
    {
        let (other, other_raw) = fields(&other, second);
        if other.holder != found.holder {
            found.holder = Identity::found(UNKNOWN);
        }
        raw = Value::Array(vec![raw, other_raw]);
    }
    Some(Some((item, found, raw)))
}

async fn acquire_or_renew(
    place: ModelPlace,
    second: Option<ModelPlace>,
    me: Identity,
    mut observed: Observed,
) -> (bool, Observed) {
    let Some(got) = get(&place, second.as_ref()).await else {
        return (false, observed);
    };
    let now = place.world.now();
    let mut transitions = 0;
    if let Some((_, found, raw)) = &got {
        if observed.0.as_ref().is_none_or(|(known, _)| known != raw) {
            observed.0 = Some((raw.clone(), now));
        }
        let seconds = found.duration_seconds.unwrap_or(0).unsigned_abs();
        let since = observed.0.as_ref().map_or(now, |(_, since)| *since);
        let held_by_another = found.holder.as_ref().is_some_and(|holder| *holder != me);
        if held_by_another && since + Duration::from_secs(seconds) > now {
            return (false, observed);
        }
        let mine = found.holder.as_ref() == Some(&me);
        transitions = found.transitions + u64::from(!mine);
    }
    let record = Record {
        holder: Some(me),
        duration_seconds: Some(LEASE),
        transitions,
        signature: None,
        orders: Orders::NONE,
    };
    let item = got.as_ref().map(|(item, ..)| item);
    let won = put_both(&place, second.as_ref(), item, &record).await;
    (won, observed)
}

async fn release(place: ModelPlace, second: Option<ModelPlace>, me: Identity) -> (bool, Observed) {
    let nothing = Observed::default();
    let Some(Some((item, found, _))) = get(&place, second.as_ref()).await else {
        return (false, nothing);
    };
    if found.holder != Some(me) {
        return (false, nothing);
    }
    let record = Record {
        holder: None,
        duration_seconds: Some(Record::RELEASED_SECONDS),
        signature: None,
        ..found
    };
    put_both(&place, second.as_ref(), Some(&item), &record).await;
    (false, nothing)
}

/// The first as it was found, and then the second as it is now, whatever it is.
async fn put_both(
    place: &ModelPlace,
    second: Option<&ModelPlace>,
    found: Option<&Value>,
    record: &Record,
) -> bool {
    let first = put(place, found, record).await;
    match second {
        Some(second) if first => match second.list().await {
            Ok((other, _)) => put(second, other.as_ref(), record).await,
            Err(_) => false,
        },
        _ => first,
    }
}

/// Writes the fields that it knows of, and leaves all else as it is.
async fn put(place: &ModelPlace, found: Option<&Value>, record: &Record) -> bool {
    let mut new = place.with_record(found, record, Purpose::Renew);
    for name in [object::SIGNATURE, object::PAIR] {
        let kept = found.and_then(|found| found.pointer("/metadata/annotations")?.get(name));
        match (kept, new["metadata"]["annotations"].as_object_mut()) {
            (Some(kept), Some(annotations)) => {
                annotations.insert(name.into(), kept.clone());
            }
            (Some(kept), None) => new["metadata"]["annotations"][name] = kept.clone(),
            (None, _) => {}
        }
    }
    let kind = found.map_or(Write::Create, |_| Write::Update);
    place.put(kind, &new).await.is_ok()
}
