//! Holding the lease.

use super::*;

fn taken_by_hand(holder: &str) -> Record {
    unsigned(holder, 15, 1)
}

/// Our own record as it stands after [`Bench::leading`].
fn mine() -> Record {
    Bench::shown(me(), absent(1)).write().record.clone()
}

#[test]
fn validity_counts_from_when_the_write_was_sent() {
    let mut bench = Bench::shown(me(), absent(1));
    bench.answer(2.0, written(2));
    assert_eq!(bench.valid_until(), Some(t(15.0)));

    bench.run_until(5.0);
    assert_eq!(extended(&bench.answer(7.0, written(3))), Some(t(20.0)));
}

#[test]
fn the_lease_is_renewed_every_third_of_it() {
    let mut bench = Bench::leading();
    for (seconds, version) in [(5.0, 2), (10.0, 3), (15.0, 4)] {
        bench.run_until(seconds);
        assert_eq!(bench.sent(), t(seconds));
        assert_eq!(bench.write().purpose, Purpose::Renew);
        assert_eq!(bench.write().base, v(version));
        assert_eq!(bench.write().record.transitions, 0);
        let outputs = bench.answer(seconds + 0.3, written(version + 1));
        assert_eq!(
            outputs,
            [Output::Extended {
                valid_until: t(seconds + 15.0)
            }]
        );
    }
}

#[test]
fn a_renewal_that_failed_is_tried_again_a_retry_period_after_it_began() {
    let mut bench = Bench::leading();
    bench.run_until(5.0);
    bench.answer(6.5, Answer::Unavailable);
    bench.run_until(6.99);
    assert!(bench.is_idle());
    bench.run_until(7.4);
    assert_eq!(bench.write().base, v(2));
    assert!(bench.sent() >= t(7.0));
}

#[test]
fn retries_are_spread_over_up_to_a_fifth_more_than_the_period() {
    let mut sent = Vec::new();
    for seed in 0..50 {
        let mut bench = Bench::shown(Config { seed, ..me() }, absent(1));
        bench.answer(0.0, written(2));
        bench.run_until(5.0);
        bench.answer(5.0, Answer::Unavailable);
        bench.run_until(7.4);
        sent.push(bench.sent());
    }
    sent.sort();
    let (first, last) = (sent[0], sent[sent.len() - 1]);
    assert!(t(7.0) <= first && first < t(7.1));
    assert!(t(7.3) < last && last <= t(7.4));
}

#[test]
fn one_stalled_request_does_not_cost_the_leadership() {
    let mut bench = Bench::leading();
    bench.run_until(5.0);
    let stalled = bench.pending.as_ref().expect("the renewal").op;
    let outputs = bench.run_until(7.5);
    assert!(outputs.contains(&Output::Store(StoreCommand::Abandon { op: stalled })));
    assert!(bench.is_reading());
    assert_eq!(bench.sent(), t(7.5));

    bench.answer(7.6, read(at(2, mine())));
    assert_eq!((bench.sent(), bench.write().base), (t(7.6), v(2)));
    let outputs = bench.answer(7.7, written(3));
    assert_eq!(
        outputs,
        [Output::Extended {
            valid_until: t(22.6)
        }]
    );
}

#[test]
fn a_stalled_read_for_the_watch_does_not_cost_the_leadership() {
    let mut bench = Bench::leading();
    bench.run_until(4.9);
    bench.break_watch(4.9);
    assert!(bench.is_reading());
    bench.run_until(7.4);
    assert_eq!(bench.write().purpose, Purpose::Renew);
    assert_eq!(losses(&bench.answer(7.5, written(3))), []);
}

#[test]
fn an_answer_to_an_abandoned_request_is_ignored() {
    let mut bench = Bench::leading();
    bench.run_until(5.0);
    let stalled = bench.pending.as_ref().expect("the renewal").op;
    bench.run_until(7.5);
    assert_eq!(bench.late_answer(7.6, stalled, written(3)), []);
    assert_eq!(bench.valid_until(), Some(t(15.0)));
    assert!(bench.is_reading());
}

