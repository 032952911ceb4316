//! At most one tree runs, and none past its deadline; checked after every step.

use soloist_core::guard::LEFTOVERS_GRACE;

use super::erased::Claim;
use super::{ONE_WAKE_UP, Violation};
use crate::clock::{Nanos, nanos};
use crate::queue::TreeIndex;
use crate::summary::Counter;
use crate::world::World;

impl World {
    pub(crate) fn check(&mut self) -> Result<(), Violation> {
        self.note_who_is_supervised();
        for n in 0..self.living.len() {
            let one = self.living[n];
            if !self.tree_runs(one) {
                continue;
            }
            for m in n + 1..self.living.len() {
                let other = self.living[m];
                if self.tree_runs(other) {
                    self.check_pair(one, other)?;
                }
            }
            self.check_with_client_go(one)?;
            self.check_guard_is_heard(one)?;
            self.check_leftovers(one)?;
            let allowed = ONE_WAKE_UP + self.stall_allowance(self.trees[one].host);
            if self.overdue(one, allowed) && !self.unsupervised(one) {
                let token = self.trees[one].token();
                return Err(Violation::OutlivedItsDeadline { token });
            }
        }
        self.measure_gap();
        Ok(())
    }

    fn tree_runs(&self, tree: TreeIndex) -> bool {
        let tree = &self.trees[tree];
        tree.runs() && !self.hosts[tree.host].frozen()
    }

    fn note_who_is_supervised(&mut self) {
        let trees = &mut self.trees;
        self.living.retain(|t| !trees[*t].is_over());
        for tree in &self.living {
            let here = &mut trees[*tree];
            let host = &self.hosts[here.host];
            let soloist = host.soloist.as_ref();
            let soloist_acts = soloist.is_some_and(|s| s.id == here.soloist && !s.frozen);
            let guard_acts = here.guard.alive() && !here.guard.frozen;
            let supervised = !host.frozen() && (soloist_acts || guard_acts);
            if supervised && !here.supervised {
                here.supervised_again = Some(self.now);
            }
            here.supervised = supervised;
            let undisturbed = !host.frozen() && self.now > host.stall_until + 2 * host.stall;
            let since = |holds: bool, before: Option<Nanos>| match holds && undisturbed {
                true => before.or(Some(self.now)),
                false => None,
            };
            here.mute_since = since(soloist_acts && here.guard.is_mute(), here.mute_since);
            here.leftovers_since = since(guard_acts && here.is_leftovers(), here.leftovers_since);
            if !soloist_acts {
                here.guard_alone = Some(self.now);
            }
        }
    }

    /// A guard that is stopped is noticed within half of the lease, while soloist itself runs.
    fn check_guard_is_heard(&self, tree: TreeIndex) -> Result<(), Violation> {
        let here = &self.trees[tree];
        let timings = &self.plan.timings[here.host];
        let bound = nanos(timings.guard_question() + timings.guard_patience());
        // Its clock may be slow, and soloist wakes up for each look.
        let allowed = bound + bound / 100 + 2 * ONE_WAKE_UP;
        match here.mute_since {
            Some(since) if self.now > since + allowed => Err(Violation::MuteGuard),
            Some(_) | None => Ok(()),
        }
    }

    fn check_leftovers(&self, tree: TreeIndex) -> Result<(), Violation> {
        let allowed = nanos(LEFTOVERS_GRACE) * 101 / 100 + 2 * ONE_WAKE_UP;
        match self.trees[tree].leftovers_since {
            Some(since) if self.now > since + allowed => Err(Violation::LeftoversLiveOn),
            Some(_) | None => Ok(()),
        }
    }

    fn check_pair(&mut self, one: TreeIndex, other: TreeIndex) -> Result<(), Violation> {
        let began = |tree: TreeIndex| self.trees[tree].term.map_or(0, |t| t.began);
        let (older, newer) = match began(one) <= began(other) {
            true => (one, other),
            false => (other, one),
        };
        let excuse = self.excuse(older, newer);
        let (old, new) = (&self.trees[older], &self.trees[newer]);
        let (older_token, newer_token) = (old.token(), new.token());
        let Some((counter, excused)) = excuse else {
            return Err(Violation::Overlap {
                older: older_token,
                newer: newer_token,
            });
        };
        let same_epoch = old.term.map(|t| t.epoch) == new.term.map(|t| t.epoch);
        if same_epoch && older_token >= newer_token {
            return Err(Violation::OlderTokenNotLower {
                older: older_token,
                newer: newer_token,
            });
        }
        if !self.checks.excused.contains(&(older, newer)) {
            self.checks.excused.push((older, newer));
            self.summary.count(counter);
            self.note_stalled_overlap(counter, excused);
        }
        Ok(())
    }

    /// A client-go elector's work and a tree do not run at once, as long as either is promised that.
    fn check_with_client_go(&mut self, tree: TreeIndex) -> Result<(), Violation> {
        let Some(elector) = self.working_client_go() else {
            return Ok(());
        };
        let here = &self.trees[tree];
        let began = here.term.map_or(0, |t| t.began);
        let older = elector.leads_since < began;
        // It goes on until its renew deadline even when it knows that it has lost the lease.
        let excused = self.now > elector.promised_until
            || !older
                && (self.lost_to(tree, Claim::ClientGo).is_some()
                    || self.excuse_alone(tree).is_some());
        let token = here.token();
        if !excused {
            return Err(Violation::OverlapWithClientGo { token });
        }
        let counted = (tree, TreeIndex::MAX);
        if !self.checks.excused.contains(&counted) {
            self.checks.excused.push(counted);
            self.summary.count(Counter::ExcusedClientGo);
        }
        Ok(())
    }

    pub(super) fn is_due(&self, tree: TreeIndex) -> bool {
        let tree = &self.trees[tree];
        self.now > self.hosts[tree.host].clock.when(tree.deadline)
    }

    /// Its deadline has passed by that much, and has been known for so long.
    fn overdue(&self, tree: TreeIndex, by: Nanos) -> bool {
        let grace = self.end_of_grace(tree).unwrap_or(0);
        let tree = &self.trees[tree];
        let deadline = self.hosts[tree.host].clock.when(tree.deadline);
        let known = deadline.max(tree.deadline_given).max(grace);
        self.now > known.saturating_add(by)
    }

    /// Neither soloist nor the guard can act for this tree, or one of them only just can again.
    pub(super) fn unsupervised(&self, tree: TreeIndex) -> bool {
        let tree = &self.trees[tree];
        let allowed = ONE_WAKE_UP + self.stall_allowance(tree.host);
        !tree.supervised
            || tree
                .supervised_again
                .is_some_and(|again| self.now <= again + allowed)
    }
}
