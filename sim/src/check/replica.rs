//! What a replica may do, and what it must; checked when it does it.

use std::time::Duration;

use soloist_core::election::Elected;
use soloist_core::ids::OpId;
use soloist_core::record::{Signature, Snapshot};
use soloist_core::replica::{OnLoss, Outcome, StateName};
use soloist_core::time::Moment;

use super::Violation;
use crate::clock::{Nanos, nanos};
use crate::hosts::{Newest, Soloist};
use crate::queue::{HostId, TreeIndex};
use crate::world::World;

/// How a snapshot reached a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Watch,
    /// By a read that was sent then.
    Read {
        sent: Nanos,
    },
}

impl Source {
    /// Whether this shows a state of the record that takes the place of what is known.
    pub(crate) fn is_newer(self, known: Newest, shown: Newest) -> bool {
        if shown.version > known.version {
            return true;
        }
        // The watch may overtake a read, but not one that was sent later: then the store was set back.
        match self {
            Self::Watch => false,
            Self::Read { sent } => {
                let differs = shown.version < known.version || shown.write != known.write;
                sent > known.since && differs
            }
        }
    }
}

impl Soloist {
    /// Whether it knows of a later write of its own that landed before this version, so that the record was written back.
    fn has_gone_on(&self, write: OpId, shown: Newest) -> bool {
        self.landed.is_some_and(|(last, landed)| {
            write < last && shown.version > landed.version && shown.epoch == landed.epoch
        })
    }
}

impl World {
    pub(crate) fn check_elected(
        &mut self,
        soloist: &Soloist,
        elected: &Elected,
    ) -> Result<(), Violation> {
        let holding = (soloist.instance, elected.term);
        self.checks.terms.elected(holding, elected.token)?;
        let began = self.checks.terms.find(holding.0, holding.1);
        self.checks.claimed(soloist, began.map_or(0, |b| b.at));
        self.check_settled(Some(soloist.id))
    }

    pub(crate) fn check_release(&self, soloist: &Soloist) -> Result<(), Violation> {
        match self.tree_lives(soloist) {
            true => Err(Violation::ReleasedBeforeEmpty),
            false => Ok(()),
        }
    }

    /// The tree that must be killed because of this snapshot: its lease is deleted, emptied, taken, or written back.
    pub(crate) fn shows_loss(
        &mut self,
        host: HostId,
        soloist: &Soloist,
        snapshot: &Snapshot,
        newest: Newest,
        source: Source,
    ) -> Option<TreeIndex> {
        let tree = soloist.tree()?;
        let (term, _) = soloist.node.term()?;
        let ours = snapshot.record.as_ref().is_some_and(|r| {
            let ours = |s: &&Signature| (s.instance, s.term) == (soloist.instance, term);
            let signed = r.signed().filter(ours);
            r.holder.is_some() && signed.is_some_and(|s| !soloist.has_gone_on(s.write, newest))
        });
        if ours || !source.is_newer(soloist.newest, newest) {
            return None;
        }
        let now = self.now;
        self.checks.shown((soloist.instance, term), now);
        self.trees[tree].shown_loss.get_or_insert(now);
        // A graceful replica has told its child to end already, when it could not renew.
        let graceful = self.plan.policy(host).on_loss == OnLoss::Graceful;
        (!graceful || soloist.node.tenure().is_some()).then_some(tree)
    }

    pub(crate) fn check_gave_up(&self, tree: Option<TreeIndex>) -> Result<(), Violation> {
        let carries_on = |t: TreeIndex| self.trees[t].runs() && !self.trees[t].kill_ordered;
        match tree.is_some_and(carries_on) {
            true => Err(Violation::CarriedOn),
            false => Ok(()),
        }
    }

    /// A planned stop keeps its lease, so the child has its whole stop timeout, unless something disturbs it.
    pub(crate) fn check_grace(&self, host: HostId, soloist: &Soloist) -> Result<(), Violation> {
        let Some(since) = soloist.draining_since else {
            return Ok(());
        };
        let whole = since + nanos(self.plan.policy(host).ladder.stop()) * 99 / 100;
        match self.now < whole && self.hosts[host].disturbed_until < since {
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

    pub(crate) fn check_state(&self, host: HostId, soloist: &Soloist) -> Result<(), Violation> {
        let state = soloist.node.state();
        let lives = self.tree_lives(soloist);
        let fits = match state {
            StateName::Follower => !lives && soloist.node.tree().is_none(),
            StateName::Leader => soloist.node.tree().is_some(),
            StateName::PreLeader | StateName::PreFollower => true,
            // The kernel kills what the first process of a container leaves behind.
            StateName::Terminating => !(soloist.exited && lives) || self.hosts[host].container,
        };
        match fits {
            true => Ok(()),
            false => Err(Violation::StateAndTreeDisagree { state }),
        }
    }

    /// Rights that were taken away can be given back: only who never had them may end, and not at once.
    pub(crate) fn check_gave_up_late(
        &self,
        host: HostId,
        soloist: &Soloist,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        let now = self.hosts[host].clock.read(self.now);
        let early = |since: Moment| now.since(since) < Duration::from_secs(60);
        let wrong = soloist.has_written || soloist.refused_since.is_none_or(early);
        match outcome == Outcome::Refused && wrong {
            true => Err(Violation::GaveUp),
            false => Ok(()),
        }
    }

    pub(crate) fn check_progress(&self, soloist: &Soloist, now: Moment) -> Result<(), Violation> {
        match soloist.node.next_deadline().is_some_and(|at| at <= now) {
            true => Err(Violation::BusyLoop),
            false => Ok(()),
        }
    }
}
