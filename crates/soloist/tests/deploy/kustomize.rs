//! The overlays say what the program says with the same names.

use std::process::Command;

use crate::printed::{folder, manifests, my_program, objects};
use crate::tools;

/// What `kubectl kustomize` makes of a folder; `None` where there is no kubectl.
pub(crate) fn built(overlay: &str) -> Option<String> {
    let output = Command::new(tools::find("kubectl", "the kustomize overlays")?)
        .arg("kustomize")
        .arg(folder().join("kustomize").join(overlay))
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{overlay}: {complaint}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn each_presets_overlay_is_what_the_program_prints() {
    for preset in ["standard", "high-availability", "low-load"] {
        let Some(built) = built(&format!("overlays/{preset}")) else {
            return;
        };
        let printed = my_program(&["--preset", preset]);
        assert_eq!(objects(&built), objects(&printed), "{preset}");
    }
}

/// The base with one component. `None` where there is no kubectl.
fn with_component(name: &str) -> Option<String> {
    let kubectl = tools::find("kubectl", "the kustomize components")?;
    let overlay = tempfile::tempdir().unwrap();
    let depth = overlay.path().components().count() - 1;
    let deploy = folder().canonicalize().unwrap().join("kustomize");
    let deploy = format!("{}{}", "../".repeat(depth), &deploy.to_str().unwrap()[1..]);
    let text = format!("resources: [{deploy}/base]\ncomponents: [{deploy}/components/{name}]\n");
    std::fs::write(overlay.path().join("kustomization.yaml"), text).unwrap();
    let output = Command::new(kubectl)
        .arg("kustomize")
        .arg(overlay.path().canonicalize().unwrap())
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_component_of_extra_rights_gives_the_role_that_the_program_prints() {
    let Some(built) = with_component("extra-rights") else {
        return;
    };
    let printed = objects(&my_program(&["--extra-rights", "--label-role"]));
    assert_eq!(objects(&built)["Role"], printed["Role"]);
}

#[test]
fn the_component_that_leaves_cordoned_nodes_gives_what_the_program_prints() {
    let Some(built) = with_component("leave-cordoned-node") else {
        return;
    };
    let printed = my_program(&["--leave-cordoned-node"]);
    assert_eq!(objects(&built), objects(&printed));
}

#[test]
fn the_component_of_the_prestop_hook_gives_what_the_program_prints() {
    let Some(built) = with_component("prestop") else {
        return;
    };
    let printed = my_program(&["--prestop-hook", "soloist"]);
    assert_eq!(objects(&built), objects(&printed));
}

#[test]
fn the_serving_overlay_elects_nobody_as_the_program_prints_it() {
    let Some(built) = built("overlays/serving") else {
        return;
    };
    assert_eq!(objects(&built), objects(&my_program(&["--store", "none"])));
}

#[test]
fn the_guides_overlay_has_the_guides_names_and_is_otherwise_the_same() {
    let Some(built) = built("overlays/guides") else {
        return;
    };
    let flags = [
        "--name",
        "leader-election",
        "--namespace",
        "leader-election-demo",
        "--lease",
        "leader-election-lease",
        "--service-account",
        "leader-election-sa",
        "--role",
        "leader-election-role",
        "--role-binding",
        "leader-election-rolebinding",
    ];
    let mut printed = objects(&manifests(&flags, &["/my-program"]));
    let labels =
        &mut printed.get_mut("Deployment").unwrap()["spec"]["template"]["metadata"]["labels"];
    labels["app"] = "leader-election".into();
    assert_eq!(objects(&built), printed);
}
