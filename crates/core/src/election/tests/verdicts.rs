//! The verdict's table, row by row. The numbers are those of the table in `verdict.rs`.

use super::*;
use crate::election::verdict::{Before, HolderNow, Known, LastTerm, Source, Verdict, judge};

/// What was known, as of 10 s.
#[derive(Clone, Default)]
struct Before10 {
    newest: Option<Snapshot>,
    last: Option<LastTerm>,
}

const WATCH: Source = Source::Watch;

fn read_later() -> Source {
    read_sent(11.0)
}

fn read_sent(seconds: f64) -> Source {
    Source::Read {
        sent: t(seconds),
        raced: false,
    }
}

fn nothing() -> Before10 {
    Before10::default()
}

/// The record at version 7 was the last that was seen.
fn known(record: Record) -> Before10 {
    let signed = record.signed();
    Before10 {
        last: Some(LastTerm {
            version: Version::new(7),
            transitions: record.transitions,
            by_soloist: signed.is_some(),
            instance: signed.map(|s| s.instance),
        }),
        newest: Some(at(7, record)),
    }
}

/// It was seen to be deleted at version 7.
fn known_absent() -> Before10 {
    Before10 {
        newest: Some(absent(7)),
        ..nothing()
    }
}

fn verdict_as(config: &Config, before: &Before10, snapshot: &Snapshot, source: Source) -> Verdict {
    let newest = before.newest.as_ref().map(|snapshot| (snapshot, t(10.0)));
    let last = before.last;
    judge(Known { newest, last }, config, snapshot, source)
}

fn verdict(before: &Before10, snapshot: &Snapshot, source: Source) -> Verdict {
    verdict_as(&me(), before, snapshot, source)
}

fn changed(holder: HolderNow, before: Before) -> Verdict {
    Verdict::Changed { holder, before }
}

fn gone(snapshot: Snapshot) -> Snapshot {
    Snapshot {
        holder_gone: true,
        ..snapshot
    }
}

fn stripped(record: Record) -> Record {
    Record {
        signature: None,
        ..record
    }
}

fn mine(transitions: u64) -> Record {
    let record = held("me", 15, transitions);
    let signature = record.signature.clone().map(|s| Signature {
        instance: MY_INSTANCE,
        ..s
    });
    Record {
        signature,
        ..record
    }
}

fn of_pod(uid: &str, record: Record) -> Record {
    let signature = record.signature.clone().map(|s| Signature {
        pod: PodUid::new(uid),
        ..s
    });
    Record {
        signature,
        ..record
    }
}

#[test]
fn row_1_what_is_known_is_unchanged_until_its_holder_is_proven_gone() {
    let before = known(held("b", 15, 4));
    let same = at(7, held("b", 15, 4));
    for source in [WATCH, read_later()] {
        assert_eq!(verdict(&before, &same, source), Verdict::Unchanged);
    }
    let expected = changed(HolderNow::Gone, Before::InOrder);
    assert_eq!(verdict(&before, &gone(same), WATCH), expected);
}

#[test]
fn row_2_a_version_that_means_another_record_now_or_a_later_read_of_an_older_one_is_a_store_set_back()
 {
    let before = known(held("b", 15, 4));
    for set_back in [at(7, held("c", 15, 4)), at(5, held("c", 15, 3))] {
        let expected = changed(HolderNow::Holds, Before::Unclear);
        assert_eq!(verdict(&before, &set_back, read_later()), expected);
    }
    let expected = changed(HolderNow::Nobody, Before::Unclear);
    assert_eq!(verdict(&before, &absent(5), read_later()), expected);
    // Nor is the holder's own earlier renewal in order, nor does the watch say what lies between.
    let earlier = at(5, held("b", 15, 4));
    let expected = changed(HolderNow::Holds, Before::Unclear);
    assert_eq!(verdict(&before, &earlier, read_later()), expected);
    let another = at(7, held("c", 15, 4));
    assert_eq!(verdict(&before, &another, WATCH), expected);
    // Not even a release of the store's former times is in order.
    let released = at(5, released(held("c", 15, 3)));
    let expected = changed(HolderNow::Released, Before::Unclear);
    assert_eq!(verdict(&before, &released, read_later()), expected);
}

#[test]
fn row_3_an_overtaken_snapshot_that_shows_a_later_term_is_evidence() {
    let before = known(held("b", 15, 4));
    for source in [WATCH, read_sent(9.0)] {
        for shown in [held("c", 15, 5), unsigned("x", 15, 5), held("c", 15, 4)] {
            let snapshot = at(6, shown);
            assert_eq!(verdict(&before, &snapshot, source), Verdict::Evidence);
        }
        let vanished = at(6, held("c", 15, 0));
        assert_eq!(
            verdict(&known_absent(), &vanished, source),
            Verdict::Evidence
        );
    }
}

