//! The changes of both objects, each in its own order, as changes of the two together.

use soloist_core::ids::Version;

use super::merge::{Half, Pair};

/// What was made of them so far.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    pair: Pair,
    /// Of the newest change that was taken in.
    newest: Version,
    /// A change of the Lease that follows one of the old lock's which has not come yet, and which.
    early: Option<(Half, Version)>,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The two show a state that is to be told.
    Whole,
    /// It is the first half of a write, which is to be told if the second does not follow.
    First,
    /// It waits for the one of the old lock that it follows. Nothing more of the Lease may be taken in before.
    Early,
}

/// Each watch keeps its own order. If the other one is overtaken, a state was told that has never been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("version {late} of one object came after version {newest} of the other")]
pub(super) struct Overtaken {
    late: Version,
    newest: Version,
}

impl Changes {
    /// After this state of the two.
    pub(super) fn after(pair: Pair) -> Self {
        Self {
            newest: pair.version(),
            pair,
            early: None,
        }
    }

    /// As the two are now.
    pub(super) fn pair(&self) -> Pair {
        self.pair.clone()
    }

    pub(super) fn waits_for_the_old_lock(&self) -> bool {
        self.early.is_some()
    }

    /// A change of the old lock.
    pub(super) fn take_legacy(&mut self, half: Half) -> Result<Taken, Overtaken> {
        self.in_order(&half)?;
        self.pair.legacy = half;
        let legacy = self.pair.legacy.version;
        if let Some((lease, _)) = self.early.take_if(|(_, follows)| *follows <= legacy) {
            return self.take_lease(lease);
        }
        Ok(self.taken())
    }

    /// A change of the Lease.
    pub(super) fn take_lease(&mut self, half: Half) -> Result<Taken, Overtaken> {
        if let Some(follows) = half.follows()
            && follows > self.pair.legacy.version
        {
            self.early = Some((half, follows));
            return Ok(Taken::Early);
        }
        self.in_order(&half)?;
        self.pair.lease = half;
        Ok(self.taken())
    }

    fn in_order(&mut self, half: &Half) -> Result<(), Overtaken> {
        let (late, newest) = (half.version, self.newest);
        if late <= newest {
            return Err(Overtaken { late, newest });
        }
        self.newest = late;
        Ok(())
    }

    fn taken(&self) -> Taken {
        match self.pair.view().on_its_way {
            _ if self.early.is_some() => Taken::Early,
            true => Taken::First,
            false => Taken::Whole,
        }
    }
}
