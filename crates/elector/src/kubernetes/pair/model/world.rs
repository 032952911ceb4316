//! The API server: two objects, their history, requests under way, and chance.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use soloist_core::election::Purpose;
use soloist_core::ids::Version;
use soloist_core::record::Record;
use soloist_core::time::Moment;

use super::super::super::resource::Resource;
use super::super::super::{Write, object};
use super::super::merge::Half;
use super::super::protocol::Place;
use crate::store::StoreError;

/// What a store does wrong, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    None,
    /// An update does not look at the version.
    NoCompare,
    /// Whoever writes both looks at one of them only.
    LegacyAlone,
    LeaseAlone,
    /// A half of a pair looks like a lock of somebody who knows of one only.
    Unmarked,
}

impl Defect {
    pub(super) const ALL: [Self; 4] = [
        Self::NoCompare,
        Self::LegacyAlone,
        Self::LeaseAlone,
        Self::Unmarked,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Legacy,
    Lease,
}

/// A change of one of the objects.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) side: Side,
    pub(super) version: Version,
    pub(super) at: Moment,
    pub(super) object: Value,
}

#[derive(Clone, Debug)]
enum Ask {
    List,
    Put(Write, Value),
}

struct Flying {
    id: u64,
    by: u64,
    side: Side,
    ask: Ask,
    lands_at: Moment,
}

type Answer = Result<(Option<Value>, Version), StoreError>;

struct State {
    chance: u64,
    defect: Defect,
    now: Moment,
    revision: u64,
    objects: [Option<Value>; 2],
    history: Vec<Change>,
    flying: Vec<Flying>,
    answers: BTreeMap<u64, (Moment, Answer)>,
    asked: u64,
    /// Whose requests and changes do not pass, until then.
    cut: BTreeMap<u64, Moment>,
    quiet: bool,
    /// Of any soloist's term.
    token: u64,
}

#[derive(Clone)]
pub(super) struct World(Arc<Mutex<State>>);

