//! A leader that changes too often and takeovers that take too long, explained: by the Lease, its Events, and how fast the API server
//! answers.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use soloist_core::time::Human;
use soloist_core::timings::{Preset, Timings};

use super::cluster::{Cluster, Failure, rounded, text};
use super::history::{End, History};
use super::lease::duration;
use crate::announce::Why;
use crate::report::{Verdict, read};

/// More terms an hour than this is no accident, over the lease's whole life or in the last hour.
const OFTEN: f64 = 12.0;
/// Nor are so many in a quarter of that; a rolling update begins two.
const MANY_OF_LATE: usize = 4;
const OF_LATE: SignedDuration = SignedDuration::from_mins(15);
/// A takeover after a crash that takes longer than this is worth a word.
const LONG: i64 = 30;
/// A released lease is taken within milliseconds, by whoever is there.
const LONG_AFTER_RELEASE: Duration = Duration::from_secs(3);
/// Beyond the lease's own duration.
const LONG_AFTER_LOSS: Duration = Duration::from_secs(3);

const PRESETS: [(&str, Preset); 3] = [
    ("high-availability", Preset::HighAvailability),
    ("standard", Preset::Standard),
    ("low-load", Preset::LowLoad),
];

/// What is known of a lease's changes.
pub(super) struct Changes<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) lease: &'a Value,
    pub(super) history: Result<&'a History, &'a Failure>,
    pub(super) timings: &'a Timings,
}

