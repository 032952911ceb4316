//! Giving the lease away.

use super::*;

#[test]
fn leaving_releases_what_is_held() {
    let mut bench = Bench::leading();
    assert_eq!(losses(&bench.leave(1.0)), []);
    let write = bench.write().clone();
    assert_eq!((bench.sent(), write.base), (t(1.0), v(2)));
    assert_eq!(write.purpose, Purpose::Release);
    assert_eq!(write.record.holder, None);
    assert_eq!(write.record.duration_seconds, Some(1));
    assert_eq!(write.record.transitions, 0);
    assert!(write.record.released_by_its_holder());
    let signature = write.record.signature.expect("signed");
    assert_eq!(signature.instance, MY_INSTANCE);
    assert_eq!(signature.duration.seconds(), 15);

    let outputs = bench.answer(1.1, written(3));
    assert!(outputs.contains(&Output::Left));
    assert_eq!(bench.election.tenure(), None);
}

#[test]
fn leaving_with_nothing_held_is_done_at_once() {
    assert_eq!(Bench::new(me()).leave(0.0), [Output::Left]);
    let mut standby = Bench::shown(me(), at(7, held("b", 15, 4)));
    assert_eq!(standby.leave(1.0), [Output::Left]);
    assert_eq!(standby.leave(2.0), [Output::Left]);
}

#[test]
fn a_replica_that_left_goes_on_watching() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.leave(1.0);
    let outputs = bench.watch(2.0, at(8, held("c", 15, 5)));
    assert_eq!(outputs, [Output::Holder(Some(name("c")))]);
    bench.break_watch(9.0);
    assert!(bench.is_reading());
}

#[test]
fn leaving_waits_for_a_renewal_under_way() {
    let mut bench = Bench::leading();
    bench.run_until(5.0);
    assert_eq!(bench.leave(5.1), []);
    bench.answer(5.2, written(3));
    assert_eq!(bench.write().purpose, Purpose::Release);
    assert_eq!(bench.write().base, v(3));
    assert!(bench.answer(5.3, written(4)).contains(&Output::Left));
}

#[test]
fn leaving_releases_what_an_acquisition_under_way_brings() {
    let mut bench = Bench::shown(me(), absent(1));
    assert_eq!(bench.leave(0.1), []);
    let outputs = bench.answer(0.2, written(2));
    assert_eq!(elected(&outputs), None);
    assert_eq!(bench.write().purpose, Purpose::Release);
    assert_eq!(bench.write().base, v(2));
    assert!(bench.answer(0.3, written(3)).contains(&Output::Left));
}

#[test]
fn leaving_is_done_when_an_acquisition_under_way_lost_its_race() {
    let mut bench = Bench::shown(me(), absent(1));
    bench.leave(0.1);
    bench.lose_race_unseen(0.2);
    let outputs = bench.answer(0.8, read(at(2, held("b", 15, 0))));
    assert!(outputs.contains(&Output::Left));
    assert!(bench.is_idle());
}

#[test]
fn a_release_that_lost_a_race_to_an_edit_is_written_again() {
    let mut bench = Bench::leading();
    let mine = Bench::shown(me(), absent(1)).write().record.clone();
    bench.leave(1.0);
    bench.answer(1.1, Answer::LostRace);
    bench.answer(1.2, read(at(3, mine)));
    assert_eq!(bench.write().purpose, Purpose::Release);
    assert_eq!(bench.write().base, v(3));
}

#[test]
fn a_release_in_doubt_that_landed_is_done() {
    let mut bench = Bench::leading();
    bench.leave(1.0);
    let release = bench.write().record.clone();
    bench.answer(1.1, Answer::Unknown);
    bench.run_until(3.4);
    assert!(bench.is_reading());
    let outputs = bench.answer(3.5, read(at(3, release)));
    assert!(outputs.contains(&Output::Left));
    assert_eq!(losses(&outputs), []);
}

