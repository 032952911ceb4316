//! What must hold after every step, and what must come about when the faults are over.

use std::fmt;

use soloist_core::election::Elected;
use soloist_core::ids::{InstanceId, Term, Token};
use soloist_core::record::Snapshot;
use soloist_core::replica::StateName;
use soloist_core::time::Moment;

use crate::clock::{Nanos, nanos};
use crate::hosts::Soloist;
use crate::plan::HICCUP;
use crate::queue::{Happening, HostId, TreeId};
use crate::summary::Counter;
use crate::world::World;

/// A guard or soloist that can run again has killed a tree that is overdue within this time: it wakes,
/// reads what it missed, kills, and the kernel takes the processes away.
const ONE_WAKE_UP: Nanos = 4 * HICCUP;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two trees run at once.
    Overlap {
        /// The token of the tree that should be dead.
        older: Token,
        /// The token of the other one.
        newer: Token,
    },
    /// A term's token is not greater than those before.
    TokenDidNotGrow {
        /// The new one.
        token: Token,
        /// The highest before.
        highest: Token,
    },
    /// The lease is given away while the tree lives.
    ReleasedBeforeEmpty,
    /// A tree lives past its deadline although somebody could have killed it.
    OutlivedItsDeadline {
        /// Its token.
        token: Token,
    },
    /// A leader was shown that its lease is gone and did not kill its tree.
    CarriedOn,
    /// A planned stop was cut short although nothing was wrong with the lease.
    DrainCutShort,
    /// A replica starts a child while it has one.
    SecondChild,
    /// A replica's state and its tree do not go together.
    StateAndTreeDisagree {
        /// The state.
        state: StateName,
    },
    /// A deadline that stays due: the driver would spin.
    BusyLoop,
    /// No leader with a running child in time after the last fault.
    NoLeader,
    /// A leader changed although nothing was wrong.
    Flapping,
}

impl Violation {
    /// A short name of the broken rule.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Overlap { .. } => "overlap",
            Self::TokenDidNotGrow { .. } => "token did not grow",
            Self::ReleasedBeforeEmpty => "released before the tree was empty",
            Self::OutlivedItsDeadline { .. } => "tree outlived its deadline",
            Self::CarriedOn => "leader carried on without its lease",
            Self::DrainCutShort => "planned stop cut short",
            Self::SecondChild => "second child in one replica",
            Self::StateAndTreeDisagree { .. } => "state and tree disagree",
            Self::BusyLoop => "busy loop",
            Self::NoLeader => "no leader in time",
            Self::Flapping => "leader changed without a fault",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { older, newer } => {
                write!(f, "two trees run at once, with tokens {older} and {newer}")
            }
            Self::TokenDidNotGrow { token, highest } => {
                write!(
                    f,
                    "a term began with token {token}, after one with {highest}"
                )
            }
            Self::OutlivedItsDeadline { token } => {
                write!(f, "the tree with token {token} lives past its deadline")
            }
            Self::StateAndTreeDisagree { state } => {
                write!(f, "a replica is {state} but its tree says otherwise")
            }
            other => f.write_str(other.name()),
        }
    }
}

/// What the checks remember.
#[derive(Default)]
pub(crate) struct Checks {
    highest_token: Option<Token>,
    vacated: Vec<Vacated>,
    excused: Vec<(TreeId, TreeId)>,
    settled: Option<Token>,
}

/// A term whose record an operator deleted, or changed so that no trace of the holder is left.
struct Vacated {
    instance: InstanceId,
    term: Term,
    /// Somebody has led since who had never seen that record, and so could not wait for it.
    claimed_by_stranger: bool,
}

impl Checks {
    pub(crate) fn vacate(&mut self, instance: InstanceId, term: Term) {
        self.vacated.push(Vacated {
            instance,
            term,
            claimed_by_stranger: false,
        });
    }

    fn was_claimed_by_stranger(&self, instance: InstanceId, term: Term) -> bool {
        self.vacated
            .iter()
            .any(|v| v.instance == instance && v.term == term && v.claimed_by_stranger)
    }
}

