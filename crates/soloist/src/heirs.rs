//! Who is to lead next when a Pod is told to end: in a rollout one that will stay, so that the child moves once.

use serde_json::Value;
use soloist_core::ids::Identity;
use soloist_elector::kubernetes::KubernetesStore;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, info};

use crate::announce::{Asking, Refusal, Rule};
use crate::cordon::Leaving;
use crate::own_pod::OwnPod;
use crate::workload_labels;

/// More nodes are not looked at.
const MOST_NODES: usize = 5;

pub(crate) const RULE: Rule = Rule {
    group: "",
    resource: "pods",
    verbs: "get, list",
};

/// One search, in a task of its own. Nobody has to wait for it.
#[derive(Debug)]
pub(crate) struct HeirSearch {
    result: watch::Receiver<Progress>,
    is_told: bool,
    task: JoinHandle<()>,
}

#[derive(Debug)]
enum Progress {
    Asking,
    Over(Option<Identity>),
}

impl HeirSearch {
    /// `None` where replicas are not called as their Pods are.
    pub(crate) fn begin(store: &KubernetesStore, identity: &Identity) -> Option<Self> {
        let pod = OwnPod::find().filter(|pod| pod.name == identity.as_str())?;
        let (tell, result) = watch::channel(Progress::Asking);
        let asking = Asking::of(store.clone());
        let task = tokio::spawn(async move {
            let heir = search(&asking, &pod).await;
            tell.send_replace(Progress::Over(heir));
        });
        Some(Self {
            result,
            is_told: false,
            task,
        })
    }

    /// The heir, once, if there is one. May be cancelled.
    pub(crate) async fn found(&mut self) -> Identity {
        if !self.is_told {
            let over = |progress: &Progress| matches!(progress, Progress::Over(_));
            let found = match self.result.wait_for(over).await.as_deref() {
                Ok(Progress::Over(Some(heir))) => Some(heir.clone()),
                _ => None,
            };
            self.is_told = true;
            if let Some(heir) = found {
                return heir;
            }
        }
        std::future::pending().await
    }

    /// When the search is over. `None` if it is.
    pub(crate) fn over(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let mut result = self.result.clone();
        if matches!(*result.borrow(), Progress::Over(_)) {
            return None;
        }
        Some(async move {
            let over = |progress: &Progress| matches!(progress, Progress::Over(_));
            let _ = result.wait_for(over).await;
        })
    }
}

impl Drop for HeirSearch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn search(asking: &Asking, pod: &OwnPod) -> Option<Identity> {
    let heir = match candidates(asking, pod).await {
        Ok(candidates) => prefer_open_nodes(asking, candidates).await,
        Err(Refusal::Forbidden(message)) => {
            info!(
                "the release names no heir, so that anyone takes over. With a rule in the Role it would name a Pod that stays: {RULE} ({message})"
            );
            None
        }
        Err(failure) => {
            debug!(%failure, "no heir is looked for");
            None
        }
    };
    match heir {
        Some(heir) => {
            info!(heir = %heir.name, "the release will name its heir");
            Identity::try_new(&heir.name).ok()
        }
        None => None,
    }
}

