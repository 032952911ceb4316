//! A lease in an etcd.

use std::collections::BTreeSet;
use std::time::Duration;

use soloist_core::time::Human;
use soloist_core::timings::Timings;
use soloist_elector::etcd::{EtcdStore, Member, Options};
use soloist_elector::{LeaseStore, StoreError, clock};
use tokio::time::timeout;

use crate::report::{Report, Verdict, read};

const GROUP: &str = "etcd";
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn check(options: Options, timings: &Timings, report: &mut Report) {
    let store = EtcdStore::new(options);
    let members = store.members().await;
    for member in &members {
        let what = format!("{} answers", member.endpoint);
        report.add(GROUP, what, answers(member));
    }
    report.add(
        GROUP,
        "its members are of one cluster",
        of_one_cluster(&members),
    );
    report.add(GROUP, "a majority can be used", has_a_majority(&members));
    let begun = clock::now();
    let held = timeout(PATIENCE, store.read()).await;
    let took = clock::now().since(begun);
    let verdict = match held {
        Err(_) => late(),
        Ok(Err(error)) => failed(&error),
        Ok(Ok(snapshot)) => {
            let holder = snapshot.record.and_then(|record| record.holder);
            let held = holder.map_or("nobody has it".into(), |h| format!("held by {h}"));
            match took > timings.attempt_limit() {
                true => Verdict::warning(
                    format!(
                        "{held}; but it took {}, and a request is given up after {}",
                        Human(took),
                        Human(timings.attempt_limit())
                    ),
                    "Take a longer lease (--preset low-load), or look why etcd is slow: its disk, its network",
                    read::OPERATIONS,
                ),
                false => Verdict::good(held),
            }
        }
    };
    report.add(GROUP, "the lease can be read", verdict);
    let verdict = match timeout(PATIENCE, store.may_write()).await {
        Err(_) => late(),
        Ok(Err(error)) => failed(&error),
        Ok(Ok(())) => Verdict::good(""),
    };
    report.add(GROUP, "the lease may be written", verdict);
}

fn late() -> Verdict {
    Verdict::bad(
        format!("no answer within {}", Human(PATIENCE)),
        "Are the addresses right, and is nothing on the way that swallows everything?",
        read::OPERATIONS,
    )
}

fn failed(error: &StoreError) -> Verdict {
    let advice = "Do what the message says";
    Verdict::bad(error.to_string(), advice, read::OPERATIONS)
}

fn answers(member: &Member) -> Verdict {
    match &member.state {
        Err(error) => Verdict::warning(
            error.to_string(),
            "The others are used without it: start it, or take it from the list",
            read::OPERATIONS,
        ),
        Ok(state) if !state.has_leader => Verdict::warning(
            "it has no leader",
            "It has lost the other members: look at its network and its log",
            read::OPERATIONS,
        ),
        Ok(state) if !state.errors.is_empty() => Verdict::bad(
            state.errors.join("; "),
            "Compact and defragment it, or raise its quota, and then: etcdctl alarm disarm",
            read::OPERATIONS,
        ),
        Ok(state) => Verdict::good(format!("etcd {}", state.version)),
    }
}

fn of_one_cluster(members: &[Member]) -> Verdict {
    let known = members
        .iter()
        .filter_map(|member| member.state.as_ref().ok());
    let clusters: BTreeSet<_> = known.map(|state| state.cluster).collect();
    match clusters.len() {
        0 => Verdict::Unknown("none answers".into()),
        1 => Verdict::good(""),
        many => Verdict::bad(
            format!("they are of {many}: each would have a leader of its own"),
            "Name only members of one etcd",
            read::OPERATIONS,
        ),
    }
}

fn has_a_majority(members: &[Member]) -> Verdict {
    let is_well = |member: &&Member| member.state.as_ref().is_ok_and(|state| state.has_leader);
    match (members.iter().filter(is_well).count(), members.len()) {
        (0, _) => Verdict::bad(
            "no member that was named has a leader",
            "Start the members; more than half of them must run",
            read::OPERATIONS,
        ),
        (well, 1) => Verdict::good(format!(
            "{well} of 1; name all members, so that one can fail"
        )),
        (well, all) => Verdict::good(format!("{well} of {all}")),
    }
}
