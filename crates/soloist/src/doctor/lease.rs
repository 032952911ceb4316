//! The Lease: who holds it, whether it is renewed, who else writes it, and what that means for a takeover.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use soloist_core::time::{Human, Moment};
use soloist_core::timings::Timings;
use soloist_elector::clock;
use tokio::time::sleep;

use super::changes::Changes;
use super::cluster::{Cluster, Failure, rounded, text};
use super::history::History;
use crate::report::{Report, Verdict, read};

const GROUP: &str = "lease";
const PAUSE: Duration = Duration::from_millis(200);
/// A released lease is taken within milliseconds, when there is anybody to take it.
const TAKEOVER: Duration = Duration::from_secs(3);

/// Looks at the lease until it has been renewed once, or should have been. `wait` for somebody to hold it at all.
pub(super) async fn check(
    cluster: &Cluster,
    timings: &Timings,
    wait: Duration,
    report: &mut Report,
) {
    let started = clock::now();
    let held = match await_holder(cluster, started, wait.max(TAKEOVER)).await {
        Ok(Some(lease)) => lease,
        Ok(None) => {
            let reason = format!("there is no lease {}, or nobody holds it", cluster.lease());
            let advice = "Is a replica running? Its log says why it does not lead. Have --name and --namespace the values that it has?";
            return report.add(GROUP, "it is held", absent(wait, reason, advice));
        }
        Err(failure) => {
            let why = format!("the lease cannot be read: {failure}");
            return report.add(GROUP, "it is held", Verdict::Unknown(why));
        }
    };
    let holder = text(&held, "/spec/holderIdentity");
    report.add(GROUP, "it is held", Verdict::good(in_words(&held, holder)));
    report.add(
        GROUP,
        "its holder is there",
        holder_exists(cluster, &held, holder).await,
    );
    let lasts = duration(&held).unwrap_or(i64::from(timings.lease().seconds()));
    let renewed = await_renewal(cluster, &held, lasts).await;
    report.add(
        GROUP,
        "it is renewed",
        is_renewed(lasts, holder, renewed.as_ref()),
    );
    report.add(
        GROUP,
        "its holder's name is used once",
        is_one(&held, renewed.as_ref().map(|(lease, _)| lease)),
    );
    report.add(GROUP, "nobody else writes it", other_writers(&held));
    let history = History::read(cluster).await;
    let found = Changes {
        cluster,
        lease: &held,
        history: history.as_ref(),
        timings,
    };
    report.add(GROUP, "the leader seldom changes", found.how_often());
    report.add(
        GROUP,
        "a takeover after a crash is quick",
        found.after_a_crash(),
    );
    report.add(GROUP, "takeovers were quick", found.takeovers());
    if let Some((lease, seen_at)) = &renewed {
        report.add(GROUP, "its times beside this clock", skew(lease, *seen_at));
    }
}

fn absent(wait: Duration, reason: String, advice: &str) -> Verdict {
    match wait.is_zero() {
        true => Verdict::warning(reason, advice, read::TROUBLES),
        false => Verdict::bad(
            format!("{reason}, after {}", Human(wait)),
            advice,
            read::TROUBLES,
        ),
    }
}

async fn fetch(cluster: &Cluster) -> Result<Value, Failure> {
    let (namespace, name) = (cluster.namespace(), cluster.lease());
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    cluster.get(&path).await
}

async fn await_holder(
    cluster: &Cluster,
    started: Moment,
    patience: Duration,
) -> Result<Option<Value>, Failure> {
    loop {
        match fetch(cluster).await {
            Ok(lease) if !text(&lease, "/spec/holderIdentity").is_empty() => {
                return Ok(Some(lease));
            }
            Err(failure) if !failure.is(404) => return Err(failure),
            Ok(_) | Err(_) if clock::now().since(started) >= patience => return Ok(None),
            Ok(_) | Err(_) => sleep(PAUSE).await,
        }
    }
}

/// The next version of the lease, and when it was seen.
async fn await_renewal(cluster: &Cluster, held: &Value, lasts: i64) -> Option<(Value, Timestamp)> {
    let started = clock::now();
    let seconds = lasts.clamp(1, 120).unsigned_abs();
    let patience = Duration::from_secs(seconds + 1);
    while clock::now().since(started) < patience {
        if let Ok(lease) = fetch(cluster).await
            && text(&lease, "/metadata/resourceVersion") != text(held, "/metadata/resourceVersion")
        {
            return Some((lease, Timestamp::now()));
        }
        sleep(PAUSE).await;
    }
    None
}

/// As it says itself. Candidates count their own where it says none.
pub(super) fn duration(lease: &Value) -> Option<i64> {
    let seconds = lease.pointer("/spec/leaseDurationSeconds");
    seconds
        .and_then(Value::as_i64)
        .filter(|seconds| *seconds > 0)
}

