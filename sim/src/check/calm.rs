//! When the faults are over: a leader comes, within the sum of what must be waited for.

use soloist_core::election::Answer;
use soloist_core::replica::StateName;
use soloist_core::timings::Timings;

use super::Violation;
use super::probe::Phase;
use crate::clock::{MILLI, Nanos, SECOND, nanos};
use crate::hosts::Soloist;
use crate::queue::{Event, ToSoloist};
use crate::world::World;

/// A child is forked, becomes its program and is ready; a guard was started before it.
const START: Nanos = 150 * MILLI;
/// Hosts whose soloist is dead come back within this time.
pub(crate) const RESTART: Nanos = SECOND;
/// A process that is being started may take this long where exec is slow.
const SLOW_START: Nanos = 8 * SECOND;

impl World {
    /// From now on nothing fails. Within this time there is a leader with a working child.
    pub(crate) fn recovery_bound(&self) -> Nanos {
        let hosts = 0..self.plan.replicas;
        let longest = |of: &dyn Fn(&Timings) -> Nanos| {
            let each = hosts.clone().map(|host| of(&self.plan.timings[host]));
            each.max().unwrap_or(0)
        };
        // A request that was lost, and two retries.
        let requests =
            longest(&|t| nanos(t.attempt_limit()) + 2 * nanos(t.longest_retry())) + RESTART;
        let promise = self.longest_promise();
        let spread = longest(&|t| nanos(t.spread()));
        let wait = promise + promise / 100 + spread;
        requests
            + wait
            + START
            + self.under_way(wait)
            + self.deaf_replicas(wait)
            + self.ailing_children()
            + self.cooling_down()
            + self.pleas_for_patience()
            + self.pending_wishes()
            + self.pending_orders()
            + self.pending_hooks()
    }

