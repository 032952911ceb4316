//! The chart gives what the program prints, and refuses what would not work.

use std::process::{Command, Output};

use crate::printed::{folder, manifests, objects};
use crate::tools;

/// `None` where there is no Helm.
fn helm(arguments: &[&str]) -> Option<Output> {
    let program = tools::find("helm", "the Helm chart")?;
    let run = Command::new(program)
        .args(arguments)
        .current_dir(folder().join("helm"))
        .output();
    Some(run.unwrap())
}

/// What `helm template feed --namespace shop` gives with these values. `None` where there is no Helm.
pub(crate) fn template(values: &[&str]) -> Option<String> {
    let mut arguments = vec![
        "template",
        "feed",
        "soloist",
        "--namespace",
        "shop",
        "--kube-version",
        "1.36.0",
        "--skip-tests",
    ];
    for value in values {
        arguments.extend(["--set-json", value]);
    }
    let output = helm(&arguments)?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{values:?}: {complaint}");
    Some(String::from_utf8(output.stdout).unwrap())
}

const PROGRAM: [&str; 2] = [r#"image="feed:1""#, r#"command=["/feed","a b"]"#];

#[test]
fn the_chart_gives_what_the_program_prints() {
    for (values, flags) in [
        (&[][..], &[][..]),
        (&[r#"preset="low-load""#], &["--preset", "low-load"]),
        (&["listenPort=0"], &["--listen-port", "0"]),
        (&["listenPort=81"], &["--listen-port", "81"]),
        (
            &[
                r#"soloist={"delivery":"init-container","image":"s:2"}"#,
                r#"writable=["/tmp","/var/x"]"#,
            ],
            &[
                "--delivery",
                "init-container",
                "--soloist-image",
                "s:2",
                "--writable",
                "/tmp",
                "--writable",
                "/var/x",
            ],
        ),
        (
            &[
                r#"soloist={"delivery":"in-image","path":"/bin/soloist"}"#,
                r#"replicas=5"#,
            ],
            &[
                "--delivery",
                "in-image",
                "--soloist-path",
                "/bin/soloist",
                "--replicas",
                "5",
            ],
        ),
        (
            &[
                "gracePeriodSeconds=60",
                "prestopSeconds=5",
                "flowSchema=true",
                r#"lease="l""#,
                r#"serviceAccount="s""#,
            ],
            &[
                "--grace-period",
                "60s",
                "--prestop",
                "5s",
                "--flow-schema",
                "--lease",
                "l",
                "--service-account",
                "s",
            ],
        ),
        (
            &["extraRights=true", "labelRole=true"],
            &["--extra-rights", "--label-role"],
        ),
        (&["leaveCordonedNode=true"], &["--leave-cordoned-node"]),
        (
            &[
                "leaveCordonedNode=true",
                "extraRights=true",
                "labelRole=true",
                "flowSchema=true",
            ],
            &[
                "--leave-cordoned-node",
                "--extra-rights",
                "--label-role",
                "--flow-schema",
            ],
        ),
        (&[r#"store="none""#], &["--store", "none"]),
        (
            &[r#"store="none""#, "prestopSeconds=7"],
            &["--store", "none", "--prestop", "7s"],
        ),
        (
            &[r#"store="none""#, r#"prestopHook="sleep""#],
            &["--store", "none", "--prestop-hook", "sleep"],
        ),
        (
            &[r#"prestopHook="soloist""#, "extraRights=true"],
            &["--prestop-hook", "soloist", "--extra-rights"],
        ),
        // Of a values file, Helm makes 1.00068e+09.
        (&["runAsUser=1000680000"], &["--run-as-user", "1000680000"]),
        (
            &[r#"serviceAccount="on""#, r#"lease="yes""#],
            &["--service-account", "on", "--lease", "yes"],
        ),
    ] {
        let Some(given) = template(&[&PROGRAM, values].concat()) else {
            return;
        };
        let named = [
            "--name",
            "feed",
            "--namespace",
            "shop",
            "--no-namespace",
            "--image",
            "feed:1",
        ];
        let printed = manifests(&[&named, flags].concat(), &["/feed", "a b"]);
        assert_eq!(objects(&given), objects(&printed), "{values:?}");
    }
}

#[test]
fn what_the_schema_does_not_allow_is_refused_by_name() {
    for (value, named) in [
        (r#"image="""#, "image"),
        ("command=[]", "command"),
        ("replicas=0", "replicas"),
        ("listenPort=65536", "listenPort"),
        (r#"preset="fast""#, "preset"),
        (r#"soloist={"delivery":"mail"}"#, "delivery"),
        ("replica=3", "replica"),
        (r#"replicas="3""#, "replicas"),
        ("replicas=2.5", "replicas"),
        ("soloist=null", "soloist"),
        ("resources=null", "resources"),
        ("runAsUser=0", "runAsUser"),
        (r#"command="/feed""#, "command"),
        (r#"command=["/feed",1]"#, "command"),
        (r#"writable=["tmp"]"#, "writable"),
        (r#"lease="Feed_1""#, "lease"),
        (r#"env=["A=b"]"#, "env"),
        (r#"prestopHook="nap""#, "prestopHook"),
        (
            "prestopSeconds=30",
            "leaves nothing of gracePeriodSeconds 30",
        ),
    ] {
        let mut arguments = vec!["template", "feed", "soloist"];
        for value in PROGRAM.iter().copied().chain([value]) {
            arguments.extend(["--set-json", value]);
        }
        let Some(output) = helm(&arguments) else {
            return;
        };
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{value} was allowed");
        assert!(complaint.contains(named), "{value}: {complaint}");
    }
}

#[test]
fn what_is_tolerated_stays_as_it_is_and_a_node_that_shuts_down_is_left() {
    let own = r#"{"key":"gpu","operator":"Exists"}"#;
    let everything = r#"{"operator":"Exists"}"#;
    let waiting =
        r#"{"key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":60}"#;
    for (tolerated, many) in [(own, 2), (everything, 1), (waiting, 1)] {
        let value = format!("tolerations=[{tolerated}]");
        let values = [&PROGRAM[..], &[r#"store="none""#, &value]].concat();
        let Some(given) = template(&values) else {
            return;
        };
        let deployment = &objects(&given)["Deployment"];
        let found = &deployment["spec"]["template"]["spec"]["tolerations"];
        let own: serde_json::Value = serde_json::from_str(tolerated).unwrap();
        assert_eq!(found[0], own);
        assert_eq!(found.as_array().unwrap().len(), many, "{found}");
    }
}

#[test]
fn what_is_about_a_lease_is_refused_where_there_is_none() {
    for value in [
        "flowSchema=true",
        "extraRights=true",
        "labelRole=true",
        "leaveCordonedNode=true",
        r#"lease="l""#,
        r#"preset="low-load""#,
    ] {
        let mut arguments = vec!["template", "feed", "soloist"];
        for value in PROGRAM.iter().copied().chain([r#"store="none""#, value]) {
            arguments.extend(["--set-json", value]);
        }
        let Some(output) = helm(&arguments) else {
            return;
        };
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{value} was allowed");
        assert!(complaint.contains("about a lease"), "{value}: {complaint}");
    }
}

#[test]
fn image_volumes_are_refused_where_kubernetes_has_none() {
    let template = |version: &str, delivery: &str| {
        let delivery = format!(r#"soloist.delivery="{delivery}""#);
        let mut arguments = vec!["template", "feed", "soloist", "--kube-version", version];
        for value in PROGRAM.iter().copied().chain([delivery.as_str()]) {
            arguments.extend(["--set-json", value]);
        }
        helm(&arguments)
    };
    for (version, delivery, works) in [
        ("1.32.7", "image-volume", false),
        ("1.32.7", "init-container", true),
        ("1.33.0-eks-1", "image-volume", true),
        ("1.36.0", "image-volume", true),
    ] {
        let Some(output) = template(version, delivery) else {
            return;
        };
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), works, "{version}: {complaint}");
        assert!(works || complaint.contains("init-container"), "{complaint}");
    }
}

#[test]
fn helm_itself_finds_nothing_to_complain_about() {
    let mut arguments = vec!["lint", "soloist", "--strict"];
    for value in PROGRAM {
        arguments.extend(["--set-json", value]);
    }
    let Some(output) = helm(&arguments) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}
