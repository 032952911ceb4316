//! What people order.

use super::*;
use crate::orders::{Handover, OrderRefusal, Ordered, Pause, WallTime};

fn handover(term: u64, to: Option<&str>) -> Orders {
    Orders {
        handover: Some(
            Handover {
                term: Term::new(term),
                to: to.map(name),
            }
            .into(),
        ),
        pause: None,
    }
}

fn paused(stop: bool, until: Option<u64>) -> Orders {
    Orders {
        handover: None,
        pause: Some(Pause {
            stop,
            until: until.map(WallTime::from_unix_seconds),
        }),
    }
}

fn with(orders: Orders, record: Record) -> Record {
    Record { orders, ..record }
}

/// Leads in term 0 as version 2, and what it wrote.
fn leading() -> (Bench, Record) {
    let mut bench = Bench::shown(me(), absent(1));
    let mine = bench.write().record.clone();
    bench.answer(0.0, written(2));
    (bench, mine)
}

fn released_to(heir: &str, record: Record) -> Record {
    let record = released(record);
    let signature = record.signature.map(|s| Signature {
        heir: Some(name(heir)),
        ..s
    });
    Record {
        signature,
        ..record
    }
}

fn ordered(outputs: &[Output]) -> Vec<Output> {
    let of_orders = |o: &&Output| {
        matches!(
            o,
            Output::Ordered(_) | Output::OrderRefused(_) | Output::Paused(_)
        )
    };
    outputs.iter().filter(of_orders).cloned().collect()
}

#[test]
fn a_handover_for_this_term_is_told_once_and_its_heir_is_named_in_the_release() {
    let (mut bench, mine) = leading();
    let order = with(handover(0, Some("b")), mine);
    let outputs = bench.watch(1.0, at(3, order.clone()));
    let obeyed = Output::Ordered(Ordered::Handover(Some(name("b"))));
    assert_eq!(ordered(&outputs), [obeyed]);
    bench.resign(1.0);
    assert_eq!(ordered(&bench.watch(2.0, at(4, order))), []);
    // It drains: renewals keep the order.
    bench.run_until(6.0);
    assert_eq!(bench.write().record.orders, handover(0, Some("b")));
    assert_eq!(ordered(&bench.answer(6.1, written(5))), []);
    bench.leave(7.0);
    let release = bench.write().record.clone();
    assert!(release.released_by_its_holder());
    assert_eq!(release.signature.expect("signed").heir, Some(name("b")));
    assert_eq!(release.orders, Orders::NONE);
}

#[test]
fn an_earlier_order_of_the_term_is_not_obeyed_again() {
    let (mut bench, mine) = leading();
    let first = with(handover(0, None), mine.clone());
    let second = with(handover(0, Some("b")), mine);
    assert_eq!(ordered(&bench.watch(1.0, at(3, first.clone()))).len(), 1);
    bench.resign(1.0);
    assert_eq!(ordered(&bench.watch(2.0, at(4, second))).len(), 1);
    assert_eq!(ordered(&bench.watch(3.0, at(5, first))), []);
    bench.leave(4.0);
    let release = bench.write().record.clone();
    assert_eq!(release.signature.expect("signed").heir, Some(name("b")));
}

#[test]
fn a_handover_for_another_term_or_to_the_leader_itself_is_refused() {
    for (order, refusal) in [
        (
            handover(7, None),
            OrderRefusal::AnotherTerm {
                ordered: Term::new(7),
                term: Term::new(0),
            },
        ),
        (handover(0, Some("me")), OrderRefusal::ToItself(name("me"))),
    ] {
        let (mut bench, mine) = leading();
        let outputs = bench.watch(1.0, at(3, with(order.clone(), mine.clone())));
        assert_eq!(ordered(&outputs), [Output::OrderRefused(refusal)]);
        assert_eq!(ordered(&bench.watch(2.0, at(4, with(order, mine)))), []);
    }
}

#[test]
fn a_term_begins_without_the_orders_that_were_there_before() {
    let free = with(handover(5, Some("b")), released(held("b", 15, 4)));
    let mut bench = Bench::shown(me(), at(7, free));
    assert_eq!(bench.write().record.transitions, 5);
    assert_eq!(bench.write().record.orders, Orders::NONE);
    let outputs = bench.answer(0.1, written(8));
    assert!(elected(&outputs).is_some());
    assert_eq!(ordered(&outputs), []);
}

#[test]
fn the_others_let_the_heir_go_first_for_a_third_of_the_lease() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.watch(1.0, at(8, released_to("c", held("b", 15, 4))));
    bench.run_until(5.9);
    assert!(bench.is_idle());
    // Who touches the record does not put us off.
    bench.watch(5.9, at(9, released_to("c", held("b", 15, 4))));
    bench.run_until(6.0);
    assert!(bench.is_writing());
    assert_eq!(bench.sent(), t(6.0));
}

