//! What is known of the child, for people: its processes, whether it said that it is ready, whether its health checks pass.

use serde_json::{Value, json};
use soloist_core::ids::TreeId;
use soloist_core::node::{TreeCommand, TreeEvent};

/// Processes of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Processes {
    pub(crate) child: u32,
    pub(crate) guard: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Health {
    /// No check has been made yet, or none is.
    #[default]
    NotChecked,
    Passes,
    /// So many in a row.
    Fails(u32),
}

/// The child that runs here, or nothing of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct ChildSeen {
    pub(super) processes: Option<Processes>,
    ready: bool,
    health: Health,
}

impl ChildSeen {
    pub(super) fn json(&self) -> Value {
        let (health, failed) = match self.health {
            Health::NotChecked => ("not_checked", 0),
            Health::Passes => ("passes", 0),
            Health::Fails(times) => ("fails", times),
        };
        json!({
            "pid": self.processes.map(|processes| processes.child),
            "guard_pid": self.processes.map(|processes| processes.guard),
            "ready": self.ready,
            "health": health,
            "failed_checks": failed,
        })
    }
}

/// Follows one tree after the other.
#[derive(Debug, Default)]
pub(super) struct ChildWatch {
    tree: Option<TreeId>,
    seen: ChildSeen,
}

impl ChildWatch {
    pub(super) const fn seen(&self) -> ChildSeen {
        self.seen
    }

    pub(super) fn ordered(&mut self, tree: TreeId, command: TreeCommand) {
        if matches!(command, TreeCommand::Start { .. }) {
            self.tree = Some(tree);
            self.seen = ChildSeen::default();
        }
    }

    pub(super) fn happened(&mut self, tree: TreeId, event: TreeEvent) {
        if self.tree != Some(tree) {
            return;
        }
        let seen = &mut self.seen;
        match event {
            TreeEvent::Ready => seen.ready = true,
            TreeEvent::Healthy => seen.health = Health::Passes,
            TreeEvent::Unhealthy => {
                seen.health = match seen.health {
                    Health::Fails(times) => Health::Fails(times.saturating_add(1)),
                    Health::NotChecked | Health::Passes => Health::Fails(1),
                };
            }
            TreeEvent::Exited(_) => seen.ready = false,
            TreeEvent::GuardLost => {}
            TreeEvent::Empty | TreeEvent::SpawnFailed(_) => {
                *seen = ChildSeen::default();
                self.tree = None;
            }
        }
    }

    /// The processes of the tree that runs, as far as there are any.
    pub(super) fn processes(&mut self, processes: Option<Processes>) {
        self.seen.processes = processes.filter(|_| self.tree.is_some());
    }
}

#[cfg(test)]
mod tests {
    use soloist_core::ids::{Term, Token};
    use soloist_core::replica::Exit;
    use soloist_core::time::Moment;

    use super::*;

    fn started() -> (ChildWatch, TreeId) {
        let (mut watch, tree) = (ChildWatch::default(), TreeId::new(1));
        let start = TreeCommand::Start {
            term: Term::new(1),
            token: Token::new(1),
            deadline: Moment::NEVER,
        };
        watch.ordered(tree, start);
        (watch, tree)
    }

    #[test]
    fn failed_checks_are_counted_until_one_passes() {
        let (mut watch, tree) = started();
        for (event, health, failed) in [
            (TreeEvent::Ready, "not_checked", 0),
            (TreeEvent::Unhealthy, "fails", 1),
            (TreeEvent::Unhealthy, "fails", 2),
            (TreeEvent::Healthy, "passes", 0),
        ] {
            watch.happened(tree, event);
            let json = watch.seen().json();
            assert_eq!(
                (&json["health"], &json["failed_checks"]),
                (&health.into(), &failed.into())
            );
            assert_eq!(json["ready"], true);
        }
    }

    #[test]
    fn nothing_is_known_of_a_child_that_is_no_more_or_of_another_tree() {
        let (mut watch, tree) = started();
        watch.processes(Some(Processes { child: 7, guard: 6 }));
        watch.happened(TreeId::new(2), TreeEvent::Ready);
        assert_eq!(watch.seen().json()["ready"], false);
        assert_eq!(watch.seen().json()["pid"], 7);
        watch.happened(tree, TreeEvent::Exited(Exit::Code(0)));
        watch.happened(tree, TreeEvent::Empty);
        assert_eq!(watch.seen(), ChildSeen::default());
        watch.processes(Some(Processes { child: 7, guard: 6 }));
        assert_eq!(watch.seen(), ChildSeen::default());
    }
}