async fn candidates(asking: &Asking, pod: &OwnPod) -> Result<Vec<Candidate>, Refusal> {
    let pods = format!("/api/v1/namespaces/{}/pods", pod.namespace);
    let own = asking.get(&format!("{pods}/{}", pod.name)).await?;
    let Some(selector) = workload_labels::selector(&own) else {
        return Ok(Vec::new());
    };
    let pods = format!("{pods}?labelSelector={selector}");
    let (listed, revision) = tokio::join!(
        asking.get(&pods),
        newest_revision(asking, pod, &own, &selector)
    );
    let listed = listed?;
    let pods = listed["items"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(choose(&own, pods, revision.as_deref()))
}

/// As the workload itself says, where we may read it. (It knows of rollbacks.)
async fn newest_revision(
    asking: &Asking,
    pod: &OwnPod,
    own: &Value,
    selector: &str,
) -> Option<String> {
    let owner = owner(own)?;
    let apps = format!("/apis/apps/v1/namespaces/{}", pod.namespace);
    match owner["kind"].as_str()? {
        "ReplicaSet" => {
            let path = format!("{apps}/replicasets?labelSelector={selector}");
            let sets = asking.get(&path).await.ok()?;
            newest_replica_set(sets["items"].as_array()?, &owner["uid"])
        }
        "StatefulSet" => {
            let path = format!("{apps}/statefulsets/{}", owner["name"].as_str()?);
            let set = asking.get(&path).await.ok()?;
            Some(set.pointer("/status/updateRevision")?.as_str()?.to_owned())
        }
        _ => None,
    }
}

/// The template's hash of the newest one beside this.
fn newest_replica_set(sets: &[Value], own: &Value) -> Option<String> {
    let of = |set: &Value| owner(set).map(|owner| owner["uid"].clone());
    let own = sets.iter().find(|set| set["metadata"]["uid"] == *own)?;
    let deployment = of(own)?;
    let revision = |set: &&Value| {
        let revision = &set["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        revision.as_str().and_then(|text| text.parse::<u64>().ok())
    };
    let siblings = sets
        .iter()
        .filter(|set| of(set) == Some(deployment.clone()));
    let newest = siblings.max_by_key(revision)?;
    let hash = &newest["metadata"]["labels"]["pod-template-hash"];
    Some(hash.as_str()?.to_owned())
}

/// Why it is not known who could lead elsewhere.
#[derive(Debug)]
pub(crate) enum Unknown {
    Pods(Refusal),
    Nodes(Refusal),
}

/// Who could lead instead on another node than this, one that stays.
pub(crate) async fn elsewhere(
    asking: &Asking,
    pod: &OwnPod,
    node: &str,
) -> Result<Option<Identity>, Unknown> {
    let candidates = candidates(asking, pod).await.map_err(Unknown::Pods)?;
    let mut nodes = Nodes::default();
    let is_elsewhere = |c: &&Candidate| !c.node.is_empty() && c.node != node;
    for candidate in candidates.iter().filter(is_elsewhere) {
        match nodes.stays(asking, &candidate.node).await {
            Ok(true) => return Ok(Identity::try_new(&candidate.name).ok()),
            Ok(false) => {}
            Err(refusal) => return Err(Unknown::Nodes(refusal)),
        }
    }
    Ok(None)
}

async fn prefer_open_nodes(asking: &Asking, candidates: Vec<Candidate>) -> Option<Candidate> {
    let mut nodes = Nodes::default();
    for candidate in &candidates {
        match nodes.stays(asking, &candidate.node).await {
            Ok(false) => {}
            // It stays; or we may not look.
            Ok(true) | Err(_) => return Some(candidate.clone()),
        }
    }
    candidates.into_iter().next()
}

/// What was found of nodes, each asked for once, and not too many.
#[derive(Default)]
struct Nodes(Vec<(String, bool)>);

impl Nodes {
    /// Whether it is not to be emptied. What was not looked at does not count as one that stays.
    async fn stays(&mut self, asking: &Asking, node: &str) -> Result<bool, Refusal> {
        if let Some((_, stays)) = self.0.iter().find(|(name, _)| name == node) {
            return Ok(*stays);
        }
        if self.0.len() == MOST_NODES {
            return Ok(false);
        }
        let object = asking.get(&format!("/api/v1/nodes/{node}")).await?;
        let stays = Leaving::of(&object).is_none();
        self.0.push((node.to_owned(), stays));
        Ok(stays)
    }
}

/// A Pod that could lead.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    name: String,
    node: String,
}

/// The best first: Pods of our workload that are ready, that stay, and that are of the newest revision.
fn choose(own: &Value, pods: &[Value], newest: Option<&str>) -> Vec<Candidate> {
    let Some(workload) = workload(own) else {
        return Vec::new();
    };
    let siblings = pods
        .iter()
        .filter(|pod| self::workload(pod) == Some(workload));
    let siblings: Vec<&Value> = siblings.collect();
    let newest = newest.or_else(|| newest_seen(own, &siblings));
    let fit = siblings.into_iter().filter(|pod| {
        let leaves = pod["metadata"].get("deletionTimestamp").is_some();
        name(pod) != name(own) && !leaves && revision(pod) == newest
    });
    let mut fit: Vec<_> = fit
        .filter_map(|pod| Some((ready_since(pod)?, pod)))
        .collect();
    fit.sort_by_key(|(since, pod)| (*since, name(pod)));
    let candidate = |(_, pod): (&str, &Value)| Candidate {
        name: name(pod).to_owned(),
        node: pod["spec"]["nodeName"].as_str().unwrap_or_default().into(),
    };
    fit.into_iter().map(candidate).collect()
}

/// The revision of the youngest Pod. Of two of one age another one than ours is newer.
fn newest_seen<'a>(own: &Value, siblings: &[&'a Value]) -> Option<&'a str> {
    let created = |pod: &Value| {
        let created = pod["metadata"]["creationTimestamp"].as_str();
        created.unwrap_or_default().to_owned()
    };
    let other = |pod: &Value| revision(pod) != revision(own);
    let youngest = siblings.iter().max_by_key(|pod| (created(pod), other(pod)));
    youngest.and_then(|pod| revision(pod))
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

