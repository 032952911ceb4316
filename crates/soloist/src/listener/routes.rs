//! What is answered to whom.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::published::Published;
use super::status;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Answer = Response<Full<Bytes>>;

/// Everything is for reading.
pub(super) fn answer<B>(request: &Request<B>, published: &Published) -> Answer {
    let route: fn(&Published) -> Answer = match request.uri().path() {
        "/livez" => |published| verdict(published.is_alive()),
        "/readyz" => |published| verdict(published.is_ready()),
        "/startupz" => |published| verdict(published.has_started()),
        "/leader" => leader,
        "/status" => |published| answered(StatusCode::OK, JSON, status::json(published)),
        "/metrics" => metrics,
        _ => {
            let paths = "there is /livez, /readyz, /startupz, /leader, /status and /metrics\n";
            return answered(StatusCode::NOT_FOUND, TEXT, paths);
        }
    };
    match *request.method() {
        Method::GET | Method::HEAD => route(published),
        _ => {
            let text = "there is nothing but GET and HEAD\n";
            let mut refused = answered(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
            let allowed = HeaderValue::from_static("GET, HEAD");
            refused.headers_mut().insert(ALLOW, allowed);
            refused
        }
    }
}

/// Good, or why not.
fn verdict(verdict: Result<(), String>) -> Answer {
    match verdict {
        Ok(()) => answered(StatusCode::OK, TEXT, "ok\n"),
        Err(reason) => answered(StatusCode::SERVICE_UNAVAILABLE, TEXT, reason + "\n"),
    }
}

/// As Kubernetes' old leader-elector sidecar answered, but for the code.
fn leader(published: &Published) -> Answer {
    if !published.about.elects {
        let text = "nobody is elected: every replica runs the program (--store none)\n";
        return answered(StatusCode::NOT_FOUND, TEXT, text);
    }
    let code = match published.leads() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    answered(code, JSON, status::leader(published))
}

fn metrics(published: &Published) -> Answer {
    match published.metrics() {
        Ok(text) => answered(StatusCode::OK, OPEN_METRICS, text),
        Err(error) => {
            let text = format!("the metrics cannot be written: {error}\n");
            answered(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
        }
    }
}

fn answered(code: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
