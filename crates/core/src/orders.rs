//! What people order of whoever leads. Orders are kept in the record, beside the lease.
//!
//! No order can make two lead: one makes a leader drain and release in order, the others make candidates wait.
//! A term begins by the same rules with and without them.

use alloc::boxed::Box;
use core::time::Duration;

use crate::ids::{Identity, Term};

/// The orders in a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Let another replica lead.
    pub handover: Option<Box<Handover>>,
    /// Let nobody take over, until this is taken away.
    pub pause: Option<Pause>,
}

impl Orders {
    /// No orders.
    pub const NONE: Self = Self {
        handover: None,
        pause: None,
    };
}

/// The leader of this term is to drain and to let another replica lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Nobody obeys it in any other term.
    pub term: Term,
    /// Who is to lead next; anyone if nobody is named.
    pub to: Option<Identity>,
}

/// Nobody takes the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Whoever leads stops its child in order and releases. Else it goes on for as long as it can.
    pub stop: bool,
    /// It ends by itself then.
    pub until: Option<WallTime>,
}

/// A reading of somebody's wall clock, in whole seconds since 1970. It decides nothing but when a pause is over,
/// which is when somebody may lead *again*: that no two do does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime(u64);

impl WallTime {
    /// So many seconds after 1970 began.
    #[must_use]
    pub const fn from_unix_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// Seconds since 1970 began.
    #[must_use]
    pub const fn unix_seconds(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

/// An order that a leader obeys now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// To let another replica lead: this one, or anyone.
    Handover(Option<Identity>),
    /// To stop the child, and to let nobody lead.
    Stop,
}

/// An order that a leader does not obey, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderRefusal {
    /// It was for the leader of another term.
    #[error(
        "a handover was ordered for term {ordered}, but this is term {term}; order it again for this term"
    )]
    AnotherTerm {
        /// Which.
        ordered: Term,
        /// Ours.
        term: Term,
    },
    /// We are the heir that it names.
    #[error("a handover to {0} was ordered, which leads already")]
    ToItself(Identity),
    /// Nobody could take over.
    #[error("a handover was ordered during a pause, in which nobody may take over; resume first")]
    Paused,
}
