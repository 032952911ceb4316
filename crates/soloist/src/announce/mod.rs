//! What Kubernetes is told of us beside the lease: Events, and the role on our own Pod.
//!
//! Tasks of their own, with bounded queues and short limits: the election neither waits for them nor hears of their failures.
//! What we may not do is said once, with the rule that is missing, and then left.

mod api;
mod events;
mod role;
mod story;

use std::time::Duration;

use soloist_core::ids::Identity;
use soloist_core::node::{Notice, TreeCommand, TreeEvent};
use soloist_core::replica::StateName;
use soloist_core::time::Moment;
use soloist_elector::kubernetes::KubernetesStore;
use tokio::time::timeout;

use crate::cordon::Move;
use crate::own_pod::OwnPod;
use events::Events;
use role::{Role, RoleLabel};
use story::Story;
pub(crate) use story::Why;

pub(crate) use api::{Asking, Refusal, Rule};

/// Whoever exits waits so long for what is still to be told; the lease is released by then.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A replica's voice. Says nothing where the lease is not in Kubernetes.
#[derive(Debug)]
pub(crate) struct Announcer {
    story: Story,
    events: Option<Events>,
    role: Option<RoleLabel>,
    leads: bool,
    /// The Pod's end is near: it is not shown as the leader's any more.
    ending: bool,
}

impl Announcer {
    /// Must be called in a runtime.
    pub(crate) fn start(
        store: Option<&KubernetesStore>,
        identity: &Identity,
        label_role: bool,
    ) -> Self {
        let pod = OwnPod::find();
        let role = store
            .filter(|_| label_role)
            .and_then(|store| RoleLabel::start(store.clone(), pod.clone()));
        Self {
            story: Story::new(identity.clone()),
            events: store.map(|store| Events::start(store.clone(), pod, identity)),
            role,
            leads: false,
            ending: false,
        }
    }

    /// Before the replica is told of it.
    pub(crate) const fn asked_to_stop(&mut self) {
        self.story.asked_to_stop();
    }

    /// Who is to lead after us, if our term ends in order.
    pub(crate) fn heir_is(&mut self, heir: &Identity) {
        self.story.heir_is(heir);
    }

    /// We hand over to this one, because our node is to be emptied.
    pub(crate) fn moves(&mut self, found: &Move) {
        self.story.moves(found);
    }

    /// `released`: the last try to release the lease has landed.
    pub(crate) fn notice(&mut self, now: Moment, notice: &Notice, released: bool) {
        if let Notice::State { to, .. } = notice {
            self.leads = *to == StateName::Leader;
            self.show_role();
        }
        let told = self.story.notice(notice, released);
        self.tell(now, told);
    }

    pub(crate) fn command(&mut self, now: Moment, command: TreeCommand) {
        let told = self.story.command(command);
        self.tell(now, told);
    }

    pub(crate) fn child(&mut self, now: Moment, event: TreeEvent) {
        let told = self.story.child(event);
        self.tell(now, told);
    }

    /// Whether the Pod's end is near. So a leader's endpoint has gone before its child is asked to stop, if there is a hook that
    /// waits for it.
    pub(crate) fn set_ending(&mut self, ending: bool) {
        self.ending = ending;
        self.show_role();
    }

    fn show_role(&self) {
        if let Some(label) = &self.role {
            label.want(match self.leads && !self.ending {
                true => Role::Leader,
                false => Role::Standby,
            });
        }
    }

    fn tell(&mut self, now: Moment, told: Option<story::Told>) {
        if let (Some(events), Some(told)) = (&mut self.events, told) {
            events.tell(now, told);
        }
    }

    /// When the Pod shows the role that it has now, or cannot. `None` if it does so already.
    pub(crate) fn role_shown(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.role.as_ref()?.shown()
    }

    /// What is still to be told is told, or not, within a moment.
    pub(crate) async fn finish(&mut self) {
        if let Some(events) = self.events.take() {
            let _ = timeout(LAST_WORDS, events.finish()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use soloist_elector::clock;

    use super::*;

    #[test]
    fn a_leader_whose_pods_end_is_near_is_shown_as_none_until_that_was_a_false_alarm() {
        let identity = Identity::try_new("a").unwrap();
        let mut announcer = Announcer::start(None, &identity, true);
        let (label, wishes) = RoleLabel::unheard();
        announcer.role = Some(label);
        let shown = || *wishes.borrow();
        let state = |from, to| Notice::State { from, to };
        let (before, leads) = (StateName::PreLeader, StateName::Leader);
        announcer.notice(clock::now(), &state(before, leads), false);
        assert_eq!(shown(), (2, Role::Leader));
        for _ in 0..3 {
            announcer.set_ending(true);
        }
        assert_eq!(shown(), (3, Role::Standby), "said once");
        announcer.set_ending(false);
        assert_eq!(shown(), (4, Role::Leader));
        announcer.set_ending(true);
        announcer.notice(clock::now(), &state(leads, before), false);
        announcer.notice(clock::now(), &state(before, leads), false);
        assert_eq!(
            shown(),
            (5, Role::Standby),
            "the next child is no end's either"
        );
    }
}
