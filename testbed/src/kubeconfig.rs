use base64::{Engine, engine::general_purpose::STANDARD};

pub(crate) fn render(
    server: &str,
    ca_pem: &str,
    user: &str,
    token: &str,
    namespace: &str,
) -> String {
    let ca = STANDARD.encode(ca_pem);
    format!(
        "apiVersion: v1
kind: Config
current-context: testbed
contexts:
- name: testbed
  context:
    cluster: testbed
    user: {user:?}
    namespace: {namespace}
clusters:
- name: testbed
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {user:?}
  user:
    token: {token}
"
    )
}
