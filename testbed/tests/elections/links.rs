//! A leader whose way to the API server fails.

use std::time::Duration;

use soloist_elector::testing::in_time;
use soloist_elector::{Term, clock};
use testbed::{Direction, Link};

use crate::harness::{Cluster, Standby, lead, quick};

async fn loses_its_leadership_in_time_and_gets_it_back(harm: impl Fn(&Link)) {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let link = cluster.plane.link().unwrap();
    let leader = cluster.elector_via(&link, "leader").await;
    let term = lead(&leader).await;
    let standby = Standby::beside(cluster.elector("standby").await, "leader").await;
    harm(&link);
    in_time(term.cancelled()).await;
    assert!(clock::now() < term.valid_until() - quick().guard_margin());
    let (next, standby) = standby.leads().await;
    assert!(clock::now() >= term.valid_until());
    assert!(next.token() > term.token());
    let last = next.token();
    term.finish();
    link.heal().unwrap();
    let back = Standby::beside(leader, "standby").await;
    next.finish();
    in_time(standby.shutdown()).await.unwrap();
    let (again, _leader) = back.leads().await;
    assert!(again.token() > last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_ends_in_time_and_comes_back() {
    loses_its_leadership_in_time_and_gets_it_back(|link| link.cut().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_packets_are_swallowed_ends_in_time_and_comes_back() {
    let harm = |link: &Link| link.swallow(Direction::Both).unwrap();
    loses_its_leadership_in_time_and_gets_it_back(harm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_link_is_slower_than_an_attempt_ends_in_time_and_comes_back() {
    let harm = |link: &Link| link.delay(quick().attempt_limit()).unwrap();
    loses_its_leadership_in_time_and_gets_it_back(harm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_hears_no_answers_ends_in_time_although_its_writes_may_land() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let link = cluster.plane.link().unwrap();
    let leader = cluster.elector_via(&link, "leader").await;
    let term = lead(&leader).await;
    link.swallow(Direction::ToClient).unwrap();
    in_time(term.cancelled()).await;
    let ended = term.valid_until();
    assert!(clock::now() < ended - quick().guard_margin());
    let next = lead(&cluster.elector("standby").await).await;
    assert!(clock::now() >= ended);
    assert!(next.token() > term.token());
    term.finish();
}

/// Waits until a renewal that was sent after now has landed.
async fn renews(term: &Term) {
    let lease = quick().lease().get();
    let sent_later = clock::now() + lease;
    in_time(async {
        while term.valid_until() < sent_later {
            clock::sleep(Duration::from_millis(20)).await.unwrap();
        }
    })
    .await;
    assert!(term.is_valid());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_go_deaf_or_are_reset_do_not_cost_the_leadership() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let link = cluster.plane.link().unwrap();
    let leader = cluster.elector_via(&link, "leader").await;
    let term = lead(&leader).await;
    for _ in 0..3 {
        // Every connection of now loses bytes for good; new ones work.
        link.swallow(Direction::Both).unwrap();
        link.heal().unwrap();
        renews(&term).await;
        link.reset().unwrap();
        renews(&term).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_shorter_than_an_attempt_is_ridden_out() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let link = cluster.plane.link().unwrap();
    let leader = cluster.elector_via(&link, "leader").await;
    let term = lead(&leader).await;
    for _ in 0..3 {
        link.stall_for(quick().attempt_limit() * 3 / 4).unwrap();
        renews(&term).await;
    }
}
