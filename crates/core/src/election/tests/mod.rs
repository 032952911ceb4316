//! One election, driven by hand. Times are seconds since boot.

mod candidate;
mod doubt;
mod giving_way;
mod leader;
mod leaving;
mod orders;
mod random;
mod shown;
mod sighting;
mod vanished;
mod verdicts;

use core::time::Duration;
use std::vec::Vec;

use super::{
    Answer, Base, Claim, Config, Elected, Election, Identity, InstanceId, Loss, OpId, Output,
    PodUid, Purpose, Record, Snapshot, StoreCommand, Term, Token, Version, WatchId,
};
use crate::orders::Orders;
use crate::record::Signature;
use crate::time::Moment;
use crate::timings::{LeaseDuration, Preset, Timings};

const MY_INSTANCE: InstanceId = InstanceId::from_random(0);

fn t(seconds: f64) -> Moment {
    Moment::since_boot(Duration::from_secs_f64(seconds))
}

fn name(text: &str) -> Identity {
    Identity::try_new(text).expect("a valid name")
}

fn v(version: u64) -> Base {
    Base::Version(Version::new(version))
}

/// The replica under test: lease 15 s, renew deadline 10 s, retry 2 s.
fn me() -> Config {
    Config {
        identity: name("me"),
        instance: MY_INSTANCE,
        pod: None,
        timings: Timings::preset(Preset::Standard),
        seed: 1,
    }
}

/// A record that another soloist holds. Every name is another process, also if it is `me`.
fn held(by: &str, seconds: u32, transitions: u64) -> Record {
    let duration = LeaseDuration::try_new(Duration::from_secs(seconds.into()));
    Record {
        holder: Some(name(by)),
        duration_seconds: Some(seconds.into()),
        transitions,
        signature: Some(Signature {
            instance: InstanceId::from_random(by.bytes().map(u128::from).sum()),
            pod: None,
            holder: name(by),
            term: Term::new(transitions),
            duration: duration.expect("a valid duration"),
            write: OpId::new(2),
            // As if it had just been written.
            base: Version::new(u64::MAX),
            released: false,
            heir: None,
        }),
        orders: Orders::NONE,
    }
}

/// The same holder's later write.
fn renewed(record: Record, write: u64) -> Record {
    let signature = record.signature.map(|s| Signature {
        write: OpId::new(write),
        ..s
    });
    Record {
        signature,
        ..record
    }
}

/// A record that client-go holds.
fn unsigned(by: &str, seconds: i64, transitions: u64) -> Record {
    Record {
        holder: Some(name(by)),
        duration_seconds: Some(seconds),
        transitions,
        signature: None,
        orders: Orders::NONE,
    }
}

/// The record after its holder's own release.
fn released(record: Record) -> Record {
    let signature = record.signature.expect("only a soloist signs a release");
    Record {
        holder: None,
        duration_seconds: Some(1),
        signature: Some(Signature {
            released: true,
            ..signature
        }),
        ..record
    }
}

/// The record after somebody cleared its holder by hand.
fn emptied(record: Record) -> Record {
    Record {
        holder: None,
        ..record
    }
}

fn at(version: u64, record: Record) -> Snapshot {
    Snapshot::new(Version::new(version), Some(record))
}

fn absent(version: u64) -> Snapshot {
    Snapshot::new(Version::new(version), None)
}

fn elected(outputs: &[Output]) -> Option<Elected> {
    outputs.iter().find_map(|output| match output {
        Output::Elected(elected) => Some(*elected),
        _ => None,
    })
}

fn losses(outputs: &[Output]) -> Vec<Loss> {
    let loss = |output: &Output| match output {
        Output::Lost(loss) => Some(loss.clone()),
        _ => None,
    };
    outputs.iter().filter_map(loss).collect()
}

fn extended(outputs: &[Output]) -> Option<Moment> {
    outputs.iter().find_map(|output| match output {
        Output::Extended { valid_until } => Some(*valid_until),
        _ => None,
    })
}

fn watches(outputs: &[Output], after: u64) -> bool {
    let after = Version::new(after);
    let watched = |output: &Output| matches!(output, Output::Store(StoreCommand::Watch { after: at, .. }) if *at == after);
    outputs.iter().any(watched)
}

#[derive(Clone, Debug)]
struct Write {
    base: Base,
    record: Record,
    purpose: Purpose,
}

#[derive(Clone, Debug)]
struct Pending {
    op: OpId,
    sent: Moment,
    write: Option<Write>,
}

/// An election and the one request that it has under way. Every call gives what it put out.
struct Bench {
    election: Election,
    pending: Option<Pending>,
    watch: WatchId,
}

impl Bench {
    fn new(config: Config) -> Self {
        Self {
            election: Election::new(config),
            pending: None,
            watch: WatchId::new(0),
        }
    }

    /// Stood at 0 and was shown this at once.
    fn shown(config: Config, snapshot: Snapshot) -> Self {
        let mut bench = Self::new(config);
        bench.stand(0.0);
        bench.answer(0.0, Answer::Read(snapshot));
        bench
    }

