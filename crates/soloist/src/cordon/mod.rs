//! A leader whose node is to be emptied hands over before its Pod is evicted, if a standby is ready on a node that stays:
//! `--leave-cordoned-node`.
//!
//! A task of its own, which looks only while we lead. The node is watched; standbys are looked for when it is to be emptied, and again
//! after growing pauses if there is none. What we may not do is said once, with the rule that is missing, and then left.

mod leaving;
mod node;

use std::time::Duration;

use soloist_core::ids::Identity;
use soloist_elector::kubernetes::KubernetesStore;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use crate::announce::{Asking, Refusal, Rule};
use crate::heirs;
use crate::own_pod::OwnPod;
pub(crate) use leaving::Leaving;
use node::{NodeWatch, Seen};

const NODES: Rule = Rule {
    group: "",
    resource: "nodes",
    verbs: "get, watch",
};

/// Between two looks for a standby elsewhere: twice as long each time, up to the longest.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const LONGEST_LOOK: Duration = Duration::from_secs(60);
/// Who leads again on the same node, still to be emptied, was taken back: the next try waits, twice as long after each.
const MOVE_AGAIN: Duration = Duration::from_secs(60);
const LONGEST_MOVE: Duration = Duration::from_secs(1800);
/// After a right that is missing.
const REFUSED: Duration = Duration::from_secs(600);

/// Hand over now.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) heir: Identity,
    pub(crate) node: String,
    pub(crate) leaving: Leaving,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Cordon {
    leads: watch::Sender<bool>,
    moves: mpsc::Receiver<Move>,
    task: JoinHandle<()>,
}

impl Cordon {
    /// `None` where replicas are not called as their Pods are.
    pub(crate) fn start(store: &KubernetesStore, identity: &Identity) -> Option<Self> {
        let Some(pod) = OwnPod::find().filter(|pod| pod.name == identity.as_str()) else {
            warn!(
                "--leave-cordoned-node: this is no Pod, or the replica is not called as its Pod is (POD_NAME, POD_NAMESPACE, --identity); nothing \
                 is handed over because of a node"
            );
            return None;
        };
        let (leads, is_leading) = watch::channel(false);
        let (tell, moves) = mpsc::channel(1);
        let looking = Looking {
            asking: Asking::of(store.clone()),
            pod,
            tell,
            said: Said::default(),
            moved: 0,
            not_before: Instant::now(),
        };
        Some(Self {
            leads,
            moves,
            task: tokio::spawn(work(looking, is_leading)),
        })
    }

    /// Whether we lead and could hand over.
    pub(crate) fn leads(&self, leads: bool) {
        self.leads.send_if_modified(|known| {
            let is_new = *known != leads;
            *known = leads;
            is_new
        });
    }

