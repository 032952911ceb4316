//! The object: reading a record out of it, and writing one into it.
//!
//! The object is kept as plain JSON, so that fields which this program has never heard of are sent back as
//! they came.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use soloist_core::election::Purpose;
use soloist_core::ids::{Identity, Version};
use soloist_core::orders::Orders;
use soloist_core::record::Record;

use super::resource::Resource;
use crate::{orders, signature};

/// The annotation that holds soloist's signature; see the crate's `signature` module for its form.
pub(super) const SIGNATURE: &str = "soloist.dev/signature";

/// The annotation that orders a handover; see the crate's `orders` module for its form.
pub(super) const HANDOVER: &str = "soloist.dev/handover";

/// The annotation that orders a pause.
pub(super) const PAUSE: &str = "soloist.dev/pause";

/// The annotation under a record that was written as one half of a pair: on the Lease, the version of the other half that it follows.
pub(super) const PAIR: &str = "soloist.dev/pair";

/// An object's or a list's `resourceVersion`. Numbers that grow are what tokens are made of.
pub(super) fn version(object: &Value) -> Result<Version, String> {
    let text = object
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .unwrap_or_default();
    parse_version(text)
}

pub(super) fn parse_version(text: &str) -> Result<Version, String> {
    text.parse().map(Version::new).map_err(|_| {
        format!("the resourceVersion {text:?} is not a decimal number, so it cannot be a token")
    })
}

/// What it says of the lease.
pub(super) fn record(resource: Resource, object: &Value) -> Record {
    let fields = resource.fields(object);
    let spec = |name: &str| fields.get(name);
    let signature = annotation(object, SIGNATURE).and_then(signature::parse);
    let written = spec(resource.transitions())
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let transitions = match &signature {
        // The API's number has 31 bits; past that, the signature has the true one.
        Some(s) if written == i64::from(i32::MAX) => s.term.get().max(written.unsigned_abs()),
        Some(_) | None => u64::try_from(written).unwrap_or(0),
    };
    Record {
        holder: spec("holderIdentity")
            .and_then(Value::as_str)
            .and_then(Identity::found),
        duration_seconds: spec("leaseDurationSeconds").and_then(Value::as_i64),
        transitions,
        signature,
        orders: orders_of(object),
    }
}

fn orders_of(object: &Value) -> Orders {
    Orders {
        handover: annotation(object, HANDOVER)
            .and_then(|text| orders::parse_handover(text).ok().map(Box::new)),
        pause: annotation(object, PAUSE).and_then(|text| orders::parse_pause(text).ok()),
    }
}

pub(super) fn annotations(object: &mut Map<String, Value>) -> &mut Map<String, Value> {
    child(child(object, "metadata"), "annotations")
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let annotations = object.pointer("/metadata/annotations")?;
    annotations.get(name)?.as_str()
}

/// What is wrong with the orders that somebody has written by hand.
pub(super) fn unreadable_orders(object: &Value) -> impl Iterator<Item = String> {
    let handover = annotation(object, HANDOVER).and_then(|t| orders::parse_handover(t).err());
    let pause = annotation(object, PAUSE).and_then(|t| orders::parse_pause(t).err());
    let named = |name: &str, wrong: Option<String>| wrong.map(|w| format!("{name}: {w}"));
    [named(HANDOVER, handover), named(PAUSE, pause)]
        .into_iter()
        .flatten()
}

/// A new object.
pub(super) fn new(resource: Resource, namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind(),
        "metadata": {"namespace": namespace, "name": name},
    })
}