impl Changes<'_> {
    pub(super) fn how_often(&self) -> Verdict {
        let transitions = self.lease.pointer("/spec/leaseTransitions");
        let transitions = transitions.and_then(Value::as_i64).unwrap_or(0);
        let Ok(created) = text(self.lease, "/metadata/creationTimestamp").parse::<Timestamp>()
        else {
            return Verdict::Unknown("it does not say when it was created".into());
        };
        let now = Timestamp::now();
        let hours = (now.as_second() - created.as_second()).max(1) as f64 / 3600.0;
        let found = format!("{transitions} times in {}", age(hours));
        let of_late = self
            .history
            .map_or(0, |history| history.begun_since(now - OF_LATE));
        let of_late_in_words = format!("{of_late} times in the last {} minutes", OF_LATE.as_mins());
        match (
            of_late >= MANY_OF_LATE,
            transitions as f64 / hours.max(0.25) < OFTEN,
        ) {
            (false, true) => Verdict::good(found),
            (true, _) => self.too_often(&format!("{found}, {of_late_in_words}")),
            (false, false) => self.too_often(&found),
        }
    }

    fn too_often(&self, found: &str) -> Verdict {
        let history = match self.history {
            Ok(history) if !history.is_empty() => history,
            other => {
                let why = match other {
                    Ok(_) => "there are no Events on the Lease (the replicas may not write them, see rights, or they are older than an hour)".to_owned(),
                    Err(failure) => format!("its Events, which would say why, cannot be read: {failure}"),
                };
                return Verdict::warning(
                    format!("it has changed {found}; {why}"),
                    format!(
                        "The replicas' logs say why each term ended. RenewDeadline: {} Taken, Emptied, Deleted: somebody else writes it. \
                         Restarts: the program keeps crashing",
                        self.against_late_renewals()
                    ),
                    read::TROUBLES,
                );
            }
        };
        let ends = history.ends();
        let mut told: Vec<String> = ends
            .iter()
            .map(|(end, count)| format!("{} ({count})", self.in_words(*end)))
            .collect();
        if history.crashes() > 0 {
            told.push(format!(
                "the program has crashed {} times",
                history.crashes()
            ));
        }
        let most = ends.iter().max_by_key(|(_, count)| **count);
        let advice = most.map_or_else(
            || "The replicas' logs say more".to_owned(),
            |(end, _)| self.advice(*end),
        );
        let reason = format!("it has changed {found}. By its Events: {}", told.join("; "));
        Verdict::warning(reason, advice, read::TROUBLES)
    }

    fn in_words(&self, end: End) -> &'static str {
        match end {
            End::Told(Why::TooLate) => "renewals did not get through in time",
            End::Told(Why::OtherHand) => {
                "somebody else took, emptied, deleted or wrote back the Lease"
            }
            End::Told(Why::Asked) => "the leader was told to stop",
            End::Told(Why::Child) => "the program ended or could not go on",
            End::Untold => "another elector stopped",
            End::Silent => {
                "the leader went without a word: killed, restarted, or cut off from the API server"
            }
        }
    }

    fn advice(&self, end: End) -> String {
        match end {
            End::Told(Why::TooLate) => self.against_late_renewals(),
            End::Told(Why::OtherHand) => {
                "Find out who writes it (see above; kubectl get lease -o yaml --show-managed-fields) and keep it away, or give the two \
                 different names"
                    .into()
            }
            End::Told(Why::Asked) => {
                "Somebody ends Pods or orders handovers again and again: rolling updates, evictions, an autoscaler, a descheduler, failing \
                 liveness probes (kubectl get events)"
                    .into()
            }
            End::Told(Why::Child) => {
                "The program crashes or is unhealthy: its log says why, and `soloist try` takes it through a start and a stop".into()
            }
            End::Untold => "That elector's log says why".into(),
            End::Silent => format!(
                "Look whether Pods are killed (kubectl describe pod: OOMKilled, Evicted, liveness probes) or nodes come and go. If the \
                 leader is well meanwhile: {}",
                self.against_late_renewals()
            ),
        }
    }

    /// What helps depends on how fast the API server answers.
    fn against_late_renewals(&self) -> String {
        let slowest = self.cluster.slowest;
        let ours = self.timings.attempt_limit();
        let took = Human(rounded(slowest));
        let fits = |timings: &Timings| slowest <= timings.attempt_limit() / 2;
        if fits(self.timings) {
            return format!(
                "The API server answers in {took} from here, and one try to renew has {}: look at the leader's own way to it (its node, a \
                 NetworkPolicy, a CPU limit that throttles it). Longer timings bear more: --preset low-load.",
                Human(ours)
            );
        }
        let longer = PRESETS
            .into_iter()
            .map(|(name, preset)| (name, Timings::preset(preset)))
            .find(|(_, timings)| timings.attempt_limit() > ours && fits(timings));
        match longer {
            Some((name, timings)) => format!(
                "The API server took {took} for one answer, and one try to renew has {}. Look why it is slow, or take longer timings: with \
                 --preset {name} a try has {}.",
                Human(ours),
                Human(timings.attempt_limit())
            ),
            None => format!(
                "The API server took {took} for one answer, which is too slow for any preset: look at it and at the way to it."
            ),
        }
    }

    pub(super) fn after_a_crash(&self) -> Verdict {
        let ours = i64::from(self.timings.lease().seconds());
        let Some(found) = duration(self.lease) else {
            return Verdict::warning(
                format!(
                    "it does not say how long it lasts, so each candidate counts its own lease's {ours} s"
                ),
                "Whoever holds it is no elector, or an odd one: look who writes it (kubectl get lease -o yaml --show-managed-fields)",
                read::TROUBLES,
            );
        };
        if found > LONG {
            return Verdict::warning(
                format!("after a crash of the holder, the lease has to run out: up to {found} s"),
                format!(
                    "If that is too long, take shorter timings: {}",
                    self.shorter()
                ),
                read::TROUBLES,
            );
        }
        if found > ours {
            return Verdict::warning(
                format!(
                    "its duration is {found} s, longer than the {ours} s of these settings, and the record's own counts"
                ),
                "Give all replicas the same timings",
                read::TROUBLES,
            );
        }
        Verdict::good(format!("at most {found} s and half a second more"))
    }

    /// The presets that this API server is fast enough for.
    fn shorter(&self) -> String {
        let all: Vec<String> = PRESETS
            .into_iter()
            .rev()
            .map(|(name, preset)| (name, Timings::preset(preset)))
            .filter(|(_, timings)| {
                duration(self.lease)
                    .is_some_and(|found| i64::from(timings.lease().seconds()) < found)
                    && self.cluster.slowest <= timings.attempt_limit() / 2
            })
            .map(|(name, timings)| format!("--preset {name} ({} s)", timings.lease().seconds()))
            .collect();
        match all.is_empty() {
            false => all.join(" or "),
            true => format!(
                "but the API server took {} for one answer, which is too slow for them",
                Human(rounded(self.cluster.slowest))
            ),
        }
    }

    /// As they were, by the Events.
    pub(super) fn takeovers(&self) -> Verdict {
        let history = match self.history {
            Ok(history) => history,
            Err(failure) => {
                return Verdict::Unknown(format!("its Events cannot be read: {failure}"));
            }
        };
        let longest = |after_release: bool| {
            let gaps = history.gaps();
            let gaps = gaps.filter(|gap| gap.after_release == after_release);
            gaps.map(|gap| rounded(gap.long)).max()
        };
        let (release, loss) = (longest(true), longest(false));
        let lease = duration(self.lease).map_or(self.timings.lease().get(), |seconds| {
            Duration::from_secs(seconds.unsigned_abs())
        });
        if let Some(long) = release.filter(|long| *long > LONG_AFTER_RELEASE) {
            return Verdict::warning(
                format!(
                    "after a release of the lease nobody led for {}",
                    Human(long)
                ),
                "No standby was there, or it could not lead: run 2 replicas or more, look whether they were ready (a new Pod has to start \
                 first), and at their logs",
                read::TROUBLES,
            );
        }
        if let Some(long) = loss.filter(|long| *long > lease + LONG_AFTER_LOSS) {
            return Verdict::warning(
                format!(
                    "after a lost lease nobody led for {}, though it lasts {} s",
                    Human(long),
                    lease.as_secs()
                ),
                "No standby was there, or none reached the API server; after a deletion or an edit by hand the last promise is waited out \
                 from then",
                read::TROUBLES,
            );
        }
        let told = [("a release", release), ("a loss", loss)];
        let told: Vec<String> = told
            .into_iter()
            .filter_map(|(what, long)| Some(format!("{} after {what}", Human(long?))))
            .collect();
        match told.is_empty() {
            true => Verdict::Unknown("no Events tell of one".into()),
            false => Verdict::good(format!("by its Events at most {}", told.join(", "))),
        }
    }
}

fn age(hours: f64) -> String {
    match hours {
        h if h < 1.0 => format!("{:.0} minutes", (h * 60.0).max(1.0)),
        h if h < 48.0 => format!("{h:.0} hours"),
        h => format!("{:.0} days", h / 24.0),
    }
}
