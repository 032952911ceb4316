//! What `soloist manifests` prints.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// The text that `soloist manifests` prints.
pub(crate) fn manifests(flags: &[&str], program: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_soloist"))
        .arg("manifests")
        .args(flags)
        .arg("--")
        .args(program)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{flags:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// The program of the files under `deploy/`.
pub(crate) fn my_program(flags: &[&str]) -> String {
    let mut all = vec!["--name", "my-program"];
    all.extend(flags);
    manifests(&all, &["/my-program"])
}

/// The documents, by kind. The order of variables means nothing here, and kustomize changes it.
pub(crate) fn objects(text: &str) -> BTreeMap<String, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let count = documents.len();
    let by_kind = documents.into_iter().map(|mut object| {
        let variables = object.pointer_mut("/spec/template/spec/containers/0/env");
        if let Some(variables) = variables.and_then(Value::as_array_mut) {
            variables.sort_by_key(|variable| variable["name"].as_str().map(str::to_owned));
        }
        let kind = object["kind"].as_str().unwrap().to_owned();
        (kind, object)
    });
    let by_kind: BTreeMap<_, _> = by_kind.collect();
    assert_eq!(by_kind.len(), count, "two of a kind");
    by_kind
}

/// The folder `deploy` of this repository.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}
