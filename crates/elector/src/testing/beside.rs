//! What others keep beside the record, as tests.

use soloist_core::orders::Orders;

use super::{Fixture, cannot, create, held_by, in_time, read, renew};
use crate::store::LeaseStore;

/// What others keep beside the record survives a write: as the writer's base has it, whatever else has been seen.
pub async fn what_others_keep_beside_the_record_survives_a_write<F: Fixture>(fixture: F) {
    let (writer, other) = (fixture.store(), fixture.store());
    let created = create(&writer, &held_by("a", 1, 1)).await;
    if let Some(()) = cannot("fields of others", fixture.annotate("first").await) {
        let found = read(&other).await;
        assert!(found.version > created.version);
        let renewed = renew(&writer, &found, &held_by("a", 1, 2)).await;
        assert_eq!(fixture.annotation().await.as_deref(), Some("first"));
        let ordered = in_time(other.order(&renewed, &Orders::NONE)).await;
        assert!(ordered.is_ok(), "{ordered:?}");
        assert_eq!(fixture.annotation().await.as_deref(), Some("first"));
    }
}

/// A store that was set back gives a version's number out again: whoever has seen both writes back what is beside the record now.
pub async fn of_two_states_with_one_version_the_present_one_is_written_back<F: Fixture>(
    fixture: F,
) {
    let store = fixture.store();
    create(&store, &held_by("a", 1, 1)).await;
    fixture.back_up().await;
    if cannot("fields of others", fixture.annotate("lost").await).is_none() {
        return;
    }
    let lost = read(&store).await;
    fixture.set_back().await;
    let Ok(()) = fixture.annotate("kept").await else {
        panic!("it could be annotated before");
    };
    let present = read(&store).await;
    if present.version != lost.version {
        eprintln!("not tried: this store gives no version out again");
    }
    renew(&store, &present, &held_by("a", 1, 2)).await;
    assert_eq!(fixture.annotation().await.as_deref(), Some("kept"));
}
