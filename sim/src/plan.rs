//! What a schedule is made of, drawn from its seed before it begins.

use std::time::Duration;

use soloist_core::backoff::Backoff;
use soloist_core::ladder::{Ladder, LadderRequest};
use soloist_core::replica::{OnLoss, OnUnhealthy, Policy, Restarts};
use soloist_core::timings::Timings;

use crate::clock::{MILLI, Nanos, nanos};
use crate::faults::Fault;
use crate::rng::Rng;
use crate::summary::{Counter, Without};

/// A wake-up, or a kill, takes at most this long, unless the host is stalled.
pub(crate) const WAKE_UP: Nanos = 15 * MILLI;
/// A message between a replica and the store takes at most this long, when all is well.
pub(crate) const LINK: Nanos = 8 * MILLI;
/// A guard is forked and executed in at most this long, when all is well.
pub(crate) const START_GUARD: Nanos = 20 * MILLI;

pub(crate) struct Plan {
    pub(crate) replicas: usize,
    pub(crate) timings: Vec<Timings>,
    pub(crate) shared_identity: bool,
    /// All replicas are processes of one machine, and the store sees which of them live.
    pub(crate) one_machine: bool,
    /// A client-go elector stands for the same lease, on the host after the replicas'.
    pub(crate) client_go: bool,
    /// Containers that end are started again as the kubelet does: after 10 s, 20 s, 40 s …
    pub(crate) crash_loop: bool,
    /// The child is a job, run to its end once.
    pub(crate) once: bool,
    /// When the faults are over.
    pub(crate) calm_at: Nanos,
    pub(crate) faults: Vec<(Nanos, Fault)>,
    /// People order handovers and pauses.
    pub(crate) orders: bool,
    /// The replicas are Pods, whose kubelets report the ends of containers to everybody.
    pub(crate) deaths_reported: bool,
    policy: Policy,
}

const TIMINGS: [(u64, u64, u64); 6] = [
    (2_000, 1_400, 200),
    (3_000, 2_000, 300),
    (4_000, 3_000, 500),
    (5_000, 3_500, 500),
    (10_000, 8_000, 1_000),
    (15_000, 10_000, 2_000),
];

impl Plan {
    pub(crate) fn draw(rng: &mut Rng, without: Without) -> Self {
        let replicas = rng.pick(&[1, 2, 2, 3, 3, 3, 3, 4, 5, 7]);
        let usual = draw_timings(rng);
        let mixed = rng.percent(12);
        let mut timings: Vec<_> = (0..replicas)
            .map(|_| if mixed { draw_timings(rng) } else { usual })
            .collect();
        let longest = timings.iter().max_by_key(|t| t.lease()).copied();
        let longest = longest.unwrap_or(usual);
        let lease = nanos(longest.lease().get());
        let calm_at = lease * rng.between(6, 14);
        let faults = draw_faults(rng, lease, calm_at);
        let one_machine = rng.percent(15);
        let mut feature = |percent, counter| rng.percent(percent) && !without.contains(counter);
        let client_go = feature(10, Counter::ClientGo) && !one_machine;
        let crash_loop = feature(20, Counter::CrashLoop) && !one_machine;
        let once = feature(6, Counter::Once);
        let graceful = feature(6, Counter::Graceful);
        // It counts what its own configuration says, and so must not be shorter than anybody's.
        timings.push(longest);
        Self {
            replicas,
            timings,
            shared_identity: rng.percent(10),
            one_machine,
            client_go,
            crash_loop,
            once,
            calm_at,
            faults,
            orders: false,
            deaths_reported: false,
            policy: Policy {
                on_loss: match graceful {
                    true => OnLoss::Graceful,
                    false => OnLoss::Strict,
                },
                once,
                ..draw_policy(rng, usual)
            },
        }
    }

