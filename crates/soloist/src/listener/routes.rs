//! What is answered to whom.

use std::sync::Arc;

use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::published::Published;
use super::{events, page, status};
use crate::http1::{self, Answer, answered};

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A place among the streams of `/events`, if the request may have one.
pub(super) enum Place {
    NotWanted,
    Taken(OwnedSemaphorePermit),
    None,
}

impl Place {
    /// A stream holds its connection, so there may be few.
    pub(super) fn of<B>(request: &Request<B>, places: &Arc<Semaphore>) -> Self {
        if request.uri().path() != "/events" || request.method() != Method::GET {
            return Self::NotWanted;
        }
        match Arc::clone(places).try_acquire_owned() {
            Ok(place) => Self::Taken(place),
            Err(_) => Self::None,
        }
    }
}

/// Everything is for reading.
pub(super) fn answer<B>(request: &Request<B>, published: &Arc<Published>, place: Place) -> Answer {
    match place {
        Place::NotWanted => {}
        Place::Taken(place) => {
            let stream = events::stream(published, place);
            return http1::streamed(EVENTS, stream);
        }
        Place::None => {
            let text = "as many read the events as may; close another page, or ask /status\n";
            return answered(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
        }
    }
    let route: fn(&Published) -> Answer = match request.uri().path() {
        "/" => |_| page(),
        // Its head, without a place.
        "/events" => |_| answered(StatusCode::OK, EVENTS, ""),
        "/livez" => |published| verdict(published.is_alive()),
        "/readyz" => |published| verdict(published.is_ready()),
        "/startupz" => |published| verdict(published.has_started()),
        "/leader" => leader,
        "/status" => |published| answered(StatusCode::OK, JSON, status::json(published)),
        "/metrics" => metrics,
        _ => {
            let paths =
                "there is /, /livez, /readyz, /startupz, /leader, /status, /events and /metrics\n";
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

fn page() -> Answer {
    let mut answer = answered(StatusCode::OK, HTML, page::PAGE.text);
    page::PAGE.protect(answer.headers_mut());
    answer
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
