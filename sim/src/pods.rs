//! Pods as the API server shows them: what their kubelets report of containers, how late, and what others write there.

use soloist_core::death::{ContainerEnd, PodReport};
use soloist_core::ids::{InstanceId, PodUid};

use crate::clock::{MILLI, Nanos, SECOND};
use crate::faults::Fault;
use crate::plan::LINK;
use crate::queue::{Event, HostId, SoloistId, ToSoloist};
use crate::rng::Rng;
use crate::world::World;

/// A kubelet that has nothing else to do reports a container that has ended within this time.
const REPORT: Nanos = 300 * MILLI;
/// So long it waits for what is left of a container, or for its way to the API server, before it looks again.
const LOOK_AGAIN: Nanos = 100 * MILLI;

/// All Pods of a schedule in which deaths are reported; else there are none.
pub(crate) struct Pods {
    rng: Rng,
    pods: Vec<Pod>,
}

#[derive(Clone)]
struct Pod {
    number: u32,
    host: HostId,
    /// Somebody has deleted the object by force, or drained it from a node that does not answer.
    deleted: bool,
    /// The node controller or the collector of garbage has set its phase.
    failed: bool,
    containers: Vec<Container>,
}

/// A container's state, as it is told.
#[derive(Clone, Copy)]
struct Container {
    instance: InstanceId,
    ended: Option<Ended>,
}

#[derive(Clone, Copy)]
struct Ended {
    witnessed: bool,
}

/// The UID of a Pod.
pub(crate) fn uid(number: u32) -> Option<PodUid> {
    PodUid::new(&format!("pod-{number}"))
}

impl Pods {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::from_seed(seed ^ 0x0070_6f64_7300),
            pods: Vec::new(),
        }
    }

    fn pod(&mut self, number: u32) -> Option<&mut Pod> {
        self.pods.iter_mut().find(|pod| pod.number == number)
    }
}

impl Pod {
    /// What can be read out of its status.
    fn report(&self) -> Option<PodReport> {
        let ended = |container: &Container| {
            container.ended.map(|ended| ContainerEnd {
                instance: container.instance,
                witnessed: ended.witnessed,
            })
        };
        Some(PodReport {
            pod: uid(self.number)?,
            ends: self.containers.iter().filter_map(ended).collect(),
        })
    }
}

// What the kubelet sees and tells.
impl World {
    /// The kubelet has started soloist's container, and tells it at some time or other.
    pub(crate) fn container_starts(&mut self, host: HostId, instance: InstanceId) {
        if !self.plan.deaths_reported {
            return;
        }
        let number = self.hosts[host].pod;
        let container = Container {
            instance,
            ended: None,
        };
        match self.pods.pod(number) {
            Some(pod) => pod.containers.push(container),
            None => self.pods.pods.push(Pod {
                number,
                host,
                deleted: false,
                failed: false,
                containers: vec![container],
            }),
        }
        self.tell_pod(number);
    }

    /// soloist is dead, and its container with it: at once, or when the kernel is through with what is in it.
    pub(crate) fn container_ends(&mut self, instance: InstanceId) {
        if self.plan.deaths_reported {
            self.kubelet_looks_after(instance, REPORT / 10, REPORT);
        }
    }

    fn kubelet_looks_after(&mut self, instance: InstanceId, least: Nanos, most: Nanos) {
        let after = self.pods.rng.between(least, most);
        let event = Event::KubeletLooks { instance };
        self.queue.push(self.now + after, event);
    }

    pub(crate) fn kubelet_looks(&mut self, instance: InstanceId) {
        let has = |pod: &&Pod| pod.containers.iter().any(|c| c.instance == instance);
        let Some(pod) = self.pods.pods.iter().find(has) else {
            return;
        };
        let (number, host) = (pod.number, pod.host);
        let here = &self.hosts[host];
        let mute = here.link.kubelet_mute_until.max(here.link.cut_until);
        if here.frozen() || self.now < mute || self.is_anything_left(host, instance) {
            let after = mute.saturating_sub(self.now) + LOOK_AGAIN;
            self.kubelet_looks_after(instance, LOOK_AGAIN, after);
            return;
        }
        self.log(host, || {
            "the kubelet reports its container's end".to_owned()
        });
        self.end_container(number, instance, true);
        self.tell_pod(number);
    }

