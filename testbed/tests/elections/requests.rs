//! What a group that is well costs the API server.

use std::time::Duration;

use soloist_elector::clock;
use testbed::Request;

use crate::harness::{Cluster, Standby, USER, elector, lead, standard};

const STANDBYS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn in_a_quiet_minute_ten_standbys_ask_nothing_and_the_leader_renews_every_third_of_its_lease()
{
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let leader = elector(cluster.store_as(USER).await, "leader", standard());
    let term = lead(&leader).await;
    let mut standbys = Vec::new();
    let users: Vec<_> = (1..=STANDBYS).map(|n| format!("replica-{n}")).collect();
    for user in &users {
        cluster.allow(user).await;
        let standby = elector(cluster.store_as(user).await, user, standard());
        standbys.push(Standby::beside(standby, "leader").await);
    }
    let ours = |r: &&Request| r.namespace == cluster.namespace && r.resource == "leases";
    let watching = |requests: &[Request]| {
        let begun = |user: &str| {
            let mut of_user = requests.iter().filter(ours).filter(|r| r.user == user);
            of_user.any(|r| r.verb == "watch" && r.stage == "ResponseStarted")
        };
        users.iter().all(|user| begun(user)) && begun(USER)
    };
    let patience = Duration::from_secs(20);
    let before = cluster
        .plane
        .wait_for_requests(patience, watching)
        .await
        .unwrap()
        .len();

    clock::sleep(Duration::from_secs(60)).await.unwrap();
    let all = cluster.plane.requests().unwrap();
    let minute: Vec<_> = all[before..].iter().filter(ours).collect();
    let of_standbys: Vec<_> = minute.iter().filter(|r| r.user != USER).collect();
    assert!(of_standbys.is_empty(), "{of_standbys:#?}");
    let renewals = minute.iter().filter(|r| r.verb == "update").count();
    println!("in a minute: {} requests, all by the leader", minute.len());
    assert!((11..=13).contains(&renewals), "{renewals} renewals");
    assert_eq!(minute.len(), renewals);
    assert!(term.is_valid());
    assert!(standbys.iter().all(Standby::still_waits));
}
