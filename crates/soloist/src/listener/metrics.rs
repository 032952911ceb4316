//! Metrics for Prometheus. Names and help are documented in `docs/operations.md`; a test compares the two.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use soloist_core::election::Loss;
use soloist_core::ids::{Term, TreeId};
use soloist_core::node::{Notice, TreeCommand, TreeEvent};
use soloist_core::replica::StateName;
use soloist_core::time::Moment;
use soloist_elector::carrier::{Arrival, RequestKind};

use super::published::Snapshot;
use crate::notices::without_leaders;

const STATES: [StateName; 5] = [
    StateName::Follower,
    StateName::PreLeader,
    StateName::Leader,
    StateName::PreFollower,
    StateName::Terminating,
];

type Labels = [(&'static str, String); 1];

/// A kind of event with one label, whose values are all known: each is there from the start, at zero.
struct ByKind<const N: usize>([(&'static str, Counter); N]);

impl<const N: usize> ByKind<N> {
    fn register(
        registry: &mut Registry,
        (name, help): (&str, &str),
        label: &'static str,
        kinds: [&'static str; N],
    ) -> Self {
        let family = Family::<Labels, Counter>::default();
        registry.register(name, help, family.clone());
        Self(kinds.map(|kind| (kind, family.get_or_create_owned(&[(label, kind.into())]))))
    }

    fn count(&self, kind: &str) {
        for (_, counter) in self.0.iter().filter(|(known, _)| *known == kind) {
            counter.inc();
        }
    }
}

/// Whoever counts touches atomics alone (histograms: a lock for the time of an addition).
pub(super) struct Metrics {
    registry: Registry,
    states: Vec<(StateName, Gauge)>,
    restarts: Counter,
    stops: ByKind<4>,
    drains: Histogram,
    killed: Counter,
    dropped_lines: Counter,
    election: Option<ElectionMetrics>,
}

/// What there is only with a lease.
struct ElectionMetrics {
    master: Gauge,
    slow_path: Counter,
    term: Gauge,
    token: Gauge,
    validity: Gauge<f64, AtomicU64>,
    paused: Gauge,
    renewals: Histogram,
    losses: ByKind<6>,
}

impl Metrics {
    pub(super) fn new(name: &str, elects: bool) -> Self {
        let mut registry = Registry::default();
        let election = elects.then(|| ElectionMetrics::register(&mut registry, name));
        let state = Family::<Labels, Gauge>::default();
        registry.register(
            "soloist_state",
            "The state of this replica: 1 for the one that it is in, 0 for the others",
            state.clone(),
        );
        let named = |name: StateName| match elects {
            true => name.to_string(),
            false => without_leaders(name).to_owned(),
        };
        let states = STATES.map(|name| {
            let gauge = state.get_or_create_owned(&[("state", named(name))]);
            (name, gauge)
        });
        let restarts = Counter::default();
        registry.register(
            "soloist_child_restarts",
            "Starts of the child after another one in the same term",
            restarts.clone(),
        );
        let stops = ByKind::register(
            &mut registry,
            (
                "soloist_stops",
                "Children that were asked to stop, by why: terminate (soloist was told to end), step_down (another replica is to lead), \
                 unhealthy (to be restarted), lost (the lease could not be renewed)",
            ),
            "kind",
            ["terminate", "step_down", "unhealthy", "lost"],
        );
        let drains = Histogram::new([
            0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 60.0,
        ]);
        registry.register_with_unit(
            "soloist_drain_duration",
            "From asking the child to stop until nothing is left of it",
            Unit::Seconds,
            drains.clone(),
        );
        let killed = Counter::default();
        registry.register(
            "soloist_children_killed",
            "Children whose tree was killed: their time to stop was over, the lease was taken, or their guard was gone",
            killed.clone(),
        );
        let dropped_lines = Counter::default();
        registry.register(
            "soloist_log_lines_dropped",
            "Lines of the log that could not be written",
            dropped_lines.clone(),
        );
        Self {
            registry,
            states: states.into(),
            restarts,
            stops,
            drains,
            killed,
            dropped_lines,
            election,
        }
    }

    /// In the OpenMetrics text format. The gauges say how things are now.
    pub(super) fn write(
        &self,
        now: Moment,
        snapshot: &Snapshot,
        dropped_lines: u64,
    ) -> Result<String, fmt::Error> {
        for (state, gauge) in &self.states {
            gauge.set(i64::from(*state == snapshot.state));
        }
        let counted = self.dropped_lines.get();
        self.dropped_lines
            .inc_by(dropped_lines.saturating_sub(counted));
        if let Some(election) = &self.election {
            election.set(now, snapshot);
        }
        let mut text = String::with_capacity(8 << 10);
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl ElectionMetrics {
    fn register(registry: &mut Registry, name: &str) -> Self {
        let labels = [("name", name.to_owned())];
        let masters = Family::<Labels, Gauge>::default();
        registry.register(
            "leader_election_master_status",
            "Whether this replica holds the lease: 1 if it does, 0 if not; as client-go has it",
            masters.clone(),
        );
        let slow_paths = Family::<Labels, Counter>::default();
        registry.register(
            "leader_election_slowpath",
            "Renewals that failed at the first write and were tried again; as client-go has it",
            slow_paths.clone(),
        );
        let (term, token) = (Gauge::default(), Gauge::default());
        registry.register(
            "soloist_term",
            "The number of the term in which this replica holds the lease, 0 if it does not",
            term.clone(),
        );
        registry.register(
            "soloist_token",
            "The fencing token of that term, 0 if there is none",
            token.clone(),
        );
        let validity = Gauge::default();
        registry.register_with_unit(
            "soloist_lease_validity",
            "For how long this replica may still believe that it holds the lease, 0 if it does not",
            Unit::Seconds,
            validity.clone(),
        );
        let paused = Gauge::default();
        registry.register(
            "soloist_paused",
            "Whether the lease is paused, so that nobody may take it: 1 if it is, 0 if not",
            paused.clone(),
        );
        let renewals = Histogram::new([
            0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
        ]);
        registry.register_with_unit(
            "soloist_renew_duration",
            "What the requests to renew the lease took, also those that failed",
            Unit::Seconds,
            renewals.clone(),
        );
        let losses = ByKind::register(
            registry,
            ("soloist_losses", "Leases that were lost, by cause"),
            "cause",
            [
                "renew_deadline",
                "expired",
                "taken",
                "emptied",
                "deleted",
                "written_back",
            ],
        );
        Self {
            master: masters.get_or_create_owned(&labels),
            slow_path: slow_paths.get_or_create_owned(&labels),
            term,
            token,
            validity,
            paused,
            renewals,
            losses,
        }
    }

    fn set(&self, now: Moment, snapshot: &Snapshot) {
        let lease = snapshot.lease.as_ref();
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.master.set(i64::from(lease.is_some()));
        self.paused.set(i64::from(snapshot.pause.is_some()));
        self.term
            .set(lease.map_or(0, |lease| number(lease.term.get())));
        self.token
            .set(lease.map_or(0, |lease| number(lease.token.get())));
        self.validity
            .set(lease.map_or(0.0, |lease| lease.valid_until.since(now).as_secs_f64()));
    }
}

/// Counts what happens in the main loop.
pub(super) struct Events {
    metrics: Arc<Metrics>,
    elects: bool,
    /// The term of the last start.
    started_in: Option<Term>,
    /// The term's end was not planned.
    lost: bool,
    stopping: Option<(TreeId, Moment)>,
    killing: Option<TreeId>,
}

impl Events {
    pub(super) fn new(metrics: Arc<Metrics>, elects: bool) -> Self {
        Self {
            metrics,
            elects,
            started_in: None,
            lost: false,
            stopping: None,
            killing: None,
        }
    }

    pub(super) fn restarts(&self) -> u64 {
        self.metrics.restarts.get()
    }

    pub(super) fn arrived(&mut self, arrival: &Arrival) {
        let Some(election) = &self.metrics.election else {
            return;
        };
        if let Arrival::Answer {
            kind: RequestKind::Renew,
            took,
            error,
            ..
        } = arrival
        {
            election.renewals.observe(took.as_secs_f64());
            if error.is_some() {
                election.slow_path.inc();
            }
        }
    }

    pub(super) fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Elected(_) => self.lost = false,
            Notice::Lost(loss) => {
                if let (Some(cause), Some(election)) = (cause(loss), &self.metrics.election) {
                    self.lost = true;
                    election.losses.count(cause);
                }
            }
            _ => {}
        }
    }

    /// The replica, in this state now, has ordered that.
    pub(super) fn ordered(
        &mut self,
        now: Moment,
        tree: TreeId,
        command: TreeCommand,
        state: StateName,
    ) {
        match command {
            TreeCommand::Start { term, .. } => {
                let before = self.started_in.replace(term);
                // Without an election all that there is, is one term.
                if before == Some(term) || before.is_some() && !self.elects {
                    self.metrics.restarts.inc();
                }
            }
            TreeCommand::Stop => {
                self.stopping = Some((tree, now));
                self.metrics.stops.count(match state {
                    StateName::Terminating => "terminate",
                    StateName::PreLeader | StateName::Leader => "unhealthy",
                    StateName::PreFollower | StateName::Follower if self.lost => "lost",
                    StateName::PreFollower | StateName::Follower => "step_down",
                });
            }
            TreeCommand::Kill => {
                if self.killing.replace(tree) != Some(tree) {
                    self.metrics.killed.inc();
                }
            }
            TreeCommand::Prepare | TreeCommand::Discard | TreeCommand::Deadline(_) => {}
        }
    }

    pub(super) fn happened(&mut self, now: Moment, tree: TreeId, event: TreeEvent) {
        if event == TreeEvent::Empty
            && let Some((_, since)) = self.stopping.take_if(|(of, _)| *of == tree)
        {
            let took = now.since(since);
            self.metrics.drains.observe(took.as_secs_f64());
        }
    }
}

/// A planned end is no loss.
const fn cause(loss: &Loss) -> Option<&'static str> {
    match loss {
        Loss::Resigned => None,
        Loss::RenewDeadline => Some("renew_deadline"),
        Loss::Expired => Some("expired"),
        Loss::Taken(_) => Some("taken"),
        Loss::Emptied => Some("emptied"),
        Loss::Deleted => Some("deleted"),
        Loss::WrittenBack => Some("written_back"),
    }
}
