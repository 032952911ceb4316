//! The role as a label on our own Pod, so that a Service can select the leader; and what it costs to delete it, so that a
//! scale-down takes standbys first.

use std::time::Duration;

use serde_json::{Value, json};
use soloist_elector::kubernetes::KubernetesStore;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::api::{Asking, Refusal, Rule};
use crate::own_pod::OwnPod;

/// After a failure; twice as long after each further one, up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

const RULE: Rule = Rule {
    group: "",
    resource: "pods",
    verbs: "patch",
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Leader,
    Standby,
}

impl Role {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Standby => "standby",
        }
    }

    /// A merge patch.
    fn patch(self) -> Value {
        let cost = match self {
            Self::Leader => json!("1000"),
            Self::Standby => Value::Null,
        };
        json!({
            "metadata": {
                "labels": { "soloist.dev/role": self.as_str() },
                "annotations": { "controller.kubernetes.io/pod-deletion-cost": cost },
            },
        })
    }
}

/// The latest wish counts; those before it that were not granted yet are forgotten.
#[derive(Debug)]
pub(super) struct RoleLabel {
    wanted: watch::Sender<(u64, Role)>,
    /// The last wish that was granted, or cannot be.
    settled: watch::Receiver<u64>,
}

impl RoleLabel {
    pub(super) fn start(store: KubernetesStore, pod: Option<OwnPod>) -> Option<Self> {
        let Some(pod) = pod else {
            warn!(
                "--label-role: this is no Pod, or nobody says which (POD_NAME); nothing is labelled"
            );
            return None;
        };
        let (wanted, wishes) = watch::channel((1, Role::Standby));
        let (tell, settled) = watch::channel(0);
        tokio::spawn(work(Asking::of(store), pod, wishes, tell));
        Some(Self { wanted, settled })
    }

    /// What is wanted is seen here, and granted by nobody.
    #[cfg(test)]
    pub(super) fn unheard() -> (Self, watch::Receiver<(u64, Role)>) {
        let (wanted, wishes) = watch::channel((1, Role::Standby));
        let (_, settled) = watch::channel(0);
        (Self { wanted, settled }, wishes)
    }

    pub(super) fn want(&self, role: Role) {
        self.wanted.send_if_modified(|wish| {
            let is_new = wish.1 != role;
            if is_new {
                *wish = (wish.0 + 1, role);
            }
            is_new
        });
    }

    /// See [`super::Announcer::role_shown`].
    pub(super) fn shown(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let (wish, _) = *self.wanted.borrow();
        let mut settled = self.settled.clone();
        if *settled.borrow() >= wish {
            return None;
        }
        Some(async move {
            // An end of the task is an end of waiting as well.
            let _ = settled.wait_for(|settled| *settled >= wish).await;
        })
    }
}

async fn work(
    asking: Asking,
    pod: OwnPod,
    mut wishes: watch::Receiver<(u64, Role)>,
    tell: watch::Sender<u64>,
) {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
    let mut pause = PAUSE;
    loop {
        let (wish, role) = *wishes.borrow_and_update();
        let granted = match asking.merge(&path, &role.patch()).await {
            Ok(_) => {
                info!(role = %role.as_str(), "the Pod is labelled");
                true
            }
            Err(Refusal::Forbidden(message)) => {
                warn!(
                    "--label-role: the Pod is not labelled, and nothing else changes. Add a rule to the Role: {RULE} ({message})"
                );
                tell.send_replace(u64::MAX);
                return;
            }
            Err(failure) => {
                debug!(?role, %failure, "the Pod is not labelled yet");
                false
            }
        };
        let changed = match granted {
            true => {
                pause = PAUSE;
                tell.send_replace(wish);
                wishes.changed().await
            }
            false => tokio::select! {
                changed = wishes.changed() => changed,
                () = sleep(pause) => {
                    pause = LONGEST_PAUSE.min(2 * pause);
                    Ok(())
                }
            },
        };
        if changed.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_costs_nothing_to_delete() {
        let cost = "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost";
        let standby = Role::Standby.patch();
        assert_eq!(standby["metadata"]["labels"]["soloist.dev/role"], "standby");
        assert_eq!(standby.pointer(cost), Some(&Value::Null));
        let leader = Role::Leader.patch();
        assert_eq!(leader["metadata"]["labels"]["soloist.dev/role"], "leader");
        assert_eq!(leader.pointer(cost), Some(&json!("1000")));
    }
}
