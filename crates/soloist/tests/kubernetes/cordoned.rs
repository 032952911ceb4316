//! A leader whose node is to be emptied hands over before anybody is evicted, if a standby is ready on a node that stays.

use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::PATIENCE;
use super::group::{Event, Group, QUICK, now};
use super::in_pods::{await_told, called, create_pod_on};

/// May read nodes; of all tests only those that want that.
const READER: &str = "replica-7";
/// May not.
const BLIND: &str = "replica-8";

/// Nodes of one test, which nobody runs.
struct Nodes {
    api: Api<Node>,
    prefix: String,
}

impl Nodes {
    async fn create(group: &Group, names: &[&str]) -> Self {
        let client = group.plane().admin_client().await.unwrap();
        let nodes = Self {
            api: Api::all(client),
            prefix: group.namespace().to_owned(),
        };
        for name in names {
            let node = json!({ "metadata": { "name": nodes.called(name) } });
            let node = serde_json::from_value(node).unwrap();
            nodes
                .api
                .create(&PostParams::default(), &node)
                .await
                .unwrap();
        }
        nodes
    }

    fn called(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    async fn change(&self, name: &str, spec: Value) {
        let (how, patch) = (
            PatchParams::default(),
            Patch::Merge(json!({ "spec": spec })),
        );
        let name = self.called(name);
        self.api.patch(&name, &how, &patch).await.unwrap();
    }

    async fn cordon(&self, name: &str) {
        self.change(name, json!({ "unschedulable": true })).await;
    }

    async fn uncordon(&self, name: &str) {
        self.change(name, json!({ "unschedulable": null, "taints": null }))
            .await;
    }

    async fn remove(self, names: &[&str]) {
        for name in names {
            let (name, how) = (self.called(name), DeleteParams::default());
            self.api.delete(&name, &how).await.unwrap();
        }
    }
}

/// `None` where the suite is skipped.
async fn group(user: &'static str, name: &str) -> Option<Group> {
    let mut group = Group::of_user(user, name, QUICK).await?;
    group.in_pods = true;
    group.flags = vec!["--leave-cordoned-node", "--log-level", "soloist=debug"];
    Some(group)
}

async fn reader(name: &str) -> Option<Group> {
    let group = group(READER, name).await?;
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["nodes".into()]),
        verbs: vec!["get".into(), "watch".into()],
        ..PolicyRule::default()
    };
    let allowed = group.plane().allow_in_cluster(READER, vec![rule]);
    allowed.await.unwrap();
    group.allow_also("", "pods", &["get", "list"]).await;
    Some(group)
}

/// The leader and one standby on `one`, the other standby on `two`: both, and that child.
async fn start_on_two_nodes(group: &mut Group) -> (usize, usize, Event) {
    let prefix = group.namespace().to_owned();
    let (one, two) = (format!("{prefix}-one"), format!("{prefix}-two"));
    let (leader, beside, elsewhere) = (0, 1, 2);
    for (replica, node) in [(leader, &one), (beside, &one), (elsewhere, &two)] {
        create_pod_on(group, replica, node).await;
    }
    group.start_next();
    let first = group.await_event(PATIENCE, Event::is_start).await;
    group.start_next();
    group.start_next();
    for replica in [beside, elsewhere] {
        let seen = format!("leader={}", called(leader));
        group.await_log(replica, &seen, PATIENCE).await;
    }
    group.await_log(leader, "our node was seen", PATIENCE).await;
    (leader, elsewhere, first)
}

