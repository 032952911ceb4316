//! Input of people who have a cluster that somebody else has set up.

use super::tests::{PLAIN, added, error, inject};
use super::tree::parse;

fn pod(text: &str) -> serde_json::Value {
    let documents = parse(text).unwrap();
    let pod = documents[0].get(&["spec", "template", "spec"]).unwrap();
    pod.to_json()
}

#[test]
fn a_mark_of_the_encoding_is_no_part_of_the_first_key() {
    let new = inject(&[], &format!("\u{feff}{PLAIN}")).unwrap().text;
    assert_eq!(new, inject(&[], PLAIN).unwrap().text);
}

#[test]
fn a_list_is_looked_into() {
    let plain = PLAIN.replace("      volumes: []\n", "");
    let items: String = plain
        .split("---\n")
        .next()
        .unwrap()
        .lines()
        .skip(1)
        .enumerate()
        .map(|(n, line)| format!("{}{line}\n", if n == 0 { "- " } else { "  " }))
        .collect();
    let list = format!("kind: List\napiVersion: v1\nitems:\n{items}");
    let new = inject(&["--no-rights"], &list).unwrap().text;
    assert!(
        added(&list, &new).contains("- \"/soloist-bin/soloist\""),
        "{new}"
    );
}

#[test]
fn what_is_no_deployment_is_named_with_what_to_do_instead() {
    for (text, parts) in [
        ("", &["there is no Deployment"][..]),
        (
            "kind: Service\n---\nkind: ConfigMap\n",
            &["only: ConfigMap, Service"],
        ),
        (
            "kind: CronJob\n",
            &["a CronJob runs a program to its end", "--once"],
        ),
        ("kind: Job\n", &["a Job runs a program to its end"]),
        ("kind: DaemonSet\n", &["one on every node", "a Deployment"]),
        ("kind: Pod\n", &["a Pod has nobody", "a Deployment"]),
        ("replicas: {{ .Values.replicas }}\n", &["helm template"]),
        (
            "kind: Deployment\nmetadata:\n\tname: x\n",
            &["no valid YAML", "line 3"],
        ),
    ] {
        let error = error(&[], text);
        for part in parts {
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}

#[test]
fn what_is_used_elsewhere_is_not_changed_there_in_silence() {
    let anchored = PLAIN.replace("          env:\n", "          env: &shared\n");
    assert!(
        inject(&[], &anchored).is_ok(),
        "an anchor that nothing uses"
    );
    let used = anchored.replace(
        "      volumes: []\n",
        "      volumes: []\n      initContainers:\n        - name: first\n          image: x\n          env: *shared\n",
    );
    assert!(error(&[], &used).contains("env: what has to be changed has a YAML anchor (&)"));
    let whole = PLAIN.replace("  template:\n", "  template: &all\n");
    let whole = whole.replace(
        "metadata: {name: other}\n",
        "metadata: {name: other}\ncopy: *all\n",
    );
    // An alias does not reach another document.
    assert!(error(&[], &whole).contains("no valid YAML"));
    let whole = PLAIN.replace("  template:\n", "  again: *all\n  template:\n");
    let whole = whole.replace("kind: Deployment\n", "kind: Deployment\nx: &all {a: b}\n");
    assert!(
        inject(&[], &whole).is_ok(),
        "what is not changed may be shared"
    );
}

#[test]
fn what_a_merge_key_brings_cannot_be_seen() {
    let merged = PLAIN.replace("          image: feed:1\n", "          <<: *common\n");
    let merged = merged.replace("# our shop\n", "x: &common {image: feed:1, args: [x]}\n");
    assert!(error(&[], &merged).contains("a YAML merge key (<<)"));
}

#[test]
fn names_that_are_taken_are_told_before_a_cluster_refuses_them() {
    let volume = PLAIN.replace("volumes: []", "volumes: [{name: soloist, emptyDir: {}}]");
    assert!(error(&[], &volume).contains(
        "it has a volume \"soloist\" already, which is the name of the one that brings soloist"
    ));
    assert!(inject(&["--delivery", "in-image"], &volume).is_ok());
    let mount = PLAIN.replace(
        "          env:\n",
        "          volumeMounts: [{name: x, mountPath: /soloist-bin}]\n          env:\n",
    );
    assert!(error(&[], &mount).contains("its container mounts something at /soloist-bin already"));
    let name = PLAIN.replace("- name: A\n", "- name: POD_NAME\n");
    assert!(error(&[], &name).contains("sets POD_NAME to something else than metadata.name"));
    assert!(error(&["--name", "My Lease"], PLAIN).contains("is no name for a Lease"));
}

#[test]
fn what_cannot_work_is_refused() {
    let windows = PLAIN.replace(
        "      containers:\n",
        "      nodeSelector: {kubernetes.io/os: windows}\n      containers:\n",
    );
    assert!(error(&[], &windows).contains("soloist on Linux alone"));
    let text = PLAIN.replace(
        "          command:\n            - /feed   # the program\n            - --all\n",
        "          command: /feed --all\n",
    );
    assert!(error(&[], &text).contains("its command is no list: write it as one"));
    let nameless = PLAIN.replace(
        "  name: feed\n  namespace",
        "  generateName: feed-\n  namespace",
    );
    assert!(error(&[], &nameless).contains("it has no name"));
    let short = PLAIN.replace(
        "      containers:\n",
        "      terminationGracePeriodSeconds: 0\n      containers:\n",
    );
    assert!(error(&[], &short).contains("leaves nothing of the grace period"));
    let words = short.replace("Seconds: 0", "Seconds: soon");
    assert!(error(&[], &words).contains("terminationGracePeriodSeconds \"soon\""));
    let soloists = PLAIN.replace("- name: A\n", "- name: SOLOIST_NAME\n");
    assert!(
        error(&[], &soloists)
            .contains("its container sets SOLOIST_NAME itself, but does not run soloist")
    );
}

#[test]
fn what_is_not_of_the_form_that_kubernetes_wants_is_named() {
    let variables = "          env:\n            - name: A\n              value: b # why\n";
    for (old, new, reason) in [
        (
            "    spec:\n      containers:\n        - name: feed\n",
            "    other:\n      containers:\n        - name: feed\n",
            "it has no spec.template.spec",
        ),
        (
            "      containers:\n",
            "      others:\n",
            "it has no containers",
        ),
        (variables, "          env: b\n", "env is no list"),
        (
            "          command:\n            - /feed   # the program\n            - --all\n",
            "          ? command\n          : - /feed\n            - --all\n",
            "begins in the middle of a line",
        ),
        (
            "            - /feed   # the program\n",
            "            - !!str /feed\n",
            "a list that cannot be changed here (an anchor, a tag",
        ),
        (
            variables,
            "          env: null\n",
            "env is null: remove it or write it as a list",
        ),
        (
            "  replicas: 3\n",
            "  ? [a]\n  : b\n",
            "a map's key is no text",
        ),
    ] {
        let changed = PLAIN.replace(old, new);
        assert_ne!(changed, PLAIN, "{old}");
        let error = error(&[], &changed);
        assert!(error.contains(reason), "{new}: {error}");
    }
}

#[test]
fn a_namespace_that_is_a_number_stays_a_text() {
    let number = PLAIN.replace("namespace: shop   # here", "namespace: \"123\"");
    let new = inject(&[], &number).unwrap().text;
    assert!(!new.contains("namespace: 123\n"), "{new}");
    assert_eq!(new.matches("namespace: \"123\"\n").count(), 5, "{new}");
}

#[test]
fn host_processes_are_remarked() {
    let host = PLAIN.replace(
        "      containers:\n",
        "      hostPID: true\n      containers:\n",
    );
    let notes = inject(&[], &host).unwrap().notes;
    assert!(
        notes.iter().any(|note| note.contains("hostPID")),
        "{notes:?}"
    );
}

#[test]
fn a_server_of_which_all_replicas_run_gets_the_hook_and_no_right_to_a_lease() {
    let probed = PLAIN.replace(
        "          env:\n",
        "          readinessProbe: {tcpSocket: {port: 1}}\n          env:\n",
    );
    let new = inject(&["--store", "none"], &probed).unwrap();
    let after = pod(&new.text);
    let container = &after["containers"][0];
    let hook = serde_json::json!(["/soloist-bin/soloist", "prestop", "--max", "15s"]);
    assert_eq!(container["lifecycle"]["preStop"]["exec"]["command"], hook);
    let variable = |name: &str| {
        let variables = container["env"].as_array().unwrap().iter();
        let mut found = variables.filter(|variable| variable["name"] == name);
        found.next().map(|variable| variable["value"].clone())
    };
    assert_eq!(variable("SOLOIST_STORE"), Some("none".into()));
    assert_eq!(variable("SOLOIST_PRESTOP"), Some("15000ms".into()));
    assert!(
        new.text.contains("resources: [endpointslices]"),
        "{}",
        new.text
    );
    assert!(!new.text.contains("resources: [leases]"), "{}", new.text);
    let toleration = serde_json::json!({
        "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0,
    });
    assert_eq!(after["tolerations"], serde_json::json!([toleration]));

    let same = inject(&["--store", "none"], &new.text).unwrap();
    assert_eq!(same.text, new.text, "a second time");

    let beside = PLAIN.replace(
        "          env:\n",
        "          lifecycle:\n            postStart: {exec: {command: [x]}}\n          env:\n",
    );
    let new = inject(&["--prestop-hook", "soloist", "--prestop", "20s"], &beside).unwrap();
    let after = pod(&new.text);
    let lifecycle = &after["containers"][0]["lifecycle"];
    assert_eq!(
        lifecycle["postStart"]["exec"]["command"][0], "x",
        "{}",
        new.text
    );
    assert_eq!(
        lifecycle["preStop"]["exec"]["command"][3], "20s",
        "{}",
        new.text
    );
    assert!(new.text.contains("resources: [leases]"), "{}", new.text);
}

#[test]
fn what_a_pod_tolerates_stays_as_it_is() {
    let with = |own: &str| {
        let text = PLAIN.replace(
            "      volumes:",
            &format!("      tolerations: {own}\n      volumes:"),
        );
        let new = inject(&["--store", "none"], &text).unwrap();
        pod(&new.text)["tolerations"].as_array().unwrap().clone()
    };
    let other = with("[{key: gpu, operator: Exists}]");
    let keys: Vec<_> = other.iter().map(|one| one["key"].as_str()).collect();
    assert_eq!(keys, [Some("node.kubernetes.io/not-ready"), Some("gpu")]);
    for own in [
        "[{operator: Exists}]",
        "[{key: node.kubernetes.io/not-ready, operator: Exists, tolerationSeconds: 60}]",
    ] {
        assert_eq!(with(own).len(), 1, "{own}");
    }
    let electing = inject(&[], PLAIN).unwrap();
    assert!(!electing.text.contains("tolerations"), "{}", electing.text);
}

#[test]
fn a_hook_that_does_not_fit_is_refused() {
    let hook = PLAIN.replace(
        "          env:\n",
        "          lifecycle: {preStop: {sleep: {seconds: 5}}}\n          env:\n",
    );
    let refused = error(&["--store", "none"], &hook);
    assert!(
        refused.contains("it has a preStop hook: remove it"),
        "{refused}"
    );
    let kept = inject(&["--store", "none", "--prestop-hook", "sleep"], &hook).unwrap();
    assert!(!kept.text.contains("endpointslices"), "{}", kept.text);
    let long = error(&["--store", "none", "--prestop", "30s"], PLAIN);
    assert!(
        long.contains("leaves nothing of the grace period 30s"),
        "{long}"
    );
    for flags in [
        &["--name", "x"][..],
        &["--extra-rights"],
        &["--label-role"],
        &["--leave-cordoned-node"],
        &["--preset", "low-load"],
        &["--on-unhealthy", "step-down"],
    ] {
        let refused = error(&[&["--store", "none"], flags].concat(), PLAIN);
        assert!(
            refused.contains("with --store none"),
            "{flags:?}: {refused}"
        );
    }
}

#[test]
fn a_deployment_of_another_group_is_none_and_is_left_as_it_is() {
    let other = PLAIN.replacen("apps/v1", "example.org/v1", 1);
    assert_ne!(other, PLAIN);
    let refused = error(&[], &other);
    assert!(refused.contains("there is no Deployment"), "{refused}");
    assert!(refused.contains("example.org/v1"), "{refused}");
}