    /// The longest that anybody may have been promised.
    fn longest_promise(&self) -> Nanos {
        let edited = self.edited_promise.filter(|p| {
            let remembers = |s: &Soloist| s.started < p.until;
            let mut soloists = self.hosts.iter().filter_map(|h| h.soloist.as_ref());
            self.now < p.until || soloists.any(remembers)
        });
        let seconds = self.store.record().and_then(|r| r.duration_seconds);
        let there = seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0) * SECOND;
        let lease = self.plan.longest_lease().max(there);
        edited.map_or(lease, |p| lease.max(p.length))
    }

    /// Writes and watch events that are still under way make candidates count anew when they arrive. One that arrives after a takeover
    /// loses the race, unless the store has been set back: then its number may have been given out again, and it wins.
    fn under_way(&self, wait: Nanos) -> Nanos {
        let watches = self.hosts.iter().filter_map(|h| {
            let watch = h.soloist.as_ref()?.watch.as_ref()?;
            Some(watch.last_delivery)
        });
        let last = watches.max().unwrap_or(0).max(self.late_until);
        // Who waits by a clock that stands still has not lost the time yet.
        let paused = self.hosts.iter().filter(|h| h.paused);
        let still = paused.filter_map(|h| Some(self.now - h.frozen_since?));
        let late = (last + still.max().unwrap_or(0)).saturating_sub(self.now);
        match self.store.epoch {
            0 => late.min(wait),
            _ => late,
        }
    }

    /// Whose watch has died silently, or who knows a state that the store has lost, finds out when it would have taken
    /// over, and counts anew.
    fn deaf_replicas(&self, wait: Nanos) -> Nanos {
        let deaf = |s: &Soloist| {
            let watch_is_dead = s.watch.is_none() && s.listens_to.is_some();
            watch_is_dead || s.newest.epoch < self.store.epoch
        };
        let any = self
            .hosts
            .iter()
            .any(|h| h.soloist.as_ref().is_some_and(deaf));
        if any { wait } else { 0 }
    }

    /// A child that is not well must be found out, stopped, and started again here or elsewhere.
    fn ailing_children(&self) -> Nanos {
        let policy = self.plan.policy(0);
        let again = nanos(policy.restarts.backoff.most()).max(nanos(policy.cool_down));
        let stop = nanos(policy.ladder.stop()) + 2 * SECOND;
        let found_out = (u64::from(policy.unhealthy_after) + 8) * SECOND;
        let start = nanos(policy.start_limit);
        let mut sum = 0;
        if self.living.iter().any(|t| self.trees[*t].is_starting()) {
            sum += SLOW_START + start + stop + again;
        }
        let ails = |t: &usize| {
            let tree = &self.trees[*t];
            tree.has_processes() && (tree.is_flawed() || !tree.guard.alive())
        };
        if self.living.iter().any(ails) {
            sum += found_out + start + stop + again;
        }
        let works = |s: &Soloist| {
            s.tree()
                .is_some_and(|t| self.trees[t].works() && !self.is_due(t))
        };
        let restarts = |s: &Soloist| match s.node.state() {
            StateName::PreLeader => true,
            StateName::Leader => !works(s),
            StateName::Follower | StateName::PreFollower | StateName::Terminating => false,
        };
        if self
            .hosts
            .iter()
            .any(|h| h.soloist.as_ref().is_some_and(restarts))
        {
            sum += start + stop + again;
        }
        let stops = |s: &Soloist| {
            matches!(
                s.node.state(),
                StateName::PreFollower | StateName::Terminating
            )
        };
        if self
            .hosts
            .iter()
            .any(|h| h.soloist.as_ref().is_some_and(stops))
        {
            sum += stop + nanos(policy.cool_down);
        }
        sum
    }

    /// A store that was down has asked somebody to wait, who hears it only now: nobody waits for longer than a lease.
    fn pleas_for_patience(&self) -> Nanos {
        let plea = |what: &Event| {
            let to_soloist = match what {
                Event::ToSoloist { what, .. } => what,
                _ => return false,
            };
            matches!(
                to_soloist,
                ToSoloist::Answer {
                    answer: Answer::Throttled { .. },
                    ..
                }
            )
        };
        match self.is_held_back(plea) {
            true => self.plan.longest_lease(),
            false => 0,
        }
    }

    fn is_held_back(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.hosts.iter().any(|h| {
            let soloist = h.soloist.as_ref().map(|s| &s.held_back);
            h.held_back
                .iter()
                .chain(soloist.into_iter().flatten())
                .any(&wanted)
        })
    }

    /// Somebody has been asked to stop or to hand over, and has not heard it yet.
    fn pending_wishes(&self) -> Nanos {
        let policy = self.plan.policy(0);
        let wish = |what: &Event| {
            let to_soloist = match what {
                Event::ToSoloist { what, .. } => what,
                _ => return false,
            };
            matches!(to_soloist, ToSoloist::StopSignal | ToSoloist::HandOver)
        };
        match self.asked_until > self.now || self.is_held_back(wish) {
            true => nanos(policy.ladder.stop() + policy.cool_down) + 5 * SECOND,
            false => 0,
        }
    }

    /// An order may be under way to the leader, or have been obeyed just now: it drains, and names an heir that is dead.
    fn pending_orders(&self) -> Nanos {
        let policy = self.plan.policy(0);
        let longest = self.plan.timings.iter().map(|t| nanos(t.heir_patience()));
        match self.plan.orders {
            true => {
                nanos(policy.ladder.stop() + policy.cool_down)
                    + self.plan.longest_lease() / 2
                    + longest.max().unwrap_or(0)
                    + 5 * SECOND
            }
            false => 0,
        }
    }

    /// Everybody may let everybody else go first, until the last hook is over; then somebody is told to stop.
    fn pending_hooks(&self) -> Nanos {
        let policy = self.plan.policy(0);
        let longest = self.plan.timings.iter().map(|t| nanos(t.heir_patience()));
        let unheard = |what: &Event| {
            let what = match what {
                Event::ToSoloist { what, .. } => what,
                _ => return false,
            };
            matches!(what, ToSoloist::HookBegins | ToSoloist::HookEnds)
        };
        match self.hooks_until > self.now || self.is_held_back(unheard) {
            true => {
                self.hooks_until.saturating_sub(self.now)
                    + nanos(policy.ladder.stop() + policy.cool_down)
                    + longest.max().unwrap_or(0)
                    + 5 * SECOND
            }
            false => 0,
        }
    }

    fn cooling_down(&self) -> Nanos {
        let cool_down = self.plan.policy(0).cool_down;
        let ends = self.hosts.iter().filter_map(|h| {
            let until = h.last_step_down? + cool_down;
            // A clock that stands still has not lost the time yet.
            let pause = h.frozen_since.filter(|_| h.paused);
            let lost = pause.map_or(0, |since| self.now - since);
            Some((h.clock.when(until) + lost).saturating_sub(self.now))
        });
        ends.max().unwrap_or(0)
    }

    /// There must be a leader with a working child; and from now on it stays.
    pub(crate) fn check_leader(&mut self) -> Result<(), Violation> {
        if self.plan.once && self.job_done {
            self.queue.push(self.now, Event::End);
            return Ok(());
        }
        if self.plan.once && self.working_leaders() == 0 {
            // It may just have ended, and the next one be about to start.
            let busy = |s: &Soloist| s.node.state() != StateName::Follower;
            let soloists = self.hosts.iter().filter_map(|h| h.soloist.as_ref());
            return match soloists.into_iter().any(busy) {
                true => {
                    self.queue.push(self.now + SECOND, Event::CheckLeader);
                    Ok(())
                }
                false => Err(Violation::NoLeader),
            };
        }
        if self.working_leaders() != 1 {
            return Err(Violation::NoLeader);
        }
        self.trace
            .line(self.now, "---", || "settled: a leader is up".to_owned());
        self.checks.phase = Phase::Settled;
        if self.plan.once {
            self.queue.push(self.now, Event::End);
            return Ok(());
        }
        let quiet = 2 * self.longest_promise();
        let cool_down = nanos(self.plan.policy(0).cool_down) + 2 * SECOND;
        self.queue
            .push(self.now + quiet.max(cool_down), Event::Probe);
        Ok(())
    }

    pub(super) fn working_leaders(&self) -> usize {
        let leads = |s: &Soloist| {
            s.node.state() == StateName::Leader
                && s.tree()
                    .is_some_and(|t| self.trees[t].ready && self.trees[t].works())
        };
        let soloists = self
            .hosts
            .iter()
            .filter(|h| h.soloist.as_ref().is_some_and(leads));
        soloists.count() + usize::from(self.client_go_works())
    }
}