fn in_words(lease: &Value, holder: &str) -> String {
    let transitions = lease
        .pointer("/spec/leaseTransitions")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let since = match text(lease, "/spec/acquireTime") {
        "" => String::new(),
        since => format!(", since {since}"),
    };
    format!("by {holder}, term {transitions}{since}")
}

fn is_renewed(lasts: i64, holder: &str, renewed: Option<&(Value, Timestamp)>) -> Verdict {
    match renewed {
        None => Verdict::bad(
            format!(
                "{holder} has not renewed it within {lasts} s, its whole duration, and nobody takes it over"
            ),
            "The holder is dead or cut off from the API server, and no other replica is there: start replicas, and look at their logs",
            read::TROUBLES,
        ),
        Some((lease, _)) => match text(lease, "/spec/holderIdentity") {
            same if same == holder => Verdict::good("seen"),
            "" => Verdict::good("it was released while we looked"),
            next => Verdict::warning(
                format!("{next} took it over from {holder} while we looked"),
                "If it does so again and again, see below",
                read::TROUBLES,
            ),
        },
    }
}

async fn holder_exists(cluster: &Cluster, lease: &Value, holder: &str) -> Verdict {
    let namespace = cluster.namespace();
    // Another elector's holder may be called anything.
    if !holder
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    {
        return Verdict::Unknown(format!("{holder:?} is no Pod's name"));
    }
    match cluster
        .get(&format!("/api/v1/namespaces/{namespace}/pods/{holder}"))
        .await
    {
        Err(failure) if failure.is(404) => Verdict::warning(
            format!("there is no Pod {holder} in the namespace {namespace}"),
            "That is well for replicas outside the cluster. For Pods, set POD_NAME from the downward API (metadata.name)",
            read::POD,
        ),
        Err(failure) => Verdict::Unknown(format!("{} may not look: {failure}", cluster.user)),
        Ok(pod) => match signed(lease, "pod") {
            Some(uid) if uid != text(&pod, "/metadata/uid") => Verdict::warning(
                format!("the lease was written by another Pod of the name {holder} (UID {uid})"),
                "That Pod is gone, and its lease has to run out. StatefulSets do this when a Pod is replaced",
                read::TROUBLES,
            ),
            Some(_) | None => {
                Verdict::good(format!("on the node {}", text(&pod, "/spec/nodeName")))
            }
        },
    }
}

/// A field of soloist's signature.
fn signed<'a>(lease: &'a Value, field: &str) -> Option<&'a str> {
    let annotations = lease.pointer("/metadata/annotations")?;
    let signature = annotations.get("soloist.dev/signature")?.as_str()?;
    let (fields, _) = signature.split_once(" holder=")?;
    fields
        .split(' ')
        .find_map(|part| part.strip_prefix(field)?.strip_prefix('='))
}

fn is_one(held: &Value, renewed: Option<&Value>) -> Verdict {
    let Some(next) = renewed else {
        return Verdict::Unknown("nothing was written while we looked".into());
    };
    let holder = text(held, "/spec/holderIdentity");
    let same_name = text(next, "/spec/holderIdentity") == holder;
    let (before, after) = (signed(held, "instance"), signed(next, "instance"));
    match (before, after) {
        (Some(before), Some(after)) if same_name && before != after => Verdict::warning(
            format!("two processes called {holder} have written it within one lease"),
            "Either its container was restarted just now, or two replicas have the same identity: give each its own \
             (POD_NAME from the downward API)",
            read::POD,
        ),
        (_, Some(_)) => Verdict::good(""),
        (_, None) => Verdict::Unknown(format!(
            "{holder} is not soloist, and does not say which process it is"
        )),
    }
}

fn other_writers(lease: &Value) -> Verdict {
    let fields = lease
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array);
    let others: BTreeSet<&str> = fields
        .into_iter()
        .flatten()
        .filter(|entry| entry.pointer("/fieldsV1/f:spec").is_some())
        .map(|entry| text(entry, "/manager"))
        .filter(|manager| *manager != "soloist")
        .collect();
    if others.is_empty() {
        return Verdict::good("");
    }
    let others: Vec<&str> = others.into_iter().collect();
    Verdict::warning(
        format!("its spec was also written by: {}", others.join(", ")),
        "Another elector on the same Lease is respected. A person or a tool that edits it takes the lease from its holder: give \
         the two different names, or keep the tool away",
        read::TROUBLES,
    )
}

/// Information only: no decision reads these times.
fn skew(lease: &Value, seen_at: Timestamp) -> Verdict {
    let Ok(renewed) = text(lease, "/spec/renewTime").parse::<Timestamp>() else {
        return Verdict::Unknown("it does not say when it was renewed".into());
    };
    let apart = seen_at.duration_since(renewed);
    let (ahead, apart) = (apart.is_negative(), apart.unsigned_abs());
    let which = if ahead { "ahead of" } else { "behind" };
    Verdict::good(match apart < Duration::from_secs(2) {
        true => "they agree".to_owned(),
        false => format!(
            "the holder's clock is {} {which} this one; no decision reads it, so only people are misled",
            Human(rounded(apart))
        ),
    })
}