fn owner(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

fn revision(pod: &Value) -> Option<&str> {
    let labels = &pod["metadata"]["labels"];
    let hash = labels.get("pod-template-hash");
    hash.or_else(|| labels.get("controller-revision-hash"))?
        .as_str()
}

/// What all Pods of one Deployment or StatefulSet have in common: its kind and its name.
fn workload(pod: &Value) -> Option<(&str, &str)> {
    let owner = owner(pod)?;
    let (kind, name) = (owner["kind"].as_str()?, owner["name"].as_str()?);
    match kind {
        "ReplicaSet" => {
            let deployment = name.strip_suffix(revision(pod)?)?;
            Some((kind, deployment.strip_suffix('-')?))
        }
        _ => Some((kind, name)),
    }
}

fn ready_since(pod: &Value) -> Option<&str> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|c| c["type"] == "Ready")?;
    let since = ready["lastTransitionTime"].as_str().unwrap_or_default();
    (ready["status"] == "True").then_some(since)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, hash: &str, created: u32) -> Value {
        json!({
            "metadata": {
                "name": name,
                "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z"),
                "labels": { "app": "web", "pod-template-hash": hash },
                "ownerReferences": [{ "kind": "ReplicaSet", "name": format!("web-{hash}"), "controller": true }],
            },
            "spec": { "nodeName": "one" },
            "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": format!("2026-01-01T00:01:{created:02}Z") }] },
        })
    }

    fn names(candidates: &[Candidate]) -> Vec<&str> {
        candidates.iter().map(|c| c.name.as_str()).collect()
    }

    #[test]
    fn an_heir_is_ready_stays_and_is_of_the_newest_revision() {
        let own = pod("old-1", "aa", 1);
        let mut unready = pod("new-1", "bb", 5);
        unready["status"]["conditions"][0]["status"] = json!("False");
        let mut leaving = pod("new-2", "bb", 6);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:02:00Z");
        let mut stranger = pod("new-5", "bb", 9);
        stranger["metadata"]["ownerReferences"][0]["name"] = json!("shop-bb");
        let pods = [
            own.clone(),
            pod("old-2", "aa", 2),
            unready,
            leaving,
            pod("new-4", "bb", 8),
            pod("new-3", "bb", 7),
            stranger,
        ];
        assert_eq!(names(&choose(&own, &pods, None)), ["new-3", "new-4"]);
        assert_eq!(names(&choose(&own, &pods, Some("bb"))), ["new-3", "new-4"]);
        // A rollback: what is newest is not what is youngest.
        assert_eq!(names(&choose(&own, &pods, Some("aa"))), ["old-2"]);
        assert!(choose(&own, &pods, Some("cc")).is_empty());
    }

    #[test]
    fn without_a_rollout_any_sibling_that_is_ready_is_an_heir() {
        let own = pod("a", "aa", 3);
        let pods = [own.clone(), pod("c", "aa", 2), pod("b", "aa", 2)];
        assert_eq!(names(&choose(&own, &pods, None)), ["b", "c"]);
    }

    #[test]
    fn of_two_pods_of_one_second_the_one_of_another_template_is_newer() {
        let own = pod("a", "aa", 3);
        let pods = [own.clone(), pod("b", "aa", 3), pod("c", "0b", 3)];
        assert_eq!(names(&choose(&own, &pods, None)), ["c"]);
    }

    #[test]
    fn who_belongs_to_no_workload_has_no_heir() {
        let mut own = pod("a", "aa", 3);
        own["metadata"]["ownerReferences"] = json!([]);
        assert!(choose(&own, &[pod("b", "aa", 3)], None).is_empty());
    }

    #[test]
    fn the_newest_replica_set_is_the_one_of_the_highest_revision_of_the_same_deployment() {
        let set = |uid: &str, deployment: &str, revision: &str| {
            json!({ "metadata": {
                "uid": uid,
                "annotations": { "deployment.kubernetes.io/revision": revision },
                "labels": { "pod-template-hash": format!("hash-{uid}") },
                "ownerReferences": [{ "uid": deployment, "controller": true }],
            }})
        };
        let sets = [
            set("a", "web", "9"),
            set("b", "web", "10"),
            set("c", "shop", "11"),
        ];
        let newest = newest_replica_set(&sets, &json!("a"));
        assert_eq!(newest.as_deref(), Some("hash-b"));
        assert_eq!(newest_replica_set(&sets, &json!("z")), None);
    }
}