#[test]
fn no_renewal_until_the_renew_deadline_loses_the_lease_and_then_it_expires() {
    let mut bench = Bench::leading();
    assert_eq!(losses(&bench.run_answering(9.99, &Answer::Unavailable)), []);
    let outputs = bench.run_answering(10.0, &Answer::Unavailable);
    assert_eq!(losses(&outputs), [Loss::RenewDeadline]);
    assert_eq!(bench.valid_until(), Some(t(15.0)));
    let outputs = bench.run_answering(14.99, &Answer::Unavailable);
    assert_eq!(losses(&outputs), []);
    let outputs = bench.run_answering(15.0, &Answer::Unavailable);
    assert_eq!(losses(&outputs), [Loss::Expired]);
    assert_eq!(bench.valid_until(), None);
}

#[test]
fn renewals_go_on_after_the_renew_deadline_and_a_late_one_extends() {
    let mut bench = Bench::leading();
    bench.run_answering(10.0, &Answer::Unavailable);
    bench.run_until(12.4);
    assert_eq!(bench.write().purpose, Purpose::Renew);
    let sent = bench.sent();
    let outputs = bench.answer(12.4, written(3));
    let valid_until = sent + Duration::from_secs(15);
    assert_eq!(outputs, [Output::Extended { valid_until }]);
    assert_eq!(losses(&bench.run_until(20.0)), []);
}

#[test]
fn after_a_loss_nothing_is_acquired_until_told_to_stand() {
    let mut bench = Bench::leading();
    bench.watch(3.0, absent(3));
    bench.run_until(100.0);
    assert!(bench.is_idle());
    bench.stand(100.0);
    assert_eq!(bench.write().purpose, Purpose::Acquire);
}

#[test]
fn a_process_that_was_stopped_past_its_validity_has_lost_it() {
    let mut bench = Bench::leading();
    assert_eq!(bench.wake(15.0), [Output::Lost(Loss::Expired)]);
}

#[test]
fn a_lease_deleted_emptied_or_taken_is_lost_at_once() {
    for (snapshot, loss) in [
        (absent(3), Loss::Deleted),
        (at(3, emptied(mine())), Loss::Emptied),
        (at(3, taken_by_hand("x")), Loss::Taken(name("x"))),
        (at(3, held("b", 15, 1)), Loss::Taken(name("b"))),
        (at(3, held("me", 15, 1)), Loss::Taken(name("me"))),
    ] {
        let mut watching = Bench::leading();
        let outputs = watching.watch(3.0, snapshot.clone());
        assert!(outputs.contains(&Output::Lost(loss.clone())));
        assert_eq!(watching.valid_until(), None);

        let mut reading = Bench::leading();
        reading.run_until(5.0);
        reading.answer(5.1, Answer::LostRace);
        let outputs = reading.answer(5.2, read(snapshot));
        assert_eq!(losses(&outputs), [loss]);
    }
}

/// Found by the simulator: a forged release had let another one lead in between.
#[test]
fn an_earlier_record_of_the_same_term_that_is_written_back_is_a_loss() {
    let renewed = || {
        let mut bench = Bench::leading();
        bench.run_until(5.0);
        bench.answer(5.1, written(3));
        (bench, mine())
    };
    let (mut watching, first) = renewed();
    let outputs = watching.watch(6.0, at(4, first));
    assert_eq!(losses(&outputs), [Loss::WrittenBack]);

    let (mut reading, first) = renewed();
    reading.run_until(10.0);
    reading.answer(10.1, Answer::LostRace);
    let outputs = reading.answer(10.2, read(at(4, first)));
    assert_eq!(losses(&outputs), [Loss::WrittenBack]);
    reading.stand(10.3);
    reading.run_until(25.1);
    assert!(reading.is_idle(), "whoever led in between is waited out");
}

#[test]
fn a_record_that_is_written_back_is_a_loss_also_if_the_watch_is_faster_than_the_answer() {
    let mut bench = Bench::leading();
    let first = mine();
    bench.run_until(5.0);
    assert_eq!(losses(&bench.watch(5.1, at(4, first))), []);
    let outputs = bench.answer(5.2, written(3));
    assert_eq!(losses(&outputs), [Loss::WrittenBack]);
}

