//! What a replica does in its cluster beside the lease: what it announces, whom it names as its heir, and how long a planned
//! stop waits for that. Nothing of it can begin a term or make one longer, and where it fails all goes on without.

use std::pin::Pin;
use std::time::Duration;

use soloist_core::election::Loss;
use soloist_core::ids::{Identity, TreeId};
use soloist_core::node::{Notice, TreeCommand, TreeEvent};
use soloist_core::orders::Ordered;
use soloist_core::replica::StateName;
use soloist_core::time::Moment;
use soloist_elector::kubernetes::KubernetesStore;
use tokio::time::timeout;
use tracing::debug;

use crate::announce::Announcer;
use crate::cordon::{Cordon, Move};
use crate::heirs::HeirSearch;
use crate::settings::InPod;

/// A planned stop waits no longer than this for its Pod to show that it does not lead.
const LONGEST_FOR_ROLE: Duration = Duration::from_secs(1);
/// Nor longer than this to know its heir. The child works on meanwhile.
const LONGEST_FOR_HEIR: Duration = Duration::from_millis(500);

/// See the [module](self). Does nothing where the lease is not in Kubernetes.
pub(crate) struct InCluster {
    store: Option<KubernetesStore>,
    identity: Identity,
    announcer: Announcer,
    cordon: Option<Cordon>,
    may_move: MayMove,
    heirs: Option<HeirSearch>,
    /// Somebody has named the heir of this term.
    heir_is_ordered: bool,
    is_lost: bool,
    held: Option<HeldStop>,
}

/// Whether another replica could lead instead of us now, by all that we know.
#[derive(Default)]
struct MayMove {
    leads: bool,
    /// The Pod's end is near, and has a handover of its own.
    ending: bool,
    /// Nobody could take over.
    paused: bool,
}

/// A stop that waits for a moment.
struct HeldStop {
    tree: TreeId,
    until: Pin<Box<dyn Future<Output = ()>>>,
}

/// What is to be done now.
pub(crate) enum Due {
    /// Name this one in the release.
    Heir(Identity),
    /// Ask the child to stop.
    Stop(TreeId),
    /// Hand over, because our node is to be emptied.
    Move(Move),
}

impl InCluster {
    /// Must be called in a runtime.
    pub(crate) fn start(store: Option<KubernetesStore>, identity: Identity, wanted: InPod) -> Self {
        let cordon = store.as_ref().filter(|_| wanted.leave_cordoned_node);
        Self {
            announcer: Announcer::start(store.as_ref(), &identity, wanted.label_role),
            cordon: cordon.and_then(|store| Cordon::start(store, &identity)),
            may_move: MayMove::default(),
            store,
            identity,
            heirs: None,
            heir_is_ordered: false,
            is_lost: false,
            held: None,
        }
    }

    /// Before the replica is told of it.
    pub(crate) fn asked_to_stop(&mut self, leads: bool) {
        self.announcer.asked_to_stop();
        if leads && !self.heir_is_ordered && self.heirs.is_none() {
            let store = self.store.as_ref();
            self.heirs = store.and_then(|store| HeirSearch::begin(store, &self.identity));
        }
    }

    /// Whether the Pod's end is near.
    pub(crate) fn set_ending(&mut self, ending: bool) {
        self.announcer.set_ending(ending);
        self.may_move.ending = ending;
        self.tell_cordon();
    }

    fn tell_cordon(&self) {
        if let Some(cordon) = &self.cordon {
            let MayMove {
                leads,
                ending,
                paused,
            } = self.may_move;
            cordon.leads(leads && !ending && !paused);
        }
    }

    /// Before the replica is told of it.
    pub(crate) fn moves(&mut self, found: &Move) {
        self.heir_is_ordered = true;
        self.announcer.moves(found);
    }

    /// `released`: the last try to release the lease has landed.
    pub(crate) fn notice(&mut self, now: Moment, notice: &Notice, released: bool) {
        match notice {
            Notice::Elected(_) => (self.is_lost, self.heir_is_ordered) = (false, false),
            Notice::State { to, .. } => self.may_move.leads = *to == StateName::Leader,
            Notice::Paused(pause) => self.may_move.paused = pause.is_some(),
            Notice::Ordered(Ordered::Handover(Some(_))) => {
                self.heir_is_ordered = true;
                self.heirs = None;
            }
            Notice::Lost(loss) if *loss != Loss::Resigned => {
                self.is_lost = true;
                if let Some(held) = &mut self.held {
                    held.until = Box::pin(async {});
                }
            }
            _ => {}
        }
        self.tell_cordon();
        self.announcer.notice(now, notice, released);
    }