    /// May be cancelled.
    pub(crate) async fn next(&mut self) -> Move {
        match self.moves.recv().await {
            Some(found) => found,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Cordon {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn work(mut looking: Looking, mut leads: watch::Receiver<bool>) {
    loop {
        if leads.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        tokio::select! {
            () = looking.while_leading() => {}
            _ = leads.wait_for(|leads| !*leads) => {}
        }
    }
}

/// What was said of missing rights, each once.
#[derive(Debug, Default)]
struct Said {
    pods: bool,
    nodes: bool,
}

struct Looking {
    asking: Asking,
    pod: OwnPod,
    tell: mpsc::Sender<Move>,
    said: Said,
    /// So often since the node was last seen to stay.
    moved: u32,
    not_before: Instant,
}

impl Looking {
    /// Until it is dropped.
    async fn while_leading(&mut self) {
        let node = self.own_node().await;
        let mut watch = NodeWatch::new(self.asking.clone(), node.clone());
        let mut leaving: Option<Leaving> = None;
        let mut look = Instant::now();
        let mut pause = LOOK_AGAIN;
        loop {
            tokio::select! {
                seen = watch.next() => {
                    let now = self.judge(&node, seen);
                    if now != leaving {
                        (look, pause) = (self.not_before.max(Instant::now()), LOOK_AGAIN);
                        leaving = now;
                    }
                    if leaving.is_none() {
                        (self.moved, self.not_before) = (0, Instant::now());
                    }
                }
                () = sleep_until(look), if leaving.is_some() => {
                    let Some(leaving) = leaving.clone() else { continue };
                    match self.heir(&node).await {
                        Some(heir) => {
                            self.put_off();
                            look = self.not_before;
                            let node = node.clone();
                            let _ = self.tell.send(Move { heir, node, leaving }).await;
                        }
                        None => {
                            if pause == LOOK_AGAIN {
                                info!(node, why = %leaving, "our node is to be emptied, but no standby is ready on another one: we lead on");
                            }
                            look = Instant::now() + pause;
                            pause = LONGEST_LOOK.min(2 * pause);
                        }
                    }
                }
            }
        }
    }

    fn put_off(&mut self) {
        self.not_before = Instant::now() + pause_after(self.moved);
        self.moved = self.moved.saturating_add(1);
    }

    /// Where our Pod runs; waits until that is known.
    async fn own_node(&mut self) -> String {
        let OwnPod { namespace, name } = &self.pod;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let mut pause = LOOK_AGAIN;
        loop {
            let wait = match self.asking.get(&path).await {
                Ok(pod) => match pod.pointer("/spec/nodeName").and_then(|node| node.as_str()) {
                    Some(node) => return node.to_owned(),
                    None => LONGEST_LOOK,
                },
                Err(Refusal::Forbidden(message)) => {
                    self.say_pods(&message);
                    REFUSED
                }
                Err(failure) => {
                    debug!(%failure, "our own Pod is not known");
                    pause
                }
            };
            sleep(wait).await;
            pause = LONGEST_LOOK.min(2 * pause);
        }
    }

    fn judge(&mut self, node: &str, seen: Seen) -> Option<Leaving> {
        match seen {
            Seen::Node(object) => {
                let leaving = Leaving::of(&object);
                debug!(node, ?leaving, "our node was seen");
                leaving
            }
            Seen::Gone => Some(Leaving::Deleted),
            Seen::Forbidden(message) => {
                self.say_nodes(&message);
                None
            }
        }
    }

    async fn heir(&mut self, node: &str) -> Option<Identity> {
        match heirs::elsewhere(&self.asking, &self.pod, node).await {
            Ok(heir) => heir,
            Err(heirs::Unknown::Pods(Refusal::Forbidden(message))) => {
                self.say_pods(&message);
                None
            }
            Err(heirs::Unknown::Nodes(Refusal::Forbidden(message))) => {
                self.say_nodes(&message);
                None
            }
            Err(failure) => {
                debug!(?failure, "no standby elsewhere is found");
                None
            }
        }
    }

    fn say_pods(&mut self, message: &str) {
        if !std::mem::replace(&mut self.said.pods, true) {
            let rule = heirs::RULE;
            warn!(
                "--leave-cordoned-node: Pods may not be read, so no node is left, and nothing else changes. Add a rule to the Role: {rule} ({message})"
            );
        }
    }

    fn say_nodes(&mut self, message: &str) {
        if !std::mem::replace(&mut self.said.nodes, true) {
            warn!(
                "--leave-cordoned-node: nodes may not be read, so none is left, and nothing else changes. Add a rule to a ClusterRole, bound by a \
                 ClusterRoleBinding: {NODES} ({message})"
            );
        }
    }
}

/// Until the next handover, after so many and this one.
fn pause_after(moved: u32) -> Duration {
    LONGEST_MOVE.min(MOVE_AGAIN.saturating_mul(1 << moved.min(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_taken_back_again_and_again_tries_more_and_more_seldom() {
        let pauses: Vec<u64> = (0..7).map(|moved| pause_after(moved).as_secs()).collect();
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1800, 1800]);
        assert_eq!(pause_after(u32::MAX), LONGEST_MOVE);
    }
}
