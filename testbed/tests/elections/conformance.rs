//! The Kubernetes store keeps the promises that every store keeps.

use crate::harness::Cluster;

macro_rules! on_the_api_server {
    ($($name:ident,)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            if let Some(cluster) = Cluster::shared().await {
                soloist_elector::testing::$name(cluster).await;
            }
        }
    )* };
}

on_the_api_server! {
    absence_has_a_version,
    creates_only_what_is_absent,
    one_of_thirty_creators_wins,
    one_of_thirty_writers_wins,
    a_stale_write_loses,
    a_write_over_an_unseen_edit_loses,
    the_version_grows_across_deletion,
    a_record_survives_being_written_and_read,
    a_release_is_read_as_one,
    the_watch_shows_every_change_in_order,
    the_watch_never_skips,
    thirty_watches_see_a_release,
}
