//! From standing to being elected.

use super::*;

/// Runs until the takeover is sent; it must be between these moments.
fn takeover_between(bench: &mut Bench, earliest: f64, latest: f64) {
    assert!(bench.is_idle(), "{:?}", bench.pending);
    bench.run_until(latest);
    assert!(bench.is_writing(), "nothing was written by {latest}");
    let sent = bench.sent();
    assert!(t(earliest) <= sent && sent <= t(latest), "{sent:?}");
}

fn claimed(bench: &mut Bench, seconds: f64, version: u64) -> Claim {
    let outputs = bench.answer(seconds, written(version));
    elected(&outputs).expect("elected").claim
}

#[test]
fn a_first_start_on_a_missing_record_creates_it_at_once() {
    let mut bench = Bench::new(me());
    bench.stand(0.0);
    assert!(bench.is_reading());
    let outputs = bench.answer(0.1, read(absent(7)));
    assert!(watches(&outputs, 7));
    assert_eq!(bench.write().base, Base::Absent);
    assert_eq!(bench.write().purpose, Purpose::Acquire);
    assert_eq!(bench.write().record.transitions, 0);

    let outputs = bench.answer(0.3, written(8));
    let expected = Elected {
        term: Term::new(0),
        token: Token::new(8),
        valid_until: t(0.1) + Duration::from_secs(15),
        claim: Claim::FirstSight,
    };
    assert_eq!(elected(&outputs), Some(expected));
}

#[test]
fn a_first_start_on_an_empty_record_takes_it_at_once() {
    let never_held = Record {
        duration_seconds: None,
        ..emptied(unsigned("x", 15, 3))
    };
    let mut bench = Bench::shown(me(), at(7, never_held));
    assert_eq!(bench.write().base, v(7));
    assert_eq!(bench.write().record.transitions, 4);
    assert_eq!(claimed(&mut bench, 0.0, 8), Claim::FirstSight);
}

#[test]
fn what_is_written_names_us_and_is_signed_by_this_very_process() {
    let bench = Bench::shown(me(), absent(1));
    let record = &bench.write().record;
    assert_eq!(record.holder, Some(name("me")));
    assert_eq!(record.duration_seconds, Some(15));
    let signature = record.signed().expect("signed");
    assert_eq!(signature.instance, MY_INSTANCE);
    assert_eq!(Some(signature.write), bench.pending.as_ref().map(|p| p.op));
    assert!(!signature.released);
}

#[test]
fn a_held_record_is_waited_out_from_when_it_was_seen_and_taken_at_that_version() {
    let mut bench = Bench::new(me());
    bench.stand(0.0);
    bench.answer(1.0, read(at(7, held("b", 15, 4))));
    takeover_between(&mut bench, 16.0, 16.5);
    assert_eq!(bench.write().base, v(7));
    assert_eq!(bench.write().record.transitions, 5);
    assert_eq!(claimed(&mut bench, 16.6, 8), Claim::Expired);
}

#[test]
fn a_renewal_that_the_watch_shows_restarts_the_count() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.run_until(9.0);
    bench.watch(9.0, at(8, renewed(held("b", 15, 4), 3)));
    takeover_between(&mut bench, 24.0, 24.5);
    assert_eq!(bench.write().base, v(8));
}

#[test]
fn a_change_that_is_shown_twice_does_not_restart_the_count() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.watch(9.0, at(7, held("b", 15, 4)));
    takeover_between(&mut bench, 15.0, 15.5);
}

#[test]
fn the_records_own_duration_is_counted_not_ours() {
    for seconds in [5, 60] {
        let mut bench = Bench::shown(me(), at(7, held("b", seconds, 4)));
        let seconds = f64::from(seconds);
        takeover_between(&mut bench, seconds, seconds + 0.5);
    }
}

#[test]
fn a_record_of_zero_negative_or_no_duration_is_counted_as_ours() {
    for seconds in [Some(0), Some(-7), Some(i64::MIN), None] {
        let odd = Record {
            duration_seconds: seconds,
            ..unsigned("x", 15, 4)
        };
        let mut bench = Bench::shown(me(), at(7, odd));
        takeover_between(&mut bench, 15.0, 15.5);
    }
}