    /// Where soloist is not the first process of a container, others may outlive it; then its container's end shows nothing.
    fn is_anything_left(&self, host: HostId, instance: InstanceId) -> bool {
        let left = |tree: &usize| {
            let tree = &self.trees[*tree];
            tree.instance == instance && !tree.is_over()
        };
        self.hosts[host].container && self.living.iter().any(left)
    }

    fn end_container(&mut self, number: u32, instance: InstanceId, witnessed: bool) {
        let Some(pod) = self.pods.pod(number) else {
            return;
        };
        let mut containers = pod.containers.iter_mut();
        if let Some(container) = containers.find(|c| c.instance == instance) {
            // What was made up is told until the truth is known.
            container.ended = Some(Ended { witnessed });
        }
    }

    /// Everybody who watches hears of the Pod as it is now, sooner or later.
    fn tell_pod(&mut self, number: u32) {
        for host in 0..self.plan.replicas {
            self.tell_pod_to(number, host);
        }
    }

    pub(crate) fn tell_pod_to(&mut self, number: u32, host: HostId) {
        let Some(id) = self.hosts[host].soloist.as_ref().map(|s| s.id) else {
            return;
        };
        let link = &self.hosts[host].link;
        let cut_for = link.cut_until.saturating_sub(self.now);
        let (lossy, lags) = (
            self.now < link.lossy_until,
            self.now < link.watch_lags_until,
        );
        let rng = &mut self.pods.rng;
        // That watch breaks, and the next one begins with what is there.
        if cut_for > 0 || (lossy && rng.percent(30)) {
            let at = self.now + cut_for + rng.between(LINK, 5 * SECOND);
            self.queue
                .push(at, Event::PodIsWatched { pod: number, host });
            return;
        }
        let after = match lags {
            true => rng.between(LINK / 4, 10 * SECOND),
            false => rng.between(LINK / 40, LINK),
        };
        self.send_pod(number, host, id, after);
    }

    fn send_pod(&mut self, number: u32, host: HostId, id: SoloistId, after: Nanos) {
        if let Some(report) = self.pods.pod(number).and_then(|pod| pod.report()) {
            self.send_to_soloist(host, id, after, ToSoloist::Pod { report });
        }
    }

    /// A replica begins to watch the lease, and with it the Pods of those who might hold it.
    pub(crate) fn tell_pods(&mut self, host: HostId) {
        let numbers: Vec<_> = self.pods.pods.iter().map(|pod| pod.number).collect();
        for number in numbers {
            self.tell_pod_to(number, host);
        }
    }
}

// For the checks.
impl World {
    /// When nothing is wrong: how long it takes until everybody knows that this host's container has ended.
    pub(crate) fn death_is_reported_within(&self, host: HostId) -> Option<Nanos> {
        let reported = self.plan.deaths_reported && self.hosts[host].container;
        reported.then_some(REPORT + LOOK_AGAIN + LINK)
    }
}

// What else is written there, and is no proof.
impl World {
    pub(crate) fn spoil_pods(&mut self, fault: Fault, host: HostId, until: Nanos) -> bool {
        if fault == Fault::KubeletMute {
            self.hosts[host].link.kubelet_mute_until = until;
            return true;
        }
        let number = self.hosts[host].pod;
        let stranger = InstanceId::from_random(self.pods.rng.bits().into());
        let Some(instance) = self.hosts[host].soloist.as_ref().map(|s| s.instance) else {
            return false;
        };
        let Some(pod) = self.pods.pod(number) else {
            return false;
        };
        match fault {
            Fault::PodDeleted => pod.deleted = true,
            Fault::PodFailed => pod.failed = true,
            Fault::SidecarEnds => pod.containers.push(Container {
                instance: stranger,
                ended: Some(Ended { witnessed: true }),
            }),
            _ => self.end_container(number, instance, false),
        }
        self.tell_pod(number);
        true
    }
}
