use serde_json::json;
use soloist_core::election::Purpose;
use soloist_core::ids::{Identity, InstanceId, OpId, Term};
use soloist_core::orders::Orders;
use soloist_core::timings::LeaseDuration;

use super::*;

fn by(holder: &str, instance: u128, term: u64, write: u64, base: u64) -> Record {
    let holder = Identity::try_new(holder).unwrap();
    Record {
        holder: Some(holder.clone()),
        duration_seconds: Some(15),
        transitions: term,
        signature: Some(Signature {
            instance: InstanceId::from_random(instance),
            pod: None,
            holder,
            term: Term::new(term),
            duration: LeaseDuration::SHORTEST,
            write: OpId::new(write),
            base: Version::new(base),
            released: false,
            heir: None,
        }),
        orders: Orders::NONE,
    }
}

fn released(mut record: Record) -> Record {
    record.holder = None;
    record.duration_seconds = Some(1);
    record.signature.as_mut().unwrap().released = true;
    record
}

fn client_gos(holder: &str, transitions: u64) -> Record {
    Record {
        holder: Identity::found(holder),
        duration_seconds: Some(if holder.is_empty() { 1 } else { 15 }),
        transitions,
        signature: None,
        orders: Orders::NONE,
    }
}

#[derive(Clone, Copy)]
enum By {
    /// Somebody who writes both.
    Both,
    /// Somebody who knows of this one only.
    One,
}

fn half(resource: Resource, record: &Record, version: u64, by: By) -> Half {
    let mut object = object::new(resource, "x", "demo");
    object::set(resource, &mut object, record, Purpose::Renew);
    if matches!(by, By::Both) {
        object::mark_as_half(&mut object, "first");
    }
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    Half::present(resource, object).unwrap()
}

fn legacy(record: &Record, version: u64, by: By) -> Half {
    half(Resource::ConfigMap, record, version, by)
}

fn lease(record: &Record, version: u64, by: By) -> Half {
    half(Resource::Lease, record, version, by)
}

fn none() -> Half {
    Half::missing(Version::new(0), Version::new(9))
}

fn view(legacy: Half, lease: Half) -> View {
    Pair { legacy, lease }.view()
}

fn shown(legacy: Half, lease: Half) -> Record {
    view(legacy, lease).record.unwrap()
}

const USUAL: LeaseDuration = LeaseDuration::SHORTEST;

#[test]
fn one_write_of_both_is_that_write() {
    let record = by("a", 1, 4, 7, 9);
    let both = view(legacy(&record, 11, By::Both), lease(&record, 12, By::Both));
    let expected = View {
        record: Some(record),
        on_its_way: false,
    };
    assert_eq!(both, expected);
}

#[test]
fn a_renewal_that_got_the_old_lock_only_has_not_landed_but_counts_as_a_promise_of_its_own() {
    let (new, old) = (by("a", 1, 4, 8, 12), by("a", 1, 4, 7, 9));
    let seen = view(legacy(&new, 15, By::Both), lease(&old, 12, By::Both));
    assert!(seen.on_its_way);
    let record = seen.record.unwrap();
    assert_eq!(record.signed().unwrap().write, OpId::new(7));
    assert_ne!(record.signature, old.signature);
}

#[test]
fn a_lease_that_is_ahead_of_the_old_lock_is_another_hands_work() {
    let (new, old) = (by("a", 1, 4, 8, 12), by("a", 1, 4, 7, 9));
    let seen = shown(legacy(&old, 15, By::Both), lease(&new, 12, By::Both));
    assert_eq!(seen.holder, None);
}

#[test]
fn a_leader_that_has_lost_one_of_the_two_is_shown_that_it_leads_no_more() {
    let ours = by("a", 1, 4, 7, 9);
    let emptied = Record {
        holder: None,
        ..ours.clone()
    };
    for (name, legacy, lease) in [
        ("the Lease was deleted", legacy(&ours, 11, By::Both), none()),
        (
            "the old lock was deleted",
            none(),
            lease(&ours, 12, By::Both),
        ),
        (
            "the old lock was emptied",
            legacy(&emptied, 13, By::Both),
            lease(&ours, 12, By::Both),
        ),
        (
            "the Lease was emptied",
            legacy(&ours, 11, By::Both),
            lease(&emptied, 13, By::Both),
        ),
    ] {
        let seen = shown(legacy, lease);
        assert_eq!(seen.holder, None, "{name}");
        // Others wait for it.
        assert!(seen.signed().is_some_and(|s| !s.released), "{name}");
        assert_eq!(seen.promise(USUAL).as_secs(), 15, "{name}");
    }
    for (name, legacy, lease, taker) in [
        (
            "the old lock was taken",
            legacy(&client_gos("old", 5), 13, By::One),
            lease(&ours, 12, By::Both),
            "old",
        ),
        (
            "the Lease was taken",
            legacy(&ours, 11, By::Both),
            lease(&client_gos("new", 5), 13, By::One),
            "new",
        ),
    ] {
        let seen = shown(legacy, lease);
        assert_eq!(seen.holder, Identity::found(taker), "{name}");
        assert!(seen.signed().is_none(), "{name}");
    }
}