#[test]
fn a_record_of_absurd_duration_is_waited_for_a_day() {
    let mut bench = Bench::shown(me(), at(7, unsigned("x", i64::MAX, 4)));
    takeover_between(&mut bench, 86_400.0, 86_400.5);
}

#[test]
fn the_count_goes_on_while_not_standing() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    assert_eq!(bench.leave(1.0), [Output::Left]);
    bench.run_until(20.0);
    assert!(bench.is_idle());
    bench.stand(20.0);
    assert!(bench.is_writing());
}

#[test]
fn a_lost_race_is_answered_by_the_watch_that_is_there() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.run_until(15.5);
    bench.answer(15.6, Answer::LostRace);
    assert!(bench.is_idle(), "{:?}", bench.pending);
    bench.watch(15.7, at(8, held("c", 15, 5)));
    takeover_between(&mut bench, 30.7, 31.2);
    assert_eq!(bench.write().base, v(8));
}

#[test]
fn a_lost_race_that_the_watch_has_explained_already_needs_no_read() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.run_until(15.5);
    bench.watch(15.6, at(8, held("c", 15, 5)));
    bench.answer(15.7, Answer::LostRace);
    takeover_between(&mut bench, 30.6, 31.1);
    assert_eq!(bench.write().base, v(8));
}

#[test]
fn a_lost_race_that_the_watch_does_not_explain_is_followed_by_a_read_and_a_new_watch() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.run_until(15.5);
    bench.lose_race_unseen(15.5);
    let outputs = bench.answer(16.1, read(at(8, held("c", 15, 5))));
    assert!(watches(&outputs, 8));
    takeover_between(&mut bench, 31.1, 31.6);
    assert_eq!(bench.write().base, v(8));
}

#[test]
fn who_lost_races_for_a_release_spreads_itself_and_who_wins_does_not() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    let mut waits = Vec::new();
    for round in 0..6u64 {
        let seconds = 1.0 + round as f64;
        let (version, term) = (10 + 10 * round, 4 + round);
        bench.watch(seconds, at(version, released(held("b", 15, term))));
        bench.run_until(seconds + 0.3);
        waits.push(bench.sent().since(t(seconds)));
        bench.answer(seconds + 0.3, Answer::LostRace);
        bench.watch(seconds + 0.4, at(version + 1, held("b", 15, term + 1)));
    }
    assert_eq!(waits[0], Duration::ZERO);
    assert!(waits[1] <= Duration::from_millis(32), "{waits:?}");
    assert!(waits.iter().all(|w| *w <= Timings::LARGEST_CROWD));
    assert!(
        waits[1..].iter().any(|w| *w > Duration::from_millis(32)),
        "{waits:?}"
    );

    bench.watch(8.0, at(90, released(held("b", 15, 10))));
    bench.run_until(8.3);
    bench.answer(8.3, written(91));
    bench.leave(9.0);
    bench.answer(9.0, written(92));
    bench.stand(9.1);
    bench.answer(9.1, Answer::Unavailable);
    bench.watch(9.2, at(93, held("b", 15, 12)));
    bench.watch(12.0, at(94, released(held("b", 15, 12))));
    assert_eq!(bench.sent(), t(12.0));
}

#[test]
fn who_lost_the_race_of_a_first_start_does_not_spread_itself() {
    let mut bench = Bench::shown(me(), absent(6));
    assert_eq!(bench.write().base, Base::Absent);
    bench.answer(0.1, Answer::LostRace);
    bench.watch(0.2, at(7, held("b", 15, 4)));
    bench.watch(1.0, at(8, released(held("b", 15, 4))));
    assert_eq!(bench.sent(), t(1.0));
}