    /// What is to be done with the tree at once. A planned stop may have to wait for a moment: then it is due later.
    pub(crate) fn command(
        &mut self,
        now: Moment,
        tree: TreeId,
        command: TreeCommand,
    ) -> Option<TreeCommand> {
        self.announcer.command(now, command);
        match command {
            TreeCommand::Stop if !self.is_lost => match self.before_a_stop() {
                Some(until) => {
                    debug!("the stop waits for a moment");
                    self.held = Some(HeldStop { tree, until });
                    None
                }
                None => Some(command),
            },
            TreeCommand::Kill => {
                self.held.take_if(|held| held.tree == tree);
                Some(command)
            }
            _ => Some(command),
        }
    }

    fn before_a_stop(&self) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        let shown = self.announcer.role_shown();
        let known = self.heirs.as_ref().and_then(HeirSearch::over);
        if shown.is_none() && known.is_none() {
            return None;
        }
        Some(Box::pin(async move {
            let shown = async {
                if let Some(shown) = shown {
                    let _ = timeout(LONGEST_FOR_ROLE, shown).await;
                }
            };
            let known = async {
                if let Some(known) = known {
                    let _ = timeout(LONGEST_FOR_HEIR, known).await;
                }
            };
            tokio::join!(shown, known);
        }))
    }

    pub(crate) fn child(&mut self, now: Moment, event: TreeEvent) {
        self.announcer.child(now, event);
    }

    /// What is due next. May be cancelled.
    pub(crate) async fn next(&mut self) -> Due {
        tokio::select! {
            heir = found(&mut self.heirs) => {
                self.announcer.heir_is(&heir);
                Due::Heir(heir)
            }
            tree = due(&mut self.held) => {
                self.held = None;
                Due::Stop(tree)
            }
            found = moved(&mut self.cordon) => Due::Move(found),
        }
    }

    /// Before we exit.
    pub(crate) async fn finish(&mut self) {
        self.announcer.finish().await;
    }
}

async fn found(heirs: &mut Option<HeirSearch>) -> Identity {
    match heirs {
        Some(search) => search.found().await,
        None => std::future::pending().await,
    }
}

async fn moved(cordon: &mut Option<Cordon>) -> Move {
    match cordon {
        Some(cordon) => cordon.next().await,
        None => std::future::pending().await,
    }
}

async fn due(held: &mut Option<HeldStop>) -> TreeId {
    match held {
        Some(held) => {
            held.until.as_mut().await;
            held.tree
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use soloist_elector::clock;

    use super::*;

    const TREE: TreeId = TreeId::new(1);

    /// With a stop that waits for what does not come.
    fn waiting() -> InCluster {
        let identity = Identity::try_new("a").unwrap();
        let mut cluster = InCluster::start(None, identity, InPod::default());
        cluster.held = Some(HeldStop {
            tree: TREE,
            until: Box::pin(std::future::pending()),
        });
        assert!(cluster.next().now_or_never().is_none());
        cluster
    }

    #[test]
    fn a_lost_lease_waits_for_nothing() {
        let mut cluster = waiting();
        cluster.notice(clock::now(), &Notice::Lost(Loss::RenewDeadline), false);
        let due = cluster.next().now_or_never();
        assert!(matches!(due, Some(Due::Stop(TREE))));
        assert!(cluster.next().now_or_never().is_none());
    }

    #[test]
    fn who_is_killed_is_not_asked_to_stop_any_more() {
        let mut cluster = waiting();
        let kill = cluster.command(clock::now(), TREE, TreeCommand::Kill);
        assert_eq!(kill, Some(TreeCommand::Kill));
        assert!(cluster.held.is_none());
    }

    #[test]
    fn where_nothing_has_to_be_told_or_known_a_stop_does_not_wait() {
        let mut cluster = waiting();
        cluster.held = None;
        cluster.asked_to_stop(true);
        let stop = cluster.command(clock::now(), TREE, TreeCommand::Stop);
        assert_eq!(stop, Some(TreeCommand::Stop));
    }
}
