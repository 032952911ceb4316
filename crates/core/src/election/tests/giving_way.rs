//! Who will soon end lets the others go first.

use super::*;

/// A candidate whose end is near, and who saw another hold the lease at 0.
fn leaving(record: Record) -> Bench {
    let mut bench = Bench::shown(me(), at(7, record));
    bench.election.give_way(true);
    bench
}

fn other() -> Record {
    held("b", 15, 4)
}

fn released_to_me() -> Record {
    let record = released(other());
    let named = |s| Signature {
        heir: Some(name("me")),
        ..s
    };
    Record {
        signature: record.signature.map(named),
        ..record
    }
}

#[test]
fn who_will_soon_end_takes_a_released_lease_only_if_nobody_else_does_for_a_third_of_it() {
    let mut bench = leaving(other());
    bench.watch(1.0, at(8, released(other())));
    bench.run_until(5.9);
    assert!(bench.is_idle());
    bench.run_until(6.1);
    assert_eq!(bench.write().purpose, Purpose::Acquire);
}

#[test]
fn who_will_soon_end_does_not_take_what_another_one_has_taken() {
    let mut bench = leaving(other());
    bench.watch(1.0, at(8, released(other())));
    bench.watch(1.1, at(9, held("c", 15, 5)));
    bench.run_until(16.0);
    assert!(bench.is_idle());
}

#[test]
fn who_will_soon_end_waits_longer_for_a_lease_that_expires() {
    let mut bench = leaving(other());
    bench.run_until(19.9);
    assert!(bench.is_idle());
    bench.run_until(21.5);
    assert!(bench.is_writing());
}

#[test]
fn an_end_that_does_not_come_puts_nothing_off_any_more() {
    let mut bench = leaving(other());
    bench.watch(1.0, at(8, released(other())));
    bench.election.give_way(false);
    bench.run_until(1.1);
    assert!(bench.is_writing());
}

#[test]
fn what_is_released_to_us_is_taken_also_if_we_will_soon_end() {
    let mut bench = leaving(other());
    bench.watch(1.0, at(8, released_to_me()));
    assert_eq!(bench.sent(), t(1.0));
    assert!(bench.is_writing());
}

#[test]
fn what_our_former_container_held_is_taken_also_if_we_will_soon_end() {
    let pod = PodUid::new("uid").expect("a uid");
    let config = Config {
        pod: Some(pod.clone()),
        ..me()
    };
    let mut bench = Bench::new(config);
    bench.election.give_way(true);
    bench.stand(0.0);
    let mine = held("b", 15, 4);
    let signature = mine.signature.map(|s| Signature {
        pod: Some(pod),
        ..s
    });
    bench.answer(0.0, read(at(7, Record { signature, ..mine })));
    assert!(bench.is_writing());
}

#[test]
fn the_first_lease_of_all_is_left_to_the_others_too() {
    let mut bench = Bench::new(me());
    bench.election.give_way(true);
    bench.stand(0.0);
    bench.answer(0.0, read(absent(1)));
    assert!(bench.is_idle());
    bench.run_until(5.1);
    assert!(bench.is_writing());
}