impl World {
    pub(super) fn new(seed: u64, defect: Defect) -> Self {
        Self(Arc::new(Mutex::new(State {
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            defect,
            now: Moment::since_boot(Duration::from_secs(1000)),
            revision: 10,
            objects: [None, None],
            history: Vec::new(),
            flying: Vec::new(),
            answers: BTreeMap::new(),
            asked: 0,
            cut: BTreeMap::new(),
            quiet: false,
            token: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Moment {
        self.state().now
    }

    pub(super) fn pass(&self, time: Duration) {
        let mut state = self.state();
        state.now = state.now + time;
    }

    /// Less than this.
    pub(super) fn up_to(&self, most: u64) -> u64 {
        self.state().up_to(most)
    }

    pub(super) fn one_in(&self, many: u64) -> bool {
        self.up_to(many) == 0
    }

    /// With so many percent.
    pub(super) fn chance(&self, percent: u64) -> bool {
        self.up_to(100) < percent
    }

    /// Now and then somebody is cut off for a while.
    pub(super) fn disturb(&self) {
        let mut state = self.state();
        if state.up_to(300) == 0 {
            let newest = state.newest_asker();
            let (whom, long) = (newest.saturating_sub(state.up_to(4)), state.up_to(25_000));
            let until = state.now + Duration::from_millis(long);
            state.cut.insert(whom, until);
        }
    }

    /// No fault any more.
    pub(super) fn heal(&self) {
        let mut state = self.state();
        state.cut.clear();
        state.quiet = true;
    }

    pub(super) fn is_cut(&self, who: u64) -> bool {
        let state = self.state();
        state.cut.get(&who).is_some_and(|until| *until > state.now)
    }

    pub(super) fn has_old_lock(&self) -> bool {
        self.state().objects[Side::Legacy as usize].is_some()
    }

    /// Whether no term of any soloist before had as high a token.
    pub(super) fn is_newest_token(&self, token: u64) -> bool {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.token, token);
        before < token
    }

    /// What came after these versions of the two, in order.
    pub(super) fn change_after(&self, side: Side, after: Version) -> Option<Change> {
        let state = self.state();
        let of_side = state.history.iter().filter(|change| change.side == side);
        let mut later = of_side.filter(|change| change.version > after);
        later.next().cloned()
    }

    /// Has one of the requests that are due take its effect, in whatever order.
    pub(super) fn land_one(&self) -> bool {
        let mut state = self.state();
        let now = state.now;
        let due = |flying: &Flying| flying.lands_at <= now;
        let due: Vec<_> = (0..state.flying.len())
            .filter(|n| due(&state.flying[*n]))
            .collect();
        if due.is_empty() {
            return false;
        }
        let chosen = due[state.up_to(due.len() as u64) as usize];
        let flying = state.flying.swap_remove(chosen);
        let answer = state.take_effect(flying.side, flying.ask);
        // Of a request that lands very late, or by somebody who is cut off, no answer comes.
        let faults = !state.quiet;
        let cut = state.cut.get(&flying.by).is_some_and(|until| *until > now);
        if !(faults && (cut || state.up_to(40) == 0)) {
            let at = now + Duration::from_millis(state.up_to(120));
            state.answers.insert(flying.id, (at, answer));
        }
        true
    }
}

impl State {
    fn up_to(&mut self, most: u64) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.chance;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % most.max(1)
    }

    fn newest_asker(&self) -> u64 {
        self.flying
            .iter()
            .map(|flying| flying.by)
            .max()
            .unwrap_or(0)
    }

    fn send(&mut self, by: u64, side: Side, ask: Ask) -> u64 {
        self.asked += 1;
        let delay = match (self.quiet, self.up_to(60)) {
            // Some land when nobody waits for them any more, and some never.
            (false, 0) => Duration::from_millis(self.up_to(40_000)),
            (false, 1) => return self.asked,
            _ => Duration::from_millis(self.up_to(150)),
        };
        let cut = self.cut.get(&by).copied().filter(|until| *until > self.now);
        if cut.is_some() && self.up_to(4) != 0 {
            return self.asked;
        }
        let lands_at = cut.unwrap_or(self.now).max(self.now) + delay;
        let id = self.asked;
        self.flying.push(Flying {
            id,
            by,
            side,
            ask,
            lands_at,
        });
        id
    }

    fn take_effect(&mut self, side: Side, ask: Ask) -> Answer {
        let found = self.objects[side as usize].clone();
        let (kind, mut new) = match ask {
            Ask::List => return Ok((found, Version::new(self.revision))),
            Ask::Put(kind, new) => (kind, new),
        };
        let same = found.as_ref().is_some_and(|found| {
            self.defect == Defect::NoCompare
                || found["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]
        });
        let fits = match kind {
            Write::Create => found.is_none(),
            Write::Update => same,
        };
        if !fits {
            return Err(StoreError::LostRace("another version is there".into()));
        }
        // Others write other objects.
        self.revision += 1 + self.up_to(3);
        let version = Version::new(self.revision);
        new["metadata"]["resourceVersion"] = json!(version.to_string());
        self.objects[side as usize] = Some(new.clone());
        self.history.push(Change {
            side,
            version,
            at: self.now,
            object: new.clone(),
        });
        Ok((Some(new), version))
    }
}

/// One object, as one elector reaches it.
#[derive(Clone)]
pub(super) struct ModelPlace {
    pub(super) world: World,
    pub(super) side: Side,
    pub(super) by: u64,
}

impl ModelPlace {
    pub(super) fn new(world: World, side: Side, by: u64) -> Self {
        Self { world, side, by }
    }

    async fn ask(&self, ask: Ask) -> Answer {
        let id = self.world.state().send(self.by, self.side, ask);
        poll_fn(|_| {
            let mut state = self.world.state();
            let now = state.now;
            match state.answers.get(&id) {
                Some((at, _)) if *at <= now => {}
                _ => return Poll::Pending,
            }
            match state.answers.remove(&id) {
                Some((_, answer)) => Poll::Ready(answer),
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl Place for ModelPlace {
    fn resource(&self) -> Resource {
        self.side.resource()
    }

    async fn list(&self) -> Result<(Option<Value>, Version), StoreError> {
        self.ask(Ask::List).await
    }

    fn with_record(&self, found: Option<&Value>, record: &Record, purpose: Purpose) -> Value {
        let new = || object::new(self.resource(), "x", "demo");
        let mut object = found.cloned().unwrap_or_else(new);
        object::set(self.resource(), &mut object, record, purpose);
        object
    }

    async fn put(&self, kind: Write, new: &Value) -> Result<Value, StoreError> {
        let mut new = new.clone();
        if self.world.state().defect == Defect::Unmarked
            && let Some(annotations) = new["metadata"]["annotations"].as_object_mut()
        {
            annotations.remove(object::PAIR);
        }
        let (written, _) = self.ask(Ask::Put(kind, new)).await?;
        written.ok_or_else(|| StoreError::Unknown("nothing was written".into()))
    }

    fn half_of(&self, item: Value) -> Result<Half, StoreError> {
        Half::present(self.resource(), item).map_err(StoreError::Unknown)
    }

    fn describe(&self) -> String {
        format!("{:?} of the model", self.side)
    }
}