    /// Leads since 0, when it created the record as version 2.
    fn leading() -> Self {
        let mut bench = Self::shown(me(), absent(1));
        let outputs = bench.answer(0.0, Answer::Written(Version::new(2)));
        assert!(elected(&outputs).is_some());
        bench
    }

    fn stand(&mut self, seconds: f64) -> Vec<Output> {
        self.election.stand(t(seconds));
        self.collect(t(seconds))
    }

    fn resign(&mut self, seconds: f64) -> Vec<Output> {
        self.election.resign(t(seconds));
        self.collect(t(seconds))
    }

    fn leave(&mut self, seconds: f64) -> Vec<Output> {
        self.election.leave(t(seconds));
        self.collect(t(seconds))
    }

    /// Answers the request under way.
    fn answer(&mut self, seconds: f64, answer: Answer) -> Vec<Output> {
        let pending = self.pending.take().expect("a request under way");
        self.late_answer(seconds, pending.op, answer)
    }

    /// The write under way lost a race, and the watch does not tell to whom: after half a second it is read.
    fn lose_race_unseen(&mut self, seconds: f64) {
        self.answer(seconds, Answer::LostRace);
        assert!(self.is_idle(), "the watch may tell");
        self.run_until(seconds + 0.5);
        assert!(self.is_reading() && self.sent() == t(seconds + 0.5));
    }

    fn late_answer(&mut self, seconds: f64, op: OpId, answer: Answer) -> Vec<Output> {
        self.election.handle_answer(t(seconds), op, answer);
        self.collect(t(seconds))
    }

    fn watch(&mut self, seconds: f64, snapshot: Snapshot) -> Vec<Output> {
        self.election.handle_watch(t(seconds), self.watch, snapshot);
        self.collect(t(seconds))
    }

    fn break_watch(&mut self, seconds: f64) -> Vec<Output> {
        self.election.handle_watch_broken(t(seconds), self.watch);
        self.collect(t(seconds))
    }

    /// Time passes, and every deadline is kept.
    fn run_until(&mut self, seconds: f64) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(due) = self.election.next_deadline()
            && due <= t(seconds)
        {
            self.election.handle_timeout(due);
            outputs.extend(self.collect(due));
        }
        outputs
    }

    /// Time passes while this process is stopped: it wakes only now.
    fn wake(&mut self, seconds: f64) -> Vec<Output> {
        self.election.handle_timeout(t(seconds));
        self.collect(t(seconds))
    }

    /// Time passes, and every request is answered at once with this.
    fn run_answering(&mut self, seconds: f64, answer: &Answer) -> Vec<Output> {
        let mut outputs = Vec::new();
        loop {
            while let Some(pending) = self.pending.take() {
                self.election
                    .handle_answer(pending.sent, pending.op, answer.clone());
                outputs.extend(self.collect(pending.sent));
            }
            match self.election.next_deadline() {
                Some(due) if due <= t(seconds) => {
                    self.election.handle_timeout(due);
                    outputs.extend(self.collect(due));
                }
                _ => return outputs,
            }
        }
    }

    fn collect(&mut self, now: Moment) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(output) = self.election.poll_output() {
            let request = match &output {
                Output::Store(StoreCommand::Read { op }) => Some((*op, None)),
                Output::Store(StoreCommand::Write {
                    op,
                    base,
                    record,
                    purpose,
                }) => Some((
                    *op,
                    Some(Write {
                        base: *base,
                        record: record.clone(),
                        purpose: *purpose,
                    }),
                )),
                Output::Store(StoreCommand::Watch { watch, .. }) => {
                    self.watch = *watch;
                    None
                }
                Output::Store(StoreCommand::Abandon { op }) => {
                    let abandoned = self.pending.take().map(|p| p.op);
                    assert_eq!(abandoned, Some(*op), "abandons what is under way");
                    None
                }
                _ => None,
            };
            if let Some((op, write)) = request {
                let sent = now;
                let before = self.pending.replace(Pending { op, sent, write });
                assert!(before.is_none(), "two requests under way");
            }
            outputs.push(output);
        }
        let next = self.election.next_deadline();
        assert!(next.is_none_or(|due| due > now), "due {next:?} at {now:?}");
        outputs
    }

    fn sent(&self) -> Moment {
        self.pending.as_ref().expect("a request under way").sent
    }

    fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    fn is_reading(&self) -> bool {
        self.pending.as_ref().is_some_and(|p| p.write.is_none())
    }

    fn is_writing(&self) -> bool {
        self.pending.as_ref().is_some_and(|p| p.write.is_some())
    }

    /// The write under way.
    fn write(&self) -> &Write {
        let pending = self.pending.as_ref().expect("a request under way");
        pending.write.as_ref().expect("a write")
    }

    fn valid_until(&self) -> Option<Moment> {
        self.election.tenure().map(super::Tenure::valid_until)
    }
}

fn written(version: u64) -> Answer {
    Answer::Written(Version::new(version))
}

fn read(snapshot: Snapshot) -> Answer {
    Answer::Read(snapshot)
}