fn starts(group: &Group) -> usize {
    group.events().into_iter().filter(Event::is_start).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_node_is_cordoned_or_tainted_for_deletion_hands_over_to_a_ready_standby_elsewhere()
 {
    let Some(mut group) = reader("cordoned").await else {
        return;
    };
    group
        .allow_also("events.k8s.io", "events", &["create"])
        .await;
    let nodes = Nodes::create(&group, &["one", "two"]).await;
    let (leader, elsewhere, first) = start_on_two_nodes(&mut group).await;
    let cordoned = now();
    nodes.cordon("one").await;
    let next = group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert_eq!(next.who, called(elsewhere));
    eprintln!(
        "cordoned: the child has moved after {:?}",
        next.at - cordoned
    );
    let (one, heir) = (nodes.called("one"), called(elsewhere));
    let said = format!(
        "our node is to be emptied: handing over node=\"{one}\" why=is cordoned heir={heir}"
    );
    assert!(group.log(leader).contains(&said), "{}", group.log(leader));
    let lease = ("Lease", "demo");
    let told = await_told(&group, lease, "StoppedLeading", &called(leader)).await;
    let why = format!("its node {one} is cordoned, and {heir} is ready on another;");
    assert!(told.contains(&why), "{told}");
    let told = await_told(&group, lease, "HandedOver", &called(leader)).await;
    assert!(told.ends_with(&format!("{heir} is to lead next")), "{told}");
    assert!(!group.has_exited(leader), "nobody was evicted");

    // As the cluster autoscaler does it, and back to whoever is on the other one.
    nodes.uncordon("one").await;
    group
        .await_log(elsewhere, "our node was seen", PATIENCE)
        .await;
    let taint = json!({ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" });
    nodes.change("two", json!({ "taints": [taint] })).await;
    let third = group
        .await_event(PATIENCE, |e| e.is_start_after(&next))
        .await;
    assert_ne!(third.who, called(elsewhere));
    let log = group.log(elsewhere);
    let said = "why=has the taint ToBeDeletedByClusterAutoscaler";
    assert!(log.contains(said), "{log}");
    assert_eq!(starts(&group), 3, "each moved it once");
    group.assert_never_two();

    // Nobody asks again and again.
    let requests = group.plane().requests().unwrap();
    let ours = |verb: &str| {
        let of_us = |r: &&testbed::Request| {
            r.resource == "nodes" && r.verb == verb && r.name.starts_with(group.namespace())
        };
        requests.iter().filter(of_us).count()
    };
    assert!(ours("get") <= 6, "{} looks at nodes", ours("get"));
    let lists =
        |r: &testbed::Request| r.user == READER && r.resource == "nodes" && r.verb == "list";
    assert!(!requests.iter().any(lists));
    nodes.remove(&["one", "two"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_no_standby_is_ready_on_a_node_that_stays_the_leader_leads_on() {
    let Some(mut group) = reader("nowhere").await else {
        return;
    };
    let nodes = Nodes::create(&group, &["one", "two"]).await;
    let (leader, elsewhere, first) = start_on_two_nodes(&mut group).await;
    // Both nodes are to be emptied, and the only standby of the first one is on it, too.
    nodes.cordon("two").await;
    nodes.cordon("one").await;
    let stays = "but no standby is ready on another one: we lead on";
    group.await_log(leader, stays, PATIENCE).await;
    assert!(group.is_alive(first.pid));
    assert_eq!(starts(&group), 1);
    // One that is not ready is none.
    let pods = group.api::<Pod>().await;
    let unready = |status: &str| {
        Patch::Merge(json!({ "status": { "conditions": [
            { "type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z" },
        ] } }))
    };
    let (name, how) = (called(elsewhere), PatchParams::default());
    pods.patch_status(&name, &how, &unready("False"))
        .await
        .unwrap();
    nodes.uncordon("two").await;
    let looked = now();
    let looks = |requests: &[testbed::Request]| {
        let of_us = |r: &&testbed::Request| {
            (r.namespace.as_str(), r.resource.as_str(), r.verb.as_str())
                == (group.namespace(), "pods", "list")
                && std::time::Duration::try_from(
                    r.received.duration_since(jiff::Timestamp::UNIX_EPOCH),
                )
                .unwrap()
                    > looked
        };
        requests.iter().any(|r| of_us(&r))
    };
    let seen = group.plane().wait_for_requests(2 * PATIENCE, looks).await;
    seen.unwrap();
    assert!(group.is_alive(first.pid));
    assert_eq!(starts(&group), 1);
    // And when it is, it takes over.
    pods.patch_status(&name, &how, &unready("True"))
        .await
        .unwrap();
    let next = group
        .await_event(3 * PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert_eq!(next.who, called(elsewhere));
    let log = group.log(leader);
    assert_eq!(log.matches(stays).count(), 1, "{log}");
    group.assert_never_two();
    nodes.remove(&["one", "two"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_pause_a_cordoned_leader_leads_on_and_hands_over_when_it_is_over() {
    let Some(mut group) = reader("cordoned-pause").await else {
        return;
    };
    let nodes = Nodes::create(&group, &["one", "two"]).await;
    let (leader, elsewhere, first) = start_on_two_nodes(&mut group).await;
    group.annotate("soloist.dev/pause", "keep").await;
    group.await_log(leader, "paused", PATIENCE).await;
    nodes.cordon("one").await;
    // Longer than a look for a standby takes.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!(group.is_alive(first.pid));
    assert!(!group.log(leader).contains("handing over"));
    let soloist = Path::new(env!("CARGO_BIN_EXE_soloist"));
    let (code, text) = group.command(soloist, &["resume"], false);
    assert_eq!(code, 0, "{text}");
    let next = group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert_eq!(next.who, called(elsewhere));
    group.assert_never_two();
    nodes.remove(&["one", "two"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_nodes_or_pods_leads_on_and_says_each_missing_rule_once() {
    let Some(mut group) = group(BLIND, "blind").await else {
        return;
    };
    let nodes = Nodes::create(&group, &["one", "two"]).await;
    let leader = group.start_next();
    let first = group.await_event(PATIENCE, Event::is_start).await;
    let pods = r#"{apiGroups: [""], resources: ["pods"], verbs: [get, list]}"#;
    group.await_log(leader, pods, PATIENCE).await;
    group.signal(leader, "TERM");
    assert_eq!(group.exit_code(leader, PATIENCE).await, 0);

    group.allow_also("", "pods", &["get", "list"]).await;
    let next = group.start_next();
    create_pod_on(&group, next, &nodes.called("one")).await;
    let second = group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    let rule = r#"a ClusterRole, bound by a ClusterRoleBinding: {apiGroups: [""], resources: ["nodes"], verbs: [get, watch]}"#;
    group.await_log(next, rule, PATIENCE).await;
    let standby = group.start_next();
    create_pod_on(&group, standby, &nodes.called("two")).await;
    nodes.cordon("one").await;
    // A term that ends and begins again says it no second time.
    group.signal_pid(second.pid, "KILL");
    let again = group
        .await_event(PATIENCE, |e| {
            e.is_start() && e.pid != second.pid && e.at > second.at
        })
        .await;
    assert_eq!(again.who, called(next));
    group.await_log(next, "to=Leader", PATIENCE).await;
    let log = group.log(next);
    assert_eq!(log.matches("--leave-cordoned-node: ").count(), 1, "{log}");
    assert!(!log.contains("handing over"), "{log}");
    group.assert_never_two();
    nodes.remove(&["one", "two"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_in_no_pod_says_so_and_leads() {
    let Some(mut group) = group(BLIND, "no-pod").await else {
        return;
    };
    group.in_pods = false;
    let replica = group.start_next();
    group.await_event(PATIENCE, Event::is_start).await;
    let log = group.log(replica);
    assert!(
        log.contains("--leave-cordoned-node: this is no Pod"),
        "{log}"
    );
}