/// Writes over what is ours, and keeps the rest.
pub(super) fn set(resource: Resource, object: &mut Value, record: &Record, purpose: Purpose) {
    let mut spec = resource.fields(object);
    let now = json!(now());
    spec.insert(
        "holderIdentity".into(),
        json!(record.holder.as_ref().map_or("", Identity::as_str)),
    );
    match record.duration_seconds {
        Some(seconds) => spec.insert("leaseDurationSeconds".into(), json!(clamp(seconds))),
        None => spec.remove("leaseDurationSeconds"),
    };
    let transitions = i32::try_from(record.transitions).unwrap_or(i32::MAX);
    spec.insert(resource.transitions().into(), json!(transitions));
    spec.insert("renewTime".into(), now.clone());
    match purpose {
        Purpose::Acquire | Purpose::Release => spec.insert("acquireTime".into(), now),
        Purpose::Renew => None,
    };
    resource.set_fields(child_map(object), spec);
    let annotations = annotations(child_map(object));
    match &record.signature {
        Some(signature) => {
            annotations.insert(SIGNATURE.into(), json!(signature::to_text(signature)))
        }
        None => annotations.remove(SIGNATURE),
    };
    annotations.remove(PAIR);
    set_orders(object, &record.orders);
}

/// Says that this object is one half of a pair, which `set` takes back.
pub(super) fn mark_as_half(object: &mut Value, text: &str) {
    annotations(child_map(object)).insert(PAIR.into(), json!(text));
}

/// What [`mark_as_half`] has said.
pub(super) fn half_mark(object: &Value) -> Option<&str> {
    annotation(object, PAIR)
}

/// Writes over the orders that are there, and keeps those that nobody can read, for people.
pub(super) fn set_orders(object: &mut Value, wanted: &Orders) {
    let found = orders_of(object);
    let annotations = annotations(child_map(object));
    if found.handover != wanted.handover {
        match &wanted.handover {
            Some(order) => {
                annotations.insert(HANDOVER.into(), json!(orders::handover_to_text(order)))
            }
            None => annotations.remove(HANDOVER),
        };
    }
    if found.pause != wanted.pause {
        match &wanted.pause {
            Some(order) => annotations.insert(PAUSE.into(), json!(orders::pause_to_text(order))),
            None => annotations.remove(PAUSE),
        };
    }
}

fn clamp(seconds: i64) -> i32 {
    i32::try_from(seconds).unwrap_or(if seconds < 0 { i32::MIN } else { i32::MAX })
}

/// `MicroTime`, as the API wants it. The legacy records had whole seconds, and their readers take both: without the fraction
/// an update that changes nothing else would be none, and get no new version.
fn now() -> String {
    Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string()
}

fn child<'a>(map: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    child_map(map.entry(name).or_insert(Value::Null))
}

