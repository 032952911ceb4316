//! The files under `deploy/` that are generated: each is what the program of today would give.
//!
//! `SOLOIST_UPDATE_DEPLOY=1 cargo test -p soloist --test deploy generated` writes them anew.

use std::env;
use std::fs;

use crate::chart;
use crate::printed::{folder, my_program, objects};

#[test]
fn generated_files_are_what_the_program_prints() {
    let mut files = chart::templates();
    let text = my_program(&["--flow-schema"]);
    for document in text.split("---\n") {
        let kind = objects(document).into_keys().next().unwrap();
        let folder = match kind.as_str() {
            "FlowSchema" => "kustomize/components/flow-schema",
            _ => "kustomize/base",
        };
        let path = format!("{folder}/{}.yaml", kind.to_lowercase());
        files.push((path, document.to_owned()));
    }
    let text = my_program(&["--extra-rights", "--label-role"]);
    for document in text.split("---\n").filter(|d| d.contains("\nkind: Role\n")) {
        let path = "kustomize/components/extra-rights/role.yaml";
        files.push((path.into(), document.to_owned()));
    }
    let text = my_program(&["--leave-cordoned-node"]);
    for document in text.split("---\n") {
        let kind = objects(document).into_keys().next().unwrap();
        if kind.starts_with("Cluster") {
            let file = kind.to_lowercase();
            let path = format!("kustomize/components/leave-cordoned-node/{file}.yaml");
            files.push((path, document.to_owned()));
        }
    }
    for (path, text) in files {
        let path = folder().join(path);
        let text = format!("# Generated from what `soloist manifests` prints.\n{text}");
        if env::var_os("SOLOIST_UPDATE_DEPLOY").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            found,
            text,
            "{}: write it anew with SOLOIST_UPDATE_DEPLOY=1 cargo test -p soloist --test deploy generated",
            path.display()
        );
    }
}

#[test]
fn the_charts_values_are_the_programs_defaults() {
    let path = folder().join("helm/soloist/values.yaml");
    let values: serde_json::Value =
        serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let printed = objects(&my_program(&[]));
    let deployment = &printed["Deployment"];
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(values["replicas"], deployment["spec"]["replicas"]);
    assert_eq!(
        values["gracePeriodSeconds"],
        pod["terminationGracePeriodSeconds"]
    );
    assert_eq!(values["runAsUser"], pod["securityContext"]["runAsUser"]);
    let ports = &pod["containers"][0]["ports"];
    assert_eq!(values["listenPort"], ports[0]["containerPort"]);
    assert_eq!(values["resources"], pod["containers"][0]["resources"]);
    assert_eq!(
        values["soloist"]["image"],
        pod["volumes"][0]["image"]["reference"]
    );
}
