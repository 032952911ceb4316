//! Time without a working child, by what caused it.

use std::fmt;

use crate::clock::{MILLI, Nanos};
use crate::world::World;

/// Why no child works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A stop signal or a handover, and nothing else wrong.
    CalmHandover,
    /// soloist was killed, and nothing else wrong.
    CalmCrash,
    /// A stop signal or a handover.
    PlannedHandover,
    /// soloist, its guard or the host died.
    Crash,
    /// The leader could not renew its lease.
    CutOff,
    /// The record was deleted, edited or set back.
    RecordEdited,
    /// A request was swallowed.
    StalledRequest,
    /// The child crashed, was not well or could not be started.
    FailingChild,
    /// The host was frozen or paused.
    Frozen,
}

impl Cause {
    const ALL: [Self; 9] = [
        Self::CalmHandover,
        Self::CalmCrash,
        Self::PlannedHandover,
        Self::Crash,
        Self::CutOff,
        Self::RecordEdited,
        Self::StalledRequest,
        Self::FailingChild,
        Self::Frozen,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::CalmHandover => "planned handover, nothing else wrong",
            Self::CalmCrash => "crash of the leader, nothing else wrong",
            Self::PlannedHandover => "planned handover",
            Self::Crash => "crash of soloist, guard or node",
            Self::CutOff => "leader cut off from the store",
            Self::RecordEdited => "record deleted, edited or set back",
            Self::StalledRequest => "one stalled request",
            Self::FailingChild => "failing child",
            Self::Frozen => "frozen or paused host",
        }
    }
}

/// Buckets of a histogram: eight for every doubling, from a tenth of a millisecond.
const BUCKETS: usize = 192;
const FIRST: f64 = 100_000.0;
const PER_DOUBLING: f64 = 8.0;

/// How long the gaps of one cause were.
#[derive(Clone)]
struct Lengths {
    count: u64,
    worst: Nanos,
    buckets: [u32; BUCKETS],
}

/// The gaps of many schedules.
#[derive(Clone)]
pub struct Gaps(Vec<Lengths>);

impl Default for Gaps {
    fn default() -> Self {
        let none = Lengths {
            count: 0,
            worst: 0,
            buckets: [0; BUCKETS],
        };
        Self(vec![none; Cause::ALL.len()])
    }
}

impl Gaps {
    /// One more.
    pub(crate) fn add(&mut self, cause: Cause, length: Nanos) {
        let lengths = &mut self.0[cause as usize];
        lengths.count += 1;
        lengths.worst = lengths.worst.max(length);
        let bucket = ((length as f64 / FIRST).log2() * PER_DOUBLING).max(0.0) as usize;
        lengths.buckets[bucket.min(BUCKETS - 1)] += 1;
    }

    /// Takes in those of others.
    pub fn merge(&mut self, other: &Self) {
        for (here, there) in self.0.iter_mut().zip(&other.0) {
            here.count += there.count;
            here.worst = here.worst.max(there.worst);
            for (sum, number) in here.buckets.iter_mut().zip(there.buckets) {
                *sum += number;
            }
        }
    }
}

impl Lengths {
    /// The upper end of the bucket in which this part of all gaps ends.
    fn quantile(&self, part: f64) -> Nanos {
        let rank = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (bucket, number) in self.buckets.iter().enumerate() {
            seen += u64::from(*number);
            if seen >= rank {
                let end = FIRST * ((bucket + 1) as f64 / PER_DOUBLING).exp2();
                return (end as Nanos).min(self.worst);
            }
        }
        self.worst
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "time without a working child, by cause{:>11} {:>10} {:>10} {:>10}",
            "n", "median", "99 %", "worst"
        )?;
        for cause in Cause::ALL {
            let lengths = &self.0[cause as usize];
            let millis = |length: Nanos| format!("{:.1} ms", length as f64 / MILLI as f64);
            writeln!(
                f,
                "  {:<40}{:>7} {:>10} {:>10} {:>10}",
                cause.text(),
                lengths.count,
                millis(lengths.quantile(0.5)),
                millis(lengths.quantile(0.99)),
                millis(lengths.worst)
            )?;
        }
        Ok(())
    }
}

/// What the measurement remembers.
#[derive(Default)]
pub(crate) struct GapMeter {
    working: Option<Worker>,
    gap: Option<(Nanos, Cause)>,
    /// All gaps since the last probe began.
    pub(crate) since_probe: Nanos,
}

/// Whose child works.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worker {
    Tree(usize),
    ClientGo,
}

impl World {
    /// After every step: does a child work?
    pub(crate) fn measure_gap(&mut self) {
        let works = |t: &&usize| {
            let tree = &self.trees[**t];
            tree.works() && !self.hosts[tree.host].frozen()
        };
        let now_working = match self.living.iter().find(works) {
            Some(tree) => Some(Worker::Tree(*tree)),
            None => self.client_go_works().then_some(Worker::ClientGo),
        };
        match (self.gaps.working, now_working) {
            (Some(worker), None) => {
                let cause = self.cause_of_end(worker);
                self.gaps.gap = Some((self.now, cause));
            }
            (None, Some(_)) => {
                if let Some((since, cause)) = self.gaps.gap.take() {
                    let length = self.now - since;
                    self.gaps.since_probe += length;
                    self.summary.gaps.add(cause, length);
                }
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        self.gaps.working = now_working;
    }

    fn cause_of_end(&self, worker: Worker) -> Cause {
        let Worker::Tree(tree) = worker else {
            return Cause::Crash;
        };
        let here = &self.trees[tree];
        let cause = match here.end_cause {
            _ if self.hosts[here.host].frozen() => Cause::Frozen,
            Some(cause) => cause,
            None if self.soloist(here.host, here.soloist).is_none() => Cause::Crash,
            None => Cause::FailingChild,
        };
        match (self.is_probing() && !here.is_flawed(), cause) {
            (true, Cause::PlannedHandover) => Cause::CalmHandover,
            (true, Cause::Crash) => Cause::CalmCrash,
            (_, cause) => cause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_tenth() {
        let mut gaps = Gaps::default();
        for millis in 1..=1000 {
            gaps.add(Cause::Crash, millis * MILLI);
        }
        let lengths = &gaps.0[Cause::Crash as usize];
        let near = |length: Nanos, millis: u64| {
            length >= millis * MILLI && length <= (millis + millis / 10) * MILLI
        };
        assert!(near(lengths.quantile(0.5), 500));
        assert!(near(lengths.quantile(0.99), 990));
        assert_eq!(lengths.worst, 1000 * MILLI);
    }
}
