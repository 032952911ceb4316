//! What people are told.

use std::time::Duration;

use soloist_core::election::Loss;
use soloist_core::ids::{Identity, OpId, Term};
use soloist_core::node::{Node, Notice};
use soloist_core::orders::Ordered;
use soloist_core::record::Record;
use soloist_core::replica::StateName;
use soloist_core::time::{Human, Moment};
use soloist_elector::carrier::{Arrival, RequestKind};
use soloist_elector::orders::timestamp;
use soloist_elector::repeats::Repeats;
use soloist_elector::{StoreError, WatchEnded, clock};
use tracing::{debug, error, info, warn};

use crate::listener::Contact;
use crate::term_summary::TermSummary;

/// Writes the log, and remembers what it needs for that.
#[derive(Debug)]
pub(crate) struct Log {
    last_error: Option<(OpId, StoreError)>,
    /// When the store last told us something.
    heard_at: Option<Moment>,
    /// It has not answered since.
    cut_off: bool,
    repeats: Repeats,
    /// Nobody is elected.
    unopposed: bool,
    /// What became of the last try to release the lease; `None` without one.
    release: Option<Release>,
    /// The watch has shown that it landed, before its answer came.
    release_was_shown: bool,
    candidate: Option<Identity>,
    /// Ours, until it is released or left.
    term: Option<Term>,
    terms: TermSummary,
}

#[derive(Clone, Copy, Debug)]
enum Release {
    Landed,
    /// As far as we know.
    Failed,
}

impl Log {
    /// Who takes part in the election, if there is one.
    pub(crate) fn about(candidate: Option<Identity>) -> Self {
        Self {
            last_error: None,
            heard_at: None,
            cut_off: false,
            repeats: Repeats::default(),
            unopposed: candidate.is_none(),
            release: None,
            release_was_shown: false,
            candidate: candidate.clone(),
            term: None,
            terms: TermSummary::new(candidate),
        }
    }

    /// What came from the store.
    pub(crate) fn arrived(&mut self, now: Moment, arrival: &Arrival) {
        self.terms.arrived(now, arrival);
        if let Arrival::Answer {
            kind: RequestKind::Release,
            error,
            ..
        } = arrival
            && !std::mem::take(&mut self.release_was_shown)
        {
            self.release = Some(match error {
                None => Release::Landed,
                Some(_) => Release::Failed,
            });
        }
        if let Arrival::Change { snapshot, .. } = arrival
            && snapshot.record.as_ref().is_some_and(|r| self.released(r))
        {
            self.release = Some(Release::Landed);
            self.release_was_shown = true;
        }
        match arrival {
            // That is how an election goes; what the server says of it is in the debug log.
            Arrival::Answer {
                kind,
                took,
                error: Some(StoreError::LostRace(_)),
                ..
            } => {
                self.heard(now);
                info!(request = kind.as_str(), took = %Human(*took), "another replica was quicker");
            }
            Arrival::Answer {
                op,
                kind,
                took,
                error: Some(error),
                ..
            } => {
                self.cut_off = true;
                self.last_error = Some((*op, error.clone()));
                match error {
                    StoreError::Refused(_) => self.complain(now, &error.to_string()),
                    _ => warn!(request = kind.as_str(), took = %Human(*took), "{error}"),
                }
            }
            Arrival::Answer { error: None, .. } | Arrival::Change { .. } => self.heard(now),
            Arrival::WatchEnded {
                reason: reason @ WatchEnded::Refused(_),
                ..
            } => self.complain(now, &reason.to_string()),
            Arrival::WatchEnded { reason, .. } => debug!("{reason}"),
        }
    }

    /// Whether this is how we leave our term.
    fn released(&self, record: &Record) -> bool {
        let by = record.signed().filter(|_| record.released_by_its_holder());
        by.is_some_and(|by| {
            Some(by.term) == self.term && Some(&by.holder) == self.candidate.as_ref()
        })
    }

    /// Whether the last try to release the lease, if there was one, has landed.
    pub(crate) const fn has_released(&self) -> bool {
        matches!(self.release, Some(Release::Landed))
    }

    fn heard(&mut self, now: Moment) {
        self.heard_at = Some(now);
        self.cut_off = false;
    }

    /// What is heard of the store.
    pub(crate) const fn contact(&self) -> Contact {
        match (self.cut_off, self.heard_at) {
            (_, None) => Contact::NotYet,
            (false, Some(_)) => Contact::Heard,
            (true, Some(_)) => Contact::CutOff,
        }
    }

