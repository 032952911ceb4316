//! Where two trees may run at once for a while, for whom, and for how long.
//!
//! Each case is one of "What is not promised" in `docs/safety.md`, and nothing else is excused.

use std::time::Duration;

use soloist_core::guard::LEFTOVERS_GRACE;
use soloist_core::replica::OnLoss;
use soloist_core::timings::Timings;

use super::erased::{Claim, Eraser, promised_to};
use super::{Holding, ONE_WAKE_UP};
use crate::clock::{MILLI, Nanos, nanos};
use crate::queue::{HostId, TreeIndex};
use crate::summary::Counter;
use crate::tree::Tree;
use crate::world::World;

/// What the messages between soloist, guard and kernel take beside the wake-ups.
const MESSAGES: Nanos = 10 * MILLI;

impl World {
    /// Why both may run, if they may, and which of them should be dead.
    pub(super) fn excuse(
        &self,
        older: TreeIndex,
        newer: TreeIndex,
    ) -> Option<(Counter, TreeIndex)> {
        let (old, new) = (holding(&self.trees[older])?, holding(&self.trees[newer])?);
        if old == new {
            return None;
        }
        let of = |tree: TreeIndex| Some((self.excuse_alone(tree)?, tree));
        of(older)
            .or_else(|| self.leads_again(older).then(|| of(newer)).flatten())
            .or_else(|| Some((self.excused_by_erasure(older, newer)?, older)))
    }

    /// The record of this tree's term was put back over a later one's, so it is the later one that should be dead.
    fn leads_again(&self, tree: TreeIndex) -> bool {
        let Some(old) = holding(&self.trees[tree]) else {
            return false;
        };
        self.store.record().and_then(promised_to) == Some(old)
    }

    /// Why this tree may still run whoever leads, if it may.
    pub(super) fn excuse_alone(&self, older: TreeIndex) -> Option<Counter> {
        self.excused_by_helplessness(older)
            .or_else(|| self.excused_by_pause(older))
            .or_else(|| self.excused_by_grace(older))
            .or_else(|| self.excused_by_stall(older))
    }

    /// Its time is over, and nobody can act for it, or one of them only just can again.
    fn excused_by_helplessness(&self, tree: TreeIndex) -> Option<Counter> {
        let due = self.is_due(tree) || self.watchers_are_dead(tree);
        if due && !self.trees[tree].supervised {
            return Some(Counter::ExcusedBothStopped);
        }
        (due && self.unsupervised(tree)).then_some(Counter::ExcusedThaw)
    }

    /// When the host of this tree, or one who acts for it, last ran again.
    fn ran_again(&self, tree: TreeIndex) -> Nanos {
        let tree = &self.trees[tree];
        let thawed = self.hosts[tree.host].thawed_at;
        tree.supervised_again.map_or(thawed, |at| at.max(thawed))
    }

    fn watchers_are_dead(&self, tree: TreeIndex) -> bool {
        let tree = &self.trees[tree];
        !tree.guard.alive() && self.soloist(tree.host, tree.soloist).is_none()
    }

    /// The record of one of them was lost, and the other one could not know of it.
    fn excused_by_erasure(&self, older: TreeIndex, newer: TreeIndex) -> Option<Counter> {
        let lost = |lost: TreeIndex, other: TreeIndex| {
            let other = &self.trees[other];
            let claim = Claim::Soloist {
                holding: holding(other)?,
                began: other.term?.began,
            };
            self.lost_to(lost, claim)
        };
        let by = lost(older, newer).or_else(|| lost(newer, older))?;
        Some(by.counter())
    }

    /// Whether this tree's record was lost, and it may still run while that other one does.
    pub(super) fn lost_to(&self, tree: TreeIndex, claim: Claim) -> Option<Eraser> {
        let here = &self.trees[tree];
        let erased = self.checks.find_erased(holding(here)?, claim, self.now)?;
        let allowed = ONE_WAKE_UP + self.stall_allowance(here.host);
        let ran = self.ran_again(tree);
        let learned = erased
            .shown
            .is_some_and(|at| self.now > at.max(ran) + allowed);
        (!learned).then_some(erased.by)
    }

