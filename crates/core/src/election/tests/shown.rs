//! The watch shows a write of ours before it is answered.

use super::*;

/// A candidate that takes the lease over, which another one released as version 6.
fn taking_over() -> Bench {
    let mut bench = Bench::shown(me(), at(5, held("b", 15, 3)));
    bench.watch(1.0, at(6, released(held("b", 15, 3))));
    assert_eq!(bench.write().purpose, Purpose::Acquire);
    bench
}

fn its_write(bench: &Bench) -> Record {
    bench.write().record.clone()
}

#[test]
fn a_term_begins_when_the_watch_shows_its_write() {
    let mut bench = taking_over();
    let shown = at(7, its_write(&bench));
    let elected = elected(&bench.watch(1.5, shown)).expect("elected");
    assert_eq!(elected.token, Token::from(Version::new(7)));
    assert_eq!(elected.claim, Claim::Released);
    assert_eq!(bench.valid_until(), Some(t(16.0)), "from when it was sent");
}

#[test]
fn its_answer_then_changes_nothing() {
    for answer in [
        written(7),
        Answer::Unknown,
        Answer::Unavailable,
        Answer::LostRace,
        Answer::Refused,
    ] {
        let mut bench = taking_over();
        bench.watch(1.5, at(7, its_write(&bench)));
        assert_eq!(bench.answer(2.0, answer), []);
        bench.run_until(6.0);
        assert_eq!(bench.write().purpose, Purpose::Renew);
        assert_eq!((bench.sent(), bench.write().base), (t(6.0), v(7)));
    }
}

#[test]
fn an_answer_that_never_comes_costs_nothing() {
    let mut bench = taking_over();
    bench.watch(1.5, at(7, its_write(&bench)));
    let outputs = bench.run_until(6.0);
    assert_eq!(losses(&outputs), []);
    assert_eq!(bench.write().purpose, Purpose::Renew);
}

#[test]
fn a_term_does_not_begin_by_an_earlier_write_of_ours() {
    let mut bench = taking_over();
    let first = its_write(&bench);
    bench.answer(1.2, Answer::Unknown);
    bench.run_until(4.0);
    bench.answer(4.0, Answer::Read(at(6, released(held("b", 15, 3)))));
    assert_ne!(its_write(&bench), first);
    let outputs = bench.watch(4.5, at(7, first));
    assert_eq!(elected(&outputs), None);
    assert_eq!(bench.valid_until(), None);
}

#[test]
fn a_term_does_not_begin_by_what_another_hand_has_changed() {
    let mut bench = taking_over();
    let touched = Record {
        duration_seconds: Some(1),
        ..its_write(&bench)
    };
    assert_eq!(elected(&bench.watch(1.5, at(8, touched))), None);
}

#[test]
fn a_term_does_not_begin_when_its_write_is_shown_too_late() {
    let mut bench = taking_over();
    let shown = at(7, its_write(&bench));
    // Nobody could wake us before.
    bench.election.handle_watch(t(11.0), bench.watch, shown);
    assert_eq!(elected(&bench.wake(11.0)), None);
}

#[test]
fn a_renewal_that_is_shown_extends_the_term() {
    let mut bench = Bench::leading();
    bench.run_until(5.0);
    let shown = at(3, its_write(&bench));
    assert_eq!(extended(&bench.watch(5.2, shown)), Some(t(20.0)));
    assert_eq!(bench.answer(5.4, written(3)), []);
}

#[test]
fn a_release_that_is_shown_is_the_end() {
    let mut bench = Bench::leading();
    bench.resign(1.0);
    bench.leave(2.0);
    assert_eq!(bench.write().purpose, Purpose::Release);
    let shown = at(3, its_write(&bench));
    assert!(bench.watch(2.1, shown).contains(&Output::Left));
}
