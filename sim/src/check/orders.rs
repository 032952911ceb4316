//! What people order is obeyed once, in its own term; and in a pause nobody takes over.

use soloist_core::election::Purpose;
use soloist_core::ids::Term;
use soloist_core::orders::{Handover, Ordered};
use soloist_core::record::Record;

use super::Violation;
use crate::clock::{MILLI, Nanos};
use crate::faults::wall_time;
use crate::hosts::Soloist;
use crate::queue::HostId;
use crate::world::World;

/// Which orders were given for the term that the record showed, and which were obeyed.
#[derive(Default)]
pub(crate) struct Orders {
    given: Vec<Handover>,
    obeyed: Vec<Handover>,
    /// Somebody took the lease in a pause.
    pub(super) taken_in_a_pause: bool,
}

impl Orders {
    pub(crate) fn given(&mut self, order: Handover) {
        self.given.push(order);
    }
}

impl World {
    pub(crate) fn check_obeyed(
        &mut self,
        soloist: &Soloist,
        ordered: &Ordered,
    ) -> Result<(), Violation> {
        let Ordered::Handover(to) = ordered else {
            return Ok(());
        };
        let order = Handover {
            term: soloist.term.unwrap_or(Term::new(u64::MAX)),
            to: to.clone(),
        };
        let orders = &mut self.checks.orders;
        let times = |list: &[Handover]| list.iter().filter(|o| **o == order).count();
        match (times(&orders.given), times(&orders.obeyed)) {
            (0, _) => return Err(Violation::OrderOfAnotherTerm),
            (given, obeyed) if obeyed >= given => return Err(Violation::OrderObeyedTwice),
            _ => {}
        }
        orders.obeyed.push(order);
        Ok(())
    }

    /// A write that was sent then has landed upon this record.
    pub(crate) fn note_taken(
        &mut self,
        host: HostId,
        sent: Nanos,
        before: Option<&Record>,
        purpose: Purpose,
    ) {
        let Some(pause) = before.and_then(|r| r.orders.pause) else {
            return;
        };
        // Its clock counted what was left of the pause when it saw it; clocks drift.
        let latest = self.hosts[host].wall(sent + 500 * MILLI);
        let over = pause.until.is_some_and(|until| wall_time(latest) >= until);
        if purpose == Purpose::Acquire && !over {
            self.checks.orders.taken_in_a_pause = true;
        }
    }

    pub(super) fn check_pause(&self) -> Result<(), Violation> {
        match self.checks.orders.taken_in_a_pause {
            true => Err(Violation::TakenInAPause),
            false => Ok(()),
        }
    }
}