#[test]
fn the_heir_takes_over_at_once() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.watch(1.0, at(8, released_to("me", held("b", 15, 4))));
    assert_eq!(bench.sent(), t(1.0));
    assert_eq!(bench.write().purpose, Purpose::Acquire);
}

#[test]
fn an_heir_that_does_not_stand_is_told_once_that_it_is_wanted() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.leave(0.5);
    let release = released_to("me", held("b", 15, 4));
    let outputs = bench.watch(1.0, at(8, release.clone()));
    assert!(outputs.contains(&Output::NamedHeir));
    let outputs = bench.watch(1.1, at(9, release));
    assert!(!outputs.contains(&Output::NamedHeir));
    bench.stand(1.2);
    assert!(bench.is_writing());
}

#[test]
fn an_heir_that_has_led_and_released_holds_nobody_back() {
    let mut bench = Bench::shown(me(), at(7, held("b", 15, 4)));
    bench.watch(1.0, at(8, released_to("c", held("b", 15, 4))));
    bench.watch(1.1, at(9, held("c", 15, 5)));
    bench.watch(1.2, at(10, released(held("c", 15, 5))));
    assert!(bench.is_writing());
}

#[test]
fn who_released_to_an_heir_lets_it_go_first_too() {
    let (mut bench, mine) = leading();
    bench.watch(1.0, at(3, with(handover(0, Some("b")), mine)));
    bench.resign(1.0);
    bench.leave(1.0);
    bench.stand(1.0);
    bench.answer(1.1, written(4));
    bench.run_until(6.0);
    assert!(bench.is_idle());
    bench.run_until(6.2);
    assert!(bench.is_writing());
}

#[test]
fn nobody_takes_over_in_a_pause_and_somebody_does_at_its_end() {
    let free = released(held("b", 15, 4));
    for record in [held("b", 15, 4), free] {
        let paused = with(paused(false, None), record.clone());
        let mut bench = Bench::shown(me(), at(7, paused.clone()));
        let mut looks = 0;
        for second in 1..100 {
            bench.run_until(f64::from(second));
            if !bench.is_idle() {
                assert!(bench.is_reading(), "it only looks");
                looks += 1;
                bench.answer(f64::from(second), read(at(7, paused.clone())));
            }
        }
        assert_eq!(looks, 6, "once a lease");
        let resumed = Record {
            orders: Orders::NONE,
            ..record
        };
        let outputs = bench.watch(100.0, at(8, resumed));
        assert!(ordered(&outputs).contains(&Output::Paused(None)));
        bench.run_until(100.5);
        assert!(bench.is_writing());
    }
}

#[test]
fn a_pause_ends_by_itself_when_our_clock_has_counted_what_was_left_of_it() {
    let free = with(paused(false, Some(1_000_060)), released(held("b", 15, 4)));
    let received = WallTime::from_unix_seconds(1_000_030);
    let mut bench = Bench::shown(me(), at(7, free.clone()).received_at(received));
    let looked = bench.run_until(15.0);
    assert_eq!(ordered(&looked), []);
    // Whatever the wall clock says later.
    let later = WallTime::from_unix_seconds(5);
    bench.answer(15.0, read(at(7, free.clone()).received_at(later)));
    bench.watch(20.0, at(8, free).received_at(later));
    bench.run_until(29.9);
    assert!(bench.is_idle());
    let outputs = bench.run_until(30.1);
    assert!(ordered(&outputs).contains(&Output::Paused(None)));
    assert!(bench.is_writing());
    assert_eq!(bench.write().record.orders, Orders::NONE);
}

#[test]
fn a_leader_goes_on_in_a_pause_and_obeys_no_handover_in_it() {
    let (mut bench, mine) = leading();
    bench.watch(1.0, at(3, with(paused(false, None), mine.clone())));
    bench.run_until(5.0);
    assert_eq!(bench.write().purpose, Purpose::Renew);
    assert_eq!(bench.write().record.orders, paused(false, None));
    let mine = bench.write().record.clone();
    bench.answer(5.1, written(4));
    let both = Orders {
        handover: handover(0, None).handover,
        ..paused(false, None)
    };
    let outputs = bench.watch(6.0, at(5, with(both, mine)));
    assert_eq!(
        ordered(&outputs),
        [Output::OrderRefused(OrderRefusal::Paused)]
    );
}

#[test]
fn a_pause_that_stops_is_told_to_the_leader_once() {
    let (mut bench, mine) = leading();
    let stop = with(paused(true, None), mine);
    let outputs = bench.watch(1.0, at(3, stop.clone()));
    assert!(ordered(&outputs).contains(&Output::Ordered(Ordered::Stop)));
    bench.resign(1.0);
    assert_eq!(ordered(&bench.watch(1.5, at(4, stop))), []);
    bench.leave(2.0);
    assert_eq!(bench.write().record.orders, paused(true, None));
    bench.stand(2.0);
    bench.answer(2.1, written(5));
    bench.run_until(10.0);
    assert!(!bench.is_writing());
}