    /// Drawn apart from all else, so that a schedule without orders is what its seed has always been.
    pub(crate) fn draw_orders(&mut self, seed: u64, without: Without) {
        let rng = &mut Rng::from_seed(seed ^ 0x006f_7264_6572_7300);
        if !rng.percent(30) || without.contains(Counter::OrderHandover) {
            return;
        }
        self.orders = true;
        for _ in 0..rng.between(1, 5) {
            let at = rng.between(0, self.calm_at);
            self.faults.push((at, rng.pick(Fault::ORDERS)));
        }
    }

    /// The same for reported deaths, and for what looks like one.
    pub(crate) fn draw_deaths(&mut self, seed: u64, without: Without) {
        let rng = &mut Rng::from_seed(seed ^ 0x6465_6174_6873);
        if self.one_machine || !rng.percent(30) || without.contains(Counter::DeathsReported) {
            return;
        }
        self.deaths_reported = true;
        for _ in 0..rng.between(0, 5) {
            let at = rng.between(0, self.calm_at);
            self.faults.push((at, rng.pick(Fault::PODS)));
        }
    }

    /// The same for preStop hooks.
    pub(crate) fn draw_hooks(&mut self, seed: u64, without: Without) {
        let rng = &mut Rng::from_seed(seed ^ 0x0068_6f6f_6b73);
        if self.one_machine || !rng.percent(10) || without.contains(Counter::HookBegins) {
            return;
        }
        for _ in 0..rng.between(1, 4) {
            let at = rng.between(0, self.calm_at);
            self.faults.push((at, rng.pick(Fault::HOOKS)));
        }
    }

    pub(crate) fn graceful(&self) -> bool {
        self.policy.on_loss == OnLoss::Graceful
    }

    pub(crate) fn policy(&self, host: usize) -> Policy {
        Policy {
            timings: self.timings[host],
            ..self.policy
        }
    }

    pub(crate) fn longest_lease(&self) -> Nanos {
        let leases = self.timings.iter().map(|t| nanos(t.lease().get()));
        leases.max().unwrap_or(0)
    }
}

/// Spread over the whole time, or bunched around a few moments: trouble seldom comes alone.
fn draw_faults(rng: &mut Rng, lease: Nanos, calm_at: Nanos) -> Vec<(Nanos, Fault)> {
    let bunches: Vec<_> = (0..rng.between(0, 3))
        .map(|_| rng.between(0, calm_at))
        .collect();
    (0..rng.between(3, 18))
        .map(|_| {
            let at = match bunches.is_empty() {
                true => rng.between(0, calm_at),
                false => rng.pick(&bunches) + rng.between(0, lease),
            };
            (at.min(calm_at), rng.pick(Fault::ALL))
        })
        .collect()
}

fn draw_timings(rng: &mut Rng) -> Timings {
    let (lease, renew, retry) = rng.pick(&TIMINGS);
    Timings::try_new(
        Duration::from_millis(lease),
        Duration::from_millis(renew),
        Duration::from_millis(retry),
    )
    .expect("the table keeps the rules")
}

fn draw_policy(rng: &mut Rng, timings: Timings) -> Policy {
    let grace = Duration::from_secs(rng.pick(&[2, 4, 8, 20, 30]));
    let longest_wait = Duration::from_millis(rng.pick(&[500, 2_000, 8_000]));
    Policy {
        timings,
        ladder: Ladder::try_new(LadderRequest::from_grace(grace))
            .expect("it follows from the grace"),
        on_loss: OnLoss::Strict,
        start_limit: Duration::from_millis(rng.pick(&[300, 1_000, 5_000])),
        restarts: Restarts {
            backoff: Backoff::try_new(Duration::from_millis(200), longest_wait)
                .expect("the longest is longer than the first"),
            stable_after: Duration::from_secs(5),
            most: rng.pick(&[1, 3, 5]),
            window: Duration::from_secs(30),
        },
        unhealthy_after: 3,
        on_unhealthy: rng.pick(&[OnUnhealthy::Restart, OnUnhealthy::StepDown]),
        cool_down: Duration::from_millis(rng.pick(&[500, 2_000, 10_000])),
        first_process: false,
        once: false,
    }
}