#[test]
fn a_watch_that_died_silently_only_costs_a_lost_race() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    let outputs = bench.run_until(15.5);
    assert_eq!(bench.write().base, v(7));
    assert_eq!(elected(&outputs), None);
    bench.lose_race_unseen(15.5);
    let outputs = bench.answer(16.0, read(at(9, held("b", 15, 4))));
    assert_eq!(elected(&outputs), None);
    takeover_between(&mut bench, 31.0, 31.5);
}

#[test]
fn a_broken_watch_is_replaced_after_a_read_but_not_in_a_hot_loop() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.run_until(4.0);
    bench.break_watch(4.0);
    assert!(bench.is_reading());
    let outputs = bench.answer(4.0, read(at(7, held("b", 15, 4))));
    assert!(watches(&outputs, 7));

    bench.break_watch(4.0);
    bench.run_until(5.99);
    assert!(bench.is_idle());
    bench.run_until(6.4);
    assert!(bench.is_reading() && bench.sent() >= t(6.0));
}

#[test]
fn a_read_that_fails_is_tried_again_a_retry_period_after_it_began() {
    for failure in [Answer::Unavailable, Answer::Unknown] {
        let mut bench = Bench::new(me());
        bench.stand(0.0);
        bench.answer(0.5, failure);
        bench.run_until(1.99);
        assert!(bench.is_idle());
        bench.run_until(2.4);
        assert!(bench.is_reading());
    }
}

#[test]
fn a_refusal_is_reported_and_tried_again_at_the_retry_pace() {
    let mut bench = Bench::new(me());
    bench.stand(0.0);
    let op = bench.pending.as_ref().expect("the first read").op;
    let told = Output::Refused {
        op,
        for_good: false,
    };
    assert_eq!(bench.answer(0.1, Answer::Refused), [told]);
    bench.run_until(1.99);
    assert!(bench.is_idle());
    bench.run_until(2.4);
    assert!(bench.is_reading());
}

#[test]
fn a_store_that_asks_for_patience_gets_it() {
    let mut bench = Bench::new(me());
    bench.stand(0.0);
    let wait = Duration::from_secs(7);
    bench.answer(0.1, Answer::Throttled { wait });
    bench.run_until(7.0);
    assert!(bench.is_idle());
    bench.run_until(7.2);
    assert!(bench.is_reading());
}

fn gave_up(outputs: &[Output]) -> bool {
    let for_good = |o: &Output| matches!(o, Output::Refused { for_good: true, .. });
    outputs.iter().any(for_good)
}

#[test]
fn who_is_refused_from_the_start_gives_up_after_a_minute() {
    let mut bench = Bench::new(me());
    bench.stand(0.0);
    bench.answer(0.1, Answer::Refused);
    assert!(!gave_up(&bench.run_answering(60.0, &Answer::Refused)));
    assert!(gave_up(&bench.run_answering(63.0, &Answer::Refused)));
}

#[test]
fn who_may_read_but_was_never_allowed_to_write_gives_up_too() {
    let mut bench = Bench::shown(me(), absent(1));
    assert!(!gave_up(&bench.answer(0.1, Answer::Refused)));
    assert!(!gave_up(&bench.run_answering(60.0, &Answer::Refused)));
    assert!(gave_up(&bench.run_answering(63.0, &Answer::Refused)));
}

#[test]
fn who_has_written_before_never_gives_up() {
    let mut bench = Bench::shown(me(), absent(1));
    bench.answer(0.1, Answer::LostRace);
    assert!(!gave_up(&bench.run_answering(300.0, &Answer::Refused)));
}

#[test]
fn a_standby_that_has_read_for_a_minute_never_gives_up() {
    let mut bench = Bench::shown(me(), at(7, held("b", 90, 4)));
    bench.run_until(80.0);
    assert!(!gave_up(&bench.run_answering(300.0, &Answer::Refused)));
}

#[test]
fn a_takeover_that_certainly_failed_is_written_again_without_a_read() {
    let mut bench = Bench::shown(me(), absent(1));
    bench.answer(0.1, Answer::Unavailable);
    bench.run_until(2.4);
    assert!(bench.is_writing() && bench.sent() >= t(2.0));
}