#[test]
fn who_holds_the_only_one_there_is_holds_the_lease() {
    for record in [client_gos("old", 5), by("b", 2, 5, 1, 3)] {
        assert_eq!(shown(legacy(&record, 11, By::One), none()), record);
        assert_eq!(shown(none(), lease(&record, 11, By::One)), record);
    }
}

#[test]
fn a_release_of_one_frees_nothing_while_the_other_is_held() {
    let ours = by("a", 1, 4, 7, 9);
    let (free, old) = (released(by("a", 1, 4, 8, 12)), client_gos("old", 5));
    let seen = view(legacy(&free, 13, By::Both), lease(&ours, 12, By::Both));
    assert_eq!(seen.record.unwrap().holder, ours.holder);
    let seen = shown(legacy(&old, 11, By::One), lease(&free, 13, By::Both));
    assert_eq!(seen.holder, old.holder);
    let seen = shown(
        legacy(&client_gos("", 5), 14, By::One),
        lease(&ours, 12, By::Both),
    );
    assert!(seen.holder.is_none() || seen.holder == ours.holder);
    assert_eq!(seen.promise(USUAL).as_secs(), 15);
    assert!(!seen.released_by_its_holder() && !seen.released_like_client_go());
}

#[test]
fn two_releases_are_the_later_one_and_terms_go_on_from_the_higher() {
    let (ours, theirs) = (released(by("a", 1, 4, 8, 12)), client_gos("", 5));
    let seen = shown(legacy(&theirs, 20, By::One), lease(&ours, 13, By::Both));
    assert_eq!(seen, theirs);
    let seen = shown(
        legacy(&client_gos("", 2), 20, By::One),
        lease(&ours, 13, By::Both),
    );
    assert!(seen.released_like_client_go());
    assert_eq!(seen.transitions, 4);
}

#[test]
fn two_holders_are_waited_out_for_the_longer_of_both_promises() {
    let mut long = client_gos("old", 3);
    long.duration_seconds = Some(40);
    let seen = shown(
        legacy(&long, 11, By::One),
        lease(&client_gos("new", 9), 12, By::One),
    );
    assert_eq!(seen.holder, Identity::found("new"));
    assert_eq!((seen.transitions, seen.promise(USUAL).as_secs()), (9, 40));
    let half_of_a_pair = by("a", 1, 9, 1, 3);
    let seen = shown(
        legacy(&long, 13, By::One),
        lease(&half_of_a_pair, 12, By::Both),
    );
    assert_eq!(seen.holder, Identity::found("old"));
    assert_eq!((seen.transitions, seen.promise(USUAL).as_secs()), (9, 40));
}

#[test]
fn a_claim_on_one_is_nobodys_but_is_waited_out() {
    let claim = by("b", 2, 5, 1, 13);
    let before = released(by("a", 1, 4, 8, 12));
    let seen = view(legacy(&claim, 14, By::Both), lease(&before, 13, By::Both));
    assert!(seen.on_its_way);
    let record = seen.record.unwrap();
    assert_eq!(record.holder, None);
    assert_eq!(record.promise(USUAL).as_secs(), 15);
    // Upon a higher term of the Lease its signature cannot count, so it is held.
    let before = released(by("a", 1, 8, 8, 12));
    let record = shown(legacy(&claim, 14, By::Both), lease(&before, 13, By::Both));
    assert_eq!(record.holder, claim.holder);
    assert_eq!(
        (record.transitions, record.promise(USUAL).as_secs()),
        (8, 15)
    );
}

#[test]
fn a_claim_is_void_once_another_soloist_has_taken_the_other_half_after_it() {
    let mut claim = by("b", 2, 5, 1, 13);
    claim.duration_seconds = Some(30);
    let taken = by("c", 3, 5, 1, 13);
    for (name, lease, void) in [
        ("taken", lease(&taken, 15, By::One), true),
        (
            "released since",
            lease(&released(taken.clone()), 15, By::One),
            true,
        ),
        ("taken before", lease(&taken, 13, By::One), false),
        (
            "of an earlier term",
            lease(&by("c", 3, 4, 1, 3), 15, By::One),
            false,
        ),
        (
            "another elector's",
            lease(&client_gos("c", 5), 15, By::One),
            false,
        ),
    ] {
        let alone = lease.record.clone().unwrap();
        let seen = shown(legacy(&claim, 14, By::Both), lease);
        assert_eq!(seen == alone, void, "{name}: {seen:?}");
    }
}
