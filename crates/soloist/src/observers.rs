//! All who are told what the main loop sees and does: the log, and the listener if there is one.

use soloist_core::ids::{Identity, TreeId};
use soloist_core::node::{Node, Notice, TreeCommand, TreeEvent};
use soloist_core::time::Moment;
use soloist_elector::carrier::Arrival;
use soloist_elector::clock;

use crate::listener::{BEAT_EVERY, Processes, Publisher};
use crate::notices::Log;

/// None of them is waited for.
pub(crate) struct Observers {
    log: Log,
    publisher: Option<Publisher>,
}

impl Observers {
    /// With or without somebody to elect, and a listener.
    pub(crate) fn new(candidate: Option<Identity>, publisher: Option<Publisher>) -> Self {
        Self {
            log: Log::about(candidate),
            publisher,
        }
    }

    /// When the loop is to turn at the latest, to be seen to.
    pub(crate) fn next_turn(&self) -> Moment {
        match self.publisher {
            Some(_) => clock::now() + BEAT_EVERY,
            None => Moment::NEVER,
        }
    }

    /// The loop has turned; all that was to be done is done, or under way.
    pub(crate) fn turn(&mut self, node: &Node, ending: bool, processes: Option<Processes>) {
        if let Some(publisher) = &mut self.publisher {
            publisher.turn(node, self.log.contact(), ending, processes);
        }
    }

    /// What came from the store.
    pub(crate) fn arrived(&mut self, now: Moment, arrival: &Arrival) {
        self.log.arrived(now, arrival);
        if let Some(publisher) = &mut self.publisher {
            publisher.arrived(arrival);
        }
    }

    /// What the replica has to say.
    pub(crate) fn notice(&mut self, notice: &Notice) {
        self.log.notice(notice);
        if let Some(publisher) = &mut self.publisher {
            publisher.notice(notice);
        }
    }

    /// Whether the lease has been released.
    pub(crate) const fn has_released(&self) -> bool {
        self.log.has_released()
    }

    /// What it wants to be done with a tree.
    pub(crate) fn ordered(&mut self, node: &Node, tree: TreeId, command: TreeCommand) {
        if matches!(command, TreeCommand::Start { .. }) {
            self.log.child_starts();
        }
        if let Some(publisher) = &mut self.publisher {
            publisher.ordered(tree, command, node.state());
        }
    }

    /// What has become of a tree.
    pub(crate) fn happened(&mut self, now: Moment, tree: TreeId, event: TreeEvent) {
        if let Some(publisher) = &mut self.publisher {
            publisher.happened(now, tree, event);
        }
    }

    /// Who leads, as far as we know.
    pub(crate) fn status(&self, now: Moment, node: &Node) {
        self.log.status(now, node);
    }
}