    /// Who leads, as far as we know.
    pub(crate) fn status(&self, now: Moment, node: &Node) {
        let state = node.state();
        if self.unopposed {
            info!(state = %without_leaders(state), "status");
            return;
        }
        let leader = match (state, self.cut_off) {
            (StateName::Follower, true) => self.silence(now),
            _ => node.holder().map_or("nobody", Identity::as_str).to_owned(),
        };
        info!(%state, leader, "status");
    }

    /// A follower that hears nothing knows only who led when it last did.
    fn silence(&self, now: Moment) -> String {
        match self.heard_at {
            None => "unknown, no answer yet".into(),
            Some(at) => {
                let whole_seconds = Duration::from_secs(now.since(at).as_secs());
                format!("unknown, no answer for {}", Human(whole_seconds))
            }
        }
    }

    fn complain(&mut self, now: Moment, refusal: &str) {
        if self.repeats.are_due(now, refusal) {
            warn!("{refusal}");
        }
    }

    /// What the replica has to say.
    pub(crate) fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::State { from, to } if self.unopposed => {
                let (from, to) = (without_leaders(*from), without_leaders(*to));
                info!(%from, %to, "state");
            }
            Notice::Elected(_) | Notice::Left if self.unopposed => {}
            Notice::State { from, to } => {
                if *to == StateName::Leader {
                    self.terms.child_is_up(clock::now());
                }
                info!(%from, %to, "state");
            }
            Notice::Elected(elected) => {
                (self.release, self.release_was_shown) = (None, false);
                self.term = Some(elected.term);
                self.terms.elected(clock::now(), *elected);
                let (term, token) = (elected.term, elected.token);
                info!(%term, %token, claim = ?elected.claim, "elected");
            }
            Notice::Extended { valid_until } => {
                let left = Human(valid_until.since(clock::now()));
                debug!(%left, "the lease is renewed");
            }
            Notice::Lost(loss) => {
                self.terms.lost(loss);
                match loss {
                    Loss::Resigned => info!(
                        "the term ends as planned; the lease is kept until nothing is left of the child"
                    ),
                    loss => warn!(?loss, "the lease is lost"),
                }
            }
            Notice::Left => {
                self.term = None;
                let release = self.release.take();
                match release {
                    Some(Release::Landed) => info!("the lease is released"),
                    Some(Release::Failed) => {
                        warn!("the lease could not be released, so that it has to run out");
                    }
                    None => debug!("there was nothing to release"),
                }
                let released = matches!(release, Some(Release::Landed));
                self.terms.left(clock::now(), released);
            }
            Notice::Holder(Some(leader)) => info!(%leader, "the leader is"),
            Notice::Holder(None) => info!("nobody leads"),
            Notice::Ordered(Ordered::Handover(Some(heir))) => {
                info!(%heir, "a handover is ordered; the child is stopped first");
            }
            Notice::Ordered(Ordered::Handover(None)) => {
                info!("a handover is ordered; the child is stopped first");
            }
            Notice::Ordered(Ordered::Stop) => info!("a pause is ordered that stops the child"),
            Notice::OrderRefused(refusal) => warn!("{refusal}"),
            Notice::Paused(Some(pause)) => {
                let until = pause.until.and_then(timestamp);
                let until = until.map_or("resumed".into(), |until| until.to_string());
                warn!(until, stop = pause.stop, "paused: nobody takes over");
            }
            Notice::Paused(None) => info!("the pause is over"),
            Notice::KillTakesLong { since } => self.kill_takes_long(*since),
            Notice::Refused {
                for_good: false, ..
            } => {}
            Notice::Refused { op, for_good: true } => {
                if let Some((_, error)) = self.last_error.take_if(|(of, _)| of == op) {
                    error!("refused from the start, and for a minute: {error}");
                }
            }
        }
    }

    /// A child is started for the term.
    pub(crate) const fn child_starts(&mut self) {
        self.terms.child_starts();
    }

    fn kill_takes_long(&self, since: Moment) {
        let ago = Human(clock::now().since(since));
        let lease = match self.unopposed {
            true => "",
            false => "the lease is not released and ",
        };
        warn!(
            %ago,
            "the child's tree was killed and is still not empty: a process in it does not die. It may wait in the kernel for a disk \
             or a network file system (state D in ps), or belong to a user whom we may not signal. Until it is gone {lease}no child is \
             started here"
        );
    }
}

