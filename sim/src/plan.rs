//! What a schedule is made of, drawn from its seed before it begins.

use std::time::Duration;

use soloist_core::backoff::Backoff;
use soloist_core::ladder::{Ladder, LadderRequest};
use soloist_core::mutant::Defect;
use soloist_core::replica::{OnLoss, OnUnhealthy, Policy, Restarts};
use soloist_core::timings::Timings;

use crate::clock::{MILLI, Nanos, SECOND, nanos};
use crate::dice::Dice;
use crate::faults::{Fault, MOST_EDITED_SECONDS};

/// Local things take at most this long: a wake-up, a signal, a kill, a message to the guard.
pub(crate) const HICCUP: Nanos = 15 * MILLI;

pub(crate) struct Plan {
    pub(crate) replicas: usize,
    pub(crate) timings: Vec<Timings>,
    pub(crate) shared_identity: bool,
    /// All replicas are processes of one machine, and the store sees which of them live.
    pub(crate) one_machine: bool,
    /// When the faults are over.
    pub(crate) calm_at: Nanos,
    pub(crate) faults: Vec<(Nanos, Fault)>,
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
    pub(crate) fn draw(dice: &mut Dice, defect: Defect) -> Self {
        let replicas = dice.pick(&[1, 2, 2, 3, 3, 3, 3, 4, 5, 7]);
        let usual = draw_timings(dice);
        let mixed = dice.percent(12);
        let timings: Vec<_> = (0..replicas)
            .map(|_| if mixed { draw_timings(dice) } else { usual })
            .collect();
        let longest = timings.iter().map(|t| nanos(t.lease().get())).max();
        let lease = longest.unwrap_or(SECOND);
        let calm_at = lease * dice.between(6, 14);
        let faults = draw_faults(dice, lease, calm_at);
        Self {
            replicas,
            timings,
            shared_identity: dice.percent(10),
            one_machine: dice.percent(15),
            calm_at,
            faults,
            policy: draw_policy(dice, usual, defect),
        }
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

    /// Within this time after the last fault there is a leader with a running child: whoever holds the
    /// lease may drain, be killed or wait to be restarted, and may do so once more because it cannot
    /// start or is not well; then what it promised is waited out and the next one starts.
    pub(crate) fn bound(&self, edited: bool) -> Nanos {
        let policy = &self.policy;
        let lease = match edited {
            true => self.longest_lease().max(MOST_EDITED_SECONDS * SECOND),
            false => self.longest_lease(),
        };
        let once = policy.ladder.stop() + policy.start_limit + policy.restarts.backoff.most();
        2 * (lease + nanos(once)) + nanos(policy.cool_down) + 2 * SECOND
    }
}

/// Spread over the whole time, or bunched around a few moments: trouble seldom comes alone.
fn draw_faults(dice: &mut Dice, lease: Nanos, calm_at: Nanos) -> Vec<(Nanos, Fault)> {
    let bunches: Vec<_> = (0..dice.between(0, 3))
        .map(|_| dice.between(0, calm_at))
        .collect();
    (0..dice.between(3, 18))
        .map(|_| {
            let at = match bunches.is_empty() {
                true => dice.between(0, calm_at),
                false => dice.pick(&bunches) + dice.between(0, lease),
            };
            (at.min(calm_at), dice.pick(Fault::ALL))
        })
        .collect()
}

fn draw_timings(dice: &mut Dice) -> Timings {
    let (lease, renew, retry) = dice.pick(&TIMINGS);
    Timings::try_new(
        Duration::from_millis(lease),
        Duration::from_millis(renew),
        Duration::from_millis(retry),
    )
    .expect("the table keeps the rules")
}

fn draw_policy(dice: &mut Dice, timings: Timings, defect: Defect) -> Policy {
    let grace = Duration::from_secs(dice.pick(&[2, 4, 8, 20, 30]));
    let longest_wait = Duration::from_millis(dice.pick(&[500, 2_000, 8_000]));
    Policy {
        timings,
        ladder: Ladder::try_new(LadderRequest::from_grace(grace))
            .expect("it follows from the grace"),
        on_loss: OnLoss::Strict,
        start_limit: Duration::from_millis(dice.pick(&[300, 1_000, 5_000])),
        restarts: Restarts {
            backoff: Backoff::try_new(Duration::from_millis(200), longest_wait)
                .expect("the longest is longer than the first"),
            stable_after: Duration::from_secs(5),
            most: dice.pick(&[1, 3, 5]),
            window: Duration::from_secs(30),
        },
        unhealthy_after: 3,
        on_unhealthy: dice.pick(&[OnUnhealthy::Restart, OnUnhealthy::StepDown]),
        cool_down: Duration::from_millis(dice.pick(&[500, 2_000, 10_000])),
        once: false,
        defect,
    }
}
