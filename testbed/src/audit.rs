use std::{fs, path::Path};

use jiff::Timestamp;
use serde::Deserialize;

use crate::Error;

/// One line of the API server's audit log.
///
/// A watch has two: `ResponseStarted` when it begins and `ResponseComplete` when it ends. Everything else has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Who asked, such as `replica-0` or `system:serviceaccount:default:soloist`.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// Such as `leases`; empty for paths that are not resources.
    pub resource: String,
    /// Such as `token`; empty for the resource itself.
    pub subresource: String,
    /// The namespace, empty if there is none.
    pub namespace: String,
    /// The object's name, empty for requests on a collection.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// `ResponseStarted`, `ResponseComplete` or `Panic`.
    pub stage: String,
    /// The client's user agent.
    pub user_agent: String,
    /// When the request arrived.
    pub received: Timestamp,
    /// When it reached this stage.
    pub time: Timestamp,
}

pub(crate) const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  omitManagedFields: true
";

pub(crate) fn read(path: &Path) -> Result<Vec<Request>, Error> {
    match fs::read(path) {
        Ok(bytes) => Ok(parse(&String::from_utf8_lossy(&bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// A line that is still being written, or that was cut by a kill, is left out.
fn parse(text: &str) -> Vec<Request> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Event>(line).ok())
        .map(Request::from)
        .collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: Object,
    #[serde(default)]
    response_status: Status,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    code: u16,
}

impl From<Event> for Request {
    fn from(event: Event) -> Self {
        Self {
            user: event.user.username,
            verb: event.verb,
            resource: event.object_ref.resource,
            subresource: event.object_ref.subresource,
            namespace: event.object_ref.namespace,
            name: event.object_ref.name,
            code: event.response_status.code,
            stage: event.stage,
            user_agent: event.user_agent,
            received: event.request_received_timestamp,
            time: event.stage_timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","verb":"update","user":{"username":"replica-0"},"userAgent":"soloist","objectRef":{"resource":"leases","namespace":"a","name":"l"},"responseStatus":{"metadata":{},"code":409},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.000009Z"}"#;

    #[test]
    fn a_line_becomes_a_request() {
        let requests = parse(LINE);
        assert_eq!(requests.len(), 1);
        let Request {
            user,
            verb,
            resource,
            name,
            code,
            ..
        } = &requests[0];
        assert_eq!(
            (user.as_str(), verb.as_str(), resource.as_str()),
            ("replica-0", "update", "leases")
        );
        assert_eq!((name.as_str(), *code), ("l", 409));
    }

    #[test]
    fn a_half_written_line_is_left_out() {
        let text = format!("{LINE}\n{}", &LINE[..LINE.len() / 2]);
        assert_eq!(parse(&text).len(), 1);
    }
}
