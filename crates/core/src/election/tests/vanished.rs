//! Releases, and records that vanish without one.

use super::*;

/// Watches `b` hold version 7 since 0.
fn watching(record: Record) -> Bench {
    Bench::shown(me(), at(7, record))
}

fn claim(bench: &mut Bench, seconds: f64) -> Claim {
    let outputs = bench.answer(seconds, written(90));
    elected(&outputs).expect("elected").claim
}

/// Shown by a read that may have missed something.
fn reread(bench: &mut Bench, seconds: f64, snapshot: Snapshot) {
    bench.break_watch(seconds);
    assert!(bench.is_reading());
    bench.answer(seconds, read(snapshot));
}

fn assert_taken_at_once(bench: &mut Bench, seconds: f64) {
    assert!(bench.is_writing(), "must be taken at once");
    assert_eq!(bench.sent(), t(seconds));
    assert_eq!(claim(bench, seconds), Claim::Released);
}

fn assert_waited_out(bench: &mut Bench, earliest: f64, latest: f64) {
    assert!(bench.is_idle(), "must be waited out: {:?}", bench.pending);
    bench.run_until(latest);
    let sent = bench.sent();
    assert!(t(earliest) <= sent && sent <= t(latest), "{sent:?}");
    assert_eq!(claim(bench, latest), Claim::WaitedOut);
}

#[test]
fn the_holders_own_release_is_taken_at_once() {
    let mut bench = watching(held("b", 15, 4));
    bench.watch(3.0, at(8, released(held("b", 15, 4))));
    assert_eq!(bench.write().base, v(8));
    assert_eq!(bench.write().record.transitions, 5);
    assert_taken_at_once(&mut bench, 3.0);

    let mut bench = watching(held("b", 15, 4));
    reread(&mut bench, 3.0, at(8, released(held("b", 15, 4))));
    assert_taken_at_once(&mut bench, 3.0);
}

#[test]
fn a_release_by_another_soloist_that_held_it_unseen_is_taken_at_once() {
    let mut bench = watching(held("b", 15, 4));
    reread(&mut bench, 3.0, at(9, released(held("c", 15, 5))));
    assert_taken_at_once(&mut bench, 3.0);
}

#[test]
fn an_emptied_record_is_waited_out_from_when_it_was_last_seen() {
    let mut bench = watching(held("b", 15, 4));
    bench.watch(3.0, at(8, emptied(held("b", 15, 4))));
    assert_waited_out(&mut bench, 15.0, 15.5);
}

#[test]
fn an_emptied_record_that_was_read_is_waited_out_from_now() {
    let mut bench = watching(held("b", 15, 4));
    reread(&mut bench, 3.0, at(8, emptied(held("b", 15, 4))));
    assert_waited_out(&mut bench, 18.0, 18.5);
}

#[test]
fn a_deleted_record_is_waited_out_from_when_it_was_last_seen_and_then_created() {
    let mut bench = watching(held("b", 15, 4));
    bench.watch(3.0, absent(8));
    bench.run_until(15.5);
    assert_eq!(bench.write().base, Base::Absent);
    assert_eq!(bench.write().record.transitions, 5);
    assert!(bench.sent() >= t(15.0));
    assert_eq!(claim(&mut bench, 15.6), Claim::WaitedOut);
}

#[test]
fn a_deleted_record_that_was_read_is_waited_out_from_now() {
    let mut bench = watching(held("b", 15, 4));
    reread(&mut bench, 3.0, absent(8));
    assert_waited_out(&mut bench, 18.0, 18.5);
}

#[test]
fn what_vanished_is_waited_for_as_long_as_its_holder_was_promised() {
    let mut bench = watching(held("b", 60, 4));
    reread(&mut bench, 3.0, absent(8));
    assert_waited_out(&mut bench, 63.0, 63.5);
}

#[test]
fn a_record_that_the_watch_says_is_still_missing_does_not_restart_the_wait() {
    let mut bench = watching(held("b", 15, 4));
    bench.watch(3.0, absent(8));
    bench.watch(9.0, absent(12));
    assert_waited_out(&mut bench, 15.0, 15.5);
}

#[test]
fn a_record_emptied_and_then_deleted_is_waited_out_once() {
    let mut bench = watching(held("b", 15, 4));
    bench.watch(3.0, at(8, emptied(held("b", 15, 4))));
    bench.watch(4.0, absent(9));
    assert_waited_out(&mut bench, 15.0, 15.5);
}

