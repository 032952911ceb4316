//! soloist in front of an image that was made without it.

use serde_json::json;

use crate::{
    group::{Group, container_security, pod_spec},
    images,
    journal::Event,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_installs_soloist_beside_an_image_without_it() {
    let Some(group) = Group::create("installed").await else {
        return;
    };
    let mut spec = pod_spec();
    let mount = json!({ "name": "soloist", "mountPath": "/opt/soloist" });
    spec["initContainers"] = json!([{
        "name": "soloist",
        "image": images::SOLOIST,
        "imagePullPolicy": "Never",
        "args": ["install", "/opt/soloist/soloist"],
        "securityContext": container_security(),
        "volumeMounts": [mount],
    }]);
    let volume = json!({ "name": "soloist", "emptyDir": {} });
    spec["volumes"].as_array_mut().unwrap().push(volume);
    let container = &mut spec["containers"][0];
    container["image"] = json!(images::STOCK);
    container["command"][0] = json!("/opt/soloist/soloist");
    container["volumeMounts"]
        .as_array_mut()
        .unwrap()
        .push(mount);
    group.deploy(2, spec).await;
    group.await_ready(2).await;
    group.await_event(Event::is_start).await;
    group.end().await;
}
