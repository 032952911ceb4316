//! What counts as a change, and what is told about it.

use super::*;

#[test]
fn every_new_holder_is_told_once() {
    let mut bench = Bench::new(me());
    bench.stand(0.0);
    let told = |outputs: &[Output]| {
        let holder = |o: &Output| match o {
            Output::Holder(holder) => Some(holder.clone()),
            _ => None,
        };
        outputs.iter().filter_map(holder).collect::<Vec<_>>()
    };
    let outputs = bench.answer(0.0, read(at(7, held("b", 15, 4))));
    assert_eq!(told(&outputs), [Some(name("b"))]);
    assert_eq!(told(&bench.watch(5.0, at(8, held("b", 15, 4)))), []);
    assert_eq!(
        told(&bench.watch(6.0, at(9, released(held("b", 15, 4))))),
        [None]
    );
    assert_eq!(told(&bench.answer(6.1, written(10))), [Some(name("me"))]);
    assert_eq!(bench.election.holder(), Some(&name("me")));
}

#[test]
fn a_watch_that_lags_behind_what_was_read_is_ignored() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.watch(1.0, at(6, released(held("a", 15, 3))));
    bench.watch(1.0, absent(5));
    assert!(bench.is_idle());
    assert_eq!(bench.election.holder(), Some(&name("b")));
}

#[test]
fn a_read_that_the_watch_overtook_is_ignored() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.run_until(15.5);
    bench.answer(15.6, Answer::Unknown);
    bench.run_until(17.9);
    assert!(bench.is_reading());
    bench.watch(17.9, at(8, renewed(held("b", 15, 4), 3)));
    bench.answer(17.9, read(at(6, released(held("a", 15, 3)))));
    assert!(bench.is_idle());
    bench.run_until(33.4);
    assert_eq!(bench.write().base, v(8));
}

#[test]
fn a_store_set_back_to_an_older_version_is_believed_when_it_is_read() {
    let mut bench = Bench::shown(me(), at(50, held("b", 15, 9)));
    bench.run_until(15.5);
    bench.lose_race_unseen(15.5);
    bench.answer(16.1, read(at(20, held("c", 15, 4))));
    assert!(bench.is_idle());
    assert_eq!(bench.election.holder(), Some(&name("c")));
    bench.run_until(31.09);
    assert!(bench.is_idle());
    bench.run_until(31.6);
    assert_eq!(bench.write().base, v(20));
}

#[test]
fn an_answer_to_nothing_that_was_asked_is_ignored() {
    let mut bench = Bench::new(me());
    bench.stand(0.0);
    let outputs = bench.late_answer(0.1, OpId::new(99), read(absent(1)));
    assert_eq!(outputs, []);
    assert!(bench.is_reading());
}

#[test]
fn an_answer_that_does_not_fit_its_request_proves_nothing() {
    let mut reading = Bench::new(me());
    reading.stand(0.0);
    assert_eq!(reading.answer(0.1, written(9)), []);
    reading.run_until(2.4);
    assert!(reading.is_reading());
    assert_eq!(reading.answer(2.5, Answer::LostRace), []);
    reading.run_until(4.9);
    assert!(reading.is_reading());

    let mut writing = Bench::shown(me(), absent(1));
    assert_eq!(elected(&writing.answer(0.1, read(absent(1)))), None);
    writing.run_until(2.4);
    assert!(writing.is_reading());
}

#[test]
fn nothing_is_asked_before_the_first_stand() {
    let bench = Bench::new(me());
    assert_eq!(bench.election.next_deadline(), None);
    assert!(bench.is_idle());
}
