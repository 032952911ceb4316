//! Unbroken, nothing is found; and a seed plays the same schedule every time.

use sim::summary::Counter;
use sim::{Options, Summary, corpus, run};

#[test]
fn three_thousand_schedules_break_no_rule_and_hit_every_fault() {
    let mut summary = Summary::default();
    for seed in 0..3_000 {
        let played = run(seed, Options::default());
        assert!(played.failure.is_none(), "{}", played.failure.unwrap());
        summary.merge(&played.summary);
    }
    let (rarest, hit) = summary.rarest_fault();
    assert!(hit >= 30, "{}: only {hit}", rarest.text());
    for claim in [
        Counter::ClaimFirstSight,
        Counter::ClaimReleased,
        Counter::ClaimExpired,
        Counter::ClaimWaitedOut,
        Counter::ClaimOwn,
        Counter::ClaimFormerSelf,
        Counter::ClaimHolderGone,
        Counter::KillsBySoloist,
        Counter::KillsByGuard,
    ] {
        assert!(summary.get(claim) > 0, "never seen: {}", claim.text());
    }
}

#[test]
fn the_corpus_breaks_no_rule() {
    let mut played = 0;
    for seed in corpus::seeds() {
        let failure = run(seed, Options::default()).failure;
        assert!(failure.is_none(), "{}", failure.unwrap());
        played += 1;
    }
    assert!(played >= 30, "the corpus has only {played} seeds");
}

#[test]
fn a_seed_plays_the_same_schedule_every_time() {
    let options = Options {
        trace: true,
        ..Options::default()
    };
    for seed in [0, 7, 4_711] {
        let (first, second) = (run(seed, options), run(seed, options));
        assert!(first.trace.len() > 5);
        assert_eq!(first.trace, second.trace);
    }
    assert_ne!(run(1, options).trace, run(2, options).trace);
}
