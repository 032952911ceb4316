//! `/status` and `/leader` as JSON. What is here is documented in `docs/operations.md`.

use serde_json::{Value, json};
use soloist_core::ids::Identity;
use soloist_core::replica::StateName;
use soloist_elector::clock;
use soloist_elector::orders::timestamp;

use super::published::{About, Contact, Published};
use crate::notices::without_leaders;

/// Raised when a field goes or changes its meaning; not when one is added.
const VERSION: u32 = 1;

pub(super) fn leader(published: &Published) -> String {
    let snapshot = published.snapshot();
    let name = snapshot.leader.as_ref().map_or("", Identity::as_str);
    line(&json!({ "name": name }))
}

pub(super) fn json(published: &Published) -> String {
    let (about, snapshot) = (&published.about, published.snapshot());
    let now = clock::now();
    let lease = snapshot.lease.map(|lease| {
        json!({
            "term": lease.term.get(),
            // As text: it may have more digits than a JSON number keeps.
            "token": lease.token.to_string(),
            "valid_seconds": lease.valid_until.since(now).as_secs_f64(),
            "duration_seconds": about.timeouts.lease().as_secs_f64(),
        })
    });
    let mut status = json!({
        "version": VERSION,
        "soloist": env!("CARGO_PKG_VERSION"),
        "name": about.name,
        "identity": about.identity.as_str(),
        "store": about.store,
        "uptime_seconds": now.since(about.started).as_secs_f64(),
        "state": state(about, snapshot.state),
        "alive": published.is_alive().is_ok(),
        "ready": published.is_ready().is_ok(),
        "child": snapshot.child.json(),
        "ladder": about.timeouts.ladder(),
    });
    status["child"]["state"] = child(snapshot.state).into();
    status["child"]["restarts"] = snapshot.restarts.into();
    if about.elects {
        status["leader"] = json!(snapshot.leader.as_ref().map(Identity::as_str));
        status["lease"] = lease.unwrap_or(Value::Null);
        status["lost_lease"] = about.timeouts.loss();
        status["paused"] = json!(snapshot.pause.map(|pause| {
            let until = pause.until.and_then(timestamp);
            json!({ "stop": pause.stop, "until": until.map(|until| until.to_string()) })
        }));
        status["store_answers"] = json!(snapshot.contact == Contact::Heard);
    }
    line(&status)
}

pub(super) fn state(about: &About, state: StateName) -> String {
    match about.elects {
        true => state.to_string(),
        false => without_leaders(state).to_owned(),
    }
}

pub(super) const fn child(state: StateName) -> &'static str {
    match state {
        StateName::Follower => "none",
        StateName::PreLeader => "starting",
        StateName::Leader => "up",
        StateName::PreFollower | StateName::Terminating => "stopping",
    }
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}