#[test]
fn an_acquisition_answered_after_the_renew_deadline_is_no_term_but_is_acquired_anew() {
    let mut bench = Bench::shown(me(), absent(1));
    let outputs = bench.answer(10.0, written(2));
    assert_eq!(elected(&outputs), None);
    assert_eq!(bench.write().base, v(2));
    assert_eq!(bench.write().record.transitions, 1);
    let outputs = bench.answer(10.1, written(3));
    let elected = elected(&outputs).expect("elected");
    assert_eq!(elected.valid_until, t(25.0));
    assert_eq!((elected.token, elected.claim), (Token::new(3), Claim::Own));
}

#[test]
fn two_replicas_with_one_identity_are_two() {
    let twin = held("me", 15, 4);
    let mut bench = Bench::shown(me(), at(7, twin));
    takeover_between(&mut bench, 15.0, 15.5);
}

#[test]
fn a_record_that_is_touched_again_and_again_is_taken_when_its_holders_promise_is_over() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    for (seconds, version) in [(4.0, 8), (8.0, 9), (12.0, 10)] {
        bench.watch(seconds, at(version, held("b", 15, 4)));
    }
    takeover_between(&mut bench, 15.0, 15.5);

    // A renewal may lie between what was known and what a read shows.
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.break_watch(4.0);
    bench.run_until(7.0);
    assert!(bench.is_reading());
    bench.answer(8.0, read(at(9, held("b", 15, 4))));
    takeover_between(&mut bench, 23.0, 23.5);
}

#[test]
fn the_lease_of_the_former_container_of_this_pod_is_taken_back_at_once() {
    let pod = PodUid::new("uid-1");
    let former = held("me", 15, 4);
    let signature = former.signature.clone().map(|s| Signature {
        pod: pod.clone(),
        ..s
    });
    let former = Record {
        signature,
        ..former
    };
    let mut bench = Bench::shown(Config { pod, ..me() }, at(7, former.clone()));
    assert_eq!(bench.write().base, v(7));
    assert_eq!(bench.write().record.transitions, 5);
    assert_eq!(claimed(&mut bench, 0.1, 8), Claim::FormerSelf);

    for pod in [None, PodUid::new("uid-2")] {
        let mut other = Bench::shown(Config { pod, ..me() }, at(7, former.clone()));
        takeover_between(&mut other, 15.0, 15.5);
    }
}

#[test]
fn a_record_without_a_pod_is_not_taken_for_that_of_a_replica_without_one() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    takeover_between(&mut bench, 15.0, 15.5);
}

#[test]
fn ones_own_record_after_an_expired_term_is_acquired_at_once_as_a_new_term() {
    let mut bench = Bench::leading();
    assert_eq!(losses(&bench.wake(16.0)), [Loss::Expired]);
    assert!(bench.is_idle());
    bench.stand(17.0);
    assert_eq!(bench.write().base, v(2));
    assert_eq!(bench.write().record.transitions, 1);
    let outputs = bench.answer(17.1, written(3));
    let elected = elected(&outputs).expect("elected");
    assert_eq!((elected.term, elected.token), (Term::new(1), Token::new(3)));
    assert_eq!(elected.claim, Claim::Own);
}

#[test]
fn a_holder_that_is_provably_gone_is_succeeded_at_once() {
    let gone = Snapshot {
        holder_gone: true,
        ..at(7, held("b", 15, 4))
    };
    let mut bench = Bench::shown(me(), gone);
    assert_eq!(bench.write().base, v(7));
    assert_eq!(bench.write().record.transitions, 5);
    assert_eq!(claimed(&mut bench, 0.1, 8), Claim::HolderGone);
}

#[test]
fn a_holder_that_dies_without_a_new_version_is_succeeded_at_once() {
    let living = at(7, held("b", 15, 4));
    let gone = Snapshot {
        holder_gone: true,
        ..living.clone()
    };
    let mut bench = Bench::shown(me(), living);
    bench.watch(3.0, gone);
    assert_eq!((bench.sent(), bench.write().base), (t(3.0), v(7)));
}