    /// The clock of its host has stood still since the last renewal, and soloist has not learned that the lease is
    /// gone. Until its validity is over by that clock.
    fn excused_by_pause(&self, tree: TreeIndex) -> Option<Counter> {
        let here = &self.trees[tree];
        let clock = &self.hosts[here.host].clock;
        let lease = self.plan.timings[here.host].lease().get();
        let lost = clock.lost_since(here.valid_until - lease);
        let over = clock.when(here.valid_until);
        let allowed = ONE_WAKE_UP + self.stall_allowance(here.host);
        let would_be_over = self.now + lost > over.saturating_sub(drift(lease));
        let ran = self.ran_again(tree);
        let learned = here
            .shown_loss
            .is_some_and(|at| self.now > at.max(ran) + allowed);
        (lost > 0 && would_be_over && self.now <= over + allowed && !learned)
            .then_some(Counter::ExcusedPause)
    }

    fn excused_by_grace(&self, tree: TreeIndex) -> Option<Counter> {
        let allowed = ONE_WAKE_UP + self.stall_allowance(self.trees[tree].host);
        let end = self.end_of_grace(tree)? + allowed;
        (self.validity_is_over(tree) && self.now <= end).then_some(Counter::ExcusedGraceful)
    }

    /// By a candidate's clock, which may be faster: before that nobody may lead, whatever the tree is given afterwards.
    fn validity_is_over(&self, tree: TreeIndex) -> bool {
        let here = &self.trees[tree];
        let lease = self.plan.timings[here.host].lease().get();
        let over = self.hosts[here.host].clock.when(here.valid_until);
        self.now > over.saturating_sub(drift(lease))
    }

    /// If the user has said that a lost lease leaves the child its whole stop timeout: when that is over, or the time of what the
    /// child has left behind.
    pub(super) fn end_of_grace(&self, tree: TreeIndex) -> Option<Nanos> {
        let here = &self.trees[tree];
        let policy = self.plan.policy(here.host);
        if policy.on_loss != OnLoss::Graceful {
            return None;
        }
        let stop = here.stop_ordered.map(|at| at + policy.ladder.stop());
        let leftovers = here.leftovers_asked.map(|at| at + LEFTOVERS_GRACE);
        // The guard's own margin, should soloist not do it.
        let end = stop.max(leftovers)? + policy.timings.guard_margin();
        Some(self.hosts[here.host].clock.when(end))
    }

    /// Wake-ups and kills on its host take longer than the margins have room for.
    fn excused_by_stall(&self, tree: TreeIndex) -> Option<Counter> {
        let here = &self.trees[tree];
        let stall = self.stall_of(here.host);
        let over = self.hosts[here.host].clock.when(here.valid_until);
        let late = stall > self.longest_harmless_stall(tree) && self.validity_is_over(tree);
        (late && self.now <= over + 2 * stall + ONE_WAKE_UP).then_some(Counter::ExcusedStall)
    }

    /// How long a wake-up and a kill may each take so that the tree is dead before anyone else can lead.
    ///
    /// Whoever is first to kill it wakes up a margin before the validity ends: soloist at the kill margin, the guard,
    /// if soloist is stopped, at its own. The candidate's clock may be faster by the tolerance.
    fn longest_harmless_stall(&self, tree: TreeIndex) -> Nanos {
        let here = &self.trees[tree];
        let timings = &self.plan.timings[here.host];
        let lease = timings.lease().get();
        let guard_alone = here
            .guard_alone
            .is_some_and(|at| self.now <= at + nanos(lease));
        let margin = match guard_alone {
            true => timings.guard_margin(),
            false => timings.kill_margin(),
        };
        nanos(margin).saturating_sub(drift(lease) + MESSAGES) / 2
    }

    pub(super) fn note_stalled_overlap(&mut self, counter: Counter, tree: TreeIndex) {
        if counter == Counter::ExcusedStall {
            let host = self.trees[tree].host;
            let lease = nanos(self.plan.timings[host].lease().get());
            let part = self.stall_of(host) as f64 / lease as f64;
            self.summary.note_stall(part);
        }
    }

    /// How long wake-ups and kills take on this host, or took a moment ago.
    fn stall_of(&self, host: HostId) -> Nanos {
        let host = &self.hosts[host];
        match self.now <= host.stall_until + 2 * host.stall {
            true => host.stall,
            false => 0,
        }
    }

    /// What a stall adds to one wake-up and what it brings about.
    pub(super) fn stall_allowance(&self, host: HostId) -> Nanos {
        4 * self.stall_of(host)
    }
}

pub(super) fn holding(tree: &Tree) -> Option<Holding> {
    Some((tree.instance, tree.term?.term))
}

/// By how much two clocks may differ after this long.
fn drift(length: Duration) -> Nanos {
    nanos(length.mul_f64(Timings::RATE_TOLERANCE))
}
