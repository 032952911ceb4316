//! What is asked on the control socket, and how it is written: one line of JSON, with a version.

use std::time::Duration;

use serde_json::{Value, json};

/// Of requests and answers. What it knows is added to, never changed.
pub(crate) const VERSION: u64 = 1;
/// Of a request, in bytes, with its line's end.
pub(crate) const LONGEST: u64 = 4096;
/// A text that is longer is cut.
const LONGEST_TEXT: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// How is it?
    Status,
    /// The Pod's preStop hook has begun, and takes at most so long.
    PrestopBegins { max: Option<Duration> },
    /// The hook wants this in the log.
    PrestopSays(String),
    /// The hook is about to end.
    PrestopEnds { took: Duration, report: String },
}

impl Request {
    pub(crate) fn to_line(&self) -> String {
        let request = |name: &str| json!({ "version": VERSION, "request": name });
        let mut value = request(match self {
            Self::Status => "status",
            Self::PrestopBegins { .. } => "prestop-begin",
            Self::PrestopSays(_) => "prestop-note",
            Self::PrestopEnds { .. } => "prestop-end",
        });
        match self {
            Self::Status | Self::PrestopBegins { max: None } => {}
            Self::PrestopBegins { max: Some(max) } => value["max_ms"] = millis(*max).into(),
            Self::PrestopSays(text) => value["text"] = shortened(text).into(),
            Self::PrestopEnds { took, report } => {
                value["took_ms"] = millis(*took).into();
                value["text"] = shortened(report).into();
            }
        }
        format!("{value}\n")
    }

    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line)
            .map_err(|error| format!("a request is one line of JSON: {error}"))?;
        if value["version"] != VERSION {
            return Err(format!(
                "this soloist speaks version {VERSION}, not {}",
                value["version"]
            ));
        }
        let text = || shortened(value["text"].as_str().unwrap_or_default()).to_owned();
        match value["request"].as_str() {
            Some("status") => Ok(Self::Status),
            Some("prestop-begin") => Ok(Self::PrestopBegins {
                max: value["max_ms"].as_u64().map(Duration::from_millis),
            }),
            Some("prestop-note") => Ok(Self::PrestopSays(text())),
            Some("prestop-end") => match value["took_ms"].as_u64() {
                Some(millis) => Ok(Self::PrestopEnds {
                    took: Duration::from_millis(millis),
                    report: text(),
                }),
                None => Err("prestop-end needs took_ms, a number".into()),
            },
            _ => Err(format!("there is no request {}", value["request"])),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// At a character's border.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

pub(crate) fn done() -> Value {
    json!({ "version": VERSION, "ok": true })
}

pub(crate) fn refusal(why: &str) -> Value {
    json!({ "version": VERSION, "error": why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for request in [
            Request::Status,
            Request::PrestopBegins { max: None },
            Request::PrestopBegins {
                max: Some(Duration::from_secs(15)),
            },
            Request::PrestopSays("two\nlines".into()),
            Request::PrestopEnds {
                took: Duration::from_millis(1234),
                report: "quiet".into(),
            },
        ] {
            let line = request.to_line();
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(Request::parse(&line), Ok(request));
        }
    }

    #[test]
    fn every_request_is_short_enough_whatever_it_says() {
        let line = Request::PrestopSays("\u{1}ü".repeat(5000)).to_line();
        assert!((line.len() as u64) < LONGEST, "{}", line.len());
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let refused = Request::parse(r#"{"version":2,"request":"status"}"#).unwrap_err();
        assert_eq!(refused, "this soloist speaks version 1, not 2");
        assert!(Request::parse(r#"{"version":1,"request":"fly"}"#).is_err());
        assert!(Request::parse(r#"{"version":1,"request":"prestop-end"}"#).is_err());
    }
}