fn child_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was just made one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use soloist_core::ids::{InstanceId, OpId, Term};
    use soloist_core::record::Signature;
    use soloist_core::timings::LeaseDuration;

    fn ours() -> Record {
        let holder = Identity::try_new("pod-a").unwrap();
        Record {
            holder: Some(holder.clone()),
            duration_seconds: Some(15),
            transitions: 3,
            signature: Some(Signature {
                instance: InstanceId::from_random(7),
                pod: None,
                holder,
                term: Term::new(3),
                duration: LeaseDuration::SHORTEST,
                write: OpId::new(1),
                base: Version::new(3),
                released: false,
                heir: None,
            }),
            orders: Orders::NONE,
        }
    }

    fn written(object: &Value, record: &Record, purpose: Purpose) -> Value {
        let mut object = object.clone();
        set(Resource::Lease, &mut object, record, purpose);
        object
    }

    #[test]
    fn what_is_not_ours_is_kept() {
        let before = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": "demo", "namespace": "x", "resourceVersion": "7", "uid": "u", "generation": 4,
                "labels": {"a": "b"}, "annotations": {"c": "d"},
                "ownerReferences": [{"name": "o"}], "futureField": 1,
            },
            "spec": {
                "strategy": "OldestEmulationVersion", "preferredHolder": "z", "holderIdentity": "pod-b",
                "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z",
                "futureField": [1],
            },
            "futureField": {},
        });
        let mut after = written(&before, &ours(), Purpose::Renew);
        assert_eq!(after["spec"]["holderIdentity"], "pod-a");
        for ours in [
            "holderIdentity",
            "leaseDurationSeconds",
            "leaseTransitions",
            "renewTime",
        ] {
            after["spec"][ours] = before["spec"][ours].clone();
        }
        after["metadata"]["annotations"] = before["metadata"]["annotations"].clone();
        for name in ["leaseDurationSeconds", "leaseTransitions"] {
            after["spec"].as_object_mut().unwrap().remove(name);
        }
        assert_eq!(after, before);
    }

    #[test]
    fn times_are_set_for_people_as_the_purpose_says() {
        let old = "2020-01-01T00:00:00.000000Z";
        let before = json!({"spec": {"acquireTime": old, "renewTime": old}});
        for (purpose, acquire_kept) in [
            (Purpose::Acquire, false),
            (Purpose::Renew, true),
            (Purpose::Release, false),
        ] {
            let after = written(&before, &ours(), purpose);
            let spec = &after["spec"];
            assert_ne!(spec["renewTime"], old, "{purpose:?}");
            assert_eq!(spec["acquireTime"] == old, acquire_kept, "{purpose:?}");
            assert_eq!(spec["renewTime"].as_str().unwrap().len(), old.len());
        }
    }

    #[test]
    fn more_transitions_than_the_api_can_hold_survive() {
        for transitions in [0, 9, (1 << 31) - 1, 1 << 31, u64::MAX] {
            let mut record = ours();
            record.transitions = transitions;
            if let Some(signature) = &mut record.signature {
                signature.term = Term::new(transitions);
            }
            let object = written(&new(Resource::Lease, "x", "demo"), &record, Purpose::Renew);
            assert!(object["spec"]["leaseTransitions"].as_i64() <= Some(i64::from(i32::MAX)));
            assert_eq!(super::record(Resource::Lease, &object), record);
        }
    }

    #[test]
    fn a_record_of_another_elector_is_read_whatever_it_holds() {
        let foreign = json!({
            "metadata": {"resourceVersion": "12", "annotations": {SIGNATURE: "nonsense"}},
            "spec": {"holderIdentity": "host_1 (x)", "leaseDurationSeconds": -3, "leaseTransitions": -1},
        });
        assert_eq!(version(&foreign), Ok(Version::new(12)));
        let expected = Record {
            holder: Identity::found("host_1 (x)"),
            duration_seconds: Some(-3),
            transitions: 0,
            signature: None,
            orders: Orders::NONE,
        };
        assert_eq!(record(Resource::Lease, &foreign), expected);
        assert_eq!(record(Resource::Lease, &json!({})).holder, None);
    }

    #[test]
    fn orders_by_kubectl_annotate_are_read_and_those_that_nobody_can_read_are_kept_and_named() {
        let mut lease =
            json!({"metadata": {"annotations": {HANDOVER: "term=3 to=pod-b", PAUSE: "maybe"}}});
        let found = record(Resource::Lease, &lease).orders;
        assert_eq!(found.handover.and_then(|h| h.to), Identity::found("pod-b"));
        assert_eq!(found.pause, None);
        let unreadable: Vec<_> = unreadable_orders(&lease).collect();
        assert_eq!(unreadable.len(), 1);
        assert!(
            unreadable[0].starts_with("soloist.dev/pause: \"maybe\" is no order"),
            "{unreadable:?}"
        );
        set(Resource::Lease, &mut lease, &ours(), Purpose::Acquire);
        assert_eq!(annotation(&lease, HANDOVER), None);
        assert_eq!(annotation(&lease, PAUSE), Some("maybe"));
    }

    #[test]
    fn a_version_that_is_no_number_has_its_own_message() {
        for text in ["", "abc", "-1", "1.5", "99999999999999999999999"] {
            let object = json!({"metadata": {"resourceVersion": text}});
            assert!(
                version(&object)
                    .unwrap_err()
                    .contains("not a decimal number")
            );
        }
    }
}
