//! `Retry-After`: for how long a server, or a proxy before it, asks us to wait.
//!
//! The API server says it in the body as well, others in the header only, which the Kubernetes client does not hand on. So it is
//! put into the body, where [`super::failure`] reads it.

use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};
use tower::BoxError;

/// The same response; the header's wait is in its body too.
pub(super) async fn into_body(
    response: Response<Incoming>,
) -> Result<Response<Either<Incoming, Full<Bytes>>>, BoxError> {
    let Some(seconds) = wait(response.status(), response.headers()) else {
        return Ok(response.map(Either::Left));
    };
    let (mut head, body) = response.into_parts();
    let said = body.collect().await?.to_bytes();
    let said = with_wait(head.status, &said, seconds).to_string();
    head.headers.remove(CONTENT_LENGTH);
    let body = Either::Right(Full::from(said));
    Ok(Response::from_parts(head, body))
}

/// In seconds. A date would take the server's clock, which is not ours.
fn wait(status: StatusCode, headers: &HeaderMap) -> Option<u32> {
    let waits = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    if !waits.contains(&status) {
        return None;
    }
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

fn with_wait(code: StatusCode, said: &[u8], seconds: u32) -> Value {
    let mut status = match serde_json::from_slice(said) {
        Ok(Value::Object(status)) if status.get("kind") == Some(&json!("Status")) => status,
        // Not the API server's own words.
        _ => {
            let message = String::from_utf8_lossy(said).trim().to_owned();
            let reason = code.canonical_reason().unwrap_or_default();
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code.as_u16(), "reason": reason, "message": message,
            });
            return with_wait(code, status.to_string().as_bytes(), seconds);
        }
    };
    let details = status.entry("details").or_insert_with(|| json!({}));
    if !details.is_object() {
        *details = json!({});
    }
    let known = details["retryAfterSeconds"].as_u64().unwrap_or_default();
    details["retryAfterSeconds"] = json!(known.max(seconds.into()));
    Value::Object(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_was_said_is_kept_and_the_longer_wait_counts() {
        let code = StatusCode::TOO_MANY_REQUESTS;
        let said = br#"{"kind": "Status", "message": "no", "details": {"name": "x", "retryAfterSeconds": 9}}"#;
        let status = with_wait(code, said, 7);
        assert_eq!(status["message"], "no");
        assert_eq!(
            status["details"],
            json!({"name": "x", "retryAfterSeconds": 9})
        );
        let html = with_wait(code, b"<html>busy</html>", 7);
        assert_eq!(html["message"], "<html>busy</html>");
        assert_eq!(html["code"], 429);
        assert_eq!(html["details"]["retryAfterSeconds"], 7);
    }

    #[test]
    fn only_seconds_and_only_of_who_asks_to_wait() {
        let headers = |value: &str| {
            [(RETRY_AFTER, value.parse().unwrap())]
                .into_iter()
                .collect()
        };
        let busy = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(wait(busy, &headers("12")), Some(12));
        assert_eq!(wait(busy, &headers("Wed, 21 Oct 2015 07:28:00 GMT")), None);
        assert_eq!(wait(busy, &headers("-1")), None);
        assert_eq!(wait(StatusCode::FORBIDDEN, &headers("12")), None);
        assert_eq!(wait(busy, &HeaderMap::new()), None);
    }
}