#[test]
fn row_4_another_overtaken_snapshot_says_nothing() {
    let before = known(held("b", 15, 4));
    for source in [WATCH, read_sent(9.0)] {
        for record in [
            held("a", 15, 3),
            held("b", 15, 4),
            released(held("c", 15, 5)),
            emptied(unsigned("x", 1, 5)),
            mine(5),
        ] {
            assert_eq!(verdict(&before, &at(6, record), source), Verdict::Unchanged);
        }
        assert_eq!(verdict(&before, &absent(6), source), Verdict::Unchanged);
    }
}

#[test]
fn row_5_a_record_that_is_still_missing_is_unchanged_unless_a_race_was_lost() {
    let before = known_absent();
    for source in [WATCH, read_later()] {
        assert_eq!(verdict(&before, &absent(9), source), Verdict::Unchanged);
    }
    let raced = Source::Read {
        sent: t(11.0),
        raced: true,
    };
    let expected = changed(HolderNow::Nobody, Before::Unclear);
    assert_eq!(verdict(&before, &absent(9), raced), expected);
}

#[test]
fn row_6_a_first_sight_of_no_record_or_an_empty_unsigned_one_is_a_first_start() {
    for snapshot in [absent(3), at(3, emptied(unsigned("x", 15, 4)))] {
        let expected = changed(HolderNow::Nobody, Before::InOrder);
        assert_eq!(verdict(&nothing(), &snapshot, read_later()), expected);
    }
}

#[test]
fn row_7_a_record_that_vanished_leaves_its_holder_in_doubt() {
    let before = known(held("b", 15, 4));
    let nobody = |before| changed(HolderNow::Nobody, before);
    assert_eq!(
        verdict(&before, &absent(8), WATCH),
        nobody(Before::Doubtful)
    );
    assert_eq!(
        verdict(&before, &absent(8), read_later()),
        nobody(Before::Unclear)
    );
}

#[test]
fn row_8_a_record_that_this_process_signed_is_our_own() {
    let us = |before| changed(HolderNow::Us, before);
    let before = known(held("b", 15, 4));
    assert_eq!(
        verdict(&before, &at(8, mine(5)), WATCH),
        us(Before::InOrder)
    );
    assert_eq!(
        verdict(&known(mine(5)), &at(8, emptied(mine(5))), read_later()),
        us(Before::InOrder)
    );
    // A former term of ours, written back.
    assert_eq!(
        verdict(&before, &at(8, mine(3)), WATCH),
        us(Before::Doubtful)
    );
    assert_eq!(
        verdict(&before, &at(8, mine(3)), read_later()),
        us(Before::Unclear)
    );
}

#[test]
fn row_9_a_holder_that_is_provably_gone_has_ended() {
    let snapshot = gone(at(8, held("c", 15, 5)));
    let expected = changed(HolderNow::Gone, Before::InOrder);
    assert_eq!(
        verdict(&known(held("b", 15, 4)), &snapshot, WATCH),
        expected
    );
    assert_eq!(verdict(&nothing(), &snapshot, read_later()), expected);
    // An empty record names nobody who could be.
    let empty = gone(at(8, emptied(held("c", 15, 5))));
    let expected = changed(HolderNow::Believes, Before::Unclear);
    assert_eq!(verdict(&nothing(), &empty, read_later()), expected);
}

#[test]
fn row_10_the_former_container_of_our_pod_has_ended() {
    let config = |uid| Config {
        pod: PodUid::new(uid),
        ..me()
    };
    let snapshot = at(8, of_pod("uid-1", held("c", 15, 5)));
    let verdict = |config: &Config| verdict_as(config, &nothing(), &snapshot, read_later());
    assert_eq!(
        verdict(&config("uid-1")),
        changed(HolderNow::FormerSelf, Before::InOrder)
    );
    for other in [config("uid-2"), me()] {
        assert_eq!(verdict(&other), changed(HolderNow::Holds, Before::InOrder));
    }
}

#[test]
fn row_11_a_release_by_the_holder_is_believed() {
    let expected = changed(HolderNow::Released, Before::InOrder);
    for (before, record) in [
        (nothing(), held("b", 15, 4)),
        (known(held("b", 15, 4)), held("b", 15, 4)),
        (known(held("b", 15, 4)), held("c", 15, 5)),
    ] {
        for source in [WATCH, read_later()] {
            let snapshot = at(8, released(record.clone()));
            assert_eq!(verdict(&before, &snapshot, source), expected);
        }
    }
    // Of a former term, or of another holder's of the same one: written back.
    for record in [held("c", 15, 3), held("c", 15, 4)] {
        let snapshot = at(8, released(record));
        let verdict = verdict(&known(held("b", 15, 4)), &snapshot, WATCH);
        assert_eq!(verdict, changed(HolderNow::Released, Before::Doubtful));
    }
}