#[test]
fn leaving_a_lease_that_somebody_deleted_meanwhile_is_done() {
    let mut bench = Bench::leading();
    bench.leave(1.0);
    bench.answer(1.1, Answer::LostRace);
    let outputs = bench.answer(1.2, read(absent(3)));
    assert!(outputs.contains(&Output::Left));
}

#[test]
fn leaving_gives_up_after_two_attempts_when_the_store_is_down() {
    let mut bench = Bench::leading();
    bench.leave(1.0);
    assert!(!bench.run_until(5.99).contains(&Output::Left));
    assert!(bench.run_until(6.0).contains(&Output::Left));
    assert_eq!(bench.election.tenure(), None);

    let mut refused = Bench::leading();
    refused.leave(1.0);
    let outputs = refused.run_answering(6.0, &Answer::Unavailable);
    assert!(outputs.contains(&Output::Left));
}

#[test]
fn standing_again_while_leaving_begins_after_the_release() {
    let mut bench = Bench::leading();
    bench.leave(1.0);
    bench.stand(1.0);
    assert_eq!(bench.write().purpose, Purpose::Release);
    let outputs = bench.answer(1.1, written(3));
    assert!(outputs.contains(&Output::Left));
    assert_eq!(bench.write().purpose, Purpose::Acquire);
    assert_eq!(bench.write().base, v(3));
    assert_eq!(bench.write().record.transitions, 1);
    let elected = elected(&bench.answer(1.2, written(4))).expect("elected");
    assert_eq!(elected.claim, Claim::Released);
}

#[test]
fn a_resigned_term_is_released_by_leaving() {
    let mut bench = Bench::leading();
    bench.resign(1.0);
    bench.run_until(5.0);
    bench.answer(5.1, written(3));
    assert_eq!(losses(&bench.leave(6.0)), []);
    assert_eq!(bench.write().purpose, Purpose::Release);
    assert_eq!(bench.write().base, v(3));
}

#[test]
fn a_lease_lost_to_another_is_not_released() {
    let mut bench = Bench::leading();
    bench.watch(3.0, at(3, held("b", 15, 1)));
    assert_eq!(bench.leave(3.1), [Output::Left]);
}

#[test]
fn standing_again_after_a_lost_term_releases_it_first() {
    let mut bench = Bench::leading();
    bench.resign(1.0);
    bench.stand(1.0);
    assert_eq!(bench.write().purpose, Purpose::Release);
    bench.answer(1.1, written(3));
    assert_eq!(bench.write().purpose, Purpose::Acquire);
}

#[test]
fn left_is_said_once_even_if_the_release_lands_after_it_was_given_up() {
    let mut bench = Bench::leading();
    bench.leave(1.0);
    let op = bench.pending.as_ref().expect("a release under way").op;
    let outputs = bench.run_until(20.0);
    let left = |outputs: &[Output]| outputs.iter().filter(|o| **o == Output::Left).count();
    assert_eq!(left(&outputs), 1);
    let outputs = bench.late_answer(20.0, op, written(3));
    assert_eq!(left(&outputs), 0);
}

#[test]
fn leaving_with_nothing_but_a_read_under_way_does_not_wait_for_it() {
    let mut bench = Bench::new(me());
    bench.stand(0.0);
    assert!(bench.is_reading());
    assert!(bench.leave(0.1).contains(&Output::Left));
}

#[test]
fn an_own_record_of_a_former_term_is_not_ours_to_release() {
    let mut bench = Bench::shown(me(), absent(1));
    let mine = bench.write().record.clone();
    bench.answer(0.0, written(2));
    bench.watch(1.0, at(5, held("b", 15, 1)));
    bench.watch(2.0, at(6, mine));
    assert!(bench.leave(3.0).contains(&Output::Left));
    assert!(bench.is_idle());
}

/// Found by the simulator: a watch that lagged showed an older state with a higher number.
#[test]
fn a_term_is_released_even_if_a_higher_number_has_been_seen() {
    let mut bench = Bench::leading();
    bench.watch(1.0, at(1, held("b", 15, 9)));
    bench.leave(2.0);
    assert_eq!(bench.write().purpose, Purpose::Release);
}
