//! The record as JSON: a lease file's content, and the value of a key in etcd.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use soloist_core::election::Purpose;
use soloist_core::ids::Identity;
use soloist_core::orders::Orders;
use soloist_core::record::Record;

use crate::{orders, signature};

const FORMAT: &str = "soloist-lease";
const FORMAT_VERSION: u64 = 1;
/// Of what somebody else has written this much is shown.
const SHOWN: usize = 40;

/// A lease record as JSON. Fields that are not ours are kept.
#[derive(Clone, Debug, Default)]
pub struct Form(Map<String, Value>);

impl Form {
    /// Reads a record.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence's end: `it …`.
    pub(crate) fn parse(content: &[u8]) -> Result<Self, String> {
        if content.is_empty() {
            return Err("is empty".into());
        }
        let map: Map<String, Value> = serde_json::from_slice(content)
            .map_err(|error| format!("is not the JSON of a lease: {error}"))?;
        if map.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err(format!(
                "is not a lease of soloist: it lacks \"format\": \"{FORMAT}\""
            ));
        }
        if map.get("formatVersion").and_then(Value::as_u64) != Some(FORMAT_VERSION) {
            return Err(format!(
                "has a format version other than {FORMAT_VERSION}, the only one that this program knows"
            ));
        }
        match map.get("holder") {
            None | Some(Value::Null | Value::String(_)) => Ok(Self(map)),
            Some(other) => {
                let shown: String = other.to_string().chars().take(SHOWN).collect();
                Err(format!("has a holder that is not a text: {shown}"))
            }
        }
    }

    pub(crate) fn record(&self) -> Record {
        let text = |name: &str| self.0.get(name).and_then(Value::as_str);
        Record {
            holder: text("holder").and_then(Identity::found),
            duration_seconds: self.0.get("durationSeconds").and_then(Value::as_i64),
            transitions: self
                .0
                .get("transitions")
                .and_then(Value::as_u64)
                .unwrap_or(0),
            signature: text("signature").and_then(signature::parse),
            orders: Orders {
                handover: text("handover")
                    .and_then(|text| orders::parse_handover(text).ok().map(Box::new)),
                pause: text("pause").and_then(|text| orders::parse_pause(text).ok()),
            },
        }
    }

    /// A field that only one of the stores knows.
    #[cfg(feature = "file")]
    pub(crate) fn field(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Sets such a field, or takes it away.
    #[cfg(feature = "file")]
    pub(crate) fn set_field(&mut self, name: &str, value: Option<Value>) {
        match value {
            Some(value) => self.0.insert(name.into(), value),
            None => self.0.remove(name),
        };
    }

    /// Writes over what is ours, and keeps the rest.
    pub(crate) fn set(&mut self, record: &Record, purpose: Purpose) {
        let now = json!(Timestamp::now().to_string());
        let mut put = |name: &str, value: Value| self.0.insert(name.into(), value);
        put("format", json!(FORMAT));
        put("formatVersion", json!(FORMAT_VERSION));
        put(
            "holder",
            json!(record.holder.as_ref().map(Identity::as_str)),
        );
        put("durationSeconds", json!(record.duration_seconds));
        put("transitions", json!(record.transitions));
        put(
            "signature",
            json!(record.signature.as_ref().map(signature::to_text)),
        );
        put("renewed", now.clone());
        match purpose {
            Purpose::Acquire | Purpose::Release => put("acquired", now),
            Purpose::Renew => None,
        };
        self.set_orders(&record.orders);
    }

    /// Writes over the orders that are there, and keeps those that nobody can read, for people.
    pub(crate) fn set_orders(&mut self, wanted: &Orders) {
        let found = self.record().orders;
        let mut put = |name: &str, text: Option<String>| match text {
            Some(text) => self.0.insert(name.into(), json!(text)),
            None => self.0.remove(name),
        };
        if found.handover != wanted.handover {
            put(
                "handover",
                wanted.handover.as_deref().map(orders::handover_to_text),
            );
        }
        if found.pause != wanted.pause {
            put("pause", wanted.pause.as_ref().map(orders::pause_to_text));
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        format!("{:#}\n", Value::Object(self.0.clone())).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_refused_with_the_reason() {
        for (content, reason) in [
            ("", "is empty"),
            ("hello", "is not the JSON of a lease"),
            ("[]", "is not the JSON of a lease"),
            ("{}", "is not a lease of soloist"),
            (
                r#"{"format": "soloist-lease", "formatVersion": 2}"#,
                "has a format version other than 1",
            ),
            (
                r#"{"format": "soloist-lease", "formatVersion": 1, "holder": 7}"#,
                "has a holder that is not a text: 7",
            ),
        ] {
            let error = Form::parse(content.as_bytes()).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn odd_values_are_survived() {
        let content = r#"{"format": "soloist-lease", "formatVersion": 1, "holder": "",
            "durationSeconds": "soon", "transitions": -1, "signature": "x", "processes": 3}"#;
        let form = Form::parse(content.as_bytes()).unwrap();
        let nothing = Record {
            holder: None,
            duration_seconds: None,
            transitions: 0,
            signature: None,
            orders: Orders::NONE,
        };
        assert_eq!(form.record(), nothing);
    }
}
