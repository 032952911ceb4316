//! The conformance suite's disturbances, on a link.

use soloist_elector::testing::{Disturb, Disturbance};
use testbed::{Direction, Link};

/// Disturbs what goes over this link, which lives as long.
pub(crate) fn disturb(link: Link) -> Disturb {
    Box::new(move |disturbance| {
        match disturbance {
            Disturbance::None => link.heal(),
            Disturbance::LostAnswers => link.swallow(Direction::ToClient),
            Disturbance::SilentWatches => link.swallow(Direction::Both),
            Disturbance::Slow(delay) => link.delay(delay),
        }
        .unwrap();
    })
}