#[test]
fn a_record_that_was_created_and_deleted_unseen_is_waited_out_again() {
    let mut bench = watching(held("b", 15, 4));
    bench.watch(3.0, absent(8));
    bench.run_until(15.5);
    bench.lose_race_unseen(15.5);
    bench.answer(16.0, read(absent(12)));
    assert_waited_out(&mut bench, 31.0, 31.5);
}

#[test]
fn client_gos_release_of_its_own_record_is_believed() {
    let mut bench = watching(unsigned("x", 15, 4));
    bench.watch(3.0, at(8, emptied(unsigned("x", 1, 4))));
    assert_taken_at_once(&mut bench, 3.0);
}

#[test]
fn client_gos_release_after_it_took_over_unseen_from_a_soloist_is_believed() {
    let mut bench = watching(held("b", 15, 4));
    let taken_and_released = Record {
        holder: None,
        duration_seconds: Some(1),
        transitions: 5,
        ..held("b", 15, 4)
    };
    reread(&mut bench, 3.0, at(9, taken_and_released));
    assert_taken_at_once(&mut bench, 3.0);
}

#[test]
fn emptying_a_client_go_record_by_hand_is_waited_out() {
    let mut bench = watching(unsigned("x", 15, 4));
    bench.watch(3.0, at(8, emptied(unsigned("x", 15, 4))));
    assert_waited_out(&mut bench, 15.0, 15.5);
}

#[test]
fn emptying_a_soloists_record_with_a_duration_of_one_is_waited_out() {
    let by_hand = Record {
        duration_seconds: Some(1),
        ..emptied(held("b", 15, 4))
    };
    let without_signature = Record {
        signature: None,
        ..by_hand.clone()
    };
    for record in [by_hand, without_signature] {
        let mut bench = watching(held("b", 15, 4));
        bench.watch(3.0, at(8, record));
        assert_waited_out(&mut bench, 15.0, 15.5);
    }
}

#[test]
fn an_unsigned_name_over_a_living_soloist_does_not_shorten_its_promise() {
    let by_hand = unsigned("x", 2, 4);
    let mut watched = watching(held("b", 15, 4));
    watched.watch(3.0, at(8, by_hand.clone()));
    watched.run_until(14.99);
    assert!(watched.is_idle());
    watched.run_until(15.5);
    assert_eq!(watched.write().base, v(8));

    let mut reading = watching(held("b", 15, 4));
    reread(&mut reading, 3.0, at(8, by_hand));
    reading.run_until(17.99);
    assert!(reading.is_idle());
    reading.run_until(18.5);
    assert!(reading.is_writing());
}

#[test]
fn a_replica_that_saw_the_record_vanish_knows_the_next_term() {
    let mut bench = Bench::leading();
    assert_eq!(losses(&bench.watch(3.0, absent(3))), [Loss::Deleted]);
    bench.stand(4.0);
    assert_eq!(bench.write().base, Base::Absent);
    assert_eq!(bench.write().record.transitions, 1);
}

/// Edits by hand that take the signature away, in any order.
#[test]
fn a_stripped_signature_does_not_make_a_soloists_record_client_gos() {
    let stripped = |record| Record {
        signature: None,
        ..record
    };
    let empty = || stripped(released(held("b", 15, 4)));
    let touched_twice = [at(8, empty()), at(9, empty())];
    let stripped_then_emptied = [at(8, stripped(held("b", 15, 4))), at(9, empty())];
    let recreated = [
        absent(8),
        at(
            9,
            Record {
                transitions: 0,
                ..empty()
            },
        ),
    ];
    for edits in [touched_twice, recreated] {
        let mut bench = watching(held("b", 15, 4));
        for edit in edits {
            bench.watch(4.0, edit);
        }
        assert_waited_out(&mut bench, 15.0, 15.5);
    }
    let mut bench = watching(held("b", 15, 4));
    for edit in stripped_then_emptied {
        bench.watch(4.0, edit);
    }
    assert_waited_out(&mut bench, 19.0, 19.5);
}

#[test]
fn a_record_of_a_former_term_that_is_written_back_is_not_believed() {
    for former in [released(held("c", 15, 3)), emptied(unsigned("x", 1, 3))] {
        let mut bench = watching(held("b", 15, 4));
        bench.watch(4.0, at(8, former));
        assert_waited_out(&mut bench, 15.0, 15.5);
    }
}