#[test]
fn row_12_client_gos_release_is_believed_unless_the_term_is_a_soloists() {
    let release = |transitions| at(8, emptied(unsigned("x", 1, transitions)));
    let expected = changed(HolderNow::Released, Before::InOrder);
    let client_go = known(unsigned("x", 15, 4));
    assert_eq!(verdict(&client_go, &release(4), WATCH), expected);
    let soloist = known(held("b", 15, 4));
    assert_eq!(verdict(&soloist, &release(5), read_later()), expected);
    for before in [soloist, known_absent()] {
        let verdict = verdict(&before, &release(4), WATCH);
        assert_eq!(verdict, changed(HolderNow::Nobody, Before::Doubtful));
    }
}

#[test]
fn row_13_an_emptied_record_leaves_whoever_signed_it_believing() {
    let emptied_by_hand = at(8, emptied(held("c", 60, 5)));
    let believes = |before| changed(HolderNow::Believes, before);
    assert_eq!(
        verdict(&known(held("b", 15, 4)), &emptied_by_hand, read_later()),
        believes(Before::Unclear)
    );
    assert_eq!(
        verdict(&known(held("c", 60, 5)), &emptied_by_hand, WATCH),
        believes(Before::Doubtful)
    );
    // At first sight even a signature of an earlier term is a trace of somebody.
    let outdated = Record {
        transitions: 6,
        ..emptied(held("c", 60, 5))
    };
    let verdict_of = |before: &Before10| verdict(before, &at(8, outdated.clone()), read_later());
    assert_eq!(verdict_of(&nothing()), believes(Before::Unclear));
    assert_eq!(
        verdict_of(&known(unsigned("x", 15, 6))),
        changed(HolderNow::Nobody, Before::Unclear)
    );
}

#[test]
fn row_14_a_record_that_is_held_by_the_rules_is_in_order() {
    let expected = changed(HolderNow::Holds, Before::InOrder);
    let soloist = known(held("b", 15, 4));
    let client_go = known(unsigned("x", 15, 4));
    for (before, record) in [
        (nothing(), held("b", 15, 4)),
        (nothing(), unsigned("x", 15, 4)),
        (known_absent(), held("b", 15, 0)),
        (soloist.clone(), held("b", 15, 4)),
        (soloist.clone(), held("c", 15, 5)),
        (soloist, unsigned("x", 15, 5)),
        (client_go.clone(), unsigned("x", 15, 4)),
        (client_go, held("b", 15, 5)),
    ] {
        for source in [WATCH, read_later()] {
            assert_eq!(verdict(&before, &at(8, record.clone()), source), expected);
        }
    }
}

#[test]
fn row_15_a_record_that_was_edited_over_a_holder_leaves_that_one_in_doubt() {
    let soloist = known(held("b", 15, 4));
    let renamed = Record {
        holder: Some(name("x")),
        ..held("b", 15, 4)
    };
    for (before, record) in [
        (soloist.clone(), renamed),
        (soloist.clone(), stripped(held("b", 15, 4))),
        (soloist.clone(), unsigned("x", 15, 4)),
        (known(unsigned("x", 15, 4)), unsigned("y", 15, 4)),
        // Written back: an earlier term, or another holder of the same one.
        (soloist.clone(), held("a", 15, 3)),
        (soloist, held("c", 15, 4)),
    ] {
        let snapshot = at(8, record);
        let holds = |before| changed(HolderNow::Holds, before);
        assert_eq!(verdict(&before, &snapshot, WATCH), holds(Before::Doubtful));
        assert_eq!(
            verdict(&before, &snapshot, read_later()),
            holds(Before::Unclear)
        );
    }
}

/// Rows 8 to 14, whatever the number of the term: numbers go down, too, where records of former times are written back.
#[test]
fn a_record_that_was_written_upon_an_earlier_one_than_we_saw_is_written_back() {
    let upon = |version, record: Record| {
        let signature = record.signature.clone().map(|s| Signature {
            base: Version::new(version),
            write: OpId::new(99),
            ..s
        });
        Record {
            signature,
            ..record
        }
    };
    let before = known(held("b", 15, 4));
    for (record, holder) in [
        (mine(9), HolderNow::Us),
        (held("c", 15, 9), HolderNow::Holds),
        (released(held("c", 15, 9)), HolderNow::Released),
    ] {
        let former = at(12, upon(6, record.clone()));
        assert_eq!(
            verdict(&before, &former, WATCH),
            changed(holder, Before::Doubtful)
        );
        assert_eq!(
            verdict(&before, &former, read_later()),
            changed(holder, Before::Unclear)
        );
        for base in [7, 11] {
            let next = at(12, upon(base, record.clone()));
            let expected = changed(holder, Before::InOrder);
            assert_eq!(verdict(&before, &next, read_later()), expected);
        }
    }
    // An edit of what was there just now is not written back.
    let touched = known(upon(6, held("b", 15, 4)));
    let snapshot = at(8, upon(6, held("b", 15, 4)));
    let expected = changed(HolderNow::Holds, Before::InOrder);
    assert_eq!(verdict(&touched, &snapshot, WATCH), expected);
}