// At every step.
impl World {
    pub(crate) fn check(&mut self) -> Result<(), Violation> {
        self.note_who_is_watched();
        let running: Vec<_> = self
            .living
            .iter()
            .copied()
            .filter(|t| self.trees[*t].has_processes() && !self.hosts[self.trees[*t].host].frozen())
            .collect();
        for (n, one) in running.iter().enumerate() {
            for other in &running[n + 1..] {
                self.check_pair(*one, *other)?;
            }
            let tree = &self.trees[*one];
            if self.overdue(*one, ONE_WAKE_UP) && !self.beyond_reach(*one) {
                return Err(Violation::OutlivedItsDeadline { token: tree.token });
            }
        }
        Ok(())
    }

    fn note_who_is_watched(&mut self) {
        let trees = &mut self.trees;
        self.living.retain(|t| !trees[*t].over);
        for tree in &self.living {
            let here = &mut trees[*tree];
            let host = &self.hosts[here.host];
            let soloist = host.soloist.as_ref();
            let soloist_acts = soloist.is_some_and(|s| s.id == here.soloist && !s.frozen);
            let guard_acts = here.guard.alive && !here.guard.frozen;
            let watched = !host.frozen() && (soloist_acts || guard_acts);
            if watched && !here.watched {
                here.watched_again = Some(self.now);
            }
            here.watched = watched;
        }
    }

    fn check_pair(&mut self, one: TreeId, other: TreeId) -> Result<(), Violation> {
        let (older, newer) = match self.trees[one].token <= self.trees[other].token {
            true => (one, other),
            false => (other, one),
        };
        let (old, new) = (&self.trees[older], &self.trees[newer]);
        let due = self.overdue(older, 0) || self.watchers_are_dead(older);
        let beyond = if old.token == new.token {
            None
        } else if due && !old.watched {
            Some(Counter::BeyondBothStopped)
        } else if due && self.beyond_reach(older) {
            Some(Counter::BeyondThaw)
        } else if self.checks.was_claimed_by_stranger(old.instance, old.term) {
            Some(Counter::BeyondDeletion)
        } else {
            None
        };
        let Some(counter) = beyond else {
            return Err(Violation::Overlap {
                older: old.token,
                newer: new.token,
            });
        };
        if !self.checks.excused.contains(&(older, newer)) {
            self.checks.excused.push((older, newer));
            self.summary.count(counter);
        }
        Ok(())
    }

    fn watchers_are_dead(&self, tree: TreeId) -> bool {
        let tree = &self.trees[tree];
        !tree.guard.alive && self.soloist(tree.host, tree.soloist).is_none()
    }

    fn overdue(&self, tree: TreeId, by: Nanos) -> bool {
        let tree = &self.trees[tree];
        let deadline = self.hosts[tree.host].clock.when(tree.deadline);
        self.now > deadline.saturating_add(by)
    }

    /// Neither soloist nor the guard can act for this tree, or one of them only just can again.
    fn beyond_reach(&self, tree: TreeId) -> bool {
        let tree = &self.trees[tree];
        !tree.watched
            || tree
                .watched_again
                .is_some_and(|again| self.now <= again + ONE_WAKE_UP)
    }
}

// At what a replica does.
impl World {
    pub(crate) fn check_elected(
        &mut self,
        soloist: &Soloist,
        elected: &Elected,
    ) -> Result<(), Violation> {
        let own_vacated = self
            .checks
            .was_claimed_by_stranger(soloist.instance, elected.term);
        for vacated in &mut self.checks.vacated {
            let seen = soloist.seen.contains(&(vacated.instance, vacated.term));
            if !seen && vacated.instance != soloist.instance {
                vacated.claimed_by_stranger = true;
            }
        }
        match self.checks.highest_token {
            Some(highest) if elected.token <= highest && !own_vacated => {
                return Err(Violation::TokenDidNotGrow {
                    token: elected.token,
                    highest,
                });
            }
            highest => self.checks.highest_token = highest.max(Some(elected.token)),
        }
        if self.checks.settled.is_some() {
            return Err(Violation::Flapping);
        }
        Ok(())
    }