#[test]
fn a_leader_whose_store_was_set_back_to_its_own_term_keeps_it() {
    let mut bench = Bench::leading();
    let first = mine();
    bench.run_until(5.0);
    bench.answer(5.1, written(3));
    bench.run_until(10.0);
    bench.answer(10.1, Answer::LostRace);
    let outputs = bench.answer(10.2, read(at(2, first)));
    assert_eq!(losses(&outputs), []);
}

#[test]
fn an_operators_edit_of_ones_own_record_is_no_loss_and_the_next_renewal_builds_on_it() {
    let mut bench = Bench::leading();
    assert_eq!(bench.watch(3.0, at(3, mine())), []);
    bench.run_until(5.0);
    assert_eq!(bench.write().base, v(3));
}

#[test]
fn an_edit_that_the_watch_did_not_show_costs_a_lost_race_and_a_read() {
    let mut bench = Bench::leading();
    bench.run_until(5.0);
    bench.answer(5.1, Answer::LostRace);
    assert!(bench.is_reading());
    let outputs = bench.answer(5.2, read(at(3, mine())));
    assert!(watches(&outputs, 3) && losses(&outputs).is_empty());
    assert_eq!((bench.sent(), bench.write().base), (t(5.2), v(3)));
}

#[test]
fn a_duration_edited_by_hand_is_no_loss_and_is_written_back() {
    let mut bench = Bench::leading();
    let edited = Record {
        duration_seconds: Some(1),
        ..mine()
    };
    assert_eq!(bench.watch(3.0, at(3, edited)), []);
    assert_eq!(bench.valid_until(), Some(t(15.0)));
    bench.run_until(5.0);
    assert_eq!(bench.write().record.duration_seconds, Some(15));
}

#[test]
fn resigning_announces_the_end_once_and_goes_on_renewing() {
    let mut bench = Bench::leading();
    assert_eq!(bench.resign(1.0), [Output::Lost(Loss::Resigned)]);
    assert_eq!(bench.resign(2.0), []);
    bench.run_until(5.0);
    assert_eq!(bench.write().purpose, Purpose::Renew);
    assert_eq!(extended(&bench.answer(5.1, written(3))), Some(t(20.0)));
}

#[test]
fn a_resigned_lease_that_cannot_be_renewed_expires_without_a_second_deadline() {
    let mut bench = Bench::leading();
    bench.resign(1.0);
    let outputs = bench.run_answering(15.0, &Answer::Unavailable);
    assert_eq!(losses(&outputs), [Loss::Expired]);
}

#[test]
fn resigning_without_a_term_says_nothing() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    assert_eq!(bench.resign(1.0), []);
}

#[test]
fn a_refused_renewal_is_reported_and_tried_again_until_the_deadline() {
    let mut bench = Bench::leading();
    let outputs = bench.run_answering(10.0, &Answer::Refused);
    let refusals = outputs
        .iter()
        .filter(|o| matches!(o, Output::Refused { .. }));
    assert_eq!(refusals.count(), 3);
    assert_eq!(losses(&outputs), [Loss::RenewDeadline]);
}

#[test]
fn a_store_that_asks_for_patience_does_not_cost_the_lease() {
    let mut bench = Bench::leading();
    bench.run_until(5.0);
    let wait = Duration::from_secs(3600);
    bench.answer(5.1, Answer::Throttled { wait });
    bench.run_until(7.4);
    assert!(bench.is_idle());
    // The renew deadline, 10 s, less one attempt.
    bench.run_until(7.6);
    assert!(!bench.is_idle());
    assert_eq!(losses(&bench.answer(7.7, written(9))), []);
}

#[test]
fn the_term_and_token_stay_through_renewals() {
    let mut bench = Bench::leading();
    bench.run_until(5.0);
    bench.answer(5.1, written(9));
    let tenure = bench.election.tenure().expect("held");
    assert_eq!(
        (tenure.term(), tenure.token()),
        (Term::new(0), Token::new(2))
    );
}