#[test]
fn a_store_set_back_to_a_release_of_former_times_is_waited_out() {
    let mut bench = Bench::shown(me(), at(50, held("b", 15, 9)));
    bench.break_watch(3.0);
    bench.answer(3.0, read(at(20, released(held("c", 15, 4)))));
    assert_waited_out(&mut bench, 18.0, 18.5);
}

#[test]
fn an_own_record_of_a_former_term_that_is_written_back_is_not_ours_to_take_at_once() {
    let mut bench = Bench::shown(me(), absent(1));
    let mine = bench.write().record.clone();
    bench.answer(0.0, written(2));
    bench.watch(1.0, at(5, held("b", 60, 1)));
    bench.stand(1.0);
    bench.watch(2.0, at(6, mine));
    assert!(bench.is_idle());
    bench.run_until(60.9);
    assert!(bench.is_idle());
}

#[test]
fn a_brand_new_replica_waits_for_an_emptied_record_that_still_bears_its_holders_signature() {
    let mut bench = Bench::shown(me(), at(7, emptied(held("b", 15, 4))));
    assert_waited_out(&mut bench, 15.0, 15.5);
}

#[test]
fn a_doubt_about_two_holders_is_not_settled_by_one_of_them() {
    let mut bench = watching(held("b", 15, 4));
    bench.watch(1.0, at(8, held("c", 60, 5)));
    bench.watch(2.0, at(9, held("b", 15, 4)));
    bench.watch(2.1, at(10, unsigned("b", 15, 4)));
    bench.watch(2.2, at(11, held("b", 15, 4)));
    bench.watch(2.3, at(12, released(held("b", 15, 4))));
    bench.run_until(60.9);
    assert!(
        bench.is_idle(),
        "c may believe in its lease until 61: {:?}",
        bench.pending
    );
}

/// Found by the simulator, while a rollout changed the lease duration.
#[test]
fn an_emptied_record_is_waited_out_as_its_own_holder_was_promised_not_as_an_earlier_one() {
    let mut bench = watching(held("b", 5, 4));
    reread(&mut bench, 3.0, at(9, emptied(held("c", 15, 5))));
    assert_waited_out(&mut bench, 18.0, 18.5);
}

/// Found by the simulator: a record of former times is written back while the leader is cut off, and a read that shows
/// the leader's own arrives after it.
#[test]
fn a_term_that_only_an_overtaken_read_shows_is_waited_out_too() {
    let mut bench = watching(unsigned("x", 1, 0));
    bench.run_until(1.5);
    bench.answer(1.5, Answer::Unknown);
    bench.run_until(3.9);
    assert!(bench.is_reading());
    bench.watch(4.0, at(21, unsigned("x", 1, 0)));
    bench.answer(4.1, read(at(20, held("b", 15, 1))));
    bench.run_until(19.0);
    assert!(bench.is_idle(), "{:?}", bench.pending);
    bench.run_until(19.6);
    assert_eq!(bench.write().base, v(21));
    assert_eq!(bench.write().record.transitions, 2);
}

/// Found by the simulator, whose watch showed the deletion before the renewals: it must not, and no store may.
#[test]
fn renewals_that_arrive_late_and_all_at_once_are_counted_from_their_arrival() {
    let mut bench = watching(held("b", 15, 4));
    for version in 8..12 {
        bench.watch(40.0, at(version, renewed(held("b", 15, 4), version)));
    }
    bench.watch(40.0, absent(12));
    assert_waited_out(&mut bench, 55.0, 55.5);
}

#[test]
fn a_store_whose_versions_mean_other_records_now_is_waited_out() {
    let mut bench = watching(held("b", 15, 4));
    bench.break_watch(3.0);
    bench.answer(3.0, read(at(7, released(held("c", 15, 3)))));
    assert_waited_out(&mut bench, 18.0, 18.5);
}

/// Found by the simulator: numbers of terms go down where records of former times are written back.
#[test]
fn an_own_record_that_is_written_back_under_a_higher_number_is_waited_out_too() {
    let mut bench = Bench::shown(me(), at(7, released(held("b", 15, 4))));
    let mine = bench.write().record.clone();
    bench.answer(0.0, written(8));
    bench.watch(1.0, at(9, held("c", 60, 3)));
    bench.stand(1.0);
    bench.watch(2.0, at(10, mine));
    bench.run_until(60.9);
    assert!(bench.is_idle(), "{:?}", bench.pending);
}