    pub(crate) fn check_release(&self, soloist: &Soloist) -> Result<(), Violation> {
        match self.tree_lives(soloist) {
            true => Err(Violation::ReleasedBeforeEmpty),
            false => Ok(()),
        }
    }

    /// The tree that must be killed because of this snapshot: its lease is deleted, emptied or taken.
    pub(crate) fn shows_loss(&self, soloist: &Soloist, snapshot: &Snapshot) -> Option<TreeId> {
        let tree = soloist.tree?;
        let ours = snapshot.record.as_ref().is_some_and(|r| {
            r.holder.is_some() && r.signed().is_some_and(|s| s.instance == soloist.instance)
        });
        let news = snapshot.version.get() > soloist.newest;
        (news && !ours).then_some(tree)
    }

    pub(crate) fn check_gave_up(&self, tree: Option<TreeId>) -> Result<(), Violation> {
        let carries_on = |t: TreeId| self.trees[t].has_processes() && !self.trees[t].kill_ordered;
        match tree.is_some_and(carries_on) {
            true => Err(Violation::CarriedOn),
            false => Ok(()),
        }
    }

    /// A planned stop keeps its lease, so the child has its whole stop timeout, unless there is trouble.
    pub(crate) fn check_grace(&self, host: HostId, soloist: &Soloist) -> Result<(), Violation> {
        let Some(since) = soloist.draining_since else {
            return Ok(());
        };
        let whole = since + nanos(self.plan.policy(host).ladder.stop()) * 99 / 100;
        match self.now < whole && self.hosts[host].troubled_until < since {
            true => Err(Violation::DrainCutShort),
            false => Ok(()),
        }
    }

    pub(crate) fn check_spawn(&self, soloist: &Soloist) -> Result<(), Violation> {
        match self.tree_lives(soloist) {
            true => Err(Violation::SecondChild),
            false => Ok(()),
        }
    }

    /// Any tree that this very process has started.
    fn tree_lives(&self, soloist: &Soloist) -> bool {
        self.living
            .iter()
            .any(|t| self.trees[*t].soloist == soloist.id && self.trees[*t].has_processes())
    }

    pub(crate) fn check_state(&self, soloist: &Soloist) -> Result<(), Violation> {
        let state = soloist.replica.state();
        let lives = self.tree_lives(soloist);
        let fits = match state {
            StateName::Follower => !lives && soloist.tree.is_none(),
            StateName::Leader => soloist.tree.is_some(),
            StateName::PreLeader | StateName::PreFollower => true,
            StateName::Terminating => !(soloist.exited && lives),
        };
        match fits {
            true => Ok(()),
            false => Err(Violation::StateAndTreeDisagree { state }),
        }
    }

    pub(crate) fn check_progress(&self, soloist: &Soloist, now: Moment) -> Result<(), Violation> {
        let next = [
            soloist.election.next_deadline(),
            soloist.replica.next_deadline(),
        ];
        match next.into_iter().flatten().any(|at| at <= now) {
            true => Err(Violation::BusyLoop),
            false => Ok(()),
        }
    }
}

// When the faults are over.
impl World {
    /// There must be a leader with a running child; and from now on it stays.
    pub(crate) fn must_lead(&mut self) -> Result<(), Violation> {
        let leads = |s: &Soloist| s.replica.state() == StateName::Leader;
        let leaders: Vec<_> = self
            .hosts
            .iter()
            .filter_map(|h| h.soloist.as_ref().filter(|s| leads(s)))
            .collect();
        let [leader] = leaders[..] else {
            return Err(Violation::NoLeader);
        };
        let up = leader
            .tree
            .is_some_and(|t| self.trees[t].ready && self.trees[t].has_processes());
        if !up {
            return Err(Violation::NoLeader);
        }
        self.checks.settled = leader.replica.term().map(|(_, token)| token);
        self.trace
            .line(self.now, "---", || "settled: a leader is up".to_owned());
        let end = self.now + 3 * self.plan.longest_lease();
        self.queue.push(end, Happening::End);
        Ok(())
    }
}
