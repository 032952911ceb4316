//! Unbroken, nothing is found; and a seed plays the same schedule every time.

use sim::summary::{Counter, Without};
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
    assert!(hit >= 15, "{}: only {hit}", rarest.text());
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
        Counter::ClientGoTerms,
        Counter::ClientGoReleases,
        Counter::ProbeHandover,
        Counter::ProbeCrash,
        Counter::ProbeStalledRequest,
        Counter::JobsDone,
    ] {
        assert!(summary.get(claim) > 0, "never seen: {}", claim.text());
    }
}

/// A case that is excused and never comes up is not known to be bounded.
#[test]
fn every_case_that_is_not_promised_comes_up() {
    let mut summary = Summary::default();
    for seed in 0..6_000 {
        summary.merge(&run(seed, Options::default()).summary);
    }
    for excuse in [
        Counter::ExcusedBothStopped,
        Counter::ExcusedThaw,
        Counter::ExcusedDeletion,
        Counter::ExcusedSetBack,
        Counter::ExcusedPause,
        Counter::ExcusedStall,
        Counter::ExcusedGraceful,
        Counter::ExcusedClientGo,
    ] {
        assert!(summary.get(excuse) > 0, "never seen: {}", excuse.text());
    }
}

#[test]
fn a_fault_that_is_left_out_does_not_happen() {
    let left_out = [Counter::StoreSetBack, Counter::ClientGo, Counter::Once];
    let options = Options {
        without: left_out.into_iter().fold(Without::default(), Without::and),
        ..Options::default()
    };
    let mut summary = Summary::default();
    for seed in 0..200 {
        summary.merge(&run(seed, options).summary);
    }
    for fault in left_out {
        assert_eq!(summary.get(fault), 0, "{}", fault.text());
    }
    assert!(summary.get(Counter::LeaseDeleted) > 0);
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
