//! Writes of which nobody knows whether they landed.

use super::*;

/// A leader whose renewal, sent at 5, came to nothing known at 5.5: it reads next. And that renewal.
fn in_doubt() -> (Bench, Record) {
    let mut bench = Bench::leading();
    bench.run_until(5.0);
    let renewal = bench.write().record.clone();
    assert_eq!(bench.answer(5.5, Answer::Unknown), []);
    assert_eq!(bench.valid_until(), Some(t(15.0)));
    bench.run_until(7.4);
    assert!(bench.is_reading() && bench.sent() >= t(7.0));
    (bench, renewal)
}

fn as_written_before(renewal: &Record) -> Record {
    let signature = renewal.signature.clone().map(|s| Signature {
        write: OpId::new(2),
        ..s
    });
    Record {
        signature,
        ..renewal.clone()
    }
}

#[test]
fn a_renewal_that_turns_out_to_have_landed_counts_from_when_it_was_sent() {
    let (mut bench, renewal) = in_doubt();
    let outputs = bench.answer(7.5, read(at(3, renewal)));
    assert_eq!(extended(&outputs), Some(t(20.0)));
    bench.run_until(10.0);
    assert_eq!((bench.sent(), bench.write().base), (t(10.0), v(3)));
}

#[test]
fn a_renewal_that_did_not_land_is_written_again_at_once() {
    let (mut bench, renewal) = in_doubt();
    let outputs = bench.answer(7.5, read(at(2, as_written_before(&renewal))));
    assert_eq!(extended(&outputs), None);
    assert_eq!((bench.sent(), bench.write().base), (t(7.5), v(2)));
    assert_eq!(bench.valid_until(), Some(t(15.0)));
}

#[test]
fn an_older_write_of_ours_that_an_operator_edited_does_not_extend() {
    let (mut bench, renewal) = in_doubt();
    let outputs = bench.answer(7.5, read(at(3, as_written_before(&renewal))));
    assert_eq!(extended(&outputs), None);
    assert_eq!(losses(&outputs), []);
    assert_eq!(bench.valid_until(), Some(t(15.0)));
    assert_eq!(bench.write().base, v(3));
}

#[test]
fn a_renewal_that_landed_and_was_edited_since_counts_from_when_it_was_sent() {
    let (mut bench, renewal) = in_doubt();
    let outputs = bench.answer(7.5, read(at(4, renewal)));
    assert_eq!(extended(&outputs), Some(t(20.0)));
}

#[test]
fn the_watch_may_show_that_the_renewal_landed() {
    let (mut bench, renewal) = in_doubt();
    let outputs = bench.watch(7.5, at(3, renewal));
    assert_eq!(extended(&outputs), Some(t(20.0)));
}

#[test]
fn a_renewal_that_the_watch_shows_before_it_is_answered_extends_once() {
    let mut bench = Bench::leading();
    bench.run_until(5.0);
    let renewal = bench.write().record.clone();
    assert_eq!(
        bench.watch(5.1, at(3, renewal)),
        [Output::Extended {
            valid_until: t(20.0)
        }]
    );
    assert_eq!(bench.answer(5.2, written(3)), []);
}

#[test]
fn a_renewal_in_doubt_that_somebody_else_wrote_over_is_lost() {
    let (mut bench, _) = in_doubt();
    let outputs = bench.answer(7.5, read(at(4, held("b", 15, 1))));
    assert_eq!(losses(&outputs), [Loss::Taken(name("b"))]);
}

#[test]
fn the_older_of_two_renewals_in_doubt_extends_only_by_itself() {
    let (mut bench, first) = in_doubt();
    bench.answer(7.5, read(at(2, as_written_before(&first))));
    bench.answer(7.6, Answer::Unknown);
    bench.run_until(9.99);
    assert!(bench.is_reading());
    let outputs = bench.answer(9.99, read(at(3, first)));
    assert_eq!(extended(&outputs), Some(t(20.0)));
    bench.run_until(10.0);
    assert_eq!(bench.write().base, v(3));
}

#[test]
fn an_acquisition_in_doubt_is_no_term_and_is_acquired_anew_when_it_landed() {
    let mut bench = Bench::shown(me(), absent(1));
    let record = bench.write().record.clone();
    assert_eq!(elected(&bench.answer(0.5, Answer::Unknown)), None);
    bench.run_until(2.4);
    assert!(bench.is_reading());
    let outputs = bench.answer(2.5, read(at(2, record)));
    assert_eq!(elected(&outputs), None);
    assert_eq!(bench.write().base, v(2));
    assert_eq!(bench.write().record.transitions, 1);
    let elected = elected(&bench.answer(2.6, written(3))).expect("elected");
    assert_eq!(
        (elected.token, elected.valid_until),
        (Token::new(3), t(17.5))
    );
}

#[test]
fn a_stalled_acquisition_is_abandoned_and_read_about() {
    let mut bench = Bench::shown(me(), absent(1));
    let op = bench.pending.as_ref().expect("the write").op;
    let outputs = bench.run_until(2.5);
    assert_eq!(outputs[0], Output::Store(StoreCommand::Abandon { op }));
    assert!(bench.is_reading());
}

#[test]
fn an_answer_that_the_watch_has_overtaken_does_not_undo_what_was_seen_since() {
    let mut bench = Bench::leading();
    bench.leave(1.0);
    let release = bench.write().record.clone();
    bench.watch(1.1, at(3, release));
    bench.watch(1.2, at(4, held("b", 60, 1)));
    if bench.pending.is_some() {
        bench.answer(1.3, written(3));
    }
    bench.watch(2.0, absent(5));
    bench.stand(3.0);
    bench.run_until(61.1);
    assert!(bench.is_idle(), "{:?}", bench.pending);
    bench.run_until(61.8);
    assert!(bench.is_writing());
}

#[test]
fn an_acquisition_that_was_lost_again_before_its_answer_came_begins_no_term() {
    let mut bench = Bench::shown(me(), absent(1));
    let mine = bench.write().record.clone();
    bench.watch(0.1, at(2, mine));
    bench.watch(0.2, absent(3));
    bench.watch(0.3, at(4, held("b", 15, 0)));
    let outputs = bench.answer(0.4, written(2));
    assert_eq!(elected(&outputs), None);
    assert!(bench.is_idle());
}

#[test]
fn a_creation_that_went_through_after_an_unseen_term_waits_for_that_terms_promise() {
    let mut bench = Bench::shown(me(), absent(1));
    bench.watch(0.2, at(2, held("b", 15, 0)));
    bench.watch(0.3, absent(3));
    let outputs = bench.answer(0.4, written(4));
    assert_eq!(elected(&outputs), None);
    bench.run_until(15.1);
    assert!(bench.is_idle());
    bench.run_until(15.8);
    assert_eq!(bench.write().base, v(4));
}

#[test]
fn a_release_that_is_seen_before_its_answer_renews_nothing() {
    let mut bench = Bench::leading();
    bench.leave(1.0);
    let release = bench.write().record.clone();
    let outputs = bench.watch(1.1, at(3, release));
    assert_eq!(extended(&outputs), None);
}

#[test]
fn a_store_that_contradicts_itself_is_asked_at_the_retry_pace() {
    let mut bench = Bench::shown(me(), absent(1));
    bench.lose_race_unseen(0.1);
    bench.answer(0.7, read(absent(1)));
    bench.answer(0.8, Answer::LostRace);
    assert!(bench.is_idle(), "{:?}", bench.pending);
    bench.run_until(2.6);
    assert!(bench.is_idle(), "{:?}", bench.pending);
    bench.run_until(3.2);
    assert!(bench.is_reading());
}