/// The states of a replica without an election, as people know them.
pub(crate) const fn without_leaders(state: StateName) -> &'static str {
    match state {
        StateName::Follower => "Stopped",
        StateName::PreLeader => "Starting",
        StateName::Leader => "Running",
        StateName::PreFollower => "Stopping",
        StateName::Terminating => "Terminating",
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use soloist_core::election::{Answer, Claim, Elected};
    use soloist_core::ids::{InstanceId, Token, Version, WatchId};
    use soloist_core::orders::Orders;
    use soloist_core::record::{Signature, Snapshot};
    use soloist_core::timings::LeaseDuration;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn said(work: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = written.0.lock().unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn candidate() -> Log {
        Log::about(Identity::try_new("r0").ok())
    }

    fn failed(error: StoreError) -> Arrival {
        failed_to(RequestKind::Acquire, error)
    }

    fn failed_to(kind: RequestKind, error: StoreError) -> Arrival {
        Arrival::Answer {
            op: OpId::new(1),
            kind,
            took: Duration::from_millis(3),
            answer: error.answer(),
            error: Some(error),
        }
    }

    fn answered(kind: RequestKind) -> Arrival {
        Arrival::Answer {
            op: OpId::new(2),
            kind,
            took: Duration::ZERO,
            answer: Answer::Unavailable,
            error: None,
        }
    }

    #[test]
    fn a_lost_race_is_no_warning_and_needs_no_servers_sentence() {
        let sentence = "the object has been modified";
        let lost = failed(StoreError::LostRace(sentence.into()));
        let line = said(|| candidate().arrived(clock::now(), &lost));
        assert!(line.contains("INFO another replica was quicker"), "{line}");
        assert!(!line.contains(sentence), "{line}");
        let mute = failed(StoreError::Unknown("no answer within 2.5s".into()));
        let line = said(|| candidate().arrived(clock::now(), &mute));
        assert!(line.contains("WARN"), "{line}");
    }

    #[test]
    fn a_release_that_failed_is_not_told_as_one_that_landed() {
        let mut log = candidate();
        let line = said(|| log.notice(&Notice::Left));
        assert!(!line.contains("released"), "it held nothing: {line}");
        log.arrived(clock::now(), &answered(RequestKind::Release));
        let line = said(|| log.notice(&Notice::Left));
        assert!(line.contains("INFO the lease is released"), "{line}");
        let mute = StoreError::Unknown("no answer within 2.5s".into());
        log.arrived(clock::now(), &failed_to(RequestKind::Release, mute));
        let line = said(|| log.notice(&Notice::Left));
        assert!(
            line.contains("WARN the lease could not be released"),
            "{line}"
        );
    }

    fn elected(term: u64) -> Notice {
        Notice::Elected(Elected {
            term: Term::new(term),
            token: Token::new(9),
            valid_until: clock::now(),
            claim: Claim::Released,
        })
    }

    /// What the watch shows of a release by `r0`.
    fn release_shown(term: u64) -> Arrival {
        let holder = Identity::try_new("r0").unwrap();
        let record = Record {
            holder: None,
            duration_seconds: Some(Record::RELEASED_SECONDS),
            transitions: term,
            signature: Some(Signature {
                instance: InstanceId::from_random(1),
                pod: None,
                holder,
                term: Term::new(term),
                duration: LeaseDuration::try_new(Duration::from_secs(15)).unwrap(),
                write: OpId::new(3),
                base: Version::new(4),
                released: true,
                heir: None,
            }),
            orders: Orders::NONE,
        };
        Arrival::Change {
            watch: WatchId::new(1),
            snapshot: Snapshot::new(Version::new(5), Some(record)),
        }
    }

    #[test]
    fn a_release_that_the_watch_shows_before_its_answer_has_landed() {
        let mut log = candidate();
        log.notice(&elected(3));
        // A former one proves nothing.
        log.arrived(clock::now(), &release_shown(2));
        assert!(!log.has_released());
        log.arrived(clock::now(), &release_shown(3));
        assert!(log.has_released());
        let line = said(|| log.notice(&Notice::Left));
        assert!(line.contains("INFO the lease is released"), "{line}");
        // Its answer is of no interest any more, whatever it is.
        let mute = StoreError::Unknown("no answer within 2.5s".into());
        log.arrived(clock::now(), &failed_to(RequestKind::Release, mute));
        log.arrived(clock::now(), &release_shown(3));
        let line = said(|| log.notice(&Notice::Left));
        assert!(!line.contains("released"), "it held nothing: {line}");
    }

    #[test]
    fn who_is_cut_off_counts_from_when_it_last_heard_something() {
        let mut log = candidate();
        let mute = failed(StoreError::Unknown("no answer within 2.5s".into()));
        let start = clock::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        log.arrived(start, &mute);
        assert!(log.cut_off);
        assert_eq!(log.silence(after(1)), "unknown, no answer yet");
        log.arrived(after(2), &answered(RequestKind::Read));
        assert!(!log.cut_off);
        log.arrived(after(20), &mute);
        assert!(log.cut_off);
        assert_eq!(log.silence(after(37)), "unknown, no answer for 35s");
    }
}
