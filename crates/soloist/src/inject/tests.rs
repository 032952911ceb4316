use crate::cli::{Cli, Command};

use super::Injected;

pub(super) const PLAIN: &str = "\
# our shop
apiVersion: apps/v1
kind: Deployment
metadata:
  name: feed
  namespace: shop   # here
spec:
  replicas: 3
  futureField: [1, 2]
  template:
    spec:
      containers:
        - name: feed
          image: feed:1
          # starts it
          command:
            - /feed   # the program
            - --all
          args: [\"a b\"]
          env:
            - name: A
              value: b # why
      volumes: []
      # the end
---
kind: ConfigMap
metadata: {name: other}
";

pub(super) fn inject(flags: &[&str], text: &str) -> anyhow::Result<Injected> {
    let line = ["soloist", "inject"]
        .into_iter()
        .chain(flags.iter().copied());
    match Cli::try_read(line)?.command {
        Command::Inject(args) => args.inject(text),
        other => unreachable!("{other:?}"),
    }
}

pub(super) fn error(flags: &[&str], text: &str) -> String {
    format!("{:#}", inject(flags, text).unwrap_err())
}

/// The lines of `new` that are not in `old`, in order; all lines of `old` must be there, in order.
pub(super) fn added(old: &str, new: &str) -> String {
    let mut old = old.lines().peekable();
    let mut added = String::new();
    for line in new.lines() {
        match old.peek() {
            Some(next) if *next == line => drop(old.next()),
            _ => added += &format!("{line}\n"),
        }
    }
    assert_eq!(old.next(), None, "a line is gone: {new}");
    added
}

#[test]
fn comments_unknown_fields_and_other_documents_stay_as_they_are() {
    let old = PLAIN.replace("      volumes: []\n", "");
    let new = inject(&[], &old).unwrap();
    assert!(new.notes.is_empty(), "{:?}", new.notes);
    let (objects, rights) = new
        .text
        .split_once("---\napiVersion: v1\nkind: ServiceAccount")
        .unwrap();
    assert!(rights.contains("resourceNames: [\"feed\"]"), "{rights}");
    let added = added(&old, objects);
    let start = "            - \"/soloist-bin/soloist\"\n            - \"run\"\n            - \"--\"\n            - name: POD_NAME\n";
    assert!(added.starts_with(start), "{added}");
    for part in [
        "            - name: SOLOIST_NAME\n              value: feed\n",
        "          volumeMounts:\n          - name: soloist\n            mountPath: /soloist-bin\n",
        "      volumes:\n      - name: soloist\n        image:\n",
        "      serviceAccountName: feed\n      automountServiceAccountToken: true\n",
    ] {
        assert!(added.contains(part), "no {part}: {added}");
    }
}

#[test]
fn what_follows_a_block_of_text_is_not_cut_in_two() {
    for block in ["|", "|+", "|-", ">"] {
        let text = format!("value: {block}\n                text\n\n");
        let old = PLAIN.replace("value: b # why\n", &text);
        let old = old.replace(
            "volumes: []\n",
            "volumes:\n      - name: x\n        emptyDir: {}\n",
        );
        let new = inject(&["--no-rights"], &old).unwrap().text;
        added(&old, &new);
        let pod = |text: &str| {
            let documents = super::tree::parse(text).unwrap();
            documents[0]
                .get(&["spec", "template", "spec"])
                .unwrap()
                .to_json()
        };
        let (before, after) = (pod(&old), pod(&new));
        assert_eq!(
            after["containers"][0]["env"][0], before["containers"][0]["env"][0],
            "{new}"
        );
        assert_eq!(
            after["containers"][0]["env"][4]["name"], "SOLOIST_NAME",
            "{new}"
        );
        assert_eq!(after["volumes"][0], before["volumes"][0], "{new}");
        assert_eq!(after["volumes"][1]["name"], "soloist", "{new}");
    }
}

#[test]
fn injecting_twice_changes_nothing() {
    for flags in [
        &[][..],
        &["--delivery", "init-container"],
        &["--delivery", "in-image", "--ready", "notify"],
    ] {
        let once = inject(flags, PLAIN).unwrap().text;
        let twice = inject(flags, &once).unwrap();
        assert_eq!(twice.text, once);
        assert_eq!(
            twice.notes,
            ["Deployment feed has soloist already and is left as it is"]
        );
    }
}

#[test]
fn flow_style_windows_lines_and_a_missing_last_line_end_are_kept() {
    let flow = r#"{"kind": "Deployment", "metadata": {"name": "a", "namespace": "n"}, "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "a", "command": ["/a"]}]}}}}"#;
    let new = inject(&["--no-rights"], flow).unwrap().text;
    let documents = super::tree::parse(&new).unwrap();
    let pod = documents[0]
        .get(&["spec", "template", "spec"])
        .unwrap()
        .to_json();
    let command = serde_json::json!(["/soloist-bin/soloist", "run", "--", "/a"]);
    assert_eq!(pod["containers"][0]["command"], command);
    assert_eq!(pod["volumes"][0]["name"], "soloist");
    assert_eq!(pod["containers"][0]["env"][3]["name"], "SOLOIST_NAME");

    let windows = PLAIN.replace('\n', "\r\n");
    let new = inject(&["--no-rights"], &windows).unwrap().text;
    assert_eq!(new.matches('\n').count(), new.matches("\r\n").count());
    assert_eq!(
        new.replace("\r\n", "\n"),
        inject(&["--no-rights"], PLAIN).unwrap().text
    );
}

#[test]
fn an_entrypoint_that_cannot_be_known_is_asked_for() {
    let without = PLAIN.replace(
        "          command:\n            - /feed   # the program\n            - --all\n",
        "",
    );
    let refused = error(&[], &without);
    assert!(
        refused.contains("the ENTRYPOINT of the image feed:1 runs, and that cannot be known here"),
        "{refused}"
    );
    let new = inject(&["--", "/feed", "--x"], &without).unwrap().text;
    let command =
        "          command: [\"/soloist-bin/soloist\", \"run\", \"--\", \"/feed\", \"--x\"]\n";
    assert!(new.contains(command), "{new}");
    assert!(error(&["--", "/feed"], PLAIN).contains("the image's ENTRYPOINT does not matter"));
}

#[test]
fn the_ladder_is_checked_against_the_pods_grace_period_and_hook() {
    let grace = |seconds: u32| {
        PLAIN.replace(
            "      containers:\n",
            &format!("      terminationGracePeriodSeconds: {seconds}\n      containers:\n"),
        )
    };
    let new = inject(&[], &grace(60)).unwrap().text;
    assert!(
        new.contains("- name: SOLOIST_GRACE_PERIOD\n              value: \"60s\"\n"),
        "{new}"
    );
    assert!(error(&["--stop-timeout", "25s"], &grace(20)).contains("stop 25s + margin 5s = 30s"));
    assert!(
        error(&["--grace-period", "40s"], &grace(20))
            .contains("terminationGracePeriodSeconds is 20, and --grace-period says 40s")
    );
    let hook = |what: &str| {
        PLAIN.replace(
            "          env:\n",
            &format!("          lifecycle: {{preStop: {what}}}\n          env:\n"),
        )
    };
    assert!(
        error(&[], &hook("{sleep: {seconds: 30}}")).contains("leaves nothing of the grace period")
    );
    let new = inject(&[], &hook("{sleep: {seconds: 5}}")).unwrap().text;
    assert!(
        new.contains("- name: SOLOIST_PRESTOP\n              value: \"5000ms\"\n"),
        "{new}"
    );
    let exec = hook("{exec: {command: [x]}}");
    assert!(
        error(&[], &exec)
            .contains("how long that takes cannot be known: say the longest time, --prestop")
    );
    assert!(inject(&["--prestop", "5s"], &exec).is_ok());
}

#[test]
fn what_would_break_standbys_or_is_not_clear_is_refused() {
    let probe = PLAIN.replace(
        "          env:\n",
        "          livenessProbe: {tcpSocket: {port: 1}}\n          env:\n",
    );
    assert!(
        error(&[], &probe).contains(
            "livenessProbe, which asks the program; on standbys the program does not run"
        )
    );
    assert_eq!(inject(&["--keep-probes"], &probe).unwrap().notes.len(), 1);
    let two = PLAIN.replace(
        "        - name: feed\n",
        "        - name: side\n          image: s\n        - name: feed\n",
    );
    assert!(error(&[], &two).contains("it has the containers side, feed: say which one"));
    assert!(inject(&["--container", "feed"], &two).is_ok());
    assert!(error(&["--container", "x"], &two).contains("it has no container \"x\""));
    assert!(error(&[], "kind: Service\n").contains("no Deployment and no StatefulSet"));
    let homeless = PLAIN.replace("  namespace: shop   # here\n", "");
    assert!(
        error(&[], &homeless).contains("it does not say its namespace, and a RoleBinding must")
    );
    let aliased = PLAIN
        .replace(
            "          env:\n            - name: A\n              value: b # why\n",
            "          env: *shared\n",
        )
        .replace("# our shop\n", "x: &shared [{name: B, value: c}]\n");
    assert!(
        error(&[], &aliased)
            .contains("env is a YAML alias (*): write it out first, so that only this")
    );
    let command = PLAIN
        .replace(
            "          command:\n            - /feed   # the program\n            - --all\n",
            "          command: *shared\n",
        )
        .replace("# our shop\n", "x: &shared [/feed]\n");
    assert!(error(&[], &command).contains("its command is a YAML alias (*)"));
    let another = PLAIN.split("---\n").next().unwrap();
    let several = format!(
        "{another}---\n{}",
        another.replace("name: feed\n", "name: web\n")
    );
    assert!(
        error(&["--name", "one"], &several)
            .contains("--name is one lease, and these are 2 workloads")
    );
}

#[test]
fn what_its_owner_should_know_is_said() {
    let lone = PLAIN.replace("replicas: 3", "replicas: 1").replace("      containers:\n", "      automountServiceAccountToken: false\n      serviceAccountName: own\n      containers:\n");
    let new = inject(&[], &lone).unwrap();
    assert!(
        new.notes.iter().any(|note| note.contains("replicas is 1")),
        "{:?}",
        new.notes
    );
    assert!(
        new.notes
            .iter()
            .any(|note| note.contains("automountServiceAccountToken is true now"))
    );
    assert!(
        new.text
            .contains("      automountServiceAccountToken: true\n")
    );
    assert!(!new.text.contains("kind: ServiceAccount\nmetadata"));
    assert!(
        new.text
            .contains("subjects:\n- kind: ServiceAccount\n  name: own\n"),
        "{}",
        new.text
    );
}
