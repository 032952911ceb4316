//! One schedule from beginning to end.

use std::fmt;

use crate::check::Violation;
use crate::clock::MILLI;
use crate::summary::{Counter, Summary, Without};
use crate::world::World;

/// How to play a schedule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep a timeline.
    pub trace: bool,
    /// Kinds of fault to leave out.
    pub without: Without,
}

/// A schedule that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Plays it again.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
    /// After how many virtual milliseconds.
    pub at_millis: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: at {}.{:03} s: {}",
            self.seed,
            self.at_millis / 1000,
            self.at_millis % 1000,
            self.violation
        )
    }
}

/// What a schedule came to.
pub struct Played {
    /// What it hit.
    pub summary: Summary,
    /// What it broke, if it did.
    pub failure: Option<Failure>,
    /// Its timeline, if one was asked for.
    pub trace: Vec<String>,
}

/// Plays the schedule of this seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Played {
    let mut world = World::new(seed, options);
    let failure = loop {
        match world.step() {
            Ok(true) => {}
            Ok(false) => break None,
            Err(violation) => {
                break Some(Failure {
                    seed,
                    violation,
                    at_millis: world.now / MILLI,
                });
            }
        }
    };
    world.summary.count(Counter::Schedules);
    world.summary.add(Counter::VirtualMillis, world.now / MILLI);
    Played {
        summary: world.summary,
        failure,
        trace: world.trace.into_lines(),
    }
}
