//! Whatever happens, in whatever order.

use super::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Input {
    Stand,
    Resign,
    Leave,
    Answer(Reply),
    LateAnswer(u64, Reply),
    Watch(Sight),
    WatchBroken,
    KeepDeadlines(u64),
    Sleep(u64),
}

#[derive(Clone, Debug)]
enum Reply {
    Read(Sight),
    /// It landed, so many versions after the newest there was.
    Written(u64),
    LostRace,
    Unavailable,
    Refused,
    Unknown,
}

#[derive(Clone, Debug)]
struct Sight {
    version: u64,
    record: Option<Seen>,
    gone: bool,
}

#[derive(Clone, Debug)]
enum Seen {
    Soloist(u32, u64),
    Other(i64, u64),
    Released(u64),
    Emptied(u64),
    ClientGoReleased(u64),
    /// What we wrote last, perhaps edited.
    Ours,
    OursEmptied,
}

fn seen() -> impl Strategy<Value = Seen> {
    let transitions = || 0u64..4;
    prop_oneof![
        (2u32..30, transitions()).prop_map(|(s, n)| Seen::Soloist(s, n)),
        (any::<i64>(), any::<u64>()).prop_map(|(s, n)| Seen::Other(s, n)),
        (-1i64..20, transitions()).prop_map(|(s, n)| Seen::Other(s, n)),
        transitions().prop_map(Seen::Released),
        transitions().prop_map(Seen::Emptied),
        transitions().prop_map(Seen::ClientGoReleased),
        Just(Seen::Ours),
        Just(Seen::Ours),
        Just(Seen::OursEmptied),
    ]
}

fn sight() -> impl Strategy<Value = Sight> {
    (1u64..40, option::weighted(0.8, seen()), any::<bool>()).prop_map(|(version, record, gone)| {
        Sight {
            version,
            record,
            gone,
        }
    })
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        3 => sight().prop_map(Reply::Read),
        4 => (1u64..3).prop_map(Reply::Written),
        1 => Just(Reply::LostRace),
        1 => Just(Reply::Unavailable),
        1 => Just(Reply::Refused),
        1 => Just(Reply::Unknown),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        3 => Just(Input::Stand),
        1 => Just(Input::Resign),
        1 => Just(Input::Leave),
        10 => reply().prop_map(Input::Answer),
        1 => (1u64..30, reply()).prop_map(|(op, reply)| Input::LateAnswer(op, reply)),
        3 => sight().prop_map(Input::Watch),
        1 => Just(Input::WatchBroken),
        5 => (0u64..6_000).prop_map(Input::KeepDeadlines),
        1 => (0u64..40_000).prop_map(Input::Sleep),
    ]
}

/// Checks what must hold after every input. [`Bench::collect`] checks the requests and deadlines.
struct World {
    bench: Bench,
    now: Moment,
    newest: u64,
    last_write: Option<(Moment, Record)>,
    standing: bool,
    leaving: bool,
}

impl World {
    fn new() -> Self {
        Self {
            bench: Bench::new(me()),
            now: t(0.0),
            newest: 0,
            last_write: None,
            standing: false,
            leaving: false,
        }
    }

    fn feed(&mut self, input: Input) {
        let now = self.now;
        let election = &mut self.bench.election;
        match input {
            Input::Stand => {
                self.standing = true;
                election.stand(now);
            }
            Input::Resign => election.resign(now),
            Input::Leave => {
                self.standing = false;
                self.leaving = true;
                election.leave(now);
            }
            Input::Answer(reply) => {
                let Some(pending) = self.bench.pending.take() else {
                    return;
                };
                let answer = self.answer(reply);
                self.bench.election.handle_answer(now, pending.op, answer);
            }
            Input::LateAnswer(op, reply) => {
                let op = OpId::new(op);
                if self.bench.pending.as_ref().is_some_and(|p| p.op == op) {
                    return;
                }
                let answer = self.answer(reply);
                self.bench.election.handle_answer(now, op, answer);
            }
            Input::Watch(sight) => {
                let snapshot = self.snapshot(sight);
                let watch = self.bench.watch;
                self.bench.election.handle_watch(now, watch, snapshot);
            }
            Input::WatchBroken => election.handle_watch_broken(now, self.bench.watch),
            Input::KeepDeadlines(millis) => {
                let until = now + Duration::from_millis(millis);
                while let Some(due) = self.bench.election.next_deadline()
                    && due <= until
                {
                    self.now = due;
                    self.bench.election.handle_timeout(due);
                    self.check();
                }
                self.now = until;
                return;
            }
            Input::Sleep(millis) => {
                self.now = now + Duration::from_millis(millis);
                election.handle_timeout(self.now);
            }
        }
        self.check_after_input();
    }

    /// An input other than the clock may leave a deadline for the next [`Election::handle_timeout`].
    fn check_after_input(&mut self) {
        self.check();
        self.bench.election.handle_timeout(self.now);
        self.check();
    }

    fn check(&mut self) {
        for output in self.bench.collect(self.now) {
            match output {
                Output::Store(StoreCommand::Write { record, .. }) => {
                    self.last_write = Some((self.now, record));
                }
                Output::Elected(_) => {
                    assert!(self.standing, "elected without standing");
                    assert!(!self.leaving, "elected while leaving");
                }
                Output::Lost(_) => self.standing = false,
                Output::Left => self.leaving = false,
                _ => {}
            }
        }
        if let Some(valid_until) = self.bench.valid_until() {
            assert!(valid_until > self.now, "holds an expired lease");
            let (sent, _) = self.last_write.as_ref().expect("a write before the term");
            let longest = *sent + me().timings.lease().get();
            assert!(valid_until <= longest, "validity beyond the last write");
        }
    }

    fn answer(&mut self, reply: Reply) -> Answer {
        match reply {
            Reply::Read(sight) => Answer::Read(self.snapshot(sight)),
            Reply::Written(after) => {
                self.newest += after;
                written(self.newest)
            }
            Reply::LostRace => Answer::LostRace,
            Reply::Unavailable => Answer::Unavailable,
            Reply::Refused => Answer::Refused,
            Reply::Unknown => Answer::Unknown,
        }
    }

    fn snapshot(&mut self, sight: Sight) -> Snapshot {
        self.newest = self.newest.max(sight.version);
        let ours = || self.last_write.as_ref().map(|(_, record)| record.clone());
        let record = sight.record.and_then(|seen| match seen {
            Seen::Soloist(seconds, n) => Some(held("b", seconds, n)),
            Seen::Other(seconds, n) => Some(unsigned("x", seconds, n)),
            Seen::Released(n) => Some(released(held("b", 15, n))),
            Seen::Emptied(n) => Some(emptied(held("b", 15, n))),
            Seen::ClientGoReleased(n) => Some(emptied(unsigned("x", 1, n))),
            Seen::Ours => ours(),
            Seen::OursEmptied => ours().map(emptied),
        });
        Snapshot {
            holder_gone: sight.gone,
            ..Snapshot::new(Version::new(sight.version), record)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn no_sequence_of_inputs_breaks_the_rules(inputs in vec(input(), 1..80)) {
        let mut world = World::new();
        for input in inputs {
            world.feed(input);
        }
    }
}
